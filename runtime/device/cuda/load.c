/* Opening libraries: see load.h. */
#include "device/cuda/load.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char toolkit[] = "/usr/local/cuda";

static void *open_below(const char *folder, const char *name) {
  char path[PATH_MAX];
  int n = snprintf(path, sizeof path, "%s/lib64/%s", folder, name);
  return n > 0 && (size_t)n < sizeof path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
}

/* The message is that of the first name in the loader's path: what a user looks for first. */
static void *open_any(const char *const *names, char *message, size_t size) {
  const char *home = getenv("CUDA_HOME");
  message[0] = 0;
  for (; *names; names++) {
    void *object = dlopen(*names, RTLD_NOW | RTLD_LOCAL);
    if (object) return object;
    if (!message[0]) snprintf(message, size, "%s", dlerror());
    if (home) object = open_below(home, *names);
    if (!object) object = open_below(toolkit, *names);
    if (object) return object;
  }
  return NULL;
}

const char *dtm_cuda_load_library(const char *environment, const char *const *names,
                                  const CudaEntry *entries, size_t n, void *out, char *message,
                                  size_t message_size) {
  const char *chosen = getenv(environment);
  void *object;
  if (chosen && *chosen) {
    object = dlopen(chosen, RTLD_NOW | RTLD_LOCAL);
    if (!object)
      snprintf(message, message_size, "%s (%s in the environment)", dlerror(), environment);
  } else {
    object = open_any(names, message, message_size);
  }
  if (!object) return message;
  for (size_t i = 0; i < n; i++) {
    void *entry = dlsym(object, entries[i].name);
    if (!entry) {
      bool named = chosen && *chosen;
      snprintf(message, message_size, "%s has no entry %s%s%s%s", named ? chosen : names[0],
               entries[i].name, named ? " (" : "", named ? environment : "",
               named ? " in the environment)" : "");
      return message;
    }
    memcpy((char *)out + entries[i].at, &entry, sizeof entry);
  }
  return NULL;
}
