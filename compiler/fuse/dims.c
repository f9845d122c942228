/* Roles and order of a kernel's dims, after its instructions are known.
 *
 * The vector dim is the one most accesses run through contiguously: a kernel whose reduced dims are
 * none of those keeps lanes. Neighbours of one role are merged when every access walks them as one
 * dim, so a chain over a dense tensor of any rank is one loop. What is left of the integers is
 * numbered in order of use, which makes kernels of equal structure equal.
 */
#include <string.h>

#include "fuse/lower.h"

typedef struct DimPlace {
  uint8_t role;
  SymId extent;
  uint32_t dim; /* domain dim whose strides stand for it */
} DimPlace;

static SymId sym_of(const Lower *l, KInt i) {
  return i == KINT_ZERO ? SYM_ZERO : i == KINT_ONE ? SYM_ONE : l->ints.data[i];
}

static bool addresses(const KInstr *in) {
  return in->kind == K_LOAD || in->kind == K_STORE || in->kind == K_ACCUM || in->kind == K_INDEX ||
         in->kind == K_RANDOM;
}

static bool moves_along(const KAccess *a, uint32_t dims) {
  for (uint32_t d = 0; d < KERNEL_MAX_DIMS; d++)
    if (dims >> d & 1 && a->stride[d] != KINT_ZERO) return true;
  return false;
}

/* Does the access move along all dims of the domain? In one of no elements strides are 0 too. */
static bool is_whole(const Lower *l, const KAccess *a) {
  bool whole = true;
  for (uint32_t d = 0; d < l->k->ndims; d++) {
    if (l->k->extent[d] == SYM_ZERO) return true;
    if (l->k->extent[d] != SYM_ONE && a->stride[d] == KINT_ZERO) whole = false;
  }
  return whole;
}

/* Accesses through memory that move by one element along the dim. What varies along none of the
 * inner dims is read and written once per row, what varies along none of the others stays in a
 * cache: these do not count. Without inner dims a whole tensor counts more than all that is small
 * beside it, such as values per row. */
static int unit_accesses(const Lower *l, uint32_t dim) {
  enum { WHOLE = 1 << 16 };
  uint32_t kept = ((1u << l->k->ndims) - 1) & ~l->k->inner;
  int n = 0;
  for (uint32_t i = 0; i < l->b.instrs.len; i++) {
    const KInstr *in = &l->b.instrs.data[i];
    if (!addresses(in) || in->kind == K_INDEX || in->kind == K_RANDOM) continue;
    bool turned = in->kind == K_LOAD && in->a;
    if (l->k->inner && !turned && !moves_along(&in->access, l->k->inner)) continue;
    if (l->k->inner && kept && !turned && !moves_along(&in->access, kept)) continue;
    bool whole = !l->k->inner && is_whole(l, &in->access);
    if (in->access.stride[dim] == KINT_ONE) n += (in->kind == K_LOAD ? 1 : 2) * (whole ? WHOLE : 1);
  }
  return n;
}

/* Among `candidates`; *most gets its accesses. */
static int best_vec(const Lower *l, uint32_t candidates, int *most) {
  int best = -1;
  *most = -1;
  for (uint32_t d = 0; d < l->k->ndims; d++) {
    if (!(candidates >> d & 1)) continue;
    int n = unit_accesses(l, d);
    if (n < *most) continue;
    best = (int)d;
    *most = n;
  }
  return best;
}

static int choose_vec(Lower *l) {
  const KGroup *k = l->k;
  uint32_t kept = ((1u << k->ndims) - 1) & ~k->rows & ~k->inner;
  int most, others;
  if (l->blocks) return 0;
  if (!k->inner) return best_vec(l, kept, &most);
  int inner = best_vec(l, k->inner, &most), vec = best_vec(l, kept, &others);
  l->b.lanes = !k->rows && (others > most || (others == most && fuse_has_lanes(k, k->inner)));
  return l->b.lanes ? vec : inner;
}

int fuse_vec_dim(const KGroup *k) {
  uint32_t candidates = k->inner ? k->inner : ((1u << k->ndims) - 1) & ~k->rows;
  for (int d = (int)k->ndims - 1; d >= 0; d--)
    if (candidates >> d & 1) return d;
  return -1;
}

static KDimRole role_of(const KGroup *k, uint32_t d, int vec) {
  if ((int)d == vec) return KDIM_VEC;
  if (k->rows >> d & 1) return KDIM_ROW;
  if (k->inner >> d & 1) return KDIM_INNER;
  /* Kept dims inside the rows: one pass over the memory instead of one per kept index. */
  bool inside = !k->inner && k->rows && (k->rows & ((1u << d) - 1));
  return inside ? KDIM_INNER : KDIM_GRID;
}

static bool walk_as_one(Lower *l, const DimPlace *outer, const DimPlace *inner) {
  for (uint32_t i = 0; i < l->b.instrs.len; i++) {
    const KInstr *in = &l->b.instrs.data[i];
    if (!addresses(in) || (in->kind == K_ACCUM && outer->role == KDIM_ROW)) continue;
    SymId a = sym_of(l, in->access.stride[outer->dim]),
          b = sym_of(l, in->access.stride[inner->dim]);
    if (a != sym_binary(l->f->arena, l->f->p, RT_SYM_MUL, b, inner->extent)) return false;
  }
  return true;
}

/* Grid dims become part of a vector dim whose pieces are tasks, inner ones of one that is reduced
 * with them. */
static bool may_merge(const Lower *l, const DimPlace *outer, const DimPlace *inner, bool pure_map) {
  if (outer->role == inner->role) return true;
  if (inner->role != KDIM_VEC) return false;
  if (outer->role == KDIM_GRID) return pure_map || l->b.lanes;
  return outer->role == KDIM_INNER && !l->b.lanes;
}

static uint32_t merge_places(Lower *l, DimPlace *p, uint32_t n, bool pure_map) {
  for (uint32_t i = n; i-- > 1;) {
    DimPlace *outer = &p[i - 1], *inner = &p[i];
    if (!may_merge(l, outer, inner, pure_map) || !walk_as_one(l, outer, inner)) continue;
    for (uint32_t j = 0; outer->role == KDIM_ROW && j < l->b.instrs.len; j++) {
      KInstr *in = &l->b.instrs.data[j]; /* the stride per chunk stays */
      if (in->kind == K_ACCUM) in->access.stride[inner->dim] = in->access.stride[outer->dim];
    }
    inner->extent = sym_binary(l->f->arena, l->f->p, RT_SYM_MUL, outer->extent, inner->extent);
    memmove(outer, inner, sizeof *p * (n - i));
    n--;
  }
  return n;
}

/* By role; dims of one role keep their order. */
static void sort_places(DimPlace *p, uint32_t n) {
  for (uint32_t i = 1; i < n; i++)
    for (uint32_t j = i; j > 0 && p[j - 1].role > p[j].role; j--) {
      DimPlace outer = p[j - 1];
      p[j - 1] = p[j];
      p[j] = outer;
    }
}

/* The piece of the vector dim one task takes. */
static uint32_t block_of(const Lower *l, const DimPlace *vec, uint32_t n) {
  if (n == 1) return l->f->target->vec_block;
  for (uint32_t i = 0; i < l->b.instrs.len; i++) {
    const KInstr *in = &l->b.instrs.data[i];
    bool memory = in->kind == K_LOAD || in->kind == K_STORE;
    if (memory && in->access.stride[vec->dim] >= 0) return KERNEL_TURN_BLOCK;
  }
  return 0;
}

static KInt renumber(SymId s, uint32_t *count, SymId *out) {
  if (s == SYM_ZERO) return KINT_ZERO;
  if (s == SYM_ONE) return KINT_ONE;
  for (uint32_t i = 0; i < *count; i++)
    if (out[i] == s) return (KInt)i;
  out[*count] = s;
  return (KInt)(*count)++;
}

Kernel *fuse_place_dims(Lower *l) {
  const KGroup *k = l->k;
  DimPlace p[DTM_MAX_DIMS];
  uint32_t n = 0;
  int vec = choose_vec(l);
  bool pure_map = !k->rows;
  for (uint32_t i = 0; i < l->b.instrs.len; i++)
    if (l->b.instrs.data[i].kind == K_REDUCE) pure_map = false;
  for (int i = 0; i < KDIM_VEC; i++) {
    /* With lanes inner dims lie between two that may be one. */
    static const uint8_t lanes[] = {KDIM_INNER, KDIM_GRID, KDIM_ROW, KDIM_VEC};
    uint8_t role = l->b.lanes ? lanes[i] : (uint8_t)(KDIM_GRID + i);
    for (uint32_t d = 0; d < k->ndims; d++)
      if (role_of(k, d, vec) == role)
        p[n++] = (DimPlace){.role = role, .extent = k->extent[d], .dim = d};
  }
  n = merge_places(l, p, n, pure_map);
  sort_places(p, n);
  l->b.vec_block = pure_map && n && p[n - 1].role == KDIM_VEC ? block_of(l, &p[n - 1], n) : 0;
  if (l->b.lanes) l->b.vec_block = KERNEL_STRIP;
  if (l->blocks) l->b.vec_block = l->f->target->vec_block;

  uint32_t count = 0, most = l->ints.len + DTM_MAX_DIMS + 2;
  SymId *ints = ARENA_ARRAY(l->f->arena, SymId, most);
  l->b.ndims = 0;
  for (uint32_t i = 0; i < n; i++)
    kb_dim(&l->b, (KDimRole)p[i].role, renumber(p[i].extent, &count, ints));
  if (k->rows && !l->blocks) {
    l->b.chunk_rows = renumber(l->chunk_rows, &count, ints);
    l->b.nchunks = renumber(l->nchunks, &count, ints);
  }
  for (uint32_t i = 0; i < l->b.instrs.len; i++) {
    KInstr *in = &l->b.instrs.data[i];
    if (!addresses(in)) continue;
    KAccess a = kb_access(in->access.buf);
    a.offset = renumber(sym_of(l, in->access.offset), &count, ints);
    for (uint32_t j = 0; j < n; j++)
      a.stride[j] = renumber(sym_of(l, in->access.stride[p[j].dim]), &count, ints);
    in->access = a;
  }
  l->ints.data = ints;
  l->ints.len = l->ints.cap = count;
  l->b.nints = count;
  return kb_finish(&l->b);
}
