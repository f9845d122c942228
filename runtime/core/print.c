/* Printing of tensors: see print.h. */
#include "core/print.h"

#include <stdarg.h>
#include <stdio.h>

#include "runtime/abi/number.h"

enum { EDGE = 4, TEXT = 8192 }; /* elements shown at each end of a long dim */

typedef struct Text {
  char s[TEXT];
  size_t n;
} Text;

static void put(Text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(Text *t, const char *format, ...) {
  va_list ap;
  va_start(ap, format);
  int n = vsnprintf(t->s + t->n, TEXT - t->n, format, ap);
  va_end(ap);
  t->n = n < 0 || t->n + (size_t)n >= TEXT ? TEXT - 1 : t->n + (size_t)n;
}

static void put_value(Text *t, const AbiType *type, const void *data, int64_t i) {
  if (type->dtype == ABI_BOOL)
    put(t, "%s", abi_load_int(data, ABI_BOOL, i) ? "true" : "false");
  else if (abi_is_float(type->dtype))
    put(t, "%.6g", abi_load(data, type->dtype, i));
  else
    put(t, "%lld", (long long)abi_load_int(data, type->dtype, i));
}

/* Elements from `at` on, along dim `d`, whose step is `step` elements. */
static void put_dim(Text *t, const AbiType *type, const void *data, uint32_t d, int64_t at,
                    int64_t step) {
  if (d == type->rank) {
    put_value(t, type, data, at);
    return;
  }
  int64_t n = type->shape[d], inner = n ? step / n : 0;
  put(t, "[");
  for (int64_t i = 0; i < n; i++) {
    if (n > 3 * EDGE && i == EDGE) {
      put(t, ", ...");
      i = n - EDGE;
    }
    if (i) put(t, ", ");
    put_dim(t, type, data, d + 1, at + i * inner, inner);
  }
  put(t, "]");
}

void dtm_rt_print_tensor(RtLog *log, const char *name, const AbiType *type, const void *data) {
  Text t = {.n = 0};
  int64_t count = 1;
  put(&t, "%s %s[", name, abi_dtype_name(type->dtype));
  for (uint32_t d = 0; d < type->rank; d++) {
    put(&t, "%s%lld", d ? ", " : "", (long long)type->shape[d]);
    count *= type->shape[d];
  }
  put(&t, "] = ");
  put_dim(&t, type, data, 0, 0, count);
  dtm_rt_log_line(log, "%s", t.s);
}
