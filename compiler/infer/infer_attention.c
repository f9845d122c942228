/* Rows of scaled dot product attention and of its derivative.
 *
 * Batch dims, query heads and queries may be sharded: each query is computed alone. The heads of k
 * and v may be too, if a rank that has a query head has the key head it sees: query heads are cut
 * by the mesh dims that cut key heads and then, inside, by others, and no group of query heads that
 * share a key head is cut between ranks. Keys are whole, or cut like the queries by mesh dims whose
 * names choose a context-parallel algorithm (place/context.c, spmd/ring.c); the features that
 * scores sum over are whole. In the derivative what k and v lack and the queries are cut by leaves
 * their cotangents Partial.
 */
#include "infer/rules.h"

#include <string.h>

typedef enum Part { PART_G, PART_Q, PART_K, PART_V, PART_OUT, PART_LSE, PART_QPOS, PART_KPOS } Part;
enum { PARTS = 8 };

typedef struct Attention {
  int operand[PARTS]; /* index of each part; -1 = the operator or the call lacks it */
  uint32_t rank;
  int8_t batch[DTM_MAX_DIMS], heads, groups, queries, keys, width, features;
} Attention;

static void find_parts(const Rule *r, Attention *a) {
  static const Part forward[] = {PART_Q, PART_K, PART_V, PART_QPOS, PART_KPOS};
  for (int p = 0; p < PARTS; p++) a->operand[p] = -1;
  for (uint32_t i = 0; i < r->n; i++) a->operand[r->op == OP_ATTENTION ? forward[i] : i] = (int)i;
}

static const TensorType *part_type(const Rule *r, const Attention *a, Part p) {
  return rule_type(r, (uint32_t)a->operand[p]);
}

static bool fail_part(Rule *r, const Attention *a, Part p, const char *reason) {
  return rule_fail_shape(r, (uint32_t)a->operand[p], reason);
}

/* Extents that every part must have, from q, k and v. */
static bool check_shapes(Rule *r, Attention *a) {
  const TensorType *q = part_type(r, a, PART_Q), *k = part_type(r, a, PART_K),
                   *v = part_type(r, a, PART_V);
  if (q->rank < 3) return fail_part(r, a, PART_Q, "q must be [*, heads, queries, width]");
  uint32_t h = q->rank - 3, n = q->rank;
  a->rank = n;
  for (Part p = PART_K; p <= PART_V; p++) {
    const TensorType *t = part_type(r, a, p);
    bool fits = t->rank == n;
    for (uint32_t d = 0; fits && d < h; d++) fits = t->shape[d] == q->shape[d];
    if (!fits)
      return fail_part(r, a, p,
                       rule_text(r, "%s must be [*, heads, keys, width] with the batch dims of q",
                                 rule_operand_name(r, (uint32_t)a->operand[p])));
  }
  if (k->shape[n - 1] != q->shape[n - 1])
    return fail_part(r, a, PART_K,
                     rule_text(r, "k is %lld wide and q is %lld", (long long)k->shape[n - 1],
                               (long long)q->shape[n - 1]));
  if (v->shape[h] != k->shape[h] || v->shape[n - 2] != k->shape[n - 2])
    return fail_part(r, a, PART_V, "v must have the heads and the keys of k");
  int64_t heads = q->shape[h], groups = k->shape[h];
  if (groups ? heads % groups : heads)
    return fail_part(r, a, PART_K,
                     rule_text(r, "%lld query heads are no multiple of %lld key heads",
                               (long long)heads, (long long)groups));
  return true;
}

static bool check_types(Rule *r, const Attention *a) {
  DType dtype = part_type(r, a, PART_Q)->dtype;
  for (uint32_t i = 0; i < r->n; i++) {
    bool lse = (int)i == a->operand[PART_LSE],
         position = (int)i == a->operand[PART_QPOS] || (int)i == a->operand[PART_KPOS];
    if (position ? !rule_want_integer(r, i, "positions") : !rule_want_float(r, i)) return false;
    DType t = rule_type(r, i)->dtype, want = position                 ? DT_I64
                                             : lse && dtype != DT_F64 ? DT_F32
                                                                      : dtype;
    if (t != want)
      return rule_fail(r, DIAG_OPERAND_DTYPE, i, -1,
                       rule_text(r, "%s: operand of the wrong element type", r->info->name),
                       rule_text(r, "%s is %s where q is %s: it must be %s",
                                 rule_operand_name(r, i), dtype_name(t), dtype_name(dtype),
                                 dtype_name(want)));
  }
  return true;
}

/* Part `p` is [batch.., these letters]; extents of letters are those of the dims given first. */
static bool letter_part(Rule *r, const Attention *a, Part p, const int8_t *letters, uint32_t n,
                        const int64_t *extents) {
  int i = a->operand[p];
  if (i < 0) return true;
  const TensorType *t = rule_type(r, (uint32_t)i);
  uint32_t batch = a->rank - 3;
  bool position = p == PART_QPOS || p == PART_KPOS;
  if (position) batch = 0;
  bool fits = t->rank == batch + n;
  for (uint32_t d = 0; fits && d < t->rank; d++) {
    r->letters.of[i][d] = d < batch ? a->batch[d] : letters[d - batch];
    fits = t->shape[d] == (d < batch ? part_type(r, a, PART_Q)->shape[d] : extents[d - batch]);
  }
  return fits || fail_part(r, a, p,
                           rule_text(r,
                                     "%s does not have the shape that follows from q, "
                                     "k and v",
                                     rule_operand_name(r, (uint32_t)i)));
}

/* Keys may be cut by mesh dims that are named for it, and then are cut like the queries: the
 * operator sees to it that every query meets all keys. */
static bool keys_letter(Rule *r, Attention *a) {
  const TensorType *k = part_type(r, a, PART_K);
  uint8_t axes[DTM_MAX_AXES];
  uint32_t n = layout_dim_axes(&k->layout, k->rank - 2, axes);
  /* In another order they are whole all the same: positions come beside them (place/context.c). */
  bool balanced = k->balanced[k->rank - 2] != 0;
  a->keys = n ? a->queries : rule_new_letter(r, balanced ? LETTER_FREE : LETTER_WHOLE);
  for (uint32_t i = 0; i < n; i++)
    if (context_kind(rule_axis_name(r, axes[i])) == CONTEXT_NONE)
      return rule_fail(
          r, DIAG_SHARDED_DIM, (uint32_t)a->operand[PART_K], axes[i],
          rule_text(r, "%s: keys are sharded on mesh dim %s", r->info->name,
                    rule_axis_name(r, axes[i])),
          rule_text(r,
                    "every query looks at all keys, and a rank holds only its block of them; the "
                    "names ulysses_cp and ring_cp choose an algorithm for a sharded sequence"));
  return true;
}

static bool assign_letters(Rule *r, Attention *a) {
  const TensorType *q = part_type(r, a, PART_Q), *v = part_type(r, a, PART_V);
  bool derivative = r->op == OP_ATTENTION_BACKWARD;
  LetterRule spread = derivative ? LETTER_SPREAD : LETTER_FREE;
  uint32_t h = q->rank - 3;
  for (uint32_t d = 0; d < h; d++) a->batch[d] = rule_new_letter(r, LETTER_FREE);
  a->groups = rule_new_letter(r, LETTER_FREE);
  a->heads = rule_new_letter(r, spread);
  r->letters.within[a->heads] = (uint8_t)(1 + a->groups);
  a->queries = rule_new_letter(r, spread);
  if (!keys_letter(r, a)) return false;
  a->width = rule_new_letter(r, LETTER_WHOLE);
  a->features = rule_new_letter(r, spread);
  int64_t heads = q->shape[h], queries = q->shape[h + 1], width = q->shape[h + 2],
          groups = v->shape[h], keys = v->shape[h + 1], features = v->shape[h + 2];
  const int8_t of_q[] = {a->heads, a->queries, a->width}, of_k[] = {a->groups, a->keys, a->width},
               of_v[] = {a->groups, a->keys, a->features},
               of_out[] = {a->heads, a->queries, a->features};
  const int64_t q_is[] = {heads, queries, width}, k_is[] = {groups, keys, width},
                v_is[] = {groups, keys, features}, out_is[] = {heads, queries, features};
  return letter_part(r, a, PART_Q, of_q, 3, q_is) && letter_part(r, a, PART_K, of_k, 3, k_is) &&
         letter_part(r, a, PART_V, of_v, 3, v_is) && letter_part(r, a, PART_G, of_out, 3, out_is) &&
         letter_part(r, a, PART_OUT, of_out, 3, out_is) &&
         letter_part(r, a, PART_LSE, of_out, 2, out_is) &&
         letter_part(r, a, PART_QPOS, &a->queries, 1, &queries) &&
         letter_part(r, a, PART_KPOS, &a->keys, 1, &keys);
}

static bool result(Rule *r, const Attention *a, uint32_t i, DType dtype, const int8_t *letters,
                   const int64_t *extents, uint32_t n) {
  rule_result(r, i, dtype);
  for (uint32_t d = 0; d + 3 < a->rank; d++)
    if (!rule_result_dim(r, i, part_type(r, a, PART_Q)->shape[d], a->batch[d])) return false;
  for (uint32_t d = 0; d < n; d++)
    if (!rule_result_dim(r, i, extents[d], letters[d])) return false;
  return true;
}

static bool make_results(Rule *r, const Attention *a) {
  const TensorType *q = part_type(r, a, PART_Q), *k = part_type(r, a, PART_K),
                   *v = part_type(r, a, PART_V);
  uint32_t h = q->rank - 3;
  const int8_t of_q[] = {a->heads, a->queries, a->width}, of_k[] = {a->groups, a->keys, a->width},
               of_v[] = {a->groups, a->keys, a->features},
               of_out[] = {a->heads, a->queries, a->features};
  const int64_t out_is[] = {q->shape[h], q->shape[h + 1], v->shape[h + 2]};
  if (r->op == OP_ATTENTION_BACKWARD)
    return result(r, a, 0, q->dtype, of_q, &q->shape[h], 3) &&
           result(r, a, 1, q->dtype, of_k, &k->shape[h], 3) &&
           result(r, a, 2, q->dtype, of_v, &v->shape[h], 3) && rule_derive(r, partial_linear_first);
  return result(r, a, 0, q->dtype, of_out, out_is, 3) &&
         result(r, a, 1, q->dtype == DT_F64 ? DT_F64 : DT_F32, of_out, out_is, 2) &&
         rule_derive(r, partial_nonlinear);
}

/* "14, 14": the extents of a dim on the ranks that cut it. */
static const char *cuts_text(Rule *r, int64_t extent, uint32_t n, const uint8_t *axes) {
  enum { SHOWN = 8 };
  StrBuf sb;
  strbuf_init(&sb, r->arena);
  TensorType t = {.dtype = DT_F32, .rank = 1, .shape = {extent}, .mesh = r->mesh};
  layout_set_dim(&t.layout, r->mesh, 0, axes, n);
  int64_t parts = layout_dim_ways(&t.layout, r->mesh, 0);
  for (int64_t i = 0; i < parts && i < SHOWN; i++) {
    int64_t coord[DTM_MAX_AXES] = {0}, rest = i;
    for (uint32_t k = n; k-- > 0; rest /= r->mesh->size[axes[k]])
      coord[axes[k]] = rest % r->mesh->size[axes[k]];
    strbuf_printf(&sb, "%s%lld", i ? ", " : "", (long long)type_block(&t, coord).extent[0]);
  }
  if (parts > SHOWN) strbuf_puts(&sb, ", ...");
  return sb.text;
}

/* Where heads of k are cut, every rank has the key heads that its query heads see. */
static bool check_groups(Rule *r, const Attention *a) {
  const TensorType *q = part_type(r, a, PART_Q), *k = part_type(r, a, PART_K);
  uint32_t h = a->rank - 3;
  uint8_t axes[DTM_MAX_AXES], cut[DTM_MAX_AXES];
  uint32_t n = layout_dim_axes(&q->layout, h, axes), nk = layout_dim_axes(&k->layout, h, cut);
  int64_t groups = k->shape[h], parts = layout_dim_ways(&q->layout, r->mesh, h);
  if (nk == 0 || q->shape[h] == groups) return true;
  int64_t size = groups ? q->shape[h] / groups : 1;
  for (int64_t i = 0; i < parts; i++) {
    int64_t coord[DTM_MAX_AXES] = {0}, rest = i;
    for (uint32_t x = n; x-- > 0; rest /= r->mesh->size[axes[x]])
      coord[axes[x]] = rest % r->mesh->size[axes[x]];
    Block bq = type_block(q, coord), bk = type_block(k, coord);
    int64_t first = bk.offset[h] * size, end = (bk.offset[h] + bk.extent[h]) * size;
    if (bq.extent[h] == 0 || (bq.offset[h] >= first && bq.offset[h] + bq.extent[h] <= end))
      continue;
    return rule_fail(
        r, DIAG_SHARD_MISMATCH, (uint32_t)a->operand[PART_K], axes[0],
        rule_text(r, "%s: groups of heads would be cut on mesh dim %s", r->info->name,
                  rule_axis_name(r, axes[0])),
        rule_text(
            r,
            "%lld query heads over %lld ranks are %s, but %lld key heads are %s: groups of "
            "%lld query heads that share a key head would be on different ranks; k and v can be "
            "Replicate instead, at a sum of their gradients",
            (long long)q->shape[h], (long long)parts, cuts_text(r, q->shape[h], n, axes),
            (long long)groups, cuts_text(r, groups, nk, cut), (long long)size));
  }
  return true;
}

bool rule_attention(Rule *r) {
  Attention a;
  double p = rule_float(r, ATTR_P, 0);
  find_parts(r, &a);
  if ((r->op == OP_ATTENTION ? r->n == 4 : r->n == 7))
    return rule_fail_argument(r, "positions are given for both queries and keys, or for none");
  if (!(p >= 0 && p < 1)) return rule_fail_argument(r, "dropout is outside 0 .. 1 (1 excluded)");
  if (p > 0 && !rule_attr(r, ATTR_INSTANCE))
    return rule_fail_argument(r, "the instance that keys the random numbers is missing");
  if (r->op == OP_ATTENTION_BACKWARD && !rule_attr(r, ATTR_SCALE))
    return rule_fail_argument(r, "the scale is missing");
  return check_types(r, &a) && check_shapes(r, &a) && assign_letters(r, &a) &&
         make_results(r, &a) && check_groups(r, &a);
}
