/* `data x = npy("train.npy", i32[batch@dp, seq])`: sources of batches. See elab.h. */
#include <inttypes.h>
#include <string.h>

#include "sema/elab.h"

static const char *const readers[] = {"npy", "idx", "text", "bin", "raw", "prompt"};

static bool is_reader(const char *name) {
  for (size_t i = 0; i < sizeof readers / sizeof *readers; i++)
    if (strcmp(readers[i], name) == 0) return true;
  return false;
}

static void not_a_reader(Sema *s, const Stmt *stmt, Span span) {
  Diag *d = sema_error(s, DIAG_DATA, span, "data %s needs a reader", stmt->as.setting.name);
  diag_reason(s->sink, d, "the readers are npy, idx, text, bin, raw and prompt");
  diag_help(s->sink, d, (Span){0}, NULL, NULL,
            "write it as in: data %s = npy(\"train.npy\", f32[batch@dp, 784])",
            stmt->as.setting.name);
}

/* All sources of a block give the same number of samples at once. */
static bool same_batch(Sema *s, const RunBlock *block, const DataSource *source) {
  if (!block->out->data.len) return true;
  const DataSource *first = &block->out->data.data[0];
  if (first->type.shape[0] == source->type.shape[0]) return true;
  Diag *d =
      sema_error(s, DIAG_DATA, source->span, "%s has a batch of %" PRId64 ", %s one of %" PRId64,
                 source->name, source->type.shape[0], first->name, first->type.shape[0]);
  diag_note(s->sink, d, first->span, "dim 0 of every source is the batch");
  return false;
}

static bool check_type(Sema *s, const TensorType *t, Span span) {
  const char *fault = NULL;
  if (t->rank == 0)
    fault = "data needs at least one dim: dim 0 is the batch";
  else if (t->shape[0] == 0)
    fault = "the batch cannot be empty";
  else if (layout_has_partial(&t->layout))
    fault = "data cannot be Partial";
  if (fault) sema_error(s, DIAG_DATA, span, "%s", fault);
  return !fault;
}

/* (0.0, 0.9): the first nine tenths of the samples. */
static bool part(Sema *s, Val v, Span span, DataSource *source) {
  bool two = v.kind == VAL_LIST && v.as.list->len == 2;
  if (two && (!want_float(s, v.as.list->data[0], span, "part", &source->from) ||
              !want_float(s, v.as.list->data[1], span, "part", &source->to)))
    return false;
  if (two && 0 <= source->from && source->from < source->to && source->to <= 1) return true;
  Diag *d = sema_error(s, DIAG_DATA, span, "part is where the samples begin and end, from 0 to 1");
  diag_help(s->sink, d, (Span){0}, NULL, NULL,
            "train on part = (0.0, 0.9) and evaluate on part = (0.9, 1.0)");
  return false;
}

void block_data(Sema *s, Env *env, RunBlock *block, const Stmt *stmt) {
  enum { PATH, TYPE, DTYPE, BELOW, SCALE, PART, COUNT };
  const Expr *e = NULL;
  for (uint32_t i = 0; i < stmt->as.setting.parts.len; i++)
    if (!stmt->as.setting.parts.data[i].word) e = stmt->as.setting.parts.data[i].value;
  const char *name = stmt->as.setting.name;
  Val bound = POISON;
  Val v[COUNT];
  Span at[COUNT];
  DataSource source = {.name = name, .scale = 1, .span = stmt->as.setting.name_span};
  bool is_call = e && e->kind == EXPR_CALL && e->as.call.callee->kind == EXPR_NAME;
  if (!is_call || !is_reader(e->as.call.callee->as.s)) {
    not_a_reader(s, stmt, e ? e->span : stmt->span);
    env_declare(s, block->env, name, BIND_CONST, bound, source.span);
    return;
  }
  source.reader = e->as.call.callee->as.s;
  Call call = {.env = env, .name = source.reader, .nargs = e->as.call.args.len, .span = e->span};
  call.args = eval_args(s, env, &e->as.call.args, 0);
  bool ok = bind_words(s, &call, "path type dtype? below? scale? part?", v, at) &&
            want_string(s, v[PATH], at[PATH], "the path", &source.path);
  if (ok && v[TYPE].kind != VAL_TYPE) {
    sema_error(s, DIAG_DATA, at[TYPE],
               "a reader takes the type of a batch, as in f32[batch@dp, 784]");
    ok = false;
  }
  if (ok && v[DTYPE].kind != VAL_UNSET) {
    if (v[DTYPE].kind == VAL_DTYPE) source.file_dtype = v[DTYPE].as.dtype;
    ok = v[DTYPE].kind == VAL_DTYPE;
    if (!ok) sema_error(s, DIAG_DATA, at[DTYPE], "dtype must be an element type such as i32");
  }
  if (ok && v[BELOW].kind != VAL_UNSET)
    ok = want_int(s, v[BELOW], at[BELOW], "below", &source.below);
  if (ok && v[BELOW].kind != VAL_UNSET && source.below < 1) {
    sema_error(s, DIAG_DATA, at[BELOW], "below must be at least 1: values are from 0 up to it");
    ok = false;
  }
  if (ok && v[SCALE].kind != VAL_UNSET)
    ok = want_float(s, v[SCALE], at[SCALE], "scale", &source.scale);
  if (ok && v[PART].kind != VAL_UNSET) ok = part(s, v[PART], at[PART], &source);
  if (ok && strcmp(source.reader, "raw") == 0 && !source.file_dtype) {
    sema_error(s, DIAG_DATA, e->span, "raw needs the element type of the file, as in dtype = %s",
               dtype_name(v[TYPE].as.type->dtype));
    ok = false;
  }
  if (ok) {
    source.type = *v[TYPE].as.type;
    ok = check_type(s, &source.type, at[TYPE]);
    if (ok) source.type.shape[0] = block_micro_rows(s, block, source.type.shape[0], at[TYPE]);
    ok = ok && same_batch(s, block, &source);
    bool is_float = dtype_is_float(source.type.dtype);
    if (strcmp(source.reader, "prompt") == 0 && (is_float || source.type.rank != 2)) {
      sema_error(s, DIAG_DATA, at[TYPE],
                 "a prompt is read as integers [rows, bytes at most], not %s",
                 type_print(s->arena, &source.type));
      ok = false;
    }
    if (v[SCALE].kind != VAL_UNSET && !is_float) {
      sema_error(s, DIAG_DATA, at[SCALE], "scale is for floats, but %s is read as %s", name,
                 dtype_name(source.type.dtype));
      ok = false;
    }
    if (v[BELOW].kind != VAL_UNSET && is_float) {
      sema_error(s, DIAG_DATA, at[BELOW], "below is for integers, but %s is read as %s", name,
                 dtype_name(source.type.dtype));
      ok = false;
    }
  }
  if (ok) {
    uint32_t index = block->out->data.len;
    VEC_PUSH(s->arena, &block->out->data, source);
    Attr attrs[] = {ATTR_T(TYPE, &source.type), ATTR_I(SOURCE, index)};
    bound = val_tensor(emit_typed(s, OP_INPUT, attrs, 2, &source.type, source.span));
    name_value(s, bound, name);
  }
  env_declare(s, block->env, name, BIND_CONST, bound, source.span);
}
