/* For tests: kernels compiled and loaded into this process. */
#ifndef DTM_TESTS_JIT_H
#define DTM_TESTS_JIT_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "codegen/codegen.h"

#ifdef DTM_TEST_CUDA
#include "cuda_jit.h"
#else

typedef struct Jit {
  void *handle;
  KernelFn *const *kernels;
} Jit;

/* Ends the test program with a message when anything fails. */
static inline Jit jit_load(Arena *arena, Kernel *const *kernels, uint32_t n, const char *march) {
  for (uint32_t i = 0; i < n; i++) {
    const char *fault = kernel_verify(arena, kernels[i]);
    if (!fault) continue;
    StrBuf text;
    strbuf_init(&text, arena);
    kernel_print(&text, kernels[i]);
    fprintf(stderr, "%s\n%s\n", text.text, fault);
    abort();
  }
  CodegenOptions options = {.march = march, .verify = true};
  CodegenResult made;
  const char *error;
  if (!codegen_emit(arena, kernels, n, NULL, &options, CODEGEN_OBJECT, &made, &error)) {
    fprintf(stderr, "%s\n", error);
    abort();
  }
  char dir[] = "/tmp/dtm_jit_XXXXXX";
  if (!mkdtemp(dir)) abort();
  char *shared = arena_printf(arena, "%s/k.so", dir), *objects = arena_printf(arena, "%s/*.o", dir);
  for (uint32_t i = 0; i < made.npieces; i++) {
    FILE *f = fopen(arena_printf(arena, "%s/%u.o", dir, i), "wb");
    const CodegenPiece *p = &made.piece[i];
    if (!f || fwrite(p->bytes, 1, p->size, f) != p->size || fclose(f)) abort();
  }
  if (system(arena_printf(arena, "cc -shared -o %s %s -lm", shared, objects)) != 0) abort();
  Jit jit = {.handle = dlopen(shared, RTLD_NOW)};
  if (!jit.handle) {
    fprintf(stderr, "%s\n", dlerror());
    abort();
  }
  jit.kernels = dlsym(jit.handle, "dtm_kernels");
  for (uint32_t i = 0; i < made.npieces; i++) unlink(arena_printf(arena, "%s/%u.o", dir, i));
  unlink(shared);
  rmdir(dir);
  return jit;
}

/* Runs all tasks of a kernel, in `parts` pieces, the last one first. `bytes` are those of its
 * buffers. */
static inline void jit_call(const Jit *jit, uint32_t kernel, void *const *bufs, const size_t *bytes,
                            const int64_t *ints, int64_t tasks, int parts) {
  (void)bytes;
  for (int part = parts; part-- > 0;)
    jit->kernels[kernel](bufs, ints, tasks * part / parts, tasks * (part + 1) / parts);
}

#endif
#endif
