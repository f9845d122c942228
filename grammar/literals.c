/* Values of number and string tokens, and the faults of single characters. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "grammar/parse.h"

/* The digits of a number without its underscores. */
static char *number_text(Parser *p, Span span) {
  char *text = arena_alloc(p->build.arena, span.end - span.start + 1), *to = text;
  for (uint32_t i = span.start; i < span.end; i++)
    if (p->text[i] != '_') *to++ = p->text[i];
  *to = 0;
  return text;
}

static const char *spelling(Parser *p, Span span) {
  return intern_n(p->build.names, p->text + span.start, span.end - span.start);
}

Expr *lexer_int(Parser *p, Span span) {
  errno = 0;
  long long value = strtoll(number_text(p, span), NULL, 10);
  if (errno == ERANGE) {
    Diag *d = build_error(&p->build, DIAG_BAD_NUMBER, span, "integer is too large");
    diag_reason(p->build.sink, d, "the largest integer is 9223372036854775807");
    return build_int(&p->build, span, value, "9223372036854775807");
  }
  return build_int(&p->build, span, value, spelling(p, span));
}

Expr *lexer_float(Parser *p, Span span) {
  double value = strtod(number_text(p, span), NULL);
  if (value > 1.7976931348623157e308) {
    Diag *d = build_error(&p->build, DIAG_BAD_NUMBER, span, "number is too large");
    diag_reason(p->build.sink, d, "the largest number is 1.7976931348623157e308");
    return build_float(&p->build, span, 0, "0.0");
  }
  return build_float(&p->build, span, value, spelling(p, span));
}

Expr *lexer_bad_number(Parser *p, Span span) {
  Diag *d = build_error(&p->build, DIAG_BAD_NUMBER, span, "\"%.*s\" is neither a number nor a name",
                        (int)(span.end - span.start > 60 ? 60 : span.end - span.start),
                        p->text + span.start);
  diag_reason(p->build.sink, d,
              "numbers look like 12, 10_000, 0.5 or 3e-4; names start with a letter");
  return build_int(&p->build, span, 0, "0");
}

static bool put_utf8(StrBuf *out, uint32_t c) {
  if (c == 0 || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) return false;
  if (c < 0x80) {
    strbuf_putc(out, (char)c);
    return true;
  }
  unsigned more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  strbuf_putc(out, (char)(((0xFF00u >> (more + 1)) & 0xFF) | (c >> (6 * more))));
  while (more--) strbuf_putc(out, (char)(0x80 | ((c >> (6 * more)) & 0x3F)));
  return true;
}

/* \u{1F600}: reads from behind the 'u'; returns where reading goes on, 0 when malformed. */
static uint32_t unicode_escape(Parser *p, uint32_t i, uint32_t end, StrBuf *out) {
  if (i >= end || p->text[i] != '{') return 0;
  char *stop;
  unsigned long value = strtoul(p->text + i + 1, &stop, 16);
  uint32_t at = (uint32_t)(stop - p->text);
  bool good =
      at > i + 1 && at < end && *stop == '}' && at - i <= 7 && put_utf8(out, (uint32_t)value);
  return good ? at + 1 : 0;
}

Expr *lexer_string(Parser *p, Span span, bool terminated) {
  if (!terminated) {
    Diag *d = build_error(&p->build, DIAG_UNTERMINATED_STRING, span, "string is not closed");
    diag_reason(p->build.sink, d, "a string ends on its line; write a line break in it as \\n");
  }
  uint32_t end = terminated ? span.end - 1 : span.end;
  StrBuf out;
  strbuf_init(&out, p->build.arena);
  for (uint32_t i = span.start + 1; i < end;) {
    if (p->text[i] != '\\') {
      strbuf_putc(&out, p->text[i++]);
      continue;
    }
    uint32_t next = i + 2;
    char c = i + 1 < end ? p->text[i + 1] : 0;
    switch (c) {
    case 'n':
      strbuf_putc(&out, '\n');
      break;
    case 't':
      strbuf_putc(&out, '\t');
      break;
    case 'r':
      strbuf_putc(&out, '\r');
      break;
    case '"':
    case '\\':
      strbuf_putc(&out, c);
      break;
    case 'u':
      next = unicode_escape(p, i + 2, end, &out);
      break;
    default:
      next = 0;
    }
    if (!next) {
      next = i + 1 < end ? i + 2 : end;
      Span place = {span.file, i, next};
      while (place.end < end && ((unsigned char)p->text[place.end] & 0xC0) == 0x80) place.end++;
      Diag *d = build_error(&p->build, DIAG_BAD_ESCAPE, place, "unknown escape in a string");
      diag_reason(p->build.sink, d,
                  "known are \\n \\t \\r \\\" \\\\ and \\u{hex digits}, which is not 0");
    }
    i = next;
  }
  return build_string(&p->build, span, intern(p->build.names, out.text), spelling(p, span));
}

void lexer_block_comment(Parser *p, Span span, bool terminated) {
  Span opening = {span.file, span.start, span.start + 2};
  Diag *d = build_error(&p->build, DIAG_BAD_CHARACTER, opening,
                        terminated ? "there are no block comments"
                                   : "there are no block comments, "
                                     "and this one is not closed");
  diag_help(p->build.sink, d, (Span){0}, NULL, NULL, "begin each line of the comment with //");
}

bool lexer_check_encoding(Parser *p) {
  const char *nul = memchr(p->text, 0, p->size);
  if (nul) {
    uint32_t at = (uint32_t)(nul - p->text);
    Diag *d = build_error(&p->build, DIAG_NOT_TEXT, (Span){p->build.source, at, at + 1},
                          "the file is not text: it has a NUL byte");
    diag_reason(p->build.sink, d, "source files are UTF-8 text");
    return false;
  }
  for (uint32_t i = 0, n; i < p->size; i += n) {
    if (utf8_decode(p->text + i, p->size - i, &n) != UTF8_BAD) continue;
    Diag *d = build_error(&p->build, DIAG_NOT_TEXT, (Span){p->build.source, i, i + 1},
                          "byte 0x%02X is not UTF-8", (unsigned char)p->text[i]);
    diag_reason(p->build.sink, d,
                "source files are UTF-8 text; convert this one, for example with iconv");
    break;
  }
  return true;
}

const char *lexer_word(Parser *p, Span span) {
  uint32_t size = span.end - span.start;
  if (size > MAX_NAME) {
    Diag *d = build_error(&p->build, DIAG_LONG_NAME, span, "name of %u characters", size);
    diag_help(p->build.sink, d, (Span){0}, NULL, NULL, "a name has at most %d", MAX_NAME);
    size = MAX_NAME;
  }
  return intern_n(p->build.names, p->text + span.start, size);
}

void lexer_bad_character(Parser *p, Span span) {
  const char *s = p->text + span.start;
  uint32_t length, c = utf8_decode(s, span.end - span.start, &length);
  if (c == UTF8_BAD) return; /* reported by lexer_check_encoding */
  static const struct {
    char c;
    const char *help;
  } helps[] = {
      {'#', "comments start with //"},
      {'\'', "strings are written in double quotes"},
      {';', "a statement ends with its line; write one per line"},
      {'&', "\"and\" is written &&"},
      {'|', "\"or\" is written ||"},
      {'^', "powers are written **"},
  };
  Diag *d;
  if (c < 0x20 || c == 0x7F) {
    d = build_error(&p->build, DIAG_BAD_CHARACTER, span, "control character 0x%02X", c);
  } else { /* of a long run only the first character is shown */
    d = build_error(&p->build, DIAG_BAD_CHARACTER, span, "\"%.*s\" has no meaning here",
                    (int)length, s);
  }
  for (size_t i = 0; i < sizeof helps / sizeof *helps; i++)
    if (helps[i].c == *s) diag_help(p->build.sink, d, (Span){0}, NULL, NULL, "%s", helps[i].help);
}
