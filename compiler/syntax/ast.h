/* The raw syntax tree, as the grammar builds it; analysis is sema's.
 *
 * Four families: expressions, tensor types, statements (which include declarations inside modules
 * and blocks), top-level items. All strings are interned. Lists are in source order. The height of
 * a tree is bounded (AST_MAX_HEIGHT), so plain recursion over it is safe.
 */
#ifndef DTM_SYNTAX_AST_H
#define DTM_SYNTAX_AST_H

#include "base/vec.h"
#include "diag/diag.h"
#include "types/dtype.h"

typedef struct Expr Expr;
typedef struct Stmt Stmt;
typedef struct TypeExpr TypeExpr;
typedef VEC(Expr *) ExprList;
typedef VEC(Stmt *) StmtList;
typedef VEC(TypeExpr *) TypeList;

enum { AST_MAX_HEIGHT = 1000 };

/* A name where it is introduced. */
typedef struct Name {
  const char *text;
  Span span;
} Name;
typedef VEC(Name) NameList;

typedef enum ExprKind {
  EXPR_ERROR = 0, /* left by error recovery; silences what follows */
  EXPR_INT,
  EXPR_FLOAT,
  EXPR_STRING,
  EXPR_BOOL,
  EXPR_NONE,
  EXPR_NAME,
  EXPR_UNARY,
  EXPR_BINARY,
  EXPR_CONDITIONAL, /* if c then a else b */
  EXPR_CALL,
  EXPR_INDEX,         /* x[i, a:b] */
  EXPR_MEMBER,        /* x.name */
  EXPR_LIST,          /* [a, b]; elements may carry `@axes`, which makes it a layout */
  EXPR_TUPLE,         /* (a, b), (a,): a list written in parentheses; uses as.list */
  EXPR_COMPREHENSION, /* [e for i in list if c] */
  EXPR_TYPE,          /* f32[B@dp, D] as an argument; a bare dtype too */
  EXPR_ON,            /* e on mesh */
  EXPR_RECOMPUTE,     /* recompute e */
  EXPR_LOCAL,         /* local(args) -> types { body } */
  EXPR_AUTO           /* auto(out = [...]) { body } */
} ExprKind;

typedef enum UnaryOp { UNARY_NEG = 1, UNARY_NOT } UnaryOp;

typedef enum BinaryOp {
  BINARY_ADD = 1,
  BINARY_SUB,
  BINARY_MUL,
  BINARY_DIV,
  BINARY_MOD,
  BINARY_POW, /* ** */
  BINARY_LT,
  BINARY_LE,
  BINARY_GT,
  BINARY_GE,
  BINARY_EQ,
  BINARY_NE,
  BINARY_AND,
  BINARY_OR
} BinaryOp;

/* `value`, `name = value`, or `key: value` (a mesh-dim name in redistribute). `"a" as "b"` is two:
 * "a" and as = "b". */
typedef struct Arg {
  const char *name; /* NULL when positional */
  bool is_key;      /* written with ':' */
  Span name_span;
  Expr *value;
  Span span;
} Arg;
typedef VEC(Arg) ArgList;

/* The mesh axes after '@': names or expressions that evaluate to an axis (or none). */
typedef struct ListItem {
  Expr *value;
  ExprList axes; /* empty = no '@' */
  Span span;
} ListItem;
typedef VEC(ListItem) ItemList;

typedef struct IndexItem {
  bool is_slice; /* start : stop : step, each may be NULL */
  Expr *start;   /* the index itself when not a slice */
  Expr *stop;
  Expr *step;
  Span span;
} IndexItem;
typedef VEC(IndexItem) IndexList;

struct Expr {
  ExprKind kind;
  bool parens; /* written in parentheses, which `span` includes: (a + b) */
  uint16_t height;
  Span span;
  const char *spelling; /* INT, FLOAT, STRING: the literal as written, or NULL */
  union {
    int64_t i;
    double f;
    const char *s; /* STRING (unescaped), NAME */
    bool b;
    struct {
      UnaryOp op;
      Expr *operand;
    } unary;
    struct {
      BinaryOp op;
      Expr *left, *right;
      Span op_span;
    } binary;
    struct {
      Expr *condition, *yes, *no;
    } conditional;
    struct {
      Expr *callee; /* NAME or MEMBER */
      ArgList args;
    } call;
    struct {
      Expr *base;
      IndexList items;
    } index;
    struct {
      Expr *base;
      const char *name;
      Span name_span;
    } member;
    ItemList list;
    struct {
      Expr *element;
      Name var;
      Expr *list;
      Expr *condition; /* NULL when absent */
    } comprehension;
    TypeExpr *type;
    struct {
      Expr *value, *mesh;
    } on;
    Expr *recompute;
    struct {
      ArgList args;
      TypeList results;
      StmtList body;
    } local;
    struct {
      Expr *layout; /* the list after `out =` */
      StmtList body;
      bool unchecked; /* unchecked(out = [...]) { body } */
    } auto_;
  } as;
};

/* One entry of `partial(tp, cp: max)`. */
typedef struct PartialItem {
  Expr *axis;
  const char *op; /* NULL = sum */
  Span span;
} PartialItem;
typedef VEC(PartialItem) PartialList;

/* One entry of `place {dp: Shard(0), tp: Partial(sum)}`. */
typedef struct PlaceItem {
  Expr *axis;
  Expr *placement; /* CALL Shard(d) / Partial(op) or NAME Replicate */
  Span span;
} PlaceItem;
typedef VEC(PlaceItem) PlaceList;

/* dtype[dims] suffix. As the type of a compile-time argument: a name such as int, axis?. A name
 * with dims, `dtype[out@tp, in]`, has an element type that is a compile-time value. `bool` without
 * dims is the dtype. */
struct TypeExpr {
  Span span;
  DType dtype;      /* DT_NONE for a named type */
  const char *name; /* "int", "float", "string", "axis", "mesh", "layout", "list", "module", "any",
                       or a compile-time value that is a dtype; NULL when `dtype` says it */
  Span head;        /* the dtype or name alone */
  bool optional;    /* `axis?` */
  bool has_dims;    /* a bare dtype `f32` has none; `f32[]` is a scalar tensor */
  ItemList dims;
  PartialList partials;
  PlaceList places;
  bool has_places;
  Expr *mesh; /* `on m`, or NULL */
};

/* A parameter of fn, forward, hook or module. */
typedef struct ParamDecl {
  const char *name;
  Span name_span;
  TypeExpr *type; /* NULL = generic */
  Expr *fallback; /* default value, or NULL */
  Span span;
} ParamDecl;
typedef VEC(ParamDecl) ParamList;

typedef enum StmtKind {
  STMT_ERROR = 0,
  STMT_LET,    /* let a, b: type = e */
  STMT_ASSIGN, /* a = e: rebinds a let; in a module declares a sub-module */
  STMT_RETURN,
  STMT_EXPR,
  STMT_IF,
  STMT_FOR,
  STMT_ASSERT,
  STMT_ON,     /* on mesh { ... } */
  STMT_STORE,  /* store @dp, store @dp { ... } */
  STMT_PARAM,  /* param / buffer */
  STMT_METHOD, /* forward, redistribute_input, redistribute_output, other fn in a module */
  STMT_RENAME, /* rename { "from" = "to" } */
  STMT_SETTING /* a line of train/eval/infer: data, model, loss, optimizer, steps, ... */
} StmtKind;

typedef struct RenameItem {
  const char *ours, *foreign;
  Span span;
} RenameItem;
typedef VEC(RenameItem) RenameList;

/* `budget all_reduce over tp <= 4 per layer`: parts {-, all_reduce}, {over, tp <= 4}, {per, layer}.
 * `eval every end`: one part {every, end}. */
typedef struct SettingPart {
  const char *word; /* "over", "per", "every" before the value; NULL for the leading value */
  Expr *value;
} SettingPart;
typedef VEC(SettingPart) SettingParts;

/* store @dp, store optimizer @(dp, tp) */
typedef struct Storage {
  Name what; /* optimizer, gradients, parameters; or no text */
  ExprList axes;
  Span span; /* of the axes */
} Storage;

struct Stmt {
  StmtKind kind;
  Span span;
  union {
    struct {
      NameList names;
      TypeExpr *type; /* or NULL; only with one name */
      Expr *value;
    } let;
    struct {
      const char *name;
      Span name_span;
      Expr *value;
    } assign;
    struct {
      ExprList values;
    } ret;
    Expr *expr;
    struct {
      Expr *condition;
      StmtList yes, no;
    } if_;
    struct {
      Name var;
      Expr *list;
      StmtList body;
    } for_;
    struct {
      Expr *condition, *message; /* message may be NULL */
    } assert_;
    struct {
      Expr *mesh;
      StmtList body;
    } on;
    struct {
      Storage storage;
      bool has_body; /* for its members; else for what follows */
      StmtList body;
    } store;
    struct {
      bool is_buffer;
      const char *name;
      Span name_span;
      TypeExpr *type;
      Expr *init;         /* normal(std = 0.02), zeros(), ...; NULL = zeros */
      Expr *foreign_name; /* name "...", or NULL */
      bool transposed;
      Expr *chunks;    /* or NULL */
      Storage storage; /* no axes = none */
    } param;
    struct {
      const char *name;
      Span name_span;
      bool is_fn; /* written with `fn`; otherwise forward or a hook */
      ParamList params;
      TypeList results; /* empty = not declared */
      StmtList body;
    } method;
    RenameList rename;
    struct {
      /* `data x = npy(...)`: keyword data, name x, parts {-, npy(...)}.  `steps 200`: keyword
       * steps, parts {-, 200}. */
      const char *keyword;
      Span keyword_span;
      const char *name; /* or NULL */
      Span name_span;
      SettingParts parts;
    } setting;
  } as;
};

typedef enum ItemKind {
  ITEM_ERROR = 0,
  ITEM_IMPORT,
  ITEM_CONFIG,
  ITEM_MESH,
  ITEM_FN,
  ITEM_MODULE,
  ITEM_LET,  /* top-level let */
  ITEM_BLOCK /* train, eval, infer */
} ItemKind;

typedef struct ConfigItem {
  const char *name;
  Span name_span;
  TypeExpr *type; /* or NULL: taken from the value */
  Expr *value;
  Span span;
} ConfigItem;
typedef VEC(ConfigItem) ConfigItemList;

typedef struct MeshDim {
  const char *name;
  Span name_span;
  Expr *size;
  Span span;
} MeshDim;
typedef VEC(MeshDim) MeshDimList;

typedef struct Item {
  ItemKind kind;
  Span span;
  const char *name; /* FN, MODULE, MESH, IMPORT (alias), BLOCK ("train", ...) */
  Span name_span;
  union {
    struct {
      const char *path; /* "nn" or "blocks.dtm" */
      bool quoted;      /* relative to this file */
    } import;
    ConfigItemList config;
    struct {
      MeshDimList dims;
      Expr *ranks; /* list, or NULL */
    } mesh;
    struct {
      ParamList params;
      TypeList results;
      StmtList body;
    } fn;
    struct {
      ParamList params;
      Expr *base; /* call of the base module, or NULL */
      StmtList body;
    } module;
    Stmt *let;
    StmtList block;
  } as;
} Item;

typedef struct File {
  uint32_t source; /* Sources id */
  VEC(Item *) items;
  VEC(Span) comments; /* in source order, without the line's end */
} File;

/* Parses one source file (grammar/). Syntax errors go to `sink`; what could be parsed is returned,
 * with *_ERROR nodes where something could not. Never NULL. */
File *ast_parse(Arena *arena, Interner *names, DiagSink *sink, uint32_t source);

/* The tree as canonical source text (`dtmc fmt`, --emit=ast); parses back to an equal tree. With
 * `sources` (may be NULL) comments, blank lines and one-line blocks of the source are kept. */
void ast_print(const Sources *sources, const File *file, StrBuf *out);

/* `dtmc fmt`: the canonical text of a source file in `out` (its arena is set here). False when the
 * file has syntax errors, or when the text would not have the same meaning and comments; then the
 * sink tells, and the file must stay as it is. */
bool ast_format(Arena *arena, Interner *names, DiagSink *sink, uint32_t source, StrBuf *out);

#endif
