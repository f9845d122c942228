/* libFuzzer target: any bytes as a data file; the first byte picks the reader. What is accepted has
 * all its elements inside the file. */
#include <stdlib.h>
#include <string.h>

#include "data/table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char *const readers[] = {"idx", "npy", "bin", "text", "raw"};
  if (size == 0) return 0;
  Table t;
  char why[TABLE_WHY] = "";
  if (!dtm_rt_table_parse(&t, readers[data[0] % 5], data + 1, size - 1, data[0] / 5 % 14, why)) {
    if (!why[0]) abort();
    return 0;
  }
  int64_t last = 0;
  for (uint32_t d = 0; d < t.rank; d++)
    if (t.shape[d] == 0) return 0; /* the other extents may be of any size */
  for (uint32_t d = 0; d < t.rank; d++) {
    last += (t.shape[d] - 1) * t.stride[d];
  }
  int64_t bytes = dtm_rt_file_type_bytes(t.type);
  if (t.data < data + 1 || t.data + (last + 1) * bytes != data + size) abort();
  double ends = dtm_rt_table_float(&t, 0) + dtm_rt_table_float(&t, last);
  if (!dtm_rt_file_type_float(t.type) && ends != ends) abort();
  return 0;
}
