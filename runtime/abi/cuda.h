/* What the compiler hands to the runtime for CUDA, beside the image: code for the GPU.
 *
 * One flat blob: a header, tables of fixed-size records, a string table, bytes. Records refer to
 * each other by index, to strings and bytes by offset from the start of the blob. Index 0 of the
 * functions belongs to kernel 0: a generated kernel of number `code` (AbiAction.code) is function
 * number `code`; the functions of library modules follow.
 *
 * A module is one translation unit. It has one image per chip it was compiled for (CUBIN) and one
 * as PTX, which later chips translate when they load it. Code takes a quarter of its size
 * compressed.
 *
 * A generated kernel:
 *
 *   extern "C" __global__ void ENTRY(buffers: one pointer each, int64_t ints: one each,
 *                                   int64_t tasks, int32_t group)
 *
 * `group` threads of a block of ABI_CUDA_BLOCK share a task; abi_cuda_launch says how many. Results
 * depend on sizes only, never on the grid.
 *
 * Where memory is read or written across the vector dim, a task may be a tile instead, of vec_block
 * by `side` elements, whose threads are a whole block.
 */
#ifndef DTM_RT_ABI_CUDA_H
#define DTM_RT_ABI_CUDA_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/abi/image.h"

enum { ABI_CUDA_VERSION = 4, ABI_CUDA_BLOCK = 256, ABI_CUDA_ALIGN = 64 };
#define ABI_CUDA_MAGIC 0x616475634d54440aull

typedef enum AbiCudaKind { ABI_CUDA_GENERATED = 1, ABI_CUDA_LIBRARY } AbiCudaKind;
typedef enum AbiCudaFormat { ABI_CUDA_PTX = 1, ABI_CUDA_CUBIN } AbiCudaFormat;

enum {
  ABI_CUDA_LANES = 1,  /* one thread per element of the vector dim: they share nothing */
  ABI_CUDA_MANY = 2,   /* there is an entry ENTRY_many too */
  ABI_CUDA_COLUMNS = 4 /* a thread goes down its columns: tasks are multiplied by pieces of `group`
                          times `width` columns */
};

/* What the optimizer does with many parameters, several independent actions of one kernel, is one
 * launch of
 *
 *   extern "C" __global__ void ENTRY_many(const ENTRY_call *calls, int32_t ncalls)
 *
 * A call is a record of 8-byte fields: the buffers, the ints, tasks, group, the first of its blocks
 * of the grid, and how many they are. Calls ascend by first block, and their blocks are the grid.
 */
enum { ABI_CUDA_CALL_WORDS = 4 /* behind the ints */ };

/* In place of an index into the ints, as in the kernel IR. */
enum { ABI_CUDA_INT_ZERO = -1, ABI_CUDA_INT_ONE = -2 };

typedef struct AbiCudaFunction {
  uint32_t name;  /* "k3_sum", distinct in the blob */
  uint32_t entry; /* its name in the module: "k_sum"; of library kernels the same as `name` */
  uint32_t module;
  uint32_t kind;            /* AbiCudaKind; what follows is of generated kernels only */
  uint32_t nbuffers, nints; /* parameters, before tasks and group */
  int32_t vec;              /* which int is the extent of the vector dim */
  uint32_t width;           /* elements a thread takes at once */
  uint32_t vec_block;       /* elements of the vector dim in one task; 0 = all */
  int32_t across;           /* which int is the extent of the other dim of tiles */
  uint32_t side;            /* elements of it in a tile; 0 = there are no tiles */
  uint32_t flags;
} AbiCudaFunction;

typedef struct AbiCudaImage {
  uint32_t module;
  uint32_t arch;   /* 80, 90, ...: capability * 10 */
  uint32_t format; /* AbiCudaFormat; PTX ends with a NUL, which is counted */
  uint32_t zero;
  uint64_t offset, bytes; /* in the blob, compressed by zlib */
  uint64_t size;          /* of the code */
} AbiCudaImage;

typedef struct AbiCudaHeader {
  uint64_t magic;
  uint32_t version, nmodules, nfunctions, nimages;
  uint64_t size;                       /* of the whole blob */
  uint64_t functions, images, strings; /* offsets */
  uint64_t string_bytes;
  uint64_t signature; /* sizes of the records of the writer */
  uint64_t digest;    /* of all before the code, which has checksums of its own; taken as 0 */
} AbiCudaHeader;

static inline uint64_t abi_cuda_signature(void) {
  return ((uint64_t)sizeof(AbiCudaHeader) << 32) + (sizeof(AbiCudaFunction) << 16) +
         sizeof(AbiCudaImage);
}

/* An opened blob. */
typedef struct AbiCuda {
  const AbiCudaHeader *header;
  const AbiCudaFunction *functions;
  const AbiCudaImage *images;
  const char *strings;
} AbiCuda;

/* Points `cuda` into `data` (8-aligned, stays alive). NULL, or what is wrong. */
const char *abi_cuda_open(const unsigned char *data, size_t size, AbiCuda *cuda);
/* The digest that the header of a blob should have: see digest.h. */
uint64_t abi_cuda_digest(const unsigned char *blob);
/* The code of a module for a chip of `capability` (90): its own cubin (same generation, at most as
 * new), else the newest PTX that is not newer than the chip; NULL = there is none. */
const AbiCudaImage *abi_cuda_image(const AbiCuda *cuda, uint32_t module, uint32_t capability);

/* "sm_80, sm_90, compute_90": what a module was compiled for. */
void abi_cuda_list(const AbiCuda *cuda, uint32_t module, char *text, size_t size);

/* How a generated kernel is launched: blocks of ABI_CUDA_BLOCK threads. */
typedef struct AbiCudaLaunch {
  uint32_t grid; /* 0 = there is nothing to do */
  int32_t group; /* last argument */
  int64_t tasks; /* the argument before it */
} AbiCudaLaunch;

/* `ints` and `tasks` are the action's. */
AbiCudaLaunch abi_cuda_launch(const AbiCudaFunction *f, const int64_t *ints, int64_t tasks);

/* --- library kernels ---------------------------------------------------------------------------
 *
 * What actions need beside generated kernels is CUDA C in lib/dtm/cuda/FILE.cu, compiled once per
 * set of defines. Entries are written `extern "C" __global__ void DTM_ENTRY(sort)(...)`, which
 * appends the suffix of the instance: that is the name to look for. */
enum { ABI_CUDA_MAX_INSTANCES = 4 };
typedef struct AbiCudaInstance {
  const char *file;  /* "sort": of sort.cu */
  char suffix[48];   /* "_f32"; letters, digits, underscores; what tells instances apart */
  char defines[160]; /* "-DT=float -DHEAD=64" */
} AbiCudaInstance;

/* The instances that an action of the image needs, in a fixed order; returns how many. A pure
 * function of the action's kind, code, types and constant arguments: the compiler makes the
 * instances by it and the runtime finds them. */
uint32_t abi_cuda_instances(const Image *image, const AbiAction *action,
                            AbiCudaInstance out[ABI_CUDA_MAX_INSTANCES]);

/* What tells the instances of attention apart; the same on all ranks. */
typedef struct AbiCudaAttention {
  uint32_t dtype;
  uint32_t head; /* class of head dims: what width and features are padded to on tensor cores; 0
                    where they or the element type do not suit these */
  int few;       /* without tensor cores: there are few queries or keys */
  int backward;
} AbiCudaAttention;
AbiCudaAttention abi_cuda_attention(const Image *image, const AbiAction *action);
AbiCudaInstance abi_cuda_attention_instance(const AbiCudaAttention *a);
/* Of whole tensors: `head` and `few`. */
uint32_t abi_cuda_attention_class(uint32_t dtype, int64_t width, int64_t features);
int abi_cuda_attention_few(int64_t queries, int64_t keys);

/* An AbiDType as dtm.cuh calls it: "dtm_bf16". */
const char *abi_cuda_element(uint32_t dtype);
/* cuda_moves.c: those of a move or channel. moves.cu has all that copy and fill; fold.cu reduces
 * what NCCL does not: abi_cuda_folds says whether this AbiDType with this AbiReduce. */
uint32_t abi_cuda_move_instances(const Image *image, const AbiAction *action,
                                 AbiCudaInstance out[ABI_CUDA_MAX_INSTANCES]);
AbiCudaInstance abi_cuda_move_instance(void);
AbiCudaInstance abi_cuda_fold_instance(uint32_t dtype);
int abi_cuda_folds(uint32_t dtype, uint32_t op);

/* What the object file of a compiled program defines beside what abi.h says; size 0 when it is not
 * for CUDA. */
extern const unsigned char dtm_cuda[];
extern const uint64_t dtm_cuda_size;

#endif
