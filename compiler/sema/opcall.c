/* Calls of operators: arguments to operands and attributes, for every row of ops.def alike.
 *
 * Names and positions come from signatures.def, kinds of attributes from the attribute table of
 * ops.h. What an attribute may be is inference's business; here it only gets its kind.
 */
#include <stdlib.h>
#include <string.h>

#include "sema/builtin.h"
#include "sema/sema.h"

typedef enum WordKind { WORD_OPERAND = 1, WORD_OPERANDS, WORD_ATTR } WordKind;

enum { MAX_WORDS = 12 };

typedef struct Signature {
  uint32_t n;
  ParamSpec specs[MAX_WORDS];
  struct {
    WordKind kind;
    AttrKey key;
    bool rest;        /* takes the positional numbers that remain */
    double otherwise; /* default of an operand */
    bool has_default;
  } words[MAX_WORDS];
} Signature;

static const char *const signature_text[OP_COUNT] = {
#define SIGNATURE(ID, words) [OP_##ID] = words,
#include "sema/signatures.def"
};

const char *op_words(Op op) {
  return signature_text[op];
}

/* Reads one word into the next slot. */
static void add_word(Sema *s, Signature *sig, const char *word, size_t len) {
  uint32_t i = sig->n++;
  sig->specs[i].required = true;
  sig->words[i].kind = *word == ':' ? WORD_ATTR : WORD_OPERAND;
  if (*word == ':') {
    word++;
    len--;
  }
  const char *equals = memchr(word, '=', len);
  if (equals) {
    sig->words[i].has_default = true;
    sig->words[i].otherwise = strtod(equals + 1, NULL);
    sig->specs[i].required = false;
    len = (size_t)(equals - word);
  } else if (word[len - 1] == '?') {
    sig->specs[i].required = false;
    len--;
  } else if (word[len - 1] == '*') {
    if (sig->words[i].kind == WORD_OPERAND) sig->words[i].kind = WORD_OPERANDS;
    sig->words[i].rest = true;
    len--;
  }
  const char *bar = memchr(word, '|', len);
  size_t first = bar ? (size_t)(bar - word) : len;
  sig->specs[i].name = intern_n(s->names, word, first);
  if (bar) sig->specs[i].also = intern_n(s->names, bar + 1, len - first - 1);
  if (sig->words[i].kind == WORD_ATTR) sig->words[i].key = attr_by_name(sig->specs[i].name);
}

static void add_default_words(Sema *s, Signature *sig, const OpInfo *info) {
  static const char *const names[] = {"a|input", "b|other", "c"};
  if (info->max_operands == 1) add_word(s, sig, "x|input", 7);
  for (uint32_t i = 0; info->max_operands > 1 && i < info->max_operands && i < 3; i++) {
    add_word(s, sig, names[i], strlen(names[i]));
    sig->specs[sig->n - 1].required = i < info->min_operands;
  }
  for (int key = ATTR_NONE + 1; key < ATTR_COUNT && sig->n < MAX_WORDS; key++) {
    if (!(info->attrs >> key & 1)) continue;
    const char *word = arena_printf(s->arena, ":%s?", attr_name((AttrKey)key));
    add_word(s, sig, word, strlen(word));
  }
}

static const Signature *signature_of(Sema *s, Op op) {
  if (s->signatures[op]) return s->signatures[op];
  Signature *sig = ARENA_NEW(s->arena, Signature);
  const char *text = signature_text[op];
  for (const char *w = text; w && *w;) {
    size_t len = strcspn(w, " ");
    add_word(s, sig, w, len);
    w += len + (w[len] == ' ');
  }
  if (!text) add_default_words(s, sig, op_info(op));
  return s->signatures[op] = sig;
}

const char *sema_call_text(Arena *arena, Interner *names, const char *name) {
  Sema *s = ARENA_NEW(arena, Sema);
  *s = (Sema){.arena = arena, .names = names};
  bool function;
  Op op = op_by_name(name);
  if (op == OP_NONE) op = sema_function(name, &function);
  const char *parameters = signature_text[op] ? NULL : builtin_parameters(s, name);
  if (parameters) return arena_printf(arena, "%s(%s)", name, parameters);
  if (op == OP_NONE || builtin_is_internal(op)) return NULL;
  s->signatures = ARENA_ARRAY(arena, struct Signature *, OP_COUNT);
  const Signature *sig = signature_of(s, op);
  StrBuf text;
  strbuf_init(&text, arena);
  strbuf_printf(&text, "%s(", name);
  for (uint32_t i = 0; i < sig->n; i++) {
    strbuf_printf(&text, "%s%s", i ? ", " : "", sig->specs[i].name);
    if (sig->words[i].has_default)
      strbuf_printf(&text, " = %g", sig->words[i].otherwise);
    else if (!sig->specs[i].required)
      strbuf_putc(&text, '?');
  }
  strbuf_putc(&text, ')');
  return text.text;
}

/* --- attributes --------------------------------------------------------------------------------
 */

static bool attr_value(Sema *s, AttrKey key, Val v, Span span, Attr *out) {
  const char *what = attr_name(key);
  bool flag;
  *out = (Attr){.key = key};
  switch (attr_kind(key)) {
  case ATTR_KIND_INT:
    return want_int(s, v, span, what, &out->as.i);
  case ATTR_KIND_FLOAT:
    return want_float(s, v, span, what, &out->as.f);
  case ATTR_KIND_STRING:
    return want_string(s, v, span, what, &out->as.s);
  case ATTR_KIND_BOOL:
    if (!want_bool(s, v, span, what, &flag)) return false;
    out->as.i = flag;
    return true;
  case ATTR_KIND_INTS:
    out->as.ints.data = ARENA_ARRAY(s->arena, int64_t, DTM_MAX_DIMS);
    return want_ints(s, v, span, what, out->as.ints.data, DTM_MAX_DIMS, &out->as.ints.len);
  case ATTR_KIND_DTYPE:
    if (v.kind != VAL_DTYPE) {
      if (v.kind != VAL_POISON)
        sema_error(s, DIAG_VALUE_KIND, span, "%s must be an element type such as f32, not %s", what,
                   val_kind_name(v));
      return false;
    }
    out->as.i = v.as.dtype;
    return true;
  case ATTR_KIND_TYPE:
    if (v.kind != VAL_TYPE) {
      if (v.kind != VAL_POISON)
        sema_error(s, DIAG_VALUE_KIND, span, "%s must be a type such as f32[B, D], not %s", what,
                   val_kind_name(v));
      return false;
    }
    out->as.type = v.as.type;
    return true;
  case ATTR_KIND_NONE:
    break;
  }
  return false;
}

/* --- operands ----------------------------------------------------------------------------------
 */

static bool needs_one_dtype(Op op, uint32_t operand) {
  const OpInfo *info = op_info(op);
  if (op == OP_WHERE) return operand > 0;
  return info->cls == CLASS_POINTWISE || info->cls == CLASS_CONTRACTION || op == OP_CONCAT ||
         op == OP_LAYER_NORM || op == OP_RMS_NORM;
}

static bool report_dtypes(Sema *s, Op op, DType a, Span a_span, DType b, Span b_span, Span span) {
  Diag *d = sema_error(s, DIAG_OPERAND_DTYPE, span, "%s takes one element type, not %s and %s",
                       op_name(op), dtype_name(a), dtype_name(b));
  diag_reason(s->sink, d, "element types are never converted silently");
  bool first = dtype_widens(a, b); /* the narrower side is the one to convert */
  Span narrow = first ? a_span : b_span;
  const char *text = source_text(s, narrow), *to = dtype_name(first ? b : a);
  bool plain = strcspn(text, " ") == strlen(text);
  if (*text) {
    const char *fixed = arena_printf(s->arena, plain ? "%s.to(%s)" : "(%s).to(%s)", text, to);
    diag_help(s->sink, d, narrow, fixed, NULL, "%s", fixed);
  }
  return false;
}

/* Element type for literals when no operand is a tensor of the type in question. */
static DType literal_dtype(Sema *s, const Val *values, uint32_t n, uint32_t first) {
  bool all_bool = true, all_int = true;
  for (uint32_t i = first; i < n; i++) {
    all_bool &= values[i].kind == VAL_BOOL;
    all_int &= values[i].kind == VAL_INT;
  }
  return all_bool ? DT_BOOL : all_int ? DT_I64 : dtype_map(s, DT_F32);
}

bool unify_operands(Sema *s, Op op, const Val *values, const Span *spans, uint32_t n, ValueId *out,
                    Span span) {
  bool pointwise = op_info(op)->cls == CLASS_POINTWISE;
  DType dtype = DT_NONE;
  Span dtype_span = span;
  const Mesh *mesh = s->at.mesh;
  bool ok = true;
  for (uint32_t i = 0; i < n; i++) {
    if (!val_is_tensor(values[i])) continue;
    const TensorType *t = tensor_type(s, values[i]);
    mesh = t->mesh;
    if (!needs_one_dtype(op, i)) continue;
    if (dtype && t->dtype != dtype)
      return report_dtypes(s, op, dtype, dtype_span, t->dtype, spans[i], span);
    dtype = t->dtype;
    dtype_span = spans[i];
  }
  for (uint32_t i = 0; i < n; i++) {
    bool literal = val_is_number(values[i]);
    if (!literal || !pointwise) {
      bool tensor = val_is_tensor(values[i]); /* else the message says which operand it is */
      ok &= as_tensor(
          s, values[i], spans[i],
          tensor ? NULL : arena_printf(s->arena, "operand %u of %s", i + 1, op_name(op)), &out[i]);
      continue;
    }
    bool condition = op == OP_WHERE && i == 0;
    if (!dtype && !condition) dtype = literal_dtype(s, values, n, op == OP_WHERE);
    ok &= literal_const(s, values[i], condition ? DT_BOOL : dtype, mesh, spans[i], &out[i]);
  }
  return ok;
}

Val call_op(Sema *s, Op op, const Call *call) {
  const OpInfo *info = op_info(op);
  const Signature *sig = signature_of(s, op);
  Val values[MAX_WORDS];
  Span spans[MAX_WORDS];
  ArgRest extra; /* large: what lies beyond its length is never read */
  extra.len = 0;
  bool takes_rest = false;
  for (uint32_t i = 0; i < sig->n; i++) takes_rest |= sig->words[i].rest;
  if (!bind_args(s, call, sig->specs, sig->n, values, spans, NULL, takes_rest ? &extra : NULL))
    return POISON;

  Val operands[INFER_MAX_OPERANDS];
  Span operand_spans[INFER_MAX_OPERANDS];
  Attr attrs[MAX_WORDS];
  uint32_t noperands = 0, nattrs = 0;
  bool tensors = false;
  for (uint32_t i = 0; i < sig->n; i++) {
    Val v = values[i];
    if (sig->words[i].rest && v.kind != VAL_UNSET && v.kind != VAL_LIST) {
      /* permute(x, 0, 2, 1): the numbers that follow belong to it */
      List *list = list_new(s, extra.len + 1);
      list->data[0] = v;
      for (uint32_t e = 0; e < extra.len; e++) list->data[e + 1] = extra.data[e].value;
      v = val_list(list);
      extra.len = 0;
    }
    if (sig->words[i].kind == WORD_ATTR) {
      if (v.kind == VAL_UNSET || v.kind == VAL_NONE) continue;
      if (!attr_value(s, sig->words[i].key, v, spans[i], &attrs[nattrs++])) return POISON;
      continue;
    }
    if (v.kind == VAL_UNSET && sig->words[i].has_default) v = val_float(sig->words[i].otherwise);
    if (v.kind == VAL_UNSET || (v.kind == VAL_NONE && !sig->specs[i].required)) continue;
    uint32_t count = sig->words[i].kind == WORD_OPERANDS ? v.as.list->len : 1;
    for (uint32_t k = 0; k < count; k++) {
      if (noperands == INFER_MAX_OPERANDS) {
        sema_error(s, DIAG_ARGUMENTS, call->span, "%s takes at most %d operands", call->name,
                   INFER_MAX_OPERANDS);
        return POISON;
      }
      Val operand = sig->words[i].kind == WORD_OPERANDS ? v.as.list->data[k] : v;
      tensors |= val_is_tensor(operand);
      operands[noperands] = operand;
      operand_spans[noperands++] = spans[i];
    }
  }
  if (extra.len) {
    sema_error(s, DIAG_ARGUMENTS, extra.data[0].span, "%s takes fewer arguments", call->name);
    return POISON;
  }
  if (!tensors && info->max_operands > 0) {
    Val folded = nattrs ? (Val){0} : fold_scalar(s, info->name, operands, noperands, call->span);
    if (folded.kind != VAL_UNSET) return folded;
    sema_error(s, DIAG_VALUE_KIND, call->span, "%s needs a tensor operand", call->name);
    return POISON;
  }
  ValueId ids[INFER_MAX_OPERANDS];
  if (!unify_operands(s, op, operands, operand_spans, noperands, ids, call->span)) return POISON;
  return emit(s, op, ids, noperands, attrs, nattrs, call->span, operand_spans);
}
