/* Micro-batches compute what the whole batch computes.
 *
 * The program has all that depends on a sample's place in the batch: dropout of activations and in
 * attention, also where the batch is no first dim, random numbers with and without the batch,
 * numbers along the batch, extents of the batch as numbers; labels that are ignored, class weights;
 * a last batch that is short. Compiled with --widen, losses and metrics of all steps must agree
 * with those of one part to 1e-10; on GPUs (support/target.h) in f32, to 1e-5.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/suite.h"
#include "support/target.h"
#include "support/work.h"
#include "training.h"

static char text[1 << 16];

static const char program[] =
    "mesh world(dp = 1, pp = 1, ring_cp = 1)\n"
    "config {\n"
    "  rows = 12   seq = 4   vocab = 11   dim = 8   heads = 2   layers = 2\n"
    "  m = 1   n = 1   last = true   plan = \"1f1b\"   steps = 4   type = f32   lr = 0.3\n"
    "}\n"
    "module Block() {\n"
    "  param qkv: f32[3, dim, dim] = normal(std = 0.4) chunks(3)\n"
    "  param down: f32[dim, dim] = normal(std = 0.4)\n"
    "  fn split(x: f32[B@dp, S@ring_cp, D]) {\n"
    "    return x.reshape([B, S, heads, div(D, heads)]).transpose(1, 2)\n  }\n"
    "  forward(x: f32[B@dp, S@ring_cp, D]) {\n"
    "    let a = scaled_dot_product_attention(split(linear(x, qkv[0])), split(linear(x, qkv[1])),\n"
    "        split(linear(x, qkv[2])), causal = true, dropout = 0.2)\n"
    "    let h = a.transpose(1, 2).reshape([B, S, D])\n"
    "    let dropped = dropout(h.transpose(0, 1), 0.1).transpose(0, 1)\n"
    "    let noise = randn_like(x) + rand(f32[B@dp, 1, 1] on x.mesh) + randn(f32[D] on x.mesh)\n"
    "    let number = arange(f32[B@dp] on x.mesh).reshape([B, 1, 1])\n"
    "    let y = linear(dropped + noise.to(x.dtype) * 0.1, down)\n"
    "    return x + y + number.to(x.dtype) * 0.01 + x / (B + 1)\n"
    "  }\n"
    "}\n"
    "module Model() {\n"
    "  let stages = world.unbind(\"pp\")\n"
    "  let at = assign_layers_to_stages(layers, len(stages))\n"
    "  on stages[0] {\n    param table: f32[vocab, dim] = normal(std = 0.5)\n  }\n"
    "  blocks = [Block() on stages[at[i]] for i in range(layers)]\n"
    "  forward(ids) {\n"
    "    let h = embedding(ids.redistribute(mesh = stages[0]), table)\n"
    "    for i in range(layers) { h = blocks[i](h.redistribute(mesh = stages[at[i]])) }\n"
    "    return linear(h, table.redistribute(mesh = stages[len(stages) - 1]))\n"
    "  }\n"
    "}\n"
    "train {\n"
    "  data tokens = npy(\"tokens.npy\", i64[rows@dp, seq])\n"
    "  data labels = npy(\"labels.npy\", i64[rows@dp, seq])\n"
    "  model net = Model()\n"
    "  let logits = net(tokens.redistribute(ring_cp: Shard(1)))\n"
    "  let weights = arange(f32[vocab] on logits.mesh) * 0.1 + 0.5\n"
    "  let right = labels.redistribute(ring_cp: Shard(1), mesh = logits.mesh)\n"
    "  let squares = logits * logits\n"
    "  loss cross_entropy(logits, right, weights) + 0.001 * mean(squares)\n"
    "  metric size = mean(squares)\n"
    "  optimizer sgd(lr = lr)\n"
    "  clip_grad_norm 0.5\n"
    "  drop_last last   compute type\n"
    "  microbatches m   schedule plan   accumulate n   steps steps\n"
    "}\n";

static int64_t token(int i) {
  return (i * 7 + i / 5 + i % 13) % 11;
}
/* Some micro-batches have no label that counts. */
static int64_t label(int i) {
  return i % 17 == 0 || i / 12 % 5 == 1 ? -100 : (i * 5 + i / 7) % 11;
}

static void train(Training *t, const char *flags, const char *more) {
  int code =
      work_run(text, sizeof text, "%s a.dtm %s %s -o a && ./a --threads=1 --log=json --deadline=20",
               training_dtmc(more), flags, more);
  ck_assert_msg(code == 0, "%s %s: exit %d\n%s", flags, more, code, text);
  training_read(t, text);
}

/* 31 samples in batches of 12: the third is short. Accumulated, it counts by its samples. */
static const char *const batches[] = {"-D last=true", "-D last=false", "-D last=false -D n=3"};
static const char *const parts[] = {
    "-D m=4 --mesh dp=1",
    "-D m=12 --mesh dp=1 -D 'plan=\"gpipe\"'",
    "-D m=3 --mesh pp=2,dp=2 -D 'plan=\"zero_bubble\"'",
    "-D m=2 --mesh dp=3,ring_cp=2",
    "-D m=1 --mesh pp=2", /* a schedule alone */
};

START_TEST(parts_give_the_whole) {
  Training want, got;
  char what[256], flags[64];
  snprintf(flags, sizeof flags, "%s %s", training_widened(), batches[_i]);
  train(&want, flags, "-D m=1");
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    train(&got, flags, parts[i]);
    snprintf(what, sizeof what, "%s %s", flags, parts[i]);
    training_compare(&got, &want, training_bound(), what);
  }
}
END_TEST

/* 16 bits round at other places in parts; which steps overflow in f16 is the same, for gradients
 * are those of the whole batch. */
START_TEST(half_precision_stays_near) {
  static const char *const types[] = {"-D type=bf16", "-D type=f16"};
  static const double bounds[] = {1.0 / 64, 1.0 / 512};
  Training want, got;
  char flags[64];
  snprintf(flags, sizeof flags, "%s -D lr=0.05 -D steps=8", types[_i]);
  train(&want, flags, "-D m=1");
  for (size_t i = target_gpus() ? 2 : 0; i < 3; i++) {
    train(&got, flags, parts[i]);
    training_compare(&got, &want, bounds[_i], parts[i]);
  }
}
END_TEST

/* A print shows the whole batch, once, wherever its parts were computed. (Of several prints of a
 * step the order is that in which their values are there.) */
START_TEST(prints_show_the_whole) {
  static const char *const meshes[] = {"-D m=1", "-D m=1 --mesh dp=1 -D 'plan=\"gpipe\"'",
                                       "-D m=3 --mesh dp=1", "-D m=3 --mesh pp=2,dp=2",
                                       "-D m=6 --mesh pp=3"};
  static char first[sizeof text];
  work_write("print.dtm", "mesh world(dp = 1, pp = 1)\n"
                          "config {\n  m = 1   plan = \"1f1b\"\n}\n"
                          "module Net() {\n"
                          "  let stages = world.unbind(\"pp\")\n"
                          "  on stages[0] {\n    param a: f32[4, 3] = normal()\n  }\n"
                          "  on stages[len(stages) - 1] {\n    param b: f32[4, 4] = normal()\n  }\n"
                          "  forward(x) {\n"
                          "    let h = tanh(linear(x.redistribute(mesh = stages[0]).to(f32), a))\n"
                          "    return linear(h.redistribute(mesh = stages[len(stages) - 1]), b)\n"
                          "  }\n"
                          "}\n"
                          "train {\n"
                          "  data x = npy(\"few.npy\", i64[12@dp, 3])\n"
                          "  model net = Net()\n"
                          "  let y = net(x)\n"
                          "  loss mean(y * y)\n"
                          "  print(argmax(y, -1))\n  print(x.T)\n  print(sum(argmax(y, -1)))\n"
                          "  print(2 * mean(y * y))\n  print(step())\n"
                          "  optimizer sgd(lr = 0.1)\n  shuffle false\n"
                          "  microbatches m   schedule plan   steps 2\n"
                          "}\n");
  training_write_npy("few.npy", 24, 3, token);
  for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
    int code =
        work_run(text, sizeof text,
                 "%s print.dtm %s -o print && ./print --threads=1 --no-curve | grep ' = ' | sort",
                 training_dtmc(meshes[i]), meshes[i]);
    ck_assert_msg(code == 0, "%s: exit %d\n%s", meshes[i], code, text);
    if (i)
      ck_assert_str_eq(text, first);
    else
      snprintf(first, sizeof first, "%s", text);
  }
  ck_assert_ptr_nonnull(strstr(first, "x.T i64[3, 12] = [["));
}
END_TEST

int main(void) {
  if (!work_begin()) return 2;
  work_write("a.dtm", program);
  training_write_npy("tokens.npy", 31, 4, token);
  training_write_npy("labels.npy", 31, 4, label);
  TCase *t = tcase_create("micro");
  tcase_set_timeout(t, 240);
  tcase_add_loop_test(t, parts_give_the_whole, 0, sizeof batches / sizeof *batches);
  tcase_add_loop_test(t, half_precision_stays_near, 0, 2);
  tcase_add_test(t, prints_show_the_whole);
  Suite *s = suite_create("micro");
  suite_add_tcase(s, t);
  int failed = suite_run(s);
  return !work_end() || failed;
}
