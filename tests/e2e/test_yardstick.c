/* How many collectives a transformer layer costs, against schedules written by hand: those of
 * Megatron-LM for tensor and sequence parallelism, of DeepSpeed Ulysses, of ring attention, of
 * GShard for experts.
 *
 * programs/context.dtm, or for experts samples/mixtral, is compiled with two and with three layers;
 * what the per-rank program has more of is what one layer costs.
 */
#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/suite.h"
#include "support/work.h"

static const char *const operators[] = {"all_reduce",       "reduce_scatter", "all_gather",
                                        "all_to_all",       "exchange",       "send_mesh",
                                        "redistribute_rows"};
enum { NOPS = sizeof operators / sizeof *operators, FORWARD = 0, BACKWARD, REDUCE, PHASES };

typedef struct Counts {
  int of[PHASES][NOPS];
} Counts;

typedef struct Layer {
  const char *name, *mesh, *options;
  Counts most;
} Layer;

/* all-reduce, reduce-scatter, all-gather, all-to-all, exchange, send, rows: of one layer with
 * attention and MLP. Gradients of the 14 parameters are reduced once per step, in buckets. */
static const Layer layers[] = {
    {"one rank", "dp=1", "", {{{0}}}},
    {"data parallel", "dp=2", "", {{{0}, {0}, {14}}}},
    {"tensor parallel", "tp=2", "-D sequence_parallel=false", {{{2}, {2}, {0}}}},
    /* the norms see a part of the sequence each */
    {"tensor and sequence parallel", "tp=2", "", {{{0, 2, 2}, {0, 2, 2}, {2}}}},
    {"heads in place of the sequence", "ulysses_cp=2", "", {{{0, 0, 0, 4}, {0, 0, 0, 4}, {14}}}},
    /* k and v go on twice; backward again, and their cotangents all the way round */
    {"ring of three", "ring_cp=3", "", {{{0, 0, 0, 0, 0, 4}, {0, 0, 0, 0, 0, 10}, {14}}}},
    /* to the experts and back; all but the three weights of experts are reduced over ep */
    {"experts", "ep=2", "", {{{0, 0, 0, 2}, {0, 0, 0, 2}, {7}}}},
    {"experts and data parallel", "dp=2,ep=2", "", {{{0, 0, 0, 2}, {0, 0, 0, 2}, {10}}}},
    /* the rows there are, and of each layer two tables of counts, once */
    {"experts without capacity",
     "ep=2",
     "-D capacity=0.0",
     {{{0, 0, 0, 2, 0, 0, 2}, {0, 0, 0, 0, 0, 0, 2}, {7}}}},
    {"experts and tensor parallel", "ep=2,tp=2", "", {{{2, 0, 0, 2}, {2, 0, 0, 2}, {7}}}},
};

static int phase_named(const char *line, int now) {
  if (strncmp(line, "graph ", 6) == 0) return FORWARD;
  if (strncmp(line, "  backward:", 11) == 0) return BACKWARD;
  if (strncmp(line, "  reduce:", 9) == 0) return REDUCE;
  if (strncmp(line, "  optimizer:", 12) == 0) return PHASES;
  return now;
}

static Counts count(const Layer *l, int nlayers) {
  static char text[1 << 22];
  Counts c = {{{0}}};
  int code = work_run(text, sizeof text, "%s %s/%s -D layers=%d --mesh %s %s --emit=local",
                      getenv("DTMC"), work_root(),
                      strncmp(l->name, "experts", 7) == 0 ? "samples/mixtral/mixtral.dtm"
                                                          : "tests/e2e/programs/context.dtm",
                      nlayers, l->mesh, l->options);
  ck_assert_msg(code == 0, "%s: exit %d\n%s", l->name, code, text);
  char *train = strstr(text, "\ngraph train");
  ck_assert_ptr_nonnull(train);
  char *other = strstr(train + 1, "\ngraph ");
  if (other) *other = 0;
  int phase = FORWARD;
  for (char *line = strtok(train, "\n"); line; line = strtok(NULL, "\n")) {
    phase = phase_named(line, phase);
    const char *is = strstr(line, " = ");
    for (int i = 0; is && phase < PHASES && i < NOPS; i++) {
      size_t n = strlen(operators[i]);
      if (strncmp(is + 3, operators[i], n) == 0 && is[3 + n] == '(') c.of[phase][i]++;
    }
  }
  return c;
}

START_TEST(one_layer_costs) {
  const Layer *l = &layers[_i];
  Counts two = count(l, 2), three = count(l, 3);
  for (int p = 0; p < PHASES; p++)
    for (int i = 0; i < NOPS; i++)
      ck_assert_msg(three.of[p][i] - two.of[p][i] == l->most.of[p][i],
                    "%s: a layer has %d %s in phase %d, by hand %d", l->name,
                    three.of[p][i] - two.of[p][i], operators[i], p, l->most.of[p][i]);
}
END_TEST

/* Bytes that a step of one layer needs above the variables, with 16 tokens on each rank of a ring.
 */
static long height_of(int ways, const char *options) {
  static char text[1 << 22];
  int code =
      work_run(text, sizeof text,
               "%s %s/tests/e2e/programs/context.dtm -D layers=1 -D batch=2 -D vocab=7 -D dim=24 "
               "-D seq=%d --mesh ring_cp=%d %s --emit=plan",
               getenv("DTMC"), work_root(), 16 * ways, ways, options);
  ck_assert_msg(code == 0, "%d ranks: exit %d\n%s", ways, code, text);
  const char *train = strstr(text, "\nblock train:"), *height = NULL;
  if (train) height = strstr(train, "per batch; ");
  ck_assert_ptr_nonnull(height);
  return atol(height + strlen("per batch; "));
}

/* Blocks of one step are alive at a time, and those of the next on their way. */
START_TEST(a_longer_ring_needs_no_more_memory) {
  ck_assert_int_eq(height_of(8, ""), height_of(4, ""));
  ck_assert_int_eq(height_of(4, ""), height_of(3, ""));
  ck_assert_int_eq(height_of(8, "--no-prefetch"), height_of(2, "--no-prefetch"));
}
END_TEST

int main(void) {
  if (!work_begin()) return 2;
  TCase *t = tcase_create("layers");
  tcase_set_timeout(t, 60);
  tcase_add_loop_test(t, one_layer_costs, 0, sizeof layers / sizeof *layers);
  tcase_add_test(t, a_longer_ring_needs_no_more_memory);
  Suite *s = suite_create("yardstick");
  suite_add_tcase(s, t);
  int failed = suite_run(s);
  return !work_end() || failed;
}
