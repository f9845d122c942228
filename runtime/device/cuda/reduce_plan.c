/* Plans of reductions: see move_plan.h.
 *
 * NCCL reduces hop by hop: a value of bf16 (f16) is rounded at each of the n - 1 additions, where
 * the processor adds in f32 and rounds once, so |error| <= (n - 1) u sum |x| with u = 2^-9
 * (2^-11) in place of u |sum|; f32 and f64 differ in the order of additions alone. What NCCL does
 * not have is gathered and folded by a kernel of ours, in the order of the group and with the
 * arithmetic of runtime/comm/reduce.c:
 *   - max and min of floats: NCCL's (fmaxf) drops a NaN unless all are;
 *   - the mean of bf16 and f16: NCCL multiplies by 1 / n, rounded to that type, first;
 *   - and, or, xor of integers, xor of bools, everything of 16-bit integers.
 * bool (0 or 1) is reduced as bytes: or is the largest, and the smallest. */
#include <stdlib.h>

#include "device/cuda/plan_build.h"
#include "runtime/abi/cuda.h"

/* Of what NCCL reduces (not abi_cuda_folds). */
static ncclDataType_t nccl_type(uint32_t dtype) {
  switch ((AbiDType)dtype) {
  case ABI_F64:
    return ncclFloat64;
  case ABI_F32:
    return ncclFloat32;
  case ABI_BF16:
    return ncclBfloat16;
  case ABI_F16:
    return ncclFloat16;
  case ABI_I64:
    return ncclInt64;
  case ABI_I32:
    return ncclInt32;
  case ABI_I8:
    return ncclInt8;
  case ABI_U8:
  case ABI_BOOL:
  case ABI_I16:
  case ABI_F8_E4M3:
  case ABI_F8_E5M2:
  case ABI_NONE:
  case ABI_DTYPE_COUNT:
    break;
  }
  return ncclUint8;
}

static ncclRedOp_t nccl_op(uint32_t dtype, uint32_t op) {
  bool is_bool = dtype == ABI_BOOL;
  switch ((AbiReduce)op) {
  case ABI_SUM:
    return is_bool ? ncclMax : ncclSum;
  case ABI_PRODUCT:
    return is_bool ? ncclMin : ncclProd;
  case ABI_AVG:
    return ncclAvg;
  case ABI_MAX:
  case ABI_OR:
    return ncclMax;
  case ABI_MIN:
  case ABI_AND:
    return ncclMin;
  case ABI_XOR:
  case ABI_REDUCE_NONE:
  case ABI_REDUCE_COUNT:
    break;
  }
  return ncclSum;
}

static bool is_native(const PlanBuild *b) {
  return !abi_cuda_folds(b->dtype, b->op);
}

static CudaCall reduction(const PlanBuild *b, CudaCallKind kind) {
  return (CudaCall){.kind = kind, .type = nccl_type(b->dtype), .op = nccl_op(b->dtype, b->op)};
}

static void fold(PlanBuild *b, int64_t src, int64_t parts, int64_t stride, int64_t dst,
                 int64_t count) {
  if (count == 0) return;
  plan_step(b, (CudaStep){.kind = CUDA_STEP_FOLD,
                          .from = CUDA_AT_SCRATCH,
                          .to = CUDA_AT_DST,
                          .src = src,
                          .parts = parts,
                          .stride = stride,
                          .dst = dst,
                          .count = count,
                          .dtype = b->dtype,
                          .op = b->op});
}

/* One dim of `count` elements, from element 0 to element 0. */
static RtBox line(int64_t count) {
  return (RtBox){.ndims = 1, .extent = {count}, .src_stride = {1}, .dst_stride = {1}};
}

/* --- all-reduce ---------------------------------------------------------------------------------
 */

/* Piece by piece, so that scratch memory stays small. */
static void gather_and_fold(PlanBuild *b, int32_t n, int64_t src, int64_t dst, int64_t count) {
  enum { PIECE_BYTES = 4 << 20 };
  int64_t piece = PIECE_BYTES / b->element;
  if (piece > count) piece = count;
  int64_t at = plan_scratch(b, plan_part(piece * b->element) * n);
  for (int64_t done = 0; done < count; done += piece) {
    int64_t elements = count - done < piece ? count - done : piece, bytes = elements * b->element;
    plan_call(b, (CudaCall){.kind = CUDA_CALL_ALL_GATHER,
                            .from = CUDA_AT_SRC,
                            .to = CUDA_AT_SCRATCH,
                            .src = src + done * b->element,
                            .dst = at,
                            .count = (size_t)bytes,
                            .type = ncclInt8});
    plan_flush(b);
    fold(b, at, n, bytes, dst + done * b->element, elements);
  }
}

static void plan_all_reduce(PlanBuild *b, const Moves *m) {
  size_t most = 0;
  for (size_t i = 0; i < m->nranges; i++) {
    const RtRange *r = &m->ranges[i];
    int64_t src = (int64_t)(r->src - b->base[0]), dst = (int64_t)(r->dst - b->base[1]);
    if (is_native(b)) {
      CudaCall c = reduction(b, CUDA_CALL_ALL_REDUCE);
      c.from = CUDA_AT_SRC;
      c.to = CUDA_AT_DST;
      c.src = src;
      c.dst = dst;
      c.count = r->count;
      plan_call(b, c);
    } else { /* one range after the other, in the same scratch memory */
      b->plan->scratch = 0;
      gather_and_fold(b, m->ngroup, src, dst, (int64_t)r->count);
      if (b->plan->scratch > most) most = b->plan->scratch;
    }
  }
  if (most) b->plan->scratch = most;
}

/* --- reduce-scatter -----------------------------------------------------------------------------
 */

/* What the members of the group keep of one pair of buffers. */
typedef struct Kept {
  RtBox *boxes;           /* per member; an extent of 0 where it keeps nothing */
  int64_t largest, total; /* elements */
  enum { IN_PLACE, EVEN, PADDED, ONE_BY_ONE, FOLDED } form;
} Kept;

static void find_kept(PlanBuild *b, const Moves *m, uint32_t pair, Kept *k) {
  k->boxes = calloc((size_t)m->ngroup, sizeof *k->boxes);
  if (!k->boxes) {
    b->failed = 1;
    return;
  }
  int64_t smallest = INT64_MAX;
  bool chunks = true;
  for (int32_t r = 0; r < m->ngroup; r++) {
    RtBox *box = &k->boxes[r];
    if (!dtm_rt_moves_kept(b->image, plan_pair(b, pair), m->group[r], box)) *box = line(0);
    int64_t n = plan_count(box);
    k->total += n;
    if (n > k->largest) k->largest = n;
    if (n < smallest) smallest = n;
    chunks = chunks && plan_dense_src(box) && box->src_offset == r * n;
  }
  int64_t padded = k->largest * m->ngroup * b->element;
  k->form = !is_native(b) ? FOLDED : smallest < k->largest ? PADDED : chunks ? IN_PLACE : EVEN;
  if (k->form == PADDED && plan_wasteful(padded, k->total * b->element)) k->form = ONE_BY_ONE;
}

/* Through scratch memory: a chunk per rank, which holds what it keeps of all these pairs, each with
 * the room of the largest. What a chunk has beyond that is reduced too and means nothing. */
static void scatter_padded(PlanBuild *b, const Moves *m, const Kept *kept, int32_t mine) {
  int64_t chunk = 0, at = 0;
  for (uint32_t p = 0; p < plan_pairs(b); p++)
    if (kept[p].form == PADDED) chunk += plan_part(kept[p].largest * b->element);
  if (!chunk) return;
  int64_t scratch = plan_scratch(b, chunk * m->ngroup);
  for (uint32_t p = 0; p < plan_pairs(b); p++) {
    if (kept[p].form != PADDED) continue;
    for (int32_t r = 0; r < m->ngroup; r++) {
      RtBox packed = plan_packed_dst(&kept[p].boxes[r]);
      plan_copy(b, &b->pack, CUDA_AT_SRC, CUDA_AT_SCRATCH, &packed, plan_src_at(b, p),
                scratch + r * chunk + at);
    }
    RtBox packed = plan_packed_src(&kept[p].boxes[mine]);
    plan_copy(b, &b->unpack, CUDA_AT_SCRATCH, CUDA_AT_DST, &packed, scratch + mine * chunk + at,
              plan_dst_at(b, p));
    at += plan_part(kept[p].largest * b->element);
  }
  CudaCall c = reduction(b, CUDA_CALL_REDUCE_SCATTER);
  c.from = c.to = CUDA_AT_SCRATCH;
  c.src = scratch;
  c.dst = scratch + mine * chunk;
  c.count = (size_t)(chunk / b->element);
  plan_call(b, c);
}

/* What the ranks keep is of equal size: packed chunk by chunk, and reduced into its place. */
static void scatter_even(PlanBuild *b, const Moves *m, uint32_t pair, const Kept *k) {
  int64_t chunk = k->largest * b->element, scratch = plan_scratch(b, chunk * m->ngroup);
  for (int32_t r = 0; r < m->ngroup; r++) {
    RtBox packed = plan_packed_dst(&k->boxes[r]);
    plan_copy(b, &b->pack, CUDA_AT_SRC, CUDA_AT_SCRATCH, &packed, plan_src_at(b, pair),
              scratch + r * chunk);
  }
  CudaCall c = reduction(b, CUDA_CALL_REDUCE_SCATTER);
  c.from = CUDA_AT_SCRATCH;
  c.to = CUDA_AT_DST;
  c.src = scratch;
  c.dst = plan_dst_at(b, pair);
  c.count = (size_t)k->largest;
  plan_call(b, c);
}

static void scatter_in_place(PlanBuild *b, uint32_t pair, const Kept *k) {
  CudaCall c = reduction(b, CUDA_CALL_REDUCE_SCATTER);
  c.from = CUDA_AT_SRC;
  c.to = CUDA_AT_DST;
  c.src = plan_src_at(b, pair);
  c.dst = plan_dst_at(b, pair);
  c.count = (size_t)k->largest;
  plan_call(b, c);
}

/* What a call takes of this rank: a box as it lies, or packed in scratch memory. */
static void take_box(PlanBuild *b, uint32_t pair, const RtBox *box, CudaCall *c) {
  if (plan_dense_src(box)) {
    c->from = CUDA_AT_SRC;
    c->src = plan_src_at(b, pair) + box->src_offset * b->element;
    return;
  }
  RtBox packed = plan_packed_dst(box);
  c->from = CUDA_AT_SCRATCH;
  c->src = plan_scratch(b, plan_count(box) * b->element);
  plan_copy(b, &b->pack, CUDA_AT_SRC, CUDA_AT_SCRATCH, &packed, plan_src_at(b, pair), c->src);
}

static void scatter_one_by_one(PlanBuild *b, const Moves *m, uint32_t pair, const Kept *k) {
  for (int32_t r = 0; r < m->ngroup; r++) {
    const RtBox *box = &k->boxes[r];
    CudaCall c = reduction(b, CUDA_CALL_REDUCE);
    c.peer = r;
    c.count = (size_t)plan_count(box);
    c.to = CUDA_AT_DST;
    c.dst = plan_dst_at(b, pair);
    take_box(b, pair, box, &c);
    plan_call(b, c);
  }
}

/* Every rank gets the others' part of what it keeps; folded when all of them are there. */
static void exchange_parts(PlanBuild *b, const Moves *m, uint32_t pair, const Kept *k, int32_t mine,
                           int64_t at) {
  const RtBox *keeps = &k->boxes[mine];
  int64_t bytes = plan_count(keeps) * b->element;
  for (int32_t r = 0; r < m->ngroup; r++) {
    const RtBox *box = &k->boxes[r];
    if (r == mine) {
      RtBox packed = plan_packed_dst(box);
      plan_copy(b, &b->pack, CUDA_AT_SRC, CUDA_AT_SCRATCH, &packed, plan_src_at(b, pair),
                at + r * bytes);
      continue;
    }
    CudaCall c = {.kind = CUDA_CALL_SEND, .type = ncclInt8, .peer = r};
    c.count = (size_t)(plan_count(box) * b->element);
    take_box(b, pair, box, &c);
    plan_call(b, c);
    plan_call(b, (CudaCall){.kind = CUDA_CALL_RECV,
                            .to = CUDA_AT_SCRATCH,
                            .dst = at + r * bytes,
                            .type = ncclInt8,
                            .peer = r,
                            .count = (size_t)bytes});
  }
}

static void scatter_folded(PlanBuild *b, const Moves *m, const Kept *kept, int32_t mine) {
  int64_t first = (int64_t)b->plan->scratch, at = first;
  for (uint32_t p = 0; p < plan_pairs(b); p++)
    if (kept[p].form == FOLDED)
      plan_scratch(b, m->ngroup * plan_count(&kept[p].boxes[mine]) * b->element);
  for (uint32_t p = 0; p < plan_pairs(b); p++) {
    if (kept[p].form != FOLDED) continue;
    exchange_parts(b, m, p, &kept[p], mine, at);
    at += plan_room(m->ngroup * plan_count(&kept[p].boxes[mine]) * b->element);
  }
  plan_flush(b);
  at = first;
  for (uint32_t p = 0; p < plan_pairs(b); p++) {
    if (kept[p].form != FOLDED) continue;
    int64_t count = plan_count(&kept[p].boxes[mine]), bytes = count * b->element;
    fold(b, at, m->ngroup, bytes, plan_dst_at(b, p), count);
    at += plan_room(m->ngroup * bytes);
  }
}

static void plan_scatter(PlanBuild *b, const Moves *m) {
  Kept *kept = calloc(plan_pairs(b) + 1, sizeof *kept);
  int32_t mine = plan_place(m->group, b->rank);
  if (!kept) {
    b->failed = 1;
    return;
  }
  for (uint32_t p = 0; p < plan_pairs(b) && !b->failed; p++) find_kept(b, m, p, &kept[p]);
  for (uint32_t p = 0; p < plan_pairs(b) && !b->failed; p++) {
    if (kept[p].form == IN_PLACE) scatter_in_place(b, p, &kept[p]);
    if (kept[p].form == EVEN) scatter_even(b, m, p, &kept[p]);
    if (kept[p].form == ONE_BY_ONE) scatter_one_by_one(b, m, p, &kept[p]);
  }
  if (!b->failed) scatter_padded(b, m, kept, mine);
  if (!b->failed) scatter_folded(b, m, kept, mine);
  for (uint32_t p = 0; p < plan_pairs(b); p++) free(kept[p].boxes);
  free(kept);
}

/* A reduction over one rank is a copy. */
static void plan_alone(PlanBuild *b) {
  for (uint32_t p = 0; p < plan_pairs(b); p++) {
    RtBox box;
    if (dtm_rt_moves_kept(b->image, plan_pair(b, p), b->rank, &box))
      plan_local(b, &box, plan_src_at(b, p), plan_dst_at(b, p));
  }
}

void plan_reduce(PlanBuild *b, const Moves *m) {
  if (m->ngroup == 1) {
    plan_alone(b);
    return;
  }
  b->plan->comm = CUDA_COMM_GROUP;
  if (b->kind == ABI_ALL_REDUCE)
    plan_all_reduce(b, m);
  else
    plan_scatter(b, m);
}
