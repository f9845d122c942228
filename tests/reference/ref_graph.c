/* Whole graphs: on whole tensors, and rank by rank on a simulated mesh. */
#include <math.h>
#include <string.h>

#include "reference/ref_internal.h"

/* Whole-tensor types of the operands or results: layouts dropped, so every block is the whole. */
static TensorType whole_type(const TensorType *t) {
  TensorType w = *t;
  memset(&w.layout, 0, sizeof w.layout);
  return w;
}

/* What a node that meets the surroundings gives; false when it computes. */
static bool eval_edge(Arena *arena, const Graph *g, const Node *n, const RefIO *io,
                      RefTensor *values) {
  static const RefIO none = {.user = NULL};
  if (!io) io = &none;
  switch ((int)n->op) {
  case OP_READ:
  case OP_INPUT: {
    const TensorType *t = value_type(g, n->first_result);
    uint32_t id = (uint32_t)node_int(n, n->op == OP_READ ? ATTR_VAR : ATTR_SOURCE, 0);
    RefTensor (*give)(void *, uint32_t, const TensorType *) =
        n->op == OP_READ ? io->read : io->input;
    values[n->first_result] = give ? give(io->user, id, t) : ref_new(arena, t->rank, t->shape);
    return true;
  }
  case OP_ASSIGN:
    if (io->assign)
      io->assign(io->user, (uint32_t)node_int(n, ATTR_VAR, 0), &values[n->operands[0]]);
    return true;
  case OP_OUTPUT:
    if (io->output) io->output(io->user, n, &values[n->operands[0]]);
    return true;
  }
  return false;
}

RefTensor *ref_eval_graph(RefContext *ctx, Arena *arena, const Graph *g, const RefIO *io) {
  RefTensor *values = ARENA_ARRAY(arena, RefTensor, g->values.len);
  for (NodeId id = 1; id < g->nodes.len; id++) {
    const Node *n = graph_node(g, id);
    if (eval_edge(arena, g, n, io, values)) continue;
    TensorType *types = ARENA_ARRAY(arena, TensorType, n->noperands + n->nresults);
    RefTensor *in = ARENA_ARRAY(arena, RefTensor, n->noperands);
    for (uint32_t i = 0; i < n->noperands; i++) {
      types[i] = whole_type(value_type(g, n->operands[i]));
      in[i] = values[n->operands[i]];
    }
    for (uint32_t k = 0; k < n->nresults; k++)
      types[n->noperands + k] = whole_type(value_type(g, node_result(n, k)));
    RefNode node = {.op = n->op,
                    .attrs = n->attrs,
                    .nattrs = n->nattrs,
                    .noperands = n->noperands,
                    .nresults = n->nresults,
                    .operand_types = types,
                    .result_types = types + n->noperands};
    ref_eval_node(ctx, arena, &node, in, &values[n->first_result]);
  }
  return values;
}

/* --- a simulated mesh ------------------------------------------------------------------------ */

/* Copies between a block and the whole; `to_block` chooses the direction. */
static void copy_block(const Block *b, RefTensor *whole, RefTensor *block, bool to_block) {
  int64_t index[DTM_MAX_DIMS] = {0}, at = 0;
  if (ref_count(block) == 0) return;
  do {
    int64_t in[DTM_MAX_DIMS];
    for (uint32_t d = 0; d < block->rank; d++) in[d] = index[d] + b->offset[d];
    double *w = &whole->data[ref_offset(whole, in)], *p = &block->data[at++];
    if (to_block)
      *p = *w;
    else
      *w = *p;
  } while (ref_next(block->rank, block->shape, index));
}

RefTensor ref_split(Arena *arena, const TensorType *type, const int64_t *coord,
                    const RefTensor *whole) {
  Block b = ref_block(type, coord);
  RefTensor block = ref_new(arena, type->rank, b.extent), source = *whole;
  copy_block(&b, &source, &block, true);
  for (uint32_t a = 0; type->mesh && a < type->mesh->naxes; a++) {
    ReduceOp op = (ReduceOp)type->layout.at[a].op;
    bool one_holds = op == REDUCE_SUM || op == REDUCE_PRODUCT || op == REDUCE_XOR;
    if (type->layout.at[a].kind != PLACE_PARTIAL || !one_holds || coord[a] == 0) continue;
    for (int64_t i = 0, n = ref_count(&block); i < n; i++) block.data[i] = ref_neutral(op);
  }
  return block;
}

/* The value of the group of ranks that differ from `coord` only in Partial axes. */
static RefTensor reduce_group(Arena *arena, const TensorType *type, const int64_t *coord,
                              const RefTensor *blocks) {
  const Mesh *m = type->mesh;
  int64_t ways[DTM_MAX_AXES], at[DTM_MAX_AXES] = {0}, members = 0;
  double divisor = 1;
  ReduceOp op = REDUCE_NONE;
  for (uint32_t a = 0; a < m->naxes; a++) {
    Place p = type->layout.at[a];
    ways[a] = p.kind == PLACE_PARTIAL ? m->size[a] : 1;
    if (p.kind != PLACE_PARTIAL) continue;
    op = (ReduceOp)p.op;
    if (op == REDUCE_AVG) divisor *= (double)m->size[a];
  }
  RefTensor sum = {0};
  do {
    int64_t member[DTM_MAX_AXES] = {0};
    for (uint32_t a = 0; a < m->naxes; a++) member[a] = ways[a] > 1 ? at[a] : coord[a];
    const RefTensor *b = &blocks[mesh_position(m, member)];
    if (members++ == 0) {
      sum = ref_new(arena, b->rank, b->shape);
      memcpy(sum.data, b->data, sizeof(double) * (size_t)ref_count(b));
    } else {
      for (int64_t i = 0, n = ref_count(b); i < n; i++)
        sum.data[i] = ref_reduce(op, sum.data[i], b->data[i]);
    }
  } while (ref_next(m->naxes, ways, at));
  for (int64_t i = 0, n = ref_count(&sum); divisor > 1 && i < n; i++) sum.data[i] /= divisor;
  return sum;
}

RefTensor ref_assemble(Arena *arena, const TensorType *type, const RefTensor *blocks,
                       bool *disagree) {
  RefTensor whole = ref_new(arena, type->rank, type->shape);
  if (!type->mesh) {
    if (ref_count(&whole)) copy_block(&(Block){{0}, {0}}, &whole, (RefTensor *)&blocks[0], false);
    return whole;
  }
  bool *seen = ARENA_ARRAY(arena, bool, type->mesh->nranks);
  for (int64_t pos = 0; pos < type->mesh->nranks; pos++) {
    int64_t coord[DTM_MAX_AXES], owner[DTM_MAX_AXES];
    mesh_coords(type->mesh, pos, coord);
    memcpy(owner, coord, sizeof owner);
    for (uint32_t a = 0; a < type->mesh->naxes; a++)
      if (type->layout.at[a].kind != PLACE_SHARD) owner[a] = 0;
    int64_t first = mesh_position(type->mesh, owner);
    RefTensor value = reduce_group(arena, type, coord, blocks);
    Block b = ref_block(type, coord);
    if (!seen[first]) copy_block(&b, &whole, &value, false);
    seen[first] = true;
    RefTensor held = ref_new(arena, value.rank, value.shape);
    copy_block(&b, &whole, &held, true);
    if (disagree && ref_count(&held) &&
        memcmp(held.data, value.data, sizeof(double) * (size_t)ref_count(&held)) != 0)
      *disagree = true;
  }
  return whole;
}

static RefTensor *split_all(Arena *arena, const TensorType *type, const RefTensor *whole) {
  int64_t nranks = type->mesh ? type->mesh->nranks : 1;
  RefTensor *blocks = ARENA_ARRAY(arena, RefTensor, nranks);
  for (int64_t pos = 0; pos < nranks; pos++) {
    int64_t coord[DTM_MAX_AXES] = {0};
    if (type->mesh) mesh_coords(type->mesh, pos, coord);
    blocks[pos] = ref_split(arena, type, coord, whole);
  }
  return blocks;
}

/* A scalar that is on every mesh has one block. */
static const RefTensor *block_at(const Graph *g, RefTensor **values, ValueId id, int64_t pos) {
  return &values[id][value_type(g, id)->mesh ? pos : 0];
}

static void eval_node_on_ranks(RefContext *ctx, Arena *arena, const Graph *g, const Node *n,
                               RefTensor **values) {
  const Mesh *mesh = n->nresults ? value_type(g, n->first_result)->mesh : NULL;
  int64_t nranks = mesh ? mesh->nranks : 1;
  TensorType *types = ARENA_ARRAY(arena, TensorType, n->noperands + n->nresults);
  for (uint32_t i = 0; i < n->noperands; i++) types[i] = *value_type(g, n->operands[i]);
  for (uint32_t k = 0; k < n->nresults; k++) {
    types[n->noperands + k] = *value_type(g, node_result(n, k));
    values[node_result(n, k)] = ARENA_ARRAY(arena, RefTensor, nranks);
  }
  for (int64_t pos = 0; pos < nranks; pos++) {
    int64_t coord[DTM_MAX_AXES] = {0};
    RefTensor *in = ARENA_ARRAY(arena, RefTensor, n->noperands),
              *out = ARENA_ARRAY(arena, RefTensor, n->nresults);
    if (mesh) mesh_coords(mesh, pos, coord);
    for (uint32_t i = 0; i < n->noperands; i++) in[i] = *block_at(g, values, n->operands[i], pos);
    RefNode node = {.op = n->op,
                    .attrs = n->attrs,
                    .nattrs = n->nattrs,
                    .noperands = n->noperands,
                    .nresults = n->nresults,
                    .operand_types = types,
                    .result_types = types + n->noperands,
                    .coord = coord};
    ref_eval_node(ctx, arena, &node, in, out);
    for (uint32_t k = 0; k < n->nresults; k++) values[node_result(n, k)][pos] = out[k];
  }
}

RefTensor **ref_eval_mesh(RefContext *ctx, Arena *arena, const Graph *g, const RefIO *io,
                          bool *disagree) {
  RefTensor **values = ARENA_ARRAY(arena, RefTensor *, g->values.len);
  RefTensor *whole = ARENA_ARRAY(arena, RefTensor, g->values.len);
  for (NodeId id = 1; id < g->nodes.len; id++) {
    const Node *n = graph_node(g, id);
    for (uint32_t i = 0; i < n->noperands; i++) {
      ValueId v = n->operands[i];
      bool needed = op_info(n->op)->cls == CLASS_COMM || n->nresults == 0;
      if (needed && !whole[v].data)
        whole[v] = ref_assemble(arena, value_type(g, v), values[v], disagree);
    }
    if (eval_edge(arena, g, n, io, whole)) {
      if (n->nresults) {
        const TensorType *t = value_type(g, n->first_result);
        values[n->first_result] = io && io->split ? io->split(io->user, t, &whole[n->first_result])
                                                  : split_all(arena, t, &whole[n->first_result]);
      }
    } else if (op_info(n->op)->cls == CLASS_COMM) {
      RefTensor moved = whole[n->operands[0]];
      if (n->op == OP_REDISTRIBUTE_ROWS)
        moved = ref_used_rows(arena, &moved, &whole[n->operands[1]]);
      values[n->first_result] = split_all(arena, value_type(g, n->first_result), &moved);
    } else {
      eval_node_on_ranks(ctx, arena, g, n, values);
    }
  }
  return values;
}
