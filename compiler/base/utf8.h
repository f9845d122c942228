/* Decoding of UTF-8. */
#ifndef DTM_BASE_UTF8_H
#define DTM_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Never a code point. */
#define UTF8_BAD UINT32_MAX

/* The code point at s, of which n > 0 bytes exist, and its length in *bytes. What is not UTF-8
 * (also overlong forms and surrogates) gives UTF8_BAD and one byte. */
uint32_t utf8_decode(const char *s, size_t n, uint32_t *bytes);

#endif
