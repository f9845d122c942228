// Typical kernels, for the tests of the PTX interpreter (test_ptx_kernels.c). kernels.ptx is what NVRTC 13.0
// makes of this text for compute_80; test_ptx_kernels says how to make it anew.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

static __device__ float warp_sum(float v) {
  for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
  return v;
}
static __device__ float warp_max(float v) {
  for (int o = 16; o; o >>= 1) v = fmaxf(v, __shfl_xor_sync(~0u, v, o));
  return v;
}

// One block per row of n, any number of warps.
template <bool MAX> static __device__ float block_reduce(float v) {
  __shared__ float part[32];
  __syncthreads();
  v = MAX ? warp_max(v) : warp_sum(v);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  v = threadIdx.x % 32 < blockDim.x / 32 ? part[threadIdx.x % 32] : MAX ? -__int_as_float(0x7f800000) : 0;
  return MAX ? warp_max(v) : warp_sum(v);
}

extern "C" __global__ void softmax(float *y, const float *x, int n) {
  x += (size_t)blockIdx.x * n;
  y += (size_t)blockIdx.x * n;
  float m = -__int_as_float(0x7f800000), s = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) m = fmaxf(m, x[i]);
  m = block_reduce<true>(m);
  for (int i = threadIdx.x; i < n; i += blockDim.x) s += expf(x[i] - m);
  s = block_reduce<false>(s);
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = expf(x[i] - m) / s;
}

extern "C" __global__ void layernorm(float *y, const float *__restrict__ x, const float4 *__restrict__ w,
                                     int n4, float epsilon) {
  const float4 *row = (const float4 *)x + (size_t)blockIdx.x * n4;
  float s = 0, q = 0;
  for (int i = threadIdx.x; i < n4; i += blockDim.x) {
    float4 v = row[i];
    s += v.x + v.y + v.z + v.w;
  }
  float mean = block_reduce<false>(s) / (4 * n4);
  for (int i = threadIdx.x; i < n4; i += blockDim.x) {
    float4 v = row[i];
    v.x -= mean, v.y -= mean, v.z -= mean, v.w -= mean;
    q += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
  }
  float r = rsqrtf(block_reduce<false>(q) / (4 * n4) + epsilon);
  for (int i = threadIdx.x; i < n4; i += blockDim.x) {
    float4 v = row[i], a = w[i];
    float4 o = {(v.x - mean) * r * a.x, (v.y - mean) * r * a.y, (v.z - mean) * r * a.z,
                (v.w - mean) * r * a.w};
    ((float4 *)y)[(size_t)blockIdx.x * n4 + i] = o;
  }
}

// [rows, columns] -> [columns, rows], blocks of 32 x 8 threads.
extern "C" __global__ void transpose(float *y, const float *x, int rows, int columns) {
  __shared__ float tile[32][33];
  int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;
  for (int k = 0; k < 32; k += 8)
    if (c < columns && r + k < rows) tile[threadIdx.y + k][threadIdx.x] = x[(size_t)(r + k) * columns + c];
  __syncthreads();
  c = blockIdx.y * 32 + threadIdx.x, r = blockIdx.x * 32 + threadIdx.y;
  for (int k = 0; k < 32; k += 8)
    if (c < rows && r + k < columns) y[(size_t)(r + k) * rows + c] = tile[threadIdx.x][threadIdx.y + k];
}

// c[m, n] += a[m, k] b[k, n] in bf16 with sums in f32: a block of 4 warps makes 32 x 32, k in steps of 32
// through two stages of cp.async. m, n, k are multiples of 32.
extern "C" __global__ void __launch_bounds__(128) matmul(float *c, const u16 *a, const u16 *b, int m, int n, int k) {
  __shared__ __align__(16) u16 ta[2][32][40], tb[2][32][40];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, wm = warp / 2 * 16, wn = warp % 2 * 16;
  int row = threadIdx.x / 4, column = threadIdx.x % 4 * 8;
  const u16 *pa = a + (size_t)(blockIdx.y * 32 + row) * k + column;
  const u16 *pb = b + (size_t)row * n + blockIdx.x * 32 + column;
  float acc[2][4] = {};
  auto load = [&](int stage, int at) {
    u32 sa = (u32)__cvta_generic_to_shared(&ta[stage][row][column]);
    u32 sb = (u32)__cvta_generic_to_shared(&tb[stage][row][column]);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(sa), "l"(pa + at));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(sb), "l"(pb + (size_t)at * n));
    asm volatile("cp.async.commit_group;");
  };
  load(0, 0);
  for (int at = 0, stage = 0; at < k; at += 32, stage ^= 1) {
    if (at + 32 < k) {
      load(stage ^ 1, at + 32);
      asm volatile("cp.async.wait_group 1;" ::: "memory");
    } else {
      asm volatile("cp.async.wait_all;" ::: "memory");
    }
    __syncthreads();
    for (int kk = 0; kk < 32; kk += 16) {
      u32 fa[4], fb[4];
      u32 sa = (u32)__cvta_generic_to_shared(&ta[stage][wm + lane % 16][kk + lane / 16 * 8]);
      u32 sb = (u32)__cvta_generic_to_shared(&tb[stage][kk + lane % 16][wn + lane / 16 * 8]);
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(fa[0]), "=r"(fa[1]), "=r"(fa[2]), "=r"(fa[3]) : "r"(sa) : "memory");
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(fb[0]), "=r"(fb[1]), "=r"(fb[2]), "=r"(fb[3]) : "r"(sb) : "memory");
      for (int h = 0; h < 2; h++)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                     "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(acc[h][0]), "+f"(acc[h][1]), "+f"(acc[h][2]), "+f"(acc[h][3])
                     : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[2 * h]), "r"(fb[2 * h + 1]));
    }
    __syncthreads();
  }
  for (int h = 0; h < 2; h++)
    for (int e = 0; e < 4; e++) {
      int i = blockIdx.y * 32 + wm + lane / 4 + e / 2 * 8, j = blockIdx.x * 32 + wn + h * 8 + lane % 4 * 2 + e % 2;
      c[(size_t)i * n + j] += acc[h][e];
    }
}

// Sum of all; the last block to come adds the parts of the others in order.
extern "C" __global__ void reduce(double *out, double *parts, u32 *tickets, const float *x, int n) {
  __shared__ bool last;
  float s = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) s += x[i];
  s = block_reduce<false>(s);
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = s;
    __threadfence();
    last = atomicAdd(tickets, 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    double sum = 0;
    for (int b = 0; b < gridDim.x; b++) sum += parts[b];
    *out = sum;
  }
}

extern "C" __global__ void histogram(u32 *bins, const u8 *x, int n) {
  extern __shared__ u32 own[];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) own[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&own[x[i]], 1);
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x)
    if (own[i]) atomicAdd(&bins[i], own[i]);
}

// Philox 4x32-10 (Salmon et al.): four words of counter i.
extern "C" __global__ void philox(uint4 *out, u32 key0, u32 key1, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  u32 c0 = i, c1 = 0, c2 = 0, c3 = 0;
  for (int r = 0; r < 10; r++) {
    u32 h0 = __umulhi(0xD2511F53u, c0), l0 = 0xD2511F53u * c0;
    u32 h1 = __umulhi(0xCD9E8D57u, c2), l1 = 0xCD9E8D57u * c2;
    c0 = h1 ^ c1 ^ key0, c1 = l1, c2 = h0 ^ c3 ^ key1, c3 = l0;
    key0 += 0x9E3779B9u, key1 += 0xBB67AE85u;
  }
  out[i] = make_uint4(c0, c1, c2, c3);
}

static __device__ __noinline__ double polynomial(double x, int degree) {
  double y = 0;
  for (int k = degree; k >= 0; k--) y = y * x + k;
  return y;
}

// What the compiler makes whole functions of: division of 64 bits, libm, a switch, calls, local arrays.
extern "C" __global__ void mixture(double *y, const long long *a, const float *f, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  double local[8];
  long long v = a[i];
  for (int k = 0; k < 8; k++) local[k] = (double)(v + k);
  float x = f[i];
  double r;
  switch (v % 7) {
  case 0: r = sinf(x); break;
  case 1: r = expf(x); break;
  case 2: r = tanhf(x); break;
  case 3: r = exp((double)x); break;
  case 4: r = log1pf(fabsf(x)); break;
  case 5: r = erff(x); break;
  case 6: r = polynomial(x, i % 5); break;
  default: r = -(double)(v / 3); break;
  }
  for (int k = 0; k < i % 4; k++) r += local[(v + k) & 7];
  y[i] = r + (double)((u64)v / 10007);
}

extern "C" __global__ void half_row(u16 *y, const u16 *a, const u16 *b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float x = __uint_as_float((u32)a[i] << 16), z = __uint_as_float((u32)b[i] << 16);
  u16 h;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x * z + 1.0f));
  y[i] = h;
}
