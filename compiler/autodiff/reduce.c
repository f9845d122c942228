/* Gradients on their way to the optimizer: accumulation, then one reduction per parameter and step.
 *
 * A raw gradient may be Partial on the axes that cut the batch (and others). It is accumulated as
 * it is, and reduced once after the last batch. Reductions of one kind share buckets: ATTR_BUCKET
 * on the redistribute nodes, so that later stages can issue one collective for many parameters. */
#include "autodiff/step.h"

void step_accumulate(Step *s, int64_t batches) {
  Grad *d = &s->d;
  for (uint32_t i = 0; i < s->nparams; i++) {
    Trained *p = &s->params[i];
    TensorType type = *grad_type(d, p->grad);
    uint32_t var = p->accumulator = step_new_var(s, VAR_ACCUMULATOR, p, "grad", &type);
    step_phase(s, PHASE_BACKWARD);
    step_serve(s, p);
    ValueId share = grad_scale(d, p->grad, 1 / (double)batches);
    step_assign(s, var, grad_binary(d, OP_ADD, step_read(s, var), share));
    step_phase(s, PHASE_REDUCE);
    p->grad = step_read(s, var);
  }
}

void step_clear(Step *s) {
  step_phase(s, PHASE_OPTIMIZER);
  for (uint32_t i = 0; i < s->nparams; i++) {
    const Trained *p = &s->params[i];
    if (!p->accumulator) continue;
    step_serve(s, p);
    step_assign(s, p->accumulator,
                grad_full(&s->d, &s->program->vars.data[p->accumulator].type, 0));
  }
  for (uint32_t i = 0; i < s->cleared.len; i++) {
    uint32_t var = s->cleared.data[i];
    step_assign(s, var, grad_full(&s->d, &s->program->vars.data[var].type, 0));
  }
}

/* What reductions of one bucket have in common. */
typedef struct Bucket {
  uint32_t partial, scatter; /* axes that are reduced; those that become Shard */
  const Mesh *mesh;
  DType dtype;
  int64_t bytes, id;
} Bucket;

/* A bucket is worth about one collective at full bandwidth, and early enough to overlap. */
enum { BUCKET_BYTES = 25 << 20 };

typedef VEC(Bucket) BucketList;

static int64_t bucket_for(Arena *arena, BucketList *open, int64_t *last, const TensorType *from,
                          const TensorType *to, DType wire) {
  Bucket b = {.mesh = from->mesh, .dtype = wire};
  for (uint32_t a = 0; a < DTM_MAX_AXES; a++) {
    if (from->layout.at[a].kind != PLACE_PARTIAL) continue;
    b.partial |= 1u << a;
    if (to->layout.at[a].kind == PLACE_SHARD) b.scatter |= 1u << a;
  }
  int64_t bytes = type_local_bytes(from);
  for (uint32_t i = 0; i < open->len; i++) {
    Bucket *o = &open->data[i];
    if (o->partial != b.partial || o->scatter != b.scatter || o->mesh != b.mesh ||
        o->dtype != b.dtype)
      continue;
    if (o->bytes > 0 && o->bytes + bytes > BUCKET_BYTES) {
      o->bytes = 0;
      o->id = ++*last;
    }
    o->bytes += bytes;
    return o->id;
  }
  b.bytes = bytes;
  b.id = ++*last;
  VEC_PUSH(arena, open, b);
  return b.id;
}

/* Gathers of stored parameters have buckets too (place/store.c). */
static int64_t last_bucket(const Graph *g) {
  int64_t last = 0;
  for (NodeId id = 1; id < g->nodes.len; id++) {
    int64_t bucket = node_int(graph_node(g, id), ATTR_BUCKET, 0);
    if (bucket > last) last = bucket;
  }
  return last;
}

/* Parameters in the order in which the backward pass finishes their gradients. */
static void sort_by_gradient(Step *s, uint32_t *order) {
  for (uint32_t i = 0; i < s->nparams; i++) {
    uint32_t j = i;
    for (; j > 0 && s->params[order[j - 1]].grad > s->params[i].grad; j--) order[j] = order[j - 1];
    order[j] = i;
  }
}

void step_reduce(Step *s, DType wire) {
  Grad *d = &s->d;
  BucketList open = {0};
  int64_t last = last_bucket(d->g);
  uint32_t *order = ARENA_ARRAY(d->scratch, uint32_t, s->nparams);
  sort_by_gradient(s, order);
  step_phase(s, PHASE_REDUCE);
  for (uint32_t k = 0; k < s->nparams; k++) {
    Trained *p = &s->params[order[k]];
    TensorType from = *grad_type(d, p->grad), to = p->kept;
    for (uint32_t a = 0; a < DTM_MAX_AXES; a++)
      if (to.layout.at[a].kind == PLACE_PARTIAL) to.layout.at[a] = (Place){0};
    if (type_equal(&from, &to)) continue;
    step_serve(s, p);
    /* f64 is never narrowed behind the user's back. */
    DType dtype = wire && from.dtype != DT_F64 ? wire : from.dtype;
    p->bucket = bucket_for(d->scratch, &open, &last, &from, &to, dtype);
    Attr attrs[3] = {ATTR_T(TYPE, &to), ATTR_I(BUCKET, p->bucket)};
    if (dtype != from.dtype) attrs[2] = ATTR_I(FORWARD_DTYPE, dtype);
    p->grad = grad_add(d, OP_REDISTRIBUTE, &p->grad, 1, attrs, dtype != from.dtype ? 3 : 2);
  }
}
