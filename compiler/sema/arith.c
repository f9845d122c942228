/* Operators: arithmetic of compile-time numbers, and the operator functions of tensors.
 *
 * An int is 64 bits and never wraps: overflow is an error. int / int is an int when it divides and
 * a float otherwise, so that extents stay ints and ratios are what they look like.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "sema/elab.h"

static const char *const spelling[] = {
    [BINARY_ADD] = "+",  [BINARY_SUB] = "-",  [BINARY_MUL] = "*", [BINARY_DIV] = "/",
    [BINARY_MOD] = "%",  [BINARY_POW] = "**", [BINARY_LT] = "<",  [BINARY_LE] = "<=",
    [BINARY_GT] = ">",   [BINARY_GE] = ">=",  [BINARY_EQ] = "==", [BINARY_NE] = "!=",
    [BINARY_AND] = "&&", [BINARY_OR] = "||",
};

static const Op tensor_op[] = {
    [BINARY_ADD] = OP_ADD,         [BINARY_SUB] = OP_SUB,       [BINARY_MUL] = OP_MUL,
    [BINARY_DIV] = OP_DIV,         [BINARY_MOD] = OP_REMAINDER, [BINARY_POW] = OP_POW,
    [BINARY_LT] = OP_LT,           [BINARY_LE] = OP_LE,         [BINARY_GT] = OP_GT,
    [BINARY_GE] = OP_GE,           [BINARY_EQ] = OP_EQ,         [BINARY_NE] = OP_NE,
    [BINARY_AND] = OP_LOGICAL_AND, [BINARY_OR] = OP_LOGICAL_OR,
};

static Val overflow(Sema *s, Span span) {
  sema_error(s, DIAG_ARITHMETIC, span, "the result does not fit a 64-bit int");
  return POISON;
}

static Val divide_by_zero(Sema *s, Span span) {
  sema_error(s, DIAG_ARITHMETIC, span, "division by zero");
  return POISON;
}

/* Quotient rounded down, b != 0 and not INT64_MIN / -1. */
static int64_t floor_div(int64_t a, int64_t b) {
  int64_t q = a / b;
  return q - (a % b != 0 && (a < 0) != (b < 0));
}

static Val int_power(Sema *s, int64_t base, int64_t exponent, Span span) {
  if (exponent < 0) return val_float(pow((double)base, (double)exponent));
  int64_t r = 1;
  while (exponent) {
    if ((exponent & 1) && __builtin_mul_overflow(r, base, &r)) return overflow(s, span);
    exponent >>= 1;
    if (exponent && __builtin_mul_overflow(base, base, &base)) return overflow(s, span);
  }
  return val_int(r);
}

static Val int_binary(Sema *s, BinaryOp op, int64_t a, int64_t b, Span span) {
  int64_t r;
  switch (op) {
  case BINARY_ADD:
    return __builtin_add_overflow(a, b, &r) ? overflow(s, span) : val_int(r);
  case BINARY_SUB:
    return __builtin_sub_overflow(a, b, &r) ? overflow(s, span) : val_int(r);
  case BINARY_MUL:
    return __builtin_mul_overflow(a, b, &r) ? overflow(s, span) : val_int(r);
  case BINARY_DIV:
    if (b == 0) return divide_by_zero(s, span);
    if (b == -1) return a == INT64_MIN ? overflow(s, span) : val_int(-a);
    return a % b == 0 ? val_int(a / b) : val_float((double)a / (double)b);
  case BINARY_MOD:
    if (b == 0) return divide_by_zero(s, span);
    return b == -1 ? val_int(0) : val_int(a - floor_div(a, b) * b);
  case BINARY_POW:
    return int_power(s, a, b, span);
  case BINARY_LT:
    return val_bool(a < b);
  case BINARY_LE:
    return val_bool(a <= b);
  case BINARY_GT:
    return val_bool(a > b);
  case BINARY_GE:
    return val_bool(a >= b);
  case BINARY_EQ:
  case BINARY_NE:
  case BINARY_AND:
  case BINARY_OR:
    break;
  }
  return POISON;
}

static Val float_binary(Sema *s, BinaryOp op, double a, double b, Span span) {
  switch (op) {
  case BINARY_ADD:
    return val_float(a + b);
  case BINARY_SUB:
    return val_float(a - b);
  case BINARY_MUL:
    return val_float(a * b);
  case BINARY_DIV:
    return b == 0 ? divide_by_zero(s, span) : val_float(a / b);
  case BINARY_MOD:
    return b == 0 ? divide_by_zero(s, span) : val_float(a - floor(a / b) * b);
  case BINARY_POW:
    return val_float(pow(a, b));
  case BINARY_LT:
    return val_bool(a < b);
  case BINARY_LE:
    return val_bool(a <= b);
  case BINARY_GT:
    return val_bool(a > b);
  case BINARY_GE:
    return val_bool(a >= b);
  case BINARY_EQ:
  case BINARY_NE:
  case BINARY_AND:
  case BINARY_OR:
    break;
  }
  return POISON;
}

static Val list_concat(Sema *s, const List *a, const List *b, Span span) {
  if ((uint64_t)a->len + b->len > SEMA_MAX_LIST) {
    sema_error(s, DIAG_TOO_LARGE, span, "a list may have at most %d elements", SEMA_MAX_LIST);
    return POISON;
  }
  List *r = list_new(s, a->len + b->len);
  if (a->len) memcpy(r->data, a->data, a->len * sizeof *a->data);
  if (b->len) memcpy(r->data + a->len, b->data, b->len * sizeof *b->data);
  return val_list(r);
}

static Val string_concat(Sema *s, const char *a, const char *b, Span span) {
  enum { BYTES_OF_WORK = 8 };
  size_t len = strlen(a) + strlen(b);
  if (len > SEMA_MAX_LIST) {
    sema_error(s, DIAG_TOO_LARGE, span, "a string may have at most %d bytes", SEMA_MAX_LIST);
    return POISON;
  }
  s->work += len / BYTES_OF_WORK;
  return val_string(intern(s->names, arena_printf(s->arena, "%s%s", a, b)));
}

static Val bad_operands(Sema *s, BinaryOp op, Val a, Val b, Span span) {
  sema_error(s, DIAG_VALUE_KIND, span, "%s cannot take %s and %s", spelling[op], val_kind_name(a),
             val_kind_name(b));
  return POISON;
}

static Val static_binary(Sema *s, BinaryOp op, Val a, Val b, Span span) {
  if (a.in_parts || b.in_parts) {
    Val whole = static_binary(s, op, val_whole(a), val_whole(b), span);
    a.in_parts = b.in_parts = false;
    return val_in_parts(static_binary(s, op, a, b, span), whole);
  }
  if (op == BINARY_EQ || op == BINARY_NE) return val_bool(val_equal(a, b) == (op == BINARY_EQ));
  if (op == BINARY_AND || op == BINARY_OR) {
    if (a.kind != VAL_BOOL || b.kind != VAL_BOOL) return bad_operands(s, op, a, b, span);
    return val_bool(op == BINARY_AND ? a.as.b && b.as.b : a.as.b || b.as.b);
  }
  if (a.kind == VAL_INT && b.kind == VAL_INT) return int_binary(s, op, a.as.i, b.as.i, span);
  if ((a.kind == VAL_INT || a.kind == VAL_FLOAT) && (b.kind == VAL_INT || b.kind == VAL_FLOAT))
    return float_binary(s, op, val_as_double(a), val_as_double(b), span);
  if (op == BINARY_ADD && a.kind == VAL_STRING && b.kind == VAL_STRING)
    return string_concat(s, a.as.s, b.as.s, span);
  if (op == BINARY_ADD && a.kind == VAL_LIST && b.kind == VAL_LIST)
    return list_concat(s, a.as.list, b.as.list, span);
  return bad_operands(s, op, a, b, span);
}

Val eval_binary(Sema *s, BinaryOp op, Val a, Val b, Span span, Span a_span, Span b_span) {
  if (a.kind == VAL_POISON || b.kind == VAL_POISON) return POISON;
  if (!val_is_tensor(a) && !val_is_tensor(b)) return static_binary(s, op, a, b, span);
  /* an argument that may be left out: whether it is there is known at compile time */
  bool absent = a.kind == VAL_NONE || b.kind == VAL_NONE;
  if (absent && (op == BINARY_EQ || op == BINARY_NE)) return val_bool(op == BINARY_NE);
  /* x ** 2 is x * x: exact, and its gradient needs no logarithm. */
  Op top = tensor_op[op];
  if (op == BINARY_POW && val_is_number(b) && val_as_double(b) == 2) {
    ValueId x;
    return as_tensor(s, a, a_span, "the base", &x) ? emit1(s, OP_SQUARE, x, NULL, 0, span) : POISON;
  }
  Val values[] = {a, b};
  Span spans[] = {a_span, b_span};
  ValueId ids[2];
  if (!unify_operands(s, top, values, spans, 2, ids, span)) return POISON;
  return emit(s, top, ids, 2, NULL, 0, span, spans);
}

Val eval_unary(Sema *s, UnaryOp op, Val a, Span span, Span operand) {
  if (a.kind == VAL_POISON) return POISON;
  if (val_is_tensor(a)) {
    ValueId x;
    if (!as_tensor(s, a, operand, "the operand", &x)) return POISON;
    return emit(s, op == UNARY_NEG ? OP_NEG : OP_LOGICAL_NOT, &x, 1, NULL, 0, span, &operand);
  }
  if (a.in_parts) return static_binary(s, BINARY_MUL, a, val_int(-1), span);
  switch (op) {
  case UNARY_NEG:
    if (a.kind == VAL_INT) return a.as.i == INT64_MIN ? overflow(s, span) : val_int(-a.as.i);
    if (a.kind == VAL_FLOAT) return val_float(-a.as.f);
    sema_error(s, DIAG_VALUE_KIND, span, "- cannot take %s", val_kind_name(a));
    return POISON;
  case UNARY_NOT:
    if (a.kind == VAL_BOOL) return val_bool(!a.as.b);
    sema_error(s, DIAG_VALUE_KIND, span, "not cannot take %s", val_kind_name(a));
    return POISON;
  }
  return POISON;
}

/* Operators that are also functions of numbers. */
static const struct {
  const char *name;
  double (*f)(double);
} unary_folds[] = {
    {"sqrt", sqrt},   {"exp", exp},   {"log", log},     {"log2", log2},  {"log10", log10},
    {"sin", sin},     {"cos", cos},   {"tan", tan},     {"tanh", tanh},  {"erf", erf},
    {"floor", floor}, {"ceil", ceil}, {"trunc", trunc}, {"round", rint},
};

static Val fold_extremum(Sema *s, bool largest, const Val *args, uint32_t n, Span span) {
  Val best = args[0];
  for (uint32_t i = 0; i < n; i++) {
    if (args[i].kind != VAL_INT && args[i].kind != VAL_FLOAT) {
      sema_error(s, DIAG_VALUE_KIND, span, "%s of numbers cannot take %s", largest ? "max" : "min",
                 val_kind_name(args[i]));
      return POISON;
    }
    bool less = val_as_double(args[i]) < val_as_double(best);
    bool more = val_as_double(args[i]) > val_as_double(best);
    if (largest ? more : less) best = args[i];
  }
  return best;
}

static Val fold_sum(Sema *s, const List *list, Span span) {
  Val sum = val_int(0);
  for (uint32_t i = 0; i < list->len && sum.kind != VAL_POISON; i++)
    sum = static_binary(s, BINARY_ADD, sum, list->data[i], span);
  return sum;
}

static Val fold_floor_div(Sema *s, Val a, Val b, Span span) {
  if (val_as_double(b) == 0) return divide_by_zero(s, span);
  if (a.kind == VAL_FLOAT || b.kind == VAL_FLOAT)
    return val_float(floor(val_as_double(a) / val_as_double(b)));
  if (b.as.i == -1) return eval_unary(s, UNARY_NEG, a, span, span);
  return val_int(floor_div(a.as.i, b.as.i));
}

static Val fold(Sema *s, const char *name, const Val *args, uint32_t n, Span span) {
  if (n == 1 && args[0].kind == VAL_LIST) {
    const List *list = args[0].as.list;
    if (strcmp(name, "sum") == 0) return fold_sum(s, list, span);
    bool largest = strcmp(name, "max") == 0;
    if ((largest || strcmp(name, "min") == 0) && list->len)
      return fold_extremum(s, largest, list->data, list->len, span);
    return (Val){0};
  }
  for (uint32_t i = 0; i < n; i++)
    if (args[i].kind != VAL_INT && args[i].kind != VAL_FLOAT) return (Val){0};
  if (n == 1) {
    if (strcmp(name, "neg") == 0) return eval_unary(s, UNARY_NEG, args[0], span, span);
    if (strcmp(name, "abs") == 0)
      return val_as_double(args[0]) < 0 ? eval_unary(s, UNARY_NEG, args[0], span, span) : args[0];
    if (strcmp(name, "square") == 0) return static_binary(s, BINARY_MUL, args[0], args[0], span);
    for (size_t i = 0; i < sizeof unary_folds / sizeof *unary_folds; i++) {
      if (strcmp(unary_folds[i].name, name) != 0) continue;
      double r = unary_folds[i].f(val_as_double(args[0]));
      bool rounds = strcmp(name, "floor") == 0 || strcmp(name, "ceil") == 0 ||
                    strcmp(name, "trunc") == 0 || strcmp(name, "round") == 0;
      if (!isfinite(r)) {
        sema_error(s, DIAG_ARITHMETIC, span, "%s(%s) is not a finite number", name,
                   val_print(s, args[0]));
        return POISON;
      }
      return rounds && fabs(r) < 9e18 ? val_int((int64_t)r) : val_float(r);
    }
    return (Val){0};
  }
  if (n != 2) return (Val){0};
  if (strcmp(name, "div") == 0 || strcmp(name, "floor_div") == 0)
    return fold_floor_div(s, args[0], args[1], span);
  static const struct {
    const char *name;
    BinaryOp op;
  } binary[] = {{"add", BINARY_ADD},
                {"sub", BINARY_SUB},
                {"mul", BINARY_MUL},
                {"remainder", BINARY_MOD},
                {"pow", BINARY_POW}};
  for (size_t i = 0; i < sizeof binary / sizeof *binary; i++)
    if (strcmp(binary[i].name, name) == 0)
      return static_binary(s, binary[i].op, args[0], args[1], span);
  bool largest = strcmp(name, "max") == 0 || strcmp(name, "maximum") == 0;
  if (largest || strcmp(name, "min") == 0 || strcmp(name, "minimum") == 0)
    return fold_extremum(s, largest, args, n, span);
  return (Val){0};
}

Val fold_scalar(Sema *s, const char *name, const Val *args, uint32_t n, Span span) {
  bool is_list = n == 1 && args[0].kind == VAL_LIST, in_parts = false;
  const Val *numbers = is_list ? args[0].as.list->data : args;
  uint32_t count = is_list ? args[0].as.list->len : n;
  for (uint32_t i = 0; i < count; i++) in_parts |= numbers[i].in_parts;
  Val r = fold(s, name, args, n, span);
  if (!in_parts || r.kind == VAL_POISON) return r;
  List *whole = list_new(s, count);
  for (uint32_t i = 0; i < count; i++) whole->data[i] = val_whole(numbers[i]);
  Val list = val_list(whole);
  return val_in_parts(r, fold(s, name, is_list ? &list : whole->data, n, span));
}
