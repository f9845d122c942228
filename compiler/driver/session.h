/* One run of dtmc: what every command shares. */
#ifndef DTM_DRIVER_SESSION_H
#define DTM_DRIVER_SESSION_H

#include "diag/diag.h"
#include "driver/options.h"
#include "place/place.h"
#include "sema/sema.h"

typedef struct Session {
  Options options;
  Arena arena; /* lives until the process ends */
  Interner names;
  Sources sources;
  DiagSink sink;
  DiagFormat format;
  bool color;
  const char *library; /* folder of libdtm_rt.a, libdtm_llvm.so and stdlib/ */
  const char *stdlib;
  const char *topology; /* text of --topology's file, or NULL */
  StringList kernels;   /* files of --load-cuda that were read */
} Session;

/* Options must be parsed. False after a usage error, which is printed. */
bool session_init(Session *s);
/* Whether text on this descriptor may be coloured: --color, NO_COLOR, else whether it is a
 * terminal. */
bool session_color(const Session *s, int descriptor);
/* Renders all diagnostics and returns EXIT_OK or EXIT_ERRORS. */
int session_finish(Session *s);
/* A new cache of plans, costed as --topology says. */
PlanCache *session_plans(Session *s);
/* Sema options as the command line says, for `path` and `mesh` (NULL = as declared). */
bool session_sema_options(Session *s, const char *path, const char *mesh, SemaOptions *out);
/* Whether `path` is none of the files read, by whatever name; false after printing that it is. */
bool session_may_write(Session *s, const char *path);
/* Whether a file (`folder`: what goes to a folder) can be made there, which is asked before the
 * work whose result it is to hold; false after printing why not. */
bool session_can_write(Session *s, const char *path, bool folder);
/* Writes a file in one piece: a temporary beside it, then rename. "-" is standard output. False
 * after printing why not. */
bool session_write_file(Session *s, const char *path, const void *data, size_t size);
/* The make rule of -MD: `target` depends on every file read. */
bool session_write_deps(Session *s, const char *target);

#endif
