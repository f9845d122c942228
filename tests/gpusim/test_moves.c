/* Collectives, moves and messages of a pipeline on simulated GPUs against the processor's
 * transport: one program of nothing else, for 4 ranks, each of which runs it on both devices from
 * the same bytes and compares what was written. What nobody writes on the GPU nobody may read. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "codegen/cuda_program.h"
#include "comm/local.h"
#include "device/cuda/cuda.h"
#include "plan/image.h"
#include "runtime/abi/blocks.h"
#include "runtime/abi/number.h"
#include "support/suite.h"

enum { RANKS = 4, MAX_VALUES = 200, MICRO = 1, SLOTS = 2, MESSAGES = 3 };

/* --- the program --------------------------------------------------------------------------------
 */

typedef struct Value {
  uint32_t type;
  uint64_t offset, stride;
  uint32_t slots; /* blocks of micro-batches */
  bool written;
  int64_t below; /* an input of numbers in [0, below); 0: any */
} Value;

static Arena arena;
static ImageWriter w;
static Value values[MAX_VALUES];
static uint32_t nvalues;
static uint64_t end = 256;
static Image image;

static uint32_t add_mesh(uint32_t naxes, int64_t a, int64_t b, int32_t first, int32_t turn) {
  AbiMesh m = {.name = image_string(&w, "m"),
               .naxes = naxes,
               .size = {a, b},
               .nranks = naxes > 1 ? a * b : a,
               .ranks = w.rank.len};
  for (int64_t p = 0; p < m.nranks; p++)
    VEC_PUSH(&arena, &w.rank, first + (int32_t)((p + turn) % m.nranks));
  VEC_PUSH(&arena, &w.mesh, m);
  return w.mesh.len - 1;
}

/* A layout: per axis R, a digit for Shard of that dim, P for Partial. */
static uint32_t add_type(uint32_t dtype, uint32_t mesh, const char *layout, uint8_t op,
                         uint32_t rank, int64_t a, int64_t b, int64_t c, int64_t d) {
  AbiType t = {.dtype = dtype, .rank = rank, .mesh = mesh, .shape = {a, b, c, d}};
  for (uint32_t x = 0; layout[x]; x++) {
    if (layout[x] == 'P') t.at[x] = (AbiPlace){.kind = ABI_PARTIAL, .op = op};
    if (layout[x] < '0' || layout[x] > '9') continue;
    t.at[x] = (AbiPlace){.kind = ABI_SHARD, .dim = (uint8_t)(layout[x] - '0')};
    for (uint32_t y = 0; y < x; y++) t.at[x].order += layout[y] == layout[x];
  }
  VEC_PUSH(&arena, &w.type, t);
  return w.type.len - 1;
}

/* Room for the block of any rank: that of the first. */
static uint64_t room_of(const AbiType *t) {
  const int64_t coord[ABI_MAX_AXES] = {0};
  int64_t offset[ABI_MAX_DIMS], extent[ABI_MAX_DIMS], n = (int64_t)abi_dtype_bytes(t->dtype);
  abi_block(t, &w.mesh.data[t->mesh], coord, offset, extent);
  for (uint32_t i = 0; i < t->rank; i++) n *= extent[i];
  return ((uint64_t)n + 127) / 64 * 64;
}

static uint32_t add_value(uint32_t type, bool written, uint32_t slots) {
  Value *v = &values[nvalues];
  *v = (Value){.type = type, .offset = end, .slots = slots, .written = written};
  v->stride = room_of(&w.type.data[type]);
  end += v->stride * slots;
  return nvalues++;
}

/* Buffers are values, n of them. */
static uint32_t add_action(uint32_t kind, uint32_t code, uint32_t axes, uint32_t n, ...) {
  AbiAction a = {.kind = kind, .code = code, .axes = axes, .buffers = w.buffer.len, .nbuffers = n};
  va_list list;
  va_start(list, n);
  for (uint32_t i = 0; i < n; i++) {
    const Value *v = &values[va_arg(list, uint32_t)];
    AbiBuffer b = {.offset = v->offset, .type = v->type, .written = v->written};
    if (v->slots > 1) b.slots = v->slots, b.stride = v->stride;
    VEC_PUSH(&arena, &w.buffer, b);
    a.mesh = w.type.data[v->type].mesh;
  }
  va_end(list);
  char name[64];
  snprintf(name, sizeof name, "action %u of kind %u", w.action.len, kind);
  a.name = image_string(&w, name);
  a.source = image_string(&w, "moves:1:1");
  VEC_PUSH(&arena, &w.action, a);
  return w.action.len;
}

/* An action of one source and one destination. */
static void move(uint32_t kind, uint32_t code, uint32_t axes, uint32_t from, uint32_t to) {
  add_action(kind, code, axes, 2, add_value(from, false, 1), add_value(to, true, 1));
}

static void reductions(uint32_t line, uint32_t grid) {
  static const struct {
    uint8_t dtype, op;
  } all[] = {{ABI_F32, ABI_SUM},  {ABI_BF16, ABI_SUM}, {ABI_F64, ABI_PRODUCT}, {ABI_F32, ABI_AVG},
             {ABI_BF16, ABI_AVG}, {ABI_F32, ABI_MAX},  {ABI_F16, ABI_MIN},     {ABI_I64, ABI_MAX},
             {ABI_I16, ABI_SUM},  {ABI_I32, ABI_XOR},  {ABI_I32, ABI_OR},      {ABI_BOOL, ABI_SUM},
             {ABI_BOOL, ABI_AND}, {ABI_BOOL, ABI_XOR}, {ABI_U8, ABI_MIN},      {ABI_I8, ABI_SUM}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    uint32_t t = all[i].dtype;
    uint8_t op = all[i].op;
    uint32_t partial = add_type(t, line, "P", op, 2, 5, 7, 0, 0);
    move(ABI_ALL_REDUCE, op, 1, partial, add_type(t, line, "R", 0, 2, 5, 7, 0, 0));
    move(ABI_REDUCE_SCATTER, op, 1, partial, add_type(t, line, "1", 0, 2, 5, 7, 0, 0));
    uint32_t half = add_type(t, grid, "P1", op, 2, 8, 6, 0, 0);
    move(ABI_REDUCE_SCATTER, op, 1, half, add_type(t, grid, "01", 0, 2, 8, 6, 0, 0));
  }
  /* Of what the rank made right before, and read right behind. */
  uint32_t kept = add_type(ABI_F32, line, "P", ABI_SUM, 1, 40, 0, 0, 0);
  uint32_t made = add_value(kept, true, 1),
           summed = add_value(add_type(ABI_F32, line, "R", 0, 1, 40, 0, 0, 0), true, 1);
  add_action(ABI_COPY, 0, 0, 2, add_value(kept, false, 1), made);
  add_action(ABI_ALL_REDUCE, ABI_SUM, 1, 2, made, summed);
  add_action(ABI_COPY, 0, 0, 2, summed, add_value(values[summed].type, true, 1));
  /* A bucket: two that lie side by side, one of another size. */
  uint32_t p = add_type(ABI_F32, grid, "RP", ABI_SUM, 1, 16, 0, 0, 0),
           whole = add_type(ABI_F32, grid, "RR", 0, 1, 16, 0, 0, 0),
           q = add_type(ABI_F32, grid, "RP", ABI_SUM, 1, 5, 0, 0, 0),
           rest = add_type(ABI_F32, grid, "RR", 0, 1, 5, 0, 0, 0);
  uint32_t a = add_value(p, false, 1), b = add_value(p, false, 1), c = add_value(q, false, 1);
  uint32_t x = add_value(whole, true, 1), y = add_value(whole, true, 1),
           z = add_value(rest, true, 1);
  add_action(ABI_ALL_REDUCE, ABI_SUM, 2, 6, a, x, b, y, c, z);
}

static void gathers(uint32_t line, uint32_t grid) {
  static const struct {
    uint32_t dtype;
    const char *from, *to;
    int64_t a, b;
  } all[] = {{ABI_F32, "0", "R", 8, 6},     {ABI_F8_E4M3, "0", "R", 5, 3},
             {ABI_BF16, "1", "R", 3, 8},    {ABI_BOOL, "1", "R", 3, 7},
             {ABI_F64, "0", "1", 5, 6},     {ABI_I16, "1", "0", 2, 9},
             {ABI_F32, "0", "R", 70000, 1}, {ABI_F32, "1", "0", 90, 1100}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    move(ABI_PULL, 0, 1, add_type(all[i].dtype, line, all[i].from, 0, 2, all[i].a, all[i].b, 0, 0),
         add_type(all[i].dtype, line, all[i].to, 0, 2, all[i].a, all[i].b, 0, 0));
  move(ABI_PULL, 0, 1, add_type(ABI_F32, grid, "01", 0, 2, 6, 5, 0, 0),
       add_type(ABI_F32, grid, "R1", 0, 2, 6, 5, 0, 0));
  move(ABI_PULL, 0, 2, add_type(ABI_F32, grid, "01", 0, 2, 6, 5, 0, 0),
       add_type(ABI_F32, grid, "0R", 0, 2, 6, 5, 0, 0));
  move(ABI_PULL, 0, 3, add_type(ABI_F32, grid, "01", 0, 2, 6, 5, 0, 0),
       add_type(ABI_F32, grid, "10", 0, 2, 6, 5, 0, 0));
  /* A bucket, begun ahead; and blocks of a micro-batch. */
  uint32_t t = add_type(ABI_F32, line, "0", 0, 2, 8, 4, 0, 0),
           whole = add_type(ABI_F32, line, "R", 0, 2, 8, 4, 0, 0),
           u = add_type(ABI_F32, line, "1", 0, 2, 3, 9, 0, 0),
           all_u = add_type(ABI_F32, line, "R", 0, 2, 3, 9, 0, 0);
  uint32_t a = add_value(t, false, 1), x = add_value(whole, true, 1), b = add_value(u, false, 1),
           y = add_value(all_u, true, 1);
  uint32_t start = add_action(ABI_START, ABI_PULL, 1, 4, a, x, b, y);
  add_action(ABI_PULL, 0, 1, 2, add_value(u, false, SLOTS), add_value(all_u, true, SLOTS));
  add_action(ABI_PULL, 0, 1, 4, a, x, b, y);
  w.action.data[w.action.len - 1].started = start;
  uint32_t p = add_type(ABI_F32, line, "P", ABI_SUM, 2, 9, 3, 0, 0);
  a = add_value(p, false, 1);
  x = add_value(add_type(ABI_F32, line, "1", 0, 2, 9, 3, 0, 0), true, 1);
  start = add_action(ABI_START, ABI_REDUCE_SCATTER, 1, 2, a, x);
  move(ABI_PULL, 0, 1, t, whole);
  add_action(ABI_REDUCE_SCATTER, ABI_SUM, 1, 2, a, x);
  w.action.data[w.action.len - 1].started = start;
}

static void rows(uint32_t line) {
  for (int i = 0; i < 2; i++) {
    uint32_t dtype = i ? ABI_I64 : ABI_I32;
    uint32_t from = add_type(ABI_BF16, line, "0", 0, 4, 4, 5, 3, i ? 8 : 3),
             to = add_type(ABI_BF16, line, "1", 0, 4, 4, 5, 3, i ? 8 : 3);
    uint32_t used = add_value(add_type(dtype, line, "1", 0, 2, 4, 5, 0, 0), false, 1);
    values[used].below = 4;
    add_action(ABI_PULL_ROWS, 0, 1, 3, add_value(from, false, 1), add_value(to, true, 1), used);
  }
}

static void local_moves(uint32_t grid) {
  uint32_t whole = add_type(ABI_BF16, grid, "RR", 0, 2, 5, 7, 0, 0);
  move(ABI_SLICE, 0, 3, whole, add_type(ABI_BF16, grid, "01", 0, 2, 5, 7, 0, 0));
  move(ABI_SLICE, 0, 2, whole, add_type(ABI_BF16, grid, "R1", 0, 2, 5, 7, 0, 0));
  move(ABI_COPY, 0, 0, whole, whole);
  static const uint8_t ops[] = {ABI_SUM, ABI_PRODUCT, ABI_MAX};
  for (int i = 0; i < 3; i++) {
    uint32_t dtype = i == 1 ? ABI_F64 : ABI_I16, op = ops[i];
    uint32_t filled = add_type(dtype, grid, "PR", ops[i], 2, 5, 7, 0, 0);
    move(ABI_FILL, op, 1, add_type(dtype, grid, "RR", 0, 2, 5, 7, 0, 0), filled);
    move(ABI_FILL, op, 1, add_type(dtype, grid, "0R", 0, 2, 5, 7, 0, 0), filled);
  }
}

static void transfers(uint32_t line) {
  uint32_t left = add_mesh(1, 2, 1, 0, 0), right = add_mesh(1, 2, 1, 2, 0),
           three = add_mesh(1, 3, 1, 1, 0), ring = add_mesh(1, RANKS, 1, 0, 1);
  move(ABI_PULL, 0, 0, add_type(ABI_F32, left, "0", 0, 2, 5, 3, 0, 0),
       add_type(ABI_F32, right, "1", 0, 2, 5, 3, 0, 0));
  move(ABI_PULL, 0, 0, add_type(ABI_I8, left, "R", 0, 2, 5, 3, 0, 0),
       add_type(ABI_I8, three, "0", 0, 2, 5, 3, 0, 0));
  uint32_t a = add_value(add_type(ABI_F32, line, "0", 0, 2, 6, 3, 0, 0), false, 1),
           x = add_value(add_type(ABI_F32, ring, "0", 0, 2, 6, 3, 0, 0), true, 1);
  uint32_t start = add_action(ABI_START, ABI_PULL, 0, 2, a, x);
  add_action(ABI_PULL, 0, 0, 2, a, x);
  w.action.data[w.action.len - 1].started = start;
  /* Two ways to cut disjoint ranks, which one splitting makes. */
  move(ABI_ALL_REDUCE, ABI_SUM, 1, add_type(ABI_F32, left, "P", ABI_SUM, 1, 9, 0, 0, 0),
       add_type(ABI_F32, left, "R", 0, 1, 9, 0, 0, 0));
  move(ABI_ALL_REDUCE, ABI_SUM, 1, add_type(ABI_F32, right, "P", ABI_SUM, 1, 9, 0, 0, 0),
       add_type(ABI_F32, right, "R", 0, 1, 9, 0, 0, 0));
  /* Channels: as it is, packed, and back; more messages than slots, taken late. */
  for (uint32_t c = 0; c < 3; c++) {
    uint32_t from = add_type(ABI_F32, c == 2 ? right : left, "0", 0, 2, 6, 4, 0, 0),
             to = add_type(ABI_F32, c == 2 ? left : right, c == 1 ? "1" : "0", 0, 2, 6, 4, 0, 0);
    uint32_t outbox = add_value(from, true, SLOTS);
    AbiChannel channel = {.from = from,
                          .to = to,
                          .offset = values[outbox].offset,
                          .stride = values[outbox].stride,
                          .slots = SLOTS};
    values[outbox].slots = 0; /* nobody looks at it */
    VEC_PUSH(&arena, &w.channel, channel);
    add_action(ABI_POST, c, 0, 2, add_value(from, false, MESSAGES), outbox);
    add_action(ABI_TAKE, c, 0, 2, outbox, add_value(to, true, MESSAGES));
  }
}

static void build(void) {
  image_init(&w, &arena);
  uint32_t line = add_mesh(1, RANKS, 1, 0, 0), grid = add_mesh(2, 2, 2, 0, 0);
  reductions(line, grid);
  gathers(line, grid);
  rows(line);
  local_moves(grid);
  transfers(line);
  AbiHeader h = {.world = line, .persistent_size = ABI_STEP_BYTES, .counts_offset = ABI_STEP_BYTES};
  h.arena_size = (end + 4095) / 4096 * 4096;
  for (int i = 0; i < ABI_PROGRAM_COUNT; i++)
    VEC_PUSH(&arena, &w.program, ((AbiProgram){.microbatches = 1}));
  const unsigned char *bytes = image_finish(&w, &h);
  const char *wrong = abi_image_open(bytes, h.size, &image);
  ck_assert_msg(!wrong, "%s", wrong);
}

/* --- ranks --------------------------------------------------------------------------------------
 */

#define EXPECT(condition, ...)                                                                     \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      fprintf(stderr, "rank %d: ", (int)rank);                                                     \
      fprintf(stderr, __VA_ARGS__);                                                                \
      fputc('\n', stderr);                                                                         \
      _exit(9);                                                                                    \
    }                                                                                              \
  } while (0)

static int64_t count_of(const Value *v, int32_t rank) {
  const AbiType *t = &image.type[v->type];
  const AbiMesh *m = &image.mesh[t->mesh];
  int64_t position = abi_mesh_position(&image, m, rank), n = 1;
  int64_t coord[ABI_MAX_AXES], offset[ABI_MAX_DIMS], extent[ABI_MAX_DIMS];
  if (position < 0 || v->slots == 0) return 0;
  abi_coords(m, position, coord);
  abi_block(t, m, coord, offset, extent);
  for (uint32_t d = 0; d < t->rank; d++) n *= extent[d];
  return n;
}

/* What is used of a value are all blocks of messages, else that of the micro-batch at hand. */
static uint32_t blocks_of(const Value *v) {
  return v->slots == MESSAGES ? MESSAGES : 1;
}

static uint64_t place_of(const Value *v, uint32_t block) {
  uint32_t slot = v->slots == MESSAGES ? block : v->slots > 1 ? MICRO % v->slots : 0;
  return v->offset + slot * v->stride;
}

static uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

/* Small numbers, whose sums are exact; some floats that are not to be summed are NaN. Counts are
 * the same on all ranks. */
static void fill_inputs(int32_t rank, unsigned char *to) {
  for (uint32_t i = 0; i < nvalues; i++) {
    const Value *v = &values[i];
    const AbiType *t = &image.type[v->type];
    bool extremes = false;
    for (uint32_t a = 0; a < ABI_MAX_AXES; a++)
      extremes |=
          t->at[a].kind == ABI_PARTIAL && (t->at[a].op == ABI_MAX || t->at[a].op == ABI_MIN);
    for (int64_t k = 0, n = count_of(v, rank); k < n * blocks_of(v) && !v->written; k++) {
      uint64_t bits = mix((uint64_t)i << 40 | (uint64_t)rank << 32 | (uint64_t)k);
      double number = (double)(bits % 9) - (t->dtype == ABI_U8 ? 0 : 4);
      if (t->dtype == ABI_BOOL) number = (double)(bits & 1);
      if (v->below) number = (double)(bits % (uint64_t)v->below);
      if (extremes && abi_is_float(t->dtype) && (bits >> 32) % 16 == 0) number = NAN;
      abi_store(to + place_of(v, (uint32_t)(k / n)), t->dtype, k % n, number);
    }
  }
}

static bool is_there(uint32_t mesh, int32_t rank) {
  return abi_mesh_position(&image, &image.mesh[mesh], rank) >= 0;
}

static void find_skips(int32_t rank, unsigned char *skip) {
  for (uint64_t i = 0; i < image.action_count; i++) {
    const AbiAction *a = &image.action[i];
    const AbiBuffer *b = &image.buffer[a->buffers];
    bool source = is_there(image.type[b[0].type].mesh, rank),
         target = is_there(image.type[b[1].type].mesh, rank);
    const AbiChannel *c = &image.channel[a->code];
    if (a->kind == ABI_POST)
      skip[i] = !is_there(image.type[c->from].mesh, rank);
    else if (a->kind == ABI_TAKE)
      skip[i] = !is_there(image.type[c->to].mesh, rank);
    else
      skip[i] = !source && !target;
  }
}

/* Prepared and ready for its first action. */
static int run_all(RtDevice *d) {
  int status = d->ops->set_step(d);
  for (uint32_t i = 0; i < image.action_count && !status; i++)
    if (!d->skip[i]) {
      uint32_t kind = image.action[i].kind;
      bool message = kind == ABI_POST || kind == ABI_TAKE;
      dtm_device_place(d, i);
      for (int64_t m = 0; m < (message ? MESSAGES : 1) && !status; m++) {
        d->step->micro = message ? m : MICRO;
        status = d->ops->run(d, i, NULL);
      }
    }
  return status;
}

static int prepare_all(RtDevice *d) {
  int status = 0;
  for (uint32_t i = 0; i < image.action_count && !status; i++)
    if (!d->skip[i]) status = d->ops->prepare(d, i);
  return status ? status : d->ops->ready(d);
}

static bool same(uint32_t dtype, uint8_t op, const void *a, const void *b, int64_t i) {
  if (!abi_is_float(dtype)) return abi_load_int(a, dtype, i) == abi_load_int(b, dtype, i);
  double x = abi_load(a, dtype, i), y = abi_load(b, dtype, i);
  if (op == ABI_AVG && dtype == ABI_F32) return fabs(x - y) <= 0x1p-22 * fabs(x);
  return x == y || (isnan(x) && isnan(y));
}

/* The reduction that made a value; 0: none did. */
static uint8_t reduction_of(const Value *v) {
  for (uint64_t i = 0; i < image.action_count; i++) {
    const AbiAction *a = &image.action[i];
    if (a->kind != ABI_ALL_REDUCE && a->kind != ABI_REDUCE_SCATTER) continue;
    for (uint32_t k = 1; k < a->nbuffers; k += 2)
      if (image.buffer[a->buffers + k].offset == v->offset) return (uint8_t)a->code;
  }
  return 0;
}

static void compare(int32_t rank, const unsigned char *cpu, RtDevice *gpu) {
  for (uint32_t i = 0; i < nvalues; i++) {
    const Value *v = &values[i];
    const AbiType *t = &image.type[v->type];
    const void *got;
    int64_t n = count_of(v, rank);
    if (!v->written || n == 0) continue;
    for (int64_t k = 0; k < n * blocks_of(v); k++) {
      uint64_t at = place_of(v, (uint32_t)(k / n));
      if (k % n == 0)
        EXPECT(!gpu->ops->view(gpu, at, (size_t)n * abi_dtype_bytes(t->dtype), &got), "no view");
      EXPECT(same(t->dtype, reduction_of(v), cpu + at, got, k % n),
             "value %u (%s), element %lld of %lld: %.9g, on the processor %.9g", i,
             abi_dtype_name(t->dtype), (long long)k, (long long)n, abi_load(got, t->dtype, k % n),
             abi_load(cpu + at, t->dtype, k % n));
    }
  }
}

static void run_rank(RtComm *c, const RtCode *code) {
  int32_t rank = c->rank;
  size_t size = image.header->arena_size;
  unsigned char *skip = calloc(image.action_count + 1, 1), *cpu = malloc(size);
  AbiStep step = {.micro = MICRO};
  uint32_t all;
  RtDevice found = {.image = &image, .comm = c, .skip = skip, .step = &step}, *d;
  EXPECT(skip && cpu, "out of memory");
  find_skips(rank, skip);
  fill_inputs(rank, c->arena);
  memcpy(cpu, c->arena, size);
  EXPECT(!dtm_cpu_open(&found, &(RtCode){0}, &d) && !prepare_all(d) && !run_all(d), "processor");
  d->ops->close(d);
  EXPECT(!c->ops->agree(c, 0, &all), "all are done"); /* others may still read what is here */
  for (size_t i = 0; i < size; i++) {                 /* results there, inputs here */
    unsigned char input = cpu[i];
    cpu[i] = c->arena[i];
    c->arena[i] = input;
  }
  EXPECT(!dtm_cuda_open(&found, code, &d) && !prepare_all(d), "GPU");
  *d->step = step;
  const RtMirror *mirror = c->mirror;
  for (uint32_t i = 0; i < nvalues; i++) {
    const Value *v = &values[i];
    size_t bytes = (size_t)count_of(v, rank) * abi_dtype_bytes(image.type[v->type].dtype);
    for (uint32_t k = 0; k < blocks_of(v) && bytes && !v->written; k++) {
      uint64_t at = place_of(v, k);
      EXPECT(!mirror->flush(mirror->context, at, bytes, c->arena + at), "input");
    }
  }
  EXPECT(!run_all(d), "the program on the GPU");
  compare(rank, cpu, d);
  EXPECT(!c->ops->agree(c, 0, &all), "the end");
  d->ops->close(d);
  c->ops->destroy(c, 0);
  _exit(0);
}

static const CudaProgram *compile(void) {
  CudaOptions options = {.target = {.arch = {{.number = 80}}, .narchs = 1}};
  const char *error = NULL, *dtmc = getenv("DTMC"), *slash = strrchr(dtmc, '/');
  options.library = arena_printf(&arena, "%.*s/../lib/dtm", (int)(slash - dtmc), dtmc);
  CudaProgram *p = cuda_program(&arena, NULL, 0, (const unsigned char *)image.header,
                                image.header->size, &options, &error);
  if (p && cuda_program_compile(&arena, p, &options, &error)) return p;
  fprintf(stderr, "%s\n", error);
  return NULL;
}

START_TEST(all_kinds) {
  static const char *const orders[] = {"late", "early"};
  LocalSegment segment;
  build();
  const CudaProgram *p = compile();
  ck_assert(p != NULL);
  const RtCode code = {.cuda = p->blob, .cuda_size = p->blob_size};
  setenv("GPUSIM_ASYNC", orders[_i], 1);
  setenv("DTM_CUDA_DRIVER", getenv("GPUSIM"), 1);
  setenv("DTM_NCCL", getenv("GPUSIM"), 1);
  LocalSetup setup = {RANKS, image.header->arena_size, false};
  ck_assert_int_eq(dtm_local_create(&setup, &segment), 0);
  for (int r = 0; r < RANKS; r++) {
    if (fork() == 0) {
      RtComm *c = dtm_local_join(&segment, r, 1, 60);
      if (!c) _exit(8);
      run_rank(c, &code);
    }
  }
  int bad = 0;
  for (int r = 0; r < RANKS; r++) {
    int status;
    ck_assert(wait(&status) > 0);
    bad += status != 0;
  }
  ck_assert_int_eq(bad, 0);
}
END_TEST

int main(void) {
  const char *reason = "GPUSIM does not name the simulator";
  static Arena scratch;
  if (!getenv("GPUSIM") || !nvrtc_open(&scratch, &reason)) return suite_skip(reason);
  Suite *suite = suite_create("moves");
  TCase *t = tcase_create("ranks");
  tcase_set_timeout(t, 600);
  tcase_add_loop_test(t, all_kinds, 0, 2);
  suite_add_tcase(suite, t);
  return suite_run(suite);
}
