/* Shared by the two halves of the printer: print.c (items, statements, comments) and print_expr.c
 * (expressions, types). */
#ifndef DTM_SYNTAX_PRINT_H
#define DTM_SYNTAX_PRINT_H

#include "syntax/ast.h"
#include "syntax/doc.h"

enum { PRINT_WIDTH = 100, PRINT_INDENT = 2 };

typedef struct Printer {
  Arena *arena;
  const File *file;
  const SourceFile *source; /* NULL: no comments, no blank lines to keep */
  uint32_t next_comment;    /* of file->comments */
  uint32_t last_end;        /* source offset behind what was printed last */
} Printer;

/* Comments that start before `offset`, each on a line of its own; NULL when there are none. */
Doc *print_comments_before(Printer *p, uint32_t offset);

Doc *print_expr(Printer *p, const Expr *e);
/* A callee or base: what `.`, `(` and `[` may follow; also a mesh after `on`. */
Doc *print_postfix(Printer *p, const Expr *e);
Doc *print_type(Printer *p, const TypeExpr *t);
Doc *print_results(Printer *p, const TypeList *results);
Doc *print_params(Printer *p, const ParamList *params);
Doc *print_axes(Printer *p, const ExprList *axes);
Doc *print_string(Printer *p, const char *value);
/* `{ ... }`; `end` is where the construct that owns it ends, 0 when that is not known. */
Doc *print_block(Printer *p, const StmtList *body, uint32_t end);

/* A list in brackets, on one line or one element a line. Elements are added in source order:
 * comments before one (taken with print_comments_before before it is built), the element, the
 * offset of its end. */
typedef struct Elements {
  Doc *inner;               /* finished elements */
  Doc *last, *last_comment; /* what still waits for its comma */
  uint32_t n;
} Elements;

void print_element(Printer *p, Elements *list, Doc *comments, Doc *element, uint32_t end);
/* `end` is where the brackets end: comments before it stay inside. */
Doc *print_brackets(Printer *p, const char *open, Elements *list, const char *close, uint32_t end,
                    bool trailing_comma);

#endif
