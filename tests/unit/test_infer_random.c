/* Inference takes anything: random operators, types, layouts and attributes, sensible or not. It
 * must answer with a valid type or a complete fault, and canonical attributes must infer the same
 * again.
 */
#include <check.h>
#include <string.h>

#include "infer/rules.h"
#include "reference/placements.h"
#include "reference/type_text.h"
#include "support/suite.h"

enum { ROUNDS = 60000 };

static uint64_t rng = 1;

static int64_t pick(int64_t low, int64_t high) {
  return low + (int64_t)(random_bits(&rng) % (uint64_t)(high - low + 1));
}

static void random_layout(TensorType *t) {
  if (!t->mesh) return;
  for (uint32_t a = 0; a < t->mesh->naxes; a++) {
    int64_t kind = pick(0, 5);
    if (kind == 0) {
      layout_set(&t->layout, t->mesh, a, PLACE_PARTIAL, 0, (ReduceOp)pick(REDUCE_SUM, REDUCE_XOR));
    } else if (kind <= 2 && t->rank) {
      uint32_t dim = (uint32_t)pick(0, t->rank - 1);
      layout_set(&t->layout, t->mesh, a, PLACE_SHARD, dim, REDUCE_NONE);
    }
  }
}

static TensorType random_type(const Mesh *mesh) {
  static const DType common[] = {DT_F32, DT_F32, DT_F32, DT_BF16, DT_I32, DT_I64, DT_BOOL, DT_U8};
  static const int64_t extents[] = {0, 1, 2, 3, 4, 4, 4, 6, 8, 8, 12};
  TensorType t = {.dtype = common[pick(0, 7)], .mesh = mesh, .rank = (uint32_t)pick(0, 3)};
  if (pick(0, 9) == 0) t.rank = (uint32_t)pick(0, DTM_MAX_DIMS);
  for (uint32_t d = 0; d < t.rank; d++) t.shape[d] = extents[pick(0, 10)];
  random_layout(&t);
  return t;
}

static int64_t random_int(void) {
  static const int64_t odd[] = {INT64_MAX, INT64_MIN, (int64_t)1 << 40, -100};
  return pick(0, 30) == 0 ? odd[pick(0, 3)] : pick(-3, 8);
}

static Attr random_attr(Arena *arena, AttrKey key, const Mesh *mesh) {
  static const char *const words[] = {"mean", "sum",   "none", "ab,bc->ac", "ab->ba",
                                      "aa->", "ik,kj", "",     "a,b->ab",   "abcdefgh->a"};
  Attr a = {.key = key};
  switch (attr_kind(key)) {
  case ATTR_KIND_INT:
  case ATTR_KIND_BOOL:
    a.as.i = random_int();
    break;
  case ATTR_KIND_FLOAT:
    a.as.f = random_in(&rng, -1, 2);
    break;
  case ATTR_KIND_STRING:
    a.as.s = words[pick(0, 9)];
    break;
  case ATTR_KIND_DTYPE:
    a.as.i = pick(-1, DT_COUNT);
    break;
  case ATTR_KIND_INTS:
    a.as.ints.len = (uint32_t)pick(0, 4);
    a.as.ints.data = ARENA_ARRAY(arena, int64_t, a.as.ints.len);
    for (uint32_t i = 0; i < a.as.ints.len; i++) a.as.ints.data[i] = random_int();
    break;
  case ATTR_KIND_TYPE: {
    TensorType *t = ARENA_NEW(arena, TensorType);
    *t = random_type(mesh);
    a.as.type = t;
    break;
  }
  case ATTR_KIND_NONE:
    break;
  }
  return a;
}

/* Operands that often fit each other: the same type with another layout, now and then. */
static uint32_t random_operands(Operand *operands, Op op, const Mesh *mesh) {
  uint32_t n = op_info(op)->min_operands, most = op_info(op)->max_operands;
  if (most > n) n = (uint32_t)pick(n, most < 8 ? most : 8);
  for (uint32_t i = 0; i < n; i++) {
    operands[i] = (Operand){.type = random_type(mesh)};
    if (i > 0 && pick(0, 2)) {
      operands[i].type = operands[0].type;
      memset(&operands[i].type.layout, 0, sizeof(Layout));
      if (pick(0, 1)) random_layout(&operands[i].type);
    }
    if (pick(0, 9) == 0)
      operands[i] = (Operand){.type = {.dtype = operands[0].type.dtype},
                              .is_const = true,
                              .const_value = (double)pick(-2, 2)};
  }
  return n;
}

static void check_fault(const InferResult *out, uint32_t noperands) {
  ck_assert_ptr_nonnull(out->message);
  ck_assert(out->reason || out->code == DIAG_OPERATOR_ARGUMENT); /* its message says all */
  ck_assert(out->code > DIAG_NONE && out->code < DIAG_COUNT);
  ck_assert_uint_le(out->nfixes, INFER_MAX_FIXES);
  for (uint32_t k = 0; k < out->nfixes; k++) ck_assert_uint_lt(out->fixes[k].operand, noperands);
}

START_TEST(any_node) {
  static InferResult out, again;
  uint32_t accepted = 0;
  for (int round = 0; round < ROUNDS; round++) {
    Arena arena;
    Mesh mesh;
    Operand operands[8];
    Attr attrs[ATTR_COUNT], canonical[ATTR_COUNT];
    uint32_t nattrs = 0;
    Op op = (Op)pick(OP_NONE + 1, OP_COUNT - 1);
    arena_init(&arena);
    mesh_of(&mesh, 2, (int64_t[]){2, pick(1, 3)});
    for (int key = ATTR_NONE + 1; key < ATTR_COUNT; key++)
      if ((op_info(op)->attrs >> key & 1) && pick(0, 3))
        attrs[nattrs++] = random_attr(&arena, (AttrKey)key, &mesh);
    uint32_t n = random_operands(operands, op, &mesh);
    infer_node(&arena, op, operands, n, attrs, nattrs, &out);
    if (out.status != INFER_OK) {
      check_fault(&out, n);
      arena_free(&arena);
      continue;
    }
    accepted++;
    for (uint32_t k = 0; k < out.nresults; k++) {
      DiagCode code;
      int axis;
      const TensorType *t = &out.results[k];
      const char *fault = t->mesh ? type_fault(&arena, t, &code, &axis) : NULL;
      ck_assert_msg(fault == NULL, "%s: %s", op_name(op), fault);
    }
    uint32_t m = infer_canonical_attrs(&arena, op, n ? &operands[0].type : NULL, &out.results[0],
                                       attrs, nattrs, canonical);
    infer_node(&arena, op, operands, n, canonical, m, &again);
    ck_assert_msg(again.status == INFER_OK, "%s: canonical attributes: %s", op_name(op),
                  again.reason);
    for (uint32_t k = 0; k < out.nresults; k++)
      ck_assert_msg(type_equal(&out.results[k], &again.results[k]), "%s: %s became %s", op_name(op),
                    type_print(&arena, &out.results[k]), type_print(&arena, &again.results[k]));
    arena_free(&arena);
  }
  ck_assert_uint_gt(accepted, ROUNDS / 20);
}
END_TEST

int main(void) {
  Suite *s = suite_create("infer_random");
  TCase *c = tcase_create("any");
  tcase_set_timeout(c, 60);
  tcase_add_test(c, any_node);
  suite_add_tcase(s, c);
  return suite_run(s);
}
