/* Attention of bf16 and f16 on tensor cores: forward, and backward without atomics.
 *
 *   ATTENTION_F16  1: f16, 0: bf16
 *   HEAD           class of head dims: width and features are padded to it with zeros
 *   BACKWARD       1: the kernels of backward, 0: those of forward
 * width and features are multiples of 8 (rows begin at multiples of 16 bytes) and at most HEAD.
 *
 * All products are mma.m16n8k16 with sums in f32. A warp owns MT x 16 rows of the output and holds
 * its sums in registers; what the other operand is made of goes by in shared memory, in two
 * buffers, so that cp.async fills one while the other is read. Scores never leave registers: the
 * sums of a product of 16 x 16 elements lie where the next product wants its left operand. Where
 * the sums run over queries (dk, dv) the *transposed* scores are computed, so that this holds there
 * too.
 *
 *   forward  block of queries; keys go by:      S = Q K', O = softmax(S) V
 *   keys     block of keys; queries go by:      S' = K Q', dP' = V G', dV += P' G, dK += dS' Q
 *   queries  block of queries; keys go by:      S = Q K', dP = G V', dQ += dS K
 *
 * Weights and dS enter products in the element type, as in other implementations. In f16 an element
 * of dS beyond 65504 is infinite there, though its sums with K or Q, times the scale, might not be:
 * gradients of such a size need a smaller loss scale, or bf16.
 *
 * Every sum is made by one thread in ascending order: results do not depend on the machine. That
 * is why S and dP are computed twice backward.
 *
 * Source: Dao, "FlashAttention-2: faster attention with better parallelism and work partitioning".
 */
#include "attention_mma.cuh"

extern __shared__ uint4 shared[];

#if !BACKWARD
/* --- forward ------------------------------------------------------------------------------------
 */

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    DTM_ENTRY(attention_forward)(const __grid_constant__ AttentionArgs a) {
  enum { MT = F_MT, N = F_KEYS / 8, C = HEAD / 8 };
  const Task t = task_of(a, F_QUERIES, (int)blockIdx.x);
  const int warp = (int)threadIdx.x / 32, first = warp * MT * 16; /* row of this warp */
  const unsigned q_rows = shared_address(shared), k_rows = q_rows + F_QUERIES * ROW,
                 v_rows = k_rows + 2 * F_KEYS * ROW;
  const char *k = (const char *)a.k + t.key_row * a.width * 2,
             *v = (const char *)a.v + t.key_row * a.features * 2;
  const Range queries =
      range_of(a.q_ranges, a.first_query, t.first, t.first + F_QUERIES, a.queries);
  /* The largest score is that of the largest product: if the scale is not positive, products are
   * turned, or made 0, before. */
  const float given = (float)(a.scale * 1.4426950408889634), turn = given < 0 ? -1 : 0,
              scale = given == 0 ? 1 : fabsf(given);

  int at[MT][2]; /* positions of this thread's rows */
  const uint64_t number = head_number(a, t.batch, t.head);
#pragma unroll
  for (int m = 0; m < MT; m++)
#pragma unroll
    for (int h = 0; h < 2; h++) {
      int row = min(first + m * 16 + row_of(h * 2), t.valid - 1);
      at[m][h] = position(a.q_positions, a.first_query, t.first + row);
    }

  float out[MT][C][4], most[MT][2], sum[MT][2];
  clear<MT, C>(out);
#pragma unroll
  for (int m = 0; m < MT; m++)
#pragma unroll
    for (int h = 0; h < 2; h++) {
      most[m][h] = NOTHING;
      sum[m][h] = 0;
    }

  copy_rows<F_QUERIES, THREADS>(q_rows, (const char *)a.q + t.row * a.width * 2, t.valid, a.width);
  int block = next_keys<F_KEYS>(a, queries, 0), buffer = 0;
  if (block * F_KEYS < a.keys) {
    int64_t j = block * F_KEYS;
    copy_rows<F_KEYS, THREADS>(k_rows, k + j * a.width * 2, a.keys - (int)j, a.width);
    copy_rows<F_KEYS, THREADS>(v_rows, v + j * a.features * 2, a.keys - (int)j, a.features);
  }
  for (; block * F_KEYS < a.keys; buffer ^= 1) {
    const int next = next_keys<F_KEYS>(a, queries, block + 1), first_key = block * F_KEYS;
    const bool all = sees_all<F_KEYS>(a, queries, block);
    copies_done();
    __syncthreads(); /* this block is here, and the one before is read */
    if (next * F_KEYS < a.keys) {
      int64_t j = next * F_KEYS;
      unsigned to = (buffer ^ 1) * F_KEYS * ROW;
      copy_rows<F_KEYS, THREADS>(k_rows + to, k + j * a.width * 2, a.keys - (int)j, a.width);
      copy_rows<F_KEYS, THREADS>(v_rows + to, v + j * a.features * 2, a.keys - (int)j, a.features);
    }
    block = next;
    if (first >= t.valid) continue;

    float s[MT][N][4];
    scores<MT, N>(s, left_at(q_rows + first * ROW), columns_at(k_rows + buffer * F_KEYS * ROW));
    if (!(given > 0)) {
#pragma unroll
      for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
          for (int e = 0; e < 4; e++) s[m][n][e] *= turn;
    }
    if (!all) mask_keys<MT, N>(s, a, at, first_key, NOTHING);

    unsigned p[MT][N][2];
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        float top = most[m][h];
#pragma unroll
        for (int n = 0; n < N; n++) top = fmaxf(top, fmaxf(s[m][n][h * 2], s[m][n][h * 2 + 1]));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        float shift = top == NOTHING ? 0 : top * scale; /* nothing seen yet */
        float factor = power(most[m][h] * scale - shift);
        most[m][h] = top;
        sum[m][h] *= factor;
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
          for (int e = 0; e < 2; e++) {
            float x = power(s[m][n][h * 2 + e] * scale - shift);
            s[m][n][h * 2 + e] = x;
            sum[m][h] += x;
          }
        if (__any_sync(0xffffffffu, factor != 1)) { /* seldom, once the largest have been */
#pragma unroll
          for (int c = 0; c < C; c++) {
            out[m][c][h * 2] *= factor;
            out[m][c][h * 2 + 1] *= factor;
          }
        }
      }
    if (a.threshold) {
      unsigned kept[MT];
      draw_keys<MT, N>(kept, a, number, at, first_key);
      drop<MT, N>(s, kept, (float)a.kept);
    }
#pragma unroll
    for (int m = 0; m < MT; m++) pack_all<N>(p[m], s[m]);
    weigh<MT, N, C>(out, p, right_at(v_rows + buffer * F_KEYS * ROW));
  }

#pragma unroll
  for (int m = 0; m < MT; m++) {
    int row = first + m * 16;
    float by[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
      float total = sum[m][h];
      total += __shfl_xor_sync(0xffffffffu, total, 1);
      total += __shfl_xor_sync(0xffffffffu, total, 2);
      by[h] = total == 0 ? 0 : 1 / total;
      int r = row + row_of(h * 2);
      if (lane() % 4 == 0 && r < t.valid)
        ((float *)a.lse)[t.row + r] = total == 0 ? NOTHING : most[m][h] * scale * LN2 + logf(total);
    }
    write_rows<C>((char *)a.out + (t.row + row) * a.features * 2, t.valid - row, a.features, 0,
                  out[m], by);
  }
}

#else
/* --- backward -----------------------------------------------------------------------------------
 */

/* What backward needs to know of a row: its lse in units of ln 2, and delta, the sum over the
 * features of g and out. Where no key is seen lse is -inf, and every weight is 0 by the mask. */
struct Pair {
  float shift, delta;
};

/* sum + the products of two pairs, as f32. */
DTM_DEVICE float inner(unsigned x, unsigned y, float sum) {
  float a, b, c, d;
#if ATTENTION_F16
  asm("{ .reg .f16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
      : "=f"(a), "=f"(b)
      : "r"(x));
  asm("{ .reg .f16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
      : "=f"(c), "=f"(d)
      : "r"(y));
#else
  a = __uint_as_float(x << 16);
  b = __uint_as_float(x & 0xffff0000u);
  c = __uint_as_float(y << 16);
  d = __uint_as_float(y & 0xffff0000u);
#endif
  return sum + a * c + b * d;
}

/* Fills a.delta with pairs: 8 lanes a row. */
extern "C" __global__ void __launch_bounds__(THREADS)
    DTM_ENTRY(attention_delta)(const __grid_constant__ AttentionArgs a) {
  int64_t rows = (int64_t)a.batches * a.heads * a.queries;
  int64_t row = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / 8;
  float sum = 0;
  if (row < rows) {
    const uint4 *g = (const uint4 *)((const char *)a.g + row * a.features * 2),
                *out = (const uint4 *)((const char *)a.out + row * a.features * 2);
    for (int c = (int)threadIdx.x % 8; c < a.features / 8; c += 8) {
      uint4 x = g[c], y = out[c];
      sum = inner(x.x, y.x, sum);
      sum = inner(x.y, y.y, sum);
      sum = inner(x.z, y.z, sum);
      sum = inner(x.w, y.w, sum);
    }
  }
  for (int apart = 4; apart > 0; apart /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, apart);
  if (row >= rows || threadIdx.x % 8 != 0) return;
  float lse = ((const float *)a.lse)[row];
  ((Pair *)a.delta)[row] = Pair{lse == NOTHING ? 0 : lse * LOG2E, sum};
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    DTM_ENTRY(attention_queries)(const __grid_constant__ AttentionArgs a) {
  enum { MT = Q_MT, N = Q_KEYS / 8, C = HEAD / 8 };
  const Task t = task_of(a, Q_QUERIES, (int)blockIdx.x);
  const int warp = (int)threadIdx.x / 32, first = warp * MT * 16;
  const unsigned q_rows = shared_address(shared), g_rows = q_rows + Q_QUERIES * ROW,
                 k_rows = g_rows + Q_QUERIES * ROW, v_rows = k_rows + 2 * Q_KEYS * ROW;
  const char *k = (const char *)a.k + t.key_row * a.width * 2,
             *v = (const char *)a.v + t.key_row * a.features * 2;
  const Range queries =
      range_of(a.q_ranges, a.first_query, t.first, t.first + Q_QUERIES, a.queries);
  const float scale = (float)(a.scale * 1.4426950408889634);

  int at[MT][2];
  Pair pair[MT][2];
  const uint64_t number = head_number(a, t.batch, t.head);
#pragma unroll
  for (int m = 0; m < MT; m++)
#pragma unroll
    for (int h = 0; h < 2; h++) {
      int row = first + m * 16 + row_of(h * 2);
      int near = min(row, t.valid - 1);
      at[m][h] = position(a.q_positions, a.first_query, t.first + near);
      pair[m][h] = ((const Pair *)a.delta)[t.row + near];
    }

  float dq[MT][C][4];
  clear<MT, C>(dq);
  copy_rows<Q_QUERIES, THREADS>(q_rows, (const char *)a.q + t.row * a.width * 2, t.valid, a.width);
  copy_rows<Q_QUERIES, THREADS>(g_rows, (const char *)a.g + t.row * a.features * 2, t.valid,
                                a.features);
  int block = next_keys<Q_KEYS>(a, queries, 0), buffer = 0;
  if (block * Q_KEYS < a.keys) {
    int64_t j = block * Q_KEYS;
    copy_rows<Q_KEYS, THREADS>(k_rows, k + j * a.width * 2, a.keys - (int)j, a.width);
    copy_rows<Q_KEYS, THREADS>(v_rows, v + j * a.features * 2, a.keys - (int)j, a.features);
  }
  for (; block * Q_KEYS < a.keys; buffer ^= 1) {
    const int next = next_keys<Q_KEYS>(a, queries, block + 1), first_key = block * Q_KEYS;
    const bool all = sees_all<Q_KEYS>(a, queries, block);
    copies_done();
    __syncthreads();
    if (next * Q_KEYS < a.keys) {
      int64_t j = next * Q_KEYS;
      unsigned to = (buffer ^ 1) * Q_KEYS * ROW;
      copy_rows<Q_KEYS, THREADS>(k_rows + to, k + j * a.width * 2, a.keys - (int)j, a.width);
      copy_rows<Q_KEYS, THREADS>(v_rows + to, v + j * a.features * 2, a.keys - (int)j, a.features);
    }
    block = next;
    if (first >= t.valid) continue;

    float s[MT][N][4], ds[MT][N][4];
    scores<MT, N>(s, left_at(q_rows + first * ROW), columns_at(k_rows + buffer * Q_KEYS * ROW));
    scores<MT, N>(ds, left_at(g_rows + first * ROW), columns_at(v_rows + buffer * Q_KEYS * ROW));
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
      for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) s[m][n][e] = power(s[m][n][e] * scale - pair[m][e / 2].shift);
    if (!all) mask_keys<MT, N>(s, a, at, first_key, 0);
    if (a.threshold) {
      unsigned kept[MT];
      draw_keys<MT, N>(kept, a, number, at, first_key);
      drop<MT, N>(ds, kept, (float)a.kept);
    }
    unsigned p[MT][N][2];
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
      for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) ds[m][n][e] = s[m][n][e] * (ds[m][n][e] - pair[m][e / 2].delta);
      pack_all<N>(p[m], ds[m]);
    }
    weigh<MT, N, C>(dq, p, right_at(k_rows + buffer * Q_KEYS * ROW));
  }

  const float by[2] = {(float)a.scale, (float)a.scale};
#pragma unroll
  for (int m = 0; m < MT; m++) {
    int row = first + m * 16;
    write_rows<C>((char *)a.dq + (t.row + row) * a.width * 2, t.valid - row, a.width, 0, dq[m], by);
  }
}

/* 8 bytes to shared memory; zeros where `there` is not set. */
DTM_DEVICE void copy_pair(unsigned to, const void *from, bool there) {
  int bytes = there ? 8 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}

/* Begins to copy a block of q and g of one head. The room between rows of q holds their pairs. */
DTM_DEVICE void copy_queries(const AttentionArgs &a, unsigned q, unsigned g, int batch, Place at) {
  int first = at.block * K_QUERIES, valid = a.queries - first;
  int64_t row = ((int64_t)batch * a.heads + at.head) * a.queries + first;
  copy_rows<K_QUERIES, K_THREADS>(q, (const char *)a.q + row * a.width * 2, valid, a.width);
  copy_rows<K_QUERIES, K_THREADS>(g, (const char *)a.g + row * a.features * 2, valid, a.features);
  if (threadIdx.x < K_QUERIES)
    copy_pair(q + threadIdx.x * ROW + HEAD * 2, (const Pair *)a.delta + row + threadIdx.x,
              (int)threadIdx.x < valid);
}

extern "C" __global__ void __launch_bounds__(K_THREADS, 2 / K_SPLIT)
    DTM_ENTRY(attention_keys)(const __grid_constant__ AttentionArgs a) {
  enum { MT = K_MT, N = K_QUERIES / 8, C = HEAD / 8 / K_SPLIT };
  const int key_blocks = blocks_of(a.keys, K_KEYS), head_at = (int)blockIdx.x / key_blocks,
            first_key = (int)blockIdx.x % key_blocks * K_KEYS, batch = head_at / a.groups;
  const int valid = min(K_KEYS, a.keys - first_key);
  const int64_t key_row = (int64_t)head_at * a.keys + first_key;
  const int warp = (int)threadIdx.x / 32, first = warp % WARPS * MT * 16,
            first_column = warp / WARPS * C * 8; /* of the sums of this warp */
  const unsigned k_rows = shared_address(shared), v_rows = k_rows + K_KEYS * ROW,
                 q_rows = v_rows + K_KEYS * ROW, g_rows = q_rows + 2 * K_QUERIES * ROW;
  const Range keys = range_of(a.k_ranges, a.first_key, first_key, first_key + K_KEYS, a.keys);
  const Seers seers = seers_of(a, head_at % a.groups);
  const float scale = (float)(a.scale * 1.4426950408889634);

  int at[MT][2];
#pragma unroll
  for (int m = 0; m < MT; m++)
#pragma unroll
    for (int h = 0; h < 2; h++)
      at[m][h] = position(a.k_positions, a.first_key,
                          first_key + min(first + m * 16 + row_of(h * 2), valid - 1));

  float dk[MT][C][4], dv[MT][C][4];
  clear<MT, C>(dk);
  clear<MT, C>(dv);
  copy_rows<K_KEYS, K_THREADS>(k_rows, (const char *)a.k + key_row * a.width * 2, valid, a.width);
  copy_rows<K_KEYS, K_THREADS>(v_rows, (const char *)a.v + key_row * a.features * 2, valid,
                               a.features);
  Place next = next_queries<K_QUERIES>(a, keys, seers, Place{seers.begin, 0});
  if (next.head < seers.end) copy_queries(a, q_rows, g_rows, batch, next);
  for (int buffer = 0; next.head < seers.end; buffer ^= 1) {
    const int head = next.head, first_query = next.block * K_QUERIES;
    next.block++;
    next = next_queries<K_QUERIES>(a, keys, seers, next);
    copies_done();
    __syncthreads();
    if (next.head < seers.end) {
      unsigned to = (buffer ^ 1) * K_QUERIES * ROW;
      copy_queries(a, q_rows + to, g_rows + to, batch, next);
    }
    if (first >= valid) continue;

    const unsigned q_at = q_rows + buffer * K_QUERIES * ROW,
                   g_at = g_rows + buffer * K_QUERIES * ROW;
    float s[MT][N][4], ds[MT][N][4];
    scores<MT, N>(s, left_at(k_rows + first * ROW), columns_at(q_at));
    scores<MT, N>(ds, left_at(v_rows + first * ROW), columns_at(g_at));
    const Pair *pairs = (const Pair *)((const char *)shared + (q_at - k_rows) + HEAD * 2);
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        float shift = pairs[column_of(n, e) * (ROW / sizeof(Pair))].shift;
#pragma unroll
        for (int m = 0; m < MT; m++) s[m][n][e] = power(s[m][n][e] * scale - shift);
      }
    if (!seen_by_all<K_QUERIES>(a, keys, first_query)) mask_queries<MT, N>(s, a, at, first_query);
    unsigned kept[MT];
    if (a.threshold) {
      draw_queries<MT, N>(kept, a, head_number(a, batch, head), at, first_query);
      drop<MT, N>(ds, kept, (float)a.kept);
    }
    unsigned p[MT][N][2], pds[MT][N][2];
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
      for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
          ds[m][n][e] =
              s[m][n][e] * (ds[m][n][e] - pairs[column_of(n, e) * (ROW / sizeof(Pair))].delta);
      pack_all<N>(pds[m], ds[m]);
    }
    if (a.threshold) drop<MT, N>(s, kept, (float)a.kept);
#pragma unroll
    for (int m = 0; m < MT; m++) pack_all<N>(p[m], s[m]);
    weigh<MT, N, C>(dv, p, right_at(g_at + first_column * 2));
    weigh<MT, N, C>(dk, pds, right_at(q_at + first_column * 2));
  }

  const float by[2] = {(float)a.scale, (float)a.scale}, one[2] = {1, 1};
#pragma unroll
  for (int m = 0; m < MT; m++) {
    int row = first + m * 16;
    write_rows<C>((char *)a.dk + (key_row + row) * a.width * 2, valid - row, a.width, first_column,
                  dk[m], by);
    write_rows<C>((char *)a.dv + (key_row + row) * a.features * 2, valid - row, a.features,
                  first_column, dv[m], one);
  }
}

#endif

extern "C" __global__ void __launch_bounds__(THREADS)
    DTM_ENTRY(attention_ranges)(const __grid_constant__ AttentionArgs a) {
  find_ranges(a);
}
