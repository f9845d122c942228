/* The engine of inference: from letters to layouts.
 *
 * Checks both conditions of the placement algebra: the row of each mesh axis, and one ordered list
 * of axes per letter. Invariant: what returns false has filled `out` through rule_fail.
 */
#include <string.h>

#include "infer/rules.h"

/* --- letters ------------------------------------------------------------------------------------
 */

TensorType *rule_result(Rule *r, uint32_t i, DType dtype) {
  TensorType *t = &r->out->results[i];
  *t = (TensorType){.dtype = dtype, .mesh = r->mesh};
  if (r->out->nresults <= i) r->out->nresults = i + 1;
  return t;
}

bool rule_result_dim(Rule *r, uint32_t i, int64_t extent, int8_t letter) {
  TensorType *t = &r->out->results[i];
  if (t->rank == DTM_MAX_DIMS)
    return rule_fail_shape(r, 0,
                           rule_text(r, "the result would have more than %d dims", DTM_MAX_DIMS));
  r->letters.out[i][t->rank] = letter;
  t->shape[t->rank++] = extent;
  return true;
}

int8_t rule_new_letter(Rule *r, LetterRule rule) {
  r->letters.rule[r->letters.n] = (uint8_t)rule;
  return (int8_t)r->letters.n++;
}

void rule_letter_each(Rule *r, uint32_t i, LetterRule rule) {
  for (uint32_t d = 0; d < rule_type(r, i)->rank; d++)
    r->letters.of[i][d] = rule_new_letter(r, rule);
}

/* --- from letters to layouts --------------------------------------------------------------------
 */

typedef struct AxisList {
  uint8_t axis[DTM_MAX_AXES];
  uint32_t n;
  uint32_t operand, dim; /* who has it */
  bool any;              /* some operand has the letter */
} AxisList;

static void dim_axes(const TensorType *t, uint32_t dim, AxisList *l) {
  l->n = layout_dim_axes(&t->layout, dim, l->axis);
}

static bool is_prefix(const AxisList *shorter, const AxisList *longer) {
  return shorter->n <= longer->n && memcmp(shorter->axis, longer->axis, shorter->n) == 0;
}

static bool list_has(const AxisList *l, uint32_t axis) {
  return memchr(l->axis, (int)axis, l->n) != NULL;
}

static bool same_set(const AxisList *a, const AxisList *b) {
  for (uint32_t i = 0; i < a->n; i++)
    if (!list_has(b, a->axis[i])) return false;
  return a->n == b->n;
}

static const char *print_list(const Rule *r, const AxisList *l) {
  if (l->n == 0) return "not sharded";
  StrBuf sb;
  strbuf_init(&sb, r->arena);
  strbuf_puts(&sb, "sharded on ");
  for (uint32_t i = 0; i < l->n; i++)
    strbuf_printf(&sb, "%s%s", i ? "," : l->n > 1 ? "(" : "", rule_axis_name(r, l->axis[i]));
  if (l->n > 1) strbuf_putc(&sb, ')');
  return sb.text;
}

/* Two operands carry one letter with lists that do not match. */
static bool fail_lists(Rule *r, const AxisList *a, const AxisList *b) {
  const char *x = rule_text(r, "dim %u of %s is %s", a->dim, rule_operand_name(r, a->operand),
                            print_list(r, a)),
             *y = rule_text(r, "dim %u of %s is %s", b->dim, rule_operand_name(r, b->operand),
                            print_list(r, b));
  if (same_set(a, b))
    return rule_fail(r, DIAG_SHARD_ORDER, b->operand, b->axis[0],
                     rule_text(r, "%s: the same mesh dims cut in different orders", r->info->name),
                     rule_text(r, "%s, but %s: the blocks of a rank do not match", x, y));
  int axis = 0;
  for (uint32_t i = 0; i < a->n; i++)
    if (i >= b->n || a->axis[i] != b->axis[i]) {
      axis = a->axis[i];
      break;
    }
  int64_t na = 1, nb = 1, whole = rule_type(r, a->operand)->shape[a->dim];
  for (uint32_t i = 0; i < a->n; i++) na *= r->mesh->size[a->axis[i]];
  for (uint32_t i = 0; i < b->n; i++) nb *= r->mesh->size[b->axis[i]];
  const char *local =
      na == nb ? "the blocks of a rank do not match"
               : rule_text(r, "the local extents %lld and %lld do not conform",
                           (long long)((whole + na - 1) / na), (long long)((whole + nb - 1) / nb));
  return rule_fail(r, DIAG_SHARD_MISMATCH, b->operand, axis,
                   rule_text(r, "%s: operands are sharded differently on mesh dim %s",
                             r->info->name, rule_axis_name(r, (uint32_t)axis)),
                   rule_text(r, "%s, but %s: %s", x, y, local));
}

/* The common list of every letter; on a prefix mismatch that is allowed, the longest. */
static bool letter_lists(Rule *r, AxisList lists[MAX_LETTERS]) {
  const Letters *l = &r->letters;
  memset(lists, 0, sizeof(AxisList) * l->n);
  for (uint32_t pass = 0; pass < 2; pass++)
    for (uint32_t i = 0; i < r->n; i++)
      for (uint32_t d = 0; d < rule_type(r, i)->rank; d++) {
        int8_t letter = l->of[i][d];
        AxisList own = {.operand = i, .dim = d, .any = true};
        dim_axes(rule_type(r, i), d, &own);
        if (letter == LETTER_NONE) {
          if (own.n)
            return rule_fail(
                r, DIAG_SHARDED_BROADCAST, i, own.axis[0],
                rule_text(r, "%s: a sharded dim of extent 1 cannot be repeated or removed",
                          r->info->name),
                rule_text(r, "dim %u of %s has extent 1 and is %s: only one rank holds its element",
                          d, rule_operand_name(r, i), print_list(r, &own)));
          continue;
        }
        AxisList *common = &lists[letter];
        if (pass == 0) {
          if (!common->any || own.n > common->n) *common = own;
        } else if (l->prefix ? !is_prefix(&own, common)
                             : !(own.n == common->n && is_prefix(&own, common))) {
          return fail_lists(r, common, &own);
        }
      }
  return true;
}

/* Every operand has the dims of a letter in one order, which results inherit; what depends on where
 * an element stands in a dim wants it as it is. */
static bool letter_orders(Rule *r, uint16_t orders[MAX_LETTERS]) {
  const Letters *l = &r->letters;
  uint32_t owner[MAX_LETTERS], dim[MAX_LETTERS];
  bool any[MAX_LETTERS] = {false};
  memset(orders, 0, sizeof *orders * l->n);
  for (uint32_t i = 0; i < r->n; i++)
    for (uint32_t d = 0; d < rule_type(r, i)->rank; d++) {
      int8_t x = l->of[i][d];
      uint16_t own = rule_type(r, i)->balanced[d];
      if (x == LETTER_NONE) continue;
      bool placed = l->rule[x] == LETTER_WHOLE || l->rule[x] == LETTER_INTERNAL;
      if (own && placed && r->op != OP_BALANCE)
        return rule_fail(r, DIAG_SEQUENCE_ORDER, i, -1,
                         rule_text(r, "%s: dim %u of %s is in balanced order", r->info->name, d,
                                   rule_operand_name(r, i)),
                         rule_text(r,
                                   "neighbours in this order are not neighbours in the "
                                   "sequence, and %s depends on places in the dim; "
                                   "unbalance(x, %u) restores the order",
                                   r->info->name, d));
      if (any[x] && own != orders[x])
        return rule_fail(
            r, DIAG_SEQUENCE_ORDER, i, -1,
            rule_text(r, "%s: operands have their elements in different orders", r->info->name),
            rule_text(r,
                      "dim %u of %s is %s, but dim %u of %s is %s: elements of different "
                      "positions would meet; balance_causal gives both one order, and "
                      "positions(x, dim) are those of a balanced x",
                      dim[x], rule_operand_name(r, owner[x]),
                      orders[x] ? "in balanced order" : "as it is", d, rule_operand_name(r, i),
                      own ? "in balanced order" : "as it is"));
      any[x] = true;
      orders[x] = own;
      owner[x] = i;
      dim[x] = d;
    }
  return true;
}

/* How many of the letter's axes are those of the letter it lies within. */
static uint32_t shared_axes(const Letters *l, const AxisList lists[MAX_LETTERS], uint32_t x) {
  return l->within[x] ? lists[l->within[x] - 1].n : 0;
}

/* Checks that each axis serves one letter, and that whole dims are whole. */
static bool check_axes(Rule *r, const AxisList lists[MAX_LETTERS]) {
  const Letters *l = &r->letters;
  const AxisList *user[DTM_MAX_AXES] = {NULL};
  for (uint32_t x = 0; x < l->n; x++) {
    if (l->within[x] && !is_prefix(&lists[l->within[x] - 1], &lists[x]))
      return fail_lists(r, &lists[l->within[x] - 1], &lists[x]);
    if (lists[x].n && l->rule[x] == LETTER_WHOLE)
      return rule_fail(
          r, DIAG_SHARDED_DIM, lists[x].operand, lists[x].axis[0],
          rule_text(r, "%s needs dim %u whole, but it is %s", r->info->name, lists[x].dim,
                    print_list(r, &lists[x])),
          rule_text(r, "each rank holds only its block of the dim, and %s looks at all of it",
                    r->info->name));
    for (uint32_t i = shared_axes(l, lists, x); i < lists[x].n; i++) {
      const AxisList **u = &user[lists[x].axis[i]];
      if (*u)
        return rule_fail(
            r, DIAG_SHARD_MISMATCH, lists[x].operand, lists[x].axis[i],
            rule_text(r, "%s: operands are sharded differently on mesh dim %s", r->info->name,
                      rule_axis_name(r, lists[x].axis[i])),
            rule_text(r,
                      "it cuts dim %u of %s and dim %u of %s, which are different dims of the "
                      "computation: the ranks would hold only matching pairs of blocks",
                      (*u)->dim, rule_operand_name(r, (*u)->operand), lists[x].dim,
                      rule_operand_name(r, lists[x].operand)));
      *u = &lists[x];
    }
  }
  return true;
}

static bool partial_axis(Rule *r, uint32_t axis, PartialRule *partial, ReduceOp *op) {
  *op = REDUCE_NONE;
  int pending = -1, cut = -1;
  for (uint32_t i = 0; i < r->n; i++) {
    Place p = rule_place_at(r, i, axis);
    if (p.kind == PLACE_PARTIAL && pending < 0) pending = (int)i;
    if (p.kind == PLACE_SHARD && cut < 0) cut = (int)i;
  }
  if (pending < 0) return true;
  if (cut >= 0)
    return rule_fail_partial(
        r, (uint32_t)pending, axis,
        rule_text(r, "%s is Partial on %s while %s is sharded on it: no row has both",
                  rule_operand_name(r, (uint32_t)pending), rule_axis_name(r, axis),
                  rule_operand_name(r, (uint32_t)cut)));
  *op = partial(r, axis);
  return *op != REDUCE_NONE;
}

/* Zero-byte exception: operands whose lists are proper prefixes are sliced to the common list. The
 * axes they gain are Replicate in them: partial_axis and check_axes have refused all else. */
static void plan_slices(Rule *r, const AxisList lists[MAX_LETTERS]) {
  for (uint32_t i = 0; i < r->n; i++) {
    const TensorType *t = rule_type(r, i);
    for (uint32_t d = 0; d < t->rank; d++) {
      int8_t letter = r->letters.of[i][d];
      if (letter == LETTER_NONE) continue;
      AxisList own = {0};
      dim_axes(t, d, &own);
      for (uint32_t k = own.n; k < lists[letter].n; k++) {
        if (!r->out->slice[i]) r->out->slice_to[i] = *t;
        r->out->slice[i] = true;
        layout_set(&r->out->slice_to[i].layout, r->mesh, lists[letter].axis[k], PLACE_SHARD, d,
                   REDUCE_NONE);
      }
    }
  }
}

static void explain_reduced(Rule *r, const AxisList *l, uint32_t axis) {
  const char *name = rule_axis_name(r, axis);
  if (r->info->cls == CLASS_CONTRACTION)
    r->out->why_partial[axis] =
        rule_text(r, "%s contracts dim %u of %s, which is sharded on %s%s", r->info->name, l->dim,
                  rule_operand_name(r, l->operand), name, r->n > 1 ? " on both sides" : "");
  else if (r->op == OP_EMBEDDING)
    r->out->why_partial[axis] =
        rule_text(r, "the rows of the embedding table are sharded on %s", name);
  else
    r->out->why_partial[axis] =
        rule_text(r, "%s runs over dim %u, which is sharded on %s", r->info->name, l->dim, name);
}

static bool result_has(const Rule *r, uint32_t k, uint32_t letter) {
  for (uint32_t d = 0; d < r->out->results[k].rank; d++)
    if (r->letters.out[k][d] == (int8_t)letter) return true;
  return false;
}

/* Axes of LETTER_SPREAD that leave result `k` a sum over the ranks; those of the letter it lies
 * within only where the result lacks that one too. */
static void spread(Rule *r, const AxisList lists[MAX_LETTERS], uint32_t k) {
  const Letters *l = &r->letters;
  TensorType *t = &r->out->results[k];
  for (uint32_t x = 0; x < l->n; x++) {
    if (l->rule[x] != LETTER_SPREAD || result_has(r, k, x)) continue;
    bool within = l->within[x] && result_has(r, k, l->within[x] - 1u);
    for (uint32_t i = within ? shared_axes(l, lists, x) : 0; i < lists[x].n; i++) {
      layout_set(&t->layout, r->mesh, lists[x].axis[i], PLACE_PARTIAL, 0, REDUCE_SUM);
      if (r->explain) explain_reduced(r, &lists[x], lists[x].axis[i]);
    }
  }
}

bool rule_derive(Rule *r, PartialRule *partial) {
  AxisList lists[MAX_LETTERS];
  uint16_t orders[MAX_LETTERS];
  ReduceOp pending[DTM_MAX_AXES] = {REDUCE_NONE};
  uint32_t naxes = r->mesh ? r->mesh->naxes : 0;
  for (uint32_t a = 0; a < naxes; a++)
    if (!partial_axis(r, a, partial, &pending[a])) return false;
  if (!letter_lists(r, lists) || !check_axes(r, lists) || !letter_orders(r, orders)) return false;
  if (r->letters.prefix) plan_slices(r, lists);
  for (uint32_t x = 0; x < r->letters.n; x++)
    if (r->letters.rule[x] == LETTER_REDUCED)
      for (uint32_t k = 0; k < lists[x].n; k++) {
        pending[lists[x].axis[k]] = r->letters.reduce;
        if (r->explain) explain_reduced(r, &lists[x], lists[x].axis[k]);
      }
  for (uint32_t k = 0; k < r->out->nresults; k++) {
    TensorType *t = &r->out->results[k];
    for (uint32_t d = 0; d < t->rank; d++) {
      int8_t letter = r->letters.out[k][d];
      if (letter == LETTER_NONE) continue;
      layout_set_dim(&t->layout, r->mesh, d, lists[letter].axis, lists[letter].n);
      t->balanced[d] = orders[letter];
    }
    for (uint32_t a = 0; a < naxes; a++)
      if (pending[a]) layout_set(&t->layout, r->mesh, a, PLACE_PARTIAL, 0, pending[a]);
    spread(r, lists, k);
  }
  return true;
}
