/* What the lexer, the token filter and the grammar's actions share while one file is parsed.
 *
 * Three layers: dtm.l turns bytes into raw tokens; tokens.c decides which line ends are tokens,
 * bounds nesting and skips what error recovery must not look into; dtm.y builds the tree by calling
 * the builders of syntax/build.h. literals.c converts numbers and strings, errors.c words syntax
 * errors.
 */
#ifndef DTM_GRAMMAR_PARSE_H
#define DTM_GRAMMAR_PARSE_H

#include "syntax/build.h"

enum {
  MAX_BRACKETS = 200, /* nesting of ( [ { */
  MAX_NAME = 255      /* characters; names stand in messages, checkpoints and generated code */
};

typedef struct Bracket {
  int token;     /* the opening token; 0 = none */
  bool settings; /* a '{' of train, eval, infer, or inside one */
  Span span;
} Bracket;

typedef struct RawToken RawToken;

typedef struct Parser {
  Builder build; /* arena, names, sink, tree so far */
  const char *text;
  uint32_t size;
  void *scanner; /* flex's */

  /* Lexer: bytes consumed, and whether a line ended since the last token. */
  uint32_t offset;
  bool newline;

  /* Token filter. */
  Bracket brackets[MAX_BRACKETS];
  uint32_t nbrackets;
  Bracket unclosed;  /* the bracket a line end or '}' closed by force just now */
  RawToken *pending; /* read ahead, to be given next; NULL = none */
  int previous;      /* last token given to the parser */
  Span previous_span;
  int before; /* the token before that one */
  Span before_span;
  int line_head; /* first token of the current line */
  Span head_span;
  bool at_line_start; /* the next token is one */
  bool stopped;       /* nesting too deep: only the end of the file follows */

  /* Error recovery. */
  bool recovering; /* a syntax error was reported and no synchronising token found yet */
  bool skip_block; /* the error is at a '{': drop the block it opens */
} Parser;

/* The lexer's actions (literals.c). Faults are reported and still give a value. */
const char *lexer_word(Parser *p, Span span);
Expr *lexer_int(Parser *p, Span span);
Expr *lexer_float(Parser *p, Span span);
Expr *lexer_bad_number(Parser *p, Span span);
Expr *lexer_string(Parser *p, Span span, bool terminated);
void lexer_block_comment(Parser *p, Span span, bool terminated);
void lexer_bad_character(Parser *p, Span span);
/* Reports the first byte that is not UTF-8. False when the file is no text at all (NUL bytes). */
bool lexer_check_encoding(Parser *p);

/* Token of a word: a keyword, DTYPE or NAME (tokens.c). */
int parser_word(const char *word);
/* The i-th row of keywords.def; NULL beyond the last. */
const char *parser_keyword(unsigned i, int *token, bool *reserved);

/* Prepares the token filter for recovery from an error at `token` (tokens.c). */
void parser_begin_recovery(Parser *p, int token);

/* A syntax error of the parser (errors.c): found `token` where one of `expected` could stand. */
void parser_syntax_error(Parser *p, int token, Span span, const int *expected, int nexpected);
/* A bound on nesting is passed: one error, and the parser sees the end of the file. */
void parser_too_deep(Parser *p, Span span, const char *reason);

#endif
