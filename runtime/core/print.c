/* Printing of tensors: see print.h. */
#include "core/print.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/abi/number.h"

/* A dim of more than THRICE * edge elements shows `edge` at each end. The edge is MOST_EDGE, less
 * where more than MANY elements would be shown. */
enum { MOST_EDGE = 4, THRICE = 3, MANY = 1024 };

static bool is_long(int64_t extent, int edge) {
  return extent > THRICE * edge;
}

static int edge_for(const AbiType *type) {
  for (int edge = MOST_EDGE; edge > 1; edge--) {
    int64_t shown = 1;
    for (uint32_t d = 0; d < type->rank; d++)
      shown *= is_long(type->shape[d], edge) ? 2 * edge : type->shape[d];
    if (shown <= MANY) return edge;
  }
  return 1;
}

/* The sign of a NaN means nothing, and devices give it differently. */
static void put_value(FILE *f, const AbiType *type, const void *data, int64_t i) {
  if (type->dtype == ABI_BOOL)
    fputs(abi_load_int(data, ABI_BOOL, i) ? "true" : "false", f);
  else if (abi_is_float(type->dtype) && isnan(abi_load(data, type->dtype, i)))
    fputs("nan", f);
  else if (abi_is_float(type->dtype))
    fprintf(f, "%.6g", abi_load(data, type->dtype, i));
  else
    fprintf(f, "%lld", (long long)abi_load_int(data, type->dtype, i));
}

/* Elements from `at` on, along dim `d`, whose step is `step` elements. */
static void put_dim(FILE *f, const AbiType *type, const void *data, int edge, uint32_t d,
                    int64_t at, int64_t step) {
  if (d == type->rank) {
    put_value(f, type, data, at);
    return;
  }
  int64_t n = type->shape[d], inner = n ? step / n : 0;
  fputc('[', f);
  for (int64_t i = 0; i < n; i++) {
    if (is_long(n, edge) && i == edge) {
      fputs(", ...", f);
      i = n - edge;
    }
    if (i) fputs(", ", f);
    put_dim(f, type, data, edge, d + 1, at + i * inner, inner);
  }
  fputc(']', f);
}

void dtm_rt_print_tensor(RtLog *log, const char *name, const AbiType *type, const void *data) {
  char *text = NULL;
  size_t size;
  FILE *f = open_memstream(&text, &size);
  if (!f) return; /* no memory for a line: what is computed does not depend on it */
  int64_t count = 1;
  fprintf(f, "%s %s[", name, abi_dtype_name(type->dtype));
  for (uint32_t d = 0; d < type->rank; d++) {
    fprintf(f, "%s%lld", d ? ", " : "", (long long)type->shape[d]);
    count *= type->shape[d];
  }
  fputs("] = ", f);
  put_dim(f, type, data, edge_for(type), 0, 0, count);
  if (fclose(f) == 0) dtm_rt_log_line(log, "%s", text);
  free(text);
}
