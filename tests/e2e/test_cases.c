/* Small programs, each a situation in which systems for parallel training are known to go wrong:
 * compiled, run as real ranks on every mesh of a list, and what they print compared with numbers
 * worked out by hand, or with mesh 1 where the numbers are random. On GPUs (support/target.h) mesh
 * 1 is compared too, with this machine.
 *
 * tests/README.md names the test of every such situation; those that must not compile are in
 * tests/golden/check.
 */
#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/suite.h"
#include "support/target.h"
#include "support/work.h"

enum { MOST = 1024, MAX_MESHES = 6 };

typedef struct Case {
  const char *name;
  const char *meshes[MAX_MESHES];
  /* Numbers printed, in order; "0..9" is a run. NULL: what the first mesh prints. */
  const char *want;
  const char *source;
  int steps;      /* trained before infer; 0 = there is no train block */
  bool elsewhere; /* infer on the first mesh, with the parameters that this mesh saved */
  bool widened;   /* GPUs are compared with f64: in f32 the two devices differ by what both round */
} Case;

/* Every element of a parameter sees the whole step: gradient, decay, and the sum over the ranks. */
#define ADAMW "  optimizer adamw(lr = 0.1, weight_decay = 0.1)\n  steps 10\n"
/* With this, a parameter that starts from zero is minus its gradient after one step. */
#define MINUS_GRADIENT "  optimizer sgd(lr = 1.0)\n  steps 1\n"

/* Logits -5, -5.5, ...: every one below the zero that padding would hold. */
#define LOGITS_BELOW_PADDING                                                                       \
  "let x = (ones(f32[3, 7]) * arange(f32[7]) * -0.5 - 5.0).redistribute(r: Shard(1))\n"

#define EMBEDDINGS(first, second, third)                                                           \
  "mesh world(r = 1)\n"                                                                            \
  "module Net() {\n  param " first "\n  param " second "\n  param " third "\n"                     \
  "  forward(ids) {\n"                                                                             \
  "    let x = embedding(ids, a).redistribute(r: Replicate)\n"                                     \
  "    let y = embedding(ids, b).redistribute(r: Replicate)\n"                                     \
  "    let z = embedding(ids, c).redistribute(r: Replicate)\n"                                     \
  "    return sum(tanh(x) * tanh(z)) * 0.1 + sum(square(y)) * 0.01\n  }\n}\n"                      \
  "train {\n  model m = Net()\n  loss m((arange(i64[9]) * 5) % 7)\n" ADAMW "}\n"                   \
  "infer {\n  print(m.a)\n  print(m.b)\n  print(m.c)\n  print(m(arange(i64[7])))\n}\n"

static const Case cases[] = {
    /* --- uneven and empty shards --- */
    {.name = "rows that a mesh does not divide come back as they were",
     .meshes = {"r=4", "r=3", "r=7", "r=1"},
     .want = "0..49",
     .source = "mesh world(r = 1)\ninfer {\n"
               "  print(arange(f32[50]).reshape([5, 10]).redistribute(r: Shard(0)))\n}\n"},
    {.name = "a rank counts the whole tensor, not its rows",
     .meshes = {"r=4", "r=3", "r=1"},
     .want = "20 9.5 0.5",
     .source = "mesh world(r = 1)\ninfer {\n"
               "  print(sum(ones(f32[10@r, 2])))\n"
               "  let x = arange(f32[20]).reshape([10, 2]).redistribute(r: Shard(0))\n"
               "  print(mean(x))\n"
               "  print(full(mean(mean(x, 1))) - 9.0)\n}\n"},
    {.name = "a mean is not the mean of means, nor NaN from an empty shard",
     .meshes = {"r=2", "r=4", "r=1"},
     .want = "5.5 1.5 1.5 3 0 5.5 0",
     .source = "mesh world(r = 1)\ninfer {\n"
               "  print(mean(arange(f32[12]).reshape([3, 4]).redistribute(r: Shard(0))))\n"
               "  let row = arange(f32[4]).reshape([1, 4]).redistribute(r: Shard(0))\n"
               "  print(mean(row))\n  print(mean(mean(row, 0)))\n"
               "  print(max(row))\n  print(min(row))\n"
               "  let n = arange(f32[12]).reshape([3, 4]).redistribute(r: Shard(0))\n"
               "  print(mean(mean(n, 1)))\n  print(min(n))\n}\n"},
    {.name = "two mesh dims on the same rows, uneven",
     .meshes = {"a=2,b=2", "a=2,b=3", "a=4,b=2", "a=1,b=1"},
     .want = "0..14 0..20 0..1 1 66 210 354 498 642 786 930",
     .source = "mesh world(a = 1, b = 1)\ninfer {\n"
               "  print(arange(f32[15]).reshape([5, 3]).redistribute(a: Shard(0), b: Shard(0)))\n"
               "  print(arange(f32[21]).reshape([7, 3]).redistribute(a: Shard(0), b: Shard(0)))\n"
               "  let few = arange(f32[2]).redistribute(a: Shard(0), b: Shard(0))\n"
               "  print(few)\n  print(sum(few))\n"
               "  let x = arange(f32[84]).reshape([7, 12]).redistribute(a: Shard(1), b: Shard(1))\n"
               "  print(sum(x, 1).redistribute(a: Shard(0), b: Shard(0)))\n}\n"},
    {.name = "uneven layouts turn into each other",
     .meshes = {"a=2,b=3", "a=3,b=2", "a=2,b=2"},
     .want = "0..34 0..34 0..34",
     .source = "mesh world(a = 1, b = 1)\ninfer {\n"
               "  let x = arange(f32[35]).reshape([7, 5])\n"
               "  print(x.redistribute([7@a, 5@b]).redistribute([7@b, 5@a]))\n"
               "  print(x.redistribute([7@(a, b), 5]).redistribute([7@b, 5]))\n"
               "  print(x.redistribute([7@(a, b), 5]).redistribute([7@a, 5]))\n}\n"},
    {.name = "a parameter with more ranks than blocks is saved and loaded whole",
     .meshes = {"r=1", "r=30"},
     .source = "mesh world(r = 1)\n"
               "module Net() {\n  param w: f32[512@r] = normal()\n"
               "  forward(x) { return full(sum(w * x)) }\n}\n"
               "train {\n  model m = Net()\n"
               "  loss m(arange(f32[512]) * 0.01)\n" MINUS_GRADIENT "}\n"
               "infer {\n  print(m.w)\n}\n",
     .steps = 1,
     .elsewhere = true},
    {.name = "a contracted dim cut unevenly computes on no padding",
     .meshes = {"r=2", "r=4", "r=5", "r=1"},
     .want = "204 528 852 528 1581 2634",
     .source = "mesh world(r = 1)\ninfer {\n"
               "  let x = arange(f32[18]).reshape([2, 9]).redistribute(r: Shard(1))\n"
               "  let w = arange(f32[27]).reshape([3, 9]).redistribute(r: Shard(1))\n"
               "  print(linear(x, w))\n}\n"},

    {.name = "library layers of no inputs and of no features",
     .meshes = {"r=2", "r=3", "r=1"},
     .want = "0 0 0 0 7",
     .source = "import nn\nimport rope\nmesh world(r = 1)\ninfer {\n"
               "  model m = nn.Linear(0, 2)\n  print(m(zeros(f32[2@r, 0])))\n"
               "  print(full(sum(rope.rotate(zeros(f32[1, 1, 3@r, 0])))) + 7.0)\n}\n"},
    {.name = "numbers of a range by name, before its type",
     .meshes = {"r=2", "r=1"},
     .want = "1 2 3 4 5 0 0.5 1 1 10 100",
     .source = "mesh world(r = 1)\ninfer {\n"
               "  print(arange(start = 1, type = f32[5@r]))\n"
               "  print(linspace(end = 1, start = 0, type = f32[3@r]))\n"
               "  print(logspace(start = 0, type = f32[3], end = 2))\n}\n"},

    /* --- order of shards --- */
    {.name = "the order in which mesh dims cut rows is kept, and changing it moves values",
     .meshes = {"dp=2,tp=2", "dp=2,tp=3", "dp=4,tp=2"},
     .want = "0..63 0..63 0..7",
     .source =
         "mesh world(dp = 1, tp = 1)\ninfer {\n"
         "  let x = arange(f32[64]).reshape([8, 8])\n"
         "  print(x.redistribute([8@(tp, dp), 8]))\n"
         "  print(x.redistribute([8@(tp, dp), 8]).redistribute([8@(dp, tp), 8]))\n"
         "  print(arange(f32[8]).redistribute([8@(dp, tp)]).redistribute([8@(tp, dp)]))\n}\n"},

    /* --- contraction --- */
    {.name = "linear over a sharded sequence",
     .meshes = {"a=2,b=2", "a=4,b=1", "a=1,b=4", "a=2,b=3"},
     .want = "6 6 22 22 38 38 54 54 70 70 86 86 102 102 118 118 134 134 150 150 166 166 182 182 "
             "198 198 214 214",
     .source = "mesh world(a = 1, b = 1)\ninfer {\n"
               "  let x = arange(f32[56]).reshape([2, 7, 4]).redistribute(a: Shard(0), b: Shard(1))"
               "\n  print(linear(x, ones(f32[2, 4])))\n}\n"},

    /* --- Partial --- */
    {.name = "what may be done to a pending sum or average",
     .meshes = {"r=2", "r=3", "r=4", "r=1"},
     .want = "450 32.5 -12.5 225 90 22.5 -45 22.5 22.5",
     .source = "mesh world(r = 1)\ninfer {\n"
               "  let s = sum(arange(f32[10]).redistribute(r: Shard(0)))\n"
               "  let v = (s * 0.5).redistribute(r: Replicate).redistribute(r: Partial(avg))\n"
               "  print(s * 10.0)\n  print(v + 10.0)\n  print(10.0 - v)\n  print(v * 10.0)\n"
               "  print(s * full(f32[], 2.0))\n  print(s / full(f32[], 2.0))\n  print(-s)\n"
               "  print(v.redistribute(r: Replicate))\n"
               "  print((v * ones(f32[1])).redistribute(r: Shard(0)))\n}\n"},
    {.name = "a bias beside a pending sum counts once",
     .meshes = {"r=2", "r=3", "r=4", "r=1"},
     .want = "106 206 306 122 222 322 106 206 306 122 222 322 106 206 306 122 222 322",
     .source = "mesh world(r = 1)\ninfer {\n"
               "  let x = arange(f32[8]).reshape([2, 4]).redistribute(r: Shard(1))\n"
               "  let w = ones(f32[3, 4@r])\n"
               "  let b = arange(f32[3]) * 100.0 + 100.0\n"
               "  let pending = b.redistribute(r: Partial(sum))\n"
               "  print(linear(x, w).redistribute(r: Replicate) + b)\n"
               "  print(linear(x, w, pending).redistribute(r: Replicate))\n"
               "  print(linear(x, w, pending).redistribute(r: Shard(0)))\n}\n"},
    {.name = "addends beyond f16 whose sum is within it",
     .meshes = {"r=2", "r=1"},
     .want = "1",
     .source = "mesh world(r = 1)\ninfer {\n"
               "  let s = sum((70000.0 - arange(f32[2]) * 139999.0).redistribute(r: Shard(0)))\n"
               "  print(s.redistribute(r: Replicate).to(f16).to(f32))\n}\n"},
    /* 257/256 is 1 in bf16 and itself in f16: addends are narrowed on their way, whole values are
     * narrowed where they are gathered, and gradients by their own type alone. */
    {.name = "values and gradients travel in the types that a redistribute states",
     .meshes = {"r=2"},
     .want = "1 1 2 2.00781 2 2 -2 -2 -2.00781 -2.00781",
     .source = "mesh world(r = 1)\n"
               "module Net() {\n  param a: f32[2@r] = zeros()\n  param b: f32[2@r] = zeros()\n"
               "  forward(x) {\n"
               "    let y = a.redistribute(r: Replicate, backward_dtype = bf16)\n"
               "    let z = b.redistribute(r: Replicate, forward_dtype = bf16)\n"
               "    return full(sum(x * y) + sum(x * z))\n  }\n}\n"
               "fn rows() { return full(f32[2@r, 2], 1.00390625) }\n"
               "train {\n  model m = Net()\n  loss m(rows())\n" MINUS_GRADIENT "}\n"
               "infer {\n  let x = full(f32[2@r], 1.00390625)\n"
               "  print(x.redistribute(r: Replicate, forward_dtype = bf16))\n"
               "  let s = sum(x)\n"
               "  print(s.redistribute(r: Replicate, forward_dtype = bf16))\n"
               "  print(s.redistribute(r: Replicate, forward_dtype = f16))\n"
               "  let t = sum(rows(), 0)\n"
               "  print(t.redistribute(r: Shard(0), forward_dtype = bf16))\n"
               "  print(m.a)\n  print(m.b)\n}\n",
     .steps = 1},
    {.name = "a pending maximum turned into a pending minimum",
     .meshes = {"r=2", "r=4", "r=1"},
     .want = "-6 -18 12 6",
     .source = "mesh world(r = 1)\ninfer {\n"
               "  let m = max(arange(f32[7]).redistribute(r: Shard(0)))\n"
               "  print(-m)\n  print(m * -3.0)\n  print(m * 2.0)\n"
               "  print(where(full(bool[], true), sum(arange(f32[4]).redistribute(r: Shard(0))), "
               "0.0))\n}\n"},

    /* --- reductions, indexing, loss --- */
    {.name = "vocabulary over the ranks, logits around 50",
     .meshes = {"r=4", "r=3", "r=1"},
     .want = "2.3434933156570104",
     .source = "mesh world(r = 1)\ninfer {\n"
               "  let x = (arange(f32[40]) * 0.1 + 50.0).reshape([4, 10])\n"
               "  print(cross_entropy(x.redistribute(r: Shard(1)), (arange(i64[4]) * 3) % 10))\n"
               "}\n"},
    {.name = "three tables of one vocabulary, wide in the middle",
     .meshes = {"r=1", "r=2", "r=4"},
     .source = EMBEDDINGS("a: f32[7@r, 8] = normal()", "b: f32[7@r, 16] = normal()",
                          "c: f32[7@r, 8] = normal()"),
     .steps = 10},
    {.name = "three tables of one vocabulary, wide first",
     .meshes = {"r=1", "r=2", "r=4"},
     .source = EMBEDDINGS("b: f32[7@r, 16] = normal()", "a: f32[7@r, 8] = normal()",
                          "c: f32[7@r, 8] = normal()"),
     .steps = 10},
    {.name = "gradient of a table cut by rows, ids that repeat",
     .meshes = {"r=4", "r=3", "r=2", "r=1"},
     .want = "-12 -12 -14 -14 -16 -16 -4 -4 -5 -5 -6 -6 -7 -7 -8 -8 -9 -9 -10 -10 -1 -2 -3",
     .source = "mesh world(r = 1)\n"
               "module Net() {\n  param w: f32[10@r, 2] = zeros()\n  param v: f32[3@r, 1] = zeros()"
               "\n  forward(x) {\n"
               "    let t = arange(f32[13]).unsqueeze(1) + 1.0\n"
               "    let a = embedding(x % 10, w).redistribute(r: Replicate)\n"
               "    let b = embedding(arange(i64[3]), v).redistribute(r: Replicate)\n"
               "    return sum(a * t) + sum(b * (arange(f32[3]).unsqueeze(1) + 1.0))\n  }\n}\n"
               "train {\n  model m = Net()\n  loss m(arange(i64[13]))\n" MINUS_GRADIENT "}\n"
               "infer {\n  print(m.w)\n  print(m.v)\n}\n",
     .steps = 1},
    {.name = "label smoothing over a cut vocabulary, one logit 200 above the others",
     .meshes = {"r=2", "r=4", "r=3", "r=1"},
     .want = "107.5 17.5 197.5",
     .source = "mesh world(r = 1)\ninfer {\n"
               "  let x = ones(f32[2, 8]) * where(arange(i64[8]) == 5, 200.0, 0.0)\n"
               "  let s = x.redistribute(r: Shard(1))\n"
               "  let labels = 5 - arange(i64[2]) * 5\n"
               "  print(cross_entropy(s, labels, label_smoothing = 0.1))\n"
               "  print(cross_entropy(s, labels, label_smoothing = 0.1, reduction = \"none\"))\n"
               "}\n"},
    {.name = "padding of a cut vocabulary is neither the maximum nor a part of the sum",
     .meshes = {"r=2", "r=4", "r=5", "r=1"},
     .want = "2.402089413311729",
     .source = "mesh world(r = 1)\ninfer {\n" LOGITS_BELOW_PADDING
               "  print(cross_entropy(x, arange(i64[3]) * 3))\n}\n"},
    {.name = "class weights, and a rank with nothing but ignored labels",
     .meshes = {"r=4", "r=2", "r=3", "r=1"},
     .want = "1.8862117543087753",
     .source =
         "mesh world(r = 1)\ninfer {\n"
         "  let row = arange(i64[8])\n"
         "  let labels = where(logical_or(row == 4, row == 5), -100, row % 3)\n"
         "  let x = (arange(f32[24]) * 0.1).reshape([8, 3]) * (arange(f32[3]) + 1.0)\n"
         "  print(cross_entropy(x.redistribute(r: Shard(0)), labels.redistribute(r: Shard(0)),"
         " arange(f32[3]) * 0.5 + 1.0))\n}\n"},
    {.name = "a mean over eight tokens, one on one rank and seven on the other",
     .meshes = {"dp=2,cp=1", "dp=1,cp=2", "dp=2,cp=2", "dp=1,cp=1"},
     .want = "1.6204307129466846",
     .source =
         "mesh world(dp = 1, cp = 1)\ninfer {\n"
         "  let t = arange(i64[16])\n"
         "  let labels = where(logical_or(t == 0, t >= 9), t % 3, -100).reshape([2, 8])\n"
         "  let x = (arange(f32[16]).unsqueeze(1) * 0.1 * arange(f32[3])).reshape([2, 8, 3])\n"
         "  print(cross_entropy(x.redistribute(dp: Shard(0), cp: Shard(1)),\n"
         "                      labels.redistribute(dp: Shard(0), cp: Shard(1))))\n}\n"},

    /* --- gradients --- */
    {.name = "norm weights on a sequence cut over tp",
     .meshes = {"dp=1,tp=1", "dp=2,tp=2", "dp=1,tp=4", "dp=2,tp=3"},
     .source = "import nn\nmesh world(dp = 1, tp = 1)\n"
               "module Net() {\n  norm = nn.LayerNorm(6)\n  rms = nn.RMSNorm(6)\n"
               "  forward(x) { return rms(norm(x)) }\n}\n"
               "train {\n  model m = Net()\n"
               "  let x = sin(arange(f32[168]) * 1.7).reshape([4, 7, 6])\n"
               "  loss mean(m(x.redistribute(dp: Shard(0), tp: Shard(1))) * cos(x))\n" ADAMW "}\n"
               "infer {\n  print(m.norm.weight)\n  print(m.norm.bias)\n  print(m.rms.weight)\n}\n",
     .steps = 10},
    {.name = "the gradient of a reduce-scatter is gathered, not divided",
     .meshes = {"r=2", "r=3", "r=4", "r=1"},
     .want = "-3 -4 -5 -6 -3 -4 -5 -6",
     .source = "mesh world(r = 1)\n"
               "module Net() {\n  param w: f32[2, 4@r] = zeros()\n"
               "  forward(x) { return linear(x, w).redistribute(r: Shard(0)) }\n}\n"
               "train {\n  model m = Net()\n"
               "  let x = (arange(f32[8]) * 0.5 + 0.5).reshape([2, 4]).redistribute(r: Shard(1))\n"
               "  loss sum(m(x) * 2.0) - sum(m(x))\n" MINUS_GRADIENT "}\n"
               "infer {\n  print(m.w)\n}\n",
     .steps = 1},
    {.name = "a gradient norm counts every scalar once",
     .meshes = {"dp=2,tp=2", "dp=1,tp=3", "dp=4,tp=1", "dp=1,tp=1"},
     /* 16 scalars of gradient 1: clipped to a norm of 1, each moves by a quarter */
     .want = "-0.25 -0.25 -0.25 -0.25 -0.25 -0.25 -0.25 -0.25 -0.25 -0.25 -0.25 -0.25 -0.25 -0.25 "
             "-0.25 -0.25",
     .source = "mesh world(dp = 1, tp = 1)\n"
               "module Net() {\n  param a: f32[5@tp] = zeros()\n  param b: f32[6] = zeros()\n"
               "  param c: f32[2@dp] = zeros()\n  param d: f32[3] partial(tp) = zeros()\n"
               "  forward() {\n    return full(sum(a)) + full(sum(b)) + full(sum(c)) + "
               "full(sum(d))\n  }\n}\n"
               "train {\n  model m = Net()\n  loss m()\n  clip_grad_norm 1.0\n" MINUS_GRADIENT "}\n"
               "infer {\n  print(m.a)\n  print(m.b)\n  print(m.c)\n  print(m.d)\n}\n",
     .steps = 1},
    {.name = "a Partial bias under weight decay",
     .meshes = {"tp=1", "tp=2", "tp=4"},
     .source = "mesh world(tp = 1)\n"
               "module Net() {\n  param w: f32[3, 4@tp] = normal()\n"
               "  param b: f32[3] partial(tp) = normal()\n"
               "  forward(x) { return linear(x, w, b).redistribute(tp: Replicate) }\n}\n"
               "train {\n  model m = Net()\n"
               "  let x = (arange(f32[8]) * 0.1).reshape([2, 4]).redistribute(tp: Shard(1))\n"
               "  loss mean(square(m(x) - 1.0))\n" ADAMW "}\n"
               "infer {\n  print(m.w)\n  print(m.b)\n}\n",
     .steps = 10},
    {.name = "a residual whose branches bring a whole and a pending gradient",
     .meshes = {"r=1", "r=2", "r=3"},
     .source =
         "mesh world(r = 1)\n"
         "module Net() {\n  param x: f32[2, 4] = normal()\n  param w: f32[5@r, 4] = normal()\n"
         "  param v: f32[4, 5@r] = normal()\n"
         "  forward() {\n    let h = tanh(x)\n"
         "    return h + linear(linear(h, w), v).redistribute(r: Replicate)\n  }\n}\n"
         "train {\n  model m = Net()\n  loss mean(square(m()))\n" ADAMW "}\n"
         "infer {\n  print(m.x)\n  print(m.w)\n  print(m.v)\n}\n",
     .steps = 10},

    {.name = "gradients of dims of extent 1 that are cut, among others that are not",
     .meshes = {"r=2", "r=3", "r=1"},
     .want = "-3 -12 -21 -30 -3 -12 -21 -30 -2 -1 -2 -3 -3 -4 -4",
     .source =
         "mesh world(r = 1)\n"
         "module Net() {\n  param w: f32[2, 1@r, 4] = zeros()\n"
         "  param v: f32[1@r, 3] = zeros()\n  param u: f32[1@r, 2] = zeros()\n"
         "  param t: f32[1, 1@r, 2] = zeros()\n"
         "  forward(x) {\n    let a = einsum(\"ij,lki->kj\", x, w)\n"
         "    let b = sum(index_select(v, 1, arange(i64[2]) * 2))\n"
         "    return full(sum(a)) + full(sum(sum(v, [1]))) + full(b) +\n"
         "      full(sum(unsqueeze(u, 0)) * 3.0) + full(sum(squeeze(t, 0)) * 4.0)\n  }\n}\n"
         "train {\n  model m = Net()\n  loss m(arange(f32[12]).reshape([4, 3]))\n" MINUS_GRADIENT
         "}\n"
         "infer {\n  print(m.w)\n  print(m.v)\n  print(m.u)\n  print(m.t)\n}\n",
     .steps = 1},

    {.name = "a gather waits for all of what it chooses from",
     .meshes = {"r=2", "r=1"},
     .source = "mesh world(r = 1)\n"
               "module Net() {\n  param w: f32[7] = normal()\n  param x: f32[5, 7] = normal()\n"
               "  forward() {\n    let v = x.redistribute(r: Shard(0))\n"
               "    let rows = ((arange(i64[35]) * 3 + 3) % 7).reshape([7, 5])\n"
               "    let y = gather(permute(v, 1, 0), 0, rows.redistribute(r: Shard(1)))\n"
               "    return full(mean(square(y))) + full(mean(w * v))\n  }\n}\n"
               "train {\n  model m = Net()\n  loss m()\n" MINUS_GRADIENT "}\n"
               "infer {\n  print(m())\n  print(m.x)\n}\n",
     .steps = 1},

    {.name = "the innermost dim changes its place",
     .meshes = {"r=1", "r=2", "r=3"},
     .source = "mesh world(r = 1)\n"
               "module Net() {\n  param w: f32[37@r, 70] = normal()\n"
               "  param u: f32[70, 37@r] = normal()\n"
               "  forward() {\n    let v = w.transpose(0, 1) * 2.0 + u\n"
               "    return full(sum(square(v)))\n  }\n}\n"
               "train {\n  model m = Net()\n  loss m()\n" MINUS_GRADIENT "}\n"
               "infer {\n  print(m())\n  print(m.w.transpose(0, 1))\n  print(m.u)\n}\n",
     .steps = 1},

    /* --- random numbers --- */
    {.name = "a dropout mask is the same under every layout",
     .meshes = {"a=1,b=1,c=1", "a=1,b=1,c=2", "a=2,b=1,c=1", "a=1,b=2,c=1", "a=2,b=2,c=1",
                "a=4,b=1,c=1"},
     .source = "mesh world(a = 1, b = 1, c = 1)\n"
               "module Net() {\n  param w: f32[8@a, 6@b] = zeros()\n"
               "  forward(x) { return dropout(w + x, 0.5) }\n}\n"
               "train {\n  model m = Net()\n  loss sum(m(ones(f32[8, 6])))\n" MINUS_GRADIENT "}\n"
               "infer {\n  print(m.w)\n}\n",
     .steps = 1},
    {.name = "assignments of a step read what was there before it",
     .meshes = {"r=1", "r=2", "r=3"},
     .want = "2 2 2 2 1 1 1 1 5 5 5 5 8 8 8 8 3 3 3 3",
     .source = "mesh world(r = 1)\n"
               "module Net() {\n  param w: f32[4] = zeros()\n"
               "  buffer a: f32[4@r] = 1\n  buffer b: f32[4@r] = 2\n"
               "  buffer c: f32[2, 2] = 3\n  buffer d: f32[4] = 5\n  buffer e: f32[4] = 7\n"
               "  forward(x) {\n    a = b\n    b = a\n    c = d.reshape([2, 2])\n"
               "    d = e + 1.0\n    e = c.reshape([4])\n    return sum(w * x)\n  }\n}\n"
               "train {\n  model m = Net()\n  loss m(arange(f32[4]))\n" MINUS_GRADIENT "}\n"
               "infer {\n  print(m.a)\n  print(m.b)\n  print(m.c)\n  print(m.d)\n"
               "  print(m.e)\n}\n",
     .steps = 1},

#include "cases_composed.def"
#include "cases_escapes.def"
#include "cases_meshes.def"
#include "cases_context.def"
#include "cases_attention.def"
};

/* Appends the numbers of a value in text to `out`. */
static int numbers_of(const char *text, double *out, int n) {
  for (const char *p = text; *p;) {
    char *end;
    double v = strtod(p, &end);
    if (end == p) {
      p++;
      continue;
    }
    p = end;
    ck_assert_int_lt(n, MOST);
    out[n++] = v;
  }
  return n;
}

/* The same for the text of an expectation, which may hold runs of whole numbers. */
static int wanted_of(const char *text, double *out) {
  int n = 0;
  for (const char *p = text; *p;) {
    char *end;
    long first = strtol(p, &end, 10);
    if (strncmp(end, "..", 2) == 0) {
      long last = strtol(end + 2, &end, 10);
      for (long v = first; v <= last; v++) out[n++] = (double)v;
    } else {
      out[n++] = strtod(p, &end);
    }
    ck_assert_int_lt(n, MOST - 64);
    p = end + strspn(end, " ");
  }
  return n;
}

/* Runs a command and collects what it prints with print(): "NAME TYPE = VALUE" in json events. */
static int run(const char *name, const char *command, double *out) {
  static char text[1 << 20];
  int code = work_run(text, sizeof text, "%s", command), n = 0;
  ck_assert_msg(code == 0, "%s: '%s' ends with %d\n%s", name, command, code, text);
  for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
    json_t *o = json_loads(line, 0, NULL);
    const char *event = json_string_value(json_object_get(o, "event"));
    const char *value = event ? strstr(event, "] = ") : NULL;
    if (value) n = numbers_of(value + 4, out, n);
    json_decref(o);
  }
  return n;
}

static int results_of(const Case *c, int mesh, const char *dtmc, double *out) {
  char command[1024];
  work_write("case.dtm", c->source);
  snprintf(command, sizeof command, "%s case.dtm --mesh %s -o case%d", dtmc, c->meshes[mesh], mesh);
  run(c->name, command, out);
  if (c->steps) {
    snprintf(command, sizeof command,
             "./case%d train --threads=1 --log=json --steps=%d --save=w.safetensors", mesh,
             c->steps);
    run(c->name, command, out);
  }
  snprintf(command, sizeof command, "./case%d infer --threads=1 --log=json %s",
           c->elsewhere ? 0 : mesh, c->steps ? "--load=w.safetensors" : "");
  return run(c->name, command, out);
}

/* The compiler for what is compared with, where that is not written down. */
static const char *reference_of(const Case *c) {
  static char widened[1100];
  snprintf(widened, sizeof widened, "%s --widen", target_here());
  return target_gpus() && c->widened ? widened : target_here();
}

START_TEST(holds_on_every_mesh) {
  static double want[MOST], got[MOST];
  const Case *c = &cases[_i];
  int n = c->want ? wanted_of(c->want, want) : results_of(c, 0, reference_of(c), want);
  ck_assert_int_gt(n, 0);
  bool alike = !c->want; /* numbers all alike, such as an empty mask, would compare nothing */
  for (int i = 1; i < n; i++) alike &= want[i] == want[0];
  ck_assert_msg(!alike, "%s: all numbers are %g", c->name, want[0]);
  for (int m = c->want || target_gpus() ? 0 : 1; m < MAX_MESHES && c->meshes[m]; m++) {
    if (!target_has(c->meshes[m])) continue;
    int k = results_of(c, m, getenv("DTMC"), got);
    ck_assert_msg(k == n, "%s, on %s: %d numbers, %d wanted", c->name, c->meshes[m], k, n);
    /* Six digits are printed. */
    for (int i = 0; i < n; i++)
      ck_assert_msg(fabs(got[i] - want[i]) <= 2e-5 * (fabs(want[i]) + 0.01),
                    "%s, on %s: number %d is %g, wanted %g", c->name, c->meshes[m], i, got[i],
                    want[i]);
  }
}
END_TEST

/* Two draws of one program are two. */
START_TEST(draws_are_random) {
  static const Case draws = {
      .name = "two draws differ",
      .meshes = {"r=2"},
      .source = "mesh world(r = 1)\nmodule Net() {\n"
                "  param a: f32[8@r] = normal()\n  param b: f32[8@r] = normal()\n"
                "  forward(x) { return dropout(x, 0.5) + sum(a) * 0.0 + sum(b) * 0.0 }\n}\n"
                "infer {\n  model m = Net()\n  print(m.a)\n  print(m.b)\n"
                "  print(rand(f32[8@r]))\n  print(rand(f32[8@r]))\n}\n"};
  static double v[MOST];
  ck_assert_int_eq(results_of(&draws, 0, getenv("DTMC"), v), 32);
  for (int pair = 0; pair < 32; pair += 16)
    for (int i = 0; i < 8; i++)
      for (int k = 0; k < 8; k++)
        ck_assert_msg(v[pair + i] != v[pair + 8 + k], "draw %d: %g twice", pair, v[pair + i]);
}
END_TEST

/* Writes every case to a file of its own in a folder, with its meshes in a comment. */
static int print_cases(const char *dir) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char path[1024];
    snprintf(path, sizeof path, "%s/case_%02zu.dtm", dir, i);
    FILE *f = fopen(path, "w");
    if (!f) {
      perror(path);
      return 2;
    }
    fprintf(f, "// %s\n// meshes:", cases[i].name);
    for (int m = 0; m < MAX_MESHES && cases[i].meshes[m]; m++)
      fprintf(f, "%s %s", m ? ";" : "", cases[i].meshes[m]);
    fprintf(f, "\n%s", cases[i].source);
    if (fclose(f) != 0) return 2;
  }
  return 0;
}

/* With an argument only the cases whose name contains it; `e2e_test_cases print FOLDER` writes the
 * programs and runs nothing. */
int main(int argc, char **argv) {
  if (argc == 3 && strcmp(argv[1], "print") == 0) return print_cases(argv[2]);
  if (!work_begin()) return 2;
  TCase *t = tcase_create("cases");
  tcase_set_timeout(t, 300);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    if (argc < 2 || strstr(cases[i].name, argv[1]))
      tcase_add_loop_test(t, holds_on_every_mesh, (int)i, (int)i + 1);
  tcase_add_test(t, draws_are_random);
  Suite *s = suite_create("cases");
  suite_add_tcase(s, t);
  int failed = suite_run(s);
  return !work_end() || failed;
}
