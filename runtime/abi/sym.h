/* Run-time integers of a program: extents, strides, offsets and counts of one rank.
 *
 * Kernels are shape-polymorphic, and with uneven shards even two ranks differ, so every integer a
 * kernel call needs is an entry of one table, written by the compiler, evaluated once at start by
 * each rank from its mesh coordinates. Entries refer to earlier entries only.
 */
#ifndef DTM_ABI_SYM_H
#define DTM_ABI_SYM_H

#include <stdint.h>

/* X(id, text, meaning over va = value of entry a, vb = value of entry b) */
#define RT_SYM_OPS(X)                                                                              \
  X(CONST, "const", "imm")                                                                         \
  X(COORD, "coord", "coordinate on axis imm of mesh a (index into the program's meshes)")          \
  X(CHUNK_LENGTH, "chunk_length", "length of part vb of imm parts of extent va (torch.chunk)")     \
  X(CHUNK_BEGIN, "chunk_begin", "begin of part vb of imm parts of extent va")                      \
  X(ADD, "add", "va + vb")                                                                         \
  X(SUB, "sub", "va - vb")                                                                         \
  X(MUL, "mul", "va * vb")                                                                         \
  X(DIV, "div", "va / vb, rounded to zero; 0 when vb is 0")                                        \
  X(CEIL_DIV, "ceil_div", "ceil(va / vb) for va >= 0, vb > 0; else 0")                     \
  X(MIN, "min", "the smaller")                                                                     \
  X(MAX, "max", "the larger")                                                                      \
  X(IF_ZERO, "if_zero", "va when entry imm is 0, else vb")

typedef enum RtSymOp {
  RT_SYM_NONE = 0,
#define X(id, text, doc) RT_SYM_##id,
  RT_SYM_OPS(X)
#undef X
} RtSymOp;

typedef struct RtSym {
  int32_t op; /* RtSymOp */
  int32_t a, b;
  int32_t unused;
  int64_t imm;
} RtSym;

/* Sums and products wrap, so that no image, however damaged, leads to an undefined one. */
static inline int64_t rt_sym_add(int64_t a, int64_t b) {
  return (int64_t)((uint64_t)a + (uint64_t)b);
}
static inline int64_t rt_sym_mul(int64_t a, int64_t b) {
  return (int64_t)((uint64_t)a * (uint64_t)b);
}

/* One entry; `values` holds those before it; `coord` points at this rank's coordinates on the mesh
 * of a COORD entry. */
static inline int64_t rt_sym_eval(const RtSym *s, const int64_t *values, const int64_t *coord) {
  switch ((RtSymOp)s->op) {
  case RT_SYM_NONE:
    return 0;
  case RT_SYM_CONST:
    return s->imm;
  case RT_SYM_COORD:
    return coord[s->imm];
  case RT_SYM_CHUNK_LENGTH:
  case RT_SYM_CHUNK_BEGIN: {
    int64_t n = values[s->a], r = values[s->b], c = rt_sym_add(n, s->imm - 1) / s->imm;
    int64_t lo = rt_sym_mul(c, r), hi = rt_sym_add(lo, c);
    if (lo > n) lo = n;
    if (hi > n) hi = n;
    return s->op == RT_SYM_CHUNK_BEGIN ? lo : rt_sym_add(hi, rt_sym_mul(lo, -1));
  }
  case RT_SYM_ADD:
    return rt_sym_add(values[s->a], values[s->b]);
  case RT_SYM_SUB:
    return rt_sym_add(values[s->a], rt_sym_mul(values[s->b], -1));
  case RT_SYM_MUL:
    return rt_sym_mul(values[s->a], values[s->b]);
  case RT_SYM_DIV:
    if (values[s->b] == -1) return rt_sym_mul(values[s->a], -1);
    return values[s->b] ? values[s->a] / values[s->b] : 0;
  case RT_SYM_CEIL_DIV:
    return values[s->b] > 0 ? rt_sym_add(values[s->a], values[s->b] - 1) / values[s->b] : 0;
  case RT_SYM_MIN:
    return values[s->a] < values[s->b] ? values[s->a] : values[s->b];
  case RT_SYM_MAX:
    return values[s->a] > values[s->b] ? values[s->a] : values[s->b];
  case RT_SYM_IF_ZERO:
    return values[s->imm] == 0 ? values[s->a] : values[s->b];
  }
  return 0;
}

#endif
