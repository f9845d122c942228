/* Loads libdtm_llvm.so on first use and passes through its door. Programs of a GPU have no kernels
 * for the processor and need no LLVM. */
#include "codegen/codegen.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "codegen/llvm_door.h"
#include "codegen/object.h"

static const char library[] = "libdtm_llvm.so";

/* Beside this executable: bin/dtmc -> lib/dtm/. */
static void *open_library(Arena *arena, const char **why) {
  char exe[4096];
  ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
  char *slash = NULL;
  if (n > 0) {
    exe[n] = 0;
    slash = strrchr(exe, '/');
  }
  if (slash) {
    *slash = 0;
    void *handle = dlopen(arena_printf(arena, "%s/../lib/dtm/%s", exe, library), RTLD_NOW);
    if (handle) return handle;
    *why = arena_strdup(arena, dlerror());
  }
  return dlopen(library, RTLD_NOW);
}

bool codegen_emit(Arena *arena, Kernel *const *kernels, uint32_t nkernels,
                  const CodegenImage *image, const CodegenOptions *options, CodegenOutput output,
                  CodegenResult *out, const char **error) {
  bool plain = output == CODEGEN_OBJECT && !nkernels && image && image->cuda_size;
  if (plain && object_of_image(arena, image, out->piece)) {
    out->npieces = 1;
    return true;
  }
  const char *why = NULL; /* that beside us, which there should be, was not taken */
  void *handle = open_library(arena, &why);
  LlvmEmitFn *emit = NULL;
  /* POSIX's way to get a function out of dlsym. */
  if (handle) *(void **)&emit = dlsym(handle, "dtm_llvm_emit");
  if (!emit) {
    if (!why || handle) why = dlerror();
    *error = arena_printf(arena, "cannot load %s: %s", library, why ? why : "no entry in it");
    return false;
  }
  char *fault = NULL;
  if (!emit(kernels, nkernels, image, options, output, out, &fault)) {
    *error = arena_strdup(arena, fault);
    free(fault);
    return false;
  }
  for (uint32_t i = 0; i < out->npieces; i++) {
    CodegenPiece *p = &out->piece[i];
    void *mine = arena_alloc(arena, p->size + 1);
    memcpy(mine, p->bytes, p->size);
    free((void *)p->bytes);
    p->bytes = mine;
  }
  return true;
}
