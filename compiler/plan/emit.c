/* The action table of a block: see block.h and runtime/abi/abi.h. */
#include <string.h>

#include "infer/infer.h"
#include "plan/block.h"
#include "spmd/spmd.h"

typedef struct Emitter {
  PlanBlock *b;
  ImageWriter *w;
  uint32_t first_sym;                    /* where the block's integers begin in the image */
  uint32_t first_source;                 /* where its data sources begin */
  uint32_t first_channel, first_segment; /* where those of its pipeline begin */
  const uint64_t *var_offset;
  BlockKind kind;
  IdMap places; /* span start -> string */
  StrBuf text;  /* scratch */
  PlanReport *report;
  /* The list of collectives that begin before a position, and 1 + the action that began one. By
   * position and group; 0 ends a list, entries are group + 1. */
  uint32_t *begins_at, *next_begun, *started;
} Emitter;

static const TensorType *type_of(const Emitter *e, FValueId v) {
  ValueId value = e->b->fused->values.data[v].value;
  return value ? value_type(e->b->fused->graph, value) : NULL;
}

static void add_arg(Emitter *e, AbiAction *a, SymId sym) {
  VEC_PUSH(e->w->arena, &e->w->arg, e->first_sym + sym);
  a->nargs++;
}

static SymId constant(Emitter *e, int64_t value) {
  return sym_const(e->b->arena, e->b->fused, value);
}

static void add_buffer(Emitter *e, AbiAction *a, FValueId v, bool written) {
  AbiBuffer buffer = {.offset = ABI_STEP_OFFSET, .written = written};
  if (v) {
    const FValue *fv = &e->b->fused->values.data[v];
    const Storage *storage = block_storage(e->b, v);
    buffer.offset = storage->offset;
    if (storage->slots > 1 && !storage->outbox) {
      buffer.slots = storage->slots;
      buffer.stride = storage->bytes;
    }
    const TensorType *t = type_of(e, v);
    if (t)
      buffer.type = image_type(e->w, t);
    else
      buffer.scratch = (uint32_t)(storage->bytes / ABI_ALIGN);
    if (fv->alias) { /* the fuser's offsets of aliases are the same on every rank */
      const RtSym *s = &e->b->fused->syms.data[fv->alias_offset];
      buffer.offset += (uint64_t)s->imm * dtype_bytes(fv->dtype);
    }
  }
  VEC_PUSH(e->w->arena, &e->w->buffer, buffer);
  a->nbuffers++;
}

static uint32_t source_text(Emitter *e, Span span) {
  if (!span.file || !e->b->program->sources) return 0;
  uint64_t key = (uint64_t)span.file << 32 | span.start;
  uint32_t at;
  if (id_map_get(&e->places, key, &at)) return at;
  at = image_string(e->w, span_print(e->b->arena, e->b->program->sources, span));
  id_map_put(e->b->arena, &e->places, key, at);
  return at;
}

/* "linear h", "all_reduce grad layers.0.w": the operator and what it makes, if that has a name. */
static uint32_t action_name(Emitter *e, const Group *g) {
  const Graph *graph = e->b->fused->graph;
  const Node *n = graph_node(graph, g->node);
  const char *what = n->op == OP_SEND_MESH && node_attr(n, ATTR_CHANNEL) ? "take" : op_name(n->op);
  const char *of = n->nresults ? graph_value(graph, n->first_result)->name : NULL;
  if (n->op == OP_ASSIGN) of = e->b->program->vars.data[node_int(n, ATTR_VAR, 0)].name;
  if (!of) return image_string(e->w, what);
  e->text.len = 0;
  strbuf_puts(&e->text, what);
  strbuf_putc(&e->text, ' ');
  strbuf_puts(&e->text, of);
  return image_string(e->w, e->text.text);
}

/* --- contractions -------------------------------------------------------------------------------
 */

/* Product of local extents of dims [from, to) of a type. */
static SymId extent_product(Emitter *e, const TensorType *t, uint32_t from, uint32_t to) {
  FusedProgram *f = e->b->fused;
  SymId p = constant(e, 1);
  for (uint32_t d = from; d < to; d++)
    p = sym_binary(e->b->arena, f, RT_SYM_MUL, p, sym_extent(e->b->arena, f, t, d));
  return p;
}

typedef struct Letters {
  const TensorType *type;
  const int8_t *letter;
  uint32_t rank;
} Letters;

static int letter_dim(const Letters *l, int8_t letter) {
  for (uint32_t d = 0; d < l->rank; d++)
    if (l->letter[d] == letter) return (int)d;
  return -1;
}

/* Stride of the run that ends with `last`, in elements of the local block; 0 = it is not there. */
static uint32_t run_stride(Emitter *e, const Letters *l, int8_t last) {
  int d = letter_dim(l, last);
  if (d < 0) return e->first_sym;
  return e->first_sym + extent_product(e, l->type, (uint32_t)d + 1, l->rank);
}

static uint32_t run_extent(Emitter *e, const Letters *l, const int8_t *run, uint32_t n) {
  if (n == 0) return e->first_sym + constant(e, 1);
  int d = letter_dim(l, run[0]);
  return e->first_sym + extent_product(e, l->type, (uint32_t)d, (uint32_t)d + n);
}

static uint32_t abi_activation(Op op) {
  return op == OP_RELU        ? ABI_ACT_RELU
         : op == OP_GELU      ? ABI_ACT_GELU
         : op == OP_GELU_TANH ? ABI_ACT_GELU_TANH
         : op == OP_SILU      ? ABI_ACT_SILU
         : op == OP_TANH      ? ABI_ACT_TANH
                              : ABI_ACT_NONE;
}

static void emit_contract(Emitter *e, const Group *g, AbiAction *a) {
  const Graph *graph = e->b->fused->graph;
  const Node *n = graph_node(graph, g->node);
  TensorType types[3];
  for (uint32_t i = 0; i < n->noperands; i++) types[i] = *value_type(graph, n->operands[i]);
  Contraction c;
  MatmulForm f;
  const char *why = NULL;
  contraction_of(e->b->arena, n->op, types, n->noperands, node_string(n, ATTR_SPEC), &c, &why);
  matmul_form(&c, &f);
  const Letters side[2] = {{&types[f.a], c.letter[f.a], c.rank[f.a]},
                           {&types[f.b], c.letter[f.b], c.rank[f.b]}};
  const Letters out = {type_of(e, g->outputs[0]), c.out, c.out_rank};
  AbiMatmul m = {.nbatch = f.nbatch};
  for (uint32_t i = 0; i < f.nbatch; i++) {
    m.batch[i] = run_extent(e, &out, &f.batch[i], 1);
    m.a_batch[i] = run_stride(e, &side[0], f.batch[i]);
    m.b_batch[i] = run_stride(e, &side[1], f.batch[i]);
    m.out_batch[i] = run_stride(e, &out, f.batch[i]);
  }
  m.m = run_extent(e, &out, f.m, f.nm);
  m.n = run_extent(e, &out, f.n, f.nn);
  m.k = run_extent(e, &side[0], f.k, f.nk);
  m.a_m = run_stride(e, &side[0], f.nm ? f.m[f.nm - 1] : -2);
  m.out_m = run_stride(e, &out, f.nm ? f.m[f.nm - 1] : -2);
  m.b_n = run_stride(e, &side[1], f.nn ? f.n[f.nn - 1] : -2);
  m.out_n = run_stride(e, &out, f.nn ? f.n[f.nn - 1] : -2);
  m.a_k = run_stride(e, &side[0], f.nk ? f.k[f.nk - 1] : -2);
  m.b_k = run_stride(e, &side[1], f.nk ? f.k[f.nk - 1] : -2);
  m.bias = g->epilogue.bias != 0;
  m.addend = g->epilogue.addend != 0;
  m.activation = abi_activation(g->epilogue.activation);
  add_buffer(e, a, g->inputs[f.a], false);
  add_buffer(e, a, g->inputs[f.b], false);
  if (m.bias) add_buffer(e, a, g->epilogue.bias, false);
  if (m.addend) add_buffer(e, a, g->epilogue.addend, false);
  add_buffer(e, a, g->outputs[0], true);
  a->kind = ABI_MATMUL;
  a->code = e->w->matmul.len;
  VEC_PUSH(e->w->arena, &e->w->matmul, m);
  e->report->matmuls++;
}

/* --- the other kinds
 * ------------------------------------------------------------------------------ */

static void emit_kernel(Emitter *e, const Group *g, const Kernel *k, AbiAction *a) {
  for (uint32_t i = 0; i < k->nbufs; i++) add_buffer(e, a, g->bufs[i], k->bufs[i].written);
  add_arg(e, a, g->tasks);
  add_arg(e, a, g->work);
  for (uint32_t i = 0; i < k->nints; i++) add_arg(e, a, g->ints[i]);
  a->kind = ABI_KERNEL;
  a->code = g->kernel;
  e->report->kernels++;
}

/* Source and destination of a collective, and before them those of its bucket's other members. */
static void add_members(Emitter *e, uint32_t id, AbiAction *a, bool written) {
  const Group *g = &e->b->fused->groups.data[id];
  if (e->b->bucket_before[id]) add_members(e, e->b->bucket_before[id] - 1, a, written);
  add_buffer(e, a, g->inputs[0], false);
  add_buffer(e, a, g->outputs[0], written);
}

/* The two ends of a channel. */
static void emit_message(Emitter *e, const Group *g, const Node *n, AbiAction *a) {
  a->code = e->first_channel + (uint32_t)node_int(n, ATTR_CHANNEL, 0);
  a->kind = n->op == OP_POST ? ABI_POST : ABI_TAKE;
  add_buffer(e, a, g->inputs[0], false);
  add_buffer(e, a, g->outputs[0], true);
  AbiChannel *c = &e->w->channel.data[a->code];
  if (a->kind == ABI_TAKE) {
    c->to = image_type(e->w, type_of(e, g->outputs[0]));
    return;
  }
  const Storage *outbox = block_storage(e->b, g->outputs[0]);
  c->from = image_type(e->w, type_of(e, g->outputs[0]));
  c->offset = outbox->offset;
  c->stride = outbox->bytes;
  c->slots = outbox->slots;
}

static uint32_t axes_of(const Node *n) {
  const Attr *axes = node_attr(n, ATTR_AXES);
  uint32_t set = 0;
  for (uint32_t i = 0; axes && i < axes->as.ints.len; i++) set |= 1u << axes->as.ints.data[i];
  return set;
}

static void emit_collective(Emitter *e, uint32_t id, AbiAction *a) {
  if (e->b->bucket_goes_on[id]) return;
  const Group *g = &e->b->fused->groups.data[id];
  const Node *n = graph_node(e->b->fused->graph, g->node);
  if (node_attr(n, ATTR_CHANNEL)) {
    emit_message(e, g, n, a);
    e->report->collectives++;
    return;
  }
  const TensorType *from = type_of(e, g->inputs[0]), *to = type_of(e, g->outputs[0]);
  a->axes = axes_of(n);
  const TensorType *partial = n->op == OP_PARTIAL_FILL ? to : from;
  for (uint32_t i = 0; i < DTM_MAX_AXES; i++) {
    if (n->op == OP_PARTIAL_FILL && to->layout.at[i].kind == PLACE_PARTIAL &&
        from->layout.at[i].kind != PLACE_PARTIAL)
      a->axes |= 1u << i;
    if (a->axes >> i & 1 && partial->layout.at[i].kind == PLACE_PARTIAL)
      a->code = partial->layout.at[i].op;
  }
  a->kind = n->op == OP_ALL_REDUCE                                   ? ABI_ALL_REDUCE
            : n->op == OP_REDUCE_SCATTER                             ? ABI_REDUCE_SCATTER
            : n->op == OP_REDISTRIBUTE_ROWS                          ? ABI_PULL_ROWS
            : n->op == OP_SHARD_SLICE                                ? ABI_SLICE
            : n->op == OP_PARTIAL_FILL                               ? ABI_FILL
            : n->op == OP_SEND_MESH && place_send_is_local(from, to) ? ABI_SLICE
                                                                     : ABI_PULL;
  add_members(e, id, a, true);
  if (a->kind == ABI_PULL_ROWS) add_buffer(e, a, g->inputs[2], false);
  a->started = e->started[id];
  if (a->kind != ABI_SLICE && a->kind != ABI_FILL) e->report->collectives++;
}

/* The arguments after the dim of every operator that is a function of the runtime, in the order of
 * AttrKey; floats as their bits; last the two numbers of MICRO, -1 and 1 without it. One without a
 * line here, or without a number in AbiLibrary, does not compile. */
#define LIBRARY_SORT ATTR_BIT(DESCENDING)
#define LIBRARY_TOPK ATTR_BIT(K)
#define LIBRARY_CUMSUM ATTR_BIT(REVERSE)
#define LIBRARY_SCATTER_ADD 0
#define LIBRARY_EMBEDDING_BACKWARD 0
#define LIBRARY_SAME_AS 0
#define LIBRARY_ATTENTION (ATTR_BIT(P) | ATTR_BIT(INSTANCE) | ATTR_BIT(CAUSAL) | ATTR_BIT(SCALE))
#define LIBRARY_GROUPED_LINEAR ATTR_BIT(REVERSE)
#define LIBRARY_GROUPED_LINEAR_WEIGHT 0
#define LIBRARY_ATTENTION_BACKWARD LIBRARY_ATTENTION

#define POINTWISE(ID, name, arity, trait, types, expr, grads, doc)
#define OPERATOR(ID, name, cls, lower, min, max, results, attrs, doc)                              \
  [OP_##ID] = OPS_PICK(ROW_##lower(ID), 0),
#define ROW_LIBRARY(ID) 0, ABI_LIB_##ID
static const AbiLibrary library_code[OP_COUNT] = {
#include "ops/ops.def"
};
#undef ROW_LIBRARY
#define POINTWISE(ID, name, arity, trait, types, expr, grads, doc)
#define OPERATOR(ID, name, cls, lower, min, max, results, attrs, doc)                              \
  [OP_##ID] = OPS_PICK(ROW_##lower(ID), 0),
#define ROW_LIBRARY(ID) 0, LIBRARY_##ID
static const uint64_t library_arguments[OP_COUNT] = {
#include "ops/ops.def"
};
#undef ROW_LIBRARY

static void emit_library(Emitter *e, const Group *g, AbiAction *a) {
  const Node *n = graph_node(e->b->fused->graph, g->node);
  a->kind = ABI_LIBRARY;
  a->code = library_code[n->op];
  for (uint32_t i = 0; i < g->ninputs; i++) add_buffer(e, a, g->inputs[i], false);
  for (uint32_t i = 0; i < g->noutputs; i++) add_buffer(e, a, g->outputs[i], true);
  if (op_info(n->op)->attrs & ATTR_BIT(DIM)) {
    int64_t dim = node_int(n, ATTR_DIM, 0);
    add_arg(e, a, constant(e, dim < 0 ? dim + type_of(e, g->inputs[0])->rank : dim));
  }
  for (int key = ATTR_NONE + 1; key < ATTR_COUNT; key++) {
    if (!(library_arguments[n->op] >> key & 1)) continue;
    int64_t value = node_int(n, (AttrKey)key, 0);
    double number = node_float(n, (AttrKey)key, 0);
    if (attr_kind((AttrKey)key) == ATTR_KIND_FLOAT) memcpy(&value, &number, sizeof value);
    add_arg(e, a, constant(e, value));
  }
  if (!(op_info(n->op)->attrs & ATTR_BIT(MICRO))) return;
  const Attr *micro = node_attr(n, ATTR_MICRO);
  add_arg(e, a, constant(e, micro ? micro->as.ints.data[0] : -1));
  add_arg(e, a, constant(e, micro ? micro->as.ints.data[1] : 1));
}

static void emit_output(Emitter *e, const Group *g, const Node *n, AbiAction *a) {
  const char *role = node_string(n, ATTR_ROLE);
  AbiOutput out = {.program = e->kind,
                   .name = image_string(e->w, node_string(n, ATTR_NAME)),
                   .role = !role                     ? ABI_PRINT
                           : !strcmp(role, "loss")   ? ABI_LOSS
                           : !strcmp(role, "metric") ? ABI_METRIC
                           : !strcmp(role, "sum")    ? ABI_METRIC_SUM
                           : !strcmp(role, "count")  ? ABI_METRIC_COUNT
                           : !strcmp(role, "text")   ? ABI_TEXT
                           : !strcmp(role, "rows")   ? ABI_PRINT_ROWS
                           : !strcmp(role, "mean")   ? ABI_PRINT_MEAN
                                                     : ABI_PRINT,
                   .type = image_type(e->w, type_of(e, g->inputs[0])),
                   .source = a->source,
                   .dim = (uint32_t)node_int(n, ATTR_DIM, 0)};
  add_buffer(e, a, g->inputs[0], false);
  out.offset = e->w->buffer.data[a->buffers].offset;
  a->kind = ABI_OUTPUT;
  a->code = e->w->output.len;
  if (out.role == ABI_LOSS) e->w->program.data[e->kind].loss = e->w->output.len + 1;
  VEC_PUSH(e->w->arena, &e->w->output, out);
}

/* ASSIGN of a value that could not be made in place. */
static void emit_copy(Emitter *e, const Group *g, const Node *n, AbiAction *a) {
  uint32_t var = (uint32_t)node_int(n, ATTR_VAR, 0);
  add_buffer(e, a, g->inputs[0], false);
  AbiBuffer to = {.offset = e->var_offset[var],
                  .type = image_type(e->w, &e->b->program->vars.data[var].type),
                  .written = 1};
  VEC_PUSH(e->w->arena, &e->w->buffer, to);
  a->nbuffers++;
  a->kind = ABI_COPY;
  e->report->copies++;
}

/* READ and STEP run nothing: their values lie in the arena already. */
static void emit_structure(Emitter *e, uint32_t id, const Group *g, AbiAction *a) {
  const Node *n = graph_node(e->b->fused->graph, g->node);
  if (n->op == OP_ASSIGN && e->b->copies[id]) emit_copy(e, g, n, a);
  if (n->op == OP_OUTPUT) emit_output(e, g, n, a);
  if (n->op != OP_INPUT) return;
  add_buffer(e, a, g->outputs[0], true);
  a->kind = ABI_INPUT;
  a->code = e->first_source + (uint32_t)node_int(n, ATTR_SOURCE, 0);
}

static AbiAction action_of(Emitter *e, const Group *g) {
  const Node *n = graph_node(e->b->fused->graph, g->node);
  return (AbiAction){.phase = n->phase,
                     .name = action_name(e, g),
                     .source = source_text(e, n->span),
                     .mesh = image_mesh(e->w, block_mesh(e->b, g)),
                     .buffers = e->w->buffer.len,
                     .args = e->w->arg.len};
}

/* Lists what begins before each position, in the order in which it ends. */
static void list_begins(Emitter *e) {
  const PlanBlock *b = e->b;
  e->begins_at = ARENA_ARRAY(b->arena, uint32_t, b->norder);
  e->next_begun = ARENA_ARRAY(b->arena, uint32_t, b->fused->groups.len);
  e->started = ARENA_ARRAY(b->arena, uint32_t, b->fused->groups.len);
  for (uint32_t p = b->norder; p-- > 0;) {
    uint32_t id = b->order[p];
    if (!b->begins[id]) continue;
    uint32_t at = b->begins[id] - 1;
    e->next_begun[id] = e->begins_at[at];
    e->begins_at[at] = id + 1;
  }
}

/* The first halves of what begins before this position. */
static void emit_begins(Emitter *e, uint32_t position) {
  for (uint32_t at = e->begins_at[position]; at; at = e->next_begun[at - 1]) {
    const Group *g = &e->b->fused->groups.data[at - 1];
    const Node *n = graph_node(e->b->fused->graph, g->node);
    AbiAction a = action_of(e, g);
    a.kind = ABI_START;
    a.code = n->op == OP_REDUCE_SCATTER ? ABI_REDUCE_SCATTER : ABI_PULL;
    a.axes = axes_of(n);
    add_members(e, at - 1, &a, false);
    VEC_PUSH(e->w->arena, &e->w->action, a);
    e->started[at - 1] = e->w->action.len;
  }
}

static void emit_group(Emitter *e, uint32_t id) {
  const Group *g = &e->b->fused->groups.data[id];
  AbiAction a = action_of(e, g);
  switch (g->kind) {
  case GROUP_KERNEL:
    emit_kernel(e, g, e->b->fused->kernels->kernels.data[g->kernel], &a);
    break;
  case GROUP_CONTRACT:
    emit_contract(e, g, &a);
    break;
  case GROUP_COLLECTIVE:
    emit_collective(e, id, &a);
    break;
  case GROUP_LIBRARY:
    emit_library(e, g, &a);
    break;
  case GROUP_STRUCTURE:
    emit_structure(e, id, g, &a);
    break;
  case GROUP_VIEW:
    break;
  }
  if (a.kind) VEC_PUSH(e->w->arena, &e->w->action, a);
}

static void emit_sources(Emitter *e, const ProgramBlock *block, AbiProgram *program) {
  for (uint32_t i = 0; i < block->data.len; i++) {
    const DataSource *d = &block->data.data[i];
    AbiSource s = {.program = e->kind,
                   .name = image_string(e->w, d->name),
                   .reader = image_string(e->w, d->reader),
                   .path = image_string(e->w, d->path),
                   .file_dtype = d->file_dtype,
                   .type = image_type(e->w, &d->type),
                   .below = d->below,
                   .ignores = d->ignores,
                   .ignore = d->ignore,
                   .scale = d->scale,
                   .from = d->from,
                   .to = d->to,
                   .source = source_text(e, d->span)};
    if (d->type.rank && program->batch == 0 && !source_is_made(d))
      program->batch = d->type.shape[0] * program->microbatches;
    VEC_PUSH(e->w->arena, &e->w->source, s);
  }
}

static void emit_settings(Emitter *e, const RunSettings *s, AbiProgram *p) {
  p->steps = s->steps;
  p->epochs = s->epochs;
  p->accumulate = s->accumulate > 1 ? s->accumulate : 1;
  p->microbatches = s->microbatches > 1 ? s->microbatches : 1;
  p->eval_every = s->eval_every;
  p->save_every = s->save_every;
  p->save = image_string(e->w, s->save);
  p->shuffle = s->shuffle;
  p->drop_last = s->drop_last;
}

/* The lists of the stages; segments have a place in the image for each of the block's. */
static void emit_stages(Emitter *e, AbiProgram *program) {
  const Pipeline *p = e->b->pipeline;
  ImageWriter *w = e->w;
  program->stages = w->stage.len;
  program->nstages = p->stages.len;
  for (uint32_t s = 0; s < p->stages.len; s++) {
    const PipeStage *stage = &p->stages.data[s];
    AbiStage a = {.mesh = image_mesh(w, stage->mesh),
                  .entries = w->entry.len,
                  .nentries = stage->entries.len};
    for (uint32_t i = 0; i < stage->entries.len; i++) {
      AbiEntry entry = {e->first_segment + stage->entries.data[i].segment,
                        stage->entries.data[i].micro};
      VEC_PUSH(w->arena, &w->entry, entry);
    }
    VEC_PUSH(w->arena, &w->stage, a);
  }
}

/* Where a segment's actions begin and end, as they are written one after the other. */
static void count_action(Emitter *e, uint32_t id, uint32_t before, AbiProgram *program) {
  const Pipeline *p = e->b->pipeline;
  uint32_t segment = group_segment(e->b, id), n = e->w->action.len - before;
  if (!segment || !n) return;
  AbiSegment *a = &e->w->segment.data[e->first_segment + segment];
  if (!a->nactions) a->actions = before;
  a->nactions += n;
  if (p->segments.data[segment].kind == SEGMENT_PROLOGUE) program->prologue += n;
  if (p->segments.data[segment].kind == SEGMENT_COUNT) program->counted += n;
}

/* The integers of the block behind those before, its meshes renumbered. */
static void emit_syms(Emitter *e) {
  const FusedProgram *f = e->b->fused;
  for (uint32_t i = 0; i < f->syms.len; i++) {
    RtSym s = f->syms.data[i];
    switch ((RtSymOp)s.op) {
    case RT_SYM_NONE:
    case RT_SYM_CONST:
      break;
    case RT_SYM_COORD:
      s.a = (int32_t)image_mesh(e->w, f->meshes.data[s.a]);
      break;
    case RT_SYM_IF_ZERO:
      s.imm += e->first_sym;
      s.a += (int32_t)e->first_sym;
      s.b += (int32_t)e->first_sym;
      break;
    case RT_SYM_CHUNK_LENGTH:
    case RT_SYM_CHUNK_BEGIN:
    case RT_SYM_ADD:
    case RT_SYM_SUB:
    case RT_SYM_MUL:
    case RT_SYM_DIV:
    case RT_SYM_CEIL_DIV:
    case RT_SYM_MIN:
    case RT_SYM_MAX:
      s.a += (int32_t)e->first_sym;
      s.b += (int32_t)e->first_sym;
      break;
    }
    VEC_PUSH(e->w->arena, &e->w->sym, s);
  }
}

void block_emit(PlanBlock *b, ImageWriter *w, BlockKind kind, const uint64_t *var_offset,
                PlanReport *report) {
  Emitter e = {.b = b,
               .w = w,
               .first_sym = w->sym.len,
               .first_source = w->source.len,
               .first_channel = w->channel.len,
               .first_segment = w->segment.len,
               .var_offset = var_offset,
               .kind = kind,
               .report = report};
  strbuf_init(&e.text, b->arena);
  AbiProgram *p = &w->program.data[kind];
  p->present = 1;
  p->actions = w->action.len;
  p->live_bound = b->live_bound;
  p->height = b->height;
  const ProgramBlock *block = &b->program->block[kind];
  emit_settings(&e, &block->settings, p);
  emit_sources(&e, block, p);
  list_begins(&e);
  for (uint32_t i = 0; b->pipeline && i < b->pipeline->segments.len; i++)
    VEC_PUSH(w->arena, &w->segment, (AbiSegment){0});
  for (uint32_t i = 0; b->pipeline && i < b->pipeline->channels.len; i++)
    VEC_PUSH(w->arena, &w->channel, (AbiChannel){0});
  for (uint32_t i = 0; i < b->norder; i++) {
    uint32_t before = w->action.len;
    if (i == b->looped) p->looped = before - p->actions;
    emit_begins(&e, i);
    emit_group(&e, b->order[i]);
    if (b->pipeline) count_action(&e, b->order[i], before, p);
  }
  if (b->pipeline) emit_stages(&e, p);
  p->nactions = w->action.len - p->actions;
  if (b->looped == b->norder) p->looped = p->nactions;
  emit_syms(&e); /* last: contractions add some */
  *report = (PlanReport){.present = true,
                         .actions = p->nactions,
                         .kernels = report->kernels,
                         .matmuls = report->matmuls,
                         .collectives = report->collectives,
                         .copies = report->copies,
                         .live_bound = b->live_bound,
                         .height = b->height};
}
