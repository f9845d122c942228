/* What a program is compiled for: --target and the options that belong to it. */
#include <string.h>

#include "driver/pipeline.h"

const char *folder_name(Arena *arena, const char *folder) {
  size_t n = strlen(folder);
  while (n > 1 && folder[n - 1] == '/') n--;
  return arena_strndup(arena, folder, n);
}

bool compilation_target(Compilation *c) {
  const Options *o = &c->session->options;
  const char *target = option_value(o, OPT_TARGET, "cpu"), *fault = NULL;
  c->for_cuda = strncmp(target, "cuda", 4) == 0;
  CudaOptions *cuda = &c->cuda_options;
  *cuda = (CudaOptions){.sources = &c->session->sources,
                        .library = c->session->library,
                        .edited = option_value(o, OPT_LOAD_CUDA, NULL)};
  if (cuda->edited) cuda->edited = folder_name(&c->session->arena, cuda->edited);
  if (c->for_cuda)
    fault = cuda_target_parse(&c->session->arena, target + 4, &cuda->target);
  else if (strcmp(target, "cpu") != 0)
    fault = "it takes cpu, cuda or cuda:CHIP,...";
  if (fault) {
    fprintf(stderr, "dtmc: --target does not take '%s'; %s\n", target, fault);
    return false;
  }
  if (cuda->edited && !c->for_cuda) {
    fprintf(stderr, "dtmc: --load-cuda needs --target=cuda\n");
    return false;
  }
  if (c->for_cuda && option_given(o, OPT_MARCH)) {
    fprintf(stderr, "dtmc: --march names a CPU; the chips of --target=cuda are named there: "
                    "cuda:sm_90\n");
    return false;
  }
  return true;
}
