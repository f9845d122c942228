/* What `--emit=schedule` says of the memory of stages, against counts by hand and against the plan,
 * on a small tower and with the published dims of Llama 3.1 405B on 8192 ranks. Nothing is run.
 */
#include <check.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/suite.h"
#include "support/work.h"

enum { STAGES = 16 };

static char text[1 << 20];

/* Six blocks; a micro-batch of a stage is [batch / parts, 16] of f32. */
static const char tower[] =
    "mesh world(dp = 1, pp = 1)\n"
    "config {\n  batch = 16   dim = 16   layers = 6   parts = 4   again = false\n}\n"
    "module Block() {\n"
    "  param w: f32[dim, dim] = normal(std = 0.1)\n"
    "  forward(x) { return x + tanh(linear(x, w)) }\n"
    "}\n"
    "module Tower() {\n"
    "  let stages = world.unbind(\"pp\")\n"
    "  let at = assign_layers_to_stages(layers, len(stages))\n"
    "  blocks = [Block() on stages[at[i]] for i in range(layers)]\n"
    "  forward(x) {\n"
    "    let h = x\n"
    "    for i in range(layers) {\n"
    "      h = h.redistribute(mesh = stages[at[i]])\n"
    "      h = if again then recompute blocks[i](h) else blocks[i](h)\n"
    "    }\n"
    "    return h\n"
    "  }\n"
    "}\n"
    "train {\n"
    "  data x = npy(\"x.npy\", f32[batch@dp, dim])\n"
    "  model m = Tower()\n"
    "  loss mean(square(m(x)))\n"
    "  optimizer adamw(lr = 1e-3)\n"
    "  steps 100   microbatches parts   schedule \"1f1b\"\n"
    "}\n";

typedef struct Memory {
  uint64_t kept, arena;
} Memory;

/* Reads the stages of --emit=schedule; their number. */
static int read_stages(Memory out[STAGES], const char *program, const char *flags) {
  int code =
      work_run(text, sizeof text, "%s %s %s --emit=schedule", getenv("DTMC"), program, flags);
  ck_assert_msg(code == 0, "%s: exit %d\n%s", flags, code, text);
  int n = 0;
  for (const char *at = text; (at = strstr(at, "bytes per rank: ")) && n < STAGES; n++, at++)
    ck_assert_int_eq(sscanf(at,
                            "bytes per rank: %" SCNu64 " kept between parts, %" SCNu64 " arena:",
                            &out[n].kept, &out[n].arena),
                     2);
  return n;
}

/* A block keeps its input for the weight's gradient and the tanh for its own; recomputed, its input
 * alone. The last stage adds the block's output up again, unless it was the result of a recomputed
 * call. Stage s of 3 has 3 - s micro-batches under way. */
static const struct {
  const char *flags;
  int value;     /* bytes of one value of one micro-batch */
  int values[3]; /* kept per micro-batch */
} towers[] = {
    {"--mesh pp=3", 4 * 16 * 4, {4, 4, 4}},
    {"--mesh pp=3,dp=2", 2 * 16 * 4, {4, 4, 4}},
    {"--mesh pp=3 -D again=true", 4 * 16 * 4, {2, 2, 3}},
    {"--mesh pp=3 -D batch=64 -D parts=8", 8 * 16 * 4, {4, 4, 4}},
};

typedef struct Seen {
  uint64_t offset;
  unsigned blocks;
  bool outbox;
} Seen;

/* "0x2c0 x3 f32[16@dp, 16] on world.unbind("pp")[0]": a buffer with several blocks on this mesh. */
static bool has_blocks(const char *at, const char *mesh, Seen *out) {
  int used = 0;
  if (sscanf(at, "0x%" SCNx64 " x%u f32[%n", &out->offset, &out->blocks, &used) != 2 || !used)
    return false;
  const char *end = strchr(at + used, ']');
  return end && strncmp(end, mesh, strlen(mesh)) == 0;
}

/* In the text of a plan: bytes of such buffers of a stage, but for outboxes. */
static uint64_t count_blocks(char *plan, int stage, uint64_t value) {
  enum { MOST = 64 };
  Seen seen[MOST], one = {0};
  char mesh[64];
  int n = 0;
  snprintf(mesh, sizeof mesh, "] on world.unbind(\"pp\")[%d]", stage);
  for (char *line = strtok(plan, "\n"); line; line = strtok(NULL, "\n"))
    for (const char *at = line; (at = strstr(at, "0x")); at++) {
      if (!has_blocks(at, mesh, &one)) continue;
      int k = 0;
      while (k < n && seen[k].offset != one.offset) k++;
      ck_assert_int_lt(k, MOST);
      if (k == n) seen[n++] = one;
      seen[k].outbox |= at[-1] == '>' && strstr(line, " post ") != NULL;
    }
  uint64_t bytes = 0;
  for (int k = 0; k < n; k++) bytes += seen[k].outbox ? 0 : value * seen[k].blocks;
  return bytes;
}

START_TEST(a_tower) {
  Memory m[STAGES];
  const char *flags = towers[_i].flags;
  uint64_t value = (uint64_t)towers[_i].value, total, fixed;
  ck_assert_int_eq(read_stages(m, "tower.dtm", flags), 3);
  for (int s = 0; s < 3; s++)
    ck_assert_msg(m[s].kept == value * (uint64_t)(towers[_i].values[s] * (3 - s)),
                  "%s: stage %d keeps %" PRIu64, flags, s, m[s].kept);
  for (int s = 0; s < 2; s++) { /* those that keep several */
    int code = work_run(text, sizeof text, "%s tower.dtm %s --emit=plan", getenv("DTMC"), flags);
    ck_assert_int_eq(code, 0);
    ck_assert_int_eq(sscanf(text, "arena %" SCNu64 " bytes, variables %" SCNu64, &total, &fixed),
                     2);
    ck_assert_uint_eq(count_blocks(strstr(text, "block train"), s, value), m[s].kept);
    /* two blocks: weight, its gradient, two moments */
    ck_assert_uint_ge(m[s].arena, 2 * 4 * 16 * 16 * 4 + m[s].kept);
    ck_assert_uint_le(m[s].arena, total);
  }
}
END_TEST

static const char llama[] =
    "-D vocab=128256 -D dim=16384 -D layers=126 -D heads=128 -D kv_heads=8 -D ffn=53248 "
    "-D theta=500000.0 -D rope_factor=8.0 -D trained=8192 -D seq=8192 -D batch=1024 "
    "-D microbatches=16 --mesh dp=64,pp=16,tp=8";

/* 126 layers on 16 stages: eight on the first 14, seven on the last two. Stage 0 has the table. */
START_TEST(llama_405b) {
  char program[4096];
  const uint64_t d = 16384, kv = 1024, ffn = 53248, vocab = 128256, tp = 8, tokens = 8192;
  const uint64_t layer = (2 * d * d + 2 * kv * d + 3 * ffn * d) / tp + 2 * d;
  /* parameter, gradient, two moments; keys and values of one prompt, of eight layers, for infer */
  const uint64_t fixed = 16 * (8 * layer + vocab * d / tp) + 8 * 2 * (kv / tp) * tokens * 4;
  /* What the backward pass of a layer may read: four values of the width of the model, q, k, v,
   * what attention gives and its transpose, four of the width of the MLP, the logs of sums. */
  const uint64_t most = 4 * tokens * (4 * d + 3 * d / tp + 2 * kv / tp + 4 * ffn / tp + 128 / tp);
  Memory m[STAGES];
  uint64_t total = 0, variables = 0;
  snprintf(program, sizeof program, "%s/samples/llama/llama.dtm", work_root());
  ck_assert_int_eq(read_stages(m, program, llama), STAGES);
  for (uint64_t s = 1; s < 14; s++) { /* nothing but layers, 16 - s micro-batches of them */
    ck_assert_uint_eq(m[s].kept * 3, m[13].kept * (16 - s));
    ck_assert_uint_le(m[s].kept, 8 * most * (16 - s));
  }
  ck_assert_uint_ge(m[0].kept, m[1].kept / 15 * 16);
  int code = work_run(text, sizeof text, "%s %s %s --emit=plan | sed -n 1p", getenv("DTMC"),
                      program, llama);
  ck_assert_int_eq(code, 0);
  ck_assert_int_eq(sscanf(text, "arena %" SCNu64 " bytes, variables %" SCNu64, &total, &variables),
                   2);
  ck_assert_uint_ge(variables, fixed);
  ck_assert_uint_le(variables, fixed + (64 << 10)); /* channels, scalars of the step */
  for (int s = 0; s < STAGES; s++) ck_assert_uint_le(m[s].arena, total);
  ck_assert_uint_ge(m[0].arena, fixed + m[0].kept);
}
END_TEST

int main(void) {
  if (!work_begin()) return 2;
  work_write("tower.dtm", tower);
  TCase *t = tcase_create("stage_memory");
  tcase_set_timeout(t, 240);
  tcase_add_loop_test(t, a_tower, 0, (int)(sizeof towers / sizeof *towers));
  tcase_add_test(t, llama_405b);
  Suite *s = suite_create("stage_memory");
  suite_add_tcase(s, t);
  int failed = suite_run(s);
  return !work_end() || failed;
}
