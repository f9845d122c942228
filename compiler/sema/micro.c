/* Batches that are cut into micro-batches: what makes the parts give what the whole would.
 *
 * With `microbatches M` the train block is elaborated for 1 / M of the rows of a batch; the rest of
 * the program runs it M times and takes the mean of its losses (terms.c). What is drawn, or counts
 * along the batch, is the part of what the whole batch would have: MICRO (a dim, M) says which.
 * Numbers that the source makes of the number of rows are those of the whole batch: `in_parts` of
 * Val. A value in which rows mix has no parts: an error.
 */
#include <inttypes.h>
#include <string.h>

#include "sema/elab.h"

int64_t block_micro_rows(Sema *s, const RunBlock *block, int64_t rows, Span span) {
  int64_t parts = block->out->settings.microbatches;
  if (rows % parts == 0) return rows / parts;
  Diag *d = sema_error(s, DIAG_DATA, span,
                       "a batch of %" PRId64 " does not divide into %" PRId64 " micro-batches",
                       rows, parts);
  diag_reason(s->sink, d, "all micro-batches run one program, so they have the same size");
  int64_t fewer = parts < rows ? parts : rows;
  while (rows % fewer) fewer--;
  int64_t each = rows / parts + 1; /* also to go on with */
  diag_help(s->sink, d, (Span){0}, NULL, NULL,
            "write microbatches %" PRId64 ", or a batch of %" PRId64, fewer, each * parts);
  return each;
}

/* The part of a mask that the whole batch would have. */
static void goes_on(Sema *s, const RunBlock *block, Node *n, int dim) {
  Attr *attrs = ARENA_ARRAY(s->arena, Attr, n->nattrs + 1);
  int64_t *micro = ARENA_ARRAY(s->arena, int64_t, 2);
  memcpy(attrs, n->attrs, n->nattrs * sizeof *attrs);
  micro[0] = dim;
  micro[1] = block->out->settings.microbatches;
  attrs[n->nattrs++] = ATTR_INTS(MICRO, micro, 2); /* the last of the keys that they take */
  n->attrs = attrs;
}

void block_spread_random(Sema *s, RunBlock *block) {
  Samples *samples = block_samples(s, block);
  Graph *g = s->at.graph;
  for (NodeId id = 1; id < g->nodes.len; id++) {
    Node *n = graph_node(g, id);
    bool attention = n->op == OP_ATTENTION && node_float(n, ATTR_P, 0) > 0;
    if (n->op != OP_DROPOUT && !attention) continue;
    ValueId x = n->operands[0];
    int dim, most = (int)value_type(g, x)->rank - (attention ? 2 : 0);
    bool fits = samples_along(samples, x, &dim) && dim < most;
    if (fits && dim >= 0) goes_on(s, block, n, dim);
    if (fits) continue;
    Diag *d = sema_error(s, DIAG_PIPELINE, n->span, "micro-batches have no parts of this dropout");
    diag_reason(s->sink, d,
                "which elements it drops depends on their place in the whole batch, and no dim of "
                "what it masks holds the samples in order");
    block_note_mixed(s, block, d, x);
    diag_help(s->sink, d, (Span){0}, NULL, NULL,
              "apply dropout where one dim is the batch%s, or train without micro-batches",
              attention ? ", other than that of the positions," : "");
  }
}

static void refuse_print(Sema *s, RunBlock *block, ValueId v, Span span) {
  Diag *d = sema_error(s, DIAG_PIPELINE, span, "micro-batches have no parts of this");
  diag_label(s->sink, d, "this is %s", type_print(s->arena, value_type(s->at.graph, v)));
  diag_reason(s->sink, d,
              "it is made of all samples of a batch together, and no micro-batch has them: what "
              "holds one row per sample can be printed, and means and sums over samples");
  block_note_mixed(s, block, d, v);
  diag_help(s->sink, d, (Span){0}, NULL, NULL,
            "print the rows or a mean of them, or print it in eval or infer");
}

void block_print(Sema *s, RunBlock *block, ValueId v, const char *name, Span span) {
  const RunSettings *set = &block->out->settings;
  bool cut = set->microbatches > 1 || set->schedule;
  Samples *samples = block_samples(s, block);
  ValueId out;
  if (!cut || samples_of(samples, v) == SAMPLES_NONE) {
    if (block_whole(s, val_tensor(v), span, "what is printed", &out))
      emit_output(s, out, name, "print", span);
    return;
  }
  int dim = 0;
  bool rows = set->microbatches > 1 && samples_along(samples, v, &dim);
  if (!rows && set->microbatches > 1) {
    if (value_type(s->at.graph, v)->rank) {
      refuse_print(s, block, v, span);
      return;
    }
    v = block_terms(s, block, v, "what is printed", span);
    if (!v) return;
  }
  Val whole = block_everywhere(s, val_tensor(v), value_type(s->at.graph, v)->mesh, span);
  if (whole.kind == VAL_POISON) return;
  Attr attrs[] = {ATTR_S(NAME, intern(s->names, name)),
                  ATTR_S(ROLE, intern(s->names, rows ? "rows" : "mean")), ATTR_I(DIM, dim)};
  graph_add(s->at.graph, OP_OUTPUT, &whole.as.tensor, 1, attrs, rows ? 3 : 2, NULL, 0, span,
            s->at.scope);
}
