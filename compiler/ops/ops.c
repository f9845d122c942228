/* The operator tables: see ops.h, ops.def. */
#include "ops/ops.h"

#include <string.h>

#define NEEDS(key) ATTR_BIT(key)
#define TAKES(key) ATTR_BIT(key)
static const OpInfo ops[OP_COUNT] = {
    [OP_NONE] = {.name = "?"},
#define POINTWISE(ID, text, arity, pw, tr, scalar, cotangents, text_doc)                           \
  [OP_##ID] = {.name = text,                                                                       \
               .doc = text_doc,                                                                    \
               .cls = CLASS_POINTWISE,                                                             \
               .lower = LOWER_ELEMENT,                                                             \
               .min_operands = arity,                                                              \
               .max_operands = arity,                                                              \
               .results = 1,                                                                       \
               .attrs = (tr) == TR_CAST ? ATTR_BIT(DTYPE) | ATTR_BIT(SINGLE) : 0,                  \
               .trait = pw,                                                                        \
               .types = tr,                                                                        \
               .expr = scalar,                                                                     \
               .grads = cotangents},
#define OPERATOR(ID, text, c, how, lo, hi, n, keys, text_doc)                                      \
  [OP_##ID] = {.name = text,                                                                       \
               .doc = text_doc,                                                                    \
               .cls = c,                                                                           \
               .lower = LOWER_##how,                                                               \
               .min_operands = lo,                                                                 \
               .max_operands = hi,                                                                 \
               .results = n,                                                                       \
               .attrs = keys},
#include "ops/ops.def"
};

#undef TAKES
#define TAKES(key) 0
static const uint64_t needs[OP_COUNT] = {
#define POINTWISE(ID, text, arity, pw, tr, scalar, cotangents, text_doc)                           \
  [OP_##ID] = (tr) == TR_CAST ? ATTR_BIT(DTYPE) : 0,
#define OPERATOR(ID, text, c, how, lo, hi, n, keys, text_doc) [OP_##ID] = keys,
#include "ops/ops.def"
};

uint64_t op_needs(Op op) {
  return needs[op];
}

const OpInfo *op_info(Op op) {
  return &ops[op];
}
const char *op_name(Op op) {
  return ops[op].name;
}

Op op_by_name(const char *name) {
  for (int op = OP_NONE + 1; op < OP_COUNT; op++)
    if (strcmp(ops[op].name, name) == 0) return (Op)op;
  return OP_NONE;
}

static const struct {
  const char *name;
  AttrKind kind;
} attrs[ATTR_COUNT] = {[ATTR_NONE] = {"?", ATTR_KIND_NONE},
#define X(KEY, text, k) [ATTR_##KEY] = {text, ATTR_KIND_##k},
                       ATTR_KEYS(X)
#undef X
};

const char *attr_name(AttrKey key) {
  return attrs[key].name;
}
AttrKind attr_kind(AttrKey key) {
  return attrs[key].kind;
}

AttrKey attr_by_name(const char *name) {
  for (int key = ATTR_NONE + 1; key < ATTR_COUNT; key++)
    if (strcmp(attrs[key].name, name) == 0) return (AttrKey)key;
  return ATTR_NONE;
}
