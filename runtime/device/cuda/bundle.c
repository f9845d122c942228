/* Many parameters in few launches: see bundle.h. */
#include "device/cuda/bundle.h"

#include <stdlib.h>
#include <string.h>

#include "comm/errors.h"
#include "device/cuda/kernels.h"

/* One launch: of an action alone, or of `ncalls` of them. */
typedef struct Item {
  uint32_t action; /* the first */
  int32_t ncalls;
  unsigned grid;
  CUfunction many;
  CUdeviceptr table;
} Item;

typedef struct Bundle {
  uint32_t count;         /* actions; 0: none begins here */
  uint32_t first, nitems; /* of the items */
} Bundle;

struct CudaBundles {
  Bundle *at; /* per action */
  Item *items;
  size_t nitems;
  uint64_t *words; /* the tables of all */
  size_t nwords;
  CUdeviceptr tables;
};

/* --- what depends on what ------------------------------------------------------------------------
 */

/* Bytes of the arena that a kernel touches. */
typedef struct Range {
  uint64_t begin, end;
  int written;
} Range;

typedef struct Member {
  uint32_t action;
  uint32_t item; /* of this bundle */
  uint32_t nranges;
  Range *ranges; /* of all its buffers */
} Member;

/* False when what the action touches differs from one micro-batch to the next. */
static int find_ranges(const CudaDevice *d, Member *m) {
  const AbiAction *a = dtm_cuda_action(d, m->action);
  m->ranges = calloc((size_t)a->nbuffers + 1, sizeof *m->ranges);
  if (!m->ranges) return 0;
  for (uint32_t i = 0; i < a->nbuffers; i++) {
    const AbiBuffer *b = &d->base.image->buffer[a->buffers + i];
    if (b->type == 0 && b->offset == ABI_STEP_OFFSET && !b->written) continue;
    if (b->slots > 1) return 0;
    uint64_t bytes = (uint64_t)b->scratch * ABI_ALIGN;
    if (b->type) {
      const LibTensor t = dtm_device_tensor(&d->base, b, NULL);
      bytes = dtm_device_bytes(&t);
    }
    m->ranges[m->nranges++] = (Range){b->offset, b->offset + bytes, b->written != 0};
  }
  return 1;
}

static int conflict(const Member *a, const Member *b) {
  for (uint32_t i = 0; i < a->nranges; i++)
    for (uint32_t k = 0; k < b->nranges; k++) {
      const Range *x = &a->ranges[i], *y = &b->ranges[k];
      if ((x->written || y->written) && x->begin < y->end && y->begin < x->end) return 1;
    }
  return 0;
}

/* The first item that the action may be part of or stand behind: every one before it that has
 * something it depends on is done by then. */
static uint32_t earliest(const Member *members, uint32_t n, const Member *m) {
  uint32_t item = 0;
  for (uint32_t i = 0; i < n; i++)
    if (members[i].item >= item && conflict(&members[i], m)) item = members[i].item + 1;
  return item;
}

/* --- building ------------------------------------------------------------------------------------
 */

static int out_of_memory(CudaDevice *d) {
  return dtm_rt_fail(d->base.comm, RT_DEVICE, "out of memory");
}

/* Appends the arguments of the members of an item: see abi/cuda.h. */
static int add_table(CudaDevice *d, const Member *members, uint32_t n, uint32_t item, Item *out) {
  struct CudaBundles *s = d->bundles;
  size_t begin = s->nwords;
  for (uint32_t i = 0; i < n; i++) {
    if (members[i].item != item) continue;
    const CudaKernel *k = d->states[members[i].action];
    size_t width = (size_t)k->nbuffers + k->nints;
    if (k->launch.grid == 0) continue;
    uint64_t *more = realloc(s->words, (s->nwords + width + ABI_CUDA_CALL_WORDS) * sizeof *more);
    if (!more) return out_of_memory(d);
    s->words = more;
    memcpy(more + s->nwords, k->words, width * sizeof *more);
    uint64_t *rest = more + s->nwords + width;
    rest[0] = (uint64_t)k->launch.tasks;
    rest[1] = (uint64_t)k->launch.group;
    rest[2] = out->grid;
    rest[3] = k->launch.grid;
    s->nwords += width + ABI_CUDA_CALL_WORDS;
    out->grid += k->launch.grid;
    out->ncalls++;
  }
  out->table = begin * sizeof *s->words; /* until it is known where they lie */
  return 0;
}

/* The items of `n` members, in order. */
static int add_items(CudaDevice *d, const Member *members, uint32_t n, uint32_t nitems, Bundle *b) {
  struct CudaBundles *s = d->bundles;
  Item *more = realloc(s->items, (s->nitems + nitems) * sizeof *more);
  if (!more) return out_of_memory(d);
  s->items = more;
  b->first = (uint32_t)s->nitems;
  b->nitems = nitems;
  for (uint32_t k = 0; k < nitems; k++) {
    uint32_t count = 0;
    Item *item = &s->items[s->nitems++];
    *item = (Item){0};
    for (uint32_t i = n; i-- > 0;)
      if (members[i].item == k) item->action = members[i].action, count++;
    uint32_t code = dtm_cuda_action(d, item->action)->code;
    if (count < 2 || !(d->code.functions[code].flags & ABI_CUDA_MANY)) continue;
    int status = dtm_cuda_kernel_many(d, code, &item->many);
    if (!status) status = add_table(d, members, n, k, item);
    if (status) return status;
  }
  return 0;
}

/* Puts each action into the first item of its code that it may be part of. */
static int order_members(CudaDevice *d, Member *members, uint32_t n, uint32_t first) {
  Bundle *b = &d->bundles->at[first];
  uint32_t nitems = 0;
  uint32_t *codes = calloc((size_t)n + 1, sizeof *codes); /* per item */
  if (!codes) return out_of_memory(d);
  for (uint32_t i = 0; i < n; i++) {
    uint32_t code = dtm_cuda_action(d, members[i].action)->code;
    int many = (d->code.functions[code].flags & ABI_CUDA_MANY) != 0;
    uint32_t item = earliest(members, i, &members[i]);
    while (item < nitems && !(many && codes[item] == code)) item++;
    if (item == nitems) codes[nitems++] = code;
    members[i].item = item;
  }
  free(codes);
  return nitems < n ? add_items(d, members, n, nitems, b) : 0;
}

/* The kernels of the optimizer from `first` on, at most to `end`; *next: behind them. */
static int find_bundle(CudaDevice *d, uint32_t first, uint32_t end, uint32_t *next) {
  Member *members = calloc((size_t)(end - first) + 1, sizeof *members);
  uint32_t n = 0, i = first;
  if (!members) return out_of_memory(d);
  for (; i < end; i++) {
    const AbiAction *a = dtm_cuda_action(d, i);
    if (a->phase != ABI_OPTIMIZER || a->kind != ABI_KERNEL) break;
    if (d->base.skip[i]) continue;
    members[n] = (Member){.action = i};
    if (!find_ranges(d, &members[n])) {
      free(members[n].ranges);
      break;
    }
    n++;
  }
  int status = n > 1 ? order_members(d, members, n, first) : 0;
  if (d->bundles->at[first].nitems) d->bundles->at[first].count = i - first;
  while (n-- > 0) free(members[n].ranges);
  free(members);
  *next = i > first ? i : first + 1;
  return status;
}

static int find_bundles(CudaDevice *d, uint32_t first, uint32_t end) {
  int status = 0;
  while (first < end && !status) status = find_bundle(d, first, end, &first);
  return status;
}

static int place_tables(CudaDevice *d) {
  struct CudaBundles *s = d->bundles;
  size_t bytes = s->nwords * sizeof *s->words;
  if (!bytes) return 0;
  int status = dtm_cuda_alloc(d, bytes, "tables of parameters", &s->tables);
  if (status) return status;
  for (size_t i = 0; i < s->nitems; i++) s->items[i].table += s->tables;
  return dtm_cuda_write(d, s->tables, s->words, bytes);
}

int dtm_cuda_bundle_open(CudaDevice *d) {
  const Image *image = d->base.image;
  struct CudaBundles *s = d->bundles = calloc(1, sizeof *s);
  if (s) s->at = calloc(image->action_count + 1, sizeof *s->at);
  if (!s || !s->at) return out_of_memory(d);
  int status = 0;
  for (uint32_t k = 0; k < ABI_PROGRAM_COUNT && !status; k++) {
    const AbiProgram *p = &image->program[k];
    status = find_bundles(d, p->actions, p->actions + p->looped);
    if (!status) status = find_bundles(d, p->actions + p->looped, p->actions + p->nactions);
  }
  return status ? status : place_tables(d);
}

void dtm_cuda_bundle_close(CudaDevice *d) {
  struct CudaBundles *s = d->bundles;
  if (!s) return;
  if (s->tables) d->cu->memory_free(s->tables);
  free(s->words);
  free(s->items);
  free(s->at);
  free(s);
  d->bundles = NULL;
}

/* --- running -------------------------------------------------------------------------------------
 */

uint32_t dtm_cuda_bundle_size(const CudaDevice *d, uint32_t first) {
  return d->bundles->at[first].count;
}

static int enqueue_item(CudaDevice *d, Item *item) {
  if (!item->many) return dtm_cuda_kernel_run(d, item->action, d->states[item->action]);
  void *params[] = {&item->table, &item->ncalls};
  return dtm_cuda_launch(d, d->compute, item->many, item->grid, ABI_CUDA_BLOCK, 0, params,
                         item->action);
}

static int run_item(CudaDevice *d, Item *item) {
  if (d->capturing) {
    dtm_device_place(&d->base, item->action);
    return enqueue_item(d, item);
  }
  int status = dtm_cuda_run_begin(d, item->action);
  return status ? status : dtm_cuda_run_end(d, enqueue_item(d, item));
}

int dtm_cuda_bundle_run(CudaDevice *d, uint32_t first) {
  const Bundle *b = &d->bundles->at[first];
  int status = 0;
  for (uint32_t i = 0; i < b->nitems && !status; i++)
    status = run_item(d, &d->bundles->items[b->first + i]);
  return status;
}
