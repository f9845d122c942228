/* Expressions and types as canonical source. Parentheses of the source are kept, missing ones that
 * a tree needs are added. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "syntax/print.h"

#define T(text) doc_text(p->arena, (text))
#define CAT(...) DOC_CAT(p->arena, __VA_ARGS__)

/* How tightly an expression holds together, loosest first; the grammar's levels. */
typedef enum Level {
  LEVEL_ANY,
  LEVEL_OR,
  LEVEL_AND,
  LEVEL_COMPARE,
  LEVEL_ADD,
  LEVEL_MUL,
  LEVEL_UNARY,
  LEVEL_POWER,
  LEVEL_OPERAND, /* types: complete, but nothing may be appended */
  LEVEL_POSTFIX
} Level;

static const struct {
  const char *text;
  Level level;
} binary_ops[] = {
    [BINARY_ADD] = {"+", LEVEL_ADD},     [BINARY_SUB] = {"-", LEVEL_ADD},
    [BINARY_MUL] = {"*", LEVEL_MUL},     [BINARY_DIV] = {"/", LEVEL_MUL},
    [BINARY_MOD] = {"%", LEVEL_MUL},     [BINARY_POW] = {"**", LEVEL_POWER},
    [BINARY_LT] = {"<", LEVEL_COMPARE},  [BINARY_LE] = {"<=", LEVEL_COMPARE},
    [BINARY_GT] = {">", LEVEL_COMPARE},  [BINARY_GE] = {">=", LEVEL_COMPARE},
    [BINARY_EQ] = {"==", LEVEL_COMPARE}, [BINARY_NE] = {"!=", LEVEL_COMPARE},
    [BINARY_AND] = {"&&", LEVEL_AND},    [BINARY_OR] = {"||", LEVEL_OR},
};

static Level level_of(const Expr *e) {
  if (e->parens) return LEVEL_POSTFIX;
  switch (e->kind) {
  case EXPR_CONDITIONAL:
  case EXPR_ON:
    return LEVEL_ANY;
  case EXPR_BINARY:
    return binary_ops[e->as.binary.op].level;
  case EXPR_UNARY:
  case EXPR_RECOMPUTE:
    return LEVEL_UNARY;
  case EXPR_TYPE:
    return e->as.type->mesh ? LEVEL_ANY : LEVEL_OPERAND;
  case EXPR_INT:
    return e->as.i < 0 ? LEVEL_UNARY : LEVEL_POSTFIX;
  case EXPR_FLOAT:
    return e->as.f < 0 ? LEVEL_UNARY : LEVEL_POSTFIX;
  case EXPR_ERROR:
  case EXPR_STRING:
  case EXPR_BOOL:
  case EXPR_NONE:
  case EXPR_NAME:
  case EXPR_CALL:
  case EXPR_INDEX:
  case EXPR_MEMBER:
  case EXPR_LIST:
  case EXPR_TUPLE:
  case EXPR_COMPREHENSION:
  case EXPR_LOCAL:
  case EXPR_AUTO:
    return LEVEL_POSTFIX;
  }
  return LEVEL_POSTFIX;
}

static Doc *bare(Printer *p, const Expr *e);

static Doc *at_level(Printer *p, const Expr *e, Level level) {
  bool parens = e->parens || level_of(e) < level;
  Doc *d = bare(p, e);
  return parens ? CAT(T("("), d, T(")")) : d;
}

Doc *print_expr(Printer *p, const Expr *e) {
  return doc_group(p->arena, at_level(p, e, LEVEL_ANY));
}

Doc *print_postfix(Printer *p, const Expr *e) {
  return at_level(p, e, LEVEL_POSTFIX);
}

Doc *print_string(Printer *p, const char *value) {
  StrBuf out;
  strbuf_init(&out, p->arena);
  strbuf_putc(&out, '"');
  for (; *value; value++) {
    unsigned char c = (unsigned char)*value;
    if (c == '"' || c == '\\')
      strbuf_printf(&out, "\\%c", c);
    else if (c == '\n')
      strbuf_puts(&out, "\\n");
    else if (c == '\t')
      strbuf_puts(&out, "\\t");
    else if (c == '\r')
      strbuf_puts(&out, "\\r");
    else if (c < 0x20 || c == 0x7F)
      strbuf_printf(&out, "\\u{%X}", c);
    else
      strbuf_putc(&out, (char)c);
  }
  strbuf_putc(&out, '"');
  return T(out.text);
}

/* The shortest text that reads back as the same double and is no integer. */
static const char *float_text(Arena *arena, double value) {
  char *text = NULL;
  for (int digits = 1; digits <= 17; digits++) {
    text = arena_printf(arena, "%.*g", digits, value);
    if (strtod(text, NULL) == value) break;
  }
  return strpbrk(text, ".e") ? text : arena_printf(arena, "%s.0", text);
}

static Doc *args(Printer *p, const ArgList *list, uint32_t end) {
  Elements elements = {0};
  for (uint32_t i = 0; i < list->len; i++) {
    const Arg *arg = &list->data[i];
    /* `"cp" as "data"`: the second half of the argument before */
    const Arg *next = i + 1 < list->len ? &list->data[i + 1] : NULL;
    Doc *lead = print_comments_before(p, arg->span.start);
    Doc *d = print_expr(p, arg->value);
    if (arg->name) d = CAT(T(arg->name), T(arg->is_key ? ": " : " = "), d);
    if (!arg->name && next && next->name && !next->is_key && strcmp(next->name, "as") == 0) {
      d = CAT(d, T(" as "), print_expr(p, next->value));
      arg = next;
      i++;
    }
    print_element(p, &elements, lead, d, arg->span.end);
  }
  return print_brackets(p, "(", &elements, ")", end, true);
}

static Doc *indexes(Printer *p, const IndexList *list, uint32_t end) {
  Elements elements = {0};
  for (uint32_t i = 0; i < list->len; i++) {
    const IndexItem *item = &list->data[i];
    Doc *lead = print_comments_before(p, item->span.start);
    Doc *d = item->start ? print_expr(p, item->start) : NULL;
    if (item->is_slice) {
      d = CAT(d, T(":"), item->stop ? print_expr(p, item->stop) : NULL);
      if (item->step) d = CAT(d, T(":"), print_expr(p, item->step));
    }
    print_element(p, &elements, lead, d, item->span.end);
  }
  return print_brackets(p, "[", &elements, "]", end, false);
}

static bool is_plain_axis(const Expr *e) {
  return !e->parens && (e->kind == EXPR_NAME || e->kind == EXPR_STRING || e->kind == EXPR_NONE);
}

Doc *print_axes(Printer *p, const ExprList *axes) {
  if (axes->len == 1 && is_plain_axis(axes->data[0]))
    return CAT(T("@"), print_expr(p, axes->data[0]));
  Doc *d = T("@(");
  for (uint32_t i = 0; i < axes->len; i++)
    doc_append(p->arena, &d, CAT(T(i ? "," : ""), print_expr(p, axes->data[i])));
  return CAT(d, T(")"));
}

static Doc *items(Printer *p, const ItemList *list, const char *open, const char *close,
                  uint32_t end) {
  Elements elements = {0};
  for (uint32_t i = 0; i < list->len; i++) {
    const ListItem *item = &list->data[i];
    Doc *lead = print_comments_before(p, item->span.start);
    Doc *d = print_expr(p, item->value);
    if (item->axes.len) d = CAT(d, print_axes(p, &item->axes));
    print_element(p, &elements, lead, d, item->span.end);
  }
  return print_brackets(p, open, &elements, close, end, true);
}

/* Operands of one level share the breaks: a + b + c is one line or one operand a line. */
static Doc *binary(Printer *p, const Expr *e) {
  Level level = binary_ops[e->as.binary.op].level;
  bool power = level == LEVEL_POWER, compare = level == LEVEL_COMPARE;
  Doc *left = at_level(p, e->as.binary.left, power ? LEVEL_OPERAND : compare ? LEVEL_ADD : level);
  if (level_of(e->as.binary.left) != level) left = doc_group(p->arena, left);
  Doc *right =
      doc_group(p->arena, at_level(p, e->as.binary.right, power ? LEVEL_UNARY : level + 1));
  if (power) return CAT(left, T(" ** "), right);
  return CAT(left, T(" "), T(binary_ops[e->as.binary.op].text),
             doc_nest(p->arena, 2 * PRINT_INDENT, CAT(doc_space(p->arena), right)));
}

static Doc *comprehension(Printer *p, const Expr *e) {
  Doc *element = print_expr(p, e->as.comprehension.element);
  Doc *list = print_expr(p, e->as.comprehension.list);
  Doc *inner = CAT(doc_soft(p->arena), element, doc_space(p->arena), T("for "),
                   T(e->as.comprehension.var.text), T(" in "), list);
  if (e->as.comprehension.condition)
    inner = CAT(inner, doc_space(p->arena), T("if "), print_expr(p, e->as.comprehension.condition));
  return doc_group(
      p->arena, CAT(T("["), doc_nest(p->arena, PRINT_INDENT, inner), doc_soft(p->arena), T("]")));
}

/* Broken, it is two lines, the second with `else`; three where the first would be too long. */
static Doc *conditional(Printer *p, const Expr *e) {
  Doc *condition = print_expr(p, e->as.conditional.condition);
  Doc *yes = CAT(doc_space(p->arena), T("then "), print_expr(p, e->as.conditional.yes));
  Doc *no = CAT(doc_space(p->arena), T("else "), print_expr(p, e->as.conditional.no));
  Doc *d = CAT(T("if "), condition, doc_group(p->arena, yes), no);
  return doc_group(p->arena, doc_nest(p->arena, PRINT_INDENT, d));
}

/* What could not be read, as it stands. */
static Doc *verbatim(Printer *p, Span span) {
  if (!p->source || span.end > p->source->size) return T("<error>");
  return T(arena_strndup(p->arena, p->source->text + span.start, span.end - span.start));
}

/* Parts are made one after the other, never as arguments of one call: each takes the comments
 * before it, so their order is that of the source. */
static Doc *bare(Printer *p, const Expr *e) {
  Doc *d;
  switch (e->kind) {
  case EXPR_ERROR:
    return verbatim(p, e->span);
  case EXPR_INT:
    return T(e->spelling ? e->spelling : arena_printf(p->arena, "%" PRId64, e->as.i));
  case EXPR_FLOAT:
    return T(e->spelling ? e->spelling : float_text(p->arena, e->as.f));
  case EXPR_STRING:
    return e->spelling ? T(e->spelling) : print_string(p, e->as.s);
  case EXPR_BOOL:
    return T(e->as.b ? "true" : "false");
  case EXPR_NONE:
    return T("none");
  case EXPR_NAME:
    return T(e->as.s);
  case EXPR_UNARY:
    return CAT(T(e->as.unary.op == UNARY_NEG ? "-" : "!"),
               at_level(p, e->as.unary.operand, LEVEL_UNARY));
  case EXPR_BINARY:
    return binary(p, e);
  case EXPR_CONDITIONAL:
    return conditional(p, e);
  case EXPR_CALL:
    d = print_postfix(p, e->as.call.callee);
    return CAT(d, args(p, &e->as.call.args, e->span.end));
  case EXPR_INDEX:
    d = print_postfix(p, e->as.index.base);
    return CAT(d, indexes(p, &e->as.index.items, e->span.end));
  case EXPR_MEMBER:
    return CAT(print_postfix(p, e->as.member.base), T("."), T(e->as.member.name));
  case EXPR_LIST:
    return items(p, &e->as.list, "[", "]", e->span.end);
  case EXPR_TUPLE:
    if (e->as.list.len == 1) return CAT(T("("), print_expr(p, e->as.list.data[0].value), T(",)"));
    return items(p, &e->as.list, "(", ")", e->span.end);
  case EXPR_COMPREHENSION:
    return comprehension(p, e);
  case EXPR_TYPE:
    return print_type(p, e->as.type);
  case EXPR_ON:
    d = at_level(p, e->as.on.value, LEVEL_OR);
    return CAT(d, T(" on "), print_postfix(p, e->as.on.mesh));
  case EXPR_RECOMPUTE:
    return CAT(T("recompute "), print_postfix(p, e->as.recompute));
  case EXPR_LOCAL: {
    const ArgList *list = &e->as.local.args;
    uint32_t end = list->len ? list->data[list->len - 1].span.end : 0;
    d = CAT(T("local"), args(p, list, end));
    d = CAT(d, print_results(p, &e->as.local.results), T(" "));
    return CAT(d, print_block(p, &e->as.local.body, e->span.end));
  }
  case EXPR_AUTO:
    d = CAT(T(e->as.auto_.unchecked ? "unchecked(out = " : "auto(out = "),
            print_expr(p, e->as.auto_.layout), T(") "));
    return CAT(d, print_block(p, &e->as.auto_.body, e->span.end));
  }
  return NULL;
}

static Doc *partials(Printer *p, const PartialList *list) {
  Doc *d = T(" partial(");
  for (uint32_t i = 0; i < list->len; i++) {
    doc_append(p->arena, &d, CAT(T(i ? ", " : ""), print_expr(p, list->data[i].axis)));
    if (list->data[i].op) doc_append(p->arena, &d, CAT(T(": "), T(list->data[i].op)));
  }
  return CAT(d, T(")"));
}

static Doc *places(Printer *p, const PlaceList *list) {
  Doc *d = T(" place {");
  for (uint32_t i = 0; i < list->len; i++) {
    d = CAT(d, T(i ? ", " : ""), print_expr(p, list->data[i].axis), T(": "));
    d = CAT(d, print_postfix(p, list->data[i].placement));
  }
  return CAT(d, T("}"));
}

Doc *print_type(Printer *p, const TypeExpr *t) {
  Doc *d = CAT(T(t->name ? t->name : dtype_name(t->dtype)), t->optional ? T("?") : NULL);
  if (t->has_dims) d = CAT(d, items(p, &t->dims, "[", "]", t->span.end));
  if (t->partials.len) d = CAT(d, partials(p, &t->partials));
  if (t->has_places) d = CAT(d, places(p, &t->places));
  if (t->mesh) d = CAT(d, T(" on "), print_postfix(p, t->mesh));
  return d;
}

Doc *print_results(Printer *p, const TypeList *results) {
  if (!results->len) return NULL;
  Doc *d = CAT(doc_space(p->arena), T("-> "));
  for (uint32_t i = 0; i < results->len; i++)
    d = CAT(d, T(i ? ", " : ""), print_type(p, results->data[i]));
  return doc_group(p->arena, doc_nest(p->arena, 2 * PRINT_INDENT, d));
}

Doc *print_params(Printer *p, const ParamList *params) {
  Elements elements = {0};
  uint32_t end = 0;
  for (uint32_t i = 0; i < params->len; i++) {
    const ParamDecl *param = &params->data[i];
    Doc *lead = print_comments_before(p, param->span.start);
    Doc *d = T(param->name);
    if (param->type) d = CAT(d, T(": "), print_type(p, param->type));
    if (param->fallback) d = CAT(d, T(" = "), print_expr(p, param->fallback));
    end = param->span.end;
    print_element(p, &elements, lead, d, end);
  }
  return print_brackets(p, "(", &elements, ")", end, true);
}
