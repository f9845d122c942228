/* Decodes what threads do together: shuffles, votes, barriers, fences, tensor cores. */
#include "ptx_decode.h"

#include <string.h>

#include "ptx_run.h"

static bool is_sync(PtxDecoder *d) {
  return ptx_take(d, "sync") || ptx_decode_error(d, "only the .sync form is known");
}

/* A result, or a pair result | predicate; the predicate's row is PTX_NO_ROW without one. */
static bool result_and_predicate(PtxDecoder *d, const PtxOperand *o, uint32_t bytes,
                                 uint32_t arg[2]) {
  arg[1] = PTX_NO_ROW;
  if (o->kind != OPERAND_PAIR) return ptx_result(d, o, bytes, &arg[0]);
  return ptx_result(d, &o->items[0], bytes, &arg[0]) && ptx_result(d, &o->items[1], 0, &arg[1]);
}

static PtxOp *emit(PtxDecoder *d, PtxRun *run, PtxFlow flow, const uint32_t arg[PTX_ARGS],
                   int mode) {
  PtxOp *op = ptx_emit(d, run, flow);
  memcpy(op->arg, arg, PTX_ARGS * sizeof *arg);
  op->mode = (uint8_t)mode;
  return op;
}

bool ptx_decode_shfl(PtxDecoder *d) {
  static const char *const modes[] = {"up", "down", "bfly", "idx", NULL};
  uint32_t arg[PTX_ARGS] = {0};
  if (!is_sync(d)) return false;
  int mode = ptx_take_one(d, modes);
  const PtxOperand *o = d->at->operands;
  if (mode < 0 || !ptx_take(d, "b32")) return ptx_decode_error(d, "unknown shuffle");
  if (!ptx_all_taken(d) || !ptx_operand_count(d, 5, 5) || !result_and_predicate(d, &o[0], 4, arg))
    return false;
  for (uint32_t i = 0; i < 4; i++)
    if (!ptx_source(d, &o[1 + i], 4, &arg[2 + i])) return false;
  emit(d, ptx_run_shuffle, FLOW_CHECK, arg, "udbi"[mode]);
  return true;
}

bool ptx_decode_vote(PtxDecoder *d) {
  static const char *const modes[] = {"all", "any", "uni", "ballot", NULL};
  uint32_t arg[PTX_ARGS] = {0};
  if (!is_sync(d)) return false;
  int mode = ptx_take_one(d, modes);
  const PtxOperand *o = d->at->operands;
  if (mode < 0 || !ptx_take(d, mode == 3 ? "b32" : "pred"))
    return ptx_decode_error(d, "unknown vote");
  if (!ptx_all_taken(d) || !ptx_operand_count(d, 3, 3) ||
      !ptx_result(d, &o[0], mode == 3 ? 4 : 0, &arg[0]) || !ptx_source(d, &o[1], 0, &arg[1]) ||
      !ptx_source(d, &o[2], 4, &arg[2]))
    return false;
  emit(d, ptx_run_vote, FLOW_CHECK, arg, "aoub"[mode]);
  return true;
}

bool ptx_decode_match(PtxDecoder *d) {
  static const char *const modes[] = {"any", "all", NULL};
  uint32_t arg[PTX_ARGS] = {0};
  int mode = ptx_take_one(d, modes);
  PtxType type;
  const PtxOperand *o = d->at->operands;
  if (mode < 0 || !is_sync(d) || !ptx_take_type(d, &type) || !ptx_all_taken(d) ||
      !ptx_operand_count(d, 3, 3) || !result_and_predicate(d, &o[0], 4, arg))
    return ptx_decode_error(d, "unknown match");
  uint32_t bytes = PTX_TYPE_INFO[type].bytes;
  if (bytes < 4) return ptx_decode_error(d, "32 or 64 bits expected");
  if (!ptx_source(d, &o[1], bytes, &arg[2]) || !ptx_source(d, &o[2], 4, &arg[3])) return false;
  emit(d, ptx_run_match, FLOW_CHECK, arg, (int)bytes)->flags = (uint16_t)mode;
  return true;
}

bool ptx_decode_activemask(PtxDecoder *d) {
  uint32_t arg[PTX_ARGS] = {0};
  if (!ptx_take(d, "b32") || !ptx_all_taken(d) || !ptx_operand_count(d, 1, 1))
    return ptx_decode_error(d, "unknown type");
  if (!ptx_result(d, &d->at->operands[0], 4, &arg[0])) return false;
  emit(d, ptx_run_active, FLOW_NEXT, arg, 0);
  return true;
}

bool ptx_decode_redux(PtxDecoder *d) {
  static const char *const modes[] = {"add", "min", "max", "and", "or", "xor", NULL};
  uint32_t arg[PTX_ARGS] = {0};
  PtxType type;
  const PtxOperand *o = d->at->operands;
  if (!is_sync(d)) return false;
  int mode = ptx_take_one(d, modes);
  if (mode < 0) return ptx_decode_error(d, "unknown reduction");
  if (!ptx_take_type(d, &type) || !ptx_all_taken(d) || !ptx_operand_count(d, 3, 3)) return false;
  if ((mode < 3 && type != TYPE_U32 && type != TYPE_S32) || (mode >= 3 && type != TYPE_B32))
    return ptx_decode_error(d, "not of this type");
  if (!ptx_result(d, &o[0], 4, &arg[0]) || !ptx_source(d, &o[1], 4, &arg[1]) ||
      !ptx_source(d, &o[2], 4, &arg[2]))
    return false;
  emit(d, ptx_run_redux, FLOW_CHECK, arg, "+nx&|^"[mode])->flags = type == TYPE_S32;
  return true;
}

/* bar.sync a{, b}; bar.arrive a, b; bar.red.op.type result, a{, b}, predicate; bar.warp.sync mask;
 * and the same with barrier{.cta}, where .aligned is said. */
bool ptx_decode_bar(PtxDecoder *d) {
  uint32_t arg[PTX_ARGS] = {0, 0, 0, PTX_NO_ROW}, n = d->at->noperands;
  const PtxOperand *o = d->at->operands;
  bool is_bar = !strcmp(d->opcode->base, "bar");
  ptx_take(d, "cta");
  if (ptx_take(d, "warp")) {
    if (!is_sync(d) || !ptx_all_taken(d) || !ptx_operand_count(d, 1, 1) ||
        !ptx_source(d, &o[0], 4, &arg[0]))
      return false;
    emit(d, ptx_run_warp_sync, FLOW_CHECK, arg, 0);
    return true;
  }
  bool aligned = ptx_take(d, "aligned") || is_bar;
  if (ptx_take(d, "arrive")) {
    if (!ptx_all_taken(d) || !ptx_operand_count(d, 2, 2) || !ptx_source(d, &o[0], 4, &arg[2]) ||
        !ptx_source(d, &o[1], 4, &arg[3]))
      return false;
    emit(d, ptx_run_arrive, FLOW_CHECK, arg, 0);
    return true;
  }
  int mode = 0;
  if (ptx_take(d, "red")) {
    static const char *const modes[] = {"and", "or", "popc", NULL};
    int which = ptx_take_one(d, modes);
    if (which < 0 || !ptx_take(d, which == 2 ? "u32" : "pred"))
      return ptx_decode_error(d, "unknown reduction");
    mode = "&|+"[which];
    if (!ptx_all_taken(d) || !ptx_operand_count(d, 3, 4) ||
        !ptx_result(d, o++, which == 2 ? 4 : 0, &arg[0]) ||
        !ptx_source(d, &d->at->operands[n - 1], 0, &arg[1]))
      return false;
    n -= 2;
  } else if (!is_sync(d) || !ptx_all_taken(d) || !ptx_operand_count(d, 1, 2)) {
    return false;
  }
  if (!ptx_source(d, &o[0], 4, &arg[2]) || (n == 2 && !ptx_source(d, &o[1], 4, &arg[3])))
    return false;
  emit(d, ptx_run_barrier, FLOW_BARRIER, arg, mode)->flags = aligned;
  return true;
}

/* Fences of a block order nothing that is looked at here; those beyond it make atomics order
 * blocks. */
bool ptx_decode_fence(PtxDecoder *d) {
  static const char *const kinds[] = {"sc", "acq_rel", "acquire", "release", NULL};
  static const char *const wide[] = {"gl", "gpu", "sys", "cluster", NULL};
  if (!strcmp(d->opcode->base, "fence")) {
    if (ptx_take(d, "proxy")) return ptx_decode_error(d, "fences of proxies are not known");
    ptx_take_one(d, kinds);
  }
  if (ptx_take(d, "cta")) return ptx_all_taken(d);
  if (ptx_take_one(d, wide) < 0) return ptx_decode_error(d, "level expected");
  if (!ptx_all_taken(d)) return false;
  ptx_emit(d, ptx_run_fence, FLOW_NEXT);
  return true;
}

/* --- tensor cores ----------------------------------------------------------------------------- */

static bool mma_rows(PtxDecoder *d, const PtxOperand *o, uint32_t n, bool results, uint32_t *rows) {
  const PtxOperand *items = o->kind == OPERAND_VECTOR ? o->items : o;
  uint32_t has = o->kind == OPERAND_VECTOR ? o->nitems : 1;
  if (has != n) return ptx_decode_error(d, "%u registers of an operand, not %u", has, n);
  for (uint32_t i = 0; i < n; i++)
    if (!(results ? ptx_result : ptx_source)(d, &items[i], 4, &rows[i])) return false;
  return true;
}

/* Which k an element type has. */
static bool mma_known(const PtxMma *m) {
  bool half = m->a == TYPE_F16 || m->a == TYPE_BF16, byte = m->a == TYPE_S8 || m->a == TYPE_U8;
  bool same = m->a == m->b || (byte && (m->b == TYPE_S8 || m->b == TYPE_U8));
  bool sums = byte ? m->c == TYPE_S32 && m->d == TYPE_S32
              : m->a == TYPE_F16
                  ? (m->c == TYPE_F32 || m->c == TYPE_F16) && (m->d == TYPE_F32 || m->d == TYPE_F16)
                  : m->c == TYPE_F32 && m->d == TYPE_F32;
  if (!same || !sums) return false;
  if (half) return m->k == 8 || m->k == 16;
  if (byte) return m->k == 16 || m->k == 32;
  return m->a == TYPE_TF32 && (m->k == 4 || m->k == 8);
}

bool ptx_decode_mma(PtxDecoder *d) {
  static const char *const shapes[] = {"m16n8k4", "m16n8k8", "m16n8k16", "m16n8k32", NULL};
  PtxMma *m = ARENA_NEW(d->arena, PtxMma);
  if (!is_sync(d) || !ptx_take(d, "aligned")) return ptx_decode_error(d, ".sync.aligned expected");
  int shape = ptx_take_one(d, shapes);
  if (shape < 0 || !ptx_take(d, "row") || !ptx_take(d, "col"))
    return ptx_decode_error(d, "unknown shape or layout");
  m->k = 4u << shape;
  m->saturate = ptx_take(d, "satfinite");
  if (!ptx_take_first_type(d, &m->d) || !ptx_take_first_type(d, &m->a) ||
      !ptx_take_first_type(d, &m->b) || !ptx_take_first_type(d, &m->c) || !ptx_all_taken(d))
    return false;
  if (!mma_known(m)) return ptx_decode_error(d, "unknown types");
  uint32_t per = m->a == TYPE_TF32 ? 1 : 4u / PTX_TYPE_INFO[m->a].bytes, nb = m->k / (4 * per);
  const PtxOperand *o = d->at->operands;
  if (!ptx_operand_count(d, 4, 4) ||
      !mma_rows(d, &o[0], m->d == TYPE_F16 ? 2 : 4, true, m->rows_d) ||
      !mma_rows(d, &o[1], 2 * nb, false, m->rows_a) || !mma_rows(d, &o[2], nb, false, m->rows_b) ||
      !mma_rows(d, &o[3], m->c == TYPE_F16 ? 2 : 4, false, m->rows_c))
    return false;
  ptx_emit(d, ptx_run_mma, FLOW_CHECK)->imm = (int64_t)(intptr_t)m;
  return true;
}
