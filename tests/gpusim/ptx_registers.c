/* What works on registers but is no function of a lane's operands alone: predicates, packing,
 * carries. */
#include "ptx_number.h"
#include "ptx_run.h"

#include <string.h>

static void set_predicate(PtxWarp *w, uint32_t row, uint32_t value) {
  uint32_t *p = PTX_ROW(w, uint32_t, row);
  *p = (*p & ~w->mask) | (value & w->mask);
}

static uint32_t combine(uint8_t mode, uint32_t x, uint32_t y) {
  switch (mode) {
  case 'a':
    return x & y;
  case 'o':
    return x | y;
  case 'x':
    return x ^ y;
  case 'n':
    return ~x;
  }
  return x;
}

void ptx_run_logic(PtxWarp *w, const PtxOp *op) {
  uint32_t x = *PTX_ROW(w, uint32_t, op->arg[1]);
  uint32_t y = op->mode == 'n' ? 0 : *PTX_ROW(w, uint32_t, op->arg[2]);
  set_predicate(w, op->arg[0], combine(op->mode, x, y));
}

static uint32_t third(PtxWarp *w, const PtxOp *op) {
  return op->mode ? *PTX_ROW(w, uint32_t, op->arg[4]) : 0;
}

void ptx_run_setp(PtxWarp *w, const PtxOp *op) {
  uint32_t m = op->compare(w->rows + op->arg[2], w->rows + op->arg[3], op->flags);
  uint32_t c = third(w, op);
  set_predicate(w, op->arg[0], combine(op->mode, m, c));
  if (op->arg[1] != PTX_NO_ROW) set_predicate(w, op->arg[1], combine(op->mode, ~m, c));
}

/* Comparisons of the low halves and of the high ones. */
static void compare_halves(PtxWarp *w, const PtxOp *op, uint32_t m[2]) {
  const uint32_t *a = PTX_ROW(w, uint32_t, op->arg[2]), *b = PTX_ROW(w, uint32_t, op->arg[3]);
  uint16_t x[PTX_LANES], y[PTX_LANES];
  for (uint32_t half = 0; half < 2; half++) {
    for (uint32_t i = 0; i < PTX_LANES; i++) {
      x[i] = (uint16_t)(a[i] >> 16 * half);
      y[i] = (uint16_t)(b[i] >> 16 * half);
    }
    m[half] = op->compare(x, y, op->flags);
  }
}

/* p is of the low halves, q of the high ones. */
void ptx_run_setp_halves(PtxWarp *w, const PtxOp *op) {
  uint32_t m[2], c = third(w, op);
  compare_halves(w, op, m);
  set_predicate(w, op->arg[0], combine(op->mode, m[0], c));
  if (op->arg[1] != PTX_NO_ROW) set_predicate(w, op->arg[1], combine(op->mode, m[1], c));
}

void ptx_run_set(PtxWarp *w, const PtxOp *op) {
  uint32_t m = op->compare(w->rows + op->arg[2], w->rows + op->arg[3], op->flags);
  m = combine(op->mode, m, third(w, op));
  for (uint32_t i = 0; i < PTX_LANES; i++) {
    if (!(w->mask >> i & 1)) continue;
    uint32_t value = m >> i & 1 ? op->arg[5] : 0;
    if (op->arg[1] == 2)
      PTX_ROW(w, uint16_t, op->arg[0])[i] = (uint16_t)value;
    else if (op->arg[1] == 4)
      PTX_ROW(w, uint32_t, op->arg[0])[i] = value;
    else
      PTX_ROW(w, uint64_t, op->arg[0])[i] = value ? UINT64_MAX : 0;
  }
}

void ptx_run_set_halves(PtxWarp *w, const PtxOp *op) {
  uint32_t m[2], c = third(w, op), *to = PTX_ROW(w, uint32_t, op->arg[0]);
  compare_halves(w, op, m);
  for (uint32_t half = 0; half < 2; half++) m[half] = combine(op->mode, m[half], c);
  for (uint32_t i = 0; i < PTX_LANES; i++)
    if (w->mask >> i & 1)
      to[i] = (m[0] >> i & 1 ? op->arg[5] : 0) | (m[1] >> i & 1 ? op->arg[5] << 16 : 0);
}

static bool test(uint32_t which, f64 x, f64 least, bool nan) {
  f64 a = fabs(x);
  switch (which) {
  case 0:
    return !nan && a != INFINITY;
  case 1:
    return a == INFINITY;
  case 2:
    return !nan;
  case 3:
    return nan;
  case 4:
    return a >= least && a != INFINITY;
  }
  return a > 0 && a < least;
}

void ptx_run_testp(PtxWarp *w, const PtxOp *op) {
  uint32_t m = 0;
  for (uint32_t i = 0; i < PTX_LANES; i++) {
    f64 x = op->flags ? PTX_ROW(w, f64, op->arg[1])[i] : (f64)PTX_ROW(w, f32, op->arg[1])[i];
    m |= (uint32_t)test(op->mode, x, op->flags ? DBL_MIN : FLT_MIN, x != x) << i;
  }
  set_predicate(w, op->arg[0], m);
}

/* --- packing ---------------------------------------------------------------------------------- */

#define EACH_ELEMENT(WIDE, NARROW, body)                                                           \
  for (uint32_t k = 0; k < sizeof(WIDE) / sizeof(NARROW); k++) {                                   \
    NARROW *part = PTX_ROW(w, NARROW, op->arg[1 + k]);                                             \
    WIDE *whole = PTX_ROW(w, WIDE, op->arg[0]);                                                    \
    const uint32_t shift = 8 * sizeof(NARROW) * k;                                                 \
    (void)whole;                                                                                   \
    for (uint32_t i = 0; i < PTX_LANES; i++) body;                                                 \
  }

#define PACK(WIDE, NARROW)                                                                         \
  WIDE out[PTX_LANES] = {0};                                                                       \
  EACH_ELEMENT(WIDE, NARROW, out[i] |= (WIDE)part[i] << shift)                                     \
  WIDE *to = PTX_ROW(w, WIDE, op->arg[0]);                                                         \
  for (uint32_t i = 0; i < PTX_LANES; i++) to[i] = w->mask >> i & 1 ? out[i] : to[i]

#define UNPACK(WIDE, NARROW)                                                                       \
  WIDE in[PTX_LANES]; /* a part may be the whole's own row */                                      \
  memcpy(in, w->rows + op->arg[0], sizeof in);                                                     \
  EACH_ELEMENT(WIDE, NARROW, part[i] = w->mask >> i & 1 ? (NARROW)(in[i] >> shift) : part[i])

void ptx_run_pack(PtxWarp *w, const PtxOp *op) {
  if (op->mode == 4) {
    PACK(uint64_t, uint32_t);
  } else if (op->target == 4) {
    PACK(uint64_t, uint16_t);
  } else {
    PACK(uint32_t, uint16_t);
  }
}

void ptx_run_unpack(PtxWarp *w, const PtxOp *op) {
  if (op->mode == 4) {
    UNPACK(uint64_t, uint32_t);
  } else if (op->target == 4) {
    UNPACK(uint64_t, uint16_t);
  } else {
    UNPACK(uint32_t, uint16_t);
  }
}

void ptx_run_clock(PtxWarp *w, const PtxOp *op) {
  uint64_t now = w->block->clock.now + w->steps;
  for (uint32_t i = 0; i < PTX_LANES; i++) {
    if (!(w->mask >> i & 1)) continue;
    if (op->mode == 8)
      PTX_ROW(w, uint64_t, op->arg[0])[i] = now;
    else
      PTX_ROW(w, uint32_t, op->arg[0])[i] = (uint32_t)now;
  }
}

/* --- carries ---------------------------------------------------------------------------------- */

/* Sum or difference with a carry; a difference borrows when the carry is set. */
#define CARRY(T, W, ST, SW, bits)                                                                  \
  T *d = PTX_ROW(w, T, op->arg[0]);                                                                \
  const T *a = PTX_ROW(w, T, op->arg[1]), *b = PTX_ROW(w, T, op->arg[2]);                          \
  const T *c = PTX_ROW(w, T, op->arg[3]);                                                          \
  uint32_t carry = 0;                                                                              \
  for (uint32_t i = 0; i < PTX_LANES; i++) {                                                       \
    uint32_t in = op->flags & PTX_CARRY_IN ? w->carry >> i & 1 : 0;                                \
    T x = a[i], y = b[i];                                                                          \
    if (op->mode == 'l' || op->mode == 'h') {                                                      \
      W product = op->target ? (W)((SW)(ST)x * (SW)(ST)y) : (W)x * (W)y;                           \
      x = op->mode == 'l' ? (T)product : (T)(product >> bits);                                     \
      y = c[i];                                                                                    \
    }                                                                                              \
    W sum = op->mode == 's' ? (W)x - (W)y - (W)in : (W)x + (W)y + (W)in;                           \
    carry |= (uint32_t)(sum >> bits & 1) << i;                                                     \
    if (w->mask >> i & 1) d[i] = (T)sum;                                                           \
  }                                                                                                \
  if (op->flags & PTX_CARRY_OUT) w->carry = (w->carry & ~w->mask) | (carry & w->mask)

void ptx_run_carry32(PtxWarp *w, const PtxOp *op) {
  CARRY(u32, u64, s32, s64, 32);
}

void ptx_run_carry64(PtxWarp *w, const PtxOp *op) {
  CARRY(u64, u128, s64, s128, 64);
}

void ptx_run_trap(PtxWarp *w, const PtxOp *op) {
  ptx_fail(w, op, -1, PTX_FAULT_TRAP, "%s", op->mode ? "an assertion failed" : "trap");
}
