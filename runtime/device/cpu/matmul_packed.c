/* How packed products are cut into tasks: see matmul_packed.h.
 *
 * A task is a block of rows with a range of strips. It packs its rows once per block of k, and each
 * strip just before the strip is used; the lines of the next are fetched meanwhile. What is packed
 * twice by two tasks costs little beside what they compute.
 */
#include "device/cpu/matmul_packed.h"

#include <omp.h>
#include <stdlib.h>

#include "runtime/abi/number.h"

enum {
  PANEL_GAP = 16,    /* f32 between panels of rows: what packing may write, and other cache sets */
  STRIPS_LEAST = 16, /* of a task, where there are more: packing its rows must not show */
  STRIPS_MOST = 64,  /* of a task whose sums are staged: they stay in the caches, 2 MiB at most */
  TASKS_EACH = 4     /* of a thread, about */
};

/* A product as it is computed: turned over where that makes rows of the output consecutive. */
typedef struct Packed {
  const PackedLoops *loops;
  MatmulShape s;
  const char *a, *b, *bias, *addend;
  char *out;
  size_t size;                   /* of an element */
  bool turned;                   /* bias goes along rows */
  bool staged;                   /* sums of several blocks of k are kept in scratch memory as f32 */
  int64_t height, blocks;        /* rows of a block, blocks */
  int64_t strips, range, ranges; /* strips, strips of a task, tasks of a block */
  int64_t depth, passes;         /* of a block of k, blocks */
  int64_t batches, apart;        /* f32 from panel to panel */
} Packed;

static bool narrow(uint32_t dtype) {
  return dtype == ABI_BF16 || dtype == ABI_F16;
}

bool dtm_rt_packed_fits(const MatmulShape *s) {
  return (s->dtype == ABI_F32 || narrow(s->dtype)) && (s->out_n == 1 || s->out_m == 1) &&
         (s->activation == ABI_ACT_NONE || s->activation == ABI_ACT_RELU) && s->k > 0;
}

static int64_t parts(int64_t extent, int64_t each) {
  return (extent + each - 1) / each;
}

static Packed cut(const PackedLoops *loops, const MatmulShape *shape, int threads) {
  Packed x = {.loops = loops, .s = *shape, .size = abi_dtype_bytes(shape->dtype), .batches = 1};
  MatmulShape *s = &x.s;
  if (s->out_n != 1) {
    const MatmulShape o = *s;
    x.turned = true;
    s->m = o.n, s->n = o.m;
    s->a_m = o.b_n, s->a_k = o.b_k, s->b_n = o.a_m, s->b_k = o.a_k;
    s->out_m = o.out_n, s->out_n = o.out_m;
    for (uint32_t d = 0; d < s->nbatch; d++)
      s->a_batch[d] = o.b_batch[d], s->b_batch[d] = o.a_batch[d];
  }
  for (uint32_t d = 0; d < s->nbatch; d++) x.batches *= s->batch[d];
  x.passes = parts(s->k, PACKED_DEPTH);
  x.depth = parts(s->k, x.passes);
  x.blocks = parts(s->m, PACKED_HEIGHT);
  x.height = parts(parts(s->m, x.blocks), loops->rows) * loops->rows;
  x.blocks = parts(s->m, x.height);
  x.strips = parts(s->n, loops->columns);
  x.ranges = 1;
  for (int64_t each = TASKS_EACH; each > 0; each /= 2) {
    x.ranges = parts(each * threads, x.batches * x.blocks);
    if (x.strips / x.ranges >= STRIPS_LEAST) break;
  }
  if (x.ranges > x.strips) x.ranges = x.strips;
  x.range = parts(x.strips, x.ranges);
  x.staged = x.passes > 1 && (narrow(s->dtype) || (s->activation && s->addend));
  if (x.staged && x.range > STRIPS_MOST) x.range = STRIPS_MOST;
  x.ranges = parts(x.strips, x.range);
  x.apart = x.depth * loops->rows + PANEL_GAP;
  return x;
}

static size_t room(const Packed *x) {
  int64_t panels = x->height / x->loops->rows;
  int64_t f32 = panels * x->apart + (x->depth + 1) * x->loops->columns;
  if (x->staged) f32 += x->height * x->range * x->loops->columns;
  return ((size_t)f32 * sizeof(float) + 4095) / 4096 * 4096;
}

size_t dtm_rt_packed_scratch(const PackedLoops *loops, const MatmulShape *s, int threads) {
  Packed x = cut(loops, s, threads);
  return room(&x);
}

/* Says which lines of the operand hold the strip from column j on. */
static void announce(const Packed *x, PackedStrip *t, const char *b, int64_t j, int64_t depth) {
  const MatmulShape *s = &x->s;
  int64_t columns = s->n - j < x->loops->columns ? s->n - j : x->loops->columns;
  int64_t size = (int64_t)x->size;
  t->next = b + j * s->b_n * size;
  if (s->b_k == 1) {
    t->next_lines = parts(depth * size, 64);
    t->next_rows = columns;
    t->next_row = s->b_n * size;
  } else if (s->b_n == 1) {
    t->next_lines = parts(columns * size, 64);
    t->next_rows = depth;
    t->next_row = s->b_k * size;
  }
  t->next_line = 64;
}

static void run_task(const Packed *x, int64_t task, char *scratch) {
  const MatmulShape *s = &x->s;
  const PackedLoops *l = x->loops;
  int64_t size = (int64_t)x->size;
  int64_t range = task % x->ranges, block = task / x->ranges % x->blocks;
  int64_t batch = task / x->ranges / x->blocks, row = block * x->height;
  const char *a = x->a, *b = x->b;
  int64_t at_out = 0;
  for (uint32_t d = s->nbatch; d-- > 0;) {
    int64_t i = batch % s->batch[d];
    batch /= s->batch[d];
    a += i * s->a_batch[d] * size;
    b += i * s->b_batch[d] * size;
    at_out += i * s->out_batch[d];
  }
  int64_t rows = s->m - row < x->height ? s->m - row : x->height;
  int64_t first = range * x->range,
          last = first + x->range < x->strips ? first + x->range : x->strips;
  float *panels = (float *)scratch;
  float *strip = panels + x->height / l->rows * x->apart,
        *sums = strip + (x->depth + 1) * l->columns;
  int64_t sums_row = x->range * l->columns;
  for (int64_t pass = 0; pass < x->passes; pass++) {
    int64_t k = pass * x->depth, depth = s->k - k < x->depth ? s->k - k : x->depth;
    bool begins = pass == 0, ends = pass == x->passes - 1;
    const char *b_at = b + k * s->b_k * size;
    l->pack_rows(s->dtype, a + (row * s->a_m + k * s->a_k) * size, rows, depth, s->a_m, s->a_k,
                 panels, x->apart);
    for (int64_t i = first; i < last; i++) {
      int64_t j = i * l->columns, columns = s->n - j < l->columns ? s->n - j : l->columns;
      int64_t at = at_out + row * s->out_m + j;
      float *kept = sums + (i - first) * l->columns;
      PackedStrip t = {.rows = rows,
                       .columns = columns,
                       .depth = depth,
                       .a = panels,
                       .b = strip,
                       .out = x->out + at * size,
                       .out_row = s->out_m,
                       .dtype = s->dtype};
      if (i + 1 < last) announce(x, &t, b_at, j + l->columns, depth);
      if (x->staged && !ends) {
        t.out = kept;
        t.out_row = sums_row;
        t.dtype = ABI_F32;
      }
      if (!begins) {
        t.before = x->staged ? kept : (const float *)t.out;
        t.before_row = x->staged ? sums_row : s->out_m;
      }
      if (x->staged ? ends : begins) { /* f32 sums begin with what is added */
        if (x->bias)
          *(x->turned ? &t.row_bias : &t.column_bias) = x->bias + (x->turned ? row : j) * size;
        if (x->addend) t.addend = x->addend + at * size;
      }
      t.relu = ends && s->activation;
      l->pack_columns(s->dtype, b_at + j * s->b_n * size, columns, depth, s->b_n, s->b_k, strip);
      l->multiply(&t, x->apart);
    }
  }
}

void dtm_rt_packed_run(const PackedLoops *loops, const MatmulShape *s, const void *a, const void *b,
                       const void *bias, const void *addend, void *out, void *scratch,
                       int threads) {
  Packed x = cut(loops, s, threads);
  x.a = x.turned ? b : a;
  x.b = x.turned ? a : b;
  x.bias = s->bias ? bias : NULL;
  x.addend = s->addend ? addend : NULL;
  x.out = out;
  int64_t tasks = x.batches * x.blocks * x.ranges;
  size_t each = room(&x);
  if (threads > tasks) threads = (int)tasks;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) if (threads > 1)
  for (int64_t i = 0; i < tasks; i++)
    run_task(&x, i, (char *)scratch + each * (size_t)omp_get_thread_num());
}
