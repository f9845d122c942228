/* Symbolic integers: see sym.h. */
#include "types/sym.h"

#include <string.h>

void sym_init(SymTable *t, Arena *arena) {
  memset(t, 0, sizeof *t);
  t->arena = arena;
  VEC_PUSH(arena, &t->nodes, (SymNode){0});
  VEC_PUSH(arena, &t->types, (TensorType){0});
  VEC_PUSH(arena, &t->meshes, NULL);
}

static Sym intern_node(SymTable *t, SymNode n) {
  if (n.op == ABI_SYM_CONST && n.imm == 0) return 0;
  const int64_t words[4] = {(int64_t)n.op, n.a, n.b, n.imm};
  for (uint64_t key = hash_bytes(words, sizeof words, 0);; key++) {
    uint32_t id;
    if (!id_map_get(&t->node_ids, key, &id)) {
      VEC_PUSH(t->arena, &t->nodes, n);
      id_map_put(t->arena, &t->node_ids, key, t->nodes.len - 1);
      return t->nodes.len - 1;
    }
    const SymNode *m = &t->nodes.data[id];
    if (m->op == n.op && m->a == n.a && m->b == n.b && m->imm == n.imm) return id;
  }
}

Sym sym_const(SymTable *t, int64_t value) {
  return intern_node(t, (SymNode){.op = ABI_SYM_CONST, .imm = value});
}

uint32_t sym_mesh(SymTable *t, const Mesh *mesh) {
  for (uint32_t i = 1; i < t->meshes.len; i++)
    if (t->meshes.data[i] == mesh) return i;
  VEC_PUSH(t->arena, &t->meshes, mesh);
  return t->meshes.len - 1;
}

uint32_t sym_type(SymTable *t, const TensorType *type) {
  int64_t words[3 + DTM_MAX_DIMS] = {(int64_t)type->dtype, type->rank, sym_mesh(t, type->mesh)};
  memcpy(words + 3, type->shape, sizeof(int64_t) * type->rank);
  uint64_t key = hash_bytes(&type->layout, sizeof type->layout, hash_bytes(words, sizeof words, 1));
  for (;; key++) {
    uint32_t id;
    if (!id_map_get(&t->type_ids, key, &id)) {
      VEC_PUSH(t->arena, &t->types, *type);
      id_map_put(t->arena, &t->type_ids, key, t->types.len - 1);
      return t->types.len - 1;
    }
    if (type_equal(&t->types.data[id], type)) return id;
  }
}

Sym sym_extent(SymTable *t, const TensorType *type, uint32_t dim) {
  int64_t ways = layout_dim_ways(&type->layout, type->mesh, dim);
  if (type->shape[dim] % ways == 0) return sym_const(t, type->shape[dim] / ways);
  return intern_node(t, (SymNode){.op = ABI_SYM_EXTENT, .a = sym_type(t, type), .b = dim});
}

Sym sym_offset(SymTable *t, const TensorType *type, uint32_t dim) {
  if (layout_dim_ways(&type->layout, type->mesh, dim) == 1) return 0;
  return intern_node(t, (SymNode){.op = ABI_SYM_OFFSET, .a = sym_type(t, type), .b = dim});
}

Sym sym_coord(SymTable *t, const Mesh *mesh, uint32_t axis) {
  if (mesh->size[axis] == 1) return 0;
  return intern_node(t, (SymNode){.op = ABI_SYM_COORD, .a = sym_mesh(t, mesh), .b = axis});
}

bool sym_is_const(const SymTable *t, Sym s, int64_t *value) {
  const SymNode *n = &t->nodes.data[s];
  if (n->op != ABI_SYM_CONST) return false;
  *value = n->imm;
  return true;
}

static int64_t apply(AbiSymOp op, int64_t a, int64_t b) {
  switch (op) {
  case ABI_SYM_CONST:
  case ABI_SYM_EXTENT:
  case ABI_SYM_OFFSET:
  case ABI_SYM_COORD:
    return 0;
  case ABI_SYM_ADD:
    return a + b;
  case ABI_SYM_SUB:
    return a - b;
  case ABI_SYM_MUL:
    return a * b;
  case ABI_SYM_DIV:
    return b ? a / b : 0;
  case ABI_SYM_CEIL_DIV:
    return b ? (a + b - 1) / b : 0;
  case ABI_SYM_MOD:
    return b ? a % b : 0;
  case ABI_SYM_MIN:
    return a < b ? a : b;
  case ABI_SYM_MAX:
    return a > b ? a : b;
  case ABI_SYM_EQ:
    return a == b;
  }
  return 0;
}

Sym sym_binary(SymTable *t, AbiSymOp op, Sym a, Sym b) {
  int64_t x = 0, y = 0;
  bool ca = sym_is_const(t, a, &x), cb = sym_is_const(t, b, &y);
  if (ca && cb) return sym_const(t, apply(op, x, y));
  if (cb && ((y == 0 && (op == ABI_SYM_ADD || op == ABI_SYM_SUB)) ||
             (y == 1 && (op == ABI_SYM_MUL || op == ABI_SYM_DIV || op == ABI_SYM_CEIL_DIV))))
    return a;
  if (ca && ((x == 0 && op == ABI_SYM_ADD) || (x == 1 && op == ABI_SYM_MUL))) return b;
  if (op == ABI_SYM_MUL && ((ca && x == 0) || (cb && y == 0))) return 0;
  return intern_node(t, (SymNode){.op = op, .a = a, .b = b});
}

Sym sym_elements(SymTable *t, const TensorType *type) {
  Sym n = sym_const(t, 1);
  for (uint32_t d = 0; d < type->rank; d++) n = sym_mul(t, n, sym_extent(t, type, d));
  return n;
}

int64_t sym_eval(const SymTable *t, Sym s, const int64_t coord[DTM_MAX_AXES]) {
  const SymNode *n = &t->nodes.data[s];
  if (n->op == ABI_SYM_CONST) return n->imm;
  if (n->op == ABI_SYM_COORD) return coord[n->b];
  if (n->op == ABI_SYM_EXTENT) return type_block(&t->types.data[n->a], coord).extent[n->b];
  if (n->op == ABI_SYM_OFFSET) return type_block(&t->types.data[n->a], coord).offset[n->b];
  return apply(n->op, sym_eval(t, n->a, coord), sym_eval(t, n->b, coord));
}
