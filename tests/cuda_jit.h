/* For tests: kernels as CUDA C, compiled by NVRTC and run by the PTX interpreter. The same
 * interface as jit.h, which a test includes in its place when DTM_TEST_CUDA is defined. */
#ifndef DTM_TESTS_CUDA_JIT_H
#define DTM_TESTS_CUDA_JIT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/cuda.h"
#include "codegen/nvrtc.h"
#include "gpusim/ptx.h"
#include "support/suite.h"

typedef struct Jit {
  Arena *arena;
  Kernel *const *kernels;
  PtxMemory *memory;
  const PtxFunction **functions;
} Jit;

static inline const char *jit_read_text(Arena *arena, const char *path) {
  FILE *f = fopen(path, "rb");
  if (!f) {
    fprintf(stderr, "cannot read %s\n", path);
    abort();
  }
  StrBuf sb;
  strbuf_init(&sb, arena);
  char piece[4096];
  for (size_t n; (n = fread(piece, 1, sizeof piece, f)) > 0;) strbuf_put_n(&sb, piece, n);
  fclose(f);
  return sb.text;
}

/* Ends the test program as skipped where there is no NVRTC. A test that loads kernels in a process
 * of its own calls this before: there the end would be a failure. */
static inline Nvrtc *jit_open(Arena *arena) {
  const char *error = NULL;
  Nvrtc *nvrtc = nvrtc_open(arena, &error);
  if (!nvrtc) exit(suite_skip(error));
  return nvrtc;
}

/* Ends the test program with a message when anything fails; as skipped where there is no NVRTC. */
static inline Jit jit_load(Arena *arena, Kernel *const *kernels, uint32_t n, const char *march) {
  (void)march;
  const char *error = NULL;
  Nvrtc *nvrtc = jit_open(arena);
  NvrtcHeader header = {"dtm.cuh",
                        jit_read_text(arena, "../../runtime/device/cuda/kernels/dtm.cuh")};
  NvrtcJob *jobs = ARENA_ARRAY(arena, NvrtcJob, n + 1);
  for (uint32_t i = 0; i < n; i++) {
    StrBuf text;
    strbuf_init(&text, arena);
    cuda_text(&text, arena, kernels[i], &(CudaTextOptions){0});
    jobs[i] = (NvrtcJob){.file = "kernel.cu",
                         .what = kernels[i]->name,
                         .text = text.text,
                         .headers = &header,
                         .nheaders = 1,
                         .arch = 80};
  }
  Jit jit = {.arena = arena,
             .kernels = kernels,
             .memory = ptx_memory_new(),
             .functions = ARENA_ARRAY(arena, const PtxFunction *, n + 1)};
  if (!nvrtc_compile(nvrtc, arena, jobs, n, &error)) {
    fprintf(stderr, "%s\n", error);
    abort();
  }
  for (uint32_t i = 0; i < n; i++) {
    char *fault = NULL;
    PtxModule *module = ptx_module_load(jit.memory, jobs[i].ptx, &fault);
    if (module) jit.functions[i] = ptx_module_find(module, cuda_entry(arena, kernels[i]));
    if (jit.functions[i]) continue;
    fprintf(stderr, "%s\n%s: %s\n", jobs[i].text, kernels[i]->name, fault ? fault : "no entry");
    abort();
  }
  return jit;
}

typedef struct JitBuffer {
  unsigned char *home, *room, *place; /* the caller's; what is to be freed; what the kernel gets */
} JitBuffer;

/* Memory of the buffer that is exactly as long as it: `shift` elements behind an aligned address.
 */
static inline JitBuffer jit_place(const Jit *jit, const KBuf *b, void *home, size_t bytes,
                                  size_t shift) {
  JitBuffer p = {.home = home, .room = malloc(bytes + 64)};
  if (!p.room) abort();
  p.place = p.room + shift * dtype_bytes((DType)b->dtype);
  memcpy(p.place, home, bytes);
  if (!bytes) return p;
  ptx_memory_add(jit->memory, p.place, bytes, "buffer");
  PtxFault fault;
  if (!b->written && !ptx_memory_check_write(jit->memory, p.place, bytes, &fault)) abort();
  return p;
}

static inline void jit_fail(const Jit *jit, uint32_t kernel, const char *what) {
  StrBuf text;
  strbuf_init(&text, jit->arena);
  cuda_text(&text, jit->arena, jit->kernels[kernel], &(CudaTextOptions){0});
  fprintf(stderr, "%s\n%s: %s\n", text.text, jit->kernels[kernel]->name, what);
  abort();
}

/* Runs a kernel; `bytes` are those of its buffers. With more than one part on a smaller grid, and
 * with buffers that no vector is aligned in: results are the same. */
static inline void jit_call(const Jit *jit, uint32_t kernel, void *const *bufs, const size_t *bytes,
                            const int64_t *ints, int64_t tasks, int parts) {
  const Kernel *k = jit->kernels[kernel];
  const AbiCudaFunction f = cuda_function(k);
  AbiCudaLaunch l = abi_cuda_launch(&f, ints, tasks);
  if (l.grid == 0) return;
  if (parts > 1 && l.grid > (uint32_t)parts) l.grid = (uint32_t)parts;
  uint64_t *params = ARENA_ARRAY(jit->arena, uint64_t, k->nbufs + k->nints + 2);
  JitBuffer *place = ARENA_ARRAY(jit->arena, JitBuffer, k->nbufs + 1);
  uint32_t n = 0;
  for (uint32_t i = 0; i < k->nbufs; i++) {
    bool again = i > 0 && k->bufs[i].written && bufs[i] == bufs[i - 1];
    place[i] = again ? (JitBuffer){.home = bufs[i], .place = place[i - 1].place}
                     : jit_place(jit, &k->bufs[i], bufs[i], bytes[i], parts > 1);
    params[n++] = (uint64_t)(uintptr_t)place[i].place;
  }
  for (uint32_t i = 0; i < k->nints; i++) params[n++] = (uint64_t)ints[i];
  params[n++] = (uint64_t)l.tasks;
  params[n] = (uint64_t)l.group;
  const PtxInfo *info = ptx_function_info(jit->functions[kernel]);
  if (info->nparams != n + 1) jit_fail(jit, kernel, "parameters are missing");
  PtxLaunch launch = {.grid = {l.grid, 1, 1}, .block = {ABI_CUDA_BLOCK, 1, 1}, .params = params};
  PtxFault fault = {0};
  if (!ptx_launch(jit->memory, jit->functions[kernel], &launch, NULL, &fault))
    jit_fail(jit, kernel, fault.text);
  for (uint32_t i = 0; i < k->nbufs; i++) {
    if (k->bufs[i].written) memcpy(place[i].home, place[i].place, bytes[i]);
  }
  for (uint32_t i = 0; i < k->nbufs; i++) {
    if (bytes[i] && place[i].room) ptx_memory_remove(jit->memory, place[i].place);
    free(place[i].room);
  }
}

#endif
