/* NVRTC: CUDA C to PTX and machine code of GPUs.
 *
 * The library is NVIDIA's and loaded when it is first needed; nothing of a CUDA toolkit is needed
 * to build dtmc. Compilation runs in processes of its own, as many as there are processors or
 * DTM_JOBS says, and what comes out is kept in a cache on disk. */
#ifndef DTM_CODEGEN_NVRTC_H
#define DTM_CODEGEN_NVRTC_H

#include "base/str.h"
#include "base/vec.h"

typedef struct Nvrtc Nvrtc;

/* Loads the library: DTM_NVRTC names its file, else it is looked for in CUDA_HOME and CUDA_PATH, in
 * /usr/local/cuda, where the loader looks, and in the packages of PyPI. NULL with *error: what is
 * missing and how to get it. */
Nvrtc *nvrtc_open(Arena *arena, const char **error);
const char *nvrtc_version(const Nvrtc *n); /* "13.0" */
/* Whether it makes code for this architecture: 80, 90, ... */
bool nvrtc_knows(const Nvrtc *n, uint32_t arch);
/* "sm_75 sm_80 ..." */
const char *nvrtc_archs(const Nvrtc *n, Arena *arena);

typedef struct NvrtcHeader {
  const char *name, *text; /* for #include "name" */
} NvrtcHeader;

/* One translation unit for one architecture. */
typedef struct NvrtcJob {
  const char *file; /* in messages and line tables */
  const char *what; /* in errors: "kernel k3_sum" */
  const char *text;
  const NvrtcHeader *headers;
  uint32_t nheaders;
  uint32_t arch;
  bool binary; /* machine code too, not PTX alone */
  /* Products and sums stay apart unless the text says fma; else they are contracted. */
  bool exact;
  /* Out: */
  const char *ptx; /* NUL-terminated */
  size_t ptx_size; /* without the NUL */
  const void *cubin;
  size_t cubin_size;
  bool cached;
} NvrtcJob;

/* Compiles all jobs; what the cache has is taken from there. False with *error: the first job that
 * failed with what NVRTC says of it. The same jobs give the same bytes. */
bool nvrtc_compile(Nvrtc *n, Arena *arena, NvrtcJob *jobs, uint32_t njobs, const char **error);

/* --- inside ---- */

typedef struct NvrtcKey {
  uint64_t word[2];
} NvrtcKey;

/* The cache: DTM_CACHE, else $XDG_CACHE_HOME/dtm, else ~/.cache/dtm; DTM_CACHE="" turns it off.
 * NULL when there is no such folder and none can be made. */
const char *nvrtc_cache_folder(Arena *arena);
/* Fills what `job` puts out; false when there is no sound entry. */
bool nvrtc_cache_get(Arena *arena, const char *folder, NvrtcKey key, NvrtcJob *job);
/* Best effort: a folder that cannot be written is none. */
void nvrtc_cache_put(Arena *arena, const char *folder, NvrtcKey key, const NvrtcJob *job);
/* Removes the entries that were used longest ago where there is too much. */
void nvrtc_cache_trim(Arena *arena, const char *folder);

#endif
