/* Runs launches: blocks one after the other, the warps of a block in turns. The lanes of a warp run
 * together; where a branch parts them, each path runs to the place where they meet again.
 *
 * Invariant: the masks of the paths of a warp hold live lanes only, and the last path runs. */
#include "ptx_code.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptx_async.h"

enum { PATIENCE = 1 << 16 /* steps of a warp until another one has its turn */ };

static const char *file_name(const PtxModule *module, uint32_t file) {
  return file < module->nfiles ? module->files[file] : NULL;
}

static void fault_place(const PtxWarp *w, const PtxOp *op, int lane, PtxFault *fault) {
  const PtxBlock *b = w->block;
  const PtxFunction *fn = b->function;
  const PtxPlace *place = &fn->places[op - fn->ops];
  const char *file = place->loc ? file_name(fn->module, place->file) : NULL;
  const char *outer = place->outer_loc ? file_name(fn->module, place->outer_file) : NULL;
  if (lane < 0) lane = w->mask ? __builtin_ctz(w->mask) : 0;
  uint32_t thread = 32 * w->index + (uint32_t)lane;
  snprintf(fault->kernel, sizeof fault->kernel, "%s", fn->info.name);
  memcpy(fault->block, b->index, sizeof fault->block);
  const uint32_t *size = b->launch->block;
  fault->thread[0] = thread % size[0];
  fault->thread[1] = thread / size[0] % size[1];
  fault->thread[2] = thread / size[0] / size[1];
  fault->ptx_line = place->line;
  if (file) {
    snprintf(fault->file, sizeof fault->file, "%s", file);
    fault->line = place->loc;
  }
  if (file && outer) {
    snprintf(fault->outer_file, sizeof fault->outer_file, "%s", outer);
    fault->outer_line = place->outer_loc;
  }
}

void ptx_fail(PtxWarp *w, const PtxOp *op, int lane, PtxFaultKind kind, const char *format, ...) {
  PtxBlock *b = w->block;
  PtxFault *fault = b->fault;
  if (b->failed) return;
  b->failed = true;
  *fault = (PtxFault){.kind = kind};
  fault_place(w, op, lane, fault);
  char what[400], where[600] = "";
  va_list ap;
  va_start(ap, format);
  vsnprintf(what, sizeof what, format, ap);
  va_end(ap);
  if (fault->outer_line)
    snprintf(where, sizeof where, "%s:%u in %s:%u, ", fault->file, fault->line, fault->outer_file,
             fault->outer_line);
  else if (fault->line)
    snprintf(where, sizeof where, "%s:%u, ", fault->file, fault->line);
  snprintf(fault->text, sizeof fault->text,
           "kernel '%s', block (%u, %u, %u), thread (%u, %u, %u), %sPTX line %u: %s", fault->kernel,
           fault->block[0], fault->block[1], fault->block[2], fault->thread[0], fault->thread[1],
           fault->thread[2], where, fault->ptx_line, what);
}

/* --- one warp ------------------------------------------------------------------------------------
 */

static void push_path(PtxWarp *w, uint32_t mask, uint32_t pc, uint32_t join) {
  if (w->depth == w->cap) {
    w->cap = w->cap ? 2 * w->cap : 8;
    w->path = realloc(w->path, w->cap * sizeof *w->path);
    if (!w->path) abort();
  }
  w->path[w->depth++] = (PtxPath){mask, pc, join};
}

/* The running path ended or came to where it meets others: on with the one below. False when none
 * is. */
static bool pop_path(PtxWarp *w) {
  while (w->depth && --w->depth)
    if (w->path[w->depth - 1].mask) return true;
  return false;
}

/* The lanes of the running path part: the first group takes the first turn. */
static void part(PtxWarp *w, const uint32_t *masks, const uint32_t *targets, uint32_t n,
                 uint32_t join) {
  PtxPath *top = &w->path[w->depth - 1];
  if (join == PTX_NO_ROW || top->join == join)
    w->depth--; /* nothing of its own is left to do behind the meeting */
  else
    top->pc = join;
  if (join == PTX_NO_ROW) join = top->join;
  for (uint32_t i = n; i-- > 0;)
    if (masks[i] && targets[i] != join) push_path(w, masks[i], targets[i], join);
}

static void branch(PtxWarp *w, const PtxOp *op, uint32_t taken, uint32_t pc) {
  PtxPath *top = &w->path[w->depth - 1];
  uint32_t fall = top->mask & ~taken;
  if (!fall)
    top->pc = op->target;
  else if (!taken)
    top->pc = pc + 1;
  else
    part(w, (uint32_t[]){fall, taken}, (uint32_t[]){pc + 1, op->target}, 2, (uint32_t)op->imm);
}

static void branch_by_index(PtxWarp *w, const PtxOp *op, uint32_t mask, uint32_t pc) {
  PtxPath *top = &w->path[w->depth - 1];
  const uint32_t *index = PTX_ROW(w, uint32_t, op->arg[0]);
  uint32_t masks[PTX_LANES + 1], targets[PTX_LANES + 1], n = 0;
  if (top->mask & ~mask) {
    masks[n] = top->mask & ~mask;
    targets[n++] = pc + 1;
  }
  while (mask) {
    uint32_t lane = (uint32_t)__builtin_ctz(mask), same = 0;
    if (index[lane] >= op->target) {
      ptx_fail(w, op, (int)lane, PTX_FAULT_OUTSIDE, "index %u of a table of %u branches",
               index[lane], op->target);
      return;
    }
    for (uint32_t i = lane; i < PTX_LANES; i++)
      if (mask >> i & 1 && op->targets[index[i]] == op->targets[index[lane]]) same |= 1u << i;
    masks[n] = same;
    targets[n++] = op->targets[index[lane]];
    mask &= ~same;
  }
  if (n == 1)
    top->pc = targets[0];
  else
    part(w, masks, targets, n, op->arg[1]);
}

static bool exit_lanes(PtxWarp *w, uint32_t mask) {
  w->live &= ~mask;
  for (uint32_t i = 0; i < w->depth; i++) w->path[i].mask &= ~mask;
  return w->path[w->depth - 1].mask || pop_path(w);
}

/* Runs the last path to where it parts, waits, ends, meets others or fails. */
static void run_path(PtxWarp *w) {
  PtxBlock *b = w->block;
  const PtxOp *ops = b->function->ops;
  PtxPath *path = &w->path[w->depth - 1];
  uint32_t nops = b->function->nops, pc = path->pc, active = path->mask, join = path->join;
  uint64_t steps = w->steps, lane_steps = 0;
  bool straight = true, parted = false; /* parted: the paths are others now */
  while (straight && pc != join && pc < nops) {
    const PtxOp *op = &ops[pc];
    uint32_t mask = active;
    if (op->guard != PTX_NO_ROW) {
      uint32_t p = *PTX_ROW(w, uint32_t, op->guard);
      mask &= op->guard_negated ? ~p : p;
    }
    steps++;
    if (b->counted) lane_steps += (uint32_t)__builtin_popcount(mask);
    w->mask = mask;
    switch ((PtxFlow)op->flow) {
    case FLOW_NEXT:
      if (mask) op->run(w, op);
      pc++;
      continue;
    case FLOW_CHECK:
      w->steps = steps;
      if (mask) op->run(w, op);
      pc++;
      straight = !b->failed;
      continue;
    case FLOW_BRANCH:
      path->pc = pc;
      branch(w, op, mask, pc);
      break;
    case FLOW_SWITCH:
      path->pc = pc;
      branch_by_index(w, op, mask, pc);
      break;
    case FLOW_EXIT:
      path->pc = pc + 1;
      if (mask) exit_lanes(w, mask);
      break;
    case FLOW_BARRIER:
      path->pc = pc + 1;
      if (mask) op->run(w, op);
      break;
    }
    straight = false;
    parted = true;
  }
  w->steps = steps;
  b->lane_steps += lane_steps;
  if (parted) return;
  path->pc = pc;
  if (pc >= nops && pc != join)
    exit_lanes(w, active); /* behind the last operation */
  else if (!b->failed)
    pop_path(w);
}

/* Runs until the warp ends, waits, fails or has had its turn. */
static void run_warp(PtxWarp *w) {
  PtxBlock *b = w->block;
  uint64_t limit = b->launch->max_steps ? b->launch->max_steps : (uint64_t)1 << 32;
  uint64_t began = w->steps, turn = began + PATIENCE < limit ? began + PATIENCE : limit;
  while (w->depth && !b->failed && !w->waiting && w->steps < turn) run_path(w);
  b->steps += w->steps - began;
  if (w->waiting || !w->depth || w->steps < limit) return;
  uint32_t pc = w->path[w->depth - 1].pc;
  ptx_fail(w, &b->function->ops[pc < b->function->nops ? pc : 0], -1, PTX_FAULT_STEPS,
           "still runs after %llu instructions", (unsigned long long)w->steps);
}

/* --- one block -----------------------------------------------------------------------------------
 */

void ptx_block_advance(PtxBlock *b) {
  b->clock.now = b->shared_clock.now = ++b->memory->epoch;
  for (uint32_t i = 0; i < b->nwarps; i++) b->warps[i].phase = 0;
}

static uint32_t threads_of(uint32_t mask) {
  return (uint32_t)__builtin_popcount(mask);
}

/* What bar.red gives to all: op->mode is '&', '|' or '+'. */
static void reduce_barrier(PtxBlock *b, uint32_t number) {
  uint32_t all = true, any = false, sum = 0;
  for (uint32_t i = 0; i < b->nwarps; i++) {
    const PtxWarp *w = &b->warps[i];
    if (!w->waiting || w->barrier != number) continue;
    all &= (w->contribution & w->live) == w->live;
    any |= (w->contribution & w->live) != 0;
    sum += threads_of(w->contribution & w->live);
  }
  for (uint32_t i = 0; i < b->nwarps; i++) {
    PtxWarp *w = &b->warps[i];
    if (!w->waiting || w->barrier != number || !w->at->mode) continue;
    if (w->at->mode == '+')
      for (uint32_t l = 0; l < PTX_LANES; l++) PTX_ROW(w, uint32_t, w->at->arg[0])[l] = sum;
    else
      *PTX_ROW(w, uint32_t, w->at->arg[0]) = (w->at->mode == '&' ? all : any) ? UINT32_MAX : 0;
  }
}

/* Lets those go whose barrier is complete; false when there is none. */
static bool release(PtxBlock *b) {
  for (uint32_t number = 0; number < 16; number++) {
    uint32_t count = b->arrived[number], needed = 0, waiting = 0;
    for (uint32_t i = 0; i < b->nwarps; i++) {
      const PtxWarp *w = &b->warps[i];
      if (!w->waiting || w->barrier != number) continue;
      waiting++;
      count += threads_of(w->live);
      needed = w->needed ? w->needed : b->nthreads;
    }
    if (!waiting || count < needed) continue;
    reduce_barrier(b, number);
    b->arrived[number] = 0;
    for (uint32_t i = 0; i < b->nwarps; i++)
      if (b->warps[i].waiting && b->warps[i].barrier == number) b->warps[i].waiting = false;
    ptx_block_advance(b);
    return true;
  }
  return false;
}

/* Nobody can run, some wait: say for whom. */
static void fail_barrier(PtxBlock *b) {
  for (uint32_t i = 0; i < b->nwarps; i++) {
    PtxWarp *w = &b->warps[i];
    if (!w->waiting) continue;
    w->mask = w->live;
    for (uint32_t k = 0; k < b->nwarps; k++) {
      const PtxWarp *other = &b->warps[k];
      if (other->live == other->all && other->waiting && other->barrier == w->barrier) continue;
      uint32_t ended = other->all & ~other->live;
      uint32_t thread = 32 * k + (uint32_t)__builtin_ctz(ended ? ended : other->all);
      if (!ended)
        ptx_fail(w, w->at, -1, PTX_FAULT_BARRIER,
                 "waits at barrier %u for thread %u, which waits at barrier %u (PTX line %u)",
                 w->barrier, thread, other->barrier,
                 b->function->places[other->at - b->function->ops].line);
      else
        ptx_fail(w, w->at, -1, PTX_FAULT_BARRIER, "waits at barrier %u for thread %u, which ended",
                 w->barrier, thread);
      return;
    }
    ptx_fail(w, w->at, -1, PTX_FAULT_BARRIER, "waits at barrier %u for more threads than there are",
             w->barrier);
    return;
  }
}

static void set_row(PtxWarp *w, uint32_t row, uint32_t value) {
  if (row == PTX_NO_ROW) return;
  for (uint32_t l = 0; l < PTX_LANES; l++) PTX_ROW(w, uint32_t, row)[l] = value;
}

static void set_wide_row(PtxWarp *w, uint32_t row, uint64_t first, uint64_t step) {
  if (row == PTX_NO_ROW) return;
  for (uint32_t l = 0; l < PTX_LANES; l++) PTX_ROW(w, uint64_t, row)[l] = first + l * step;
}

static uint64_t address_of(const void *p) {
  return (uint64_t)(uintptr_t)p;
}

static uint64_t local_stride(const PtxFunction *fn) {
  return (fn->info.local_bytes + 15) & ~15u;
}

#define FILL(T, value)                                                                             \
  do {                                                                                             \
    T *to_ = PTX_ROW(w, T, c->row), value_ = (T)(value);                                           \
    for (uint32_t l = 0; l < PTX_LANES; l++) to_[l] = value_;                                      \
  } while (0)

static void fill_constant(PtxWarp *w, const PtxConstant *c) {
  switch (c->bytes) {
  case 0:
    *PTX_ROW(w, uint32_t, c->row) = c->bits ? UINT32_MAX : 0;
    break;
  case 2:
    FILL(uint16_t, c->bits);
    break;
  case 4:
    FILL(uint32_t, c->bits);
    break;
  case 8:
    FILL(uint64_t, c->bits);
    break;
  }
}

/* What stays the same in all blocks. */
static void fill_rows(PtxWarp *w) {
  const PtxBlock *b = w->block;
  const PtxFunction *fn = b->function;
  const PtxLaunch *launch = b->launch;
  for (uint32_t i = 0; i < fn->nconstants; i++) fill_constant(w, &fn->constants[i]);
  const uint32_t *row = fn->special;
  static const PtxSpecial of_lanes[] = {
      SPECIAL_TID_X,       SPECIAL_TID_Y,       SPECIAL_TID_Z,
      SPECIAL_LANEID,      SPECIAL_LANEMASK_EQ, SPECIAL_LANEMASK_LT,
      SPECIAL_LANEMASK_LE, SPECIAL_LANEMASK_GT, SPECIAL_LANEMASK_GE};
  enum { OF_LANES = sizeof of_lanes / sizeof *of_lanes };
  bool any = false;
  for (size_t i = 0; i < OF_LANES; i++) any |= row[of_lanes[i]] != PTX_NO_ROW;
  for (uint32_t l = 0; any && l < PTX_LANES; l++) {
    uint32_t thread = 32 * w->index + l, below = (1u << l) - 1;
    const uint32_t values[OF_LANES] = {thread % launch->block[0],
                                       thread / launch->block[0] % launch->block[1],
                                       thread / launch->block[0] / launch->block[1],
                                       l,
                                       1u << l,
                                       below,
                                       below | 1u << l,
                                       ~(below | 1u << l),
                                       ~below};
    for (size_t i = 0; i < OF_LANES; i++)
      if (row[of_lanes[i]] != PTX_NO_ROW) PTX_ROW(w, uint32_t, row[of_lanes[i]])[l] = values[i];
  }
  for (uint32_t d = 0; d < 3; d++) {
    set_row(w, row[SPECIAL_NTID_X + d], launch->block[d]);
    set_row(w, row[SPECIAL_NCTAID_X + d], launch->grid[d]);
  }
  set_row(w, row[SPECIAL_WARPID], w->index);
  set_row(w, row[SPECIAL_NWARPID], b->nwarps);
  set_row(w, row[SPECIAL_ZERO], 0);
  set_row(w, row[SPECIAL_ONE], 1);
  set_row(w, row[SPECIAL_DYNAMIC_SHARED_SIZE], launch->shared_bytes);
  set_row(w, row[SPECIAL_TOTAL_SHARED_SIZE], (uint32_t)b->shared.bytes);
  set_wide_row(w, row[SPECIAL_DYNAMIC_SHARED], PTX_SHARED_BEGIN + fn->info.shared_bytes, 0);
  set_wide_row(w, row[SPECIAL_SHARED_WINDOW], address_of(b->shared.base) - PTX_SHARED_BEGIN, 0);
  set_wide_row(w, row[SPECIAL_PARAM], address_of(b->params.base), 0);
  set_wide_row(w, row[SPECIAL_LOCAL], address_of(b->local.base) + 32 * w->index * local_stride(fn),
               local_stride(fn));
}

static void begin_block(PtxBlock *b) {
  b->clock.now = b->clock.begin = ++b->memory->epoch;
  b->clock.floor = b->clock.launch;
  b->shared_clock = b->clock;
  b->shared_clock.floor = b->shared_clock.launch = b->clock.begin;
  b->atomic_seen = b->fence_seen = false;
  memset(b->arrived, 0, sizeof b->arrived);
  ptx_region_begin(&b->shared);
  ptx_region_forget(&b->local, 0, b->local.bytes);
  for (uint32_t i = 0; i < b->nwarps; i++) {
    PtxWarp *w = &b->warps[i];
    w->live = w->all;
    w->depth = 0;
    w->carry = w->phase = 0;
    w->steps = 0;
    w->waiting = false;
    push_path(w, w->all, 0, PTX_NO_ROW);
    for (uint32_t d = 0; d < 3; d++)
      set_row(w, b->function->special[SPECIAL_CTAID_X + d], b->index[d]);
  }
}

static void run_block(PtxBlock *b) {
  begin_block(b);
  while (!b->failed) {
    bool ran = false, waits = false;
    for (uint32_t i = 0; i < b->nwarps && !b->failed; i++) {
      PtxWarp *w = &b->warps[i];
      waits |= w->waiting;
      if (w->waiting || !w->depth) continue;
      ran = true;
      run_warp(w);
    }
    if (b->failed || release(b) || ran) continue;
    if (waits) fail_barrier(b);
    break;
  }
  for (uint32_t i = 0; i < b->nwarps; i++) ptx_async_end(&b->warps[i]);
}

/* --- launches ------------------------------------------------------------------------------------
 */

static bool refuse(PtxFault *fault, const PtxFunction *fn, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static bool refuse(PtxFault *fault, const PtxFunction *fn, const char *format, ...) {
  *fault = (PtxFault){.kind = PTX_FAULT_LAUNCH};
  snprintf(fault->kernel, sizeof fault->kernel, "%s", fn->info.name);
  char what[400];
  va_list ap;
  va_start(ap, format);
  vsnprintf(what, sizeof what, format, ap);
  va_end(ap);
  snprintf(fault->text, sizeof fault->text, "kernel '%s' cannot be launched: %s", fn->info.name,
           what);
  return false;
}

static bool check_launch(const PtxFunction *fn, const PtxLaunch *l, PtxFault *fault) {
  const PtxInfo *info = &fn->info;
  for (int d = 0; d < 3; d++)
    if (!l->grid[d] || !l->block[d]) return refuse(fault, fn, "a size of grid or block is 0");
  if (l->grid[1] > 65535 || l->grid[2] > 65535)
    return refuse(fault, fn, "grid of %u x %u x %u blocks: y and z go to 65535", l->grid[0],
                  l->grid[1], l->grid[2]);
  uint64_t threads = (uint64_t)l->block[0] * l->block[1] * l->block[2];
  if (threads > info->max_threads || l->block[2] > 64)
    return refuse(fault, fn, "blocks of %llu threads, it takes %u", (unsigned long long)threads,
                  info->max_threads);
  for (int d = 0; d < 3; d++)
    if (info->required[d] && info->required[d] != l->block[d])
      return refuse(fault, fn, "block size %d is %u, it asks for %u", d, l->block[d],
                    info->required[d]);
  if ((uint64_t)info->shared_bytes + l->shared_bytes > 227 * 1024)
    return refuse(fault, fn, "%u + %u bytes of shared memory, a block has 232448",
                  info->shared_bytes, l->shared_bytes);
  if (info->param_bytes && !l->params) return refuse(fault, fn, "no parameters");
  return true;
}

static void *storage(size_t bytes) {
  void *p = aligned_alloc(128, (bytes + 255) & ~(size_t)127);
  if (!p) abort();
  return p;
}

/* Holds anything: to read what nobody wrote is a fault. */
static void region(PtxRegion *r, size_t bytes, const char *name) {
  if (!ptx_region_init(r, storage(bytes), bytes, name)) abort();
}

static void region_end(PtxRegion *r) {
  ptx_region_clear(r);
  free(r->base);
}

/* Registers of `bytes`, aligned for rows. */
static uint8_t *registers(PtxMemory *memory, size_t bytes) {
  if (bytes > memory->rows_bytes) {
    free(memory->rows);
    memory->rows = storage(bytes);
    memory->rows_bytes = bytes;
    memset(memory->rows, 0, bytes);
  }
  return memory->rows;
}

static void block_open(PtxBlock *b) {
  const PtxFunction *fn = b->function;
  const uint32_t *size = b->launch->block;
  b->nthreads = size[0] * size[1] * size[2];
  b->nwarps = (b->nthreads + PTX_LANES - 1) / PTX_LANES;
  region(&b->shared, fn->info.shared_bytes + b->launch->shared_bytes, "shared memory");
  ptx_region_share(&b->shared);
  region(&b->local, b->nwarps * PTX_LANES * local_stride(fn), "local memory");
  region(&b->params, fn->info.param_bytes, "parameters");
  if (fn->info.param_bytes) memcpy(b->params.base, b->launch->params, fn->info.param_bytes);
  ptx_region_mark(&b->params, 0, b->params.bytes);
  b->params.read_only = true;
  b->local.recorded = b->params.recorded = false;
  b->warps = calloc(b->nwarps, sizeof *b->warps);
  if (!b->warps) abort();
  size_t each = (fn->rows_bytes + 127) / 128 * 128;
  uint8_t *rows = registers(b->memory, b->nwarps * each);
  for (uint32_t i = 0; i < b->nwarps; i++) {
    PtxWarp *w = &b->warps[i];
    uint32_t left = b->nthreads - PTX_LANES * i;
    w->block = b;
    w->index = i;
    w->all = left >= PTX_LANES ? UINT32_MAX : (1u << left) - 1;
    w->rows = rows + i * each;
    fill_rows(w);
  }
}

static void block_close(PtxBlock *b) {
  for (uint32_t i = 0; i < b->nwarps; i++) {
    ptx_async_free(&b->warps[i]);
    free(b->warps[i].path);
  }
  free(b->warps);
  region_end(&b->shared);
  region_end(&b->local);
  region_end(&b->params);
}

bool ptx_launch(PtxMemory *memory, const PtxFunction *function, const PtxLaunch *launch,
                PtxCount *total, PtxFault *fault) {
  if (!check_launch(function, launch, fault)) return false;
  PtxBlock b = {.memory = memory, .function = function, .launch = launch, .fault = fault};
  b.counted = total != NULL;
  b.clock.launch = memory->epoch + 1;
  block_open(&b);
  for (uint32_t z = 0; z < launch->grid[2] && !b.failed; z++)
    for (uint32_t y = 0; y < launch->grid[1] && !b.failed; y++)
      for (uint32_t x = 0; x < launch->grid[0] && !b.failed; x++) {
        b.index[0] = x;
        b.index[1] = y;
        b.index[2] = z;
        run_block(&b);
      }
  if (total) {
    total->steps += b.steps;
    total->lane_steps += b.lane_steps;
  }
  block_close(&b);
  return !b.failed;
}
