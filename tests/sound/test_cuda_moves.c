/* Plans of moves on GPUs, proved by brute force: for all pairs of layouts on small meshes every
 * rank's list of steps is carried out by a plain model of the kernel that copies boxes and of NCCL,
 * and the blocks that come of it are those that the types say. What ranks send each other matches,
 * call by call; nothing is read that nobody wrote. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/reduce.h"
#include "device/cpu/moves_local.h"
#include "device/cuda/cuts.h"
#include "device/moves.h"
#include "runtime/abi/blocks.h"
#include "runtime/abi/number.h"
#include "support/suite.h"

#define EXPECT_MSG(condition, ...)                                                                 \
  do {                                                                                             \
    if (!(condition)) ck_abort_msg(__VA_ARGS__);                                                   \
  } while (0)
#define EXPECT(condition) EXPECT_MSG(condition, "%s is false", #condition)

enum { RANKS = 4, ARENA = 12 << 20, SCRATCH = 24 << 20, PAIRS = 2, MAX_LAYOUTS = 400 };
/* Bytes in use: most cases are small. */
static int64_t arena_bytes, scratch_bytes;

/* --- an image of one action ---------------------------------------------------------------------
 */

typedef struct Case {
  AbiHeader header;
  AbiMesh mesh[4]; /* 1: of sources, 2: of destinations where it is another, 3: the world */
  int32_t rank[4 * RANKS];
  AbiType type[2 * PAIRS + 2];
  AbiBuffer buffer[2 * PAIRS + 1];
  AbiAction action[2];
  AbiChannel channel;
  Image image;
} Case;

static void add_mesh(Case *c, uint32_t at, uint32_t naxes, const int64_t *size, int32_t first) {
  AbiMesh *m = &c->mesh[at];
  *m = (AbiMesh){.naxes = naxes, .nranks = 1, .ranks = at * RANKS};
  for (uint32_t a = 0; a < naxes; a++) {
    m->size[a] = size[a];
    m->nranks *= size[a];
  }
  for (int64_t r = 0; r < m->nranks; r++) c->rank[m->ranks + r] = first + (int32_t)r;
}

static void finish_case(Case *c) {
  c->header.world = 3;
  c->image = (Image){.header = &c->header,
                     .mesh = c->mesh,
                     .mesh_count = 4,
                     .rank = c->rank,
                     .type = c->type,
                     .buffer = c->buffer,
                     .action = c->action,
                     .action_count = 1,
                     .channel = &c->channel,
                     .channel_count = 1};
}

/* --- memory -------------------------------------------------------------------------------------
 */

typedef struct Machine {
  unsigned char arena[ARENA], scratch[SCRATCH];
  unsigned char arena_known[ARENA], scratch_known[SCRATCH]; /* per byte: somebody wrote it */
} Machine;

static Machine machines[RANKS];

typedef struct Bytes {
  unsigned char *data, *known;
} Bytes;

static Bytes at_space(const Case *c, int32_t rank, CudaSpace space, int64_t offset, int64_t bytes) {
  Machine *m = &machines[rank];
  if (space == CUDA_AT_SCRATCH) {
    EXPECT(offset >= 0 && offset + bytes <= scratch_bytes);
    return (Bytes){m->scratch + offset, m->scratch_known + offset};
  }
  int64_t base = (int64_t)c->buffer[space].offset + offset;
  EXPECT(base >= 0 && base + bytes <= arena_bytes);
  return (Bytes){m->arena + base, m->arena_known + base};
}

static void copy_bytes(Bytes to, Bytes from, int64_t n) {
  memmove(to.data, from.data, (size_t)n);
  memmove(to.known, from.known, (size_t)n);
}

static bool all_known(Bytes b, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    if (!b.known[i]) return false;
  return true;
}

/* --- values -------------------------------------------------------------------------------------
 */

/* The value of element `e` of pair `pair` at a rank; the same at all where nothing is partial. */
static double value_of(uint32_t dtype, uint32_t pair, int64_t e, int64_t addend) {
  int64_t v = (e * 7 + addend * 13 + pair * 29) % 61;
  return dtype == ABI_BOOL ? v & 1 : (double)v - (dtype == ABI_U8 ? 0 : 20);
}

/* What distinguishes the addends of a Partial value. */
static int64_t addend_of(const AbiType *t, const AbiMesh *m, const int64_t *coord) {
  int64_t addend = 0;
  for (uint32_t a = 0; a < m->naxes; a++)
    if (t->at[a].kind == ABI_PARTIAL) addend = addend * 5 + 1 + coord[a];
  return addend;
}

typedef void Visit(void *context, int64_t local, int64_t global);

static void each_element(const AbiType *t, const AbiMesh *m, const int64_t *coord, Visit *visit,
                         void *context) {
  int64_t offset[ABI_MAX_DIMS], extent[ABI_MAX_DIMS], n = 1;
  abi_block(t, m, coord, offset, extent);
  for (uint32_t d = 0; d < t->rank; d++) n *= extent[d];
  for (int64_t i = 0; i < n; i++) {
    int64_t rest = i, global = 0, stride = 1;
    for (uint32_t d = t->rank; d-- > 0; stride *= t->shape[d]) {
      global += (offset[d] + rest % extent[d]) * stride;
      rest /= extent[d];
    }
    visit(context, i, global);
  }
}

typedef struct Element {
  Bytes block;
  uint32_t dtype, pair, op;
  int64_t addend;
  const AbiType *from;
  const AbiMesh *mesh;
  const int64_t *coord;
  uint32_t axes; /* reduced over */
  int bad;
} Element;

static void write_element(void *context, int64_t local, int64_t global) {
  Element *e = context;
  int64_t bytes = (int64_t)abi_dtype_bytes(e->dtype);
  abi_store(e->block.data, e->dtype, local, value_of(e->dtype, e->pair, global, e->addend));
  memset(e->block.known + local * bytes, 1, (size_t)bytes);
}

/* The reduction over the axes, folded by the arithmetic of the processor's transports. */
static void expected_element(const Element *e, int64_t global, void *out) {
  unsigned char parts[RANKS][8];
  const void *from[RANKS];
  int64_t coord[ABI_MAX_AXES];
  int n = 0;
  for (int64_t p = 0; p < e->mesh->nranks; p++) {
    bool member = true;
    abi_coords(e->mesh, p, coord);
    for (uint32_t a = 0; a < e->mesh->naxes; a++)
      member = member && (e->axes >> a & 1 || coord[a] == e->coord[a]);
    if (!member) continue;
    from[n] = parts[n];
    abi_store(parts[n++], e->dtype, 0,
              value_of(e->dtype, e->pair, global, addend_of(e->from, e->mesh, coord)));
  }
  dtm_reduce(&out, 1, from, n, 1, (int)e->dtype, (int)e->op, false);
}

static void check_element(void *context, int64_t local, int64_t global) {
  Element *e = context;
  int64_t bytes = (int64_t)abi_dtype_bytes(e->dtype);
  unsigned char want[8];
  if (e->op)
    expected_element(e, global, want);
  else
    abi_store(want, e->dtype, 0, value_of(e->dtype, e->pair, global, e->addend));
  if (!all_known((Bytes){e->block.data, e->block.known + local * bytes}, bytes) ||
      memcmp(want, e->block.data + local * bytes, (size_t)bytes) != 0)
    e->bad++;
}

/* --- carrying plans out -------------------------------------------------------------------------
 */

static void run_copy(const Case *c, int32_t rank, const CudaMovePlan *p, const CudaStep *s) {
  int64_t tiles = 0;
  for (uint32_t i = 0; i < s->n; i++) {
    const CudaBox *box = &p->boxes[s->first + i];
    int64_t unit = (int64_t)1 << box->log_unit;
    EXPECT(box->first_tile == tiles && box->units > 0);
    tiles += (box->units + MOVES_TILE - 1) / MOVES_TILE;
    for (int64_t u = 0; u < box->units; u++) {
      int64_t src = box->src + u % box->row * unit, dst = box->dst + u % box->row * unit;
      int64_t rest = u / box->row;
      for (uint32_t d = box->ndims; d-- > 0;) {
        src += rest % box->extent[d] * box->src_stride[d];
        dst += rest % box->extent[d] * box->dst_stride[d];
        rest /= box->extent[d];
      }
      EXPECT(rest == 0);
      Bytes from = at_space(c, rank, s->from, src, unit), to = at_space(c, rank, s->to, dst, unit);
      EXPECT((uintptr_t)(from.data - machines[rank].arena) % (uint64_t)unit == 0 ||
             s->from == CUDA_AT_SCRATCH);
      EXPECT(src % unit == 0 || s->from != CUDA_AT_SCRATCH);
      EXPECT(all_known(from, unit));
      copy_bytes(to, from, unit);
    }
  }
  EXPECT(tiles == s->tiles);
}

static void run_fold(const Case *c, int32_t rank, const CudaStep *s) {
  const void *from[RANKS];
  int64_t bytes = s->count * (int64_t)abi_dtype_bytes(s->dtype);
  EXPECT(s->parts <= RANKS && s->from == CUDA_AT_SCRATCH && s->to == CUDA_AT_DST);
  for (int64_t i = 0; i < s->parts; i++) {
    Bytes part = at_space(c, rank, s->from, s->src + i * s->stride, bytes);
    EXPECT(all_known(part, bytes));
    from[i] = part.data;
  }
  Bytes to = at_space(c, rank, s->to, s->dst, bytes);
  void *out = to.data;
  dtm_reduce(&out, 1, from, (int)s->parts, (size_t)s->count, (int)s->dtype, (int)s->op, false);
  memset(to.known, 1, (size_t)bytes);
}

static int64_t type_bytes(ncclDataType_t type) {
  switch (type) {
  case ncclInt8:
  case ncclUint8:
    return 1;
  case ncclFloat16:
  case ncclBfloat16:
    return 2;
  case ncclInt32:
  case ncclFloat32:
    return 4;
  case ncclInt64:
  case ncclFloat64:
    return 8;
  }
  return 0;
}

static uint32_t type_of(ncclDataType_t type) {
  switch (type) {
  case ncclInt8:
    return ABI_I8;
  case ncclUint8:
    return ABI_U8;
  case ncclFloat16:
    return ABI_F16;
  case ncclBfloat16:
    return ABI_BF16;
  case ncclInt32:
    return ABI_I32;
  case ncclFloat32:
    return ABI_F32;
  case ncclInt64:
    return ABI_I64;
  case ncclFloat64:
    return ABI_F64;
  }
  return 0;
}

static int op_of(ncclRedOp_t op) {
  switch (op) {
  case ncclSum:
    return ABI_SUM;
  case ncclProd:
    return ABI_PRODUCT;
  case ncclMax:
    return ABI_MAX;
  case ncclMin:
    return ABI_MIN;
  case ncclAvg:
    return ABI_AVG;
  }
  return 0;
}

/* One rank at its group of calls. */
typedef struct At {
  int32_t members[RANKS], nmembers, mine; /* of its communicator, world ranks */
  CudaMovePlan plan;
  uint32_t step;
  uint32_t messages; /* bit i: call i of the group is done */
} At;

/* What a call reads, before anything of its group is written. */
static unsigned char *snapshot[RANKS][64], *snapshot_known[RANKS][64];

static const CudaCall *call_of(const At *at, uint32_t i) {
  return &at->plan.calls[at->plan.steps[at->step].first + i];
}

static int64_t read_bytes(const At *at, const CudaCall *call) {
  int64_t n = (int64_t)call->count * type_bytes(call->type);
  return call->kind == CUDA_CALL_REDUCE_SCATTER ? n * at->nmembers : n;
}

static void take_snapshots(const Case *c, const At *at, int32_t rank) {
  const CudaStep *s = &at->plan.steps[at->step];
  EXPECT(s->n <= 64);
  for (uint32_t i = 0; i < s->n; i++) {
    const CudaCall *call = call_of(at, i);
    snapshot[rank][i] = snapshot_known[rank][i] = NULL;
    if (call->kind == CUDA_CALL_RECV) continue;
    int64_t n = read_bytes(at, call);
    Bytes from = at_space(c, rank, call->from, call->src, n);
    snapshot[rank][i] = malloc((size_t)n + 1);
    snapshot_known[rank][i] = malloc((size_t)n + 1);
    copy_bytes((Bytes){snapshot[rank][i], snapshot_known[rank][i]}, from, n);
  }
}

static void drop_snapshots(const At *at, int32_t rank) {
  for (uint32_t i = 0; i < at->plan.steps[at->step].n; i++) {
    free(snapshot[rank][i]);
    free(snapshot_known[rank][i]);
  }
}

/* The i-th collective call of another member: all have the same. */
static uint32_t same_call(const At *all, const At *at, uint32_t i, int32_t member) {
  const At *other = &all[at->members[member]];
  const CudaCall *a = call_of(at, i), *b = call_of(other, i);
  EXPECT(other->nmembers == at->nmembers && i < other->plan.steps[other->step].n);
  EXPECT(a->kind == b->kind && a->count == b->count && a->type == b->type && a->op == b->op);
  EXPECT(a->kind != CUDA_CALL_REDUCE || a->peer == b->peer);
  return i;
}

/* Reduces `count` elements from `at` elements on of every member's snapshot; bytes that only some
 * member wrote are as good as unwritten. */
static void run_reduction(const Case *c, const At *all, const At *at, int32_t rank, uint32_t i,
                          int64_t first) {
  const CudaCall *call = call_of(at, i);
  int64_t element = type_bytes(call->type), n = (int64_t)call->count * element;
  Bytes to = at_space(c, rank, call->to, call->dst, n);
  const void *from[RANKS];
  memset(to.known, 1, (size_t)n);
  for (int32_t g = 0; g < at->nmembers; g++) {
    uint32_t k = same_call(all, at, i, g);
    from[g] = snapshot[at->members[g]][k] + first * element;
    for (int64_t x = 0; x < n; x++)
      to.known[x] &= snapshot_known[at->members[g]][k][first * element + x];
  }
  void *out = to.data;
  dtm_reduce(&out, 1, from, at->nmembers, call->count, (int)type_of(call->type), op_of(call->op),
             false);
}

/* The sender's call that goes with a receive: the first to this rank that is not taken yet. */
static void run_receive(const Case *c, At *all, const At *at, int32_t rank, uint32_t i) {
  const CudaCall *call = call_of(at, i);
  int32_t peer = at->members[call->peer];
  At *sender = &all[peer];
  EXPECT(peer != rank && sender->step < sender->plan.nsteps);
  int64_t n = (int64_t)call->count * type_bytes(call->type);
  for (uint32_t k = 0; k < sender->plan.steps[sender->step].n; k++) {
    const CudaCall *send = call_of(sender, k);
    if (send->kind != CUDA_CALL_SEND || sender->members[send->peer] != rank ||
        sender->messages >> k & 1)
      continue;
    EXPECT((int64_t)send->count * type_bytes(send->type) == n);
    Bytes from = {snapshot[peer][k], snapshot_known[peer][k]};
    EXPECT(all_known(from, n));
    copy_bytes(at_space(c, rank, call->to, call->dst, n), from, n);
    sender->messages |= 1u << k;
    return;
  }
  EXPECT_MSG(0, "rank %d waits for a message of rank %d that nobody sends", (int)rank, (int)peer);
}

static void run_calls(const Case *c, At *all, int32_t rank) {
  At *at = &all[rank];
  for (uint32_t i = 0; i < at->plan.steps[at->step].n; i++) {
    const CudaCall *call = call_of(at, i);
    int64_t n = (int64_t)call->count * type_bytes(call->type);
    switch (call->kind) {
    case CUDA_CALL_ALL_REDUCE:
      run_reduction(c, all, at, rank, i, 0);
      break;
    case CUDA_CALL_REDUCE_SCATTER:
      run_reduction(c, all, at, rank, i, at->mine * (int64_t)call->count);
      break;
    case CUDA_CALL_REDUCE:
      for (int32_t g = 0; g < at->nmembers; g++) same_call(all, at, i, g);
      if (call->peer == at->mine) run_reduction(c, all, at, rank, i, 0);
      break;
    case CUDA_CALL_ALL_GATHER:
      for (int32_t g = 0; g < at->nmembers; g++) {
        uint32_t k = same_call(all, at, i, g);
        copy_bytes(at_space(c, rank, call->to, call->dst + g * n, n),
                   (Bytes){snapshot[at->members[g]][k], snapshot_known[at->members[g]][k]}, n);
      }
      break;
    case CUDA_CALL_RECV:
      run_receive(c, all, at, rank, i);
      break;
    case CUDA_CALL_SEND:
      break;
    }
  }
}

static bool at_calls(const At *at) {
  return at->step < at->plan.nsteps && at->plan.steps[at->step].kind == CUDA_STEP_CALLS;
}

/* Up to the next group of calls. */
static void run_steps(const Case *c, At *at, int32_t rank) {
  for (; at->step < at->plan.nsteps && !at_calls(at); at->step++) {
    const CudaStep *s = &at->plan.steps[at->step];
    if (s->kind == CUDA_STEP_COPY) run_copy(c, rank, &at->plan, s);
    if (s->kind == CUDA_STEP_FOLD) run_fold(c, rank, s);
    if (s->kind != CUDA_STEP_FILL) continue;
    Bytes to = at_space(c, rank, s->to, s->dst, s->count);
    memset(to.known, 1, (size_t)s->count);
    for (int64_t i = 0; i < s->count; i++) to.data[i] = (unsigned char)(s->pattern >> i % 8 * 8);
  }
}

static void find_members(const Case *c, int32_t rank, At *at) {
  const CudaMovePlan *p = &at->plan;
  if (p->comm == CUDA_COMM_CHANNEL)
    at->nmembers = dtm_cuda_channel_ranks(&c->image, 0, at->members);
  if (p->comm == CUDA_COMM_WORLD)
    for (; at->nmembers < c->mesh[3].nranks; at->nmembers++)
      at->members[at->nmembers] = at->nmembers;
  if (p->comm == CUDA_COMM_GROUP) {
    const AbiMesh *m = &c->mesh[p->mesh];
    int64_t mine[ABI_MAX_AXES], coord[ABI_MAX_AXES];
    abi_coords(m, abi_mesh_position(&c->image, m, rank), mine);
    for (int64_t q = 0; q < m->nranks; q++) {
      bool member = true;
      abi_coords(m, q, coord);
      for (uint32_t a = 0; a < m->naxes; a++)
        member = member && (p->axes >> a & 1 || coord[a] == mine[a]);
      if (member) at->members[at->nmembers++] = c->rank[m->ranks + q];
    }
  }
  while (at->mine < at->nmembers && at->members[at->mine] != rank) at->mine++;
}

/* Carries out action `index[rank]` of every rank; -1: it has no part. Fills `forms` with the kinds
 * of calls that were made. */
static void run_all(const Case *c, const int *index, uint32_t *forms) {
  At all[RANKS] = {0};
  for (int32_t r = 0; r < RANKS; r++) {
    if (index[r] < 0) continue;
    const AbiAction *a = &c->action[index[r]];
    bool channel = a->kind == ABI_POST || a->kind == ABI_TAKE;
    EXPECT((channel ? dtm_cuda_channel_plan : dtm_cuda_move_plan)(&c->image, (uint32_t)index[r], r,
                                                                  &all[r].plan) == 0);
    EXPECT((int64_t)all[r].plan.scratch <= scratch_bytes);
    find_members(c, r, &all[r]);
  }
  for (bool more = true; more;) {
    more = false;
    for (int32_t r = 0; r < RANKS; r++) {
      run_steps(c, &all[r], r);
      all[r].messages = 0;
      if (at_calls(&all[r])) take_snapshots(c, &all[r], r);
    }
    for (int32_t r = 0; r < RANKS; r++)
      if (at_calls(&all[r])) run_calls(c, all, r);
    for (int32_t r = 0; r < RANKS; r++) {
      if (!at_calls(&all[r])) continue;
      for (uint32_t i = 0; i < all[r].plan.steps[all[r].step].n; i++) {
        *forms |= 1u << call_of(&all[r], i)->kind;
        EXPECT_MSG(call_of(&all[r], i)->kind != CUDA_CALL_SEND || all[r].messages >> i & 1,
                   "rank %d sends a message that nobody takes", (int)r);
      }
      drop_snapshots(&all[r], r);
      all[r].step++;
      more = true;
    }
  }
  for (int32_t r = 0; r < RANKS; r++) dtm_cuda_move_plan_free(&all[r].plan);
}

/* --- the cases ----------------------------------------------------------------------------------
 */

static void set_sources(Case *c, uint32_t npairs) {
  for (int32_t r = 0; r < RANKS; r++) {
    Machine *m = &machines[r];
    memset(m->arena, 0xee, (size_t)arena_bytes);
    memset(m->scratch, 0xdd, (size_t)scratch_bytes);
    memset(m->arena_known, 0, (size_t)arena_bytes);
    memset(m->scratch_known, 0, (size_t)scratch_bytes);
    for (uint32_t p = 0; p < npairs; p++) {
      const AbiType *t = &c->type[c->buffer[2 * p].type];
      const AbiMesh *mesh = &c->mesh[t->mesh];
      int64_t coord[ABI_MAX_AXES], position = abi_mesh_position(&c->image, mesh, r);
      if (position < 0) continue;
      abi_coords(mesh, position, coord);
      Element e = {
          .block = {m->arena + c->buffer[2 * p].offset, m->arena_known + c->buffer[2 * p].offset},
          .dtype = t->dtype,
          .pair = p,
          .addend = addend_of(t, mesh, coord)};
      each_element(t, mesh, coord, write_element, &e);
    }
  }
}

static void check_targets(const Case *c, uint32_t npairs, uint32_t op, const char *what) {
  for (int32_t r = 0; r < RANKS; r++)
    for (uint32_t p = 0; p < npairs; p++) {
      const AbiType *t = &c->type[c->buffer[2 * p + 1].type];
      const AbiMesh *mesh = &c->mesh[t->mesh];
      int64_t coord[ABI_MAX_AXES], position = abi_mesh_position(&c->image, mesh, r);
      if (position < 0) continue;
      abi_coords(mesh, position, coord);
      Element e = {.block = {machines[r].arena + c->buffer[2 * p + 1].offset,
                             machines[r].arena_known + c->buffer[2 * p + 1].offset},
                   .dtype = t->dtype,
                   .pair = p,
                   .op = op,
                   .addend = addend_of(t, mesh, coord),
                   .from = &c->type[c->buffer[2 * p].type],
                   .mesh = mesh,
                   .coord = coord,
                   .axes = c->action[0].axes};
      each_element(t, mesh, coord, check_element, &e);
      EXPECT_MSG(e.bad == 0, "%s: rank %d has %d wrong elements of pair %u", what, (int)r, e.bad,
                 p);
    }
}

typedef struct Layouts {
  AbiPlace at[MAX_LAYOUTS][ABI_MAX_AXES];
  uint32_t n;
} Layouts;

static void all_layouts(const AbiMesh *m, uint32_t rank, uint8_t op, uint32_t axis, AbiPlace *at,
                        Layouts *out) {
  if (axis == m->naxes) {
    EXPECT(out->n < MAX_LAYOUTS);
    memcpy(out->at[out->n++], at, sizeof *at * ABI_MAX_AXES);
    return;
  }
  at[axis] = (AbiPlace){0};
  all_layouts(m, rank, op, axis + 1, at, out);
  if (op) {
    at[axis] = (AbiPlace){.kind = ABI_PARTIAL, .op = op};
    all_layouts(m, rank, op, axis + 1, at, out);
  }
  AbiPlace before[ABI_MAX_AXES];
  memcpy(before, at, sizeof before);
  for (uint8_t d = 0; d < rank; d++) {
    uint8_t n = 0;
    for (uint32_t a = 0; a < axis; a++) n += before[a].kind == ABI_SHARD && before[a].dim == d;
    for (uint8_t order = 0; order <= n; order++) {
      memcpy(at, before, sizeof before);
      for (uint32_t a = 0; a < axis; a++)
        if (at[a].kind == ABI_SHARD && at[a].dim == d && at[a].order >= order) at[a].order++;
      at[axis] = (AbiPlace){.kind = ABI_SHARD, .dim = d, .order = order};
      all_layouts(m, rank, op, axis + 1, at, out);
    }
  }
  memcpy(at, before, sizeof before);
  at[axis] = (AbiPlace){0};
}

static void set_type(Case *c, uint32_t at, uint32_t dtype, uint32_t mesh, uint32_t rank,
                     const int64_t *shape, const AbiPlace *places) {
  AbiType *t = &c->type[at];
  *t = (AbiType){.dtype = dtype, .rank = rank, .mesh = mesh};
  memcpy(t->shape, shape, sizeof *shape * rank);
  memcpy(t->at, places, sizeof *places * ABI_MAX_AXES);
}

/* Sources, then destinations, each with `room` bytes; all that is written lies in [0, arena_bytes).
 */
static void set_buffers(Case *c, uint32_t npairs, uint64_t room) {
  arena_bytes = (int64_t)(64 + 2 * npairs * room);
  scratch_bytes = (int64_t)(4 * RANKS * room);
  EXPECT(arena_bytes <= ARENA && scratch_bytes <= SCRATCH);
  for (uint32_t p = 0; p < npairs; p++) {
    c->buffer[2 * p] = (AbiBuffer){.offset = 64 + room * p, .type = 1 + 2 * p};
    c->buffer[2 * p + 1] = (AbiBuffer){.offset = 64 + room * (npairs + p), .type = 2 + 2 * p};
  }
}

static bool same_partial(const AbiPlace *a, const AbiPlace *b) {
  for (uint32_t x = 0; x < ABI_MAX_AXES; x++)
    if ((a[x].kind == ABI_PARTIAL || b[x].kind == ABI_PARTIAL) && memcmp(&a[x], &b[x], sizeof *a))
      return false;
  return true;
}

/* All axes, or the fewest that are enough where the target keeps its places on the others. */
static uint32_t axes_between(const AbiMesh *m, const AbiPlace *from, const AbiPlace *to) {
  uint32_t differ = 0, gather = 1;
  for (uint32_t a = 0; a < m->naxes; a++) {
    if (!memcmp(&from[a], &to[a], sizeof *from)) continue;
    differ |= 1u << a;
    gather = gather && from[a].kind == ABI_SHARD && to[a].kind == ABI_REPLICATE;
    for (uint32_t k = 0; k < m->naxes; k++)
      if (from[k].kind == ABI_SHARD && to[k].kind == ABI_SHARD && from[k].dim == from[a].dim &&
          from[k].order > from[a].order)
        gather = 0;
  }
  return gather ? differ : (1u << m->naxes) - 1;
}

static const struct {
  uint32_t naxes;
  int64_t size[2];
} meshes[] = {{1, {2}}, {1, {3}}, {1, {4}}, {2, {2, 2}}};
static const struct {
  uint32_t rank;
  int64_t shape[3];
} shapes[] = {{1, {8}}, {1, {5}}, {2, {4, 6}}, {2, {5, 3}}, {2, {1, 7}}, {3, {4, 3, 2}}};
#define COUNT(a) (sizeof(a) / sizeof *(a))

static void within_mesh(uint32_t kind, uint32_t dtype, uint8_t op, uint32_t *forms) {
  static Layouts layouts;
  static Case c;
  const int64_t world = RANKS;
  for (size_t k = 0; k < COUNT(meshes); k++)
    for (size_t s = 0; s < COUNT(shapes); s++) {
      memset(&c, 0, sizeof c);
      add_mesh(&c, 1, meshes[k].naxes, meshes[k].size, 0);
      add_mesh(&c, 3, 1, &world, 0);
      finish_case(&c);
      AbiPlace none[ABI_MAX_AXES] = {{0}};
      layouts.n = 0;
      all_layouts(&c.mesh[1], shapes[s].rank, op, 0, none, &layouts);
      for (uint32_t i = 0; i < layouts.n; i++)
        for (uint32_t j = 0; j < layouts.n; j++) {
          const AbiPlace *from = layouts.at[i], *to = layouts.at[j];
          uint32_t axes = 0;
          if (kind == ABI_PULL) {
            if (i == j || !same_partial(from, to)) continue;
            axes = axes_between(&c.mesh[1], from, to);
          } else { /* each axis as before, or Partial no more, innermost of its dim where cut */
            bool fits = true;
            for (uint32_t a = 0; a < c.mesh[1].naxes; a++) {
              if (!memcmp(&from[a], &to[a], sizeof *from)) continue;
              axes |= 1u << a;
              fits = fits && from[a].kind == ABI_PARTIAL &&
                     to[a].kind == (kind == ABI_ALL_REDUCE ? ABI_REPLICATE : ABI_SHARD);
              for (uint32_t x = 0; x < c.mesh[1].naxes; x++)
                if (to[a].kind == ABI_SHARD && from[x].kind == ABI_SHARD &&
                    from[x].dim == to[a].dim && to[x].order > to[a].order)
                  fits = false;
            }
            if (!fits || !axes) continue;
          }
          /* A bucket of the value and of one with another shape. */
          const int64_t other[3] = {6, 2, 4};
          for (uint32_t p = 0; p < PAIRS; p++) {
            const int64_t *shape = p ? other : shapes[s].shape;
            set_type(&c, 1 + 2 * p, dtype, 1, shapes[s].rank, shape, from);
            set_type(&c, 2 + 2 * p, dtype, 1, shapes[s].rank, shape, to);
          }
          for (uint32_t npairs = 1; npairs <= PAIRS; npairs++) {
            int index[RANKS] = {-1, -1, -1, -1};
            for (int64_t r = 0; r < c.mesh[1].nranks; r++) index[r] = 0;
            set_buffers(&c, npairs, 512);
            c.action[0] = (AbiAction){.kind = kind,
                                      .code = kind == ABI_PULL ? 0 : op,
                                      .mesh = 1,
                                      .axes = axes,
                                      .nbuffers = 2 * npairs};
            set_sources(&c, npairs);
            run_all(&c, index, forms);
            char what[96];
            snprintf(what, sizeof what, "action %u, mesh %zu, shape %zu, layouts %u -> %u", kind, k,
                     s, i, j);
            check_targets(&c, npairs, kind == ABI_PULL ? 0 : op, what);
          }
        }
    }
}

START_TEST(pulls) {
  uint32_t forms = 0;
  within_mesh(ABI_PULL, ABI_F32, ABI_SUM, &forms);
  EXPECT(forms == (1u << CUDA_CALL_ALL_GATHER | 1u << CUDA_CALL_SEND | 1u << CUDA_CALL_RECV));
  within_mesh(ABI_PULL, ABI_BOOL, ABI_OR, &forms);
}
END_TEST

START_TEST(reductions) {
  static const struct {
    uint8_t dtype, op, gathers;
  } all[] = {{ABI_F32, ABI_SUM, 0},  {ABI_BF16, ABI_SUM, 0}, {ABI_F64, ABI_PRODUCT, 0},
             {ABI_BF16, ABI_AVG, 1}, {ABI_F32, ABI_MAX, 1},  {ABI_F16, ABI_MIN, 1},
             {ABI_I64, ABI_MAX, 0},  {ABI_I16, ABI_SUM, 1},  {ABI_I32, ABI_XOR, 1},
             {ABI_BOOL, ABI_OR, 0},  {ABI_BOOL, ABI_AND, 0}, {ABI_BOOL, ABI_SUM, 0},
             {ABI_BOOL, ABI_XOR, 1}, {ABI_U8, ABI_MIN, 0},   {ABI_I8, ABI_SUM, 0}};
  for (size_t i = 0; i < COUNT(all); i++) {
    uint32_t forms = 0, scatter = 0;
    within_mesh(ABI_ALL_REDUCE, all[i].dtype, all[i].op, &forms);
    within_mesh(ABI_REDUCE_SCATTER, all[i].dtype, all[i].op, &scatter);
    EXPECT(forms == 1u << (all[i].gathers ? CUDA_CALL_ALL_GATHER : CUDA_CALL_ALL_REDUCE));
    EXPECT(all[i].gathers ? scatter == (1u << CUDA_CALL_SEND | 1u << CUDA_CALL_RECV)
                          : scatter == 1u << CUDA_CALL_REDUCE_SCATTER);
  }
}
END_TEST

/* Uneven and large: no padding, no copy through scratch memory of what is dense. */
START_TEST(large_and_uneven) {
  static const struct {
    uint32_t kind;
    int64_t shape[2];
    uint8_t dim, op;
    uint32_t forms;
  } all[] = {
      {ABI_PULL, {5, 32768}, 0, 0, 1u << CUDA_CALL_SEND | 1u << CUDA_CALL_RECV},
      {ABI_PULL, {8, 32768}, 0, 0, 1u << CUDA_CALL_ALL_GATHER},
      {ABI_PULL, {7, 32768}, 0, 0, 1u << CUDA_CALL_ALL_GATHER},
      {ABI_PULL, {32768, 5}, 1, 0, 1u << CUDA_CALL_SEND | 1u << CUDA_CALL_RECV},
      {ABI_REDUCE_SCATTER, {5, 32768}, 0, ABI_SUM, 1u << CUDA_CALL_REDUCE},
      {ABI_REDUCE_SCATTER, {32768, 5}, 1, ABI_SUM, 1u << CUDA_CALL_REDUCE},
      {ABI_REDUCE_SCATTER, {8, 32768}, 0, ABI_SUM, 1u << CUDA_CALL_REDUCE_SCATTER},
      {ABI_REDUCE_SCATTER, {7, 32768}, 0, ABI_SUM, 1u << CUDA_CALL_REDUCE_SCATTER},
      {ABI_REDUCE_SCATTER, {5, 32768}, 0, ABI_MAX, 1u << CUDA_CALL_SEND | 1u << CUDA_CALL_RECV},
      {ABI_ALL_REDUCE, {5, 32768}, 0, ABI_MAX, 1u << CUDA_CALL_ALL_GATHER}};
  static Case c;
  const int64_t world = RANKS;
  for (size_t i = 0; i < COUNT(all); i++) {
    int index[RANKS] = {0};
    uint32_t forms = 0;
    AbiPlace from[ABI_MAX_AXES] = {{0}}, to[ABI_MAX_AXES] = {{0}};
    memset(&c, 0, sizeof c);
    add_mesh(&c, 1, 1, &world, 0);
    add_mesh(&c, 3, 1, &world, 0);
    finish_case(&c);
    AbiPlace cut = {.kind = ABI_SHARD, .dim = all[i].dim};
    from[0] = all[i].op ? (AbiPlace){.kind = ABI_PARTIAL, .op = all[i].op} : cut;
    if (all[i].kind == ABI_REDUCE_SCATTER) to[0] = cut;
    set_type(&c, 1, ABI_F32, 1, 2, all[i].shape, from);
    set_type(&c, 2, ABI_F32, 1, 2, all[i].shape, to);
    set_buffers(&c, 1, 5 << 18);
    c.action[0] =
        (AbiAction){.kind = all[i].kind, .code = all[i].op, .mesh = 1, .axes = 1, .nbuffers = 2};
    set_sources(&c, 1);
    run_all(&c, index, &forms);
    EXPECT_MSG(forms == all[i].forms, "case %zu takes the forms %x", i, forms);
    check_targets(&c, 1, all[i].op, "large");
  }
}
END_TEST

/* Between meshes, as one transfer and over a channel: from every layout on one to every layout on
 * the other, disjoint, overlapping and turned. */
static void between_meshes(bool channel) {
  static Layouts sources, targets;
  static Case c;
  static const struct {
    uint32_t naxes[2];
    int64_t size[2][2];
    int32_t first[2];
  } ends[] = {{{1, 1}, {{2}, {2}}, {0, 2}},
              {{1, 1}, {{1}, {3}}, {0, 1}},
              {{1, 1}, {{3}, {1}}, {1, 0}},
              {{1, 1}, {{3}, {3}}, {0, 1}},
              {{2, 1}, {{2, 2}, {2}}, {0, 1}}};
  const int64_t world = RANKS;
  for (size_t k = 0; k < COUNT(ends); k++)
    for (size_t s = 0; s < COUNT(shapes); s++) {
      if (channel && ends[k].first[1] < ends[k].first[0] + ends[k].size[0][0] &&
          ends[k].first[0] < ends[k].first[1] + ends[k].size[1][0])
        continue; /* stages are disjoint */
      memset(&c, 0, sizeof c);
      for (uint32_t e = 0; e < 2; e++)
        add_mesh(&c, 1 + e, ends[k].naxes[e], ends[k].size[e], ends[k].first[e]);
      add_mesh(&c, 3, 1, &world, 0);
      finish_case(&c);
      AbiPlace none[ABI_MAX_AXES] = {{0}};
      sources.n = targets.n = 0;
      all_layouts(&c.mesh[1], shapes[s].rank, 0, 0, none, &sources);
      all_layouts(&c.mesh[2], shapes[s].rank, 0, 0, none, &targets);
      for (uint32_t i = 0; i < sources.n; i++)
        for (uint32_t j = 0; j < targets.n; j++) {
          int index[RANKS];
          uint32_t forms = 0;
          set_type(&c, 1, ABI_BF16, 1, shapes[s].rank, shapes[s].shape, sources.at[i]);
          set_type(&c, 2, ABI_BF16, 2, shapes[s].rank, shapes[s].shape, targets.at[j]);
          set_buffers(&c, 1, 512);
          for (int32_t r = 0; r < RANKS; r++) {
            bool posts = abi_mesh_position(&c.image, &c.mesh[1], r) >= 0,
                 takes = abi_mesh_position(&c.image, &c.mesh[2], r) >= 0;
            index[r] = !posts && !takes ? -1 : channel && !posts ? 1 : 0;
          }
          c.action[0] =
              (AbiAction){.kind = channel ? ABI_POST : ABI_PULL, .mesh = 2, .nbuffers = 2};
          c.action[1] = (AbiAction){.kind = ABI_TAKE, .mesh = 2, .nbuffers = 2};
          c.image.action_count = 2;
          c.channel = (AbiChannel){
              .from = 1, .to = 2, .offset = c.buffer[1].offset, .stride = 512, .slots = 2};
          set_sources(&c, 1);
          run_all(&c, index, &forms);
          char what[96];
          snprintf(what, sizeof what, "ends %zu, shape %zu, layouts %u -> %u", k, s, i, j);
          check_targets(&c, 1, 0, what);
        }
    }
}

START_TEST(transfers) {
  between_meshes(false);
}
END_TEST

START_TEST(channels) {
  between_meshes(true);
}
END_TEST

/* SLICE, FILL and COPY against what the processor does. */
START_TEST(within_a_rank) {
  static Case c;
  static Layouts layouts;
  static unsigned char before[ARENA / 1024], want[ARENA / 1024];
  const int64_t world = RANKS;
  static const uint8_t ops[] = {ABI_SUM, ABI_PRODUCT, ABI_MAX, ABI_XOR};
  for (size_t k = 0; k < COUNT(meshes); k++)
    for (size_t s = 0; s < COUNT(shapes); s++)
      for (size_t o = 0; o < COUNT(ops); o++) {
        uint32_t dtype = ops[o] == ABI_XOR ? ABI_I64 : o % 2 ? ABI_F64 : ABI_BF16;
        memset(&c, 0, sizeof c);
        add_mesh(&c, 1, meshes[k].naxes, meshes[k].size, 0);
        add_mesh(&c, 3, 1, &world, 0);
        finish_case(&c);
        AbiPlace none[ABI_MAX_AXES] = {{0}};
        layouts.n = 0;
        all_layouts(&c.mesh[1], shapes[s].rank, ops[o], 0, none, &layouts);
        for (uint32_t i = 0; i < layouts.n; i++)
          for (uint32_t j = 0; j < layouts.n; j++) {
            uint32_t axes = 0;
            bool slices = true, fills = true;
            for (uint32_t a = 0; a < c.mesh[1].naxes; a++) {
              AbiPlace f = layouts.at[i][a], t = layouts.at[j][a];
              if (!memcmp(&f, &t, sizeof f)) continue;
              axes |= 1u << a;
              slices = slices && f.kind == ABI_REPLICATE && t.kind == ABI_SHARD;
              fills = fills && f.kind != ABI_PARTIAL && t.kind == ABI_PARTIAL;
              for (uint32_t x = 0; x < c.mesh[1].naxes; x++)
                if (t.kind == ABI_SHARD && layouts.at[j][x].kind == ABI_SHARD &&
                    layouts.at[j][x].dim == t.dim && layouts.at[j][x].order > t.order)
                  slices = false;
            }
            if (!slices && !fills) continue;
            set_type(&c, 1, dtype, 1, shapes[s].rank, shapes[s].shape, layouts.at[i]);
            set_type(&c, 2, dtype, 1, shapes[s].rank, shapes[s].shape, layouts.at[j]);
            set_buffers(&c, 1, 512);
            c.action[0] = (AbiAction){.kind = !axes    ? ABI_COPY
                                              : slices ? ABI_SLICE
                                                       : ABI_FILL,
                                      .code = ops[o],
                                      .mesh = 1,
                                      .axes = axes,
                                      .nbuffers = 2};
            for (int32_t r = 0; r < c.mesh[1].nranks; r++) {
              int index[RANKS] = {-1, -1, -1, -1};
              uint32_t forms = 0;
              Moves m;
              index[r] = 0;
              set_sources(&c, 1);
              memcpy(before, machines[r].arena, (size_t)arena_bytes);
              run_all(&c, index, &forms);
              memcpy(want, before, (size_t)arena_bytes);
              ck_assert_int_eq(dtm_rt_moves_find(&c.image, &c.action[0], r, &m), 0);
              dtm_rt_moves_local(&m, &c.action[0], want + c.buffer[1].offset,
                                 want + c.buffer[0].offset, 1);
              dtm_rt_moves_free(&m);
              EXPECT(!forms && !memcmp(want, machines[r].arena, (size_t)arena_bytes));
            }
          }
      }
}
END_TEST

/* --- communicators ------------------------------------------------------------------------------
 */

enum { MANY = 8, STAGES = 2 };

/* Two stages of 2 x 2 ranks and a mesh of all of them; an action for every set of axes; channels
 * between the stages in both directions. */
typedef struct Pipeline {
  AbiHeader header;
  AbiMesh mesh[1 + STAGES + 1];
  int32_t rank[2 * MANY];
  AbiType type[1 + STAGES + 1];
  AbiBuffer buffer[2 * 16];
  AbiAction action[16];
  AbiChannel channel[2];
  Image image;
} Pipeline;

static void pipeline_action(Pipeline *p, uint32_t kind, uint32_t type, uint32_t axes,
                            uint32_t code) {
  uint64_t n = p->image.action_count++;
  p->buffer[2 * n].type = p->buffer[2 * n + 1].type = type;
  p->action[n] = (AbiAction){.kind = kind,
                             .code = code,
                             .mesh = p->type[type].mesh,
                             .axes = axes,
                             .buffers = 2 * (uint32_t)n,
                             .nbuffers = 2};
}

static void make_pipeline(Pipeline *p) {
  memset(p, 0, sizeof *p);
  for (uint32_t s = 1; s <= STAGES; s++)
    p->mesh[s] = (AbiMesh){.naxes = 2, .size = {2, 2}, .nranks = 4, .ranks = 4 * (s - 1)};
  p->mesh[3] = (AbiMesh){.naxes = 1, .size = {MANY}, .nranks = MANY, .ranks = MANY};
  for (int32_t r = 0; r < 2 * MANY; r++) p->rank[r] = r % MANY;
  p->header.world = 3;
  p->image = (Image){.header = &p->header,
                     .mesh = p->mesh,
                     .mesh_count = 4,
                     .rank = p->rank,
                     .type = p->type,
                     .type_count = 4,
                     .buffer = p->buffer,
                     .action = p->action,
                     .channel = p->channel,
                     .channel_count = 2};
  for (uint32_t t = 1; t <= 3; t++) {
    p->type[t] = (AbiType){.dtype = ABI_F32, .rank = 1, .mesh = t, .shape = {4}};
    for (uint32_t axes = 1; axes < 1u << p->mesh[t].naxes; axes++)
      pipeline_action(p, ABI_ALL_REDUCE, t, axes, ABI_SUM);
  }
  pipeline_action(p, ABI_ALL_REDUCE, 1, 1, ABI_MAX);
  for (uint32_t c = 0; c < 2; c++) {
    p->channel[c] = (AbiChannel){.from = 1 + c, .to = 2 - c, .slots = 2};
    pipeline_action(p, ABI_POST, 1 + c, 0, c);
    pipeline_action(p, ABI_TAKE, 2 - c, 0, c);
  }
}

static const CudaCutKey *key_of(const CudaCuts *cuts, const AbiAction *a, uint32_t mesh) {
  bool channel = a->kind == ABI_POST || a->kind == ABI_TAKE;
  for (uint32_t i = 0; i < cuts->nkeys; i++) {
    const CudaCutKey *k = &cuts->keys[i];
    if (channel ? k->kind == CUDA_COMM_CHANNEL && k->channel == a->code
                : k->kind == CUDA_COMM_GROUP && k->mesh == mesh && k->axes == a->axes)
      return k;
  }
  return NULL;
}

START_TEST(communicators) {
  static Pipeline p;
  CudaCuts cuts;
  make_pipeline(&p);
  ck_assert_int_eq(dtm_cuda_cuts_find(&p.image, MANY, &cuts), 0);
  /* Three sets of axes of either stage, which are made together; the channels after them. */
  ck_assert_uint_eq(cuts.n, 2 * 3 + 2);
  ck_assert_uint_eq(cuts.nrounds, 3 + 2);
  for (uint32_t round = 0; round < cuts.nrounds; round++)
    for (int32_t r = 0; r < MANY; r++) {
      int n = 0;
      for (uint32_t i = 0; i < cuts.n; i++)
        n += cuts.at[i].round == round && cuts.at[i].color[r] >= 0;
      ck_assert_int_eq(n, 1);
    }
  for (uint64_t i = 0; i < p.image.action_count; i++) {
    const AbiAction *a = &p.action[i];
    const CudaCutKey *key = key_of(&cuts, a, p.type[p.buffer[a->buffers].type].mesh);
    ck_assert(key != NULL);
    if (a->kind == ABI_POST || a->kind == ABI_TAKE) {
      ck_assert(cuts.at[key->cut - 1].channel);
      continue;
    }
    for (int64_t q = 0; q < p.mesh[a->mesh].nranks; q++) {
      int32_t rank = p.rank[p.mesh[a->mesh].ranks + (uint64_t)q];
      Moves m;
      ck_assert_int_eq(dtm_rt_moves_find(&p.image, a, rank, &m), 0);
      if (!key->cut) ck_assert_int_eq(m.ngroup, MANY);
      const CudaCut *cut = key->cut ? &cuts.at[key->cut - 1] : NULL;
      for (int32_t k = 0; cut && k < m.ngroup; k++) {
        ck_assert_int_eq(cut->color[m.group[k]], cut->color[rank]);
        ck_assert_int_eq(cut->key[m.group[k]], k);
      }
      int32_t members = 0;
      for (int32_t r = 0; cut && r < MANY; r++) members += cut->color[r] == cut->color[rank];
      if (cut) ck_assert_int_eq(members, m.ngroup);
      dtm_rt_moves_free(&m);
    }
  }
  ck_assert_int_eq(dtm_cuda_cuts_ctas(&cuts), 8);
  dtm_cuda_cuts_free(&cuts);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("cuda_moves");
  TCase *t = tcase_create("plans");
  tcase_add_test(t, pulls);
  tcase_add_test(t, reductions);
  tcase_add_test(t, large_and_uneven);
  tcase_add_test(t, transfers);
  tcase_add_test(t, channels);
  tcase_add_test(t, within_a_rank);
  tcase_add_test(t, communicators);
  tcase_set_timeout(t, 120);
  suite_add_tcase(suite, t);
  return suite_run(suite);
}
