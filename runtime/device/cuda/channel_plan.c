/* Plans of the two ends of a channel: see move_plan.h. */
#include <stdlib.h>

#include "device/cuda/plan_build.h"

/* The whole block goes to the outbox where any of it is sent from there. */
static void keep_block(PlanBuild *b) {
  for (uint32_t i = 0; i < b->ncalls; i++) {
    if (b->calls[i].from != CUDA_AT_DST) continue;
    RtBox block = {.ndims = 1, .extent = {1}, .src_stride = {1}, .dst_stride = {1}};
    block.extent[0] = dtm_rt_moves_elements(b->image, plan_pair(b, 0), b->rank);
    plan_copy(b, &b->local, CUDA_AT_SRC, CUDA_AT_DST, &block, 0, 0);
    return;
  }
}

int dtm_cuda_channel_plan(const Image *image, uint32_t index, int32_t rank, CudaMovePlan *plan) {
  const AbiAction *action = &image->action[index];
  PlanBuild b;
  RtChannel c = {0};
  bool posts = action->kind == ABI_POST;
  plan_begin(&b, image, action, rank, plan);
  if (posts) { /* the outbox is the destination; its buffer has no slots of its own */
    b.base[1] = image->channel[action->code].offset;
    b.step[1] = image->channel[action->code].stride;
  }
  int32_t *ranks = malloc(sizeof *ranks * (size_t)image->mesh[image->header->world].nranks);
  if (!ranks || dtm_rt_channel_find(image, action, rank, &c)) b.failed = 1;
  if (ranks) dtm_cuda_channel_ranks(image, action->code, ranks);
  plan->comm = CUDA_COMM_CHANNEL;
  size_t first = 0;
  for (int32_t p = 0; p < c.npeers && !b.failed; p++) {
    BoxList list = {0};
    for (; first < c.nboxes && c.boxes[first].peer == c.peers[p]; first++)
      plan_add_box(&b, &list, &c.boxes[first], 0);
    plan_exchange(&b, posts, plan_place(ranks, c.peers[p]), &list, CUDA_AT_DST);
    plan_list_free(&list);
  }
  if (posts && !b.failed) keep_block(&b);
  free(ranks);
  dtm_rt_channel_free(&c);
  return plan_end(&b);
}

int32_t dtm_cuda_channel_ranks(const Image *image, uint32_t channel, int32_t *ranks) {
  const AbiChannel *c = &image->channel[channel];
  const AbiMesh *from = abi_type_mesh(image, &image->type[c->from]);
  const AbiMesh *to = abi_type_mesh(image, &image->type[c->to]);
  int64_t world = image->mesh[image->header->world].nranks;
  int32_t n = 0;
  for (int32_t r = 0; r < world; r++)
    if (abi_mesh_position(image, from, r) >= 0 || abi_mesh_position(image, to, r) >= 0)
      ranks[n++] = r;
  return n;
}
