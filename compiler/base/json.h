/* The one place that writes JSON: commas, indentation and escapes; the caller gives the order.
 *
 *     json_begin_object(&j, NULL);
 *     json_text(&j, "name", "x");
 *     json_begin_array(&j, "sizes"); json_int(&j, NULL, 4); json_end(&j);
 *     json_end(&j);
 *
 * `key` names a member inside an object and is NULL inside an array and at the top.
 */
#ifndef DTM_BASE_JSON_H
#define DTM_BASE_JSON_H

#include "base/str.h"

enum { JSON_MAX_DEPTH = 32 };

typedef struct JsonWriter {
  StrBuf *out;
  bool compact; /* everything on one line */
  unsigned depth;
  char closer[JSON_MAX_DEPTH];
  bool empty[JSON_MAX_DEPTH + 1]; /* nothing written yet at this depth */
} JsonWriter;

void json_init(JsonWriter *j, StrBuf *out, bool compact);
void json_begin_object(JsonWriter *j, const char *key);
void json_begin_array(JsonWriter *j, const char *key);
void json_end(JsonWriter *j); /* of the innermost object or array; at the top adds a newline */
void json_text(JsonWriter *j, const char *key, const char *value); /* NULL writes null */
void json_int(JsonWriter *j, const char *key, int64_t value);

#endif
