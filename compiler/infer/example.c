/* Example nodes from their text: see example.h, examples.def. */
#include "infer/example.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef struct Row {
  Op op;
  const char *operands, *attrs;
} Row;

static const Row rows[] = {
#define EXAMPLE(OP, operands, attrs) {OP_##OP, operands, attrs},
#include "infer/examples.def"
};
enum { ROWS = sizeof rows / sizeof *rows };

/* --- pointwise: from arity and element types -----------------------------------------------------
 */

/* '?' stands for the operand's element type, "c" for a scalar constant. */
static const char *const shapes[3][4] = {
    {"?[a b]", NULL},
    {"?[a b]; ?[a b]", "?[a b]; ?[b]", "?[a b]; c", "c; ?[a b]"},
    {"?[a b]; ?[a b]; ?[a b]", "?[a b]; ?[a b]; c", "?[a b]; c; ?[a b]", NULL},
};

/* Element types to try, one letter each; a cast has "from" and "to" instead. */
static const char *pointwise_types(TypeRule rule) {
  switch (rule) {
  case TR_NUMBER:
    return "fn";
  case TR_FLOAT:
  case TR_TEST:
    return "f";
  case TR_INTEGER:
    return "n";
  case TR_BOOL:
    return "b";
  case TR_COMPARE:
    return "fb";
  case TR_WHERE:
    return "fn";
  case TR_CAST:
  case TR_NONE:
    break;
  }
  return "";
}

static const struct {
  char from;
  const char *to;
} casts[] = {{'f', "f64"}, {'f', "f16"}, {'f', "i32"}, {'f', "bool"},
             {'n', "f64"}, {'n', "f16"}, {'n', "i64"}, {'b', "f32"}};
enum { CASTS = sizeof casts / sizeof *casts };

static uint32_t count_shapes(uint32_t arity) {
  uint32_t n = 0;
  while (n < 4 && shapes[arity - 1][n]) n++;
  return n;
}

static Row pointwise_row(Arena *arena, Op op, uint32_t variant) {
  const OpInfo *info = op_info(op);
  if (info->types == TR_CAST)
    return (Row){op, arena_printf(arena, "%c[a b]", casts[variant].from),
                 arena_printf(arena, "dtype=%s", casts[variant].to)};
  uint32_t n = count_shapes(info->max_operands);
  char type = pointwise_types(info->types)[variant / n];
  char *text = arena_strdup(arena, shapes[info->max_operands - 1][variant % n]);
  bool first = true;
  for (char *s = text; *s; s++) {
    if (*s == '?') *s = info->types == TR_WHERE && first ? 'b' : type;
    if (*s == ';') first = false;
  }
  /* A constant among integers or bools is of their type. */
  for (char *s = text; type != 'f' && *s; s++)
    if (*s == 'c') *s = 'k';
  return (Row){op, text, ""};
}

uint32_t example_count(Op op) {
  const OpInfo *info = op_info(op);
  if (info->cls == CLASS_POINTWISE)
    return info->types == TR_CAST
               ? (uint32_t)CASTS
               : count_shapes(info->max_operands) * (uint32_t)strlen(pointwise_types(info->types));
  uint32_t n = 0;
  for (uint32_t i = 0; i < ROWS; i++) n += rows[i].op == op;
  return n;
}

/* --- parsing -------------------------------------------------------------------------------------
 */

typedef struct Reader {
  Arena *arena;
  const char *at;
  const int64_t *extent;
  const Mesh *mesh;
  ExampleNode *out;
} Reader;

static void skip(Reader *r) {
  while (*r->at == ' ' || *r->at == ';') r->at++;
}

static int64_t read_term(Reader *r) {
  if (islower((unsigned char)*r->at)) {
    r->out->letters |= 1u << (*r->at - 'a');
    return r->extent[*r->at++ - 'a'];
  }
  char *end;
  int64_t v = strtoll(r->at, &end, 10);
  r->at = end;
  return v;
}

static int64_t read_int(Reader *r) {
  int64_t v = read_term(r);
  while (*r->at == '*' || *r->at == '+') v = *r->at++ == '*' ? v * read_term(r) : v + read_term(r);
  return v;
}

static DType element(char c) {
  switch (c) {
  case 'd':
    return DT_F64;
  case 'n':
  case 'k':
    return DT_I32;
  case 'l':
    return DT_I64;
  case 'b':
    return DT_BOOL;
  }
  return DT_F32;
}

static void read_dims(Reader *r, TensorType *t) {
  for (r->at++; *r->at != ']';) {
    t->shape[t->rank++] = read_int(r);
    while (*r->at == ' ') r->at++;
  }
  r->at++;
}

static void read_operands(Reader *r, const char *text) {
  for (r->at = text, skip(r); *r->at; skip(r)) {
    Operand *o = &r->out->operands[r->out->noperands];
    o->type = (TensorType){.dtype = element(*r->at), .mesh = r->mesh};
    o->is_const = *r->at == 'c' || *r->at == 'k';
    o->const_value = 2;
    r->at++;
    if (*r->at == '<') {
      r->at++;
      r->out->below[r->out->noperands] = read_term(r);
    }
    if (*r->at == '[') read_dims(r, &o->type);
    r->out->noperands++;
  }
}

static void read_value(Reader *r, Attr *a) {
  const char *end = r->at + strcspn(r->at, ";");
  switch (attr_kind(a->key)) {
  case ATTR_KIND_INT:
  case ATTR_KIND_BOOL:
    a->as.i = read_int(r);
    break;
  case ATTR_KIND_FLOAT:
    a->as.f = strtod(r->at, NULL);
    break;
  case ATTR_KIND_STRING:
    a->as.s = arena_strndup(r->arena, r->at, (size_t)(end - r->at));
    break;
  case ATTR_KIND_DTYPE:
    a->as.i = dtype_by_name(arena_strndup(r->arena, r->at, (size_t)(end - r->at)));
    break;
  case ATTR_KIND_INTS:
    a->as.ints.data = ARENA_ARRAY(r->arena, int64_t, DTM_MAX_DIMS);
    for (a->as.ints.len = 0; r->at < end; r->at += *r->at == ',')
      a->as.ints.data[a->as.ints.len++] = read_int(r);
    break;
  case ATTR_KIND_TYPE: {
    TensorType *t = ARENA_NEW(r->arena, TensorType);
    *t = (TensorType){.dtype = DT_F32, .mesh = r->mesh};
    read_dims(r, t);
    a->as.type = r->out->stated = t;
    break;
  }
  case ATTR_KIND_NONE:
    break;
  }
  r->at = end;
}

static void read_attrs(Reader *r, const char *text) {
  for (r->at = text, skip(r); *r->at; skip(r)) {
    size_t n = strcspn(r->at, "=");
    Attr *a = &r->out->attrs[r->out->nattrs++];
    a->key = attr_by_name(arena_strndup(r->arena, r->at, n));
    r->at += n + 1;
    read_value(r, a);
  }
}

void example_build(Arena *arena, Op op, uint32_t variant, const int64_t extent[EXAMPLE_LETTERS],
                   const Mesh *mesh, ExampleNode *out) {
  Row row = {OP_NONE, "", ""};
  if (op_info(op)->cls == CLASS_POINTWISE) {
    row = pointwise_row(arena, op, variant);
  } else {
    for (uint32_t i = 0; i < ROWS; i++)
      if (rows[i].op == op && variant-- == 0) row = rows[i];
  }
  *out = (ExampleNode){.op = op};
  Reader r = {.arena = arena, .extent = extent, .mesh = mesh, .out = out};
  read_operands(&r, row.operands);
  read_attrs(&r, row.attrs);
}
