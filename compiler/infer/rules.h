/* Inside infer/: one context per inference, the engine over index letters, and the rule classes.
 *
 * Almost every operator is described by letters, as in an einsum: each dim of each operand and
 * result carries the letter of the index that runs over it. What sharding a letter means follows
 * from the letter's rule; what Partial operands mean is one function per class, asked per mesh
 * axis. The engine (rule.c) then checks both conditions of the placement algebra: the row of each
 * mesh axis, and one ordered list of axes per letter.
 */
#ifndef DTM_INFER_RULES_H
#define DTM_INFER_RULES_H

#include "infer/infer.h"

typedef enum LetterRule {
  LETTER_FREE = 0, /* may be sharded; the result inherits the list */
  LETTER_WHOLE,    /* may not be sharded */
  LETTER_REDUCED,  /* the result lacks it: sharded gives Partial(reduce) */
  LETTER_INTERNAL, /* the result lacks it; the operator communicates itself: sharded gives R */
  LETTER_SPREAD    /* results that have it inherit the list; one that lacks it is Partial(sum) */
} LetterRule;

enum {
  LETTER_NONE = -1, /* an extent-1 dim that broadcasts, or a dim new in the result */
  MAX_LETTERS = 72
};

typedef struct Letters {
  int8_t of[INFER_MAX_OPERANDS][DTM_MAX_DIMS];
  int8_t out[INFER_MAX_RESULTS][DTM_MAX_DIMS];
  uint8_t rule[MAX_LETTERS]; /* LetterRule */
  /* 1 + the letter whose list this one's begins with: query heads within groups that share a key
   * head. 0 = none. */
  uint8_t within[MAX_LETTERS];
  uint32_t n;
  ReduceOp reduce; /* what LETTER_REDUCED turns into */
  bool prefix;     /* a shorter list that is a prefix is sliced: pointwise only */
} Letters;

typedef struct Rule Rule;

/* What the operator makes of axis `axis`, on which some operand is Partial and none is sharded: the
 * op of the Partial result, or REDUCE_NONE after rule_fail. */
typedef ReduceOp PartialRule(Rule *r, uint32_t axis);

struct Rule {
  Arena *arena;
  Op op;
  const OpInfo *info;
  const Operand *operand;
  uint32_t n;
  const Attr *attrs;
  uint32_t nattrs;
  const Mesh *mesh; /* of all operands; NULL when there are only constants */
  bool explain;     /* fill why_partial, which costs text */
  Letters letters;
  InferResult *out;
};

/* --- rule_common.c --- */

/* Records the fault; returns false so that rules can `return rule_fail(...)`. */
bool rule_fail(Rule *r, DiagCode code, uint32_t operand, int axis, const char *message,
               const char *reason);
const char *rule_text(const Rule *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* "the operand", "the left operand", "weight", "operand 3" */
const char *rule_operand_name(const Rule *r, uint32_t i);
const char *rule_axis_name(const Rule *r, uint32_t axis);

const Attr *rule_attr(const Rule *r, AttrKey key);
int64_t rule_int(const Rule *r, AttrKey key, int64_t otherwise);
double rule_float(const Rule *r, AttrKey key, double otherwise);
/* The attribute DIM as an index of a dim of operand 0 (negative counts from the end). */
bool rule_dim(Rule *r, int64_t otherwise, uint32_t *dim);
/* The attribute DIMS as a bit set; `all` when it is absent or empty and `none_is_all`. */
bool rule_dims(Rule *r, bool none_is_all, uint32_t *set);

static inline const TensorType *rule_type(const Rule *r, uint32_t i) {
  return &r->operand[i].type;
}
static inline Place rule_place_at(const Rule *r, uint32_t i, uint32_t axis) {
  return r->operand[i].type.layout.at[axis];
}
bool rule_is_partial(const Rule *r, uint32_t i, uint32_t axis);
ReduceOp rule_partial_op(const Rule *r, uint32_t i, uint32_t axis); /* REDUCE_NONE when not P */
bool reduce_is_linear(ReduceOp op);                                 /* sum or avg */
/* op(v, ..., v) = v for any number of ranks: what a constant must satisfy to stand beside P(op). */
bool reduce_keeps(ReduceOp op, double v);

/* --- rule.c: the engine --- */

/* Starts a result: its dtype and rank 0; dims are added with their letters. */
TensorType *rule_result(Rule *r, uint32_t i, DType dtype);
bool rule_result_dim(Rule *r, uint32_t i, int64_t extent, int8_t letter);
/* A letter that stands for dim `dim` of operand `i`. */
int8_t rule_new_letter(Rule *r, LetterRule rule);
/* One fresh letter per dim of operand i. */
void rule_letter_each(Rule *r, uint32_t i, LetterRule rule);

/* Derives the layouts of the results from the letters and the Partial rule. */
bool rule_derive(Rule *r, PartialRule *partial);

/* Partial rules shared by classes. */
PartialRule partial_nonlinear;    /* always an error */
PartialRule partial_linear_first; /* P(sum|avg) in operand 0, the others Replicate */
PartialRule partial_movement;     /* one operand, any op */
PartialRule partial_contraction;  /* P(sum|avg) in one operand, the others Replicate */

/* Element types. `what` completes "linear takes ..." */
bool rule_same_dtype(Rule *r);
bool rule_want_float(Rule *r, uint32_t i);
bool rule_want_number(Rule *r, uint32_t i);
bool rule_want_bool(Rule *r, uint32_t i);
bool rule_want_integer(Rule *r, uint32_t i, const char *role);

/* The two standard sentences. */
bool rule_fail_partial(Rule *r, uint32_t operand, uint32_t axis, const char *reason);
bool rule_fail_shape(Rule *r, uint32_t operand, const char *reason);
bool rule_fail_argument(Rule *r, const char *reason);

/* "a sum", "a maximum", ... as in "gelu of a sum is not the sum of gelus". */
const char *reduce_article(ReduceOp op);
const char *reduce_noun(ReduceOp op);

/* --- the rules --- */

/* Shape, element types and placements of one operator; fills the results or the fault. */
typedef bool RuleFn(Rule *r);
RuleFn *rule_of(Op op); /* rule_table.c */

RuleFn rule_pointwise, rule_contraction, rule_reduction, rule_random, rule_comm,
    rule_redistribute_rows;
RuleFn rule_argument, rule_extremum_backward, rule_norm_backward, rule_norm_forward,
    rule_scan_or_sort, rule_softmax;
RuleFn rule_balance, rule_concat, rule_expand, rule_flip, rule_pad, rule_permute, rule_reshape,
    rule_roll, rule_slice, rule_squeeze, rule_triangle, rule_unslice, rule_unsqueeze;
RuleFn rule_embedding, rule_embedding_backward, rule_gather, rule_index_select, rule_one_hot,
    rule_scatter_add;
RuleFn rule_cross_entropy, rule_attention, rule_grouped_linear, rule_grouped_linear_weight;
RuleFn rule_const, rule_iota, rule_made, rule_random_numbers, rule_range, rule_replica, rule_same,
    rule_same_as, rule_sink, rule_stated, rule_step;

/* A type as such: mesh, shard dims, element types of Partial. Reason or NULL. */
const char *type_fault(Arena *arena, const TensorType *t, DiagCode *code, int *axis);

/* infer_node without fix candidates: what they are tried with, and what the hot path calls. */
bool infer_rules(Arena *arena, Op op, const Operand *operands, uint32_t noperands,
                 const Attr *attrs, uint32_t nattrs, bool explain, InferResult *out);

/* The attributes of a node that inference accepted, complete and non-negative (infer_attrs.c). */
uint32_t infer_canonical_attrs(Arena *arena, Op op, const TensorType *operand,
                               const TensorType *result, const Attr *attrs, uint32_t nattrs,
                               Attr canonical[ATTR_COUNT]);

#endif
