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
  int64_t fewer = parts;
  while (rows % fewer) fewer--;
  diag_help(s->sink, d, (Span){0}, NULL, NULL,
            "write microbatches %" PRId64 ", or a batch of %" PRId64, fewer,
            (rows + parts - 1) / parts * parts);
  return (rows + parts - 1) / parts; /* to go on with */
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
