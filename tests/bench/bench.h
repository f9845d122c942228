/* For the programs of this folder: dtmc's own pipeline in this process. */
#ifndef DTM_BENCH_H
#define DTM_BENCH_H

#include "driver/pipeline.h"
#include "table.h"

/* Compiles a file as dtmc does, up to `last`; diagnostics go to standard error. All memory is
 * s->arena's, which is the caller's to free. */
static inline bool bench_compile(Session *s, Compilation *c, const char *path,
                                 const ConfigOverride *defines, uint32_t ndefines, Stage last) {
  *s = (Session){.stdlib = DTM_STDLIB};
  arena_init(&s->arena);
  interner_init(&s->names, &s->arena);
  sources_init(&s->sources, &s->arena);
  diag_init(&s->sink, &s->arena, &s->sources);
  *c = (Compilation){.session = s, .plans = plan_cache_new(&s->arena)};
  bool ok = session_sema_options(s, path, NULL, &c->sema);
  c->sema.defines = defines;
  c->sema.ndefines = ndefines;
  ok = ok && pipeline_run(c, last);
  if (!ok) diag_render(&s->sink, stderr, DIAG_TEXT, false);
  return ok;
}

#endif
