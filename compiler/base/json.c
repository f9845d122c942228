/* JSON writer: see json.h. */
#include "base/json.h"

#include <inttypes.h>
#include <string.h>

#include "base/utf8.h"

void json_init(JsonWriter *j, StrBuf *out, bool compact) {
  *j = (JsonWriter){.out = out, .compact = compact};
  j->empty[0] = true;
}

static void new_line(JsonWriter *j) {
  if (j->compact) return;
  strbuf_putc(j->out, '\n');
  for (unsigned i = 0; i < j->depth; i++) strbuf_puts(j->out, "  ");
}

static void put_quoted(StrBuf *out, const char *text) {
  strbuf_putc(out, '"');
  size_t left = strlen(text);
  for (uint32_t n; left > 0; text += n, left -= n) {
    uint32_t c = utf8_decode(text, left, &n);
    if (c == '"' || c == '\\')
      strbuf_printf(out, "\\%c", *text);
    else if (c == '\n')
      strbuf_puts(out, "\\n");
    else if (c == '\t')
      strbuf_puts(out, "\\t");
    else if (c < 0x20)
      strbuf_printf(out, "\\u%04x", c);
    else if (c == UTF8_BAD)
      strbuf_puts(out, "\\ufffd");
    else
      strbuf_put_n(out, text, n);
  }
  strbuf_putc(out, '"');
}

/* What comes before every value: comma, line, key. */
static void begin_value(JsonWriter *j, const char *key) {
  if (!j->empty[j->depth]) strbuf_putc(j->out, ',');
  j->empty[j->depth] = false;
  if (j->depth) new_line(j);
  if (!key) return;
  put_quoted(j->out, key);
  strbuf_puts(j->out, j->compact ? ":" : ": ");
}

static void open(JsonWriter *j, const char *key, char opener, char closer) {
  begin_value(j, key);
  strbuf_putc(j->out, opener);
  j->closer[j->depth++] = closer;
  j->empty[j->depth] = true;
}

void json_begin_object(JsonWriter *j, const char *key) {
  open(j, key, '{', '}');
}

void json_begin_array(JsonWriter *j, const char *key) {
  open(j, key, '[', ']');
}

void json_end(JsonWriter *j) {
  bool empty = j->empty[j->depth--];
  if (!empty) new_line(j);
  strbuf_putc(j->out, j->closer[j->depth]);
  if (!j->depth) strbuf_putc(j->out, '\n');
}

void json_text(JsonWriter *j, const char *key, const char *value) {
  begin_value(j, key);
  if (value)
    put_quoted(j->out, value);
  else
    strbuf_puts(j->out, "null");
}

void json_int(JsonWriter *j, const char *key, int64_t value) {
  begin_value(j, key);
  strbuf_printf(j->out, "%" PRId64, value);
}
