/* Plans of moves: see move_plan.h. Here gathers, exchanges and what stays within a rank;
 * reductions in reduce_plan.c. */
#include "device/cuda/move_plan.h"

#include <stdlib.h>
#include <string.h>

#include "device/cuda/plan_build.h"
#include "runtime/abi/number.h"

/* --- copies within a rank -----------------------------------------------------------------------
 */

static uint64_t ones(uint32_t dtype) {
  uint64_t pattern = 0;
  unsigned char one[8] = {0};
  size_t bytes = abi_dtype_bytes(dtype);
  abi_store(one, dtype, 0, 1);
  for (size_t i = 0; i < sizeof pattern; i++) pattern |= (uint64_t)one[i % bytes] << 8 * i;
  return pattern;
}

/* SLICE, COPY, FILL: one box at most. */
static void plan_within(PlanBuild *b, const Moves *m) {
  const RtBox *box = m->nboxes ? &m->boxes[0] : NULL;
  int64_t bytes = box ? plan_count(box) * b->element : 0;
  if (b->kind == ABI_FILL) {
    if (!m->keeps || bytes != (int64_t)m->dst_bytes)
      plan_step(b, (CudaStep){.kind = CUDA_STEP_FILL,
                              .to = CUDA_AT_DST,
                              .count = (int64_t)m->dst_bytes,
                              .pattern = m->neutral ? ones(m->dtype) : 0});
    if (!m->keeps) return;
  }
  if (box) plan_local(b, box, 0, 0);
}

/* --- gathers ------------------------------------------------------------------------------------
 */

/* The target holds whole what the source cuts along the axes of the action, all else alike: every
 * rank of the group lacks the blocks of all others. The axes cut innermost, so that these blocks
 * make up one block of the target. */
static bool is_gather(const PlanBuild *b, uint32_t pair) {
  const AbiBuffer *buffer = plan_pair(b, pair);
  const AbiType *from = &b->image->type[buffer[0].type], *to = &b->image->type[buffer[1].type];
  const AbiMesh *mesh = abi_type_mesh(b->image, from);
  for (uint32_t a = 0; a < mesh->naxes; a++) {
    if (!(b->action->axes >> a & 1)) {
      if (memcmp(&from->at[a], &to->at[a], sizeof from->at[a]) != 0) return false;
      continue;
    }
    if (from->at[a].kind != ABI_SHARD || to->at[a].kind != ABI_REPLICATE) return false;
    for (uint32_t k = 0; k < mesh->naxes; k++)
      if (!(b->action->axes >> k & 1) && from->at[k].kind == ABI_SHARD &&
          from->at[k].dim == from->at[a].dim && from->at[k].order > from->at[a].order)
        return false;
  }
  return true;
}

/* What one pair of buffers brings to this rank. */
typedef struct Gather {
  enum { BY_MESSAGES, IN_PLACE, EVEN, PADDED } form;
  RtBox *boxes; /* all that this rank takes of the pair */
  size_t nboxes;
  int64_t largest; /* bytes of the largest block */
} Gather;

static void find_gather(PlanBuild *b, const Moves *m, uint32_t pair, Gather *g) {
  const AbiBuffer *buffer = plan_pair(b, pair);
  if (dtm_rt_moves_pulled(b->image, buffer, b->rank, -1, &g->boxes, &g->nboxes)) b->failed = 1;
  if (b->failed || b->plan->comm != CUDA_COMM_GROUP || !is_gather(b, pair)) return;
  int64_t total = 0, smallest = INT64_MAX;
  for (int32_t r = 0; r < m->ngroup; r++) {
    int64_t bytes = dtm_rt_moves_elements(b->image, buffer, m->group[r]) * b->element;
    total += bytes;
    if (bytes > g->largest) g->largest = bytes;
    if (bytes < smallest) smallest = bytes;
  }
  bool chunks = smallest == g->largest && smallest > 0;
  for (size_t i = 0; i < g->nboxes && chunks; i++) {
    const RtBox *box = &g->boxes[i];
    chunks = plan_dense_dst(box) &&
             box->dst_offset * b->element == plan_place(m->group, box->peer) * smallest;
  }
  if (chunks)
    g->form = IN_PLACE;
  else if (smallest == g->largest && smallest > 0)
    g->form = EVEN;
  else if (!plan_wasteful(g->largest * m->ngroup, total))
    g->form = PADDED;
}

/* Blocks of equal size that do not follow each other in the result: from where they are into
 * scratch memory. */
static void gather_even(PlanBuild *b, const Moves *m, uint32_t pair, const Gather *g) {
  int64_t scratch = plan_scratch(b, g->largest * m->ngroup);
  for (size_t i = 0; i < g->nboxes; i++) {
    const RtBox *box = &g->boxes[i];
    RtBox packed = plan_packed_src(box);
    if (box->peer == b->rank)
      plan_local(b, box, plan_src_at(b, pair), plan_dst_at(b, pair));
    else
      plan_copy(b, &b->unpack, CUDA_AT_SCRATCH, CUDA_AT_DST, &packed,
                scratch + plan_place(m->group, box->peer) * g->largest, plan_dst_at(b, pair));
  }
  plan_call(b, (CudaCall){.kind = CUDA_CALL_ALL_GATHER,
                          .from = CUDA_AT_SRC,
                          .to = CUDA_AT_SCRATCH,
                          .src = plan_src_at(b, pair),
                          .dst = scratch,
                          .count = (size_t)g->largest,
                          .type = ncclInt8});
}

/* Through scratch memory: a chunk per rank, which holds its blocks of all these pairs, each with
 * the room of the largest. */
static void gather_padded(PlanBuild *b, const Moves *m, const Gather *gathers) {
  int64_t chunk = 0, at = 0;
  int32_t mine = plan_place(m->group, b->rank);
  for (uint32_t p = 0; p < plan_pairs(b); p++)
    if (gathers[p].form == PADDED) chunk += plan_part(gathers[p].largest);
  if (!chunk) return;
  int64_t scratch = plan_scratch(b, chunk * m->ngroup);
  for (uint32_t p = 0; p < plan_pairs(b); p++) {
    const Gather *g = &gathers[p];
    if (g->form != PADDED) continue;
    for (size_t i = 0; i < g->nboxes; i++) {
      const RtBox *box = &g->boxes[i];
      int32_t r = plan_place(m->group, box->peer);
      int64_t place = scratch + r * chunk + at;
      if (r == mine) {
        RtBox packed = plan_packed_dst(box);
        plan_copy(b, &b->pack, CUDA_AT_SRC, CUDA_AT_SCRATCH, &packed, plan_src_at(b, p), place);
        plan_local(b, box, plan_src_at(b, p), plan_dst_at(b, p));
      } else {
        RtBox packed = plan_packed_src(box);
        plan_copy(b, &b->unpack, CUDA_AT_SCRATCH, CUDA_AT_DST, &packed, place, plan_dst_at(b, p));
      }
    }
    at += plan_part(g->largest);
  }
  plan_call(b, (CudaCall){.kind = CUDA_CALL_ALL_GATHER,
                          .from = CUDA_AT_SCRATCH,
                          .to = CUDA_AT_SCRATCH,
                          .src = scratch + mine * chunk,
                          .dst = scratch,
                          .count = (size_t)chunk,
                          .type = ncclInt8});
}

static void gather_in_place(PlanBuild *b, uint32_t pair, int64_t bytes) {
  plan_call(b, (CudaCall){.kind = CUDA_CALL_ALL_GATHER,
                          .from = CUDA_AT_SRC,
                          .to = CUDA_AT_DST,
                          .src = plan_src_at(b, pair),
                          .dst = plan_dst_at(b, pair),
                          .count = (size_t)bytes,
                          .type = ncclInt8});
}

/* --- exchanges ----------------------------------------------------------------------------------
 */

static void send_to(PlanBuild *b, const Gather *gathers, int32_t receiver, int32_t peer) {
  BoxList list = {0};
  for (uint32_t p = 0; p < plan_pairs(b); p++) {
    RtBox *boxes = NULL;
    size_t n = 0;
    if (gathers[p].form != BY_MESSAGES) continue;
    if (dtm_rt_moves_pulled(b->image, plan_pair(b, p), receiver, b->rank, &boxes, &n))
      b->failed = 1;
    for (size_t i = 0; i < n; i++) plan_add_box(b, &list, &boxes[i], plan_src_at(b, p));
    free(boxes);
  }
  plan_exchange(b, true, peer, &list, CUDA_AT_SRC);
  plan_list_free(&list);
}

/* Of the boxes of this rank those from `sender`; its own are copied. */
static void receive_from(PlanBuild *b, const Gather *gathers, int32_t sender, int32_t peer) {
  BoxList list = {0};
  for (uint32_t p = 0; p < plan_pairs(b); p++)
    for (size_t i = 0; i < gathers[p].nboxes && gathers[p].form == BY_MESSAGES; i++) {
      const RtBox *box = &gathers[p].boxes[i];
      if (box->peer != sender) continue;
      if (sender == b->rank)
        plan_local(b, box, plan_src_at(b, p), plan_dst_at(b, p));
      else
        plan_add_box(b, &list, box, plan_dst_at(b, p));
    }
  plan_exchange(b, false, peer, &list, CUDA_AT_DST);
  plan_list_free(&list);
}

static void plan_pull(PlanBuild *b, const Moves *m) {
  Gather *gathers = calloc(plan_pairs(b) + 1, sizeof *gathers);
  if (!gathers) {
    b->failed = 1;
    return;
  }
  bool within =
      b->image->type[plan_pair(b, 0)[0].type].mesh == b->image->type[plan_pair(b, 0)[1].type].mesh;
  if (m->ngroup > 1) b->plan->comm = within ? CUDA_COMM_GROUP : CUDA_COMM_WORLD;
  for (uint32_t p = 0; p < plan_pairs(b); p++) {
    find_gather(b, m, p, &gathers[p]);
    if (gathers[p].form == IN_PLACE) gather_in_place(b, p, gathers[p].largest);
    if (gathers[p].form == EVEN) gather_even(b, m, p, &gathers[p]);
  }
  if (!b->failed) gather_padded(b, m, gathers);
  for (int32_t r = 0; r < m->ngroup && !b->failed; r++) {
    int32_t peer = within ? r : m->group[r];
    if (m->group[r] != b->rank) send_to(b, gathers, m->group[r], peer);
    receive_from(b, gathers, m->group[r], peer);
  }
  for (uint32_t p = 0; p < plan_pairs(b); p++) free(gathers[p].boxes);
  free(gathers);
}

static void plan_rows(PlanBuild *b, const Moves *m) {
  const AbiBuffer *used = &b->image->buffer[b->action->buffers + 2];
  plan_pull(b, m);
  plan_flush(b);
  plan_step(b, (CudaStep){.kind = CUDA_STEP_ROWS,
                          .to = CUDA_AT_DST,
                          .dtype = b->image->type[used->type].dtype,
                          .groups = m->groups,
                          .rows = m->rows,
                          .row = m->width * b->element});
}

/* --- all of them --------------------------------------------------------------------------------
 */

/* The reduction of a START stands in the action that ends it. */
static const AbiAction *end_of_start(const Image *image, uint32_t start) {
  for (uint64_t i = start + 1; i < image->action_count; i++)
    if (image->action[i].started == start + 1) return &image->action[i];
  return &image->action[start];
}

int dtm_cuda_move_plan(const Image *image, uint32_t index, int32_t rank, CudaMovePlan *plan) {
  const AbiAction *action = &image->action[index];
  if (action->kind == ABI_START) action = end_of_start(image, index);
  PlanBuild b;
  Moves m;
  plan_begin(&b, image, action, rank, plan);
  if (dtm_rt_moves_find(image, action, rank, &m)) {
    dtm_rt_moves_free(&m);
    return -1;
  }
  plan->mesh = image->type[plan_pair(&b, 0)[0].type].mesh;
  plan->axes = action->axes;
  switch ((AbiActionKind)b.kind) {
  case ABI_PULL:
    plan_pull(&b, &m);
    break;
  case ABI_PULL_ROWS:
    plan_rows(&b, &m);
    break;
  case ABI_ALL_REDUCE:
  case ABI_REDUCE_SCATTER:
    plan_reduce(&b, &m);
    break;
  case ABI_SLICE:
  case ABI_FILL:
  case ABI_COPY:
    plan_within(&b, &m);
    break;
  case ABI_START: /* of nothing */
  case ABI_ACTION_NONE:
  case ABI_KERNEL:
  case ABI_MATMUL:
  case ABI_LIBRARY:
  case ABI_INPUT:
  case ABI_OUTPUT:
  case ABI_POST:
  case ABI_TAKE:
  case ABI_ACTION_COUNT:
    break;
  }
  dtm_rt_moves_free(&m);
  return plan_end(&b);
}

int dtm_cuda_move_has_group(const Image *image, const AbiAction *a) {
  if (a->kind != ABI_PULL && a->kind != ABI_PULL_ROWS && a->kind != ABI_ALL_REDUCE &&
      a->kind != ABI_REDUCE_SCATTER)
    return 0;
  const AbiBuffer *b = &image->buffer[a->buffers];
  return image->type[b[0].type].mesh == image->type[b[1].type].mesh;
}
