/* Reading logs: see log.h. */
#include "support/log.h"

#include <jansson.h>
#include <string.h>

int log_steps(const char *log, const char *key, double *value, int most) {
  int n = 0;
  for (const char *line = log; *line && n < most;) {
    size_t length = strcspn(line, "\n");
    json_t *o = json_loadb(line, length, 0, NULL), *v = json_object_get(o, key);
    if (json_is_number(v) && json_object_get(o, "step")) value[n++] = json_number_value(v);
    json_decref(o);
    line += length + (line[length] != 0);
  }
  return n;
}
