/* Decodes loads, stores, atomics and copies. */
#include "ptx_decode.h"

#include <string.h>

#include "ptx_access.h"
#include "ptx_async.h"
#include "ptx_run.h"
#include "ptx_wide.h"

/* Where data may be cached and for how long says nothing about what it is. */
static void take_cache_hints(PtxDecoder *d, uint32_t *extra_operands) {
  static const char *const hints[] = {"ca",
                                      "cg",
                                      "cs",
                                      "lu",
                                      "cv",
                                      "wb",
                                      "wt",
                                      "L1::evict_normal",
                                      "L1::evict_unchanged",
                                      "L1::evict_first",
                                      "L1::evict_last",
                                      "L1::no_allocate",
                                      "L2::64B",
                                      "L2::128B",
                                      "L2::256B",
                                      "L2::evict_first",
                                      "L2::evict_last",
                                      "L2::evict_normal",
                                      NULL};
  *extra_operands = 0;
  while (ptx_take_one(d, hints) >= 0)
    ;
  if (ptx_take(d, "L2::cache_hint")) *extra_operands = 1;
}

static PtxSpace take_space(PtxDecoder *d) {
  static const struct {
    const char *name;
    PtxSpace space;
  } spaces[] = {{"global", SPACE_GLOBAL},      {"shared", SPACE_SHARED},
                {"shared::cta", SPACE_SHARED}, {"local", SPACE_LOCAL},
                {"const", SPACE_CONST},        {"param", SPACE_PARAM},
                {"param::entry", SPACE_PARAM}, {"param::func", SPACE_PARAM}};
  for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
    if (ptx_take(d, spaces[i].name)) return spaces[i].space;
  return SPACE_GENERIC;
}

/* True when accesses of several threads at once are what is meant. */
static bool take_ordering(PtxDecoder *d) {
  static const char *const strong[] = {"volatile", "relaxed", "acquire", "release",
                                       "acq_rel",  "mmio",    NULL};
  static const char *const scopes[] = {"cta", "cluster", "gpu", "sys", NULL};
  ptx_take(d, "weak");
  bool is_strong = ptx_take_one(d, strong) >= 0;
  if (is_strong) ptx_take(d, "global_order");
  ptx_take_one(d, scopes);
  return is_strong;
}

static uint8_t take_vector(PtxDecoder *d) {
  return ptx_take(d, "v2") ? 2 : ptx_take(d, "v4") ? 4 : ptx_take(d, "v8") ? 8 : 1;
}

/* The data's registers: all of one width, at least that of the type. */
static bool data_rows(PtxDecoder *d, const PtxOperand *o, bool results, PtxMemoryForm *form) {
  const PtxOperand *items = form->count == 1 && o->kind != OPERAND_VECTOR ? o : o->items;
  uint32_t n = items == o ? 1 : o->nitems;
  if (n != form->count) return ptx_decode_error(d, "%u registers, not %u", n, form->count);
  uint32_t narrowest = form->bytes < 2 ? 2 : form->bytes;
  form->row_bytes = 0;
  for (uint32_t i = 0; i < n; i++) {
    uint32_t bytes = form->row_bytes ? form->row_bytes : narrowest, row;
    if (results && items[i].kind == OPERAND_SINK) {
      form->data[i] = PTX_NO_ROW;
      continue;
    }
    if (results) {
      if (items[i].kind != OPERAND_NAME || !ptx_register(d, items[i].name, &row, &bytes))
        return ptx_decode_error(d, "register expected");
    } else if (!ptx_source_any(d, &items[i], &bytes, &row)) {
      return false;
    }
    if (bytes < form->bytes || (form->row_bytes && form->row_bytes != bytes))
      return ptx_decode_error(d, "registers of other widths");
    form->data[i] = row;
    form->row_bytes = (uint8_t)bytes;
  }
  if (!form->row_bytes) form->row_bytes = (uint8_t)narrowest;
  return true;
}

static PtxMemoryForm *new_form(PtxDecoder *d, PtxMemoryForm form) {
  PtxMemoryForm *f = ARENA_NEW(d->arena, PtxMemoryForm);
  *f = form;
  return f;
}

static bool begin_access(PtxDecoder *d, PtxMemoryForm *form, uint32_t *extra, bool *strong) {
  PtxType type;
  *strong = take_ordering(d);
  form->space = take_space(d);
  ptx_take(d, "unified");
  take_cache_hints(d, extra);
  form->count = take_vector(d);
  if (!ptx_take_type(d, &type)) return false;
  form->bytes = PTX_TYPE_INFO[type].bytes;
  form->is_signed = PTX_TYPE_INFO[type].kind == 's';
  return form->bytes != 0 || ptx_decode_error(d, "predicates are not in memory");
}

bool ptx_decode_ld(PtxDecoder *d) {
  PtxMemoryForm form = {0};
  uint32_t extra;
  bool strong, constant = ptx_take(d, "nc");
  if (!begin_access(d, &form, &extra, &strong) || !ptx_all_taken(d) ||
      !ptx_operand_count(d, 2 + extra, 2 + extra) ||
      !data_rows(d, &d->at->operands[0], true, &form))
    return false;
  const PtxOperand *address = &d->at->operands[1];
  form.way = constant ? ACCESS_READ_CONSTANT : strong ? ACCESS_ATOMIC_READ : ACCESS_READ;
  const PtxSymbol *param =
      form.space == SPACE_PARAM && address->name ? ptx_symbol(d, address->name) : NULL;
  if (param && param->kind == SYMBOL_PARAM) {
    uint64_t end = (uint64_t)address->value + (uint64_t)form.bytes * form.count;
    if (address->value < 0 || end > param->size)
      return ptx_decode_error(d, "reads behind the end of '%s'", address->name);
    form.offset = (int64_t)param->value + address->value;
    ptx_emit(d, ptx_wide()->load_param, FLOW_NEXT)->memory = new_form(d, form);
    return true;
  }
  if (!ptx_address(d, address, &form)) return false;
  ptx_emit(d, ptx_wide()->load, FLOW_CHECK)->memory = new_form(d, form);
  return true;
}

bool ptx_decode_st(PtxDecoder *d) {
  PtxMemoryForm form = {0};
  uint32_t extra;
  bool strong;
  if (!begin_access(d, &form, &extra, &strong) || !ptx_all_taken(d) ||
      !ptx_operand_count(d, 2 + extra, 2 + extra) ||
      !data_rows(d, &d->at->operands[1], false, &form) ||
      !ptx_address(d, &d->at->operands[0], &form))
    return false;
  form.way = strong ? ACCESS_ATOMIC_WRITE : ACCESS_WRITE;
  ptx_emit(d, ptx_wide()->store, FLOW_CHECK)->memory = new_form(d, form);
  return true;
}

/* --- atomics ---------------------------------------------------------------------------------- */

static bool atomic_fits(PtxAtomic how, PtxType type) {
  char kind = PTX_TYPE_INFO[type].kind;
  uint32_t bytes = PTX_TYPE_INFO[type].bytes;
  switch (how) {
  case ATOMIC_CAS:
  case ATOMIC_EXCH:
    return kind != 'f' && kind != 'h' && (bytes >= 4 || (bytes == 2 && how == ATOMIC_CAS));
  case ATOMIC_AND:
  case ATOMIC_OR:
  case ATOMIC_XOR:
    return kind == 'b' && bytes >= 4;
  case ATOMIC_INC:
  case ATOMIC_DEC:
    return type == TYPE_U32;
  case ATOMIC_ADD:
    if (type == TYPE_F32 || type == TYPE_F64) return true; /* fall through */
  case ATOMIC_MIN:
  case ATOMIC_MAX:
    if (type == TYPE_F16 || type == TYPE_BF16 || type == TYPE_F16X2 || type == TYPE_BF16X2)
      return true;
    return (kind == 'u' || kind == 's') && bytes >= 4;
  }
  return false;
}

static bool decode_atomic(PtxDecoder *d, bool returns) {
  static const char *const names[] = {"add", "cas", "exch", "min", "max", "and",
                                      "or",  "xor", "inc",  "dec", NULL};
  PtxMemoryForm form = {.count = 1, .way = ACCESS_ATOMIC};
  uint32_t extra;
  PtxType type;
  take_ordering(d);
  form.space = take_space(d);
  take_cache_hints(d, &extra);
  ptx_take(d, "noftz");
  int how = ptx_take_one(d, names);
  if (how < 0) return ptx_decode_error(d, "unknown operation");
  if (!ptx_take_type(d, &type) || !ptx_all_taken(d)) return false;
  if (!atomic_fits((PtxAtomic)how, type)) return ptx_decode_error(d, "not of this type");
  form.bytes = PTX_TYPE_INFO[type].bytes;
  uint32_t n = (returns ? 2u : 1u) + (how == ATOMIC_CAS ? 2 : 1),
           arg[3] = {PTX_NO_ROW, 0, PTX_NO_ROW};
  const PtxOperand *o = d->at->operands;
  if (!ptx_operand_count(d, n + extra, n + extra)) return false;
  if (returns && !ptx_result(d, o++, form.bytes, &arg[0])) return false;
  if (!ptx_address(d, o++, &form) || !ptx_source(d, o++, form.bytes, &arg[1])) return false;
  if (how == ATOMIC_CAS && !ptx_source(d, o, form.bytes, &arg[2])) return false;
  PtxOp *op = ptx_emit(d, ptx_run_atomic, FLOW_CHECK);
  op->memory = new_form(d, form);
  memcpy(op->arg, arg, sizeof arg);
  op->mode = (uint8_t)how;
  op->flags = (uint16_t)type;
  return true;
}

bool ptx_decode_atom(PtxDecoder *d) {
  return decode_atomic(d, true);
}

bool ptx_decode_red(PtxDecoder *d) {
  return decode_atomic(d, false);
}

/* --- copies ----------------------------------------------------------------------------------- */

/* cp.async.{ca,cg}.shared.global [to], [from], bytes{, bytes read}{, hint}; commit_group, wait_*.
 */
bool ptx_decode_cp(PtxDecoder *d) {
  if (!ptx_take(d, "async")) return ptx_decode_error(d, "only cp.async is known");
  if (ptx_take(d, "commit_group")) {
    if (!ptx_all_taken(d) || !ptx_operand_count(d, 0, 0)) return false;
    ptx_emit(d, ptx_run_async_commit, FLOW_NEXT);
    return true;
  }
  bool all = ptx_take(d, "wait_all");
  if (all || ptx_take(d, "wait_group")) {
    int64_t keep = -1;
    if (!ptx_all_taken(d) || !ptx_operand_count(d, all ? 0 : 1, all ? 0 : 1)) return false;
    if (!all && !ptx_immediate(d, &d->at->operands[0], &keep)) return false;
    ptx_emit(d, ptx_run_async_wait, FLOW_NEXT)->imm = keep;
    return true;
  }
  PtxMemoryForm form = {.count = 1}, to = {.space = SPACE_SHARED};
  uint32_t hint, size = PTX_NO_ROW;
  int64_t bytes;
  take_cache_hints(d, &hint);
  if ((!ptx_take(d, "shared") && !ptx_take(d, "shared::cta")) || !ptx_take(d, "global"))
    return ptx_decode_error(d, "from global to shared memory expected");
  form.space = SPACE_GLOBAL;
  const PtxOperand *o = d->at->operands;
  if (!ptx_all_taken(d) || !ptx_operand_count(d, 3 + hint, 4 + hint)) return false;
  if (!ptx_address(d, &o[0], &to) || !ptx_address(d, &o[1], &form) ||
      !ptx_immediate(d, &o[2], &bytes))
    return false;
  if (bytes != 4 && bytes != 8 && bytes != 16) return ptx_decode_error(d, "4, 8 or 16 bytes");
  if (d->at->noperands - hint == 4) {
    uint32_t width = 4;
    if (!ptx_source_any(d, &o[3], &width, &size)) return false;
    if (width != 4) return ptx_decode_error(d, "the size that is read has 32 bits");
  }
  PtxOp *op = ptx_emit(d, ptx_run_async_copy, FLOW_CHECK);
  op->memory = new_form(d, form);
  op->arg[0] = to.address;
  op->arg[1] = size;
  op->arg[2] = (uint32_t)bytes;
  op->arg[3] = (uint32_t)to.offset;
  op->arg[4] = to.address_wide;
  return true;
}

/* --- matrices --------------------------------------------------------------------------------- */

static bool decode_matrix(PtxDecoder *d, bool loads) {
  PtxMemoryForm form = {.space = SPACE_GENERIC, .bytes = 4, .row_bytes = 4};
  static const char *const counts[] = {"x1", "x2", "x4", NULL};
  if (!ptx_take(d, "sync") || !ptx_take(d, "aligned") || !ptx_take(d, "m8n8"))
    return ptx_decode_error(d, ".sync.aligned.m8n8 expected");
  int count = ptx_take_one(d, counts);
  bool transposed = ptx_take(d, "trans");
  form.space = take_space(d);
  if (count < 0 || !ptx_take(d, "b16") || !ptx_all_taken(d) || !ptx_operand_count(d, 2, 2))
    return ptx_decode_error(d, ".x1, .x2 or .x4 of .b16 expected");
  form.count = (uint8_t)(1u << count);
  const PtxOperand *o = d->at->operands;
  if (!data_rows(d, &o[loads ? 0 : 1], loads, &form) || !ptx_address(d, &o[loads ? 1 : 0], &form))
    return false;
  if (form.row_bytes != 4) return ptx_decode_error(d, "registers of 32 bits expected");
  for (uint32_t i = 0; i < form.count; i++)
    if (form.data[i] == PTX_NO_ROW) form.data[i] = ptx_new_row(d, 4);
  PtxOp *op = ptx_emit(d, loads ? ptx_run_ldmatrix : ptx_run_stmatrix, FLOW_CHECK);
  op->memory = new_form(d, form);
  op->mode = transposed;
  return true;
}

bool ptx_decode_ldmatrix(PtxDecoder *d) {
  return decode_matrix(d, true);
}

bool ptx_decode_stmatrix(PtxDecoder *d) {
  return decode_matrix(d, false);
}

/* --- the rest --------------------------------------------------------------------------------- */

/* Prefetches do nothing that can be seen, also at addresses that are no one's. */
bool ptx_decode_prefetch(PtxDecoder *d) {
  static const char *const levels[] = {"L1", "L2", NULL};
  uint32_t extra;
  PtxMemoryForm form = {.space = take_space(d)};
  take_cache_hints(d, &extra);
  if (ptx_take_one(d, levels) < 0 && d->opcode->nmodifiers == 0)
    return ptx_decode_error(d, "level expected");
  return ptx_all_taken(d) && ptx_operand_count(d, 1, 1) &&
         ptx_address(d, &d->at->operands[0], &form);
}

static void run_isspacep(PtxWarp *w, const PtxOp *op) {
  uint32_t m = 0, *p = PTX_ROW(w, uint32_t, op->arg[0]);
  const uint64_t *address = PTX_ROW(w, uint64_t, op->arg[1]);
  PtxBlock *b = w->block;
  for (uint32_t i = 0; i < PTX_LANES; i++) {
    bool shared = ptx_region_of(w, SPACE_SHARED, address[i]) != NULL;
    bool local = ptx_region_of(w, SPACE_LOCAL, address[i]) != NULL;
    bool param = ptx_region_of(w, SPACE_PARAM, address[i]) != NULL;
    const PtxRegion *other = ptx_memory_find(b->memory, address[i]);
    bool constant = other && other->read_only;
    bool is[] = {
        [SPACE_GENERIC] = false,  [SPACE_GLOBAL] = !shared && !local && !param && !constant,
        [SPACE_SHARED] = shared,  [SPACE_LOCAL] = local,
        [SPACE_CONST] = constant, [SPACE_PARAM] = param};
    m |= (uint32_t)is[op->mode] << i;
  }
  *p = (*p & ~w->mask) | (m & w->mask);
}

bool ptx_decode_isspacep(PtxDecoder *d) {
  PtxSpace space = take_space(d);
  uint32_t arg[2];
  if (!ptx_all_taken(d) || !ptx_operand_count(d, 2, 2) ||
      !ptx_result(d, &d->at->operands[0], 0, &arg[0]) ||
      !ptx_source(d, &d->at->operands[1], 8, &arg[1]))
    return false;
  PtxOp *op = ptx_emit(d, run_isspacep, FLOW_NEXT);
  op->arg[0] = arg[0];
  op->arg[1] = arg[1];
  op->mode = (uint8_t)space;
  return true;
}
