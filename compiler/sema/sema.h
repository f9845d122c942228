/* sema: from source files to a Program of flat graphs (stage "graph").
 *
 * In: the syntax trees of a main file and of what it imports. Out: `Program` (ir/graph.h) with one
 * graph per block, the variables, the initialisation graph, meshes and settings; every shape and
 * every placement is known. Compile-time values (ints, strings, axes, meshes, lists, modules) are
 * evaluated away. Every node is built through infer_add, so placements are checked as the program
 * is elaborated.
 *
 * All faults of a program are collected in one run: a value whose making failed is poisoned and
 * silences what is computed from it. Every diagnostic has the chain of instantiations and calls as
 * notes.
 *
 * Outputs of a graph are OP_OUTPUT nodes; attribute role says what for:
 * - "loss": the training loss, Replicate, of rank 0; name "loss".
 * - "metric": in train and infer, the value of this step, under its name.
 * - "print": any value, gathered; name is the source text.
 * - "rows", "mean": prints of train with micro-batches or a schedule, whole on their own mesh: the
 *   parts of all micro-batches one after the other along DIM, or their mean.
 * - "text": in infer, integers that are bytes of a text.
 * - "sum": where batches may be short, numerator of a metric, summed over batches by the runtime
 * ...
 * - "count": ... and divided by the sum of this output of the same name (absent: not divided).
 *
 * In eval, and in train with `drop_last false`, the last batch may be short. The runtime pads it
 * and feeds the data source with reader "valid" (bool [batch], cut like the batch): true for real
 * samples. Metrics are elaborated as sum(where(valid, value, 0)) and a count of what was valid, so
 * they are exact for any batch size; the loss of train is one over the other (metric.c).
 */
#ifndef DTM_SEMA_SEMA_H
#define DTM_SEMA_SEMA_H

#include "ir/fix.h"

/* `-D name=value`; the text is read by the type of the config entry. */
typedef struct ConfigOverride {
  const char *name, *value;
} ConfigOverride;

/* One config entry after overrides, for --print-config. */
typedef struct ConfigEntry {
  const char *name, *type, *value; /* as source text */
  bool overridden;                 /* by -D */
  Span span;
} ConfigEntry;
typedef VEC(ConfigEntry) ConfigList;

typedef struct SemaCopies {
  uint32_t calls, instances;
} SemaCopies;

typedef struct SemaOptions {
  const char *main_path; /* sought among the sources by path first, then read */
  const ConfigOverride *defines;
  uint32_t ndefines;
  const char *mesh; /* "dp=2,tp=2"; one size may be "auto"; NULL or "" = as declared */
  int64_t ranks;    /* number of ranks that `auto` divides; 0 = unknown */
  const char *const *include_paths; /* -I, tried in order before `stdlib` */
  uint32_t ninclude_paths;
  const char *stdlib;   /* folder of nn.dtm; NULL = none */
  bool widen;           /* every f32 becomes f64 */
  bool assume_two;      /* every mesh dim of size 1 taken as 2: finds what a mesh of ones hides */
  const char *only_two; /* ... of them this one alone, of whatever mesh; NULL = all */
  const FixCandidate *overlay; /* NULL, or: redistribute that operand of that node as said */
  ConfigList *config;          /* NULL, or where config entries are listed (in the arena) */
  bool each_call;              /* nothing is a copy of something earlier (replay.h): for tests */
  struct SemaCopies *copied;   /* NULL, or counts what was copied: for tests */
} SemaOptions;

/* Elaborates a program. Never NULL; it is complete only when `sink->errors` did not grow. Files are
 * added to `sources` (one that is there already under the same path is not read again, so spans of
 * several runs agree); after the call they are the list of files that were read. */
Program *sema_run(const SemaOptions *options, Arena *arena, Interner *names, Sources *sources,
                  DiagSink *sink);

/* "argmax(x, dim, keepdim?)": how programs call an operator or a function of the language; NULL for
 * what only the compiler makes, and for names of neither. */
const char *sema_call_text(Arena *arena, Interner *names, const char *name);

/* The operator that `name` is another name of; OP_NONE and `*function` for a function of the
 * language that has no row of its own. */
Op sema_function(const char *name, bool *function);

/* "name: type = value" lines. */
void sema_print_config(const ConfigList *config, StrBuf *out);

#endif
