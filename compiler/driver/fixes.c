/* Verified, priced fixes: see fixes.h.
 *
 * A candidate redistributes one operand of one node. Verification is elaboration itself, with the
 * candidate as overlay and a sink of its own, so a fix is judged by the very rules that found the
 * fault. A fault hides those behind it, so a candidate that cures its own error may uncover
 * another: where nothing better is at hand, the one that gets furthest is offered along with where
 * that is. The price of the backward half comes from differentiating the program with the fix in
 * place: the redistributes that autodiff derives carry the span of the forward node they mirror.
 */
#include "driver/fixes.h"

#include <stdlib.h>
#include <string.h>

#include "autodiff/autodiff.h"
#include "ir/fix.h"
#include "place/expand.h"
#include "place/store.h"

enum { MAX_ERRORS_WITH_FIXES = 32 };

typedef struct Fix {
  const FixCandidate *candidate;
  double cost;
  const char *forward, *backward;
  const Diag *next; /* the error that it uncovers; NULL: none */
  size_t nodes;     /* of the program with it */
} Fix;

static bool same_error(const Diag *a, const Diag *b) {
  return a->code == b->code && memcmp(&a->span, &b->span, sizeof a->span) == 0;
}

/* The one to cure is gone. `next` is the first error of `now` that was not there before, or NULL.
 */
static bool cures(const DiagSink *before, const Diag *error, const DiagSink *now,
                  const Diag **next) {
  *next = NULL;
  for (uint32_t i = 0; i < now->diags.len; i++) {
    const Diag *d = now->diags.data[i];
    if (d->severity != SEV_ERROR) continue;
    if (same_error(d, error)) return false;
    bool known = false;
    for (uint32_t j = 0; j < before->diags.len; j++) known |= same_error(d, before->diags.data[j]);
    if (!known && !*next) *next = d;
  }
  return true;
}

static size_t count_nodes(const Program *program) {
  size_t n = 0;
  for (uint32_t b = 0; b < BLOCK_COUNT; b++)
    if (program->block[b].graph) n += program->block[b].graph->nodes.len;
  return n;
}

static bool same_place(Span a, Span b) {
  return a.file == b.file && a.start == b.start && a.end == b.end;
}

/* "all-gather 8.0 MiB + all-reduce ...", summed over the plans of backward redistributes with this
 * span; adds their cost. */
static const char *price_backward(Arena *arena, PlanCache *plans, Program *program,
                                  const FixCandidate *fix, double *cost) {
  DiagSink quiet;
  diag_init(&quiet, arena, program->sources);
  if (!program->block[BLOCK_TRAIN].graph) return "none";
  expand_run(program);
  store_run(program);
  if (!autodiff_run(program, plans, &quiet)) return "none";
  const Graph *g = program->block[BLOCK_TRAIN].graph;
  StrBuf text;
  strbuf_init(&text, arena);
  for (NodeId id = 1; id < g->nodes.len; id++) {
    const Node *n = graph_node(g, id);
    if (n->op != OP_REDISTRIBUTE || n->phase == PHASE_FORWARD || !same_place(n->span, fix->text))
      continue;
    const RedistributePlan *plan =
        place_plan(plans, value_type(g, n->operands[0]), value_type(g, n->first_result), NULL);
    *cost += plan->cost;
    if (plan->bytes_received == 0) continue;
    strbuf_printf(&text, "%s%s", text.len ? " + " : "", place_describe(arena, plan));
  }
  return text.len ? text.text : "none";
}

static bool try_candidate(Session *s, const SemaOptions *sema, const Diag *error,
                          const FixCandidate *candidate, Fix *fix) {
  SemaOptions with = *sema;
  with.overlay = candidate;
  with.config = NULL;
  DiagSink sink;
  diag_init(&sink, &s->arena, &s->sources);
  Program *program = sema_run(&with, &s->arena, &s->names, &s->sources, &sink);
  const Diag *next;
  if (!cures(&s->sink, error, &sink, &next)) return false;
  PlanCache *plans = session_plans(s);
  const RedistributePlan *forward = place_plan(plans, &candidate->from, &candidate->to, NULL);
  if (forward->error) return false;
  *fix = (Fix){.candidate = candidate,
               .cost = forward->cost,
               .forward = place_describe(&s->arena, forward),
               .backward = NULL,
               .next = next,
               .nodes = count_nodes(program)};
  if (sink.errors == 0)
    fix->backward = price_backward(&s->arena, plans, program, candidate, &fix->cost);
  return true;
}

/* Those without a further error first, cheapest first; of the others the one that gets furthest. */
static int by_worth(const void *a, const void *b) {
  const Fix *x = a, *y = b;
  if (!x->next != !y->next) return x->next ? 1 : -1;
  if (x->next && x->nodes != y->nodes) return x->nodes < y->nodes ? 1 : -1;
  return (x->cost > y->cost) - (x->cost < y->cost);
}

/* ".redistribute(tp: Replicate)": the mesh, then the axes whose placement changes. A placement that
 * the new mesh has no dim for goes first. */
static const char *call_text(Arena *arena, const FixCandidate *c) {
  StrBuf sb;
  strbuf_init(&sb, arena);
  strbuf_puts(&sb, ".redistribute(");
  bool first = true;
  TensorType from = c->from;
  const Mesh *mesh = c->to.mesh;
  for (uint32_t a = 0; mesh != from.mesh && a < from.mesh->naxes; a++) {
    if (from.layout.at[a].kind == PLACE_REPLICATE || mesh_axis(mesh, from.mesh->axis[a]) >= 0)
      continue;
    strbuf_printf(&sb, "%s: Replicate, ", from.mesh->axis[a]);
    layout_set(&from.layout, from.mesh, a, PLACE_REPLICATE, 0, REDUCE_NONE);
  }
  if (mesh != from.mesh) {
    strbuf_printf(&sb, "mesh = %s", mesh->name);
    type_to_mesh(&from, mesh);
    first = false;
  }
  for (uint32_t a = 0; a < mesh->naxes; a++) {
    Place to = c->to.layout.at[a];
    if (memcmp(&to, &from.layout.at[a], sizeof to) == 0) continue;
    strbuf_printf(&sb, "%s%s: %s", first ? "" : ", ", mesh->axis[a], place_print(arena, to));
    first = false;
  }
  strbuf_putc(&sb, ')');
  return sb.text;
}

/* A method call binds tighter than any operator, so all but calls, names, members and indexing need
 * parentheses: those end in an identifier character, ')' or ']' and hold no operator outside
 * brackets. */
static bool needs_parentheses(const char *text, size_t n) {
  int depth = 0;
  for (size_t i = 0; i < n; i++) {
    char ch = text[i];
    if (ch == '(' || ch == '[') depth++;
    if (ch == ')' || ch == ']') depth--;
    if (depth == 0 && strchr("+-*/%<>=!&|? \n", ch)) return true;
  }
  return false;
}

static const char *paste_text(Session *s, const FixCandidate *c) {
  const SourceFile *file = c->text.file ? sources_get(&s->sources, c->text.file) : NULL;
  const char *call = call_text(&s->arena, c);
  if (!file) return NULL;
  const char *text = file->text + c->text.start;
  size_t n = c->text.end - c->text.start;
  bool wrap = needs_parentheses(text, n);
  return arena_printf(&s->arena, "%s%.*s%s%s", wrap ? "(" : "", (int)n, text, wrap ? ")" : "",
                      call);
}

static void add_help(Session *s, Diag *d, const Fix *fix) {
  const char *paste = paste_text(s, fix->candidate);
  const char *cost = fix->backward ? arena_printf(&s->arena, "forward %s, backward %s",
                                                  fix->forward, fix->backward)
                                   : arena_printf(&s->arena, "forward %s", fix->forward);
  if (fix->next)
    cost = arena_printf(&s->arena, "%s; then an error at %s", cost,
                        span_print(&s->arena, &s->sources, fix->next->span));
  if (paste) diag_help(&s->sink, d, fix->candidate->text, paste, cost, "%s", paste);
}

void fixes_verify(Session *s, const SemaOptions *sema) {
  uint32_t tried = 0;
  for (uint32_t i = 0; i < s->sink.diags.len; i++) {
    Diag *d = s->sink.diags.data[i];
    uint32_t candidates = d->fixes.len, n = 0;
    d->fixes.len = 0; /* they end with this elaboration; the next mesh or file finds its own */
    if (d->severity != SEV_ERROR || !candidates || tried++ >= MAX_ERRORS_WITH_FIXES) continue;
    Fix *fixes = ARENA_ARRAY(&s->arena, Fix, candidates);
    for (uint32_t f = 0; f < candidates; f++)
      n += try_candidate(s, sema, d, d->fixes.data[f], &fixes[n]);
    qsort(fixes, n, sizeof *fixes, by_worth);
    for (uint32_t f = 0; f < n && (f == 0 || !fixes[f].next); f++) add_help(s, d, &fixes[f]);
  }
}
