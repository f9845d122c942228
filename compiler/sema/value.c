/* Compile-time values: naming, printing, comparing, converting with a report. See elab.h. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sema/elab.h"

const char *val_kind_name(Val v) {
  switch (v.kind) {
  case VAL_UNSET:
  case VAL_POISON:
    return "nothing";
  case VAL_NONE:
    return "none";
  case VAL_BOOL:
    return "a bool";
  case VAL_INT:
    return "an int";
  case VAL_FLOAT:
    return "a float";
  case VAL_STRING:
    return "a string";
  case VAL_DTYPE:
    return "an element type";
  case VAL_AXIS:
    return "a mesh dim";
  case VAL_MESH:
    return "a mesh";
  case VAL_LAYOUT:
    return "a layout";
  case VAL_TYPE:
    return "a tensor type";
  case VAL_PLACE:
    return "a placement";
  case VAL_LIST:
    return "a list";
  case VAL_TENSOR:
  case VAL_VAR:
    return "a tensor";
  case VAL_FN:
  case VAL_METHOD:
    return "a function";
  case VAL_MODULE:
    return "a module";
  case VAL_INSTANCE:
    return "a module instance";
  case VAL_FILE:
    return "an imported file";
  case VAL_BUILTIN:
    return "a built-in function";
  }
  return "?";
}

static void print_into(Sema *s, Val v, StrBuf *out) {
  switch (v.kind) {
  case VAL_BOOL:
    strbuf_puts(out, v.as.b ? "true" : "false");
    return;
  case VAL_INT:
    strbuf_printf(out, "%" PRId64, v.as.i);
    return;
  case VAL_FLOAT: {
    /* The shortest text that reads back, always recognisable as a float. */
    char text[40];
    for (int digits = 6; digits <= 17; digits++) {
      snprintf(text, sizeof text, "%.*g", digits, v.as.f);
      if (strtod(text, NULL) == v.as.f) break;
    }
    strbuf_puts(out, text);
    if (isfinite(v.as.f) && !strpbrk(text, ".e")) strbuf_puts(out, ".0");
    return;
  }
  case VAL_STRING:
    strbuf_printf(out, "\"%s\"", v.as.s);
    return;
  case VAL_DTYPE:
    strbuf_puts(out, dtype_name(v.as.dtype));
    return;
  case VAL_AXIS:
    strbuf_puts(out, v.as.s);
    return;
  case VAL_MESH:
    strbuf_puts(out, mesh_print(s->arena, v.as.mesh));
    return;
  case VAL_LAYOUT:
  case VAL_TYPE:
    strbuf_puts(out, type_print(s->arena, v.as.type));
    return;
  case VAL_LIST:
    strbuf_putc(out, '[');
    for (uint32_t i = 0; i < v.as.list->len; i++) {
      if (i) strbuf_puts(out, ", ");
      print_into(s, v.as.list->data[i], out);
    }
    strbuf_putc(out, ']');
    return;
  case VAL_TENSOR:
  case VAL_VAR:
    strbuf_puts(out, type_print(s->arena, tensor_type(s, v)));
    return;
  case VAL_NONE:
    strbuf_puts(out, "none");
    return;
  case VAL_UNSET:
  case VAL_POISON:
  case VAL_PLACE:
  case VAL_FN:
  case VAL_METHOD:
  case VAL_MODULE:
  case VAL_INSTANCE:
  case VAL_FILE:
  case VAL_BUILTIN:
    strbuf_puts(out, val_kind_name(v));
    return;
  }
}

const char *val_print(Sema *s, Val v) {
  StrBuf sb;
  strbuf_init(&sb, s->arena);
  print_into(s, v, &sb);
  return sb.text;
}

Val val_whole(Val v) {
  if (!v.in_parts) return v;
  double w = v.whole.number;
  return v.kind == VAL_INT && w == (double)(int64_t)w ? val_int((int64_t)w) : val_float(w);
}

Val val_in_parts(Val v, Val whole) {
  bool numbers = (v.kind == VAL_INT || v.kind == VAL_FLOAT) &&
                 (whole.kind == VAL_INT || whole.kind == VAL_FLOAT);
  v.in_parts = numbers && val_as_double(v) != val_as_double(whole);
  if (v.in_parts) v.whole.number = val_as_double(whole);
  return v;
}

Val val_type_in_parts(Sema *s, Val type, const int64_t *whole) {
  const TensorType *t = type.as.type;
  for (uint32_t d = 0; d < t->rank; d++) type.in_parts |= whole[d] != t->shape[d];
  if (!type.in_parts) return type;
  int64_t *shape = ARENA_ARRAY(s->arena, int64_t, t->rank);
  memcpy(shape, whole, t->rank * sizeof *shape);
  type.whole.shape = shape;
  return type;
}

bool val_equal(Val a, Val b) {
  if (val_is_number(a) && val_is_number(b)) {
    if (a.kind != VAL_FLOAT && b.kind != VAL_FLOAT) {
      int64_t x = a.kind == VAL_BOOL ? a.as.b : a.as.i, y = b.kind == VAL_BOOL ? b.as.b : b.as.i;
      return x == y;
    }
    return val_as_double(a) == val_as_double(b);
  }
  /* A mesh dim equals its name. */
  bool a_name = a.kind == VAL_STRING || a.kind == VAL_AXIS;
  bool b_name = b.kind == VAL_STRING || b.kind == VAL_AXIS;
  if (a_name && b_name) return a.as.s == b.as.s;
  if (a.kind != b.kind) return false;
  switch (a.kind) {
  case VAL_NONE:
    return true;
  case VAL_DTYPE:
    return a.as.dtype == b.as.dtype;
  case VAL_MESH:
    return a.as.mesh == b.as.mesh;
  case VAL_LAYOUT:
  case VAL_TYPE:
    return type_equal(a.as.type, b.as.type);
  case VAL_PLACE:
    return a.as.place.kind == b.as.place.kind && a.as.place.op == b.as.place.op &&
           a.as.place.dim == b.as.place.dim;
  case VAL_LIST:
    if (a.as.list->len != b.as.list->len) return false;
    for (uint32_t i = 0; i < a.as.list->len; i++)
      if (!val_equal(a.as.list->data[i], b.as.list->data[i])) return false;
    return true;
  case VAL_INSTANCE:
    return a.as.instance == b.as.instance;
  case VAL_MODULE:
    return a.as.module->item == b.as.module->item;
  case VAL_FN:
    return a.as.fn == b.as.fn;
  case VAL_BUILTIN:
    return a.as.builtin == b.as.builtin;
  case VAL_UNSET:
  case VAL_POISON:
  case VAL_BOOL:
  case VAL_INT:
  case VAL_FLOAT:
  case VAL_STRING:
  case VAL_AXIS:
  case VAL_TENSOR:
  case VAL_VAR:
  case VAL_METHOD:
  case VAL_FILE:
    return false;
  }
  return false;
}

List *list_new(Sema *s, uint32_t len) {
  s->work += (uint64_t)len * SEMA_LIST_WORK; /* `eval` says so when it is too much */
  List *list = ARENA_NEW(s->arena, List);
  list->data = ARENA_ARRAY(s->arena, Val, len);
  list->len = len;
  return list;
}

Val val_list(const List *list) {
  return (Val){.kind = VAL_LIST, .as.list = list};
}

Val val_type(Sema *s, ValKind kind, const TensorType *t) {
  TensorType *copy = ARENA_NEW(s->arena, TensorType);
  *copy = *t;
  return (Val){.kind = kind, .as.type = copy};
}

static bool wrong_kind(Sema *s, Val v, Span span, const char *what, const char *wanted) {
  if (v.kind == VAL_POISON) return false;
  if (v.kind == VAL_FLOAT || v.kind == VAL_INT || v.kind == VAL_STRING)
    sema_error(s, DIAG_VALUE_KIND, span, "%s must be %s, not %s", what, wanted, val_print(s, v));
  else
    sema_error(s, DIAG_VALUE_KIND, span, "%s must be %s, not %s", what, wanted, val_kind_name(v));
  return false;
}

bool want_int(Sema *s, Val v, Span span, const char *what, int64_t *out) {
  if (v.kind == VAL_INT) {
    *out = v.as.i;
    return true;
  }
  if (v.kind == VAL_FLOAT && v.as.f == floor(v.as.f) && fabs(v.as.f) < 9e15) {
    *out = (int64_t)v.as.f;
    return true;
  }
  return wrong_kind(s, v, span, what, "an int");
}

bool want_float(Sema *s, Val v, Span span, const char *what, double *out) {
  if (v.kind != VAL_INT && v.kind != VAL_FLOAT) return wrong_kind(s, v, span, what, "a number");
  *out = val_as_double(val_whole(v));
  return true;
}

bool want_bool(Sema *s, Val v, Span span, const char *what, bool *out) {
  if (v.kind != VAL_BOOL) return wrong_kind(s, v, span, what, "true or false");
  *out = v.as.b;
  return true;
}

bool want_string(Sema *s, Val v, Span span, const char *what, const char **out) {
  if (v.kind != VAL_STRING) return wrong_kind(s, v, span, what, "a string");
  *out = v.as.s;
  return true;
}

bool want_list(Sema *s, Val v, Span span, const char *what, const List **out) {
  if (v.kind != VAL_LIST) return wrong_kind(s, v, span, what, "a list");
  *out = v.as.list;
  return true;
}

bool want_mesh(Sema *s, Val v, Span span, const char *what, const Mesh **out) {
  if (v.kind != VAL_MESH) return wrong_kind(s, v, span, what, "a mesh");
  *out = v.as.mesh;
  return true;
}

bool want_ints(Sema *s, Val v, Span span, const char *what, int64_t *out, uint32_t max,
               uint32_t *len) {
  if (v.kind != VAL_LIST) {
    *len = 1;
    return want_int(s, v, span, what, out);
  }
  if (v.as.list->len > max) {
    sema_error(s, DIAG_VALUE_KIND, span, "%s has %u elements; at most %u fit", what, v.as.list->len,
               max);
    return false;
  }
  *len = v.as.list->len;
  for (uint32_t i = 0; i < *len; i++)
    if (!want_int(s, v.as.list->data[i], span, what, &out[i])) return false;
  return true;
}

bool want_axis(Sema *s, Val v, const Mesh *mesh, Span span, bool missing_is_none, int *axis) {
  *axis = -1;
  switch (v.kind) {
  case VAL_NONE:
    return true;
  case VAL_AXIS:
  case VAL_STRING:
    *axis = mesh_axis(mesh, v.as.s);
    if (*axis >= 0 || (missing_is_none && v.kind == VAL_STRING)) return true;
    {
      Diag *d = sema_error(s, DIAG_UNKNOWN_AXIS, span, "the mesh has no dim named %s", v.as.s);
      diag_reason(s->sink, d, "its dims are: %s", mesh_dims_print(s->arena, mesh));
    }
    return false;
  case VAL_INT: {
    int64_t n = mesh_ndims(mesh), i = v.as.i < 0 ? v.as.i + n : v.as.i;
    if (i >= 0 && i < n) {
      *axis = (int)i;
      return true;
    }
    if (missing_is_none) return true;
    sema_error(s, DIAG_UNKNOWN_AXIS, span, "the mesh has no dim %" PRId64 ": it has %u dims",
               v.as.i, mesh_ndims(mesh));
    return false;
  }
  case VAL_UNSET:
  case VAL_POISON:
  case VAL_BOOL:
  case VAL_FLOAT:
  case VAL_DTYPE:
  case VAL_MESH:
  case VAL_LAYOUT:
  case VAL_TYPE:
  case VAL_PLACE:
  case VAL_LIST:
  case VAL_TENSOR:
  case VAL_VAR:
  case VAL_FN:
  case VAL_METHOD:
  case VAL_MODULE:
  case VAL_INSTANCE:
  case VAL_FILE:
  case VAL_BUILTIN:
    break;
  }
  return wrong_kind(s, v, span, "a mesh dim", "the name of a mesh dim, its index or none");
}
