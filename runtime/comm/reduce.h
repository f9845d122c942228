/* Element-wise folds over the buffers of several ranks: the arithmetic of every reduction,
 * whatever the transport.
 *
 * Fold order is the order of `src`, element by element, so a result depends on neither how buffers
 * are cut nor on threads. bf16 and f16 are folded in f32 and rounded once.
 */
#ifndef DTM_RT_COMM_REDUCE_H
#define DTM_RT_COMM_REDUCE_H

#include "comm/comm.h"

/* dst[d][i] = src[0][i] op src[1][i] op ... for every d, for i < n elements. A dst may equal a src
 * (same element positions), other overlap is not allowed. `stream`: write past the caches (for
 * results larger than they are). dtm_rt_reduces(dtype, op) holds; ndst, nsrc >= 1. */
void dtm_reduce(void *const *dst, int ndst, const void *const *src, int nsrc, size_t n, int dtype,
                int op, bool stream);

/* memcpy that writes past the caches when `stream`; the thread then owes a dtm_stream_fence before
 * it tells anyone. */
void dtm_copy(void *dst, const void *src, size_t bytes, bool stream);
void dtm_stream_fence(void);

/* From this many bytes on, written by one rank in one call, results do not fit the caches. */
enum { RT_STREAM_BYTES = 4 << 20 };

#endif
