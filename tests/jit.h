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
  const void *bytes;
  size_t size;
  const char *error;
  if (!codegen_emit(arena, kernels, n, NULL, &options, CODEGEN_OBJECT, &bytes, &size, &error)) {
    fprintf(stderr, "%s\n", error);
    abort();
  }
  char dir[] = "/tmp/dtm_jit_XXXXXX";
  if (!mkdtemp(dir)) abort();
  char *object = arena_printf(arena, "%s/k.o", dir), *shared = arena_printf(arena, "%s/k.so", dir);
  FILE *f = fopen(object, "wb");
  if (!f || fwrite(bytes, 1, size, f) != size || fclose(f)) abort();
  if (system(arena_printf(arena, "cc -shared -o %s %s -lm", shared, object)) != 0) abort();
  Jit jit = {.handle = dlopen(shared, RTLD_NOW)};
  if (!jit.handle) {
    fprintf(stderr, "%s\n", dlerror());
    abort();
  }
  jit.kernels = dlsym(jit.handle, "dtm_kernels");
  unlink(object);
  unlink(shared);
  rmdir(dir);
  return jit;
}

#endif
