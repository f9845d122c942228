/* Processor features: see cpu.h. */
#include "core/cpu.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Those that generated vector code may use. X(LLVM's name and the compiler's, which agree) */
#define FEATURES(X)                                                                                \
  X("sse4.2")                                                                                      \
  X("avx")                                                                                         \
  X("avx2") X("fma") X("bmi") X("bmi2") X("avx512f") X("avx512bw") X("avx512cd") X("avx512dq")     \
      X("avx512vl") X("avx512vbmi")

/* "+NAME" stands in the list as a whole item. */
static bool listed(const char *features, const char *name) {
  size_t n = strlen(name);
  for (const char *at = features; (at = strstr(at, name)); at += n)
    if (at > features && at[-1] == '+' && (at[n] == ',' || at[n] == 0)) return true;
  return false;
}

const char *dtm_rt_cpu_lacks(const char *features) {
#if defined(__x86_64__)
  __builtin_cpu_init();
#define X(name)                                                                                    \
  if (listed(features, name) && !__builtin_cpu_supports(name)) return name;
  FEATURES(X)
#undef X
#else
  (void)features;
  (void)listed;
#endif
  return NULL;
}
