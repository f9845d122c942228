/* The table of run-time integers: see runtime/abi/sym.h. Equal entries are one entry and constants
 * fold, so two SymIds are equal exactly when the fuser may rely on the values being equal. */
#include <string.h>

#include "fuse/internal.h"

static bool is_const(const FusedProgram *p, SymId s, int64_t *value) {
  const RtSym *e = &p->syms.data[s];
  if (e->op != RT_SYM_CONST) return false;
  *value = e->imm;
  return true;
}

static SymId intern_sym(Arena *arena, FusedProgram *p, RtSym e) {
  uint64_t key = hash_bytes(&e, sizeof e, 0);
  for (uint32_t found; id_map_get(&p->sym_ids, key, &found); key++)
    if (memcmp(&p->syms.data[found], &e, sizeof e) == 0) return found;
  id_map_put(arena, &p->sym_ids, key, p->syms.len);
  VEC_PUSH(arena, &p->syms, e);
  return p->syms.len - 1;
}

SymId sym_const(Arena *arena, FusedProgram *p, int64_t value) {
  return intern_sym(arena, p, (RtSym){.op = RT_SYM_CONST, .imm = value});
}

SymId sym_binary(Arena *arena, FusedProgram *p, RtSymOp op, SymId a, SymId b) {
  int64_t x = 0, y = 0;
  bool cx = is_const(p, a, &x), cy = is_const(p, b, &y);
  bool swaps = op == RT_SYM_ADD || op == RT_SYM_MUL || op == RT_SYM_MIN || op == RT_SYM_MAX;
  RtSym e = {.op = (int32_t)op, .a = (int32_t)a, .b = (int32_t)b};
  if (cx && cy) {
    RtSym both = {.op = (int32_t)op, .a = 0, .b = 1};
    return sym_const(arena, p, rt_sym_eval(&both, (const int64_t[]){x, y}, NULL));
  }
  if (swaps && a > b) {
    e.a = (int32_t)b;
    e.b = (int32_t)a;
  }
  if ((op == RT_SYM_ADD || op == RT_SYM_SUB) && cy && y == 0) return a;
  if (op == RT_SYM_ADD && cx && x == 0) return b;
  if (op == RT_SYM_MUL && ((cx && x == 0) || (cy && y == 0))) return SYM_ZERO;
  if (op == RT_SYM_MUL && cx && x == 1) return b;
  if ((op == RT_SYM_MUL || op == RT_SYM_DIV || op == RT_SYM_CEIL_DIV) && cy && y == 1) return a;
  return intern_sym(arena, p, e);
}

static SymId sym_coord(Arena *arena, FusedProgram *p, const Mesh *mesh, uint32_t axis) {
  uint32_t m = 0;
  while (m < p->meshes.len && p->meshes.data[m] != mesh) m++;
  if (m == p->meshes.len) VEC_PUSH(arena, &p->meshes, mesh);
  return intern_sym(arena, p, (RtSym){.op = RT_SYM_COORD, .a = (int32_t)m, .imm = axis});
}

SymId sym_axis_coord(Arena *arena, FusedProgram *p, const Mesh *mesh, uint32_t axis) {
  if (mesh->size[axis] == 1) return SYM_ZERO;
  return sym_coord(arena, p, mesh, axis);
}

SymId sym_extent(Arena *arena, FusedProgram *p, const TensorType *t, uint32_t dim) {
  uint8_t axes[DTM_MAX_AXES];
  uint32_t n = layout_dim_axes(&t->layout, dim, axes);
  SymId extent = sym_const(arena, p, t->shape[dim]);
  for (uint32_t i = 0; i < n; i++) {
    int64_t whole, ways = t->mesh->size[axes[i]];
    if (is_const(p, extent, &whole) && whole % ways == 0)
      extent = sym_const(arena, p, whole / ways);
    else
      extent = intern_sym(arena, p,
                          (RtSym){.op = RT_SYM_CHUNK_LENGTH,
                                  .a = (int32_t)extent,
                                  .b = (int32_t)sym_coord(arena, p, t->mesh, axes[i]),
                                  .imm = ways});
  }
  return extent;
}

SymId sym_offset(Arena *arena, FusedProgram *p, const TensorType *t, uint32_t dim) {
  uint8_t axes[DTM_MAX_AXES];
  uint32_t n = layout_dim_axes(&t->layout, dim, axes);
  SymId extent = sym_const(arena, p, t->shape[dim]), offset = SYM_ZERO;
  for (uint32_t i = 0; i < n; i++) {
    SymId coord = sym_coord(arena, p, t->mesh, axes[i]);
    RtSym e = {.a = (int32_t)extent, .b = (int32_t)coord, .imm = t->mesh->size[axes[i]]};
    e.op = RT_SYM_CHUNK_BEGIN;
    offset = sym_binary(arena, p, RT_SYM_ADD, offset, intern_sym(arena, p, e));
    e.op = RT_SYM_CHUNK_LENGTH;
    extent = intern_sym(arena, p, e);
  }
  /* An empty block counts as lying at the end; where it lies is never asked for an element. */
  if (!n) return offset;
  SymId end = sym_const(arena, p, t->shape[dim]);
  return intern_sym(
      arena, p,
      (RtSym){
          .op = RT_SYM_IF_ZERO, .a = (int32_t)end, .b = (int32_t)offset, .imm = (int64_t)extent});
}

void fuse_eval_syms(const FusedProgram *p, const int64_t (*coords)[DTM_MAX_AXES], int64_t *out) {
  for (uint32_t i = 0; i < p->syms.len; i++) {
    const RtSym *s = &p->syms.data[i];
    out[i] = rt_sym_eval(s, out, s->op == RT_SYM_COORD ? coords[s->a] : NULL);
  }
}
