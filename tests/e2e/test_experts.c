/* stdlib/moe.dtm against a layer of experts written plainly, in f64: the loss, and its gradient
 * with respect to what goes in, the router and every expert, by central differences. On every mesh.
 *
 * A program is given its parameters in a file, and a step of plain SGD with a rate of 100 leaves
 * -100 times the gradient in each. Who goes where is decided once, at these parameters: there it
 * does not change under a small step.
 */
#include <check.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/checkpoint.h"
#include "support/log.h"
#include "support/suite.h"
#include "support/work.h"

enum { B = 5, S = 6, D = 4, H = 6, E = 5, MOST_MESHES = 6 };

/* What makes a case special in its parameters. */
typedef enum Trick { PLAIN, ONE_UNUSED, TIES, ALL_TO_ONE } Trick;

typedef struct Situation {
  const char *name;
  int k;
  double capacity; /* 0: nothing is ever dropped */
  bool normalize;
  Trick trick;
  bool drops; /* whether tokens are dropped there */
  const char *meshes[MOST_MESHES];
} Situation;

static const Situation situations[] = {
    {"two of five, some dropped",
     2,
     0.8,
     true,
     PLAIN,
     true,
     {"ep=1", "ep=2", "ep=3", "dp=2,ep=2", "ep=2,tp=2", "ep=4"}},
    {"one, by its probability", 1, 1.0, false, PLAIN, true, {"ep=1", "ep=2", "dp=2,ep=3"}},
    {"all of them", E, 1.0, true, PLAIN, false, {"ep=1", "ep=3", "ep=5"}},
    {"room for all", 2, 2.5, true, PLAIN, false, {"ep=1", "ep=2,tp=3"}},
    {"an expert that nobody chooses", 2, 2.5, true, ONE_UNUSED, false, {"ep=1", "ep=5"}},
    {"no reason to choose", 2, 1.0, true, TIES, true, {"ep=1", "ep=2", "ep=4,tp=2"}},
    {"all to the same", 1, 1.0, false, ALL_TO_ONE, true, {"ep=1", "ep=2"}},
    {"nobody dropped",
     2,
     0,
     true,
     PLAIN,
     false,
     {"ep=1", "ep=2", "dp=2,ep=2", "ep=3,tp=2", "ep=5"}},
    {"nobody dropped, all to the same", 1, 0, false, ALL_TO_ONE, false, {"ep=1", "ep=2", "ep=4"}},
    {"nobody dropped, an expert that nobody chooses", 3, 0, true, ONE_UNUSED, false, {"ep=5"}},
};
enum { NSITUATIONS = sizeof situations / sizeof *situations };

typedef struct Net {
  double x[B][S][D], router[E][D], gate[E][H][D], up[E][H][D], down[E][D][H];
} Net;
enum { NUMBERS = sizeof(Net) / sizeof(double) };

typedef struct Routing {
  int expert[B][S][E]; /* of choice j */
  bool kept[B][S][E];
  int chosen[B][E];
  int dropped;
} Routing;

static const struct {
  const char *name;
  int rank, shape[3];
} tensors[] = {{"x", 3, {B, S, D}},
               {"experts.router.weight", 2, {E, D}},
               {"experts.feed.gate", 3, {E, H, D}},
               {"experts.feed.up", 3, {E, H, D}},
               {"experts.feed.down", 3, {E, D, H}}};
enum { NTENSORS = sizeof tensors / sizeof *tensors };

static int size_of(int i) {
  int n = 1;
  for (int d = 0; d < tensors[i].rank; d++) n *= tensors[i].shape[d];
  return n;
}

/* --- the layer written plainly ------------------------------------------------------------------
 */

static void probabilities(const Net *net, int b, int s, double p[E], double *logsumexp) {
  double sum = 0;
  for (int e = 0; e < E; e++) {
    double z = 0;
    for (int d = 0; d < D; d++) z += net->x[b][s][d] * net->router[e][d];
    sum += p[e] = exp(z);
  }
  for (int e = 0; e < E; e++) p[e] /= sum;
  *logsumexp = log(sum);
}

static void route(const Net *net, const Situation *c, Routing *r) {
  memset(r, 0, sizeof *r);
  double room = c->capacity > 0 ? ceil(c->capacity * S * c->k / E) : S;
  for (int b = 0; b < B; b++)
    for (int s = 0; s < S; s++) {
      double p[E], z;
      bool taken[E] = {false};
      probabilities(net, b, s, p, &z);
      for (int j = 0; j < c->k; j++) {
        int best = -1;
        for (int e = 0; e < E; e++)
          if (!taken[e] && (best < 0 || p[e] > p[best])) best = e;
        taken[best] = true;
        r->expert[b][s][j] = best;
        r->kept[b][s][j] = r->chosen[b][best] < room;
        r->dropped += !r->kept[b][s][j];
        r->chosen[b][best]++;
      }
    }
}

static double weight_of_output(int b, int s, int d) {
  return sin((double)((b * S + s) * D + d));
}

static double token(const Net *net, const Situation *c, const Routing *r, int b, int s,
                    const double p[E]) {
  double loss = 0, total = 0;
  for (int j = 0; j < c->k; j++) total += p[r->expert[b][s][j]];
  for (int j = 0; j < c->k; j++) {
    int e = r->expert[b][s][j];
    if (!r->kept[b][s][j]) continue;
    double h[H], share = c->normalize ? p[e] / total : p[e];
    for (int i = 0; i < H; i++) {
      double g = 0, u = 0;
      for (int d = 0; d < D; d++) {
        g += net->gate[e][i][d] * net->x[b][s][d];
        u += net->up[e][i][d] * net->x[b][s][d];
      }
      h[i] = g / (1 + exp(-g)) * u;
    }
    for (int d = 0; d < D; d++) {
      double y = 0;
      for (int i = 0; i < H; i++) y += net->down[e][d][i] * h[i];
      loss += share * y * weight_of_output(b, s, d);
    }
  }
  return loss;
}

/* The mean over all outputs times weight_of_output, and what the router is asked for. */
static double loss_of(const Net *net, const Situation *c, const Routing *r) {
  double loss = 0, extra = 0;
  for (int b = 0; b < B; b++) {
    double mean[E] = {0}, z2 = 0;
    for (int s = 0; s < S; s++) {
      double p[E], z;
      probabilities(net, b, s, p, &z);
      loss += token(net, c, r, b, s, p);
      for (int e = 0; e < E; e++) mean[e] += p[e] / S;
      z2 += z * z / S;
    }
    for (int e = 0; e < E; e++)
      extra += 0.1 * E * mean[e] * ((double)r->chosen[b][e] / (S * c->k)) / B;
    extra += 0.01 * z2 / B;
  }
  return loss / (B * S * D) + extra;
}

/* --- the program --------------------------------------------------------------------------------
 */

static void write_program(const Situation *c) {
  char room[32] = "none";
  if (c->capacity > 0) snprintf(room, sizeof room, "%.2f", c->capacity);
  FILE *f = work_create("experts.dtm");
  fprintf(f,
          "import moe\n"
          "mesh world(dp = 1, tp = 1, ep = 1)\n"
          "module Net() {\n"
          "  param x: f32[%d@(dp, ep), %d, %d]\n"
          "  experts = moe.MoE(%d, %d, %d, %d, %s, normalize = %s, balance = 0.1, z = 0.01)\n"
          "  forward() { return experts(x) }\n"
          "}\n"
          "train {\n"
          "  model m = Net()\n"
          "  let y, extra = m()\n"
          "  loss mean(y * sin(arange(f32[%d])).reshape([%d, %d, %d])) + mean(extra)\n"
          "  optimizer sgd(lr = 100.0)\n"
          "  steps 1\n"
          "}\n",
          B, S, D, D, H, E, c->k, room, c->normalize ? "true" : "false", B * S * D, B, S, D);
  fclose(f);
}

/* before.safetensors: numbers that f32 has, so that both sides start from the same. */
static void write_parameters(const Net *net) {
  static char header[2048];
  size_t n = 0, at = 0;
  for (int i = 0; i < NTENSORS; i++) {
    size_t end = at + 4 * (size_t)size_of(i);
    n += (size_t)snprintf(header + n, sizeof header - n,
                          "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%d,%d", i ? "," : "{",
                          tensors[i].name, tensors[i].shape[0], tensors[i].shape[1]);
    if (tensors[i].rank == 3)
      n += (size_t)snprintf(header + n, sizeof header - n, ",%d", tensors[i].shape[2]);
    n += (size_t)snprintf(header + n, sizeof header - n, "],\"data_offsets\":[%zu,%zu]}", at, end);
    at = end;
  }
  header[n++] = '}';
  while (n % 8) header[n++] = ' ';
  uint64_t length = n;
  FILE *f = work_create("before.safetensors");
  fwrite(&length, 8, 1, f);
  fwrite(header, 1, n, f);
  for (int i = 0; i < NUMBERS; i++) {
    float v = (float)((const double *)net)[i];
    fwrite(&v, 4, 1, f);
  }
  fclose(f);
}

static uint64_t state = 11;
static double next_number(void) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return ((double)(state >> 40) - 8388608) / 8388608;
}

static void fill(Net *net, Trick trick) {
  for (int i = 0; i < NUMBERS; i++) ((double *)net)[i] = next_number();
  for (int e = 0; e < E; e++)
    for (int d = 0; d < D; d++) net->router[e][d] *= trick == TIES ? 0 : 2;
  for (int b = 0; b < B; b++)
    for (int s = 0; s < S && trick != PLAIN; s++) net->x[b][s][0] = 1;
  if (trick == ONE_UNUSED) net->router[3][0] = -16;
  if (trick == ALL_TO_ONE) net->router[4][0] = 16;
}

static void compare(const char *what, const Net *net, const Situation *c, const Routing *r) {
  StStore after;
  checkpoint_open(&after, "after.safetensors");
  Net moved = *net;
  double *number = (double *)&moved;
  const double *start = (const double *)net;
  for (int i = 0, at = 0; i < NTENSORS; i++) {
    const StTensor *t = checkpoint_find(&after, tensors[i].name, ABI_F32);
    const float *now = dtm_rt_st_data(&after, t);
    double largest = 0, difference = 0;
    for (int k = 0; k < size_of(i); k++, at++) {
      const double h = 1e-5;
      number[at] = start[at] + h;
      double up = loss_of(&moved, c, r);
      number[at] = start[at] - h;
      double want = (up - loss_of(&moved, c, r)) / (2 * h);
      number[at] = start[at];
      double d = fabs((start[at] - (double)now[k]) / 100 - want);
      if (d > difference || isnan(d)) difference = d;
      largest = fmax(largest, fabs(want));
    }
    ck_assert_msg(difference <= 2e-6 + 1e-5 * largest,
                  "%s: gradient of %s differs by %g, largest is %g", what, tensors[i].name,
                  difference, largest);
  }
  dtm_rt_st_close(&after);
}

START_TEST(equals_a_plain_layer) {
  static char log[1 << 14];
  const Situation *c = &situations[_i];
  static Net net;
  Routing r;
  fill(&net, c->trick);
  for (int i = 0; i < NUMBERS; i++) ((double *)&net)[i] = (double)(float)((double *)&net)[i];
  route(&net, c, &r);
  ck_assert_msg((r.dropped > 0) == c->drops, "%s: %d dropped", c->name, r.dropped);
  for (int b = 0; b < B && c->trick == ONE_UNUSED; b++) ck_assert_int_eq(r.chosen[b][3], 0);
  write_program(c);
  write_parameters(&net);
  for (int m = 0; m < MOST_MESHES && c->meshes[m]; m++) {
    char what[128];
    snprintf(what, sizeof what, "%s on %s", c->name, c->meshes[m]);
    int status = work_run(log, sizeof log,
                          "$DTMC experts.dtm --mesh %s -o experts && ./experts --log=json "
                          "--load before.safetensors --save after.safetensors --threads 1",
                          c->meshes[m]);
    ck_assert_msg(status == 0, "%s: %s", what, log);
    double got, want = loss_of(&net, c, &r);
    ck_assert_msg(log_steps(log, "loss", &got, 1) == 1, "%s", log);
    ck_assert_msg(fabs(got - want) <= 1e-6, "%s: loss %.9g, plainly %.9g", what, got, want);
    compare(what, &net, c, &r);
  }
}
END_TEST

/* More rows than there are places for, of a product and of a move. */
START_TEST(rows_without_a_place_are_told) {
  static const struct {
    const char *expression, *message;
  } refused[] = {
      {"grouped_linear(ones(f32[2, 1, 5, 3]), ones(f32[2, 4, 3]), n)",
       "counts say 4 rows for an expert whose block has room for 3"},
      {"ones(f32[2, 2, 5, 3]).redistribute(ep: Shard(0)).redistribute(ep: Shard(1), "
       "used = (n * 2).redistribute(ep: Shard(0)))",
       "used says 8 rows where there are 5"},
  };
  char text[512], log[4096];
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    snprintf(text, sizeof text,
             "mesh world(ep = 2)\ninfer {\n"
             "  let n = full(i64[2, 2], 2) + arange(i64[2]).reshape([2, 1]) * arange(i64[2]) * 2\n"
             "  print(%s)\n}\n",
             refused[i].expression);
    work_write("refused.dtm", text);
    int status = work_run(log, sizeof log, "$DTMC refused.dtm -o refused && ./refused infer");
    ck_assert_msg(status > 0 && status < 128 && strstr(log, refused[i].message) != NULL, "%d: %s",
                  status, log);
  }
}
END_TEST

int main(void) {
  if (!work_begin()) return 2;
  TCase *t = tcase_create("against a plain layer");
  tcase_set_timeout(t, 120);
  tcase_add_loop_test(t, equals_a_plain_layer, 0, NSITUATIONS);
  tcase_add_test(t, rows_without_a_place_are_told);
  Suite *s = suite_create("experts");
  suite_add_tcase(s, t);
  int failed = suite_run(s);
  return work_end() ? failed : 2;
}
