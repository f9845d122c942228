/* Wording of syntax errors: what was expected, in terms of the language, and what was found.
 *
 * Bison gives the exact set of acceptable tokens (LAC). Sets that stand for one idea ("an
 * expression", "a statement") are named by it; operators that could go on with the expression are
 * left out when something else is possible.
 */
#include <string.h>

#include "dtm.tab.h"
#include "grammar/parse.h"

enum { MAX_LISTED = 4, MAX_FOUND = 40, MAX_TOKENS = 128 };

typedef struct Expected {
  const int *tokens;
  int n;
  bool taken[MAX_TOKENS]; /* tokens[i] is covered by a group */
} Expected;

static int find(const Expected *e, int token) {
  for (int i = 0; i < e->n; i++)
    if (e->tokens[i] == token) return i;
  return -1;
}

static bool has(const Expected *e, int token) {
  int i = find(e, token);
  return i >= 0 && !e->taken[i];
}

static void take(Expected *e, const int *tokens, size_t n) {
  for (size_t i = 0; i < n; i++) {
    int at = find(e, tokens[i]);
    if (at >= 0) e->taken[at] = true;
  }
}

static const int names[] = {TOK_NAME,   TOK_AS,    TOK_CHUNKS, TOK_EVAL,
                            TOK_IN,     TOK_INFER, TOK_RANKS,  TOK_NAME_WORD,
                            TOK_RENAME, TOK_STORE, TOK_TRAIN,  TOK_TRANSPOSED};
static const int exprs[] = {TOK_INT,   TOK_FLOAT, TOK_STRING,    TOK_TRUE, TOK_FALSE,
                            TOK_NONE,  TOK_DTYPE, TOK_CONFIG,    TOK_IF,   TOK_RECOMPUTE,
                            TOK_LOCAL, TOK_AUTO,  TOK_UNCHECKED, '(',      '[',
                            '-',       '!'};
static const int operators[] = {'+',    '-',    '*',    '/',     '%',       '<',
                                '>',    '(',    '[',    '.',     TOK_POWER, TOK_EQ,
                                TOK_NE, TOK_LE, TOK_GE, TOK_AND, TOK_OR,    TOK_ON};
static const int heads[] = {TOK_LET,    TOK_ASSERT, TOK_RETURN,  TOK_IF,    TOK_FOR,    TOK_ON,
                            TOK_PARAM,  TOK_BUFFER, TOK_FORWARD, TOK_FN,    TOK_RENAME, TOK_IMPORT,
                            TOK_CONFIG, TOK_MESH,   TOK_MODULE,  TOK_TRAIN, TOK_EVAL,   TOK_INFER};
static const int types[] = {TOK_DTYPE, TOK_MESH, TOK_MODULE};
static const int axes[] = {TOK_STRING, TOK_NONE, '('};

static const int block_ends[] = {'}', TOK_END};
static const int line_ends[] = {'}', TOK_END, TOK_NEWLINE};

#define TAKE(e, list) take((e), (list), sizeof(list) / sizeof *(list))

/* The idea behind the set, its tokens taken; NULL when it has none. */
static const char *group(Expected *e) {
  const char *head = has(e, TOK_RETURN)   ? "a statement"
                     : has(e, TOK_PARAM)  ? "a member of the module"
                     : has(e, TOK_IMPORT) ? "a declaration (import, config, mesh, fn, module, let, "
                                            "train, eval, infer)"
                     : has(e, TOK_LET)    ? "a setting"
                                          : NULL;
  if (head) {
    TAKE(e, heads);
    TAKE(e, exprs);
    TAKE(e, names);
    return head;
  }
  if (has(e, TOK_INT) && has(e, TOK_NAME)) {
    TAKE(e, exprs);
    TAKE(e, names);
    return "an expression";
  }
  if (has(e, TOK_DTYPE) && has(e, TOK_MODULE)) {
    TAKE(e, types);
    TAKE(e, names);
    return "a type";
  }
  if (has(e, TOK_NAME) && has(e, TOK_NONE)) {
    TAKE(e, axes);
    TAKE(e, names);
    return "a mesh dim";
  }
  if (has(e, TOK_NAME)) {
    TAKE(e, names);
    return "a name";
  }
  return NULL;
}

static int count_left(const Expected *e) {
  int left = 0;
  for (int i = 0; i < e->n; i++) left += !e->taken[i];
  return left;
}

/* Of a long list only what ends or separates is worth telling. */
static void keep_separators(Expected *e) {
  for (int i = 0; i < e->n; i++) {
    int t = e->tokens[i];
    e->taken[i] |= t != ',' && t != ')' && t != ']' && t != '}' && t != TOK_NEWLINE;
  }
}

static const char *token_text(int token) {
  switch (token) {
  case TOK_NEWLINE:
    return "the end of the line";
  case TOK_END:
    return "the end of the file";
  case TOK_STRING:
    return "a string";
  case TOK_DTYPE:
    return "a dtype";
  case TOK_ARROW:
    return "\"->\"";
  case TOK_POWER:
    return "\"**\"";
  case TOK_EQ:
    return "\"==\"";
  case TOK_NE:
    return "\"!=\"";
  case TOK_LE:
    return "\"<=\"";
  case TOK_GE:
    return "\">=\"";
  case TOK_AND:
    return "\"&&\"";
  case TOK_OR:
    return "\"||\"";
  default:
    return NULL;
  }
}

static void put_token(StrBuf *out, int token) {
  const char *text = token_text(token), *word;
  int other;
  bool reserved;
  if (text) {
    strbuf_puts(out, text);
    return;
  }
  for (unsigned i = 0; (word = parser_keyword(i, &other, &reserved)); i++) {
    if (other != token) continue;
    strbuf_printf(out, "\"%s\"", word);
    return;
  }
  strbuf_printf(out, "\"%c\"", token); /* the rest are single characters */
}

static const char *describe_expected(Parser *p, const int *tokens, int n) {
  Expected e = {.tokens = tokens, .n = n < MAX_TOKENS ? n : MAX_TOKENS};
  const char *idea = group(&e);
  bool operator_fits = has(&e, '*') && has(&e, '+');
  if (operator_fits) TAKE(&e, operators);
  if (has(&e, TOK_NEWLINE)) TAKE(&e, block_ends);
  if (idea) TAKE(&e, line_ends);
  if (count_left(&e) + (idea != NULL) > MAX_LISTED) keep_separators(&e);
  int left = count_left(&e) + (idea != NULL), done = 0;
  if (left == 0) return operator_fits ? "an operator" : NULL;
  StrBuf out;
  strbuf_init(&out, p->build.arena);
  if (idea) {
    strbuf_puts(&out, idea);
    done++;
  }
  for (int i = 0; i < e.n; i++) {
    if (e.taken[i]) continue;
    if (done) strbuf_puts(&out, done == left - 1 ? " or " : ", ");
    put_token(&out, e.tokens[i]);
    done++;
  }
  return out.text;
}

static const char *describe_found(Parser *p, int token, Span span) {
  const char *text = token_text(token);
  if (token == TOK_NEWLINE || token == TOK_END) return text;
  const char *kind = token == TOK_NAME                        ? "name "
                     : token == TOK_INT || token == TOK_FLOAT ? "number "
                     : token == TOK_STRING                    ? "string "
                     : token == TOK_DTYPE                     ? "dtype "
                                                              : "";
  const char *quote = token == TOK_STRING || token == TOK_INT || token == TOK_FLOAT ? "" : "\"";
  int n = (int)(span.end - span.start);
  bool cut = n > MAX_FOUND;
  if (cut)
    for (n = MAX_FOUND; n > 0 && ((unsigned char)p->text[span.start + (uint32_t)n] & 0xC0) == 0x80;)
      n--;
  return arena_printf(p->build.arena, "%s%s%.*s%s%s", kind, quote, n, p->text + span.start,
                      cut ? "..." : "", quote);
}

static bool text_is(Parser *p, Span span, const char *word) {
  size_t n = strlen(word);
  return span.end - span.start == n && memcmp(p->text + span.start, word, n) == 0;
}

static bool is_reserved(int token) {
  int other;
  bool reserved;
  for (unsigned i = 0; parser_keyword(i, &other, &reserved); i++)
    if (other == token) return reserved;
  return false;
}

/* The word of the language nearest to a misspelt one; with `e`, among those that could stand here.
 */
static const char *nearest_word(Parser *p, Span span, const Expected *e) {
  const char *text = arena_strndup(p->build.arena, p->text + span.start, span.end - span.start);
  const char *best = NULL, *word;
  unsigned limit = strlen(text) > 3 ? 2 : 1;
  int token;
  bool reserved;
  for (unsigned i = 0; (word = parser_keyword(i, &token, &reserved)); i++) {
    bool fits = e ? find(e, token) >= 0 : reserved;
    unsigned distance = fits ? edit_distance(text, word, limit) : limit + 1;
    if (distance > limit || (best && distance == limit)) continue;
    limit = distance;
    best = word;
  }
  return best;
}

static void help(Parser *p, Diag *d, const char *text) {
  diag_help(p->build.sink, d, (Span){0}, NULL, NULL, "%s", text);
}

/* Words of other languages, and misspelt ones: the token itself, or the first word of the line when
 * the error shows right behind it. */
static void hint_words(Parser *p, Diag *d, int token, Span span, const Expected *e) {
  static const char *const words[][2] = {
      {"and", "write &&"},
      {"or", "write ||"},
      {"not", "write !"},
      {"elif", "write else if"},
      {"while", "loops run over lists: for i in range(n) { ... }"},
      {"def", "functions are written: fn name(a, b) { ... }"},
      {"class", "modules are written: module Name(...) { ... }"},
      {"var", "write let"},
      {"const", "write let"},
  };
  bool behind_head = p->before == TOK_NAME && p->before_span.start == p->head_span.start;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    bool here = token == TOK_NAME && text_is(p, span, words[i][0]);
    bool before = p->before == TOK_NAME && text_is(p, p->before_span, words[i][0]);
    if (!here && !before) continue;
    help(p, d, words[i][1]);
    return;
  }
  const char *near = NULL;
  if (token == TOK_NAME && find(e, '*') < 0) near = nearest_word(p, span, e);
  if (!near && behind_head) near = nearest_word(p, p->before_span, NULL);
  if (near) help(p, d, arena_printf(p->build.arena, "did you mean \"%s\"?", near));
}

/* What people who come from other languages write, and what to write instead. */
static void add_hints(Parser *p, Diag *d, int token, Span span, const Expected *e) {
  DiagSink *sink = p->build.sink;
  bool operator_fits = find(e, '*') >= 0, expr_fits = find(e, TOK_INT) >= 0;
  bool comparison = token == '<' || token == '>' || token == TOK_LE || token == TOK_GE ||
                    token == TOK_EQ || token == TOK_NE;
  if (is_reserved(token) && find(e, TOK_NAME) >= 0 && !expr_fits)
    diag_reason(sink, d, "%s is a reserved word and cannot be a name",
                describe_found(p, token, span));
  if (comparison && operator_fits) help(p, d, "comparisons do not chain: write a < b && b < c");
  if (token == '(' && p->before == TOK_DTYPE)
    help(p, d,
         arena_printf(p->build.arena, "convert a tensor with x.to(%.*s)",
                      (int)(p->before_span.end - p->before_span.start),
                      p->text + p->before_span.start));
  if (token == '.' && expr_fits) help(p, d, "a number has a digit before its point: 0.5");
  if (token == '?' && operator_fits) help(p, d, "choices are written: if c then a else b");
  if (token == '=' && operator_fits) help(p, d, "compare with ==");
  bool arithmetic = p->before == '+' || p->before == '-' || p->before == '*' || p->before == '/';
  if (token == '=' && arithmetic) help(p, d, "assign in full: x = x + 1");
  if (token == '@' && operator_fits)
    help(p, d, "a matrix product is matmul(a, b); @ cuts a dim of a type: f32[B@dp, D]");
  if (token == '+' && p->before == TOK_NEWLINE)
    help(p, d, "to go on with the line before, end it with the operator");
  hint_words(p, d, token, span, e);
}

/* The bracket that was still open where the error shows. */
static Bracket open_bracket_at(Parser *p, int token) {
  if (p->unclosed.token) return p->unclosed;
  bool closes = token == TOK_END || token == ')' || token == ']';
  if (closes && p->nbrackets) return p->brackets[p->nbrackets - 1];
  return (Bracket){0};
}

void parser_syntax_error(Parser *p, int token, Span span, const int *expected, int nexpected) {
  parser_begin_recovery(p, token);
  if (p->stopped || token == TOK_BAD) return; /* reported before */
  const char *what = describe_expected(p, expected, nexpected);
  const char *found = describe_found(p, token, span);
  Diag *d = what ? build_error(&p->build, DIAG_SYNTAX, span, "expected %s, found %s", what, found)
                 : build_error(&p->build, DIAG_SYNTAX, span, "unexpected %s", found);
  Expected e = {.tokens = expected, .n = nexpected < MAX_TOKENS ? nexpected : MAX_TOKENS};
  add_hints(p, d, token, span, &e);
  Bracket open = open_bracket_at(p, token);
  if (open.token) diag_note(p->build.sink, d, open.span, "this \"%c\" is not closed", open.token);
}

void parser_too_deep(Parser *p, Span span, const char *reason) {
  if (!p->stopped) {
    Diag *d = build_error(&p->build, DIAG_TOO_DEEP, span, "nesting is too deep");
    diag_reason(p->build.sink, d, "%s", reason);
  }
  p->stopped = true;
}
