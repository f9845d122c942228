/* auto(out = [...]) { ... }: the compiler inserts redistributes. See escape.h.
 *
 * Where an operator has no row for its operands, the candidates are those that the error would
 * offer (infer_node), each a change of one operand; where none of them helps, all operands without
 * what is pending, and all of them whole. The planner prices them: fewest bytes received, then
 * least time, then the order in which inference proposes them, so the choice is the same on every
 * run. It is made node by node and never looks ahead. The result is brought to the stated layout.
 */
#include <string.h>

#include "sema/escape.h"

typedef struct Choice {
  Layout *to; /* per operand */
  int64_t bytes;
  double cost;
} Choice;

typedef struct Fit {
  Sema *s;
  Op op;
  const Attr *attrs;
  uint32_t n, nattrs;
  Operand *operands;
  Choice best; /* best.to == NULL: none */
} Fit;

static const RedistributePlan *plan_of(Sema *s, const TensorType *from, const TensorType *to) {
  if (!s->plans) s->plans = plan_cache_new(s->arena);
  return place_plan(s->plans, from, to, NULL);
}

/* Keeps the choice when there is a way to it and it costs less than the best so far. */
static void consider(Fit *f, Layout *to) {
  Choice c = {.to = to};
  for (uint32_t i = 0; i < f->n; i++) {
    TensorType from = f->operands[i].type, next = from;
    next.layout = to[i];
    if (!from.mesh || type_equal(&from, &next)) continue;
    const RedistributePlan *plan = plan_of(f->s, &from, &next);
    if (plan->error) return;
    c.bytes += plan->bytes_received;
    c.cost += plan->cost;
  }
  bool better =
      !f->best.to || c.bytes < f->best.bytes || (c.bytes == f->best.bytes && c.cost < f->best.cost);
  if (better) f->best = c;
}

static Layout *layouts_now(const Fit *f) {
  Layout *to = ARENA_ARRAY(f->s->arena, Layout, f->n);
  for (uint32_t i = 0; i < f->n; i++) to[i] = f->operands[i].type.layout;
  return to;
}

/* All operands at once: without Partial, or whole. */
static void consider_all(Fit *f, bool whole) {
  Operand *changed = ARENA_ARRAY(f->s->arena, Operand, f->n);
  Layout *to = layouts_now(f);
  for (uint32_t i = 0; i < f->n; i++) {
    for (uint32_t a = 0; a < DTM_MAX_AXES; a++)
      if (whole || to[i].at[a].kind == PLACE_PARTIAL) to[i].at[a] = (Place){0};
    changed[i] = f->operands[i];
    changed[i].type.layout = to[i];
  }
  InferResult *out = ARENA_NEW(f->s->arena, InferResult);
  infer_node(f->s->arena, f->op, changed, f->n, f->attrs, f->nattrs, out);
  if (out->status == INFER_OK) consider(f, to);
}

static void add_cost(AutoBlock *block, const RedistributePlan *plan) {
  block->inserted++;
  for (uint32_t i = 0; i < plan->nsteps; i++)
    block->bytes[plan->steps[i].op] += plan->steps[i].bytes_received;
}

/* A redistribute node marked as the compiler's. */
static Val insert(Sema *s, AutoBlock *block, ValueId x, const TensorType *to, Span span) {
  const TensorType from = *value_type(s->at.graph, x);
  if (type_equal(&from, to)) return val_tensor(x);
  Attr attrs[] = {ATTR_T(TYPE, to), ATTR_I(INSERTED, 1)};
  Val v = emit(s, OP_REDISTRIBUTE, &x, 1, attrs, 2, span, NULL);
  if (v.kind != VAL_POISON) add_cost(block, plan_of(s, &from, to));
  return v;
}

void auto_fit(Sema *s, Op op, ValueId *operands, uint32_t n, const Attr *attrs, uint32_t nattrs,
              Span span, const Span *spans) {
  if (op == OP_REDISTRIBUTE || n == 0 || n > INFER_MAX_OPERANDS) return;
  Fit f = {.s = s, .op = op, .attrs = attrs, .n = n, .nattrs = nattrs};
  f.operands = ARENA_ARRAY(s->arena, Operand, n);
  for (uint32_t i = 0; i < n; i++) {
    if (graph_value(s->at.graph, operands[i])->poisoned) return;
    f.operands[i].type = *value_type(s->at.graph, operands[i]);
    f.operands[i].is_const = value_const(s->at.graph, operands[i], &f.operands[i].const_value);
  }
  InferResult *out = ARENA_NEW(s->arena, InferResult);
  infer_node(s->arena, op, f.operands, n, attrs, nattrs, out);
  if (out->status == INFER_OK) return;
  for (uint32_t k = 0; k < out->nfixes; k++) {
    Layout *to = layouts_now(&f);
    to[out->fixes[k].operand] = out->fixes[k].to.layout;
    consider(&f, to);
  }
  if (!f.best.to) {
    consider_all(&f, false);
    consider_all(&f, true);
  }
  if (!f.best.to) return;
  for (uint32_t i = 0; i < n; i++) {
    TensorType to = f.operands[i].type;
    to.layout = f.best.to[i];
    if (!to.mesh) continue;
    Val v = insert(s, s->at.auto_block, operands[i], &to, spans && spans[i].file ? spans[i] : span);
    if (v.kind == VAL_TENSOR) operands[i] = v.as.tensor;
  }
}

static const char *describe(Sema *s, const AutoBlock *block) {
  StrBuf sb;
  strbuf_init(&sb, s->arena);
  strbuf_printf(&sb, "%u redistribute%s inserted", block->inserted,
                block->inserted == 1 ? "" : "s");
  bool any = false;
  for (int op = OP_NONE + 1; op < OP_COUNT; op++) {
    const char *name = block->bytes[op] ? place_step_name((Op)op) : NULL;
    if (!name) continue;
    strbuf_printf(&sb, "%s%s %s", any ? " + " : ", ", name,
                  bytes_print(s->arena, block->bytes[op]));
    any = true;
  }
  if (block->inserted && !any) strbuf_puts(&sb, ", nothing moves");
  return sb.text;
}

Val eval_auto(Sema *s, Env *env, const Expr *e) {
  Val wanted = eval(s, env, e->as.auto_.layout);
  AutoBlock block = {0};
  State saved = s->at;
  Env frame = env_child(s, env);
  frame.is_body = true;
  Body run = {.kind = BODY_FUNCTION, .result = NONE, .result_span = e->span};
  s->at.auto_block = &block;
  exec_stmts(s, &frame, &e->as.auto_.body, &run);
  Val v = run.result;
  ValueId x;
  if (v.kind == VAL_POISON || wanted.kind == VAL_POISON) {
    s->at = saved;
    return POISON;
  }
  if (!as_tensor(s, v, run.result_span, "the result of auto", &x)) {
    s->at = saved;
    return POISON;
  }
  TensorType to = *value_type(s->at.graph, x);
  s->at.auto_block = NULL; /* the stated layout is taken as it is */
  if (apply_layout(s, wanted, e->as.auto_.layout->span, &to))
    v = insert(s, &block, x, &to, run.result_span);
  else
    v = POISON;
  s->at = saved;
  if (v.kind != VAL_POISON)
    escape_count(s, DIAG_AUTO_INSERTED, "auto", e->span, describe(s, &block));
  return v;
}
