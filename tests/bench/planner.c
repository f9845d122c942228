/* Tables of the planner: what plans move beside the bound, for all pairs of layouts of even and of
 * uneven tensors, and what a plan costs to find. Usage: bench_planner */
#include <stdlib.h>

#include "place/place.h"
#include "table.h"

enum { MAX_LAYOUTS = 512 };

static Mesh make_mesh(uint32_t naxes, const int64_t *size) {
  static const char *const names[] = {"x", "y", "z"};
  Mesh m = {.name = "m", .naxes = naxes, .nranks = 1};
  for (uint32_t a = 0; a < naxes; a++) {
    m.axis[a] = names[a];
    m.size[a] = size[a];
    m.nranks *= size[a];
  }
  return m;
}

/* All layouts without Partial, with every order of axes that cut one dim. */
static void list_layouts(const Mesh *m, uint32_t rank, uint32_t axis, Layout l, Layout *out,
                         uint32_t *n) {
  if (axis == m->naxes) {
    if (*n == MAX_LAYOUTS) abort();
    out[(*n)++] = l;
    return;
  }
  list_layouts(m, rank, axis + 1, l, out, n);
  for (uint32_t d = 0; d < rank; d++) {
    uint8_t axes[DTM_MAX_AXES];
    uint32_t ncut = layout_dim_axes(&l, d, axes);
    for (uint32_t at = 0; at <= ncut; at++) { /* the new axis at each place of the list */
      uint8_t list[DTM_MAX_AXES];
      for (uint32_t k = 0; k < ncut; k++) list[k < at ? k : k + 1] = axes[k];
      list[at] = (uint8_t)axis;
      Layout s = l;
      layout_set_dim(&s, m, d, list, ncut + 1);
      list_layouts(m, rank, axis + 1, s, out, n);
    }
  }
}

typedef struct Ratio {
  double sum, worst;
} Ratio;

static void add_ratio(Ratio *r, int64_t bytes, int64_t bound) {
  double ratio = (double)bytes / (double)bound;
  r->sum += ratio;
  if (ratio > r->worst) r->worst = ratio;
}

/* Bytes that the worst device receives and sends, over the bound, for all pairs of layouts. */
static void pairs_row(uint32_t naxes, const int64_t *size, uint32_t rank, const int64_t *shape) {
  Mesh m = make_mesh(naxes, size);
  Arena arena;
  arena_init(&arena);
  PlanCache *cache = plan_cache_new(&arena);
  static Layout layouts[MAX_LAYOUTS];
  uint32_t n = 0, pairs = 0, above = 0;
  list_layouts(&m, rank, 0, (Layout){0}, layouts, &n);
  TensorType from = {.dtype = DT_F32, .rank = rank, .mesh = &m};
  memcpy(from.shape, shape, sizeof(int64_t) * rank);
  TensorType to = from;
  Ratio received = {0}, sent = {0};
  double spent = 0;
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t j = 0; j < n; j++) {
      from.layout = layouts[i];
      to.layout = layouts[j];
      int64_t bound = place_bound(&from, &to);
      double begin = bench_now();
      const RedistributePlan *plan = place_plan(cache, &from, &to, NULL);
      spent += bench_now() - begin;
      above += plan->bytes_received > bound;
      if (bound == 0) continue; /* a slice; the ratio of what moves for nothing is infinite */
      add_ratio(&received, plan->bytes_received, bound);
      add_ratio(&sent, plan->bytes_sent, bound);
      pairs++;
    }
  char mesh[64] = "", extents[64] = "";
  for (uint32_t a = 0; a < naxes; a++)
    snprintf(mesh + strlen(mesh), sizeof mesh - strlen(mesh), "%s%lld", a ? "x" : "",
             (long long)size[a]);
  for (uint32_t d = 0; d < rank; d++)
    snprintf(extents + strlen(extents), sizeof extents - strlen(extents), "%s%lld", d ? "x" : "",
             (long long)shape[d]);
  printf("| %-5s | %-11s | %5u | %5u | %8.3f | %6.3f | %6.3f | %6.3f | %7.2f |\n", mesh, extents,
         n * n, above, received.sum / pairs, received.worst, sent.sum / pairs, sent.worst,
         spent / (n * n) * 1e6);
  arena_free(&arena);
}

/* Time to find one plan that is not in the cache. */
static void speed_row(const char *what, const Mesh *m, uint32_t rank, const int64_t *shape,
                      const Layout *from_layout, const Layout *to_layout) {
  Arena arena;
  arena_init(&arena);
  TensorType from = {.dtype = DT_BF16, .rank = rank, .mesh = m, .layout = *from_layout};
  memcpy(from.shape, shape, sizeof(int64_t) * rank);
  TensorType to = from;
  to.layout = *to_layout;
  double best = 1e9;
  for (int i = 0; i < 20; i++) {
    PlanCache *cache = plan_cache_new(&arena);
    double begin = bench_now();
    place_plan(cache, &from, &to, NULL);
    double t = bench_now() - begin;
    if (t < best) best = t;
  }
  printf("| %-35s | %7.1f | %-41s |\n", what, best * 1e6,
         place_describe(&arena, place_plan(plan_cache_new(&arena), &from, &to, NULL)));
  arena_free(&arena);
}

int main(void) {
  printf("Bytes of the worst device over the bound, all pairs of layouts without Partial\n\n");
  table_head("| %-5s | %-11s | %5s | %5s | %8s | %6s | %6s | %6s | %7s |", "mesh", "tensor",
             "pairs", "above", "received", "worst", "sent", "worst", "us/plan");
  static const int64_t meshes[][3] = {{4},    {8},       {2, 2}, {4, 2},
                                      {4, 4}, {2, 2, 2}, {2, 3}, {4, 3, 2}};
  static const uint32_t naxes[] = {1, 1, 2, 2, 2, 3, 2, 3};
  static const int64_t even[] = {48, 48, 48};
  static const int64_t uneven[][3] = {{25, 31, 7}, {1001, 77, 3}, {50257, 768, 5}};
  for (int i = 0; i < 7; i++)
    for (uint32_t rank = 2; rank <= 3; rank++) pairs_row(naxes[i], meshes[i], rank, even);
  for (int i = 0; i < 8; i++)
    for (uint32_t rank = 2; rank <= 3; rank++)
      for (int s = 0; s < 3; s++) pairs_row(naxes[i], meshes[i], rank, uneven[s]);

  printf("\nTime of one plan on dp 1024 x tp 8\n\n");
  table_head("| %-35s | %7s | %-41s |", "from -> to", "us", "plan; bytes received");
  Mesh m = make_mesh(2, (const int64_t[]){1024, 8});
  static const int64_t activation[] = {4096, 8192, 16384}, odd[] = {50257, 12289};
  Layout r = {0}, tp = {0}, dp = {0}, both = {0}, sum = {0}, moved = {0}, nested = {0};
  layout_set(&tp, &m, 1, PLACE_SHARD, 0, REDUCE_NONE);
  layout_set(&dp, &m, 0, PLACE_SHARD, 0, REDUCE_NONE);
  both = dp;
  layout_set(&both, &m, 1, PLACE_SHARD, 1, REDUCE_NONE);
  layout_set(&moved, &m, 1, PLACE_SHARD, 0, REDUCE_NONE);
  layout_set(&moved, &m, 0, PLACE_SHARD, 1, REDUCE_NONE);
  nested = tp;
  layout_set(&nested, &m, 0, PLACE_SHARD, 0, REDUCE_NONE);
  sum = dp;
  layout_set(&sum, &m, 1, PLACE_PARTIAL, 0, REDUCE_SUM);
  speed_row("activation P@tp -> R", &m, 3, activation, &sum, &dp);
  speed_row("activation S1@tp -> R", &m, 3, activation, &both, &dp);
  speed_row("parameter S0@(tp,dp) -> S0@tp", &m, 2, odd, &nested, &tp);
  speed_row("uneven [0@dp, 1@tp] -> [0@tp, 1@dp]", &m, 2, odd, &both, &moved);
  speed_row("uneven S0@(tp,dp) -> R", &m, 2, odd, &nested, &r);
  Layout grad = tp;
  layout_set(&grad, &m, 0, PLACE_PARTIAL, 0, REDUCE_SUM);
  speed_row("gradient P@dp -> R, S0@tp", &m, 2, odd, &grad, &tp);
  Layout grad_r = {0};
  layout_set(&grad_r, &m, 0, PLACE_PARTIAL, 0, REDUCE_SUM);
  speed_row("gradient P@dp -> R, R@tp", &m, 2, odd, &grad_r, &r);
  return 0;
}
