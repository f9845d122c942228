/* Reshape: which shards survive when dims are merged and split.
 *
 * Leading dims that are alike stay themselves. What follows in both shapes, without dims of
 * extent 1, is cut into the shortest groups of equal product. A group of one dim against one keeps
 * any shard. Any other group may be sharded only through its leading dim, only if every shard of it
 * is even, and only if the leading factor of the result is divisible by the product of the mesh
 * dims: then a rank's block is one contiguous run on both sides, cut at the same places. Dims that
 * are cut to one element each belong to the leading part: [12@(x, y)] and [2@x, 3@y, 2] are the
 * same runs on (x 2, y 3).
 */
#include "infer/rules.h"

#include <string.h>

typedef struct Shape {
  uint32_t n;
  uint32_t dim[DTM_MAX_DIMS]; /* index in the tensor */
  int64_t extent[DTM_MAX_DIMS];
} Shape;

static void without_ones(const int64_t *extent, uint32_t from, uint32_t rank, Shape *s) {
  s->n = 0;
  for (uint32_t d = from; d < rank; d++) {
    if (extent[d] == 1) continue;
    s->dim[s->n] = d;
    s->extent[s->n++] = extent[d];
  }
}

/* The target shape, with -1 filled in. */
static bool target_shape(Rule *r, int64_t to[DTM_MAX_DIMS], uint32_t *rank) {
  const TensorType *t = rule_type(r, 0);
  const Attr *shape = rule_attr(r, ATTR_SHAPE);
  *rank = shape ? shape->as.ints.len : 0;
  if (*rank > DTM_MAX_DIMS)
    return rule_fail_argument(r, rule_text(r, "more than %d dims", DTM_MAX_DIMS));
  int open = -1;
  int64_t known = 1, total = type_elements(t);
  for (uint32_t d = 0; d < *rank; d++) {
    to[d] = shape->as.ints.data[d];
    if (to[d] == -1 && open < 0)
      open = (int)d;
    else if (to[d] < 0)
      return rule_fail_argument(r, "the shape has a negative extent, or more than one -1");
    else if (__builtin_mul_overflow(known, to[d], &known))
      return rule_fail_argument(r, "the shape is too large");
  }
  if (open >= 0 && known > 0 && total % known == 0) {
    to[open] = total / known;
    known = total;
  }
  if (known == total && (open < 0 || to[open] >= 0)) return true;
  return rule_fail_argument(r,
                            rule_text(r, "%lld elements do not fit the shape", (long long)total));
}

/* Ends of the shortest groups from (i, j); false when only "all the rest" is left. */
static bool next_group(const Shape *a, const Shape *b, uint32_t *i, uint32_t *j) {
  if (*i == a->n || *j == b->n) return false;
  int64_t p = a->extent[(*i)++], q = b->extent[(*j)++];
  while (p != q) {
    if (p < q ? *i == a->n : *j == b->n) return false;
    if (p < q)
      p *= a->extent[(*i)++];
    else
      q *= b->extent[(*j)++];
  }
  return true;
}

static bool fail_group(Rule *r, uint32_t dim, const char *reason) {
  uint8_t axes[DTM_MAX_AXES];
  layout_dim_axes(&rule_type(r, 0)->layout, dim, axes);
  return rule_fail(r, DIAG_RESHAPE_SHARD, 0, axes[0],
                   rule_text(r, "reshape: dim %u, which is sharded on %s, cannot keep its shards",
                             dim, rule_axis_name(r, axes[0])),
                   reason);
}

/* The mesh dims of the result where one dim gives them to several, or several to one. */
typedef struct Lists {
  uint8_t axis[DTM_MAX_DIMS][DTM_MAX_AXES];
  uint32_t n[DTM_MAX_DIMS];
} Lists;

/* The mesh dims that cut a group, outermost first; false unless every sharded dim but the last is
 * cut to single elements and the last evenly, with no whole dim before it. */
static bool leading_axes(const Rule *r, const Shape *a, uint32_t i0, uint32_t i1,
                         uint8_t axes[DTM_MAX_AXES], uint32_t *n) {
  const TensorType *t = rule_type(r, 0);
  bool open = true; /* all dims so far are single elements */
  *n = 0;
  for (uint32_t i = i0; i < i1; i++) {
    uint32_t d = a->dim[i];
    int64_t ways = layout_dim_ways(&t->layout, r->mesh, d);
    if (ways > 1 && (!open || t->shape[d] % ways)) return false;
    if (ways > 1) *n += layout_dim_axes(&t->layout, d, axes + *n);
    open &= ways == t->shape[d];
  }
  return true;
}

/* Shares the leading mesh dims of dims [i0, i1) out to dims [j0, j1). */
static bool share_group(const Rule *r, const Shape *a, uint32_t i0, uint32_t i1, const Shape *b,
                        uint32_t j0, uint32_t j1, Lists *lists) {
  uint8_t axes[DTM_MAX_AXES];
  uint32_t n, k = 0;
  if (!leading_axes(r, a, i0, i1, axes, &n)) return false;
  for (uint32_t j = j0; j < j1 && k < n; j++) {
    uint32_t d = b->dim[j], take = k;
    int64_t ways = 1;
    while (take < n && b->extent[j] % (ways * r->mesh->size[axes[take]]) == 0)
      ways *= r->mesh->size[axes[take++]];
    if (take < n && ways != b->extent[j]) return false;
    lists->n[d] = take - k;
    memcpy(lists->axis[d], axes + k, take - k);
    k = take;
  }
  return k == n;
}

/* Dims [i0, i1) of `a` become dims [j0, j1) of `b`. */
static bool map_group(Rule *r, const Shape *a, uint32_t i0, uint32_t i1, const Shape *b,
                      uint32_t j0, uint32_t j1, int8_t out[DTM_MAX_DIMS], Lists *lists) {
  const TensorType *t = rule_type(r, 0);
  bool single = i1 - i0 == 1 && j1 - j0 == 1;
  for (uint32_t i = i0; i < i1 && !single; i++)
    if (t->balanced[a->dim[i]])
      return rule_fail(r, DIAG_SEQUENCE_ORDER, 0, -1,
                       rule_text(r, "reshape: dim %u is in balanced order", a->dim[i]),
                       "a part of it, or it merged with others, has no such order");
  if (!single && share_group(r, a, i0, i1, b, j0, j1, lists)) {
    for (uint32_t i = i0; i < i1; i++)
      r->letters.of[0][a->dim[i]] = rule_new_letter(r, LETTER_FREE);
    return true;
  }
  for (uint32_t i = i0; i < i1; i++) {
    uint32_t d = a->dim[i];
    int64_t ways = layout_dim_ways(&t->layout, r->mesh, d);
    r->letters.of[0][d] = rule_new_letter(r, LETTER_FREE);
    if (i == i0 && j0 < j1 && (single || ways > 1)) out[b->dim[j0]] = r->letters.of[0][d];
    if (ways == 1 || single) continue;
    if (i > i0 || j0 == j1)
      return fail_group(r, d,
                        rule_text(r,
                                  "it is merged behind dim %u: the elements of a shard "
                                  "would not stay together",
                                  a->dim[i0]));
    if (t->shape[d] % ways)
      return fail_group(r, d,
                        rule_text(r,
                                  "extent %lld over %lld ranks is uneven, so the shards "
                                  "of the merged dim would be cut elsewhere",
                                  (long long)t->shape[d], (long long)ways));
    if (b->extent[j0] % ways)
      return fail_group(r, d,
                        rule_text(r,
                                  "the leading extent %lld of the result is not divisible "
                                  "by %lld ranks",
                                  (long long)b->extent[j0], (long long)ways));
  }
  return true;
}

bool rule_reshape(Rule *r) {
  const TensorType *t = rule_type(r, 0);
  int64_t to[DTM_MAX_DIMS];
  uint32_t rank;
  int8_t out[DTM_MAX_DIMS];
  Lists lists = {0};
  if (!target_shape(r, to, &rank)) return false;
  memset(out, LETTER_NONE, sizeof out);
  memset(r->letters.of[0], LETTER_NONE, sizeof r->letters.of[0]);
  if (rank == t->rank && memcmp(to, t->shape, rank * sizeof *to) == 0) {
    rule_letter_each(r, 0, LETTER_FREE);
    memcpy(out, r->letters.of[0], sizeof out);
  } else {
    Shape a, b;
    uint32_t i = 0, j = 0, same = 0;
    for (; same < rank && same < t->rank && to[same] == t->shape[same]; same++)
      out[same] = r->letters.of[0][same] = rule_new_letter(r, LETTER_FREE);
    without_ones(t->shape, same, t->rank, &a);
    without_ones(to, same, rank, &b);
    while (i < a.n || j < b.n) {
      uint32_t i0 = i, j0 = j;
      if (!next_group(&a, &b, &i, &j)) {
        i = a.n;
        j = b.n;
      }
      if (r->mesh && !map_group(r, &a, i0, i, &b, j0, j, out, &lists)) return false;
    }
  }
  rule_result(r, 0, t->dtype);
  for (uint32_t d = 0; d < rank; d++)
    if (!rule_result_dim(r, 0, to[d], out[d])) return false;
  if (!rule_derive(r, partial_movement)) return false;
  for (uint32_t d = 0; d < rank; d++)
    if (lists.n[d])
      layout_set_dim(&r->out->results[0].layout, r->mesh, d, lists.axis[d], lists.n[d]);
  return true;
}
