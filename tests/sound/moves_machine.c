/* See moves_machine.h. */
#include "sound/moves_machine.h"

#include <stdlib.h>
#include <string.h>

#include "comm/reduce.h"
#include "runtime/abi/blocks.h"
#include "runtime/abi/number.h"

enum { ARENA = 12 << 20, SCRATCH = 24 << 20 };
/* Bytes in use: most cases are small. */
static int64_t arena_bytes, scratch_bytes;

/* --- an image of one action ---------------------------------------------------------------------
 */

void machine_add_mesh(Case *c, uint32_t at, uint32_t naxes, const int64_t *size, int32_t first) {
  AbiMesh *m = &c->mesh[at];
  *m = (AbiMesh){.naxes = naxes, .nranks = 1, .ranks = at * RANKS};
  for (uint32_t a = 0; a < naxes; a++) {
    m->size[a] = size[a];
    m->nranks *= size[a];
  }
  for (int64_t r = 0; r < m->nranks; r++) c->rank[m->ranks + r] = first + (int32_t)r;
}

void machine_finish_case(Case *c) {
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
void machine_set_buffers(Case *c, uint32_t npairs, uint64_t room) {
  arena_bytes = (int64_t)(64 + 2 * npairs * room);
  scratch_bytes = (int64_t)(4 * RANKS * room);
  EXPECT(arena_bytes <= ARENA && scratch_bytes <= SCRATCH);
  for (uint32_t p = 0; p < npairs; p++) {
    c->buffer[2 * p] = (AbiBuffer){.offset = 64 + room * p, .type = 1 + 2 * p};
    c->buffer[2 * p + 1] = (AbiBuffer){.offset = 64 + room * (npairs + p), .type = 2 + 2 * p};
  }
}

/* --- memory -------------------------------------------------------------------------------------
 */

typedef struct Machine {
  unsigned char arena[ARENA], scratch[SCRATCH];
  unsigned char arena_known[ARENA], scratch_known[SCRATCH]; /* per byte: somebody wrote it */
} Machine;

static Machine *machines; /* of all ranks, made when first used: other tests are linked with this */

static Machine *machine_of(int32_t rank) {
  if (!machines) machines = calloc(RANKS, sizeof *machines);
  EXPECT(machines != NULL);
  return &machines[rank];
}

size_t machine_arena_bytes(void) {
  return (size_t)arena_bytes;
}

unsigned char *machine_arena(int32_t rank) {
  return machine_of(rank)->arena;
}

typedef struct Bytes {
  unsigned char *data, *known;
} Bytes;

static Bytes at_space(const Case *c, int32_t rank, CudaSpace space, int64_t offset, int64_t bytes) {
  Machine *m = machine_of(rank);
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
      EXPECT((uintptr_t)(from.data - machine_of(rank)->arena) % (uint64_t)unit == 0 ||
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

static int64_t type_bytes(ncclDataType_t type) {
  return (int64_t)abi_dtype_bytes(type_of(type));
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

void machine_run(const Case *c, const int *index, uint32_t *forms) {
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
/* --- sources and targets ------------------------------------------------------------------------
 */

void machine_set_sources(const Case *c, uint32_t npairs) {
  for (int32_t r = 0; r < RANKS; r++) {
    Machine *m = machine_of(r);
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

void machine_check_targets(const Case *c, uint32_t npairs, uint32_t op, const char *what) {
  for (int32_t r = 0; r < RANKS; r++)
    for (uint32_t p = 0; p < npairs; p++) {
      const AbiType *t = &c->type[c->buffer[2 * p + 1].type];
      const AbiMesh *mesh = &c->mesh[t->mesh];
      int64_t coord[ABI_MAX_AXES], position = abi_mesh_position(&c->image, mesh, r);
      if (position < 0) continue;
      abi_coords(mesh, position, coord);
      Element e = {.block = {machine_of(r)->arena + c->buffer[2 * p + 1].offset,
                             machine_of(r)->arena_known + c->buffer[2 * p + 1].offset},
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
