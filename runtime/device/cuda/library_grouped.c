/* The products of experts on a GPU: see library.h and kernels/grouped.cu. */
#include "device/cuda/library.h"

enum { COUNT, PLAN, LIST, CLEAR, MULTIPLY };

/* Where the plan lies in scratch memory. */
typedef struct Plan {
  CUdeviceptr start, count, used, first, tiles, list, end;
} Plan;

static Plan plan_at(const struct GroupedDims *g, CUdeviceptr scratch) {
  Plan p = {.start = scratch};
  uint64_t pairs = (uint64_t)(g->batch * g->experts) * sizeof(int64_t);
  p.count = p.start + pairs;
  p.used = p.count + pairs;
  p.first = p.used + (uint64_t)(g->batch * g->blocks) * sizeof(int64_t);
  p.tiles = p.first + (uint64_t)(g->experts + 1) * sizeof(int64_t);
  p.list = p.tiles + (uint64_t)(g->experts + 1) * sizeof(int64_t);
  p.end = p.list + (uint64_t)(g->batch * g->blocks * g->places) * sizeof(uint32_t);
  return p;
}

static bool is_linear(const CudaLibCall *c) {
  return c->code == ABI_LIB_GROUPED_LINEAR;
}

/* The tensor cores' tiles are moved 16 bytes at a time where everything begins at such addresses.
 */
static bool is_wide(const CudaDevice *d, const CudaLibCall *c, const struct GroupedDims *g) {
  const AbiAction *a = dtm_cuda_action(d, c->action);
  uint64_t bits = 2 * (uint64_t)(g->in | g->out);
  for (uint32_t i = 0; i < a->nbuffers; i++) {
    const AbiBuffer *b = &d->base.image->buffer[a->buffers + i];
    bits |= d->arena + b->offset;
    if (b->slots > 1) bits |= b->stride;
  }
  return bits % 16 == 0;
}

/* Rows of one expert that a block takes: by file, as abi_cuda_instances has it. */
static int64_t tile_of(uint32_t dtype) {
  return dtype == ABI_BF16 || dtype == ABI_F16 ? TENSOR_TILE : PRODUCT_TILE;
}

int dtm_cuda_grouped_prepare(CudaDevice *d, CudaLibCall *c) {
  const char *const names[] = {"grouped_count",
                               "grouped_plan",
                               "grouped_list",
                               "grouped_clear",
                               is_linear(c) ? "grouped_linear" : "grouped_weight",
                               NULL};
  const LibTensor *rows = &c->t[0], *counts = &c->t[2];
  const LibTensor *x = is_linear(c) ? &c->t[0] : &c->t[1], *out = is_linear(c) ? &c->t[3] : rows;
  struct GroupedDims *g = &c->dims.grouped;
  *g = (struct GroupedDims){
      .batch = counts->extent[0],
      .blocks = rows->extent[1],
      .places = rows->extent[2],
      .experts = counts->extent[1],
      .each = rows->shape[1] ? dtm_cuda_ceil_div(counts->shape[1], rows->shape[1]) : 1,
      .first_expert = counts->offset[1],
      .first_block = rows->offset[1],
      .in = x->extent[3],
      .out = out->extent[3],
      .tile = tile_of(rows->dtype)};
  g->wide = is_wide(d, c, g);
  if (g->each == 0) g->each = 1;
  dtm_cuda_reserve(d, (size_t)plan_at(g, 0).end);
  return dtm_cuda_kernels(d, c, 0, names, c->kernel);
}

/* Lists the rows of every expert. */
static int make_plan(CudaDevice *d, CudaLibCall *c, Plan *p) {
  struct GroupedDims *g = &c->dims.grouped;
  CUdeviceptr counts = dtm_cuda_tensor(d, c, 2);
  void *count[] = {&counts, &p->start, &p->count, &p->used, g, &d->fault, &c->action};
  void *plan[] = {&p->count, &p->first, &p->tiles, g};
  void *list[] = {&p->start, &p->count, &p->first, &p->list, g};
  int status = dtm_cuda_enqueue(d, c, c->kernel[COUNT], g->batch, count);
  if (!status) status = dtm_cuda_enqueue_blocks(d, c, c->kernel[PLAN], 1, plan);
  return status ? status
                : dtm_cuda_enqueue_blocks(d, c, c->kernel[LIST], g->batch * g->experts, list);
}

static int run_linear(CudaDevice *d, CudaLibCall *c, Plan *p) {
  struct GroupedDims *g = &c->dims.grouped;
  CUdeviceptr x = dtm_cuda_tensor(d, c, 0), weight = dtm_cuda_tensor(d, c, 1);
  CUdeviceptr y = dtm_cuda_tensor(d, c, 3);
  int64_t rows = g->batch * g->blocks * g->places;
  int32_t reverse = c->args[0] != 0;
  uint32_t most = (uint32_t)(rows / g->tile + g->experts);
  void *clear[] = {&p->used, &y, g};
  void *multiply[] = {&x, &weight, &y, &p->first, &p->tiles, &p->list, g, &most, &reverse};
  int status = dtm_cuda_enqueue_blocks(d, c, c->kernel[CLEAR], rows, clear);
  if (status || rows == 0) return status;
  return dtm_cuda_enqueue_blocks(d, c, c->kernel[MULTIPLY],
                                 most * dtm_cuda_ceil_div(g->out, g->tile), multiply);
}

static int run_weight(CudaDevice *d, CudaLibCall *c, Plan *p) {
  struct GroupedDims *g = &c->dims.grouped;
  CUdeviceptr of_y = dtm_cuda_tensor(d, c, 0), x = dtm_cuda_tensor(d, c, 1);
  CUdeviceptr dweight = dtm_cuda_tensor(d, c, 3);
  void *multiply[] = {&of_y, &x, &dweight, &p->first, &p->list, g};
  return dtm_cuda_enqueue_blocks(d, c, c->kernel[MULTIPLY],
                                 g->experts * dtm_cuda_ceil_div(g->out, g->tile) *
                                     dtm_cuda_ceil_div(g->in, g->tile),
                                 multiply);
}

int dtm_cuda_grouped_run(CudaDevice *d, CudaLibCall *c) {
  Plan p = plan_at(&c->dims.grouped, d->scratch);
  int status = make_plan(d, c, &p);
  if (status) return status;
  return is_linear(c) ? run_linear(d, c, &p) : run_weight(d, c, &p);
}
