/* Text of PTX -> tokens. A word takes its dots along (add.rn.f32, %tid.x), so opcodes come whole.
 */
#include "ptx_tree.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

bool ptx_error(PtxError *error, uint32_t line, const char *format, ...) {
  if (error->text) return false;
  va_list ap;
  va_start(ap, format);
  char *what = arena_vprintf(error->arena, format, ap);
  va_end(ap);
  error->text = arena_printf(error->arena, "PTX line %u: %s", line, what);
  return false;
}

static bool in_name(char c) {
  unsigned u = (unsigned char)c, letter = (u | 32) - 'a', digit = u - '0';
  return letter < 26 || digit < 10 || c == '_' || c == '$' || c == '%';
}

/* Blanks, // and block comments. */
static void skip(PtxLexer *lexer) {
  for (;;) {
    const char *c = lexer->at;
    if (*c == '\n') {
      lexer->line++;
      lexer->at++;
    } else if (*c == ' ' || *c == '\t' || *c == '\r') {
      lexer->at++;
    } else if (c[0] == '/' && c[1] == '/') {
      lexer->at += strcspn(c, "\n");
    } else if (c[0] == '/' && c[1] == '*') {
      const char *end = strstr(c + 2, "*/");
      if (!end) {
        ptx_error(lexer->error, lexer->line, "comment without end");
        lexer->at += strlen(c);
        return;
      }
      for (; lexer->at < end + 2; lexer->at++) lexer->line += *lexer->at == '\n';
    } else {
      return;
    }
  }
}

uint64_t ptx_decimal(const char **at) {
  uint64_t value = 0;
  for (; **at >= '0' && **at <= '9'; ++*at) value = 10 * value + (uint64_t)(**at - '0');
  return value;
}

static PtxToken lex_number(PtxLexer *lexer, PtxToken token) {
  enum { DIGITS = 18 }; /* of which every number has room */
  const char *c = lexer->at;
  if (*c != '0' || !isalnum((unsigned char)c[1])) { /* mostly */
    const char *after = c;
    token.bits = ptx_decimal(&after);
    token.kind = TOKEN_INTEGER;
    lexer->at = after;
    if (after - c <= DIGITS && *after != '.' && *after != 'U') return token;
    token.bits = 0;
  }
  if (c[0] == '0' && (c[1] == 'f' || c[1] == 'F' || c[1] == 'd' || c[1] == 'D')) {
    bool wide = c[1] == 'd' || c[1] == 'D';
    size_t digits = 0;
    for (const char *h = c + 2; isxdigit((unsigned char)*h); h++, digits++) {
      int value = isdigit((unsigned char)*h) ? *h - '0' : tolower((unsigned char)*h) - 'a' + 10;
      token.bits = token.bits << 4 | (uint64_t)value;
    }
    if (digits != (wide ? 16u : 8u))
      ptx_error(lexer->error, token.line, "%zu digits in a floating-point constant", digits);
    token.kind = wide ? TOKEN_F64 : TOKEN_F32;
    lexer->at += 2 + digits;
    return token;
  }
  char *end;
  token.kind = TOKEN_INTEGER;
  if (c[0] == '0' && (c[1] == 'b' || c[1] == 'B'))
    token.bits = strtoull(c + 2, &end, 2);
  else
    token.bits = strtoull(c, &end, 0);
  if (*end == '.' && isdigit((unsigned char)end[1])) { /* 9.0 */
    double value = strtod(c, &end);
    memcpy(&token.bits, &value, sizeof value);
    token.kind = TOKEN_F64;
  }
  if (*end == 'U') end++;
  lexer->at = end;
  return token;
}

PtxToken ptx_lex(PtxLexer *lexer) {
  skip(lexer);
  const char *c = lexer->at;
  PtxToken token = {.line = lexer->line};
  if (!*c || lexer->error->text) return token;
  if (isdigit((unsigned char)*c)) return lex_number(lexer, token);
  if (*c == '"') {
    const char *end = c + 1;
    while (*end && *end != '"' && *end != '\n') end++;
    if (*end != '"') {
      ptx_error(lexer->error, token.line, "string without end");
      return (PtxToken){.line = token.line};
    }
    token.kind = TOKEN_STRING;
    token.text = intern_n(lexer->names, c + 1, (size_t)(end - c - 1));
    lexer->at = end + 1;
    return token;
  }
  if (in_name(*c) || (*c == '.' && in_name(c[1]))) {
    const char *end = c + 1;
    for (;;) { /* a dot or :: belongs to the word when more of it follows */
      if (in_name(*end))
        end++;
      else if (*end == '.' && in_name(end[1]))
        end += 2;
      else if (end[0] == ':' && end[1] == ':' && in_name(end[2]))
        end += 3;
      else
        break;
    }
    token.kind = *c == '.' ? TOKEN_DIRECTIVE : TOKEN_WORD;
    token.text = intern_n(lexer->names, c, (size_t)(end - c));
    lexer->at = end;
    return token;
  }
  token.kind = TOKEN_PUNCTUATION;
  token.bits = (unsigned char)*c;
  lexer->at++;
  return token;
}
