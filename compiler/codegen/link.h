/* link: object files and the runtime library become an executable. */
#ifndef DTM_CODEGEN_LINK_H
#define DTM_CODEGEN_LINK_H

#include "codegen/codegen.h"

typedef struct LinkOptions {
  const char *output;      /* path of the executable; replaced only when linking succeeded */
  const char *runtime_dir; /* folder of libdtm_rt.a; NULL = found beside the running compiler */
  const char *cc;          /* linker driver; NULL = $CC, else cc, gcc, clang in PATH */
} LinkOptions;

/* Links the objects. False with *error (in `arena`) saying what is missing or what the linker said.
 */
bool link_executable(Arena *arena, const CodegenResult *objects, const LinkOptions *options,
                     const char **error);

#endif
