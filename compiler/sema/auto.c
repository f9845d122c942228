/* auto(out = [...]) { ... }: the compiler inserts redistributes. See escape.h.
 *
 * Where an operator has no row for its operands, the candidates are those that the error would
 * offer (infer_node), each a change of one operand; where none of them helps, all operands without
 * what is pending, and all of them whole. The planner prices them: fewest bytes received, then
 * least time, then the order in which inference proposes them, so the choice is the same on every
 * run. It is made node by node and never looks ahead. The result is brought to the stated layout.
 *
 * In code that is trained an operator with a row may still be one that leaves nothing to
 * differentiate: a maximum, minimum or product that is pending between ranks. Its operand then
 * changes dims first.
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

/* The operands in other layouts. */
static InferResult *infer_with(const Fit *f, const Layout *to) {
  Operand *changed = ARENA_ARRAY(f->s->arena, Operand, f->n);
  for (uint32_t i = 0; i < f->n; i++) {
    changed[i] = f->operands[i];
    changed[i].type.layout = to[i];
  }
  InferResult *out = ARENA_NEW(f->s->arena, InferResult);
  infer_node(f->s->arena, f->op, changed, f->n, f->attrs, f->nattrs, out);
  return out;
}

/* All operands at once: without Partial, or whole. */
static void consider_all(Fit *f, bool whole) {
  Layout *to = layouts_now(f);
  for (uint32_t i = 0; i < f->n; i++)
    for (uint32_t a = 0; a < DTM_MAX_AXES; a++)
      if (whole || to[i].at[a].kind == PLACE_PARTIAL) to[i].at[a] = (Place){0};
  if (infer_with(f, to)->status == INFER_OK) consider(f, to);
}

/* A mesh dim on which a result is pending in a way that has no gradient; -1 = none. */
static int undifferentiable_axis(const InferResult *out) {
  for (uint32_t r = 0; r < out->nresults; r++) {
    if (!dtype_is_float(out->results[r].dtype)) continue;
    for (int a = 0; a < DTM_MAX_AXES; a++) {
      Place p = out->results[r].layout.at[a];
      if (p.kind == PLACE_PARTIAL && p.op != REDUCE_SUM && p.op != REDUCE_AVG) return a;
    }
  }
  return -1;
}

/* Layouts from which the operator has a gradient too: `now`, or the cheapest in which an operand is
 * not cut along what is reduced. */
static Layout *fit_gradient(Fit *f, Layout *now) {
  int before = -1, axis;
  while ((axis = undifferentiable_axis(infer_with(f, now))) > before) {
    before = axis;
    f->best = (Choice){0};
    for (uint32_t i = 0; i < f->n; i++) {
      const TensorType *x = &f->operands[i].type;
      if (now[i].at[axis].kind != PLACE_SHARD) continue;
      for (uint32_t d = 0; d <= x->rank; d++) { /* the last: whole */
        Layout *to = ARENA_ARRAY(f->s->arena, Layout, f->n);
        memcpy(to, now, f->n * sizeof *to);
        layout_set(&to[i], x->mesh, (uint32_t)axis, d < x->rank ? PLACE_SHARD : PLACE_REPLICATE,
                   d < x->rank ? d : 0, REDUCE_NONE);
        const InferResult *out = infer_with(f, to);
        int left = undifferentiable_axis(out);
        if (out->status == INFER_OK && (left < 0 || left > axis)) consider(f, to);
      }
    }
    if (!f->best.to) return now;
    now = f->best.to;
  }
  return now;
}

static void add_cost(AutoBlock *block, const RedistributePlan *plan) {
  block->inserted++;
  for (uint32_t i = 0; i < plan->nsteps; i++)
    block->bytes[plan->steps[i].op] += plan->steps[i].bytes_received;
}

/* A redistribute node marked as the compiler's: one for all users that want the same of a value. */
static Val insert(Sema *s, AutoBlock *block, ValueId x, const TensorType *to, Span span) {
  const TensorType from = *value_type(s->at.graph, x);
  if (type_equal(&from, to)) return val_tensor(x);
  for (uint32_t i = 0; i < block->made.len; i++) {
    const Inserted *made = &block->made.data[i];
    if (made->graph == s->at.graph && made->from == x &&
        type_equal(value_type(made->graph, made->to), to))
      return val_tensor(made->to);
  }
  Attr attrs[] = {ATTR_T(TYPE, to), ATTR_I(INSERTED, 1)};
  Val v = emit(s, OP_REDISTRIBUTE, &x, 1, attrs, 2, span, NULL);
  if (v.kind == VAL_POISON) return v;
  add_cost(block, plan_of(s, &from, to));
  VEC_PUSH(s->arena, &block->made, (Inserted){s->at.graph, x, v.as.tensor});
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
  Layout *chosen = layouts_now(&f);
  const InferResult *out = infer_with(&f, chosen);
  if (out->status != INFER_OK) {
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
    chosen = f.best.to;
  }
  if (s->at.training) chosen = fit_gradient(&f, chosen);
  for (uint32_t i = 0; i < n; i++) {
    TensorType to = f.operands[i].type;
    to.layout = chosen[i];
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
