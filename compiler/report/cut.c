/* Blocks, replicas and parts of a tensor: see cut.h. */
#include "report/cut.h"

#include <string.h>

/* The dims that say most: those that are cut, else the last ones. */
static void choose_dims(Cut *c) {
  int rank = (int)c->type.rank, first = -1, second = -1;
  for (int d = 0; d < rank; d++) {
    if (!c->naxes[d]) continue;
    if (first < 0)
      first = d;
    else if (second < 0)
      second = d;
  }
  if (rank == 0) {
    c->row = c->col = -1;
    return;
  }
  if (first < 0) first = rank - 1;
  if (second < 0) second = first == rank - 1 ? first - 1 : rank - 1;
  c->col = first > second ? first : second;
  c->row = first > second ? second : first;
}

Cut cut_of(const TensorType *type) {
  Cut c = {.type = *type};
  for (uint32_t d = 0; d < type->rank; d++)
    c.naxes[d] = layout_dim_axes(&type->layout, d, c.axes[d]);
  choose_dims(&c);
  return c;
}

int64_t cut_parts(const Cut *c, int dim) {
  return dim < 0 ? 1 : layout_dim_ways(&c->type.layout, c->type.mesh, (uint32_t)dim);
}

void cut_part(const Cut *c, int dim, int64_t index, int64_t coord[DTM_MAX_AXES], int64_t *begin,
              int64_t *length) {
  *begin = 0;
  *length = 1;
  if (dim < 0) return;
  for (uint32_t k = c->naxes[dim]; k-- > 0;) {
    int64_t size = c->type.mesh->size[c->axes[dim][k]];
    coord[c->axes[dim][k]] = index % size;
    index /= size;
  }
  Block b = type_block(&c->type, coord);
  *begin = b.offset[dim];
  *length = b.extent[dim];
}

int64_t cut_part_index(const Cut *c, int dim, const int64_t coord[DTM_MAX_AXES]) {
  int64_t index = 0;
  for (uint32_t k = 0; dim >= 0 && k < c->naxes[dim]; k++) {
    uint8_t a = c->axes[dim][k];
    index = index * c->type.mesh->size[a] + coord[a];
  }
  return index;
}

CutRank cut_rank(const Cut *c, int64_t position) {
  const Mesh *mesh = c->type.mesh;
  CutRank r = {.rank = mesh_rank(mesh, position), .copies = 1, .addends = 1};
  mesh_coords(mesh, position, r.coord);
  Block b = type_block(&c->type, r.coord);
  r.bytes = (int64_t)dtype_bytes(c->type.dtype);
  for (uint32_t d = 0; d < c->type.rank; d++) {
    r.shape[d] = b.extent[d];
    r.offset[d] = b.offset[d];
    r.bytes *= r.shape[d];
  }
  int64_t owner[DTM_MAX_AXES] = {0};
  for (uint32_t a = 0; a < mesh->naxes; a++) {
    switch ((PlaceKind)c->type.layout.at[a].kind) {
    case PLACE_SHARD:
      owner[a] = r.coord[a];
      break;
    case PLACE_PARTIAL:
      owner[a] = r.coord[a];
      r.addend = r.addend * mesh->size[a] + r.coord[a];
      r.addends *= mesh->size[a];
      break;
    case PLACE_REPLICATE:
      r.copy = r.copy * mesh->size[a] + r.coord[a];
      r.copies *= mesh->size[a];
      break;
    }
  }
  r.owner = mesh_rank(mesh, mesh_position(mesh, owner));
  return r;
}

/* Row-major number of a rank's block among all blocks. */
static int64_t block_number(const Cut *c, const CutRank *r) {
  int64_t n = 0;
  for (uint32_t a = 0; a < c->type.mesh->naxes; a++)
    if (c->type.layout.at[a].kind == PLACE_SHARD) n = n * c->type.mesh->size[a] + r->coord[a];
  return n;
}

static void add_rank(Arena *arena, CutTable *t, uint32_t row, const CutRank *r) {
  if (row == t->rows.len) VEC_PUSH(arena, &t->rows, (CutRow){.first = *r});
  VEC_PUSH(arena, &t->rows.data[row].ranks, r->rank);
}

static uint32_t row_of_shape(const CutTable *t, const CutRank *r) {
  uint32_t row = 0; /* a dim has three different extents at most under one axis: few rows */
  while (row < t->rows.len && memcmp(t->rows.data[row].first.shape, r->shape, sizeof r->shape) != 0)
    row++;
  return row;
}

CutTable cut_table(Arena *arena, const Cut *c) {
  int64_t n = c->type.mesh->nranks, blocks = 1;
  for (uint32_t d = 0; d < c->type.rank; d++) blocks *= cut_parts(c, (int)d);
  CutTable t = {.fold = n <= CUT_ROWS ? FOLD_NONE : blocks <= CUT_ROWS ? FOLD_BLOCK : FOLD_SHAPE};
  IdMap by_block = {0};
  for (int64_t p = 0; p < n; p++) {
    CutRank r = cut_rank(c, p);
    if (p == 0 || r.bytes < t.least) t.least = r.bytes;
    if (r.bytes > t.most) t.most = r.bytes;
    if (__builtin_add_overflow(t.total, r.bytes, &t.total)) t.total = INT64_MAX;
    uint32_t row = t.rows.len;
    switch (t.fold) {
    case FOLD_NONE:
      break;
    case FOLD_BLOCK:
      if (!id_map_get(&by_block, (uint64_t)block_number(c, &r), &row))
        id_map_put(arena, &by_block, (uint64_t)block_number(c, &r), row);
      break;
    case FOLD_SHAPE:
      row = row_of_shape(&t, &r);
      break;
    }
    add_rank(arena, &t, row, &r);
  }
  return t;
}

static uint32_t moved_level(const Cut *c, int dim, int64_t index) {
  int64_t inner = 1;
  uint32_t k = c->naxes[dim] - 1;
  for (; k > 0; k--) {
    inner *= c->type.mesh->size[c->axes[dim][k]];
    if (index % inner != 0) break;
  }
  return k;
}

CutStrip cut_strip(Arena *arena, const Cut *c, int dim, uint32_t most) {
  int64_t parts = cut_parts(c, dim), coord[DTM_MAX_AXES] = {0};
  uint32_t n = parts <= most ? (uint32_t)parts : most;
  CutStrip strip = {.slice = ARENA_ARRAY(arena, CutSlice, n), .len = n, .dim = dim};
  for (uint32_t i = 0; i < n; i++) {
    CutSlice *s = &strip.slice[i];
    s->gap = parts > n && n > 1 && i == n - 2;
    s->index = parts > n && i == n - 1 && n > 1 ? parts - 1 : i;
    cut_part(c, dim, s->index, coord, &s->begin, &s->length);
    if (i > 0 && dim >= 0 && c->naxes[dim]) s->level = moved_level(c, dim, s->index);
  }
  return strip;
}

const char *cut_ranks_print(Arena *arena, const int64_t *ranks, uint32_t n, uint32_t budget) {
  StrBuf sb;
  strbuf_init(&sb, arena);
  for (uint32_t i = 0; i < n && sb.len <= budget;) {
    uint32_t end = i + 1;
    while (end < n && ranks[end] == ranks[end - 1] + 1) end++;
    if (end - i < 3) end = i + 1;
    strbuf_printf(&sb, "%s%lld", i ? "," : "", (long long)ranks[i]);
    if (end - i > 1) strbuf_printf(&sb, "-%lld", (long long)ranks[end - 1]);
    i = end;
  }
  if (sb.len <= budget) return sb.text;
  const char *text =
      arena_printf(arena, "%lld,\u2026,%lld", (long long)ranks[0], (long long)ranks[n - 1]);
  return strlen(text) - 2 <= budget ? text
                                    : arena_printf(arena, "%lld,\u2026", (long long)ranks[0]);
}

/* The addends of one replica as one operand of the reduction. */
static void put_addends(Arena *arena, StrBuf *sb, ReduceOp op, const int64_t *ranks, uint32_t n,
                        uint32_t budget) {
  if (op != REDUCE_SUM && op != REDUCE_AVG) {
    strbuf_printf(sb, "%s(%s)", reduce_op_name(op), cut_ranks_print(arena, ranks, n, budget));
    return;
  }
  size_t before = sb->len;
  for (uint32_t i = 0; i < n && sb->len - before <= budget; i++)
    strbuf_printf(sb, "%s%lld", i ? "+" : "", (long long)ranks[i]);
  if (sb->len - before <= budget) return;
  sb->len = before;
  strbuf_printf(sb, "%lld+\u2026+%lld", (long long)ranks[0], (long long)ranks[n - 1]);
}

/* Sets the coordinates of all axes of one kind to those of number `index` (row-major). */
static void set_axes(const Cut *c, PlaceKind kind, int64_t index, int64_t coord[DTM_MAX_AXES]) {
  for (uint32_t a = c->type.mesh->naxes; a-- > 0;) {
    if (c->type.layout.at[a].kind != kind) continue;
    coord[a] = index % c->type.mesh->size[a];
    index /= c->type.mesh->size[a];
  }
}

const char *cut_holders_print(Arena *arena, const Cut *c, const CutStrip *rows, uint32_t row,
                              const CutStrip *cols, uint32_t col, uint32_t budget) {
  int64_t coord[DTM_MAX_AXES] = {0}, begin, length;
  cut_part(c, rows->dim, rows->slice[row].index, coord, &begin, &length);
  cut_part(c, cols->dim, cols->slice[col].index, coord, &begin, &length);
  const Mesh *mesh = c->type.mesh;
  CutRank any = cut_rank(c, mesh_position(mesh, coord));
  ReduceOp op = REDUCE_NONE;
  for (uint32_t a = 0; a < mesh->naxes; a++)
    if (c->type.layout.at[a].kind == PLACE_PARTIAL) op = (ReduceOp)c->type.layout.at[a].op;
  bool pending = any.addends > 1;
  int64_t *ranks = ARENA_ARRAY(arena, int64_t, pending ? any.addends : any.copies);
  if (!pending) {
    for (int64_t i = 0; i < any.copies; i++) {
      set_axes(c, PLACE_REPLICATE, i, coord);
      ranks[i] = mesh_rank(mesh, mesh_position(mesh, coord));
    }
    return cut_ranks_print(arena, ranks, (uint32_t)any.copies, budget);
  }
  StrBuf sb;
  strbuf_init(&sb, arena);
  for (int64_t i = 0; i < any.copies; i++) {
    if (i && sb.len >= budget) {
      strbuf_puts(&sb, ", \u2026");
      break;
    }
    set_axes(c, PLACE_REPLICATE, i, coord);
    for (int64_t k = 0; k < any.addends; k++) {
      set_axes(c, PLACE_PARTIAL, k, coord);
      ranks[k] = mesh_rank(mesh, mesh_position(mesh, coord));
    }
    if (i) strbuf_puts(&sb, ", ");
    put_addends(arena, &sb, op, ranks, (uint32_t)any.addends, budget);
  }
  return sb.text;
}

const char *cut_range_print(Arena *arena, const CutSlice *s) {
  if (s->gap) return "\u2026";
  if (!s->length) return CUT_EMPTY;
  return arena_printf(arena, "%lld:%lld", (long long)s->begin, (long long)(s->begin + s->length));
}

const char *cut_coord_print(Arena *arena, const Cut *c, const CutStrip *strip, uint32_t slice,
                            uint32_t level) {
  int64_t coord[DTM_MAX_AXES] = {0}, begin, length;
  cut_part(c, strip->dim, strip->slice[slice].index, coord, &begin, &length);
  uint8_t a = c->axes[strip->dim][level];
  return arena_printf(arena, "%s=%lld", c->type.mesh->axis[a], (long long)coord[a]);
}

const char *cut_dim_print(Arena *arena, const Cut *c, int dim) {
  StrBuf sb;
  strbuf_init(&sb, arena);
  strbuf_printf(&sb, "%lld", (long long)c->type.shape[dim]);
  if (!c->naxes[dim]) {
    strbuf_puts(&sb, ", whole");
    return sb.text;
  }
  strbuf_puts(&sb, " over ");
  for (uint32_t k = 0; k < c->naxes[dim]; k++) {
    uint8_t a = c->axes[dim][k];
    strbuf_printf(&sb, "%s%s (%lld)", k ? ", in each " : "", c->type.mesh->axis[a],
                  (long long)c->type.mesh->size[a]);
  }
  enum { SHOWN = 9 };
  CutStrip strip = cut_strip(arena, c, dim, SHOWN);
  for (uint32_t i = 0; i < strip.len; i++) {
    strbuf_puts(&sb, i ? ", " : ": ");
    if (strip.slice[i].gap)
      strbuf_puts(&sb, "\u2026");
    else
      strbuf_printf(&sb, "%lld", (long long)strip.slice[i].length);
  }
  return sb.text;
}
