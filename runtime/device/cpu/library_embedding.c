/* The gradient of an embedding: see library_embedding.h. */
#include "device/cpu/library_embedding.h"

#include <string.h>

#include "runtime/abi/number.h"

/* The row of the block that holds this id, or -1. Checks the id against the whole vocabulary. */
static int64_t row_of(const LibTensor *ids, int64_t i, const LibTensor *weight, LibFault *fault) {
  int64_t id = abi_load_int(ids->data, ids->dtype, i);
  if (id < 0 || id >= weight->shape[0]) {
#pragma omp critical(dtm_rt_library_fault)
    *fault = (LibFault){.index = id, .extent = weight->shape[0]};
    return -1;
  }
  int64_t row = id - weight->offset[0];
  return row < 0 || row >= weight->extent[0] ? -1 : row;
}

size_t dtm_rt_embedding_scratch(const LibCall *c) {
  return sizeof(int64_t) * (size_t)(c->t[2].extent[0] + 1 + dtm_device_elements(&c->t[1]));
}

/* The sum of these rows of g, in their order. */
static void sum_rows(const LibTensor *g, const LibTensor *out, int64_t row, const int64_t *from,
                     int64_t count) {
  int64_t d = out->extent[1];
  if (out->dtype == ABI_F32) {
    float *to = (float *)out->data + row * d;
    memset(to, 0, sizeof(float) * (size_t)d);
    for (int64_t i = 0; i < count; i++) {
      const float *add = (const float *)g->data + from[i] * d;
      for (int64_t j = 0; j < d; j++) to[j] += add[j];
    }
    return;
  }
  for (int64_t j = 0; j < d; j++) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += abi_load(g->data, g->dtype, from[i] * d + j);
    abi_store(out->data, out->dtype, row * d + j, sum);
  }
}

/* Positions are sorted by the row they belong to (a counting sort, stable); then each row is summed
 * by one thread: no two threads write one row, and the order of additions is that of the ids. */
void dtm_rt_embedding_backward(const LibCall *c, int64_t *scratch, LibFault *fault) {
  const LibTensor *g = &c->t[0], *ids = &c->t[1], *out = &c->t[2];
  int64_t n = dtm_device_elements(ids), rows = out->extent[0];
  int64_t *start = scratch, *order = scratch + rows + 1;
  memset(start, 0, sizeof *start * (size_t)(rows + 1));
  for (int64_t i = 0; i < n; i++) {
    int64_t row = row_of(ids, i, out, fault);
    if (row >= 0) start[row + 1]++;
  }
  for (int64_t r = 0; r < rows; r++) start[r + 1] += start[r];
  for (int64_t i = 0; i < n; i++) {
    int64_t row = row_of(ids, i, out, fault);
    if (row >= 0) order[start[row]++] = i;
  }
  /* start[r] is now the end of row r. */
#pragma omp parallel for schedule(static) num_threads(n * out->extent[1] > 20000 ? c->threads : 1)
  for (int64_t r = 0; r < rows; r++) {
    int64_t begin = r ? start[r - 1] : 0;
    sum_rows(g, out, r, order + begin, start[r] - begin);
  }
}
