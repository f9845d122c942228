/* Loading the MPI transport: see mpi.h. */
#include "comm/errors.h"
#include "comm/mpi.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef DTM_LIB_DIR
#define DTM_LIB_DIR "/usr/local/lib/dtm"
#endif

static const char object_name[] = "libdtm_rt_mpi.so";

/* MPI libraries look for symbols of their own plug-ins: global. */
static void *open_in(const char *folder) {
  char path[PATH_MAX];
  int n = snprintf(path, sizeof path, "%s%s%s", folder, folder[0] ? "/" : "", object_name);
  return n > 0 && (size_t)n < sizeof path ? dlopen(path, RTLD_NOW | RTLD_GLOBAL) : NULL;
}

static void *open_object(void) {
  const char *given = getenv("DTM_LIB_DIR");
  void *object = given ? open_in(given) : NULL;
  char own[PATH_MAX - 32], folder[PATH_MAX];
  ssize_t n = readlink("/proc/self/exe", own, sizeof own - 1);
  if (!object && n > 0) {
    own[n] = 0;
    *strrchr(own, '/') = 0;
    object = open_in(own);
    if (!object) {
      snprintf(folder, sizeof folder, "%s/../lib/dtm", own);
      object = open_in(folder);
    }
  }
  object = object ? object : open_in(DTM_LIB_DIR);
  return object ? object : open_in("");
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
