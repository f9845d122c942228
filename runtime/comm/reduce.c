/* Element-wise folds: see reduce.h. Work goes block by block through buffers that stay in the first
 * cache: fold all sources into the block, then write it to every destination.
 *
 * Past the caches the blocks are small and each store fetches a part of the sources of a later
 * block, so that memory reads and writes at once rather than by turns; and there is one fence at
 * the end, since every fence waits for all stores. */
#include "comm/reduce.h"

#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "runtime/abi/number.h"

typedef void FoldLoop(void *acc, const void *lhs, const void *rhs, size_t n);

typedef struct ReduceLoops {
  FoldLoop *fold[ABI_DTYPE_COUNT][ABI_REDUCE_COUNT]; /* bf16, f16: of f32 */
  void (*widen[ABI_DTYPE_COUNT])(float *out, const uint16_t *in, size_t n);
  void (*narrow[ABI_DTYPE_COUNT])(uint16_t *out, const float *in, size_t n);
  void (*divide_float)(float *x, size_t n, float by);
  void (*divide_double)(double *x, size_t n, double by);
  void (*stream)(unsigned char *dst, const unsigned char *src, size_t bytes,
                 const unsigned char *const *ahead, int nahead);
} ReduceLoops;

/* Iterations are independent. To clang this is a demand to vectorise, which it cannot meet, and
 * says so, when a sanitizer puts its checks into the loop. */
#if defined(DTM_INSTRUMENTED)
#define LOOP_INDEPENDENT
#elif defined(__clang__)
#define LOOP_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define LOOP_INDEPENDENT _Pragma("GCC ivdep")
#endif
#define ALWAYS_INLINE static inline __attribute__((always_inline))

#define LOOPS_NAME(x) base_##x
#define LOOPS_TARGET
#define LOOPS_STREAM(dst, src) memcpy(dst, src, 64)
#include "comm/reduce_loops.h"

#if defined(__x86_64__)
#define LOOPS_NAME(x) avx2_##x
#define LOOPS_TARGET __attribute__((target("avx2,fma")))
#define LOOPS_STREAM(dst, src)                                                                     \
  _mm256_stream_si256((void *)(dst), _mm256_loadu_si256((const void *)(src)));                     \
  _mm256_stream_si256((void *)((dst) + 32), _mm256_loadu_si256((const void *)((src) + 32)))
#include "comm/reduce_loops.h"

#define LOOPS_NAME(x) avx512_##x
#if defined(__clang__)
#define LOOPS_TARGET                                                                               \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"), min_vector_width(512)))
#else
#define LOOPS_TARGET                                                                               \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")))
#endif
#define LOOPS_STREAM(dst, src)                                                                     \
  _mm512_stream_si512((void *)(dst), _mm512_loadu_si512((const void *)(src)))
#include "comm/reduce_loops.h"
#endif

enum {
  BLOCK_BYTES = 8192,  /* of results in the caches */
  STREAM_BYTES = 1024, /* of results past them */
  REDUCE_AHEAD = 2048, /* bytes from what is folded to what is fetched */
  COPY_AHEAD = 4096,
  MAX_AHEAD = 16 /* sources fetched ahead; of more, the first */
};

static const ReduceLoops *loops_for_cpu(void) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq")) {
    return &avx512_loops;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return &avx2_loops;
  }
#endif
  return &base_loops;
}

/* Past the caches where whole lines are written. As many bytes at each of the `nahead` addresses
 * are fetched meanwhile. */
static void stream_copy(const ReduceLoops *loops, unsigned char *to, const unsigned char *from,
                        size_t bytes, const unsigned char *const *ahead, int nahead) {
  size_t head = (size_t)(-(uintptr_t)to & 63);
  if (bytes < head + 256) {
    memcpy(to, from, bytes);
    return;
  }
  size_t body = (bytes - head) & ~(size_t)63, end = head + body;
  if (head > 0) {
    memcpy(to, from, head);
  }
  loops->stream(to + head, from + head, body, ahead, nahead);
  if (end < bytes) {
    memcpy(to + end, from + end, bytes - end);
  }
}

void dtm_stream_fence(void) {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

void dtm_copy(void *dst, const void *src, size_t bytes, bool stream) {
  if (!stream) {
    memcpy(dst, src, bytes);
    return;
  }
  const ReduceLoops *loops = loops_for_cpu();
  unsigned char *to = dst;
  const unsigned char *from = src, *ahead = from + COPY_AHEAD;
  if (bytes > COPY_AHEAD) {
    /* Up to a line of the destination, so that no line is written by halves. */
    size_t first = bytes - COPY_AHEAD + ((size_t)(-(uintptr_t)(to + bytes - COPY_AHEAD)) & 63);
    stream_copy(loops, to, from, first, &ahead, 1);
    to += first;
    from += first;
    bytes -= first;
  }
  stream_copy(loops, to, from, bytes, NULL, 0);
}

/* One block of results, whose element type is `dtype`, in `out`. */
static void reduce_block(const ReduceLoops *loops, void *out, const void *const *src, int nsrc,
                         size_t offset, size_t n, int dtype, int op) {
  size_t bytes = abi_dtype_bytes((uint32_t)dtype);
  FoldLoop *fold = loops->fold[dtype][op];
  const unsigned char *first = (const unsigned char *)src[0] + offset * bytes;
  if (dtype == ABI_BF16 || dtype == ABI_F16) {
    float acc[BLOCK_BYTES / 2], next[BLOCK_BYTES / 2];
    loops->widen[dtype](acc, (const uint16_t *)first, n);
    for (int s = 1; s < nsrc; s++) {
      loops->widen[dtype](next, (const uint16_t *)src[s] + offset, n);
      fold(acc, acc, next, n);
    }
    if (op == ABI_AVG) {
      loops->divide_float(acc, n, (float)nsrc);
    }
    loops->narrow[dtype](out, acc, n);
    return;
  }
  const void *left = first;
  for (int s = 1; s < nsrc; s++) {
    fold(out, left, (const unsigned char *)src[s] + offset * bytes, n);
    left = out;
  }
  if (nsrc == 1) {
    memcpy(out, first, n * bytes);
  }
  if (op == ABI_AVG) {
    if (dtype == ABI_F64) {
      loops->divide_double(out, n, nsrc);
    } else {
      loops->divide_float(out, n, (float)nsrc);
    }
  }
}

static void reduce_cached(const ReduceLoops *loops, void *const *dst, int ndst,
                          const void *const *src, int nsrc, size_t n, int dtype, int op) {
  size_t bytes = abi_dtype_bytes((uint32_t)dtype), per_block = BLOCK_BYTES / bytes;
  _Alignas(64) unsigned char block[BLOCK_BYTES];
  /* A single destination is its own block, unless it is a source that is folded in later. */
  bool direct = ndst == 1;
  for (int s = 2; s < nsrc; s++) {
    direct = direct && src[s] != dst[0];
  }
  for (size_t i = 0; i < n; i += per_block) {
    size_t count = n - i < per_block ? n - i : per_block;
    if (direct) {
      reduce_block(loops, (unsigned char *)dst[0] + i * bytes, src, nsrc, i, count, dtype, op);
      continue;
    }
    reduce_block(loops, block, src, nsrc, i, count, dtype, op);
    for (int d = 0; d < ndst; d++) {
      memcpy((unsigned char *)dst[d] + i * bytes, block, count * bytes);
    }
  }
}

static void reduce_streamed(const ReduceLoops *loops, void *const *dst, int ndst,
                            const void *const *src, int nsrc, size_t n, int dtype, int op) {
  size_t bytes = abi_dtype_bytes((uint32_t)dtype), per_block = STREAM_BYTES / bytes, count;
  _Alignas(64) unsigned char block[STREAM_BYTES];
  const unsigned char *ahead[MAX_AHEAD];
  int fetched = nsrc < MAX_AHEAD ? nsrc : MAX_AHEAD;
  /* The first block ends where the first destination reaches a line. */
  size_t head = (size_t)(-(uintptr_t)dst[0] & 63) / bytes;
  for (size_t i = 0; i < n; i += count) {
    count = i == 0 && head > 0 ? head : per_block;
    count = n - i < count ? n - i : count;
    reduce_block(loops, block, src, nsrc, i, count, dtype, op);
    bool more = (n - i) * bytes >= REDUCE_AHEAD + STREAM_BYTES;
    for (int s = 0; s < fetched; s++) {
      ahead[s] = (const unsigned char *)src[s] + i * bytes + REDUCE_AHEAD;
    }
    for (int d = 0; d < ndst; d++) {
      int first = d * fetched / ndst, last = more ? (d + 1) * fetched / ndst : first;
      stream_copy(loops, (unsigned char *)dst[d] + i * bytes, block, count * bytes, ahead + first,
                  last - first);
    }
  }
  dtm_stream_fence();
}

void dtm_reduce(void *const *dst, int ndst, const void *const *src, int nsrc, size_t n, int dtype,
                int op, bool stream) {
  const ReduceLoops *loops = loops_for_cpu();
  if (stream) {
    reduce_streamed(loops, dst, ndst, src, nsrc, n, dtype, op);
  } else {
    reduce_cached(loops, dst, ndst, src, nsrc, n, dtype, op);
  }
}
