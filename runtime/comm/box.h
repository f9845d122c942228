/* Walking boxes of elements between two arrays: the rows that are contiguous on both sides. */
#ifndef DTM_RT_COMM_BOX_H
#define DTM_RT_COMM_BOX_H

#include "comm/comm.h"

/* A box with its unit dims dropped and mergeable dims merged: `row` contiguous elements, repeated
 * over ndims outer dims. */
typedef struct BoxRows {
  int32_t ndims;
  int64_t extent[ABI_MAX_DIMS], src_stride[ABI_MAX_DIMS], dst_stride[ABI_MAX_DIMS];
  int64_t src_offset, dst_offset;
  int64_t row;   /* elements */
  int64_t total; /* elements; 0 = empty */
} BoxRows;

void dtm_box_rows(const RtBox *box, BoxRows *rows);

/* `count` rows of `row` elements, src_stride and dst_stride elements apart. */
typedef struct BoxRun {
  int64_t src, dst; /* elements from the bases */
  int64_t row, count, src_stride, dst_stride;
} BoxRun;

/* Calls `run` for the elements [first, last) of the box in row-major order. */
void dtm_box_walk(const BoxRows *rows, int64_t first, int64_t last,
                  void (*run)(void *ctx, const BoxRun *r), void *ctx);

/* Copies the box from `src` to `dst`, with up to `threads` OpenMP threads; `stream` as in
 * dtm_copy. */
void dtm_box_copy(void *dst, const void *src, const RtBox *box, size_t element, bool stream,
                  int threads);

/* Bytes of all boxes. */
size_t dtm_boxes_bytes(const RtBox *boxes, size_t nboxes, size_t element);

/* Part i of `parts` of n elements, cut at multiples of `grain`: [*first, *last). */
void dtm_split(int64_t n, int64_t parts, int64_t i, int64_t grain, int64_t *first, int64_t *last);

/* Threads worth starting for this many bytes, of at most `threads`. */
int dtm_threads_for(size_t bytes, int threads);

#endif
