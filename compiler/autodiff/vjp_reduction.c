/* Gradients of reductions. The cotangent of the result comes back with the reduced dims as extent 1
 * and stays broadcast until an operator needs its full shape. Counts are global. */
#include "autodiff/vjp.h"

typedef struct Reduced {
  TensorType x;
  uint32_t dims; /* bit set of the reduced dims, also as a list */
  int64_t list[DTM_MAX_DIMS];
  uint32_t ndims;
  double count;  /* elements that one result stands for */
  ValueId in, g; /* operand; cotangent with kept dims */
} Reduced;

static Reduced reduced(Grad *d, const Node *n, ValueId g) {
  Reduced r = {.x = *grad_type(d, n->operands[0]), .count = 1, .in = n->operands[0]};
  r.dims = reduced_dims(n, r.x.rank);
  for (uint32_t i = 0; i < r.x.rank; i++) {
    if (!(r.dims >> i & 1)) continue;
    r.list[r.ndims++] = i;
    r.count *= (double)r.x.shape[i];
  }
  r.g = grad_keep_dims(d, g, &r.x, r.dims);
  return r;
}

/* The result of the node with kept dims. */
static ValueId kept_result(Grad *d, const Node *n, const Reduced *r) {
  return grad_keep_dims(d, n->first_result, &r->x, r->dims);
}

ValueId vjp_sum(Grad *d, Node n, uint32_t i, ValueId g) {
  (void)i;
  return reduced(d, &n, g).g;
}

ValueId vjp_mean(Grad *d, Node n, uint32_t i, ValueId g) {
  (void)i;
  Reduced r = reduced(d, &n, g);
  return grad_scale(d, r.g, 1 / r.count);
}

/* Another reduction over the same dims, kept. */
static ValueId again(Grad *d, const Reduced *r, Op op, ValueId x) {
  Attr attrs[] = {ATTR_INTS(DIMS, r->list, r->ndims), ATTR_I(KEEPDIM, true)};
  return r->ndims ? grad_add(d, op, &x, 1, attrs, 2) : x;
}

/* y / x, except where x is 0: there the product of the others, which is 0 unless x is the only 0.
 */
ValueId vjp_prod(Grad *d, Node n, uint32_t i, ValueId g) {
  (void)i;
  Reduced r = reduced(d, &n, g);
  ValueId zero = grad_const(d, r.in, 0), one = grad_const(d, r.in, 1);
  ValueId is_zero = grad_binary(d, OP_EQ, r.in, zero);
  ValueId safe = grad_add(d, OP_WHERE, (ValueId[]){is_zero, one, r.in}, 3, NULL, 0);
  ValueId mark = grad_add(d, OP_WHERE, (ValueId[]){is_zero, one, zero}, 3, NULL, 0);
  ValueId zeros = grad_sum(d, mark, r.dims, true);
  ValueId others = again(d, &r, OP_PROD, safe);
  ValueId none = grad_binary(d, OP_EQ, zeros, zero), only = grad_binary(d, OP_EQ, zeros, one);
  only = grad_binary(d, OP_LOGICAL_AND, only, is_zero);
  ValueId divided = grad_binary(d, OP_DIV, others, safe);
  ValueId rest = grad_add(d, OP_WHERE, (ValueId[]){only, others, zero}, 3, NULL, 0);
  ValueId slope = grad_add(d, OP_WHERE, (ValueId[]){none, divided, rest}, 3, NULL, 0);
  return grad_binary(d, OP_MUL, r.g, slope);
}

static ValueId extremum(Grad *d, const Reduced *r, ValueId x, ValueId y) {
  ValueId operands[] = {r->g, x, y};
  if (r->ndims == 0) return r->g;
  return grad_add(d, OP_EXTREMUM_BACKWARD, operands, 3, &ATTR_INTS(DIMS, r->list, r->ndims), 1);
}

ValueId vjp_extremum(Grad *d, Node n, uint32_t i, ValueId g) {
  (void)i;
  Reduced r = reduced(d, &n, g);
  return extremum(d, &r, r.in, kept_result(d, &n, &r));
}

ValueId vjp_norm_l1(Grad *d, Node n, uint32_t i, ValueId g) {
  (void)i;
  Reduced r = reduced(d, &n, g);
  return grad_binary(d, OP_MUL, r.g, grad_unary(d, OP_SIGN, r.in));
}

/* x / y, and 0 where the norm is 0. */
ValueId vjp_norm_l2(Grad *d, Node n, uint32_t i, ValueId g) {
  (void)i;
  Reduced r = reduced(d, &n, g);
  ValueId y = kept_result(d, &n, &r), zero = grad_const(d, r.in, 0);
  ValueId is_zero = grad_binary(d, OP_EQ, y, zero), ratio = grad_binary(d, OP_DIV, r.in, y);
  ValueId slope = grad_add(d, OP_WHERE, (ValueId[]){is_zero, zero, ratio}, 3, NULL, 0);
  return grad_binary(d, OP_MUL, r.g, slope);
}

ValueId vjp_norm_inf(Grad *d, Node n, uint32_t i, ValueId g) {
  (void)i;
  Reduced r = reduced(d, &n, g);
  ValueId size = grad_unary(d, OP_ABS, r.in);
  ValueId picked = extremum(d, &r, size, kept_result(d, &n, &r));
  return grad_binary(d, OP_MUL, picked, grad_unary(d, OP_SIGN, r.in));
}

ValueId vjp_logsumexp(Grad *d, Node n, uint32_t i, ValueId g) {
  (void)i;
  Reduced r = reduced(d, &n, g);
  ValueId shifted = grad_binary(d, OP_SUB, r.in, kept_result(d, &n, &r));
  return grad_binary(d, OP_MUL, r.g, grad_unary(d, OP_EXP, shifted));
}

static ValueId centred(Grad *d, const Reduced *r) {
  return grad_binary(d, OP_SUB, r->in, again(d, r, OP_MEAN, r->in));
}

ValueId vjp_var(Grad *d, Node n, uint32_t i, ValueId g) {
  (void)i;
  Reduced r = reduced(d, &n, g);
  double divisor = r.count - (double)node_int(&n, ATTR_CORRECTION, DEFAULT_CORRECTION);
  return grad_binary(d, OP_MUL, r.g, grad_scale(d, centred(d, &r), 2 / divisor));
}

/* (x - mean) / (divisor * y), and 0 where the deviation is 0. */
ValueId vjp_std(Grad *d, Node n, uint32_t i, ValueId g) {
  (void)i;
  Reduced r = reduced(d, &n, g);
  double divisor = r.count - (double)node_int(&n, ATTR_CORRECTION, DEFAULT_CORRECTION);
  ValueId y = kept_result(d, &n, &r), zero = grad_const(d, r.in, 0);
  ValueId ratio = grad_binary(d, OP_DIV, grad_scale(d, centred(d, &r), 1 / divisor), y);
  ValueId is_zero = grad_binary(d, OP_EQ, y, zero);
  ValueId slope = grad_add(d, OP_WHERE, (ValueId[]){is_zero, zero, ratio}, 3, NULL, 0);
  return grad_binary(d, OP_MUL, r.g, slope);
}
