/* Decoding of UTF-8: see utf8.h. */
#include "base/utf8.h"

uint32_t utf8_decode(const char *s, size_t n, uint32_t *bytes) {
  unsigned char c = (unsigned char)s[0];
  *bytes = 1;
  if (c < 0x80) return c;
  uint32_t len = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : 2;
  if (c < 0xC2 || c > 0xF4 || len > n) return UTF8_BAD;
  uint32_t value = c & (0x7Fu >> len);
  for (uint32_t i = 1; i < len; i++) {
    unsigned char next = (unsigned char)s[i];
    if ((next & 0xC0) != 0x80) return UTF8_BAD;
    value = value << 6 | (next & 0x3Fu);
  }
  static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (value < smallest[len] || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF))
    return UTF8_BAD;
  *bytes = len;
  return value;
}
