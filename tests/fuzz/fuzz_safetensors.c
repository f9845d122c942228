/* libFuzzer target: any bytes as a safetensors file. What is accepted keeps the format's promises:
 * tensors lie inside the file, cover the data without hole or overlap, and have their size. */
#include <stdlib.h>
#include <string.h>

#include "state/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  StStore store;
  char why[ST_WHY] = "";
  memset(&store, 0, sizeof store);
  if (dtm_rt_st_parse(&store, data, size, 0, why)) {
    uint64_t total = 0;
    for (size_t i = 0; i < store.ntensors; i++) {
      const StTensor *t = &store.tensors[i];
      if (t->begin > t->end || t->end > size) abort();
      total += t->end - t->begin;
      for (size_t k = 0; k < i; k++) {
        const StTensor *u = &store.tensors[k];
        if (t->begin < u->end && u->begin < t->end) abort();
      }
    }
    uint64_t header = 0;
    for (int i = 7; i >= 0; i--) header = header << 8 | data[i];
    if (8 + header + total != size) abort();
  } else if (!why[0]) {
    abort();
  }
  dtm_rt_st_close(&store);
  return 0;
}
