/* Loading the MPI transport: see mpi.h. */
#include "comm/errors.h"
#include "comm/mpi.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef DTM_LIB_DIRS /* separated by colons */
#define DTM_LIB_DIRS "/usr/local/lib/dtm"
#endif

static const char object_name[] = "libdtm_rt_mpi.so";

/* MPI libraries look for symbols of their own plug-ins: global. */
static void *open_in(const char *folder, int length) {
  char path[PATH_MAX];
  int n = snprintf(path, sizeof path, "%.*s/%s", length, folder, object_name);
  return n > 0 && (size_t)n < sizeof path ? dlopen(path, RTLD_NOW | RTLD_GLOBAL) : NULL;
}

static void *open_in_list(const char *folders) {
  void *object = NULL;
  while (folders && *folders && !object) {
    size_t n = strcspn(folders, ":");
    object = open_in(folders, (int)n);
    folders += n + (folders[n] == ':');
  }
  return object;
}

static void *open_object(void) {
  void *object = open_in_list(getenv("DTM_LIB_DIR"));
  char own[PATH_MAX - 32], folder[PATH_MAX];
  ssize_t n = readlink("/proc/self/exe", own, sizeof own - 1);
  if (!object && n > 0) {
    own[n] = 0;
    int length = (int)(strrchr(own, '/') - own);
    object = open_in(own, length);
    if (!object) {
      snprintf(folder, sizeof folder, "%.*s/../lib/dtm", length, own);
      object = open_in(folder, (int)strlen(folder));
    }
  }
  object = object ? object : open_in_list(DTM_LIB_DIRS);
  return object ? object : dlopen(object_name, RTLD_NOW | RTLD_GLOBAL);
}

int dtm_mpi_join(const MpiSetup *setup, RtComm **comm) {
  void *object = open_object();
  if (!object) {
    return dtm_rt_fail(
        NULL, RT_DEVICE,
        "the MPI transport could not be loaded: %s\n"
        "  it is built with dtmc when mpicc is installed (libopenmpi-dev), and found "
        "through DTM_LIB_DIR",
        dlerror());
  }
  MpiEntry *entry;
  *(void **)&entry = dlsym(object, "dtm_rt_mpi_join");
  if (!entry) {
    return dtm_rt_fail(NULL, RT_INTERNAL, "%s has no entry: %s", object_name, dlerror());
  }
  return entry(setup, comm);
}
