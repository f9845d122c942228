/* Putting a plan of a move together: see plan_build.h. */
#include "device/cuda/plan_build.h"

#include <stdlib.h>

#include "comm/box.h"

_Static_assert((int)MOVES_DIMS >= ABI_MAX_DIMS, "dims of a box");

/* Room for one more element of a list; 0 when memory is short, which is noted. */
static int grow(PlanBuild *b, void **data, size_t n, size_t *room, size_t element) {
  if (b->failed) return 0;
  if (n < *room) return 1;
  size_t wanted = *room * 2 + 8;
  void *more = realloc(*data, wanted * element);
  if (!more) {
    b->failed = 1;
    return 0;
  }
  *data = more;
  *room = wanted;
  return 1;
}

int64_t plan_src_at(const PlanBuild *b, uint32_t pair) {
  const AbiBuffer *first = &b->image->buffer[b->action->buffers];
  return (int64_t)(first[2 * pair].offset - first[0].offset);
}

int64_t plan_dst_at(const PlanBuild *b, uint32_t pair) {
  const AbiBuffer *first = &b->image->buffer[b->action->buffers];
  return (int64_t)(first[2 * pair + 1].offset - first[1].offset);
}

int64_t plan_count(const RtBox *box) {
  int64_t n = 1;
  for (int32_t d = 0; d < box->ndims; d++) n *= box->extent[d];
  return n;
}

static bool is_dense(const RtBox *box, const int64_t *stride) {
  int64_t n = 1;
  for (int32_t d = box->ndims; d-- > 0;) {
    if (box->extent[d] != 1 && stride[d] != n) return false;
    n *= box->extent[d];
  }
  return true;
}

bool plan_dense_src(const RtBox *box) {
  return is_dense(box, box->src_stride);
}

bool plan_dense_dst(const RtBox *box) {
  return is_dense(box, box->dst_stride);
}

static void pack_stride(const RtBox *box, int64_t *stride) {
  int64_t n = 1;
  for (int32_t d = box->ndims; d-- > 0;) {
    stride[d] = n;
    n *= box->extent[d];
  }
}

RtBox plan_packed_dst(const RtBox *box) {
  RtBox p = *box;
  p.dst_offset = 0;
  pack_stride(box, p.dst_stride);
  return p;
}

RtBox plan_packed_src(const RtBox *box) {
  RtBox p = *box;
  p.src_offset = 0;
  pack_stride(box, p.src_stride);
  return p;
}

int64_t plan_scratch(PlanBuild *b, int64_t bytes) {
  size_t at = b->plan->scratch;
  b->plan->scratch += (size_t)plan_room(bytes);
  return (int64_t)at;
}

static uint64_t base_of(const PlanBuild *b, CudaSpace space) {
  return space == CUDA_AT_SCRATCH ? 0 : b->base[space];
}

void plan_copy(PlanBuild *b, CopyList *list, CudaSpace from, CudaSpace to, const RtBox *box,
               int64_t src, int64_t dst) {
  BoxRows rows;
  dtm_box_rows(box, &rows);
  if (rows.total == 0) return;
  size_t room = list->room;
  if (!grow(b, (void **)&list->data, list->n, &room, sizeof *list->data)) return;
  list->room = (uint32_t)room;
  CudaBox c = {.src = src + rows.src_offset * b->element,
               .dst = dst + rows.dst_offset * b->element,
               .ndims = (uint32_t)rows.ndims};
  /* Every address is a multiple of the lowest bit in any of these. */
  uint64_t bits = 16 | (base_of(b, from) + (uint64_t)c.src) | (base_of(b, to) + (uint64_t)c.dst) |
                  (uint64_t)(rows.row * b->element);
  for (int32_t d = 0; d < rows.ndims; d++) {
    c.extent[d] = rows.extent[d];
    c.src_stride[d] = rows.src_stride[d] * b->element;
    c.dst_stride[d] = rows.dst_stride[d] * b->element;
    bits |= (uint64_t)c.src_stride[d] | (uint64_t)c.dst_stride[d];
  }
  if (from != CUDA_AT_SCRATCH) bits |= b->step[from];
  if (to != CUDA_AT_SCRATCH) bits |= b->step[to];
  c.log_unit = (uint32_t)__builtin_ctzll(bits);
  c.row = rows.row * b->element >> c.log_unit;
  c.units = rows.total * b->element >> c.log_unit;
  c.first_tile = list->tiles;
  list->tiles += (c.units + MOVES_TILE - 1) / MOVES_TILE;
  list->data[list->n++] = c;
}

void plan_step(PlanBuild *b, CudaStep step) {
  CudaMovePlan *p = b->plan;
  if (!grow(b, (void **)&p->steps, p->nsteps, &b->step_room, sizeof step)) return;
  p->steps[p->nsteps++] = step;
}

/* A box that is already where it belongs. */
static bool stays(const PlanBuild *b, const RtBox *box, int64_t src, int64_t dst) {
  if (b->base[0] + (uint64_t)(src + box->src_offset * b->element) !=
          b->base[1] + (uint64_t)(dst + box->dst_offset * b->element) ||
      b->step[0] != b->step[1])
    return false;
  for (int32_t d = 0; d < box->ndims; d++)
    if (box->extent[d] != 1 && box->src_stride[d] != box->dst_stride[d]) return false;
  return true;
}

void plan_local(PlanBuild *b, const RtBox *box, int64_t src, int64_t dst) {
  if (!stays(b, box, src, dst)) plan_copy(b, &b->local, CUDA_AT_SRC, CUDA_AT_DST, box, src, dst);
}

static void flush_copies(PlanBuild *b, CopyList *list, CudaSpace from, CudaSpace to) {
  CudaMovePlan *p = b->plan;
  if (!list->n) return;
  plan_step(b, (CudaStep){.kind = CUDA_STEP_COPY,
                          .from = from,
                          .to = to,
                          .first = p->nboxes,
                          .n = list->n,
                          .tiles = list->tiles});
  for (uint32_t i = 0; i < list->n; i++) {
    if (!grow(b, (void **)&p->boxes, p->nboxes, &b->box_room, sizeof *p->boxes)) return;
    p->boxes[p->nboxes++] = list->data[i];
  }
  list->n = 0;
  list->tiles = 0;
}

void plan_call(PlanBuild *b, CudaCall call) {
  if (call.count == 0) return;
  if (grow(b, (void **)&b->calls, b->ncalls, &b->calls_room, sizeof call))
    b->calls[b->ncalls++] = call;
}

void plan_flush(PlanBuild *b) {
  CudaMovePlan *p = b->plan;
  flush_copies(b, &b->pack, CUDA_AT_SRC, CUDA_AT_SCRATCH);
  flush_copies(b, &b->local, CUDA_AT_SRC, CUDA_AT_DST);
  if (b->ncalls)
    plan_step(b, (CudaStep){.kind = CUDA_STEP_CALLS, .first = p->ncalls, .n = b->ncalls});
  for (uint32_t i = 0; i < b->ncalls; i++) {
    if (!grow(b, (void **)&p->calls, p->ncalls, &b->call_room, sizeof *p->calls)) return;
    p->calls[p->ncalls++] = b->calls[i];
  }
  b->ncalls = 0;
  flush_copies(b, &b->unpack, CUDA_AT_SCRATCH, CUDA_AT_DST);
}

/* --- messages -----------------------------------------------------------------------------------
 */

/* A box that is dense at both ends and not small travels alone and in place. */
static bool is_alone(const PlanBuild *b, const RtBox *box) {
  enum { ALONE_BYTES = 64 << 10 };
  return plan_dense_src(box) && plan_dense_dst(box) && plan_count(box) * b->element >= ALONE_BYTES;
}

static void message(PlanBuild *b, bool sends, int32_t peer, CudaSpace space, int64_t at,
                    int64_t bytes) {
  CudaCall call = {.kind = sends ? CUDA_CALL_SEND : CUDA_CALL_RECV,
                   .from = space,
                   .to = space,
                   .src = at,
                   .dst = at,
                   .count = (size_t)bytes,
                   .type = ncclInt8,
                   .peer = peer};
  plan_call(b, call);
}

static void in_place(PlanBuild *b, bool sends, int32_t peer, const RtBox *box, int64_t at,
                     CudaSpace space) {
  int64_t offset = sends ? box->src_offset : box->dst_offset;
  message(b, sends, peer, space, at + offset * b->element, plan_count(box) * b->element);
}

void plan_exchange(PlanBuild *b, bool sends, int32_t peer, const BoxList *boxes, CudaSpace space) {
  int64_t bytes = 0;
  size_t others = 0, last = 0;
  for (size_t i = 0; i < boxes->n; i++) {
    const RtBox *box = &boxes->data[i];
    if (is_alone(b, box)) {
      in_place(b, sends, peer, box, boxes->at[i], space);
      continue;
    }
    others++;
    last = i;
    bytes += plan_count(box) * b->element;
  }
  const RtBox *only = others == 1 ? &boxes->data[last] : NULL;
  if (only && (sends ? plan_dense_src(only) : plan_dense_dst(only))) {
    in_place(b, sends, peer, only, boxes->at[last], space);
    return;
  }
  if (!bytes) return;
  int64_t at = plan_scratch(b, bytes);
  message(b, sends, peer, CUDA_AT_SCRATCH, at, bytes);
  for (size_t i = 0; i < boxes->n; i++) {
    const RtBox *box = &boxes->data[i];
    if (is_alone(b, box)) continue;
    if (sends) {
      RtBox packed = plan_packed_dst(box);
      plan_copy(b, &b->pack, CUDA_AT_SRC, CUDA_AT_SCRATCH, &packed, boxes->at[i], at);
    } else {
      RtBox packed = plan_packed_src(box);
      plan_copy(b, &b->unpack, CUDA_AT_SCRATCH, CUDA_AT_DST, &packed, at, boxes->at[i]);
    }
    at += plan_count(box) * b->element;
  }
}

/* --- beginning and end --------------------------------------------------------------------------
 */

void plan_add_box(PlanBuild *b, BoxList *list, const RtBox *box, int64_t at) {
  size_t room = list->room;
  if (!grow(b, (void **)&list->data, list->n, &room, sizeof *list->data)) return;
  if (room != list->room) {
    int64_t *more = realloc(list->at, room * sizeof *more);
    if (!more) {
      b->failed = 1;
      return;
    }
    list->at = more;
  }
  list->room = room;
  list->data[list->n] = *box;
  list->at[list->n++] = at;
}

void plan_list_free(BoxList *list) {
  free(list->data);
  free(list->at);
}

void plan_begin(PlanBuild *b, const Image *image, const AbiAction *action, int32_t rank,
                CudaMovePlan *plan) {
  const AbiBuffer *first = &image->buffer[action->buffers];
  *plan = (CudaMovePlan){.comm = CUDA_COMM_NONE};
  *b = (PlanBuild){.plan = plan,
                   .image = image,
                   .action = action,
                   .kind = action->kind,
                   .op = action->code,
                   .rank = rank,
                   .dtype = image->type[first->type].dtype};
  b->element = (int64_t)abi_dtype_bytes(b->dtype);
  for (int k = 0; k < 2; k++) {
    b->base[k] = first[k].offset;
    b->step[k] = first[k].slots > 1 ? first[k].stride : 0;
  }
}

int plan_end(PlanBuild *b) {
  plan_flush(b);
  free(b->calls);
  free(b->pack.data);
  free(b->unpack.data);
  free(b->local.data);
  return b->failed ? -1 : 0;
}

void dtm_cuda_move_plan_free(CudaMovePlan *p) {
  free(p->steps);
  free(p->boxes);
  free(p->calls);
}
