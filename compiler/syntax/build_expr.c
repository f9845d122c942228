/* Builders of expressions and types. Every node gets the span of its text and its height. */
#include "syntax/build.h"

#include <string.h>

Diag *build_error(Builder *b, DiagCode code, Span span, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  const char *message = arena_vprintf(b->arena, fmt, ap);
  va_end(ap);
  if (++b->errors <= AST_MAX_ERRORS) return diag_emit(b->sink, code, span, "%s", message);
  return ARENA_NEW(b->arena, Diag);
}

Span span_join(Span first, Span last) {
  return (Span){first.file, first.start, last.end > first.start ? last.end : first.start};
}

static Expr *new_expr(Builder *b, ExprKind kind, Span span) {
  Expr *e = ARENA_NEW(b->arena, Expr);
  e->kind = kind;
  e->span = span;
  e->height = 1;
  return e;
}

static void raise(Expr *e, const Expr *child) {
  if (child && child->height >= e->height) e->height = (uint16_t)(child->height + 1);
}

/* Every composed node passes here: beyond the bound it becomes an error node. */
static Expr *checked(Builder *b, Expr *e) {
  if (e->height <= AST_MAX_HEIGHT) return e;
  if (!b->too_high) {
    Diag *d = build_error(b, DIAG_TOO_DEEP, e->span, "expression is too deep");
    diag_reason(b->sink, d, "an expression may have %d operators on a path", AST_MAX_HEIGHT);
    diag_help(b->sink, d, (Span){0}, NULL, NULL, "name parts of it with let");
  }
  b->too_high = true;
  return new_expr(b, EXPR_ERROR, e->span);
}

Expr *build_int(Builder *b, Span span, int64_t value, const char *spelling) {
  Expr *e = new_expr(b, EXPR_INT, span);
  e->as.i = value;
  e->spelling = spelling;
  return e;
}

Expr *build_float(Builder *b, Span span, double value, const char *spelling) {
  Expr *e = new_expr(b, EXPR_FLOAT, span);
  e->as.f = value;
  e->spelling = spelling;
  return e;
}

Expr *build_string(Builder *b, Span span, const char *value, const char *spelling) {
  Expr *e = new_expr(b, EXPR_STRING, span);
  e->as.s = value;
  e->spelling = spelling;
  return e;
}

Expr *build_bool(Builder *b, Span span, bool value) {
  Expr *e = new_expr(b, EXPR_BOOL, span);
  e->as.b = value;
  return e;
}

Expr *build_none(Builder *b, Span span) {
  return new_expr(b, EXPR_NONE, span);
}

Expr *build_name(Builder *b, Name name) {
  Expr *e = new_expr(b, EXPR_NAME, name.span);
  e->as.s = name.text;
  return e;
}

Expr *build_unary(Builder *b, Span op_span, UnaryOp op, Expr *operand) {
  Expr *e = new_expr(b, EXPR_UNARY, span_join(op_span, operand->span));
  e->as.unary.op = op;
  e->as.unary.operand = operand;
  raise(e, operand);
  return checked(b, e);
}

Expr *build_binary(Builder *b, Expr *left, BinaryOp op, Span op_span, Expr *right) {
  Expr *e = new_expr(b, EXPR_BINARY, span_join(left->span, right->span));
  e->as.binary.op = op;
  e->as.binary.left = left;
  e->as.binary.right = right;
  e->as.binary.op_span = op_span;
  raise(e, left);
  raise(e, right);
  return checked(b, e);
}

Expr *build_conditional(Builder *b, Span start, Expr *condition, Expr *yes, Expr *no) {
  Expr *e = new_expr(b, EXPR_CONDITIONAL, span_join(start, no->span));
  e->as.conditional.condition = condition;
  e->as.conditional.yes = yes;
  e->as.conditional.no = no;
  raise(e, condition);
  raise(e, yes);
  raise(e, no);
  return checked(b, e);
}

static void raise_args(Expr *e, const ArgList *args) {
  for (uint32_t i = 0; i < args->len; i++) raise(e, args->data[i].value);
}

static void raise_items(Expr *e, const ItemList *items) {
  for (uint32_t i = 0; i < items->len; i++) {
    raise(e, items->data[i].value);
    for (uint32_t k = 0; k < items->data[i].axes.len; k++) raise(e, items->data[i].axes.data[k]);
  }
}

Expr *build_call(Builder *b, Expr *callee, ArgList args, Span close) {
  Expr *e = new_expr(b, EXPR_CALL, span_join(callee->span, close));
  e->as.call.callee = callee;
  e->as.call.args = args;
  raise(e, callee);
  raise_args(e, &args);
  return checked(b, e);
}

Expr *build_index(Builder *b, Expr *base, IndexList items, Span close) {
  Expr *e = new_expr(b, EXPR_INDEX, span_join(base->span, close));
  e->as.index.base = base;
  e->as.index.items = items;
  raise(e, base);
  for (uint32_t i = 0; i < items.len; i++) {
    raise(e, items.data[i].start);
    raise(e, items.data[i].stop);
    raise(e, items.data[i].step);
  }
  return checked(b, e);
}

Expr *build_member(Builder *b, Expr *base, Name name) {
  Expr *e = new_expr(b, EXPR_MEMBER, span_join(base->span, name.span));
  e->as.member.base = base;
  e->as.member.name = name.text;
  e->as.member.name_span = name.span;
  raise(e, base);
  return checked(b, e);
}

Expr *build_parens(Builder *b, Span open, Expr *inner, Span close) {
  (void)b;
  inner->parens = true;
  inner->span = span_join(open, close);
  return inner;
}

Expr *build_list(Builder *b, ExprKind kind, Span open, ItemList items, Span close) {
  Expr *e = new_expr(b, kind, span_join(open, close));
  e->as.list = items;
  raise_items(e, &items);
  return checked(b, e);
}

Expr *build_comprehension(Builder *b, Span open, Expr *element, Name var, Expr *list,
                          Expr *condition, Span close) {
  Expr *e = new_expr(b, EXPR_COMPREHENSION, span_join(open, close));
  e->as.comprehension.element = element;
  e->as.comprehension.var = var;
  e->as.comprehension.list = list;
  e->as.comprehension.condition = condition;
  raise(e, element);
  raise(e, list);
  raise(e, condition);
  return checked(b, e);
}

Expr *build_type_expr(Builder *b, TypeExpr *type) {
  Expr *e = new_expr(b, EXPR_TYPE, type->span);
  e->as.type = type;
  raise_items(e, &type->dims);
  return checked(b, e);
}

Expr *build_on(Builder *b, Expr *value, Expr *mesh) {
  if (value->kind == EXPR_TYPE && !value->parens) { /* the mesh belongs to the type */
    build_type_on(b, value->as.type, mesh);
    value->span = value->as.type->span;
    return value;
  }
  Expr *e = new_expr(b, EXPR_ON, span_join(value->span, mesh->span));
  e->as.on.value = value;
  e->as.on.mesh = mesh;
  raise(e, value);
  raise(e, mesh);
  return checked(b, e);
}

Expr *build_recompute(Builder *b, Span start, Expr *value) {
  if (value->kind != EXPR_CALL && value->kind != EXPR_ERROR) {
    Diag *d = build_error(b, DIAG_SYNTAX, value->span, "recompute stands before a call");
    diag_help(b->sink, d, (Span){0}, NULL, NULL, "write: recompute block(x)");
  }
  Expr *e = new_expr(b, EXPR_RECOMPUTE, span_join(start, value->span));
  e->as.recompute = value;
  raise(e, value);
  return checked(b, e);
}

Expr *build_local(Builder *b, Span start, ArgList args, TypeList results, StmtList body,
                  Span close) {
  Expr *e = new_expr(b, EXPR_LOCAL, span_join(start, close));
  e->as.local.args = args;
  e->as.local.results = results;
  e->as.local.body = body;
  raise_args(e, &args);
  return checked(b, e);
}

Expr *build_auto(Builder *b, bool unchecked, Span start, ArgList args, StmtList body, Span close) {
  const char *word = unchecked ? "unchecked" : "auto";
  Expr *e = new_expr(b, EXPR_AUTO, span_join(start, close));
  e->as.auto_.body = body;
  e->as.auto_.unchecked = unchecked;
  bool good = args.len == 1 && args.data[0].name && !args.data[0].is_key &&
              args.data[0].name == intern(b->names, "out");
  if (!good) {
    Span place = args.len ? args.data[0].span : start;
    Diag *d = build_error(b, DIAG_SYNTAX, place, "%s takes exactly out = layout", word);
    diag_help(b->sink, d, (Span){0}, NULL, NULL, "write: %s(out = [B@dp, D]) { ... }", word);
    return new_expr(b, EXPR_ERROR, e->span);
  }
  e->as.auto_.layout = args.data[0].value;
  raise_args(e, &args);
  return checked(b, e);
}

Arg build_arg(Expr *value) {
  return (Arg){.value = value, .span = value->span};
}

Arg build_named_arg(Name name, bool is_key, Expr *value) {
  return (Arg){.name = name.text,
               .is_key = is_key,
               .name_span = name.span,
               .value = value,
               .span = span_join(name.span, value->span)};
}

ListItem build_item(Expr *value, ExprList axes, Span end) {
  return (ListItem){value, axes, span_join(value->span, end)};
}

ItemList build_items(Builder *b, ListItem first, ItemList rest) {
  ItemList all = {0};
  VEC_PUSH(b->arena, &all, first);
  for (uint32_t i = 0; i < rest.len; i++) VEC_PUSH(b->arena, &all, rest.data[i]);
  return all;
}

IndexItem build_index_item(Expr *index) {
  return (IndexItem){.start = index, .span = index->span};
}

IndexItem build_slice(Span span, Expr *start, Expr *stop, Expr *step) {
  return (IndexItem){true, start, stop, step, span};
}

TypeExpr *build_dtype(Builder *b, Name word, bool optional, Span span) {
  TypeExpr *t = ARENA_NEW(b->arena, TypeExpr);
  *t = (TypeExpr){
      .span = span, .dtype = dtype_by_name(word.text), .head = word.span, .optional = optional};
  return t;
}

TypeExpr *build_named_type(Builder *b, Name word, bool optional, Span span) {
  TypeExpr *t = ARENA_NEW(b->arena, TypeExpr);
  *t = (TypeExpr){.span = span, .name = word.text, .head = word.span, .optional = optional};
  return t;
}

void build_type_dims(Builder *b, TypeExpr *type, ItemList dims, Span close) {
  (void)b;
  type->has_dims = true;
  type->dims = dims;
  type->span = span_join(type->span, close);
}

static bool needs_dims(Builder *b, TypeExpr *type, const char *what, Span close) {
  Span place = type->span;
  type->span = span_join(type->span, close);
  if (type->has_dims) return true;
  Diag *d = build_error(b, DIAG_SYNTAX, place, "%s follows a tensor type with dims", what);
  diag_help(b->sink, d, (Span){0}, NULL, NULL, "write the dims: f32[B, D] %s", what);
  return false;
}

void build_type_partial(Builder *b, TypeExpr *type, PartialList partials, Span close) {
  /* `any partial(tp)`: of any rank, but Partial on just these mesh dims */
  bool any = type->name && strcmp(type->name, "any") == 0 && !type->has_dims;
  if (any)
    type->span = span_join(type->span, close);
  else if (!needs_dims(b, type, "partial(...)", close))
    return;
  for (uint32_t i = 0; i < partials.len; i++) VEC_PUSH(b->arena, &type->partials, partials.data[i]);
}

void build_type_place(Builder *b, TypeExpr *type, PlaceList places, Span close) {
  if (!needs_dims(b, type, "place {...}", close)) return;
  type->has_places = true;
  for (uint32_t i = 0; i < places.len; i++) VEC_PUSH(b->arena, &type->places, places.data[i]);
}

TypeExpr *build_type_on(Builder *b, TypeExpr *type, Expr *mesh) {
  if (needs_dims(b, type, "on mesh", mesh->span)) type->mesh = mesh;
  return type;
}
