/* What the lanes of a warp do together, and barriers. Whoever is named by a mask must be there:
 * lanes that a branch parted are not, as nothing will bring them here. */
#include "ptx_run.h"

/* Each lane that runs is in its own mask, and nobody in it is missing. */
static bool all_present(PtxWarp *w, const PtxOp *op, uint32_t row) {
  const uint32_t *members = PTX_ROW(w, uint32_t, row);
  uint32_t common = w->mask;
  for (uint32_t i = 0; i < PTX_LANES; i++) common &= members[i];
  if (common == UINT32_MAX) return true; /* all are here, and everybody says so */
  for (uint32_t left = w->mask; left; left &= left - 1) {
    uint32_t i = (uint32_t)__builtin_ctz(left), missing = members[i] & ~w->mask;
    if (!(members[i] >> i & 1)) {
      ptx_fail(w, op, (int)i, PTX_FAULT_BARRIER,
               "the mask %#x does not name lane %u, which is here", members[i], i);
      return false;
    }
    if (missing) {
      uint32_t lane = (uint32_t)__builtin_ctz(missing);
      ptx_fail(w, op, (int)i, PTX_FAULT_BARRIER, "the mask %#x names lane %u, which %s", members[i],
               lane,
               w->live >> lane & 1  ? "is elsewhere"
               : w->all >> lane & 1 ? "ended"
                                    : "does not exist");
      return false;
    }
  }
  return true;
}

/* The lane that lane i reads from, as mode, index and clamp say; itself when that is out of its
 * segment. */
static inline uint32_t source_of(uint8_t mode, uint32_t i, uint32_t b, uint32_t clamps,
                                 uint32_t *inside) {
  uint32_t clamp = clamps & 31, segment = clamps >> 8 & 31;
  int last = (int)((i & segment) | (clamp & ~segment)), from;
  b &= 31;
  from = mode == 'u'   ? (int)i - (int)b
         : mode == 'd' ? (int)(i + b)
         : mode == 'b' ? (int)(i ^ b)
                       : (int)((i & segment) | (b & ~segment));
  bool ok = mode == 'u' ? from >= last : from <= last;
  *inside |= (uint32_t)ok << i;
  return ok ? (uint32_t)from : i;
}

void ptx_run_shuffle(PtxWarp *w, const PtxOp *op) {
  if (!all_present(w, op, op->arg[5])) return;
  const uint32_t *value = PTX_ROW(w, uint32_t, op->arg[2]);
  const uint32_t *index = PTX_ROW(w, uint32_t, op->arg[3]);
  const uint32_t *clamps = PTX_ROW(w, uint32_t, op->arg[4]);
  uint32_t from[PTX_LANES], out[PTX_LANES], inside = 0, mask = w->mask;
  for (uint32_t i = 0; i < PTX_LANES; i++) {
    from[i] = source_of(op->mode, i, index[i], clamps[i], &inside);
    out[i] = value[from[i]];
  }
  for (uint32_t left = mask == UINT32_MAX ? 0 : mask; left; left &= left - 1) {
    uint32_t i = (uint32_t)__builtin_ctz(left);
    if (mask >> from[i] & 1) continue;
    ptx_fail(w, op, (int)i, PTX_FAULT_BARRIER, "reads from lane %u, which does not take part",
             from[i]);
    return;
  }
  uint32_t *to = PTX_ROW(w, uint32_t, op->arg[0]);
  for (uint32_t i = 0; i < PTX_LANES; i++) to[i] = mask >> i & 1 ? out[i] : to[i];
  if (op->arg[1] == PTX_NO_ROW) return;
  uint32_t *p = PTX_ROW(w, uint32_t, op->arg[1]);
  *p = (*p & ~mask) | (inside & mask);
}

void ptx_run_vote(PtxWarp *w, const PtxOp *op) {
  if (!all_present(w, op, op->arg[2])) return;
  uint32_t p = *PTX_ROW(w, uint32_t, op->arg[1]), result = 0;
  const uint32_t *members = PTX_ROW(w, uint32_t, op->arg[2]);
  for (uint32_t left = w->mask; left; left &= left - 1) {
    uint32_t i = (uint32_t)__builtin_ctz(left), yes = p & members[i];
    bool all = yes == members[i], any = yes != 0;
    if (op->mode == 'b')
      PTX_ROW(w, uint32_t, op->arg[0])[i] = yes;
    else
      result |= (uint32_t)(op->mode == 'a' ? all : op->mode == 'o' ? any : all || !any) << i;
  }
  if (op->mode == 'b') return;
  uint32_t *to = PTX_ROW(w, uint32_t, op->arg[0]);
  *to = (*to & ~w->mask) | result;
}

void ptx_run_match(PtxWarp *w, const PtxOp *op) {
  if (!all_present(w, op, op->arg[3])) return;
  const uint32_t *members = PTX_ROW(w, uint32_t, op->arg[3]);
  uint64_t value[PTX_LANES];
  uint32_t equal[PTX_LANES], all = 0;
  for (uint32_t i = 0; i < PTX_LANES; i++)
    value[i] =
        op->mode == 8 ? PTX_ROW(w, uint64_t, op->arg[2])[i] : PTX_ROW(w, uint32_t, op->arg[2])[i];
  for (uint32_t left = w->mask; left; left &= left - 1) {
    uint32_t i = (uint32_t)__builtin_ctz(left);
    equal[i] = 0;
    for (uint32_t k = 0; k < PTX_LANES; k++)
      equal[i] |= (uint32_t)(members[i] >> k & 1 && value[k] == value[i]) << k;
    all |= (uint32_t)(equal[i] == members[i]) << i;
    if (op->flags && equal[i] != members[i]) equal[i] = 0;
  }
  for (uint32_t left = w->mask; left; left &= left - 1) {
    uint32_t i = (uint32_t)__builtin_ctz(left);
    PTX_ROW(w, uint32_t, op->arg[0])[i] = equal[i];
  }
  if (op->arg[1] == PTX_NO_ROW) return;
  uint32_t *p = PTX_ROW(w, uint32_t, op->arg[1]);
  *p = (*p & ~w->mask) | all;
}

void ptx_run_active(PtxWarp *w, const PtxOp *op) {
  for (uint32_t left = w->mask; left; left &= left - 1)
    PTX_ROW(w, uint32_t, op->arg[0])[__builtin_ctz(left)] = w->mask;
}

static uint32_t reduce(uint8_t mode, bool is_signed, uint32_t x, uint32_t y) {
  switch (mode) {
  case '+':
    return x + y;
  case 'n':
    return (is_signed ? (int32_t)y < (int32_t)x : y < x) ? y : x;
  case 'x':
    return (is_signed ? (int32_t)y > (int32_t)x : y > x) ? y : x;
  case '&':
    return x & y;
  case '|':
    return x | y;
  }
  return x ^ y;
}

void ptx_run_redux(PtxWarp *w, const PtxOp *op) {
  if (!all_present(w, op, op->arg[2])) return;
  const uint32_t *value = PTX_ROW(w, uint32_t, op->arg[1]);
  const uint32_t *members = PTX_ROW(w, uint32_t, op->arg[2]);
  uint32_t out[PTX_LANES];
  for (uint32_t left = w->mask; left; left &= left - 1) {
    uint32_t i = (uint32_t)__builtin_ctz(left), others = members[i] & ~(1u << i);
    out[i] = value[i];
    for (; others; others &= others - 1)
      out[i] = reduce(op->mode, op->flags, out[i], value[__builtin_ctz(others)]);
  }
  for (uint32_t left = w->mask; left; left &= left - 1)
    PTX_ROW(w, uint32_t, op->arg[0])[__builtin_ctz(left)] = out[__builtin_ctz(left)];
}

/* --- barriers --------------------------------------------------------------------------------- */

static uint32_t first_of(const PtxWarp *w, uint32_t row) {
  return PTX_ROW(w, uint32_t, row)[__builtin_ctz(w->mask)];
}

static bool number_ok(PtxWarp *w, const PtxOp *op, uint32_t number) {
  if (number < 16) return true;
  ptx_fail(w, op, -1, PTX_FAULT_BARRIER, "barrier %u, there are 16", number);
  return false;
}

void ptx_run_barrier(PtxWarp *w, const PtxOp *op) {
  PtxBlock *b = w->block;
  uint32_t number = first_of(w, op->arg[2]);
  if (!number_ok(w, op, number)) return;
  if (w->mask != w->live) {
    uint32_t lane = (uint32_t)__builtin_ctz(w->live & ~w->mask);
    ptx_fail(w, op, -1, PTX_FAULT_BARRIER,
             "waits at barrier %u for lane %u of its warp, which is elsewhere", number, lane);
    return;
  }
  for (uint32_t i = 0; op->flags && i < b->nwarps; i++) {
    const PtxWarp *other = &b->warps[i];
    if (!other->waiting || other->barrier != number || other->at == op) continue;
    ptx_fail(w, op, -1, PTX_FAULT_BARRIER,
             "waits at barrier %u while warp %u waits for it at another place (PTX line %u)",
             number, i, b->function->places[other->at - b->function->ops].line);
    return;
  }
  w->waiting = true;
  w->barrier = number;
  w->needed = op->arg[3] == PTX_NO_ROW ? 0 : first_of(w, op->arg[3]);
  w->at = op;
  w->contribution = op->mode ? *PTX_ROW(w, uint32_t, op->arg[1]) : 0;
}

void ptx_run_arrive(PtxWarp *w, const PtxOp *op) {
  uint32_t number = first_of(w, op->arg[2]);
  if (number_ok(w, op, number)) w->block->arrived[number] += (uint32_t)__builtin_popcount(w->mask);
}

void ptx_run_warp_sync(PtxWarp *w, const PtxOp *op) {
  if (!all_present(w, op, op->arg[0])) return;
  if (++w->phase == 1u << 14) ptx_block_advance(w->block);
}

void ptx_run_fence(PtxWarp *w, const PtxOp *op) {
  PtxBlock *b = w->block;
  (void)op;
  b->fence_seen = true;
  if (b->atomic_seen) b->clock.floor = b->clock.begin;
}
