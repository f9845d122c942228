/* The products of experts: see library_grouped.h, and ops.def for where rows stand.
 *
 * The rows of one expert are taken together, from all entries of the batch, a tile of TILE rows at
 * a time; a tile that does not lie in one piece is gathered first. So a product has rows enough
 * however few of them a sequence sends, and work follows the counts, not the places. f32 and the 16
 * bit types (converted) run through oneDNN's sgemm, f64 through loops of our own. Tiles depend on
 * counts and sizes alone and each is one thread's, so results do not depend on the number of
 * threads.
 */
#include "device/cpu/library_grouped.h"

#include <dnnl.h>
#include <omp.h>
#include <stdbool.h>
#include <string.h>

#include "runtime/abi/number.h"

enum { TILE = 128, COLUMNS = 128 };

/* Where the rows of every expert are; pointers into the scratch memory. */
typedef struct Plan {
  const LibTensor *rows;
  int64_t batch, experts, width; /* width: bytes of a number that is computed with */
  int64_t *start, *count;        /* [experts, batch]: first row, in rows of the block; how many */
  int64_t *total;                /* [experts] */
  int64_t *tiles;                /* [experts + 1]: tiles of the experts before */
  int64_t *used;                 /* [batch, R]: places */
  char *own;                     /* what follows: scratch of each thread */
} Plan;

static int64_t work_bytes(uint32_t dtype) {
  return dtype == ABI_F64 ? 8 : 4;
}

static bool converts(uint32_t dtype) {
  return dtype != ABI_F64 && dtype != ABI_F32;
}

static int64_t integers(const LibCall *c) {
  int64_t batch = c->t[2].extent[0], experts = c->t[2].extent[1];
  return 2 * batch * experts + 2 * experts + 1 + batch * c->t[0].extent[1];
}

/* Bytes of one thread: a tile of each of two operands or of operand and result, and a weight in the
 * type that is computed in. */
static int64_t own_bytes(const LibCall *c) {
  const LibTensor *a = &c->t[0], *b = c->code == ABI_LIB_GROUPED_LINEAR ? &c->t[3] : &c->t[1];
  int64_t wide = a->extent[3], other = b->extent[3];
  int64_t weight = converts(a->dtype) ? wide * other : 0;
  return (TILE * (wide + other) + weight) * work_bytes(a->dtype) + ABI_ALIGN;
}

size_t dtm_rt_grouped_scratch(const LibCall *c) {
  return sizeof(int64_t) * (size_t)integers(c) + ABI_ALIGN +
         (size_t)(own_bytes(c) / ABI_ALIGN * ABI_ALIGN) * (size_t)c->threads;
}

static void tell(LibFault *fault, int64_t count, int64_t room) {
  if (fault->extent < 0) *fault = (LibFault){.index = count, .extent = room + 1};
}

/* Counts that do not fit into their block are told, and cut. */
static void find_rows(const LibCall *c, void *scratch, Plan *p, LibFault *fault) {
  const LibTensor *rows = &c->t[0], *counts = &c->t[2];
  int64_t blocks = rows->extent[1], places = rows->extent[2];
  int64_t each = rows->shape[1] ? (counts->shape[1] + rows->shape[1] - 1) / rows->shape[1] : 1;
  *p = (Plan){.rows = rows, .batch = counts->extent[0], .experts = counts->extent[1]};
  p->width = work_bytes(rows->dtype);
  p->start = scratch;
  p->count = p->start + p->batch * p->experts;
  p->total = p->count + p->batch * p->experts;
  p->tiles = p->total + p->experts;
  p->used = p->tiles + p->experts + 1;
  uintptr_t end = (uintptr_t)(p->used + p->batch * blocks);
  p->own = (char *)((end + ABI_ALIGN - 1) / ABI_ALIGN * ABI_ALIGN);
  memset(p->total, 0, sizeof(int64_t) * (size_t)p->experts);
  memset(p->used, 0, sizeof(int64_t) * (size_t)(p->batch * blocks));
  for (int64_t b = 0; b < p->batch; b++)
    for (int64_t e = 0; e < p->experts; e++) {
      int64_t block = (counts->offset[1] + e) / each - rows->offset[1];
      int64_t n = abi_load_int(counts->data, counts->dtype, b * p->experts + e), room = 0;
      if (block >= 0 && block < blocks) room = places - p->used[b * blocks + block];
      if (n < 0 || n > room) {
        tell(fault, n, room);
        n = n < 0 ? 0 : room;
      }
      int64_t at = e * p->batch + b;
      p->count[at] = n;
      p->start[at] = 0;
      if (n == 0) continue;
      p->start[at] = (b * blocks + block) * places + p->used[b * blocks + block];
      p->used[b * blocks + block] += n;
      p->total[e] += n;
    }
  p->tiles[0] = 0;
  for (int64_t e = 0; e < p->experts; e++)
    p->tiles[e + 1] = p->tiles[e] + (p->total[e] + TILE - 1) / TILE;
}

/* Rows that lie together. */
typedef struct Piece {
  int64_t row, n;
} Piece;

/* Of rows [from, from + n) of expert e, those behind the first `done` that lie together. */
static Piece next_piece(const Plan *p, int64_t e, int64_t from, int64_t done, int64_t n) {
  int64_t at = from + done, b = 0;
  for (; at >= p->count[e * p->batch + b]; b++) at -= p->count[e * p->batch + b];
  int64_t left = p->count[e * p->batch + b] - at;
  return (Piece){p->start[e * p->batch + b] + at, left < n - done ? left : n - done};
}

static void load_numbers(const LibTensor *t, int64_t from, int64_t n, void *to, int64_t width) {
  if (!converts(t->dtype)) {
    memcpy(to, (const char *)t->data + from * width, (size_t)(n * width));
    return;
  }
  for (int64_t i = 0; i < n; i++) ((float *)to)[i] = (float)abi_load(t->data, t->dtype, from + i);
}

/* A matrix: rows `stride` numbers apart. */
typedef struct Matrix {
  void *data;
  int64_t stride;
} Matrix;

/* Columns [col, col + cols) of n rows of expert e, where they lie or gathered into `room`. */
static Matrix tile_of(const Plan *p, const LibTensor *t, int64_t e, int64_t from, int64_t n,
                      int64_t col, int64_t cols, void *room) {
  int64_t wide = t->extent[3];
  Piece first = next_piece(p, e, from, 0, n);
  if (first.n == n && !converts(t->dtype))
    return (Matrix){(char *)t->data + (first.row * wide + col) * p->width, wide};
  for (int64_t done = 0; done < n;) {
    Piece piece = next_piece(p, e, from, done, n);
    for (int64_t i = 0; i < piece.n; i++)
      load_numbers(t, (piece.row + i) * wide + col, cols,
                   (char *)room + (done + i) * cols * p->width, p->width);
    done += piece.n;
  }
  return (Matrix){room, cols};
}

static void store_tile(const Plan *p, const LibTensor *t, int64_t e, int64_t from, int64_t n,
                       const void *room) {
  int64_t wide = t->extent[3];
  for (int64_t done = 0; done < n;) {
    Piece piece = next_piece(p, e, from, done, n);
    if (!converts(t->dtype))
      memcpy((char *)t->data + piece.row * wide * p->width,
             (const char *)room + done * wide * p->width, (size_t)(piece.n * wide * p->width));
    else
      for (int64_t i = 0; i < piece.n * wide; i++)
        abi_store(t->data, t->dtype, piece.row * wide + i,
                  (double)((const float *)room)[done * wide + i]);
    done += piece.n;
  }
}

/* out = op(a) op(b), or out += it. */
static void multiply_f64(bool ta, bool tb, int64_t m, int64_t n, int64_t k, Matrix a, Matrix b,
                         bool add, Matrix out) {
  const double *x = a.data, *y = b.data;
  for (int64_t i = 0; i < m; i++) {
    double *restrict to = (double *)out.data + i * out.stride;
    if (!add) memset(to, 0, sizeof(double) * (size_t)n);
    for (int64_t j = 0; tb && j < n; j++) {
      double sum = 0;
      for (int64_t q = 0; q < k; q++)
        sum += x[ta ? q * a.stride + i : i * a.stride + q] * y[j * b.stride + q];
      to[j] += sum;
    }
    for (int64_t q = 0; !tb && q < k; q++) {
      const double v = x[ta ? q * a.stride + i : i * a.stride + q];
      for (int64_t j = 0; j < n; j++) to[j] += v * y[q * b.stride + j];
    }
  }
}

static void multiply(const Plan *p, bool ta, bool tb, int64_t m, int64_t n, int64_t k, Matrix a,
                     Matrix b, bool add, Matrix out) {
  if (m == 0 || n == 0) return;
  if (p->width == 8)
    multiply_f64(ta, tb, m, n, k, a, b, add, out);
  else if (k > 0)
    dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, 1, a.data, a.stride, b.data, b.stride,
               add ? 1 : 0, out.data, out.stride);
  else if (!add)
    for (int64_t i = 0; i < m; i++)
      memset((float *)out.data + i * out.stride, 0, sizeof(float) * (size_t)n);
}

static int64_t expert_of(const Plan *p, int64_t tile) {
  int64_t e = 0;
  while (tile >= p->tiles[e + 1]) e++;
  return e;
}

static char *own_room(const LibCall *c, const Plan *p) {
  return p->own + own_bytes(c) / ABI_ALIGN * ABI_ALIGN * omp_get_thread_num();
}

static void linear_tile(const LibCall *c, const Plan *p, int64_t tile) {
  const LibTensor *x = &c->t[0], *weight = &c->t[1], *y = &c->t[3];
  int64_t in = x->extent[3], out = y->extent[3], e = expert_of(p, tile);
  int64_t from = (tile - p->tiles[e]) * TILE, left = p->total[e] - from;
  int64_t n = left < TILE ? left : TILE;
  bool reverse = c->args[0] != 0;
  char *room = own_room(c, p);
  Matrix a = tile_of(p, x, e, from, n, 0, in, room);
  Matrix w = {(char *)weight->data + e * in * out * p->width, reverse ? out : in};
  Matrix to = {room + TILE * in * p->width, out};
  Piece first = next_piece(p, e, from, 0, n);
  bool direct = first.n == n && !converts(y->dtype);
  if (direct) to.data = (char *)y->data + first.row * out * p->width;
  if (converts(weight->dtype)) {
    w.data = room + TILE * (in + out) * p->width;
    load_numbers(weight, e * in * out, in * out, w.data, p->width);
  }
  multiply(p, false, !reverse, n, out, in, a, w, false, to);
  if (!direct) store_tile(p, y, e, from, n, to.data);
}

/* Places that hold no row. */
static void clear_rest(const Plan *p, const LibTensor *y) {
  int64_t places = y->extent[2], groups = y->extent[0] * y->extent[1];
  size_t row = (size_t)y->extent[3] * abi_dtype_bytes(y->dtype);
  for (int64_t g = 0; g < groups; g++)
    memset((char *)y->data + (size_t)(g * places + p->used[g]) * row, 0,
           (size_t)(places - p->used[g]) * row);
}

static int threads_for(const LibCall *c, const Plan *p) {
  double rows = 0;
  for (int64_t e = 0; e < p->experts; e++) rows += (double)p->total[e];
  const LibTensor *other = c->code == ABI_LIB_GROUPED_LINEAR ? &c->t[3] : &c->t[1];
  return rows * (double)(c->t[0].extent[3] * other->extent[3]) > 2e5 ? c->threads : 1;
}

void dtm_rt_grouped_linear(const LibCall *c, void *scratch, LibFault *fault) {
  Plan p;
  find_rows(c, scratch, &p, fault);
  clear_rest(&p, &c->t[3]);
  int before = omp_get_max_threads();
  omp_set_num_threads(1); /* what oneDNN sees inside a tile */
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads_for(c, &p))
  for (int64_t tile = 0; tile < p.tiles[p.experts]; tile++) linear_tile(c, &p, tile);
  omp_set_num_threads(before);
}

/* Columns [col, col + cols) of g give these rows of the weight's gradient. */
static void weight_rows(const LibCall *c, const Plan *p, int64_t e, int64_t col, int64_t cols) {
  const LibTensor *g = &c->t[0], *x = &c->t[1], *to = &c->t[3];
  int64_t in = x->extent[3], at = (e * g->extent[3] + col) * in;
  char *room = own_room(c, p);
  char *sum = converts(to->dtype) ? room + TILE * (g->extent[3] + in) * p->width
                                  : (char *)to->data + at * p->width;
  if (p->total[e] == 0) memset(sum, 0, (size_t)(cols * in * p->width));
  for (int64_t from = 0; from < p->total[e]; from += TILE) {
    int64_t n = p->total[e] - from < TILE ? p->total[e] - from : TILE;
    Matrix a = tile_of(p, g, e, from, n, col, cols, room);
    Matrix b = tile_of(p, x, e, from, n, 0, in, room + TILE * g->extent[3] * p->width);
    multiply(p, true, false, cols, in, n, a, b, from > 0, (Matrix){sum, in});
  }
  for (int64_t i = 0; converts(to->dtype) && i < cols * in; i++)
    abi_store(to->data, to->dtype, at + i, (double)((const float *)(const void *)sum)[i]);
}

void dtm_rt_grouped_linear_weight(const LibCall *c, void *scratch, LibFault *fault) {
  Plan p;
  find_rows(c, scratch, &p, fault);
  int64_t out = c->t[0].extent[3], parts = (out + COLUMNS - 1) / COLUMNS;
  int before = omp_get_max_threads();
  omp_set_num_threads(1);
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads_for(c, &p))
  for (int64_t i = 0; i < p.experts * parts; i++) {
    int64_t col = i % parts * COLUMNS;
    weight_rows(c, &p, i / parts, col, out - col < COLUMNS ? out - col : COLUMNS);
  }
  omp_set_num_threads(before);
}
