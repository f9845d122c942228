/* For tests: kernels compiled and loaded into this process. */
#ifndef DTM_TESTS_JIT_H
#define DTM_TESTS_JIT_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "codegen/codegen.h"

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

#endif
