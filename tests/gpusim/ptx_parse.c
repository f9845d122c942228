/* Tokens of PTX -> tree: variables, routines and their statements. Directives that say nothing
 * about what a kernel does (debug sections, hints for ptxas) are read over by name; others are
 * errors. */
#include "ptx_tree.h"

#include <stdlib.h>
#include <string.h>

/* A line that was inlined, and the line of no inlined function that it came to. */
typedef struct Inlined {
  uint32_t file, loc, outer_file, outer_loc;
} Inlined;

enum { INLINED = 64 };

typedef struct Parser {
  PtxLexer lexer;
  PtxToken token; /* the next one */
  Arena *arena;
  PtxTree *tree;
  const char *loc_word, *pragma_word;
  /* What is being read, from where it began; moved to its place when its number is known. */
  VEC(PtxOperand) operands;
  VEC(PtxStatement) statements;
  uint32_t file, loc, outer_file, outer_loc; /* of the last .loc */
  Inlined inlined[INLINED];                  /* seen last, by file and line */
} Parser;

static void advance(Parser *p) {
  p->token = ptx_lex(&p->lexer);
}

static bool fail(Parser *p, const char *what) {
  const PtxToken *t = &p->token;
  if (t->text) return ptx_error(p->lexer.error, t->line, "%s, not '%s'", what, t->text);
  if (t->kind == TOKEN_PUNCTUATION)
    return ptx_error(p->lexer.error, t->line, "%s, not '%c'", what, (char)t->bits);
  return ptx_error(p->lexer.error, t->line, "%s", what);
}

static bool failed(const Parser *p) {
  return p->lexer.error->text != NULL;
}

static bool at(const Parser *p, char c) {
  return p->token.kind == TOKEN_PUNCTUATION && p->token.bits == (unsigned char)c;
}

static bool at_word(const Parser *p, const char *text) {
  return p->token.text && p->token.kind != TOKEN_STRING && !strcmp(p->token.text, text);
}

static bool accept(Parser *p, char c) {
  if (!at(p, c)) return false;
  advance(p);
  return true;
}

static bool expect(Parser *p, char c) {
  if (accept(p, c)) return true;
  char what[] = "' ' expected";
  what[1] = c;
  return fail(p, what);
}

static const char *expect_name(Parser *p) {
  const char *name = p->token.text;
  if (p->token.kind != TOKEN_WORD) {
    fail(p, "name expected");
    return "";
  }
  advance(p);
  return name;
}

/* A number with its sign. */
static int64_t expect_integer(Parser *p) {
  bool negative = accept(p, '-');
  uint64_t bits = p->token.bits;
  if (p->token.kind != TOKEN_INTEGER)
    fail(p, "number expected");
  else
    advance(p);
  return (int64_t)(negative ? 0 - bits : bits);
}

static bool skip_to(Parser *p, char c) {
  while (!at(p, c) && p->token.kind != TOKEN_END) advance(p);
  return expect(p, c);
}

/* --- variables ----------------------------------------------------------------------------------
 */

static bool type_bytes(const char *type, uint32_t *bytes) {
  static const struct {
    const char *name;
    uint32_t bytes;
  } types[] = {
      {".b8", 1},   {".u8", 1},   {".s8", 1},    {".b16", 2},    {".u16", 2},
      {".s16", 2},  {".b32", 4},  {".u32", 4},   {".s32", 4},    {".b64", 8},
      {".u64", 8},  {".s64", 8},  {".f16", 2},   {".f32", 4},    {".f64", 8},
      {".pred", 0}, {".bf16", 2}, {".f16x2", 4}, {".bf16x2", 4},
  };
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (!strcmp(types[i].name, type)) {
      *bytes = types[i].bytes;
      return true;
    }
  return false;
}

static void put(uint8_t *to, uint64_t bits, uint32_t bytes) {
  for (uint32_t i = 0; i < bytes; i++) to[i] = (uint8_t)(bits >> 8 * i);
}

/* { 1, 2, {3, 4} } or one value; `*n` counts the elements. */
static bool parse_initial(Parser *p, PtxVariable *v, uint64_t *n) {
  if (accept(p, '{')) {
    while (!at(p, '}')) {
      if (!parse_initial(p, v, n)) return false;
      if (!accept(p, ',')) break;
    }
    return expect(p, '}');
  }
  bool negative = accept(p, '-');
  uint64_t bits = negative ? -p->token.bits : p->token.bits;
  if (p->token.kind != TOKEN_INTEGER && p->token.kind != TOKEN_F32 && p->token.kind != TOKEN_F64)
    return fail(p, "constant expected (addresses in initialisers are not supported)");
  if ((*n + 1) * v->element > v->bytes) return fail(p, "more values than elements");
  put(v->initial + *n * v->element, bits, v->element);
  ++*n;
  advance(p);
  return true;
}

/* What follows the space: [.align n] [.v2|.v4] .type name [dims] [= values]. Without terminator. */
static bool parse_variable(Parser *p, PtxSpace space, PtxVariable *v) {
  *v = (PtxVariable){.space = space, .line = p->token.line};
  uint32_t lanes = 1;
  const char *type = NULL;
  while (p->token.kind == TOKEN_DIRECTIVE) {
    const char *word = p->token.text;
    advance(p);
    if (!strcmp(word, ".align"))
      v->align = (uint32_t)expect_integer(p);
    else if (!strcmp(word, ".v2"))
      lanes = 2;
    else if (!strcmp(word, ".v4"))
      lanes = 4;
    else if (!strcmp(word, ".ptr")) { /* .ptr [.space] [.align n]: of what a parameter points at */
      if (at_word(p, ".global") || at_word(p, ".shared") || at_word(p, ".const") ||
          at_word(p, ".local"))
        advance(p);
      if (at_word(p, ".align")) {
        advance(p);
        expect_integer(p);
      }
    } else if (!type && type_bytes(word, &v->element))
      type = word;
    else
      return ptx_error(p->lexer.error, v->line, "'%s' in a declaration is not known", word);
  }
  if (!type) return fail(p, "type expected");
  if (!v->align) v->align = v->element ? v->element * lanes : 1;
  v->name = expect_name(p);
  v->bytes = (uint64_t)v->element * lanes;
  if (space == SPACE_REGISTER && lanes > 1)
    return ptx_error(p->lexer.error, v->line, "vectors of registers are not supported");
  if (space == SPACE_REGISTER && accept(p, '<')) {
    v->count = (uint32_t)expect_integer(p);
    return expect(p, '>');
  }
  while (accept(p, '[')) {
    if (accept(p, ']')) {
      v->unsized = true;
      v->bytes = 0;
      continue;
    }
    v->bytes *= (uint64_t)expect_integer(p);
    if (!expect(p, ']')) return false;
  }
  if (accept(p, '=')) {
    v->initial = arena_alloc(p->arena, v->bytes);
    uint64_t n = 0;
    return parse_initial(p, v, &n);
  }
  return !failed(p);
}

/* --- instructions -------------------------------------------------------------------------------
 */

static bool parse_operand(Parser *p, PtxOperand *out);

static bool parse_items(Parser *p, PtxOperand *out, PtxOperandKind kind, char end) {
  uint32_t begin = p->operands.len;
  while (!at(p, end)) {
    PtxOperand item;
    if (!parse_operand(p, &item)) return false;
    VEC_PUSH(p->arena, &p->operands, item);
    if (!accept(p, ',')) break;
  }
  uint32_t n = p->operands.len - begin;
  out->kind = kind;
  out->nitems = n;
  if (n)
    out->items = memcpy(ARENA_ARRAY(p->arena, PtxOperand, n), p->operands.data + begin,
                        n * sizeof *out->items);
  p->operands.len = begin;
  return expect(p, end);
}

static bool parse_address(Parser *p, PtxOperand *out) {
  out->kind = OPERAND_ADDRESS;
  if (p->token.kind == TOKEN_WORD) {
    out->name = p->token.text;
    advance(p);
    if (accept(p, '+'))
      out->value = expect_integer(p);
    else if (at(p, '-'))
      out->value = expect_integer(p);
  } else {
    out->value = expect_integer(p);
  }
  return expect(p, ']');
}

static bool parse_operand(Parser *p, PtxOperand *out) {
  *out = (PtxOperand){0};
  if (accept(p, '{')) return parse_items(p, out, OPERAND_VECTOR, '}');
  if (accept(p, '(')) return parse_items(p, out, OPERAND_LIST, ')');
  if (accept(p, '[')) return parse_address(p, out);
  out->negated = accept(p, '!');
  if (p->token.kind == TOKEN_WORD) {
    out->kind = !strcmp(p->token.text, "_") ? OPERAND_SINK : OPERAND_NAME;
    out->name = p->token.text;
    advance(p);
    if (accept(p, '+')) out->value = expect_integer(p); /* variable + offset */
  } else if (p->token.kind == TOKEN_F32 || p->token.kind == TOKEN_F64) {
    out->kind = p->token.kind == TOKEN_F32 ? OPERAND_F32 : OPERAND_F64;
    out->value = (int64_t)p->token.bits;
    advance(p);
  } else {
    out->kind = OPERAND_INTEGER;
    out->value = expect_integer(p);
  }
  if (at(p, '|')) {
    advance(p);
    PtxOperand *both = ARENA_ARRAY(p->arena, PtxOperand, 2);
    both[0] = *out;
    *out = (PtxOperand){.kind = OPERAND_PAIR, .items = both, .nitems = 2};
    return parse_operand(p, &both[1]);
  }
  return !failed(p);
}

static void push(Parser *p, PtxStatement s) {
  s.file = p->file;
  s.loc = p->loc;
  s.outer_file = p->outer_file;
  s.outer_loc = p->outer_loc;
  VEC_PUSH(p->arena, &p->statements, s);
}

static void push_variable(Parser *p, uint32_t line, const PtxVariable *v) {
  PtxVariable *one = ARENA_NEW(p->arena, PtxVariable);
  *one = *v;
  push(p, (PtxStatement){.kind = STATEMENT_VARIABLE, .line = line, .variable = one});
}

static bool parse_instruction(Parser *p) {
  PtxStatement s = {.kind = STATEMENT_INSTRUCTION, .line = p->token.line};
  if (accept(p, '@')) {
    s.guard_negated = accept(p, '!');
    s.guard = expect_name(p);
    s.line = p->token.line;
  }
  s.name = expect_name(p);
  if (!s.guard && accept(p, ':')) {
    s.kind = STATEMENT_LABEL;
    if (at_word(p, ".branchtargets")) {
      s.kind = STATEMENT_TARGETS;
      advance(p);
      PtxOperand list;
      if (!parse_items(p, &list, OPERAND_LIST, ';')) return false;
      s.operands = list.items;
      s.noperands = list.nitems;
    } else if (at_word(p, ".callprototype") || at_word(p, ".calltargets")) {
      return skip_to(p, ';'); /* an indirect call through it is refused where it is made */
    }
    push(p, s);
    return true;
  }
  PtxOperand list;
  if (!parse_items(p, &list, OPERAND_LIST, ';')) return false;
  s.operands = list.items;
  s.noperands = list.nitems;
  push(p, s);
  return true;
}

static Inlined *inlined_slot(Parser *p, uint32_t file, uint32_t loc) {
  return &p->inlined[(31 * file + loc) % INLINED];
}

/* The last .loc is a line that stands inlined at another one, which may be inlined itself. */
static void place_outer(Parser *p, uint32_t file, uint32_t loc) {
  const Inlined *in = inlined_slot(p, file, loc);
  bool known = in->file == file && in->loc == loc;
  p->outer_file = known ? in->outer_file : file;
  p->outer_loc = known ? in->outer_loc : loc;
  *inlined_slot(p, p->file, p->loc) = (Inlined){p->file, p->loc, p->outer_file, p->outer_loc};
}

/* file line column [, function_name x [+ n], inlined_at file line column]: there is one for almost
 * every instruction, so it is read without tokens. */
static bool parse_loc(Parser *p) {
  PtxLexer *lexer = &p->lexer;
  uint64_t numbers[2];
  for (int i = 0; i < 2; i++) {
    while (*lexer->at == ' ' || *lexer->at == '\t') lexer->at++;
    if (*lexer->at < '0' || *lexer->at > '9')
      return ptx_error(lexer->error, lexer->line, "number expected");
    numbers[i] = ptx_decimal(&lexer->at);
  }
  static const char mark[] = ", inlined_at ";
  const char *rest = lexer->at;
  size_t length = strcspn(rest, "\n");
  lexer->at += length;
  if (numbers[1]) { /* line 0 is code of no line of its own */
    p->file = (uint32_t)numbers[0];
    p->loc = (uint32_t)numbers[1];
    p->outer_file = p->outer_loc = 0;
    const char *outer = memchr(rest, ',', length) ? strstr(rest, mark) : NULL;
    if (outer && outer < lexer->at) {
      char *end;
      unsigned long file = strtoul(outer + strlen(mark), &end, 10);
      place_outer(p, (uint32_t)file, (uint32_t)strtoul(end, NULL, 10));
    }
  }
  advance(p);
  return !failed(p);
}

static bool space_of(const char *word, PtxSpace *space) {
  static const struct {
    const char *name;
    PtxSpace space;
  } spaces[] = {{".global", SPACE_GLOBAL}, {".shared", SPACE_SHARED}, {".local", SPACE_LOCAL},
                {".const", SPACE_CONST},   {".param", SPACE_PARAM},   {".reg", SPACE_REGISTER}};
  for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
    if (!strcmp(spaces[i].name, word)) {
      *space = spaces[i].space;
      return true;
    }
  return false;
}

static bool parse_body(Parser *p, PtxRoutine *r) {
  uint32_t depth = 1;
  p->statements.len = 0;
  while (depth && !failed(p)) {
    PtxSpace space;
    if (p->token.kind == TOKEN_END) return fail(p, "'}' expected before the end");
    if (at(p, '{') || at(p, '}')) {
      bool open = at(p, '{');
      depth += open ? 1 : -1u;
      if (depth)
        push(p, (PtxStatement){.kind = open ? STATEMENT_OPEN : STATEMENT_CLOSE,
                               .line = p->token.line});
      advance(p);
    } else if (accept(p, ';')) {
      continue;
    } else if (p->token.text == p->loc_word) {
      if (!parse_loc(p)) return false;
    } else if (p->token.text == p->pragma_word) {
      if (!skip_to(p, ';')) return false;
    } else if (p->token.kind == TOKEN_DIRECTIVE && space_of(p->token.text, &space)) {
      advance(p);
      PtxVariable v;
      uint32_t line = p->token.line;
      if (!parse_variable(p, space, &v)) return false;
      push_variable(p, line, &v);
      while (accept(p, ',')) { /* .reg .b32 a, b; */
        v.name = expect_name(p);
        v.count = 0;
        if (accept(p, '<')) {
          v.count = (uint32_t)expect_integer(p);
          expect(p, '>');
        }
        push_variable(p, line, &v);
      }
      if (!expect(p, ';')) return false;
    } else if (p->token.kind == TOKEN_DIRECTIVE) {
      return fail(p, "instruction expected");
    } else if (!parse_instruction(p)) {
      return false;
    }
  }
  uint32_t n = r->nstatements = p->statements.len;
  r->statements = ARENA_ARRAY(p->arena, PtxStatement, n + 1);
  if (n) memcpy(r->statements, p->statements.data, n * sizeof *r->statements);
  return !failed(p);
}

/* --- routines and modules -----------------------------------------------------------------------
 */

static bool parse_params(Parser *p, PtxVariables *params) {
  if (!accept(p, '(')) return true;
  while (!at(p, ')')) {
    PtxSpace space;
    if (p->token.kind != TOKEN_DIRECTIVE || !space_of(p->token.text, &space) ||
        (space != SPACE_PARAM && space != SPACE_REGISTER))
      return fail(p, ".param expected");
    advance(p);
    PtxVariable v;
    if (!parse_variable(p, space, &v)) return false;
    VEC_PUSH(p->arena, params, v);
    if (!accept(p, ',')) break;
  }
  return expect(p, ')');
}

static void parse_three(Parser *p, uint32_t three[3]) {
  for (int d = 0; d < 3; d++) three[d] = 1;
  for (int d = 0; d < 3; d++) {
    three[d] = (uint32_t)expect_integer(p);
    if (!accept(p, ',')) return;
  }
}

static bool parse_routine(Parser *p, bool entry) {
  PtxRoutine r = {.entry = entry, .line = p->token.line};
  if (!entry && !parse_params(p, &r.results)) return false;
  r.name = expect_name(p);
  if (!parse_params(p, &r.params)) return false;
  while (p->token.kind == TOKEN_DIRECTIVE) { /* of these only the sizes of a block matter */
    const char *word = p->token.text;
    advance(p);
    if (!strcmp(word, ".maxntid"))
      parse_three(p, r.max_threads);
    else if (!strcmp(word, ".reqntid"))
      parse_three(p, r.required);
    else if (!strcmp(word, ".maxnreg") || !strcmp(word, ".minnctapersm") ||
             !strcmp(word, ".maxnctapersm"))
      expect_integer(p);
    else if (!strcmp(word, ".pragma"))
      skip_to(p, ';');
    else if (strcmp(word, ".noreturn"))
      return ptx_error(p->lexer.error, r.line, "'%s' of a function is not known", word);
  }
  if (accept(p, '{')) {
    r.body = true;
    p->file = p->loc = p->outer_file = p->outer_loc = 0;
    if (!parse_body(p, &r)) return false;
  } else if (!expect(p, ';')) {
    return false;
  }
  VEC_PUSH(p->arena, &p->tree->routines, r);
  return true;
}

static bool parse_file(Parser *p) {
  uint32_t number = (uint32_t)expect_integer(p);
  if (p->token.kind != TOKEN_STRING) return fail(p, "name of a file expected");
  if (number > 100000) return fail(p, "number of a file is too large");
  while (p->tree->files.len <= number) VEC_PUSH(p->arena, &p->tree->files, NULL);
  p->tree->files.data[number] = p->token.text;
  advance(p);
  while (accept(p, ',')) expect_integer(p); /* time, size */
  return !failed(p);
}

static bool parse_top(Parser *p) {
  const char *word = p->token.text;
  PtxSpace space;
  if (p->token.kind != TOKEN_DIRECTIVE) return fail(p, "directive expected");
  advance(p);
  if (!strcmp(word, ".version")) {
    advance(p);
    return true;
  }
  if (!strcmp(word, ".target")) {
    do advance(p);
    while (accept(p, ','));
    return true;
  }
  if (!strcmp(word, ".address_size")) {
    if (expect_integer(p) != 64) return fail(p, "addresses must have 64 bits");
    return true;
  }
  if (!strcmp(word, ".visible") || !strcmp(word, ".extern") || !strcmp(word, ".weak") ||
      !strcmp(word, ".common"))
    return true; /* linkage */
  if (!strcmp(word, ".entry")) return parse_routine(p, true);
  if (!strcmp(word, ".func")) return parse_routine(p, false);
  if (!strcmp(word, ".file")) return parse_file(p);
  if (!strcmp(word, ".pragma")) return skip_to(p, ';');
  if (!strcmp(word, ".section")) { /* debug data */
    while (p->token.kind != TOKEN_END && !at(p, '{')) advance(p);
    for (PtxLexer *lexer = &p->lexer; *lexer->at && *lexer->at != '}'; lexer->at++)
      lexer->line += *lexer->at == '\n';
    advance(p);
    return expect(p, '}');
  }
  if (space_of(word, &space) && space != SPACE_REGISTER && space != SPACE_PARAM &&
      space != SPACE_LOCAL) {
    if (at_word(p, ".attribute")) skip_to(p, ')');
    PtxVariable v;
    if (!parse_variable(p, space, &v)) return false;
    VEC_PUSH(p->arena, &p->tree->variables, v);
    return expect(p, ';');
  }
  return ptx_error(p->lexer.error, p->token.line, "directive '%s' is not known", word);
}

bool ptx_parse(PtxTree *tree, const char *text, Arena *arena, Interner *names, PtxError *error) {
  Parser p = {.lexer = {.at = text, .line = 1, .names = names, .error = error},
              .arena = arena,
              .tree = tree,
              .loc_word = intern(names, ".loc"),
              .pragma_word = intern(names, ".pragma")};
  advance(&p);
  while (p.token.kind != TOKEN_END && !failed(&p))
    if (!parse_top(&p)) return false;
  return !failed(&p);
}
