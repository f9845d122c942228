/* Built-in functions of tensors that are made of several operators, or choose among some. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "sema/builtin.h"

/* Binds by words and takes argument 0 as a tensor. */
bool bind_tensor(Sema *s, const Call *call, const char *words, Val *v, Span *at, ValueId *x) {
  if (!bind_words(s, call, words, v, at)) return false;
  s->at.operand = at[0];
  const char *what = arena_concat(s->arena, "the operand of ", call->name, NULL);
  return as_tensor(s, v[0], at[0], what, x);
}

static uint32_t rank_of(Sema *s, ValueId x) {
  return value_type(s->at.graph, x)->rank;
}
static int64_t extent_of(Sema *s, ValueId x, int64_t dim) {
  return value_type(s->at.graph, x)->shape[dim];
}

bool normal_dim(int64_t *dim, uint32_t rank) {
  if (*dim < 0) *dim += rank;
  return *dim >= 0 && *dim < rank;
}

/* A dim of x, counted from either end; `otherwise` when not given. */
bool want_dim(Sema *s, Val v, Span span, uint32_t rank, int64_t otherwise, int64_t *dim) {
  *dim = otherwise;
  if (v.kind != VAL_UNSET && !want_int(s, v, span, "dim", dim)) return false;
  int64_t given = *dim;
  if (normal_dim(dim, rank)) return true;
  sema_error(s, DIAG_INDEX, span, "there is no dim %" PRId64 " in a tensor of %u dims", given,
             rank);
  return false;
}

Val emit_slice(Sema *s, ValueId x, int64_t dim, int64_t start, int64_t stop, Span span) {
  if (start == 0 && stop == extent_of(s, x, dim)) return val_tensor(x);
  Attr attrs[] = {ATTR_I(DIM, dim), ATTR_I(START, start), ATTR_I(STOP, stop)};
  return emit1(s, OP_SLICE, x, attrs, 3, span);
}

Val emit_dim_op(Sema *s, Op op, ValueId x, int64_t dim, Span span) {
  return emit1(s, op, x, (Attr[]){ATTR_I(DIM, dim)}, 1, span);
}

Val builtin_to(Sema *s, const Call *call) {
  Val v[2];
  Span at[2];
  ValueId x;
  if (!bind_words(s, call, "x dtype", v, at)) return POISON;
  if (v[1].kind != VAL_DTYPE) {
    sema_error(s, DIAG_VALUE_KIND, at[1], "to takes an element type such as f32, not %s",
               val_kind_name(v[1]));
    return POISON;
  }
  return as_tensor(s, v[0], at[0], "the operand of to", &x)
             ? emit_cast(s, x, v[1].as.dtype, call->span)
             : POISON;
}

Val builtin_transpose(Sema *s, const Call *call) {
  Val v[3];
  Span at[3];
  ValueId x;
  int64_t i, j, dims[DTM_MAX_DIMS];
  if (!bind_tensor(s, call, "x|input dim0? dim1?", v, at, &x)) return POISON;
  uint32_t rank = rank_of(s, x);
  if (rank < 2) return val_tensor(x);
  if (!want_dim(s, v[1], at[1], rank, -2, &i) || !want_dim(s, v[2], at[2], rank, -1, &j))
    return POISON;
  for (uint32_t d = 0; d < rank; d++) dims[d] = d;
  dims[i] = j;
  dims[j] = i;
  return emit1(s, OP_PERMUTE, x, (Attr[]){ATTR_INTS(DIMS, dims, rank)}, 1, call->span);
}

Val builtin_flatten(Sema *s, const Call *call) {
  Val v[3];
  Span at[3];
  ValueId x;
  int64_t first, last, shape[DTM_MAX_DIMS];
  if (!bind_tensor(s, call, "x|input start|start_dim? end|end_dim?", v, at, &x)) return POISON;
  uint32_t rank = rank_of(s, x), n = 0;
  if (rank == 0) return emit_reshape(s, x, (int64_t[]){1}, 1, call->span);
  if (!want_dim(s, v[1], at[1], rank, 0, &first) || !want_dim(s, v[2], at[2], rank, -1, &last))
    return POISON;
  if (first >= last) return val_tensor(x);
  int64_t merged = 1;
  for (int64_t d = 0; d < rank; d++) {
    if (d >= first && d <= last) merged *= extent_of(s, x, d);
    if (d < first || d > last) shape[n++] = extent_of(s, x, d);
    if (d == last) shape[n++] = merged;
  }
  return emit_reshape(s, x, shape, n, call->span);
}

Val builtin_squeeze(Sema *s, const Call *call) {
  Val v[2];
  Span at[2];
  ValueId x;
  int64_t dim;
  if (!bind_tensor(s, call, op_words(OP_SQUEEZE), v, at, &x)) return POISON;
  if (v[1].kind != VAL_UNSET)
    return want_dim(s, v[1], at[1], rank_of(s, x), 0, &dim)
               ? emit_dim_op(s, OP_SQUEEZE, x, dim, call->span)
               : POISON;
  Val r = val_tensor(x);
  for (int64_t d = rank_of(s, x) - 1; d >= 0 && r.kind != VAL_POISON; d--)
    if (extent_of(s, r.as.tensor, d) == 1)
      r = emit_dim_op(s, OP_SQUEEZE, r.as.tensor, d, call->span);
  return r;
}

Val builtin_select(Sema *s, const Call *call) {
  Val v[3];
  Span at[3];
  ValueId x;
  int64_t dim, index;
  if (!bind_tensor(s, call, "x|input dim index", v, at, &x) ||
      !want_dim(s, v[1], at[1], rank_of(s, x), 0, &dim) ||
      !want_int(s, v[2], at[2], "index", &index))
    return POISON;
  int64_t extent = extent_of(s, x, dim), given = index;
  if (index < 0) index += extent;
  if (index < 0 || index >= extent) {
    sema_error(s, DIAG_INDEX, at[2], "index %" PRId64 " is outside the dim's %" PRId64, given,
               extent);
    return POISON;
  }
  Val r = emit_slice(s, x, dim, index, index + 1, call->span);
  return r.kind == VAL_POISON ? r : emit_dim_op(s, OP_SQUEEZE, r.as.tensor, dim, call->span);
}

/* Pieces of these lengths along a dim. */
static Val pieces(Sema *s, ValueId x, int64_t dim, const int64_t *lengths, uint32_t n, Span span) {
  List *list = list_new(s, n);
  int64_t start = 0;
  for (uint32_t i = 0; i < n; i++) {
    list->data[i] = emit_slice(s, x, dim, start, start + lengths[i], span);
    if (list->data[i].kind == VAL_POISON) return POISON;
    start += lengths[i];
  }
  return val_list(list);
}

static bool too_many_pieces(Sema *s, int64_t n, Span span) {
  if (n >= 0 && n <= 4096) return false;
  sema_error(s, DIAG_TOO_LARGE, span, "cannot cut into %" PRId64 " pieces", n);
  return true;
}

/* torch.chunk: pieces of ceil(extent / n), the last shorter, maybe fewer than n. */
Val builtin_chunk(Sema *s, const Call *call) {
  Val v[3];
  Span at[3];
  ValueId x;
  int64_t dim, n;
  if (!bind_tensor(s, call, "x|input chunks dim?", v, at, &x) ||
      !want_dim(s, v[2], at[2], rank_of(s, x), 0, &dim) || !want_int(s, v[1], at[1], "chunks", &n))
    return POISON;
  if (n < 1 || too_many_pieces(s, n, at[1])) {
    if (n < 1) sema_error(s, DIAG_ARITHMETIC, at[1], "the number of chunks must be positive");
    return POISON;
  }
  int64_t *lengths = ARENA_ARRAY(s->arena, int64_t, n);
  int64_t extent = extent_of(s, x, dim), begin;
  uint32_t count = 0;
  for (int64_t i = 0; i < n; i++) {
    chunk(extent, n, i, &begin, &lengths[count]);
    if (lengths[count] || i == 0) count++;
  }
  return pieces(s, x, dim, lengths, count, call->span);
}

Val builtin_split(Sema *s, const Call *call) {
  Val v[3];
  Span at[3];
  ValueId x;
  int64_t dim, size;
  if (!bind_tensor(s, call, "x|input size|sizes dim?", v, at, &x) ||
      !want_dim(s, v[2], at[2], rank_of(s, x), 0, &dim))
    return POISON;
  int64_t extent = extent_of(s, x, dim), sum = 0, *lengths;
  uint32_t n;
  if (v[1].kind == VAL_LIST) {
    n = v[1].as.list->len;
    lengths = ARENA_ARRAY(s->arena, int64_t, n);
    for (uint32_t i = 0; i < n; i++) {
      if (!want_int(s, v[1].as.list->data[i], at[1], "a size of split", &lengths[i])) return POISON;
      sum += lengths[i] < 0 ? extent + 1 : lengths[i];
    }
    if (sum != extent) {
      sema_error(s, DIAG_INDEX, at[1], "the sizes must add up to the extent, %" PRId64, extent);
      return POISON;
    }
  } else {
    if (!want_int(s, v[1], at[1], "size", &size)) return POISON;
    if (size < 1) {
      sema_error(s, DIAG_ARITHMETIC, at[1], "the size of the pieces must be positive");
      return POISON;
    }
    int64_t count = (extent + size - 1) / size;
    if (too_many_pieces(s, count, at[1])) return POISON;
    n = count ? (uint32_t)count : 1;
    lengths = ARENA_ARRAY(s->arena, int64_t, n);
    for (uint32_t i = 0; i < n; i++, extent -= size) lengths[i] = extent < size ? extent : size;
  }
  return pieces(s, x, dim, lengths, n, call->span);
}

Val builtin_unbind(Sema *s, const Call *call) {
  Val v[2];
  Span at[2];
  ValueId x;
  int64_t dim;
  if (!bind_tensor(s, call, "x|input dim?", v, at, &x) ||
      !want_dim(s, v[1], at[1], rank_of(s, x), 0, &dim))
    return POISON;
  int64_t n = extent_of(s, x, dim);
  if (too_many_pieces(s, n, call->span)) return POISON;
  List *list = list_new(s, (uint32_t)n);
  for (int64_t i = 0; i < n; i++) {
    Val r = emit_slice(s, x, dim, i, i + 1, call->span);
    if (r.kind == VAL_POISON) return r;
    list->data[i] = emit_dim_op(s, OP_SQUEEZE, r.as.tensor, dim, call->span);
  }
  return val_list(list);
}

Val builtin_stack(Sema *s, const Call *call) {
  Val v[2];
  Span at[2];
  const List *list;
  ValueId ids[INFER_MAX_OPERANDS];
  if (!bind_words(s, call, "tensors dim?", v, at) ||
      !want_list(s, v[0], at[0], "what stack takes", &list))
    return POISON;
  if (list->len == 0 || list->len > INFER_MAX_OPERANDS) {
    sema_error(s, DIAG_ARGUMENTS, at[0], "stack takes 1 to %d tensors", INFER_MAX_OPERANDS);
    return POISON;
  }
  int64_t dim = 0;
  for (uint32_t i = 0; i < list->len; i++) {
    if (!as_tensor(s, list->data[i], at[0], "an operand of stack", &ids[i])) return POISON;
    if (!want_dim(s, v[1], at[1], rank_of(s, ids[i]) + 1, 0, &dim)) return POISON;
    Val r = emit_dim_op(s, OP_UNSQUEEZE, ids[i], dim, call->span);
    if (r.kind == VAL_POISON) return r;
    ids[i] = r.as.tensor;
  }
  return emit(s, OP_CONCAT, ids, list->len, (Attr[]){ATTR_I(DIM, dim)}, 1, call->span, NULL);
}

/* repeat(x, [2, 1]): copies along each dim. */
Val builtin_repeat(Sema *s, const Call *call) {
  Val v[2];
  Span at[2];
  ValueId x, ids[INFER_MAX_OPERANDS];
  int64_t times[DTM_MAX_DIMS];
  uint32_t n;
  if (!bind_tensor(s, call, "x|input times|repeats", v, at, &x) ||
      !want_ints(s, v[1], at[1], "times", times, DTM_MAX_DIMS, &n))
    return POISON;
  if (n != rank_of(s, x)) {
    sema_error(s, DIAG_ARGUMENTS, at[1], "repeat needs one number for each of %u dims",
               rank_of(s, x));
    return POISON;
  }
  Val r = val_tensor(x);
  for (uint32_t d = 0; d < n && r.kind != VAL_POISON; d++) {
    if (times[d] == 1) continue;
    if (times[d] < 1 || times[d] > INFER_MAX_OPERANDS) {
      sema_error(s, DIAG_TOO_LARGE, at[1], "repeat takes 1 to %d copies", INFER_MAX_OPERANDS);
      return POISON;
    }
    for (int64_t i = 0; i < times[d]; i++) ids[i] = r.as.tensor;
    r = emit(s, OP_CONCAT, ids, (uint32_t)times[d], (Attr[]){ATTR_I(DIM, d)}, 1, call->span, NULL);
  }
  return r;
}

/* c + a x b */
static Val add_product(Sema *s, const Call *call) {
  Val v[3];
  Span at[3];
  ValueId ids[3];
  if (!bind_words(s, call, "c|input a|mat1 b|mat2", v, at) ||
      !unify_operands(s, OP_MATMUL, v + 1, at + 1, 2, ids + 1, call->span) ||
      !as_tensor(s, v[0], at[0], "the addend", &ids[0]))
    return POISON;
  Val product = emit(s, OP_MATMUL, ids + 1, 2, NULL, 0, call->span, at + 1);
  if (product.kind == VAL_POISON) return product;
  return emit(s, OP_ADD, (ValueId[]){ids[0], product.as.tensor}, 2, NULL, 0, call->span,
              (Span[]){at[0], call->span});
}
Val builtin_addmm(Sema *s, const Call *call) {
  return add_product(s, call);
}
Val builtin_baddbmm(Sema *s, const Call *call) {
  return add_product(s, call);
}

static Val einsum2(Sema *s, const Call *call, const char *spec) {
  Val v[2];
  Span at[2];
  ValueId ids[2];
  if (!bind_words(s, call, "a|input b|other", v, at) ||
      !unify_operands(s, OP_EINSUM, v, at, 2, ids, call->span))
    return POISON;
  Attr attrs[] = {ATTR_S(SPEC, intern(s->names, spec))};
  return emit(s, OP_EINSUM, ids, 2, attrs, 1, call->span, at);
}
Val builtin_dot(Sema *s, const Call *call) {
  return einsum2(s, call, "i,i->");
}
Val builtin_outer(Sema *s, const Call *call) {
  return einsum2(s, call, "i,j->ij");
}

/* clamp(x, min?, max?): one bound alone is a maximum or a minimum. */
Val builtin_clamp(Sema *s, const Call *call) {
  Val v[3];
  Span at[3];
  ValueId ids[3];
  if (!bind_words(s, call, op_words(OP_CLAMP), v, at)) return POISON;
  bool low = v[1].kind != VAL_UNSET && v[1].kind != VAL_NONE;
  bool high = v[2].kind != VAL_UNSET && v[2].kind != VAL_NONE;
  if (!low && !high) return v[0];
  if (val_is_number(v[0])) {
    Val r = low ? fold_scalar(s, "max", (Val[]){v[0], v[1]}, 2, call->span) : v[0];
    return high && r.kind != VAL_POISON ? fold_scalar(s, "min", (Val[]){r, v[2]}, 2, call->span)
                                        : r;
  }
  if (!low) {
    v[1] = v[2];
    at[1] = at[2];
  }
  Op op = low && high ? OP_CLAMP : low ? OP_MAXIMUM : OP_MINIMUM;
  uint32_t n = low && high ? 3 : 2;
  return unify_operands(s, op, v, at, n, ids, call->span)
             ? emit(s, op, ids, n, NULL, 0, call->span, at)
             : POISON;
}
Val builtin_clip(Sema *s, const Call *call) {
  return builtin_clamp(s, call);
}

/* The call with one argument taken out, for an operator that does the rest. */
static Call without_arg(Sema *s, const Call *call, const char *name, uint32_t position, Val *out) {
  Call rest = *call;
  CallArg *args = ARENA_ARRAY(s->arena, CallArg, call->nargs);
  rest.nargs = 0;
  *out = (Val){0};
  uint32_t place = 0;
  for (uint32_t i = 0; i < call->nargs; i++) {
    const CallArg *a = &call->args[i];
    bool taken = a->name ? strcmp(a->name, name) == 0 : place++ == position;
    if (taken)
      *out = a->value;
    else
      args[rest.nargs++] = *a;
  }
  rest.args = args;
  return rest;
}

Val builtin_norm(Sema *s, const Call *call) {
  Val p;
  Call rest = without_arg(s, call, "p", 1, &p);
  double order = 2;
  if (p.kind != VAL_UNSET && !want_float(s, p, call->span, "p", &order)) return POISON;
  Op op = order == 1 ? OP_NORM_L1 : order == 2 ? OP_NORM_L2 : isinf(order) ? OP_NORM_INF : OP_NONE;
  if (op) return call_op(s, op, &rest);
  sema_error(s, DIAG_VALUE_KIND, call->span, "norm knows p = 1, 2 and inf");
  return POISON;
}

/* max(x, dims): reduction; max(a, b) of two tensors: the larger of each pair. */
static Val extremum(Sema *s, const Call *call, Op reduction, Op pairwise) {
  bool pair = call->nargs == 2 && !call->args[1].name &&
              (val_is_tensor(call->args[1].value) || call->args[1].value.kind == VAL_FLOAT);
  bool numbers = call->nargs > 0 && val_is_number(call->args[0].value);
  if (!pair && numbers) {
    Val values[SEMA_MAX_ARGS];
    uint32_t n = call->nargs < SEMA_MAX_ARGS ? call->nargs : SEMA_MAX_ARGS;
    bool tensors = false;
    for (uint32_t i = 0; i < n; i++) {
      values[i] = call->args[i].value;
      tensors |= val_is_tensor(values[i]);
    }
    if (!tensors) {
      Val list = val_list(&(List){.data = values, .len = n});
      return fold_scalar(s, op_name(reduction), &list, 1, call->span);
    }
  }
  return call_op(s, pair ? pairwise : reduction, call);
}
Val builtin_max(Sema *s, const Call *call) {
  return extremum(s, call, OP_MAX, OP_MAXIMUM);
}
Val builtin_min(Sema *s, const Call *call) {
  return extremum(s, call, OP_MIN, OP_MINIMUM);
}

Val builtin_pow(Sema *s, const Call *call) {
  Val v[2];
  Span at[2];
  if (!bind_words(s, call, op_words(OP_POW), v, at)) return POISON;
  return eval_binary(s, BINARY_POW, v[0], v[1], call->span, at[0], at[1]);
}

Val builtin_gelu(Sema *s, const Call *call) {
  Val v[2];
  Span at[2];
  ValueId x;
  const char *how = "none";
  if (!bind_tensor(s, call, op_words(OP_GELU), v, at, &x)) return POISON;
  if (v[1].kind != VAL_UNSET && !want_string(s, v[1], at[1], "approximate", &how)) return POISON;
  bool tanh_form = strcmp(how, "tanh") == 0;
  if (!tanh_form && strcmp(how, "none") != 0) {
    sema_error(s, DIAG_VALUE_KIND, at[1], "approximate is \"none\" or \"tanh\"");
    return POISON;
  }
  return emit(s, tanh_form ? OP_GELU_TANH : OP_GELU, &x, 1, NULL, 0, call->span, at);
}

Val builtin_masked_fill(Sema *s, const Call *call) {
  Val v[3];
  Span at[3];
  ValueId ids[3];
  if (!bind_words(s, call, "x|input mask value", v, at)) return POISON;
  Val where[] = {v[1], v[2], v[0]};
  Span spans[] = {at[1], at[2], at[0]};
  return unify_operands(s, OP_WHERE, where, spans, 3, ids, call->span)
             ? emit(s, OP_WHERE, ids, 3, NULL, 0, call->span, spans)
             : POISON;
}

/* Acts in training alone; the mask depends on (seed, instance, step, global index) only. */
Val builtin_dropout(Sema *s, const Call *call) {
  Val v[2];
  Span at[2];
  ValueId x;
  double p = 0.5;
  if (!bind_tensor(s, call, op_words(OP_DROPOUT), v, at, &x)) return POISON;
  if (v[1].kind != VAL_UNSET && !want_float(s, v[1], at[1], "p", &p)) return POISON;
  if (!(p >= 0 && p < 1)) {
    sema_error(s, DIAG_VALUE_KIND, at[1], "the probability of dropout must be in [0, 1)");
    return POISON;
  }
  if (!s->at.training || p == 0) return val_tensor(x);
  Attr attrs[] = {ATTR_F(P, p), ATTR_I(INSTANCE, next_instance(s))};
  return emit(s, OP_DROPOUT, &x, 1, attrs, 2, call->span, at);
}

/* step(): the number of the step as a scalar, for schedules and for what a step of infer adds. */
Val builtin_step(Sema *s, const Call *call) {
  Val v[1];
  Span at[1];
  if (!bind_words(s, call, "", v, at)) return POISON;
  bool infers = s->block && s->block->kind == BLOCK_INFER;
  if (!s->at.graph || (!s->at.training && !infers)) {
    sema_error(s, DIAG_TENSOR_OUTSIDE, call->span, "step() is known in train and infer only");
    return POISON;
  }
  TensorType t = {.dtype = DT_I64}; /* on every mesh */
  ValueId n = emit_typed(s, OP_STEP, NULL, 0, &t, call->span);
  return emit_cast(s, n, dtype_map(s, DT_F32), call->span);
}
