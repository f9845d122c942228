/* The token filter between flex and bison, and the entry of the front end, ast_parse.
 *
 * A line end becomes a NEWLINE token only if the last token can end a statement, the next one
 * cannot continue it, and the innermost open bracket is not ( or [. So the grammar never sees two
 * in a row, none after '{' and none before '}'. Nesting is bounded here, which bounds the parser's
 * stack. While the parser recovers from an error, blocks it has no rule for are dropped whole.
 */
#include <string.h>

#include "dtm.tab.h"
#include "grammar/parse.h"

int dtm_lex(DTM_STYPE *value, Span *span, Parser *p);
int dtm_raw_token(DTM_STYPE *value, Span *span, void *scanner);
int dtm_raw_lex_init_extra(Parser *p, void **scanner);
int dtm_raw_lex_destroy(void *scanner);
void *dtm_raw__scan_bytes(const char *bytes, int len, void *scanner);

struct RawToken {
  int kind;
  DTM_STYPE value;
  Span span;
  bool newline; /* a line ended before it */
};

typedef enum WordKind { RESERVED = 1, SOFT, SETTING } WordKind;

static const struct {
  const char *word;
  int token;
  WordKind kind;
} keywords[] = {
#define X(word, token, kind) {#word, TOK_##token, kind},
#include "grammar/keywords.def"
#undef X
};

enum { NKEYWORDS = sizeof keywords / sizeof *keywords };

const char *parser_keyword(unsigned i, int *token, bool *reserved) {
  if (i >= NKEYWORDS) return NULL;
  *token = keywords[i].token;
  *reserved = keywords[i].kind == RESERVED;
  return keywords[i].word;
}

int parser_word(const char *word) {
  unsigned low = 0, high = NKEYWORDS;
  while (low < high) {
    unsigned middle = (low + high) / 2;
    int order = strcmp(word, keywords[middle].word);
    if (order == 0) return keywords[middle].token;
    if (order < 0)
      high = middle;
    else
      low = middle + 1;
  }
  return dtype_by_name(word) ? TOK_DTYPE : TOK_NAME;
}

static bool is_word(int token) {
  if (token == TOK_NAME || token == TOK_DTYPE) return true;
  for (unsigned i = 0; i < NKEYWORDS; i++)
    if (keywords[i].token == token) return true;
  return false;
}

/* Tokens after which a statement may be complete. */
static bool can_end(int token) {
  switch (token) {
  case TOK_BAD:
  case TOK_NAME:
  case TOK_DTYPE:
  case TOK_INT:
  case TOK_FLOAT:
  case TOK_STRING:
  case TOK_TRUE:
  case TOK_FALSE:
  case TOK_NONE:
  case TOK_CONFIG:
  case TOK_MESH:
  case TOK_MODULE:
  case TOK_RETURN:
  case ')':
  case ']':
  case '}':
  case '?':
    return true;
  default:
    break;
  }
  for (unsigned i = 0; i < NKEYWORDS; i++)
    if (keywords[i].token == token) return keywords[i].kind == SOFT;
  return false;
}

/* Tokens that no statement starts with: the line before goes on. '+' and '-' are not among them,
 * because '-' may start an expression and '+' should not behave otherwise. */
static bool continues(int token) {
  switch (token) {
  case TOK_END:
  case '.':
  case ':':
  case ',':
  case ')':
  case ']':
  case '{':
  case '}':
  case '*':
  case '/':
  case '%':
  case '<':
  case '>':
  case '=':
  case '@':
  case '?':
  case TOK_POWER:
  case TOK_EQ:
  case TOK_NE:
  case TOK_LE:
  case TOK_GE:
  case TOK_AND:
  case TOK_OR:
  case TOK_ARROW:
  case TOK_ELSE:
  case TOK_THEN:
    return true;
  default:
    return false;
  }
}

/* Words that open a statement and stand in no expression: at the start of a line they show that a
 * bracket was left open. */
static bool opens_statement(int token) {
  switch (token) {
  case TOK_LET:
  case TOK_RETURN:
  case TOK_PARAM:
  case TOK_BUFFER:
  case TOK_FN:
  case TOK_MODULE:
  case TOK_FORWARD:
  case TOK_IMPORT:
  case TOK_ASSERT:
    return true;
  default:
    return false;
  }
}

/* Lines whose '{' opens a block that the recovery rules of the grammar read. */
static bool head_opens_block(const Parser *p) {
  switch (p->line_head) {
  case TOK_FN:
  case TOK_MODULE:
  case TOK_FORWARD:
  case TOK_IF:
  case TOK_ELSE:
  case TOK_FOR:
    return true;
  default:
    return false;
  }
}

/* Tokens that end the last line of a block wrongly: the error is there, not at the '}'. */
static bool dangles(int token) {
  return !can_end(token) && token != ',' && token != '{' && token != TOK_NEWLINE;
}

static void fetch(Parser *p, RawToken *t) {
  p->newline = false;
  t->kind = dtm_raw_token(&t->value, &t->span, p->scanner);
  if (t->kind == TOK_END) /* point behind the last token, not behind blank lines */
    t->span = (Span){p->build.source, p->previous_span.end, p->previous_span.end};
  t->newline = p->newline;
}

static Bracket *innermost(Parser *p) {
  return p->nbrackets ? &p->brackets[p->nbrackets - 1] : NULL;
}

/* Drops ( and [ down to the innermost '{'; the last one dropped is kept for the message. */
static void close_by_force(Parser *p) {
  while (p->nbrackets && innermost(p)->token != '{') p->unclosed = p->brackets[--p->nbrackets];
}

void parser_begin_recovery(Parser *p, int token) {
  p->recovering = true;
  p->skip_block = token == '{' && !head_opens_block(p);
  if (token == '{' && p->nbrackets) { /* no bracket of its line stays open around it */
    Bracket block = p->brackets[--p->nbrackets];
    close_by_force(p);
    p->brackets[p->nbrackets++] = block;
  }
}

static void skip_to_closing_brace(Parser *p) {
  RawToken t;
  uint32_t depth = 1;
  do {
    fetch(p, &t);
    depth += t.kind == '{';
    depth -= t.kind == '}';
  } while (depth && t.kind != TOK_END);
  p->previous = '}';
  p->previous_span = t.span;
}

static void open_bracket(Parser *p, int token, Span span) {
  if (p->nbrackets == MAX_BRACKETS) {
    parser_too_deep(
        p, span,
        arena_printf(p->build.arena, "brackets and blocks may be nested %d deep", MAX_BRACKETS));
    return;
  }
  Bracket *outer = innermost(p);
  bool settings = (outer && outer->settings) || p->line_head == TOK_TRAIN ||
                  p->line_head == TOK_EVAL || p->line_head == TOK_INFER;
  p->brackets[p->nbrackets++] = (Bracket){token, settings, span};
}

static void close_bracket(Parser *p, int token) {
  int opening = token == ')' ? '(' : token == ']' ? '[' : '{';
  if (token == '}') {
    close_by_force(p);
    if (p->nbrackets) p->nbrackets--;
    return;
  }
  for (uint32_t i = p->nbrackets; i > 0 && p->brackets[i - 1].token != '{'; i--) {
    if (p->brackets[i - 1].token != opening) continue;
    if (i < p->nbrackets) p->unclosed = p->brackets[p->nbrackets - 1];
    p->nbrackets = i - 1;
    return;
  }
}

/* What a word means here: any word may follow '.'; `over`, `per`, `every` are names except on
 * lines of train, eval, infer. */
static int word_in_context(Parser *p, int token) {
  if (p->previous == '.' && is_word(token)) return TOK_NAME;
  if (token == TOK_OVER || token == TOK_PER || token == TOK_EVERY) {
    Bracket *inner = innermost(p);
    if (!inner || inner->token != '{' || !inner->settings) return TOK_NAME;
  }
  return token;
}

static int advance(Parser *p, int token, Span span) {
  p->before = p->previous;
  p->before_span = p->previous_span;
  p->previous = token;
  p->previous_span = span;
  return token;
}

int dtm_lex(DTM_STYPE *value, Span *span, Parser *p) {
  RawToken *t = p->pending;
  bool have = t->kind >= 0;
  if (p->skip_block) { /* the parser choked on this '{' */
    p->skip_block = false;
    if (p->nbrackets) p->nbrackets--;
    skip_to_closing_brace(p);
    have = false;
  }
  for (;;) {
    if (!have) fetch(p, t);
    have = false;
    if (t->kind == '{' && p->recovering && !head_opens_block(p))
      skip_to_closing_brace(p);
    else
      break;
  }
  if (p->stopped) t->kind = TOK_END;
  p->unclosed = (Bracket){0};
  Bracket *inner = innermost(p);
  bool in_line = inner && inner->token != '{';
  bool forced = t->newline && !p->at_line_start &&
                (opens_statement(t->kind) || (t->kind == '}' && !in_line && dangles(p->previous)));
  if (forced || (t->kind == '{' && p->recovering)) close_by_force(p);
  if (forced || (t->newline && !in_line && can_end(p->previous) && !continues(t->kind))) {
    t->newline = false;
    *span = (Span){p->build.source, p->previous_span.end, p->previous_span.end};
    p->at_line_start = true;
    return advance(p, TOK_NEWLINE, p->previous_span);
  }

  int kind = word_in_context(p, t->kind);
  if (p->at_line_start || kind == TOK_ELSE) {
    p->line_head = kind;
    p->head_span = t->span;
  }
  p->at_line_start = kind == '{';
  switch (kind) {
  case '(':
  case '[':
  case '{':
    open_bracket(p, kind, t->span);
    if (p->stopped) kind = TOK_END;
    break;
  case ')':
  case ']':
  case '}':
    close_bracket(p, kind);
    break;
  default:
    break;
  }
  *value = t->value;
  *span = t->span;
  t->kind = -1;
  return advance(p, kind, *span);
}

File *ast_parse(Arena *arena, Interner *names, DiagSink *sink, uint32_t source) {
  const SourceFile *text = sources_get(sink->sources, source);
  File *file = ARENA_NEW(arena, File);
  file->source = source;
  Parser *p = ARENA_NEW(arena, Parser);
  p->build =
      (Builder){.arena = arena, .names = names, .sink = sink, .source = source, .file = file};
  p->text = text->text;
  p->size = text->size;
  p->previous_span = (Span){source, 0, 0};
  p->pending = ARENA_NEW(arena, RawToken);
  p->pending->kind = -1;
  p->at_line_start = true;
  if (!lexer_check_encoding(p)) return file;
  dtm_raw_lex_init_extra(p, &p->scanner);
  dtm_raw__scan_bytes(p->text, (int)p->size, p->scanner);
  dtm_parse(p);
  dtm_raw_lex_destroy(p->scanner);
  return file;
}
