/* Layouts and tensor types: see layout.h. */
#include "types/layout.h"

#include "runtime/abi/blocks.h"

#include <string.h>

static const char *const reduce_names[REDUCE_COUNT] = {[REDUCE_NONE] = "none",
#define X(id, name) [REDUCE_##id] = name,
                                                       ABI_REDUCES(X)
#undef X
};

const char *reduce_op_name(ReduceOp op) {
  return reduce_names[op];
}

ReduceOp reduce_op_by_name(const char *name) {
  for (int op = REDUCE_SUM; op < REDUCE_COUNT; op++)
    if (strcmp(reduce_names[op], name) == 0) return (ReduceOp)op;
  return REDUCE_NONE;
}

bool layout_equal(const Layout *a, const Layout *b) {
  return memcmp(a, b, sizeof *a) == 0;
}

bool layout_has_partial(const Layout *l) {
  for (int a = 0; a < DTM_MAX_AXES; a++)
    if (l->at[a].kind == PLACE_PARTIAL) return true;
  return false;
}

bool layout_is_replicate(const Layout *l) {
  for (int a = 0; a < DTM_MAX_AXES; a++)
    if (l->at[a].kind != PLACE_REPLICATE) return false;
  return true;
}

uint32_t layout_dim_axes(const Layout *l, uint32_t dim, uint8_t axes[DTM_MAX_AXES]) {
  uint32_t n = 0;
  for (uint8_t a = 0; a < DTM_MAX_AXES; a++) {
    if (l->at[a].kind != PLACE_SHARD || l->at[a].dim != dim) continue;
    axes[l->at[a].order] = a;
    n++;
  }
  return n;
}

int64_t layout_dim_ways(const Layout *l, const Mesh *mesh, uint32_t dim) {
  int64_t ways = 1;
  for (uint32_t a = 0; a < mesh->naxes; a++)
    if (l->at[a].kind == PLACE_SHARD && l->at[a].dim == dim) ways *= mesh->size[a];
  return ways;
}

/* Takes an axis out of the list of the dim it cuts; inner axes move one step outward. */
static void leave_dim(Layout *l, uint32_t axis) {
  Place old = l->at[axis];
  l->at[axis] = (Place){0};
  if (old.kind != PLACE_SHARD) return;
  for (int a = 0; a < DTM_MAX_AXES; a++)
    if (l->at[a].kind == PLACE_SHARD && l->at[a].dim == old.dim && l->at[a].order > old.order)
      l->at[a].order--;
}

void layout_set(Layout *l, const Mesh *mesh, uint32_t axis, PlaceKind kind, uint32_t dim,
                ReduceOp op) {
  leave_dim(l, axis);
  if (mesh->size[axis] == 1) return;
  switch (kind) {
  case PLACE_REPLICATE:
    break;
  case PLACE_SHARD: {
    uint8_t axes[DTM_MAX_AXES];
    uint32_t n = layout_dim_axes(l, dim, axes);
    l->at[axis] = (Place){.kind = PLACE_SHARD, .dim = (uint8_t)dim, .order = (uint8_t)n};
    break;
  }
  case PLACE_PARTIAL:
    l->at[axis] = (Place){.kind = PLACE_PARTIAL, .op = (uint8_t)op};
    break;
  }
}

void layout_set_dim(Layout *l, const Mesh *mesh, uint32_t dim, const uint8_t *axes, uint32_t n) {
  for (uint32_t a = 0; a < mesh->naxes; a++)
    if (l->at[a].kind == PLACE_SHARD && l->at[a].dim == dim) l->at[a] = (Place){0};
  for (uint32_t i = 0; i < n; i++) layout_set(l, mesh, axes[i], PLACE_SHARD, dim, REDUCE_NONE);
}

bool layout_partial_consistent(const Layout *l) {
  ReduceOp seen = REDUCE_NONE;
  for (int a = 0; a < DTM_MAX_AXES; a++) {
    if (l->at[a].kind != PLACE_PARTIAL) continue;
    ReduceOp op = l->at[a].op == REDUCE_AVG ? REDUCE_SUM : (ReduceOp)l->at[a].op;
    if (seen && seen != op) return false;
    seen = op;
  }
  return true;
}

bool type_same_elements(const TensorType *a, const TensorType *b) {
  return a->rank == b->rank && memcmp(a->shape, b->shape, sizeof *a->shape * a->rank) == 0 &&
         memcmp(a->balanced, b->balanced, sizeof *a->balanced * a->rank) == 0;
}

bool type_equal(const TensorType *a, const TensorType *b) {
  return a->dtype == b->dtype && a->mesh == b->mesh && type_same_elements(a, b) &&
         layout_equal(&a->layout, &b->layout);
}

int64_t type_elements(const TensorType *t) {
  int64_t n = 1;
  for (uint32_t d = 0; d < t->rank; d++) n *= t->shape[d];
  return n;
}

_Static_assert(sizeof(Place) == sizeof(AbiPlace) &&
                   sizeof(Layout) == sizeof(AbiPlace[DTM_MAX_AXES]) &&
                   (int)DTM_MAX_DIMS == (int)ABI_MAX_DIMS,
               "layouts are read by the chunk rule shared with the runtime");

bool type_is_addressable(const TensorType *t) {
  /* Extents of 0 count as 1: the others must fit beside an empty dim as well. */
  int64_t bytes = (int64_t)dtype_bytes(t->dtype);
  for (uint32_t d = 0; d < t->rank; d++)
    if (t->shape[d] > 1 && __builtin_mul_overflow(bytes, t->shape[d], &bytes)) return false;
  return bytes <= (int64_t)1 << 60;
}

void chunk(int64_t extent, int64_t parts, int64_t r, int64_t *begin, int64_t *length) {
  abi_chunk(extent, parts, r, begin, length);
}

int type_to_mesh(TensorType *t, const Mesh *mesh) {
  Layout to = {0};
  for (uint32_t a = 0; a < t->mesh->naxes; a++) {
    Place p = t->layout.at[a];
    if (p.kind == PLACE_REPLICATE) continue;
    int at = mesh_axis(mesh, t->mesh->axis[a]);
    if (at < 0) return (int)a;
    if (p.kind == PLACE_PARTIAL)
      layout_set(&to, mesh, (uint32_t)at, PLACE_PARTIAL, 0, (ReduceOp)p.op);
  }
  for (uint32_t d = 0; d < t->rank; d++) {
    uint8_t axes[DTM_MAX_AXES];
    uint32_t n = layout_dim_axes(&t->layout, d, axes);
    for (uint32_t i = 0; i < n; i++) axes[i] = (uint8_t)mesh_axis(mesh, t->mesh->axis[axes[i]]);
    layout_set_dim(&to, mesh, d, axes, n);
  }
  t->layout = to;
  t->mesh = mesh;
  return -1;
}

Block type_block(const TensorType *t, const int64_t coord[DTM_MAX_AXES]) {
  Block b = {0};
  AbiPlace at[ABI_MAX_AXES];
  memcpy(at, t->layout.at, sizeof at);
  for (uint32_t d = 0; d < t->rank; d++)
    abi_block_dim(t->shape[d], d, at, t->mesh->size, coord, &b.offset[d], &b.extent[d]);
  return b;
}

void type_local_max(const TensorType *t, int64_t extent[DTM_MAX_DIMS]) {
  static const int64_t first[DTM_MAX_AXES] = {0};
  Block b = type_block(t, first);
  memcpy(extent, b.extent, sizeof b.extent);
}

int64_t type_local_bytes(const TensorType *t) {
  int64_t extent[DTM_MAX_DIMS], n = (int64_t)dtype_bytes(t->dtype);
  type_local_max(t, extent);
  for (uint32_t d = 0; d < t->rank; d++) n *= extent[d];
  return n;
}

void type_put(StrBuf *out, const TensorType *t) {
  strbuf_puts(out, dtype_name(t->dtype));
  strbuf_putc(out, '[');
  for (uint32_t d = 0; d < t->rank; d++) {
    uint8_t axes[DTM_MAX_AXES];
    uint32_t n = layout_dim_axes(&t->layout, d, axes);
    strbuf_printf(out, "%s%lld", d ? ", " : "", (long long)t->shape[d]);
    if (n == 1) strbuf_printf(out, "@%s", t->mesh->axis[axes[0]]);
    for (uint32_t i = 0; n > 1 && i < n; i++)
      strbuf_printf(out, "%s%s%s", i ? "," : "@(", t->mesh->axis[axes[i]], i + 1 == n ? ")" : "");
  }
  strbuf_putc(out, ']');
  bool open = false;
  for (uint32_t d = 0; d < t->rank; d++) {
    if (!t->balanced[d]) continue;
    strbuf_printf(out, "%s%u: %d", open ? ", " : " balanced(", d, t->balanced[d]);
    open = true;
  }
  if (open) strbuf_putc(out, ')');
  open = false;
  for (uint32_t a = 0; t->mesh && a < t->mesh->naxes; a++) {
    Place p = t->layout.at[a];
    if (p.kind != PLACE_PARTIAL) continue;
    strbuf_printf(out, "%s%s", open ? ", " : " partial(", t->mesh->axis[a]);
    if (p.op != REDUCE_SUM) strbuf_printf(out, ": %s", reduce_op_name((ReduceOp)p.op));
    open = true;
  }
  if (open) strbuf_putc(out, ')');
}

const char *type_print(Arena *arena, const TensorType *t) {
  StrBuf sb;
  strbuf_init(&sb, arena);
  type_put(&sb, t);
  if (t->mesh && t->mesh->sub) strbuf_printf(&sb, " on %s", t->mesh->name);
  return sb.text;
}

const char *place_print(Arena *arena, Place p) {
  switch ((PlaceKind)p.kind) {
  case PLACE_REPLICATE:
    return "Replicate";
  case PLACE_SHARD:
    return arena_printf(arena, "Shard(%d)", p.dim);
  case PLACE_PARTIAL:
    return arena_printf(arena, "Partial(%s)", reduce_op_name((ReduceOp)p.op));
  }
  return "?";
}
