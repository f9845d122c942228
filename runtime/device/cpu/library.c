/* Sorting, running sums, scatter, comparing replicas: see library.h. */
#include "device/cpu/library.h"

#include <omp.h>
#include <string.h>

#include "device/cpu/library_attention.h"
#include "device/cpu/library_embedding.h"
#include "device/cpu/library_grouped.h"
#include "runtime/abi/number.h"

/* A tensor as lines along `dim`: outer * inner of them, elements `inner` apart. */
typedef struct Lines {
  int64_t outer, n, inner;
} Lines;

static Lines lines_of(const LibTensor *t, int64_t dim) {
  Lines l = {1, 1, 1};
  for (uint32_t d = 0; d < t->rank; d++) {
    if (d < dim)
      l.outer *= t->extent[d];
    else if (d == dim)
      l.n = t->extent[d];
    else
      l.inner *= t->extent[d];
  }
  return l;
}

static int64_t line_start(const Lines *l, int64_t line) {
  return line / l->inner * l->n * l->inner + line % l->inner;
}

static void copy_element(void *to, int64_t i, const void *from, int64_t j, size_t width) {
  memcpy((char *)to + (size_t)i * width, (const char *)from + (size_t)j * width, width);
}

static int threads_for(const LibCall *c, int64_t work) {
  return work > 20000 ? c->threads : 1;
}

/* --- sort ---------------------------------------------------------------------------------------
 */

/* Whether element i comes before j; NaN counts as the largest. */
static int before(const LibTensor *x, int64_t i, int64_t j, int descending) {
  if (abi_is_float(x->dtype)) {
    double a = abi_load(x->data, x->dtype, i), b = abi_load(x->data, x->dtype, j);
    if (isnan(a) || isnan(b)) return descending ? isnan(a) && !isnan(b) : isnan(b) && !isnan(a);
    return descending ? a > b : a < b;
  }
  int64_t a = abi_load_int(x->data, x->dtype, i), b = abi_load_int(x->data, x->dtype, j);
  return descending ? a > b : a < b;
}

/* Stable merge sort of positions 0..n-1 of one line; the result is in the array returned. */
static int64_t *sort_line(const LibTensor *x, int64_t start, int64_t stride, int64_t n,
                          int descending, int64_t *a, int64_t *b) {
  for (int64_t i = 0; i < n; i++) a[i] = i;
  for (int64_t width = 1; width < n; width *= 2) {
    for (int64_t lo = 0; lo < n; lo += 2 * width) {
      int64_t mid = lo + width < n ? lo + width : n, hi = lo + 2 * width < n ? lo + 2 * width : n;
      int64_t i = lo, j = mid;
      for (int64_t k = lo; k < hi; k++) {
        int right = i == mid ||
                    (j < hi && before(x, start + a[j] * stride, start + a[i] * stride, descending));
        b[k] = right ? a[j++] : a[i++];
      }
    }
    int64_t *swap = a;
    a = b;
    b = swap;
  }
  return a;
}

/* sort and topk: the first `keep` of each sorted line. */
static void sort(const LibCall *c, int descending, int64_t keep, int64_t *scratch) {
  const LibTensor *x = &c->t[0], *values = &c->t[1], *indices = &c->t[2];
  Lines in = lines_of(x, c->args[0]), out = in;
  out.n = keep;
  size_t width = abi_dtype_bytes(x->dtype);
  int64_t count = in.outer * in.inner;
#pragma omp parallel for schedule(static) num_threads(threads_for(c, count *in.n))
  for (int64_t line = 0; line < count; line++) {
    int64_t *mine = scratch + 2 * in.n * omp_get_thread_num();
    int64_t from = line_start(&in, line), to = line_start(&out, line);
    const int64_t *order = sort_line(x, from, in.inner, in.n, descending, mine, mine + in.n);
    for (int64_t i = 0; i < keep; i++) {
      copy_element(values->data, to + i * in.inner, x->data, from + order[i] * in.inner, width);
      abi_store_int(indices->data, indices->dtype, to + i * in.inner, order[i]);
    }
  }
}

static void cumsum(const LibCall *c) {
  const LibTensor *x = &c->t[0], *y = &c->t[1];
  Lines l = lines_of(x, c->args[0]);
  int64_t count = l.outer * l.inner, step = c->args[1] ? -l.inner : l.inner;
#pragma omp parallel for schedule(static) num_threads(threads_for(c, count *l.n))
  for (int64_t line = 0; line < count; line++) {
    int64_t at = line_start(&l, line) + (c->args[1] ? (l.n - 1) * l.inner : 0);
    double sum = 0;
    uint64_t whole = 0;
    for (int64_t i = 0; i < l.n; i++, at += step) {
      if (abi_is_float(y->dtype)) {
        sum += abi_load(x->data, x->dtype, at);
        abi_store(y->data, y->dtype, at, sum);
      } else {
        whole += (uint64_t)abi_load_int(x->data, x->dtype, at);
        abi_store_int(y->data, y->dtype, at, (int64_t)whole);
      }
    }
  }
}

/* --- scatter ------------------------------------------------------------------------------------
 */

static void record(LibFault *fault, int64_t index, int64_t extent) {
#pragma omp critical(dtm_rt_library_fault)
  {
    fault->index = index;
    fault->extent = extent;
  }
}

/* Offset in `x` of the line that goes through position `line` of `index` along dim; the other dims
 * of index may be shorter than those of x. */
static int64_t matching_line(const LibTensor *x, const LibTensor *index, int64_t dim,
                             int64_t line) {
  int64_t at = 0, stride = 1, strides[ABI_MAX_DIMS];
  for (uint32_t d = x->rank; d-- > 0;) {
    strides[d] = stride;
    stride *= x->extent[d];
  }
  for (uint32_t d = index->rank; d-- > 0;) {
    if (d == dim) continue;
    at += line % index->extent[d] * strides[d];
    line /= index->extent[d];
  }
  return at;
}

static void add_element(const LibTensor *y, int64_t at, const LibTensor *source, int64_t from) {
  if (abi_is_float(y->dtype))
    abi_store(y->data, y->dtype, at,
              abi_load(y->data, y->dtype, at) + abi_load(source->data, source->dtype, from));
  else
    abi_store_int(y->data, y->dtype, at,
                  (int64_t)((uint64_t)abi_load_int(y->data, y->dtype, at) +
                            (uint64_t)abi_load_int(source->data, source->dtype, from)));
}

static void scatter_add(const LibCall *c, LibFault *fault) {
  const LibTensor *x = &c->t[0], *index = &c->t[1], *source = &c->t[2], *y = &c->t[3];
  int64_t dim = c->args[0];
  Lines li = lines_of(index, dim), ly = lines_of(y, dim), ls = lines_of(source, dim);
  size_t bytes = abi_dtype_bytes(x->dtype) * (size_t)(ly.outer * ly.n * ly.inner);
  if (y->data != x->data && bytes) memcpy(y->data, x->data, bytes);
  int64_t count = li.outer * li.inner;
#pragma omp parallel for schedule(static) num_threads(threads_for(c, count *li.n))
  for (int64_t line = 0; line < count; line++) {
    int64_t to = matching_line(y, index, dim, line), from = matching_line(source, index, dim, line);
    int64_t at = line_start(&li, line);
    for (int64_t i = 0; i < li.n; i++, at += li.inner, from += ls.inner) {
      int64_t k = abi_load_int(index->data, index->dtype, at);
      if (k < 0 || k >= ly.n)
        record(fault, k, ly.n);
      else
        add_element(y, to + k * ly.inner, source, from);
    }
  }
}

/* --- replicas -----------------------------------------------------------------------------------
 */

/* Copies x and compares it with what the first rank has; equal are also two NaN. The first element
 * that differs is the one told, whatever the number of threads. */
static void same_as(const LibCall *c, LibFault *fault) {
  const LibTensor *x = &c->t[0], *first = &c->t[1], *y = &c->t[2];
  int64_t n = dtm_device_elements(x), at = -1;
  if (y->data != x->data && n) memcpy(y->data, x->data, dtm_device_bytes(x));
  for (int64_t i = 0; i < n && at < 0; i++) {
    double a = abi_load(x->data, x->dtype, i), b = abi_load(first->data, x->dtype, i);
    int same = a == b || (isnan(a) && isnan(b));
    if (same && !abi_is_float(x->dtype))
      same = abi_load_int(x->data, x->dtype, i) == abi_load_int(first->data, x->dtype, i);
    if (same) continue;
    at = i;
    *fault = (LibFault){.index = i, .extent = n, .mine = a, .first = b};
  }
}

/* --- entry -------------------------------------------------------------------------------------
 */

size_t dtm_rt_library_scratch(const LibCall *c) {
  if (c->code == ABI_LIB_SORT || c->code == ABI_LIB_TOPK)
    return 2 * sizeof(int64_t) * (size_t)lines_of(&c->t[0], c->args[0]).n * (size_t)c->threads;
  if (c->code == ABI_LIB_ATTENTION || c->code == ABI_LIB_ATTENTION_BACKWARD)
    return dtm_rt_library_attention_scratch(c);
  if (c->code == ABI_LIB_GROUPED_LINEAR || c->code == ABI_LIB_GROUPED_LINEAR_WEIGHT)
    return dtm_rt_grouped_scratch(c);
  return c->code == ABI_LIB_EMBEDDING_BACKWARD ? dtm_rt_embedding_scratch(c) : 0;
}

int dtm_rt_library_run(const LibCall *c, void *scratch, LibFault *fault) {
  *fault = (LibFault){.extent = -1};
  switch ((AbiLibrary)c->code) {
  case ABI_LIB_SORT:
    sort(c, c->args[1] != 0, c->t[0].extent[c->args[0]], scratch);
    break;
  case ABI_LIB_TOPK:
    sort(c, 1, c->t[1].extent[c->args[0]], scratch);
    break;
  case ABI_LIB_CUMSUM:
    cumsum(c);
    break;
  case ABI_LIB_SCATTER_ADD:
    scatter_add(c, fault);
    break;
  case ABI_LIB_EMBEDDING_BACKWARD:
    dtm_rt_embedding_backward(c, scratch, fault);
    break;
  case ABI_LIB_SAME_AS:
    same_as(c, fault);
    break;
  case ABI_LIB_ATTENTION:
  case ABI_LIB_ATTENTION_BACKWARD:
    dtm_rt_library_attention(c, scratch);
    break;
  case ABI_LIB_GROUPED_LINEAR:
    dtm_rt_grouped_linear(c, scratch, fault);
    break;
  case ABI_LIB_GROUPED_LINEAR_WEIGHT:
    dtm_rt_grouped_linear_weight(c, scratch, fault);
    break;
  case ABI_LIB_NONE:
  case ABI_LIB_COUNT:
    break;
  }
  return fault->extent >= 0 ? -1 : 0;
}
