/* Builders of statements and top-level items. */
#include <string.h>

#include "syntax/build.h"

static Stmt *new_stmt(Builder *b, StmtKind kind, Span start, Span end) {
  Stmt *s = ARENA_NEW(b->arena, Stmt);
  s->kind = kind;
  s->span = span_join(start, end);
  return s;
}

ParamDecl build_param_decl(Name name, TypeExpr *type, Expr *fallback) {
  Span end = fallback ? fallback->span : type ? type->span : name.span;
  return (ParamDecl){.name = name.text,
                     .name_span = name.span,
                     .type = type,
                     .fallback = fallback,
                     .span = span_join(name.span, end)};
}

StmtList build_stmts(Builder *b, StmtList list, StmtList more) {
  for (uint32_t i = 0; i < more.len; i++) VEC_PUSH(b->arena, &list, more.data[i]);
  return list;
}

Stmt *build_stmt_error(Builder *b, Span span) {
  return new_stmt(b, STMT_ERROR, span, span);
}

Stmt *build_let(Builder *b, Span start, NameList names, TypeExpr *type, Expr *value) {
  if (type && names.len > 1) {
    Diag *d = build_error(b, DIAG_SYNTAX, type->span, "a let of several names takes no type");
    diag_help(b->sink, d, (Span){0}, NULL, NULL, "state the types where the values are made");
    type = NULL;
  }
  Stmt *s = new_stmt(b, STMT_LET, start, value->span);
  s->as.let.names = names;
  s->as.let.type = type;
  s->as.let.value = value;
  return s;
}

Stmt *build_assign(Builder *b, Name name, Expr *value) {
  Stmt *s = new_stmt(b, STMT_ASSIGN, name.span, value->span);
  s->as.assign.name = name.text;
  s->as.assign.name_span = name.span;
  s->as.assign.value = value;
  return s;
}

Stmt *build_return(Builder *b, Span start, ExprList values) {
  Stmt *s = new_stmt(b, STMT_RETURN, start, values.data[values.len - 1]->span);
  s->as.ret.values = values;
  return s;
}

/* Only what can have an effect is a statement by itself. */
static bool has_effect(const Expr *e) {
  switch (e->kind) {
  case EXPR_ERROR:
  case EXPR_CALL:
  case EXPR_LOCAL:
  case EXPR_AUTO:
  case EXPR_RECOMPUTE:
    return true;
  case EXPR_INT:
  case EXPR_FLOAT:
  case EXPR_STRING:
  case EXPR_BOOL:
  case EXPR_NONE:
  case EXPR_NAME:
  case EXPR_UNARY:
  case EXPR_BINARY:
  case EXPR_CONDITIONAL:
  case EXPR_INDEX:
  case EXPR_MEMBER:
  case EXPR_LIST:
  case EXPR_TUPLE:
  case EXPR_COMPREHENSION:
  case EXPR_TYPE:
  case EXPR_ON:
    return false;
  }
  return false;
}

Stmt *build_expr_stmt(Builder *b, Expr *value) {
  if (!has_effect(value)) {
    Diag *d = build_error(b, DIAG_NO_EFFECT, value->span, "this value is not used");
    if (value->kind == EXPR_UNARY && value->as.unary.op == UNARY_NEG)
      diag_help(b->sink, d, (Span){0}, NULL, NULL,
                "to go on with the line before, end it with the operator");
    else
      diag_help(b->sink, d, (Span){0}, NULL, NULL,
                "name it with let, return it, or remove the line");
    return build_stmt_error(b, value->span);
  }
  Stmt *s = new_stmt(b, STMT_EXPR, value->span, value->span);
  s->as.expr = value;
  return s;
}

/* Keywords whose value may start with a bracket or a sign. `print` is not among them: it is a call
 * in the eyes of the grammar and of the reader. */
static bool is_value_keyword(const char *word) {
  static const char *const words[] = {"loss",   "metric", "optimizer",      "steps",
                                      "epochs", "seed",   "clip_grad_norm", "accumulate",
                                      "budget", "save",   "microbatches",   "schedule"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strcmp(words[i], word) == 0) return true;
  return false;
}

/* The leftmost leaf of an expression: where its text starts. */
static Expr **leftmost(Expr **at) {
  for (;;) {
    Expr *e = *at;
    if (e->parens) return at;
    switch (e->kind) {
    case EXPR_BINARY:
      /* `seed -1` reads as a difference, whose left side is the keyword itself */
      if (e->as.binary.op == BINARY_SUB && e->as.binary.left->kind == EXPR_NAME) return at;
      at = &e->as.binary.left;
      break;
    case EXPR_CALL:
      if (e->as.call.callee->kind == EXPR_NAME) return at;
      at = &e->as.call.callee;
      break;
    case EXPR_INDEX:
      if (e->as.index.base->kind == EXPR_NAME) return at;
      at = &e->as.index.base;
      break;
    case EXPR_MEMBER:
      at = &e->as.member.base;
      break;
    case EXPR_ERROR:
    case EXPR_INT:
    case EXPR_FLOAT:
    case EXPR_STRING:
    case EXPR_BOOL:
    case EXPR_NONE:
    case EXPR_NAME:
    case EXPR_UNARY:
    case EXPR_CONDITIONAL:
    case EXPR_LIST:
    case EXPR_TUPLE:
    case EXPR_COMPREHENSION:
    case EXPR_TYPE:
    case EXPR_ON:
    case EXPR_RECOMPUTE:
    case EXPR_LOCAL:
    case EXPR_AUTO:
      return at;
    }
  }
}

Stmt *build_setting_expr(Builder *b, Expr *value) {
  Expr **at = leftmost(&value), *head = *at, *operand = NULL;
  const Expr *word = NULL;
  if (head->kind == EXPR_CALL && head->as.call.args.len == 1 && !head->as.call.args.data[0].name) {
    word = head->as.call.callee;
    operand = head->as.call.args.data[0].value;
  } else if (head->kind == EXPR_BINARY) {
    word = head->as.binary.left;
    operand = build_unary(b, head->as.binary.op_span, UNARY_NEG, head->as.binary.right);
  }
  if (!word || word->kind != EXPR_NAME || !is_value_keyword(word->as.s))
    return build_expr_stmt(b, value);
  if (head->kind == EXPR_CALL)
    build_parens(b, (Span){word->span.file, word->span.end, 0}, operand, head->span);
  *at = operand;
  SettingParts parts = {0};
  VEC_PUSH(b->arena, &parts, (SettingPart){NULL, value});
  return build_setting(b, (Name){word->as.s, word->span}, (Name){0}, parts);
}

Stmt *build_if(Builder *b, Span start, Expr *condition, StmtList yes, StmtList no, Span end) {
  Stmt *s = new_stmt(b, STMT_IF, start, end);
  s->as.if_.condition = condition;
  s->as.if_.yes = yes;
  s->as.if_.no = no;
  return s;
}

Stmt *build_for(Builder *b, Span start, Name var, Expr *list, StmtList body, Span end) {
  Stmt *s = new_stmt(b, STMT_FOR, start, end);
  s->as.for_.var = var;
  s->as.for_.list = list;
  s->as.for_.body = body;
  return s;
}

Stmt *build_assert(Builder *b, Span start, Expr *condition, Expr *message) {
  Stmt *s = new_stmt(b, STMT_ASSERT, start, message ? message->span : condition->span);
  s->as.assert_.condition = condition;
  s->as.assert_.message = message;
  return s;
}

Stmt *build_on_stmt(Builder *b, Span start, Expr *mesh, StmtList body, Span end) {
  Stmt *s = new_stmt(b, STMT_ON, start, end);
  s->as.on.mesh = mesh;
  s->as.on.body = body;
  return s;
}

Stmt *build_param(Builder *b, Span start, bool is_buffer, Name name, TypeExpr *type, Expr *init) {
  Stmt *s = new_stmt(b, STMT_PARAM, start, init ? init->span : type->span);
  s->as.param.is_buffer = is_buffer;
  s->as.param.name = name.text;
  s->as.param.name_span = name.span;
  s->as.param.type = type;
  s->as.param.init = init;
  return s;
}

static void extend_param(Builder *b, Stmt *param, bool again, const char *what, Span end) {
  if (again) build_error(b, DIAG_SYNTAX, end, "%s is given twice", what);
  param->span = span_join(param->span, end);
}

void build_param_name(Builder *b, Stmt *param, Expr *foreign, Span end) {
  extend_param(b, param, param->as.param.foreign_name, "name", end);
  param->as.param.foreign_name = foreign;
}

void build_param_transposed(Builder *b, Stmt *param, Span end) {
  extend_param(b, param, param->as.param.transposed, "transposed", end);
  param->as.param.transposed = true;
}

void build_param_chunks(Builder *b, Stmt *param, Expr *chunks, Span end) {
  extend_param(b, param, param->as.param.chunks, "chunks", end);
  param->as.param.chunks = chunks;
}

void build_param_store(Builder *b, Stmt *param, Storage storage) {
  extend_param(b, param, param->as.param.storage.axes.len, "store", storage.span);
  param->as.param.storage = storage;
}

Stmt *build_store(Builder *b, Name keyword, Name what, ExprList axes, Span end) {
  if (strcmp(keyword.text, "store") != 0) {
    Diag *d = build_error(b, DIAG_SYNTAX, keyword.span, "%s does not stand before @", keyword.text);
    diag_help(b->sink, d, (Span){0}, NULL, NULL, "write: store @dp");
    return build_stmt_error(b, span_join(keyword.span, end));
  }
  Stmt *s = new_stmt(b, STMT_STORE, keyword.span, end);
  s->as.store.storage = (Storage){what, axes, end};
  return s;
}

void build_store_body(Builder *b, Stmt *store, StmtList body, Span end) {
  (void)b;
  store->span = span_join(store->span, end);
  if (store->kind != STMT_STORE) return;
  store->as.store.has_body = true;
  store->as.store.body = body;
}

Stmt *build_method(Builder *b, Span start, bool is_fn, Name name, ParamList params,
                   TypeList results, StmtList body, Span end) {
  Stmt *s = new_stmt(b, STMT_METHOD, start, end);
  s->as.method.name = name.text;
  s->as.method.name_span = name.span;
  s->as.method.is_fn = is_fn;
  s->as.method.params = params;
  s->as.method.results = results;
  s->as.method.body = body;
  return s;
}

Stmt *build_rename(Builder *b, Span start, RenameList entries, Span end) {
  Stmt *s = new_stmt(b, STMT_RENAME, start, end);
  s->as.rename = entries;
  return s;
}

RenameItem build_rename_item(Expr *ours, Expr *foreign) {
  return (RenameItem){ours->as.s, foreign->as.s, span_join(ours->span, foreign->span)};
}

Stmt *build_setting(Builder *b, Name keyword, Name name, SettingParts parts) {
  Stmt *s = new_stmt(b, STMT_SETTING, keyword.span, parts.data[parts.len - 1].value->span);
  s->as.setting.keyword = keyword.text;
  s->as.setting.keyword_span = keyword.span;
  s->as.setting.name = name.text;
  s->as.setting.name_span = name.span;
  s->as.setting.parts = parts;
  return s;
}

static Item *add_item(Builder *b, ItemKind kind, Span start, Span end, Name name) {
  Item *item = ARENA_NEW(b->arena, Item);
  item->kind = kind;
  item->span = span_join(start, end);
  item->name = name.text;
  item->name_span = name.span;
  VEC_PUSH(b->arena, &b->file->items, item);
  return item;
}

void build_item_error(Builder *b, Span span, Name name) {
  add_item(b, ITEM_ERROR, span, span, name);
}

void build_import(Builder *b, Span start, const char *path, bool quoted, Span path_span,
                  Name alias) {
  Item *item = add_item(b, ITEM_IMPORT, start, alias.text ? alias.span : path_span, alias);
  item->as.import.path = path;
  item->as.import.quoted = quoted;
}

void build_config(Builder *b, Span start, ConfigItemList entries, Span end) {
  add_item(b, ITEM_CONFIG, start, end, (Name){0})->as.config = entries;
}

ConfigItem build_config_item(Name name, TypeExpr *type, Expr *value) {
  return (ConfigItem){name.text, name.span, type, value, span_join(name.span, value->span)};
}

void build_mesh(Builder *b, Span start, Name name, MeshDimList dims, Expr *ranks, Span end) {
  Item *item = add_item(b, ITEM_MESH, start, end, name);
  item->as.mesh.dims = dims;
  item->as.mesh.ranks = ranks;
}

MeshDim build_mesh_dim(Name name, Expr *size) {
  return (MeshDim){name.text, name.span, size, span_join(name.span, size->span)};
}

void build_fn(Builder *b, Span start, Name name, ParamList params, TypeList results, StmtList body,
              Span end) {
  Item *item = add_item(b, ITEM_FN, start, end, name);
  item->as.fn.params = params;
  item->as.fn.results = results;
  item->as.fn.body = body;
}

void build_module(Builder *b, Span start, Name name, ParamList params, Expr *base, StmtList body,
                  Span end) {
  Item *item = add_item(b, ITEM_MODULE, start, end, name);
  item->as.module.params = params;
  item->as.module.base = base;
  item->as.module.body = body;
}

void build_top_let(Builder *b, Stmt *let) {
  NameList *names = &let->as.let.names;
  add_item(b, ITEM_LET, let->span, let->span, names->data[0])->as.let = let;
}

void build_block(Builder *b, Name kind, StmtList body, Span end) {
  add_item(b, ITEM_BLOCK, kind.span, end, kind)->as.block = body;
}
