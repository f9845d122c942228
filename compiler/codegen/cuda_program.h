/* codegen for CUDA of a whole program: the texts of its modules, and the blob that the object file
 * holds (runtime/abi/cuda.h).
 *
 * Every kernel is a module of its own; so is every instance of a library file that an action of the
 * plan needs. */
#ifndef DTM_CODEGEN_CUDA_PROGRAM_H
#define DTM_CODEGEN_CUDA_PROGRAM_H

#include "codegen/cuda.h"
#include "codegen/nvrtc.h"

enum { CUDA_MAX_ARCHS = 16 };

typedef struct CudaArch {
  uint32_t number; /* 90 */
  bool binary;     /* machine code (sm_90), else PTX alone (compute_90) */
} CudaArch;

/* What --target names; without archs: what is usual. */
typedef struct CudaTarget {
  CudaArch arch[CUDA_MAX_ARCHS];
  uint32_t narchs;
} CudaTarget;

/* Reads what stands behind "cuda": "" or ":sm_90,compute_80". NULL, or what is wrong. */
const char *cuda_target_parse(Arena *arena, const char *text, CudaTarget *out);

typedef struct CudaModule {
  const char *name;     /* "k3_sum", "sort_f32": NAME.cu and NAME.ptx are its files */
  const char *text;     /* for people */
  const char *bare;     /* for the compiler: the same lines */
  const char *file;     /* in its messages */
  const char *ptx;      /* of the newest architecture; NULL before it is compiled */
  const Kernel *kernel; /* NULL = an instance of a library file */
  const char *made;     /* what `bare` was before it was edited */
  bool many;            /* with an entry for many calls */
  bool edited;          /* taken from --load-cuda */
} CudaModule;

typedef struct CudaProgram {
  VEC(CudaModule) modules; /* kernels by number, then instances */
  VEC(NvrtcHeader) headers;
  VEC(const char *) read; /* files of --load-cuda */
  bool other_headers;     /* some of them are not the library's */
  const void *blob;
  size_t blob_size;
} CudaProgram;

typedef struct CudaOptions {
  const Sources *sources;
  CudaTarget target;
  const char *library; /* folder with cuda/dtm.cuh */
  const char *edited;  /* folder of --load-cuda, or NULL */
} CudaOptions;

/* The texts of all modules. `image` is the plan's (64-aligned). NULL with *error. */
CudaProgram *cuda_program(Arena *arena, Kernel *const *kernels, uint32_t nkernels,
                          const unsigned char *image, size_t image_size, const CudaOptions *options,
                          const char **error);
/* Compiles them and makes the blob. The same program gives the same bytes. */
bool cuda_program_compile(Arena *arena, CudaProgram *p, const CudaOptions *options,
                          const char **error);
/* A .ptx in the folder of --load-cuda that is not what its text, which nobody edited, gives: NULL,
 * or its path. What was changed there is not read. */
const char *cuda_program_unread(Arena *arena, const CudaProgram *p, const CudaOptions *options);

#endif
