/* What the fuser asks of types again and again, worked out once per distinct type. */
#include <string.h>

#include "fuse/internal.h"

static const SymId unknown = UINT32_MAX;

static uint32_t type_number(Fuser *f, IdMap *ids, const TensorType *t) {
  uint64_t key = hash_bytes(t, sizeof *t, 0);
  for (uint32_t i; id_map_get(ids, key, &i); key++)
    if (memcmp(f->types.data[i].type, t, sizeof *t) == 0) return i;
  id_map_put(f->arena, ids, key, f->types.len);
  TypeFacts facts = {.type = t, .bytes = type_local_bytes(t), .count = unknown};
  for (uint32_t d = 0; d < DTM_MAX_DIMS; d++) facts.extent[d] = unknown;
  VEC_PUSH(f->arena, &f->types, facts);
  return f->types.len - 1;
}

void fuse_number_types(Fuser *f) {
  IdMap ids = {0};
  f->type_of = ARENA_ARRAY(f->arena, uint32_t, f->g->values.len);
  for (ValueId v = 1; v < f->g->values.len; v++)
    f->type_of[v] = type_number(f, &ids, value_type(f->g, v));
}

SymId fuse_extent(Fuser *f, ValueId v, uint32_t dim) {
  TypeFacts *t = &f->types.data[f->type_of[v]];
  if (t->extent[dim] == unknown) t->extent[dim] = sym_extent(f->arena, f->p, t->type, dim);
  return t->extent[dim];
}

SymId fuse_count(Fuser *f, const TensorType *t) {
  SymId n = SYM_ONE;
  for (uint32_t d = 0; d < t->rank; d++)
    n = sym_binary(f->arena, f->p, RT_SYM_MUL, n, sym_extent(f->arena, f->p, t, d));
  return n;
}

SymId fuse_local_count(Fuser *f, ValueId v) {
  TypeFacts *t = &f->types.data[f->type_of[v]];
  if (t->count == unknown) t->count = fuse_count(f, t->type);
  return t->count;
}

int64_t fuse_bytes(const Fuser *f, ValueId v) {
  return f->types.data[f->type_of[v]].bytes;
}

int64_t fuse_elements(const Fuser *f, ValueId v) {
  return fuse_bytes(f, v) / (int64_t)dtype_bytes(value_type(f->g, v)->dtype);
}
