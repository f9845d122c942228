/* Recursive-descent parser of the scalar language: see scalar.h. */
#include "ops/scalar.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef struct Parser {
  Arena *arena;
  const char *text, *at;
  const char *error; /* first fault */
} Parser;

static const Scalar *fail(Parser *p, const char *what) {
  if (!p->error)
    p->error = arena_printf(p->arena, "%s at column %d of \"%s\"", what, (int)(p->at - p->text) + 1,
                            p->text);
  return NULL;
}

static void skip_space(Parser *p) {
  while (*p->at == ' ') p->at++;
}

static bool take(Parser *p, const char *token) {
  skip_space(p);
  size_t n = strlen(token);
  if (strncmp(p->at, token, n) != 0) return false;
  p->at += n;
  return true;
}

static const Scalar *call(Parser *p, Op op, const Scalar *x, const Scalar *y) {
  if (!x || (!y && op != OP_NEG)) return NULL;
  Scalar *s = ARENA_NEW(p->arena, Scalar);
  *s = (Scalar){.kind = SCALAR_CALL, .op = op, .nargs = y ? 2 : 1, .arg = {x, y}};
  return s;
}

static const Scalar *parse_expr(Parser *p);

static const Scalar *parse_call(Parser *p, const char *name, size_t len) {
  Op op = op_by_name(arena_strndup(p->arena, name, len));
  if (op == OP_NONE || op_info(op)->cls != CLASS_POINTWISE)
    return fail(p, "not the name of a pointwise operator");
  Scalar *s = ARENA_NEW(p->arena, Scalar);
  *s = (Scalar){.kind = SCALAR_CALL, .op = op};
  do {
    if (s->nargs == op_info(op)->max_operands) return fail(p, "too many arguments");
    const Scalar *arg = parse_expr(p);
    if (!arg) return NULL;
    s->arg[s->nargs++] = arg;
  } while (take(p, ","));
  if (s->nargs != op_info(op)->min_operands) return fail(p, "too few arguments");
  if (!take(p, ")")) return fail(p, "expected )");
  return s;
}

static const Scalar *parse_primary(Parser *p) {
  skip_space(p);
  if (take(p, "(")) {
    const Scalar *inner = parse_expr(p);
    if (inner && !take(p, ")")) return fail(p, "expected )");
    return inner;
  }
  if (isdigit((unsigned char)*p->at)) {
    Scalar *s = ARENA_NEW(p->arena, Scalar);
    char *end;
    *s = (Scalar){.kind = SCALAR_CONST, .value = strtod(p->at, &end)};
    p->at = end;
    return s;
  }
  const char *name = p->at;
  while (isalnum((unsigned char)*p->at) || *p->at == '_') p->at++;
  size_t len = (size_t)(p->at - name);
  if (len == 0) return fail(p, "expected a value");
  if (take(p, "(")) return parse_call(p, name, len);
  const char *letters = "abcgy", *found = len == 1 ? strchr(letters, *name) : NULL;
  if (!found) return fail(p, "not an argument");
  Scalar *s = ARENA_NEW(p->arena, Scalar);
  *s = (Scalar){.kind = SCALAR_ARG, .which = (ScalarArg)(found - letters)};
  return s;
}

static const Scalar *parse_unary(Parser *p) {
  if (take(p, "-")) return call(p, OP_NEG, parse_unary(p), NULL);
  return parse_primary(p);
}

static const Scalar *parse_product(Parser *p) {
  const Scalar *s = parse_unary(p);
  while (s) {
    if (take(p, "*"))
      s = call(p, OP_MUL, s, parse_unary(p));
    else if (take(p, "/"))
      s = call(p, OP_DIV, s, parse_unary(p));
    else
      break;
  }
  return s;
}

static const Scalar *parse_sum(Parser *p) {
  const Scalar *s = parse_product(p);
  while (s) {
    if (take(p, "+"))
      s = call(p, OP_ADD, s, parse_product(p));
    else if (take(p, "-"))
      s = call(p, OP_SUB, s, parse_product(p));
    else
      break;
  }
  return s;
}

static const Scalar *parse_expr(Parser *p) {
  static const struct {
    const char *token;
    Op op;
  } compare[] = {{"<=", OP_LE}, {">=", OP_GE}, {"==", OP_EQ},
                 {"!=", OP_NE}, {"<", OP_LT},  {">", OP_GT}};
  const Scalar *s = parse_sum(p);
  for (size_t i = 0; s && i < sizeof compare / sizeof *compare; i++)
    if (take(p, compare[i].token)) return call(p, compare[i].op, s, parse_sum(p));
  return s;
}

const Scalar *scalar_parse(Arena *arena, const char *text, const char **error) {
  Parser p = {.arena = arena, .text = text, .at = text};
  const Scalar *s = parse_expr(&p);
  skip_space(&p);
  if (s && *p.at) s = fail(&p, "text after the expression");
  *error = p.error;
  return s;
}

const Scalar *scalar_of(Arena *arena, Op op) {
  const char *expr = op_info(op)->expr, *error;
  return expr && *expr ? scalar_parse(arena, expr, &error) : NULL;
}

bool scalar_gradients(Arena *arena, Op op, const Scalar *grads[3]) {
  const char *text = op_info(op)->grads;
  if (!text || !*text) return false;
  for (uint32_t i = 0; i < op_info(op)->max_operands; i++) {
    while (*text == ' ') text++;
    size_t len = strcspn(text, ";");
    const char *item = arena_strndup(arena, text, len), *error;
    grads[i] = *item && strcmp(item, "0") != 0 ? scalar_parse(arena, item, &error) : NULL;
    text += len;
    if (*text) text++;
  }
  return true;
}
