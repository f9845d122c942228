/* Escapes from strict placement: auto, and what they share with the report. See elab.h.
 *
 * An escape is local: it ends with its block, does not reach into functions that are called there,
 * states the layout of its result, and is counted per place of the source.
 */
#ifndef DTM_SEMA_ESCAPE_H
#define DTM_SEMA_ESCAPE_H

#include "place/place.h"
#include "sema/elab.h"

/* A redistribute that an auto block inserted. */
typedef struct Inserted {
  const Graph *graph;
  ValueId from, to;
} Inserted;

/* What one use of an auto block inserted. */
typedef struct AutoBlock {
  uint32_t inserted;
  VEC(Inserted) made;
  int64_t bytes[OP_COUNT]; /* per collective: received by the worst device */
} AutoBlock;

/* Uses of one escape that did the same. */
typedef struct EscapeUse {
  DiagCode code;
  Span span;
  const char *what; /* "auto" */
  const char *did;  /* "2 redistributes inserted, all-gather 1.0 MiB" */
  uint32_t times;
} EscapeUse;

/* Counts one use. */
void escape_count(Sema *s, DiagCode code, const char *what, Span span, const char *did);
/* One note per escape, in source order. */
void escape_report(Sema *s);

Val eval_auto(Sema *s, Env *env, const Expr *e);
/* Inside auto: redistributes the operands where there is no row for them as they are, in place.
 * Leaves them where no redistribute helps. */
void auto_fit(Sema *s, Op op, ValueId *operands, uint32_t n, const Attr *attrs, uint32_t nattrs,
              Span span, const Span *spans);

#endif
