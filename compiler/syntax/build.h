/* Builders of the tree, one per construct; the grammar's actions call nothing else.
 *
 * A builder copies nothing: lists are taken over. Checks that the grammar cannot express (a
 * statement without effect, `auto` without `out`) are made here and reported to the sink.
 */
#ifndef DTM_SYNTAX_BUILD_H
#define DTM_SYNTAX_BUILD_H

#include "syntax/ast.h"

/* Syntax errors of one file beyond this number are dropped. */
enum { AST_MAX_ERRORS = 100 };

typedef struct Builder {
  Arena *arena;
  Interner *names;
  DiagSink *sink;
  uint32_t source;
  File *file;
  uint32_t errors;
  bool too_high; /* AST_MAX_HEIGHT was reported */
} Builder;

/* A diagnostic of lexer, parser or builder; beyond AST_MAX_ERRORS one that is not kept. */
Diag *build_error(Builder *b, DiagCode code, Span span, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* From the start of `first` to the end of `last`. */
Span span_join(Span first, Span last);

Expr *build_int(Builder *b, Span span, int64_t value, const char *spelling);
Expr *build_float(Builder *b, Span span, double value, const char *spelling);
Expr *build_string(Builder *b, Span span, const char *value, const char *spelling);
Expr *build_bool(Builder *b, Span span, bool value);
Expr *build_none(Builder *b, Span span);
Expr *build_name(Builder *b, Name name);
Expr *build_unary(Builder *b, Span op_span, UnaryOp op, Expr *operand);
Expr *build_binary(Builder *b, Expr *left, BinaryOp op, Span op_span, Expr *right);
Expr *build_conditional(Builder *b, Span start, Expr *condition, Expr *yes, Expr *no);
Expr *build_call(Builder *b, Expr *callee, ArgList args, Span close);
Expr *build_index(Builder *b, Expr *base, IndexList items, Span close);
Expr *build_member(Builder *b, Expr *base, Name name);
Expr *build_parens(Builder *b, Span open, Expr *inner, Span close);
Expr *build_list(Builder *b, ExprKind kind, Span open, ItemList items, Span close);
Expr *build_comprehension(Builder *b, Span open, Expr *element, Name var, Expr *list,
                          Expr *condition, Span close);
Expr *build_type_expr(Builder *b, TypeExpr *type);
Expr *build_on(Builder *b, Expr *value, Expr *mesh);
Expr *build_recompute(Builder *b, Span start, Expr *value);
Expr *build_local(Builder *b, Span start, ArgList args, TypeList results, StmtList body,
                  Span close);
/* auto, or unchecked */
Expr *build_auto(Builder *b, bool unchecked, Span start, ArgList args, StmtList body, Span close);

Arg build_arg(Expr *value);
Arg build_named_arg(Name name, bool is_key, Expr *value);
ListItem build_item(Expr *value, ExprList axes, Span end);
ItemList build_items(Builder *b, ListItem first, ItemList rest);
IndexItem build_index_item(Expr *index);
IndexItem build_slice(Span span, Expr *start, Expr *stop, Expr *step);

TypeExpr *build_dtype(Builder *b, Name word, bool optional, Span span);
TypeExpr *build_named_type(Builder *b, Name word, bool optional, Span span);
void build_type_dims(Builder *b, TypeExpr *type, ItemList dims, Span close);
void build_type_partial(Builder *b, TypeExpr *type, PartialList partials, Span close);
void build_type_place(Builder *b, TypeExpr *type, PlaceList places, Span close);
TypeExpr *build_type_on(Builder *b, TypeExpr *type, Expr *mesh);

ParamDecl build_param_decl(Name name, TypeExpr *type, Expr *fallback);

StmtList build_stmts(Builder *b, StmtList list, StmtList more);
Stmt *build_stmt_error(Builder *b, Span span);
Stmt *build_let(Builder *b, Span start, NameList names, TypeExpr *type, Expr *value);
Stmt *build_assign(Builder *b, Name name, Expr *value);
Stmt *build_return(Builder *b, Span start, ExprList values);
Stmt *build_expr_stmt(Builder *b, Expr *value);
/* On a line of train, eval, infer: `loss (a) / n` is the setting `loss`, not a call. */
Stmt *build_setting_expr(Builder *b, Expr *value);
Stmt *build_if(Builder *b, Span start, Expr *condition, StmtList yes, StmtList no, Span end);
Stmt *build_for(Builder *b, Span start, Name var, Expr *list, StmtList body, Span end);
Stmt *build_assert(Builder *b, Span start, Expr *condition, Expr *message);
Stmt *build_on_stmt(Builder *b, Span start, Expr *mesh, StmtList body, Span end);
Stmt *build_param(Builder *b, Span start, bool is_buffer, Name name, TypeExpr *type, Expr *init);
void build_param_name(Builder *b, Stmt *param, Expr *foreign, Span end);
void build_param_transposed(Builder *b, Stmt *param, Span end);
void build_param_chunks(Builder *b, Stmt *param, Expr *chunks, Span end);
void build_param_store(Builder *b, Stmt *param, Storage storage);
/* `keyword` must be store; a statement that is an error otherwise. */
Stmt *build_store(Builder *b, Name keyword, Name what, ExprList axes, Span end);
void build_store_body(Builder *b, Stmt *store, StmtList body, Span end);
Stmt *build_method(Builder *b, Span start, bool is_fn, Name name, ParamList params,
                   TypeList results, StmtList body, Span end);
Stmt *build_rename(Builder *b, Span start, RenameList entries, Span end);
RenameItem build_rename_item(Expr *ours, Expr *foreign);
Stmt *build_setting(Builder *b, Name keyword, Name name, SettingParts parts);

/* Items are appended to the file. */
void build_item_error(Builder *b, Span span, Name name);
void build_import(Builder *b, Span start, const char *path, bool quoted, Span path_span,
                  Name alias);
void build_config(Builder *b, Span start, ConfigItemList entries, Span end);
ConfigItem build_config_item(Name name, TypeExpr *type, Expr *value);
void build_mesh(Builder *b, Span start, Name name, MeshDimList dims, Expr *ranks, Span end);
MeshDim build_mesh_dim(Name name, Expr *size);
void build_fn(Builder *b, Span start, Name name, ParamList params, TypeList results, StmtList body,
              Span end);
void build_module(Builder *b, Span start, Name name, ParamList params, Expr *base, StmtList body,
                  Span end);
void build_top_let(Builder *b, Stmt *let);
void build_block(Builder *b, Name kind, StmtList body, Span end);

#endif
