/* Walking and copying boxes: see box.h. */
#include "comm/box.h"

#include "comm/reduce.h"

#include <string.h>

void dtm_box_rows(const RtBox *box, BoxRows *rows) {
  *rows = (BoxRows){.src_offset = box->src_offset, .dst_offset = box->dst_offset, .row = 1};
  int64_t total = 1;
  int32_t n = 0;
  for (int32_t d = 0; d < box->ndims; d++) {
    total *= box->extent[d];
    if (box->extent[d] == 1) {
      continue;
    }
    /* The dim before ends where this one begins, on both sides: one dim. */
    if (n > 0 && rows->src_stride[n - 1] == box->src_stride[d] * box->extent[d] &&
        rows->dst_stride[n - 1] == box->dst_stride[d] * box->extent[d]) {
      rows->extent[n - 1] *= box->extent[d];
      rows->src_stride[n - 1] = box->src_stride[d];
      rows->dst_stride[n - 1] = box->dst_stride[d];
      continue;
    }
    rows->extent[n] = box->extent[d];
    rows->src_stride[n] = box->src_stride[d];
    rows->dst_stride[n] = box->dst_stride[d];
    n++;
  }
  if (n > 0 && rows->src_stride[n - 1] == 1 && rows->dst_stride[n - 1] == 1) {
    rows->row = rows->extent[--n];
  }
  rows->ndims = n;
  rows->total = total;
}

void dtm_box_walk(const BoxRows *rows, int64_t first, int64_t last,
                  void (*run)(void *ctx, const BoxRun *r), void *ctx) {
  int32_t inner = rows->ndims - 1;
  while (first < last) {
    int64_t index = first / rows->row, column = first % rows->row, at = index;
    BoxRun r = {rows->src_offset + column, rows->dst_offset + column, rows->row - column, 1, 0, 0};
    for (int32_t d = inner; d >= 0; d--) {
      int64_t i = at % rows->extent[d];
      at /= rows->extent[d];
      r.src += i * rows->src_stride[d];
      r.dst += i * rows->dst_stride[d];
    }
    if (column != 0 || last - first < rows->row) {
      r.row = r.row < last - first ? r.row : last - first;
    } else if (inner >= 0) {
      /* Whole rows up to the end of the innermost outer dim. */
      int64_t left = rows->extent[inner] - index % rows->extent[inner];
      int64_t whole = (last - first) / rows->row;
      r.count = left < whole ? left : whole;
      r.src_stride = rows->src_stride[inner];
      r.dst_stride = rows->dst_stride[inner];
    }
    run(ctx, &r);
    first += r.row * r.count;
  }
}

typedef struct CopyRun {
  unsigned char *dst;
  const unsigned char *src;
  size_t element;
  bool stream;
} CopyRun;

/* Short rows of a fixed size: the compiler turns each memcpy into one move. */
#define COPY_SHORT(BYTES)                                                                          \
  for (int64_t i = 0; i < r->count; i++, to += to_step, from += from_step) {                       \
    memcpy(to, from, BYTES);                                                                       \
  }                                                                                                \
  return

static void copy_run(void *ctx, const BoxRun *r) {
  const CopyRun *c = ctx;
  size_t bytes = (size_t)r->row * c->element;
  unsigned char *to = c->dst + r->dst * (int64_t)c->element;
  const unsigned char *from = c->src + r->src * (int64_t)c->element;
  int64_t to_step = r->dst_stride * (int64_t)c->element;
  int64_t from_step = r->src_stride * (int64_t)c->element;
  switch (bytes) {
  case 1:
    COPY_SHORT(1);
  case 2:
    COPY_SHORT(2);
  case 4:
    COPY_SHORT(4);
  case 8:
    COPY_SHORT(8);
  case 16:
    COPY_SHORT(16);
  case 32:
    COPY_SHORT(32);
  case 64:
    COPY_SHORT(64);
  }
  for (int64_t i = 0; i < r->count; i++, to += to_step, from += from_step) {
    dtm_copy(to, from, bytes, c->stream);
  }
}

void dtm_split(int64_t n, int64_t parts, int64_t i, int64_t grain, int64_t *first, int64_t *last) {
  int64_t per = (n + parts - 1) / parts;
  per = (per + grain - 1) / grain * grain;
  *first = per * i < n ? per * i : n;
  *last = per * (i + 1) < n ? per * (i + 1) : n;
}

int dtm_threads_for(size_t bytes, int threads) {
  enum { PER_THREAD = 128 << 10 };
  size_t useful = bytes / PER_THREAD;
  return useful < 2 ? 1 : useful < (size_t)threads ? (int)useful : threads;
}

static void copy_part(const BoxRows *rows, int64_t first, int64_t last, CopyRun *copy) {
  dtm_box_walk(rows, first, last, copy_run, copy);
  if (copy->stream) {
    dtm_stream_fence();
  }
}

void dtm_box_copy(void *dst, const void *src, const RtBox *box, size_t element, bool stream,
                  int threads) {
  BoxRows rows;
  dtm_box_rows(box, &rows);
  CopyRun copy = {dst, src, element, stream};
  int n = dtm_threads_for((size_t)rows.total * element, threads);
  if (n == 1) {
    copy_part(&rows, 0, rows.total, &copy);
    return;
  }
#pragma omp parallel for num_threads(n) schedule(static)
  for (int t = 0; t < n; t++) {
    int64_t first, last;
    dtm_split(rows.total, n, t, (int64_t)(64 / element), &first, &last);
    copy_part(&rows, first, last, &copy);
  }
}

size_t dtm_boxes_bytes(const RtBox *boxes, size_t nboxes, size_t element) {
  size_t bytes = 0;
  for (size_t i = 0; i < nboxes; i++) {
    size_t n = element;
    for (int32_t d = 0; d < boxes[i].ndims; d++) {
      n *= (size_t)boxes[i].extent[d];
    }
    bytes += n;
  }
  return bytes;
}
