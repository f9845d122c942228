/* Decodes what computes in registers, and branches. */
#include "ptx_decode.h"

#include <stdio.h>
#include <string.h>

#include "ptx_number.h"
#include "ptx_run.h"

static const PtxTypeInfo *info_of(PtxType type) {
  return &PTX_TYPE_INFO[type];
}

/* --- rows of ptx_ops.def ---------------------------------------------------------------------- */

static const struct {
  const char *name;
  uint16_t flag; /* 0: the default of all rows that round */
} FLAGS[] = {
    {"ftz", PTX_FTZ}, {"sat", PTX_SAT}, {"relu", PTX_RELU}, {"rz", PTX_RZ}, {"rm", PTX_RM},
    {"rp", PTX_RP},   {"rn", 0},        {"approx", 0},      {"full", 0},
};

/* Base and modifiers that were not taken, joined by dots. */
static const PtxRow *find_row(PtxDecoder *d) {
  char name[128];
  bool whole = true;
  for (uint32_t i = 0; i < d->opcode->nmodifiers; i++) whole &= !d->taken[i];
  if (whole) return name_map_get(&d->names->rows, d->at->name);
  if (strlen(d->at->name) >= sizeof name) return NULL; /* of which the name is a part */
  char *end = stpcpy(name, d->opcode->base);
  for (uint32_t i = 0; i < d->opcode->nmodifiers; i++) {
    if (d->taken[i]) continue;
    *end++ = '.';
    end = stpcpy(end, d->opcode->modifier[i]);
  }
  return ptx_row_named(d, name);
}

/* The row of the instruction, whole or without flags, which are then returned. */
static const PtxRow *row_with_flags(PtxDecoder *d, uint16_t *flags) {
  *flags = 0;
  const PtxRow *row = find_row(d);
  if (row) return row;
  bool any = false;
  for (size_t i = 0; i < sizeof FLAGS / sizeof *FLAGS; i++)
    if (ptx_take(d, FLAGS[i].name)) {
      *flags |= FLAGS[i].flag;
      any = true;
    }
  row = any ? find_row(d) : NULL;
  if (!row) {
    ptx_decode_error(d, "unknown opcode, modifier or type");
    return NULL;
  }
  if (!row->flagged || *flags & ~row->allowed) {
    ptx_decode_error(d, "modifier that this type does not take");
    return NULL;
  }
  return row;
}

static bool emit_row(PtxDecoder *d, const PtxRow *row, uint16_t flags) {
  uint32_t arg[PTX_ARGS] = {0};
  if (!ptx_operand_count(d, row->noperands + 1u, row->noperands + 1u)) return false;
  if (!ptx_result(d, &d->at->operands[0], row->result, &arg[0])) return false;
  for (uint32_t i = 0; i < row->noperands; i++)
    if (!ptx_source(d, &d->at->operands[i + 1], row->operand[i], &arg[i + 1])) return false;
  PtxOp *op = ptx_emit(d, flags ? row->flagged : row->run, FLOW_NEXT);
  op->flags = flags;
  memcpy(op->arg, arg, sizeof arg);
  return true;
}

bool ptx_decode_lanes(PtxDecoder *d) {
  uint16_t flags;
  const PtxRow *row = row_with_flags(d, &flags);
  if (row && row->compare) return ptx_decode_error(d, "unknown opcode");
  return row && emit_row(d, row, flags);
}

/* A row found by its name. */
static const PtxRow *named_row(PtxDecoder *d, const char *name) {
  const PtxRow *row = ptx_row_named(d, name);
  if (!row) ptx_decode_error(d, "unknown type");
  return row;
}

/* selp and slct look at bits only; selp.pred does not exist. */
bool ptx_decode_selp(PtxDecoder *d) {
  char name[40];
  bool slct = !strcmp(d->opcode->base, "slct");
  PtxType by = TYPE_PRED, type;
  ptx_take(d, "ftz"); /* a subnormal is as good as a zero: what counts is the sign */
  if (slct && !ptx_take_type(d, &by)) return false;
  if (!ptx_take_type(d, &type) || !ptx_all_taken(d)) return false;
  if (slct)
    snprintf(name, sizeof name, "slct.b%u.%s", 8u * info_of(type)->bytes, info_of(by)->name);
  else
    snprintf(name, sizeof name, "selp.b%u", 8u * info_of(type)->bytes);
  const PtxRow *row = named_row(d, name);
  return row && emit_row(d, row, 0);
}

/* and or xor not of predicates are one word; of others rows. */
bool ptx_decode_logic(PtxDecoder *d) {
  if (d->opcode->nmodifiers != 1 || strcmp(d->opcode->modifier[0], "pred"))
    return ptx_decode_lanes(d);
  bool inverts = !strcmp(d->opcode->base, "not");
  uint32_t n = inverts ? 2 : 3, arg[3] = {0};
  if (!ptx_operand_count(d, n, n) || !ptx_result(d, &d->at->operands[0], 0, &arg[0])) return false;
  for (uint32_t i = 1; i < n; i++)
    if (!ptx_source(d, &d->at->operands[i], 0, &arg[i])) return false;
  PtxOp *op = ptx_emit(d, ptx_run_logic, FLOW_NEXT);
  memcpy(op->arg, arg, sizeof arg);
  op->mode = (uint8_t)d->opcode->base[0]; /* a o x n */
  return true;
}

/* --- moves ------------------------------------------------------------------------------------ */

/* Elements of a vector operand as rows of equal width: a register or, for sources, a constant. */
static bool vector_rows(PtxDecoder *d, const PtxOperand *o, uint32_t bytes, bool results,
                        uint32_t *rows) {
  for (uint32_t i = 0; i < o->nitems; i++)
    if (!(results ? ptx_result : ptx_source)(d, &o->items[i], bytes, &rows[i])) return false;
  return true;
}

static bool decode_pack(PtxDecoder *d, uint32_t bytes) {
  const PtxOperand *to = &d->at->operands[0], *from = &d->at->operands[1];
  bool unpacks = to->kind == OPERAND_VECTOR;
  const PtxOperand *many = unpacks ? to : from, *one = unpacks ? from : to;
  uint32_t rows[PTX_ARGS] = {0}, n = many->nitems;
  if ((n != 2 && n != 4) || bytes % n || bytes / n < 2)
    return ptx_decode_error(d, "a vector of %u elements in %u bits", n, 8 * bytes);
  bool ok = unpacks ? ptx_source(d, one, bytes, &rows[0]) : ptx_result(d, one, bytes, &rows[0]);
  if (!ok || !vector_rows(d, many, bytes / n, unpacks, rows + 1)) return false;
  PtxOp *op = ptx_emit(d, unpacks ? ptx_run_unpack : ptx_run_pack, FLOW_NEXT);
  memcpy(op->arg, rows, sizeof rows);
  op->mode = (uint8_t)(bytes / n);
  op->target = n;
  return true;
}

bool ptx_decode_mov(PtxDecoder *d) {
  PtxType type;
  char name[16];
  if (!ptx_take_type(d, &type) || !ptx_all_taken(d) || !ptx_operand_count(d, 2, 2)) return false;
  uint32_t bytes = info_of(type)->bytes;
  const PtxOperand *to = &d->at->operands[0], *from = &d->at->operands[1];
  if (to->kind == OPERAND_VECTOR || from->kind == OPERAND_VECTOR) return decode_pack(d, bytes);
  if (from->kind == OPERAND_NAME &&
      (!strcmp(from->name, "%clock") || !strcmp(from->name, "%clock64") ||
       !strcmp(from->name, "%globaltimer") || !strcmp(from->name, "%clock_hi"))) {
    uint32_t row;
    if (bytes < 4) return ptx_decode_error(d, "too narrow for a clock");
    if (!ptx_result(d, to, bytes, &row)) return false;
    PtxOp *op = ptx_emit(d, ptx_run_clock, FLOW_CHECK);
    op->arg[0] = row;
    op->mode = (uint8_t)bytes;
    return true;
  }
  if (type == TYPE_PRED) {
    uint32_t arg[2];
    if (!ptx_result(d, to, 0, &arg[0]) || !ptx_source(d, from, 0, &arg[1])) return false;
    PtxOp *op = ptx_emit(d, ptx_run_logic, FLOW_NEXT);
    op->arg[0] = arg[0];
    op->arg[1] = op->arg[2] = arg[1];
    op->mode = 'a';
    return true;
  }
  snprintf(name, sizeof name, "mov.b%u", 8 * bytes);
  const PtxRow *row = named_row(d, name);
  return row && emit_row(d, row, 0);
}

/* Between generic addresses and those of a space: only shared memory has its own. */
bool ptx_decode_cvta(PtxDecoder *d) {
  static const char *const spaces[] = {"global",       "local",  "const",       "param",
                                       "param::entry", "shared", "shared::cta", NULL};
  bool to = ptx_take(d, "to");
  int space = ptx_take_one(d, spaces);
  PtxType type;
  if (space < 0) return ptx_decode_error(d, "space expected");
  if (!ptx_take_type(d, &type) || !ptx_all_taken(d) || !ptx_operand_count(d, 2, 2)) return false;
  if (type != TYPE_U64) return ptx_decode_error(d, "addresses have 64 bits");
  if (space < 5) {
    const PtxRow *row = named_row(d, "mov.b64");
    return row && emit_row(d, row, 0);
  }
  const PtxRow *row = named_row(d, to ? "sub.u64" : "add.u64");
  uint32_t arg[2];
  if (!row || !ptx_result(d, &d->at->operands[0], 8, &arg[0]) ||
      !ptx_source(d, &d->at->operands[1], 8, &arg[1]))
    return false;
  uint32_t window = ptx_special_row(d, SPECIAL_SHARED_WINDOW);
  PtxOp *op = ptx_emit(d, row->run, FLOW_NEXT);
  op->arg[0] = arg[0];
  op->arg[1] = arg[1];
  op->arg[2] = window;
  return true;
}

/* --- conversions ------------------------------------------------------------------------------ */

static uint16_t take_rounding(PtxDecoder *d) {
  static const struct {
    const char *name;
    uint16_t flags;
  } roundings[] = {
      {"rn", 0},
      {"rna", PTX_RNA},
      {"rz", PTX_RZ},
      {"rm", PTX_RM},
      {"rp", PTX_RP},
      {"rni", PTX_INTEGRAL},
      {"rzi", PTX_INTEGRAL | PTX_RZ},
      {"rmi", PTX_INTEGRAL | PTX_RM},
      {"rpi", PTX_INTEGRAL | PTX_RP},
  };
  for (size_t i = 0; i < sizeof roundings / sizeof *roundings; i++)
    if (ptx_take(d, roundings[i].name)) return roundings[i].flags;
  return 0;
}

/* Two floats into one register of halves, or of f8: the first one goes up. */
static bool decode_cvt_pair(PtxDecoder *d, PtxType to, PtxType from, uint16_t flags) {
  uint32_t arg[3];
  if (!ptx_operand_count(d, 3, 3) ||
      !ptx_result(d, &d->at->operands[0], info_of(to)->bytes, &arg[0]) ||
      !ptx_source(d, &d->at->operands[1], info_of(from)->bytes, &arg[1]) ||
      !ptx_source(d, &d->at->operands[2], info_of(from)->bytes, &arg[2]))
    return false;
  if (from == TYPE_F32 && !flags && (to == TYPE_F16X2 || to == TYPE_BF16X2)) {
    const PtxRow *row = named_row(d, to == TYPE_F16X2 ? "cvt.f16x2.f32" : "cvt.bf16x2.f32");
    return row && emit_row(d, row, 0);
  }
  PtxOp *op = ptx_emit(d, ptx_run_convert_pair, FLOW_NEXT);
  memcpy(op->arg, arg, sizeof arg);
  op->arg[3] = to;
  op->arg[4] = from;
  op->flags = flags;
  return true;
}

bool ptx_decode_cvt(PtxDecoder *d) {
  PtxType to, from;
  uint16_t flags = take_rounding(d);
  if (ptx_take(d, "ftz")) flags |= PTX_FTZ;
  if (ptx_take(d, "sat")) flags |= PTX_SAT;
  if (ptx_take(d, "relu")) flags |= PTX_RELU;
  if (ptx_take(d, "satfinite")) flags |= PTX_SATFINITE;
  if (!ptx_take_first_type(d, &to) || !ptx_take_first_type(d, &from) || !ptx_all_taken(d))
    return false;
  if (info_of(to)->kind == 'h' && from == TYPE_F32) return decode_cvt_pair(d, to, from, flags);
  if (!ptx_convert_known(to, from)) return ptx_decode_error(d, "conversion is not known");
  if (!ptx_operand_count(d, 2, 2)) return false;
  const PtxOperand *o = d->at->operands;
  uint32_t to_row, to_bytes, from_row, from_bytes = info_of(from)->bytes;
  if (o[0].kind != OPERAND_NAME || !ptx_register(d, o[0].name, &to_row, &to_bytes))
    return ptx_decode_error(d, "the result must be a register");
  if (!ptx_source_any(d, &o[1], &from_bytes, &from_row)) return false;
  if (to_bytes < info_of(to)->bytes || from_bytes < info_of(from)->bytes)
    return ptx_decode_error(d, "a register is too narrow");
  const PtxRow *row = name_map_get(&d->names->rows, d->at->name); /* with its modifiers */
  char name[40];
  snprintf(name, sizeof name, "cvt.%s.%s", info_of(to)->name, info_of(from)->name);
  if (!row && !flags) row = ptx_row_named(d, name);
  if (row && (row->result != to_bytes || row->operand[0] != from_bytes)) row = NULL;
  PtxOp *op = ptx_emit(d, row ? row->run : ptx_run_convert, FLOW_NEXT);
  op->arg[0] = to_row;
  op->arg[1] = from_row;
  op->arg[2] = to;
  op->arg[3] = from;
  op->arg[4] = to_bytes;
  op->arg[5] = from_bytes;
  op->flags = flags;
  return true;
}

/* --- comparisons ------------------------------------------------------------------------------ */

/* The comparison that the first modifier names; halves in pairs are compared as halves. */
static const PtxRow *take_compare(PtxDecoder *d, PtxType type) {
  char name[40];
  const char *of = info_of(type)->name;
  char bits[8];
  if (info_of(type)->kind == 'b') {
    snprintf(bits, sizeof bits, "u%u", 8u * info_of(type)->bytes);
    of = bits;
  }
  if (type == TYPE_F16X2) of = "f16";
  if (type == TYPE_BF16X2) of = "bf16";
  snprintf(name, sizeof name, "%s.%s", d->opcode->modifier[0], of);
  d->taken[0] = true;
  const PtxRow *row = ptx_row_named(d, name);
  if (row && row->compare) return row;
  ptx_decode_error(d, "comparison '.%s' of this type is not known", d->opcode->modifier[0]);
  return NULL;
}

static uint8_t take_combination(PtxDecoder *d) {
  static const char *const names[] = {"and", "or", "xor", NULL};
  int which = ptx_take_one(d, names);
  return which < 0 ? 0 : (uint8_t)names[which][0];
}

bool ptx_decode_setp(PtxDecoder *d) {
  PtxType type;
  if (!ptx_take_type(d, &type)) return false;
  const PtxRow *row = take_compare(d, type);
  if (!row) return false;
  uint8_t mode = take_combination(d);
  bool ftz = ptx_take(d, "ftz"), halves = info_of(type)->kind == 'h';
  uint32_t n = mode ? 4 : 3, arg[PTX_ARGS] = {0, PTX_NO_ROW};
  const PtxOperand *o = d->at->operands;
  if (!ptx_all_taken(d) || !ptx_operand_count(d, n, n)) return false;
  const PtxOperand *p = o[0].kind == OPERAND_PAIR ? o[0].items : o;
  if (!ptx_result(d, &p[0], 0, &arg[0])) return false;
  if (o[0].kind == OPERAND_PAIR && !ptx_result(d, &p[1], 0, &arg[1])) return false;
  for (uint32_t i = 0; i < 2; i++)
    if (!ptx_source(d, &o[1 + i], info_of(type)->bytes, &arg[2 + i])) return false;
  if (mode && !ptx_source(d, &o[3], 0, &arg[4])) return false;
  PtxOp *op = ptx_emit(d, halves ? ptx_run_setp_halves : ptx_run_setp, FLOW_NEXT);
  memcpy(op->arg, arg, sizeof arg);
  op->compare = row->compare;
  op->mode = mode;
  op->flags = ftz ? PTX_FTZ : 0;
  return true;
}

/* set.compare.result.type: a whole register instead of a predicate. */
bool ptx_decode_set(PtxDecoder *d) {
  PtxType type, result;
  if (!ptx_take_type(d, &type) || !ptx_take_type(d, &result)) return false;
  const PtxRow *row = take_compare(d, type);
  if (!row) return false;
  uint8_t mode = take_combination(d);
  bool ftz = ptx_take(d, "ftz"), halves = info_of(type)->kind == 'h';
  uint32_t n = mode ? 4 : 3, arg[PTX_ARGS] = {0};
  uint64_t yes = info_of(result)->kind == 'u' || info_of(result)->kind == 's' ? UINT32_MAX
                 : result == TYPE_F32                                         ? 0x3f800000
                 : result == TYPE_F16 || result == TYPE_F16X2                 ? 0x3c00
                                                                              : 0x3f80;
  if (result == TYPE_F64 || info_of(result)->kind == 'b' || info_of(result)->bytes < 2)
    return ptx_decode_error(d, "results of this type are not known");
  if (halves != (info_of(result)->kind == 'h') && halves)
    return ptx_decode_error(d, "pairs compare into pairs");
  if (!ptx_all_taken(d) || !ptx_operand_count(d, n, n) ||
      !ptx_result(d, &d->at->operands[0], info_of(result)->bytes, &arg[0]))
    return false;
  for (uint32_t i = 0; i < 2; i++)
    if (!ptx_source(d, &d->at->operands[1 + i], info_of(type)->bytes, &arg[2 + i])) return false;
  if (mode && !ptx_source(d, &d->at->operands[3], 0, &arg[4])) return false;
  PtxOp *op = ptx_emit(d, halves ? ptx_run_set_halves : ptx_run_set, FLOW_NEXT);
  memcpy(op->arg, arg, sizeof arg);
  op->arg[1] = info_of(result)->bytes;
  op->arg[5] = (uint32_t)yes;
  op->compare = row->compare;
  op->mode = mode;
  op->flags = ftz ? PTX_FTZ : 0;
  return true;
}

bool ptx_decode_testp(PtxDecoder *d) {
  static const char *const tests[] = {"finite", "infinite",  "number", "notanumber",
                                      "normal", "subnormal", NULL};
  PtxType type;
  int test = ptx_take_one(d, tests);
  if (test < 0) return ptx_decode_error(d, "unknown test");
  if (!ptx_take_type(d, &type) || !ptx_all_taken(d) || !ptx_operand_count(d, 2, 2)) return false;
  if (type != TYPE_F32 && type != TYPE_F64) return ptx_decode_error(d, "f32 or f64 expected");
  uint32_t arg[2];
  if (!ptx_result(d, &d->at->operands[0], 0, &arg[0]) ||
      !ptx_source(d, &d->at->operands[1], info_of(type)->bytes, &arg[1]))
    return false;
  PtxOp *op = ptx_emit(d, ptx_run_testp, FLOW_NEXT);
  op->arg[0] = arg[0];
  op->arg[1] = arg[1];
  op->mode = (uint8_t)test;
  op->flags = type == TYPE_F64;
  return true;
}

/* --- carries ---------------------------------------------------------------------------------- */

/* add sub mad with .cc, addc subc madc; without any of it they are rows. */
bool ptx_decode_carry(PtxDecoder *d) {
  bool in = d->opcode->base[3] == 'c', out = ptx_take(d, "cc"), wide, high = false;
  if (!in && !out) return ptx_decode_lanes(d);
  PtxType type;
  bool is_mad = d->opcode->base[0] == 'm';
  if (is_mad) {
    high = ptx_take(d, "hi");
    if (!high && !ptx_take(d, "lo")) return ptx_decode_error(d, ".lo or .hi expected");
  }
  if (!ptx_take_type(d, &type) || !ptx_all_taken(d)) return false;
  uint32_t bytes = info_of(type)->bytes, n = is_mad ? 4 : 3, arg[PTX_ARGS] = {0};
  wide = bytes == 8;
  if (bytes < 4 || strchr("us", info_of(type)->kind) == NULL)
    return ptx_decode_error(d, "carries are of 32 or 64 bits");
  if (!ptx_operand_count(d, n, n) || !ptx_result(d, &d->at->operands[0], bytes, &arg[0]))
    return false;
  for (uint32_t i = 1; i < n; i++)
    if (!ptx_source(d, &d->at->operands[i], bytes, &arg[i])) return false;
  PtxRun *run = wide ? ptx_run_carry64 : ptx_run_carry32;
  PtxOp *op = ptx_emit(d, run, FLOW_NEXT);
  memcpy(op->arg, arg, sizeof arg);
  op->mode = (uint8_t)(!is_mad ? d->opcode->base[0] : high ? 'h' : 'l');
  op->target = info_of(type)->kind == 's';
  op->flags = (uint16_t)((in ? PTX_CARRY_IN : 0) | (out ? PTX_CARRY_OUT : 0));
  return true;
}

/* --- control ---------------------------------------------------------------------------------- */

bool ptx_decode_bra(PtxDecoder *d) {
  ptx_take(d, "uni");
  if (!ptx_all_taken(d) || !ptx_operand_count(d, 1, 1)) return false;
  if (d->at->operands[0].kind != OPERAND_NAME) return ptx_decode_error(d, "label expected");
  ptx_emit(d, NULL, FLOW_BRANCH);
  ptx_branch_to(d, d->ops.len - 1, NULL, d->at->operands[0].name);
  return true;
}

bool ptx_decode_brx(PtxDecoder *d) {
  ptx_take(d, "uni");
  if (!ptx_take(d, "idx") || !ptx_all_taken(d) || !ptx_operand_count(d, 2, 2))
    return ptx_decode_error(d, "brx.idx index, table expected");
  uint32_t index;
  const PtxStatement *list = NULL;
  if (!ptx_source(d, &d->at->operands[0], 4, &index)) return false;
  if (d->at->operands[1].kind == OPERAND_NAME)
    for (PtxScope *s = d->scope; s && !list; s = s->outer)
      list = name_map_get(&s->tables, d->at->operands[1].name);
  if (!list) return ptx_decode_error(d, ".branchtargets are not known");
  uint32_t *targets = ARENA_ARRAY(d->arena, uint32_t, list->noperands + 1);
  PtxOp *op = ptx_emit(d, NULL, FLOW_SWITCH);
  op->arg[0] = index;
  op->targets = targets;
  op->target = list->noperands;
  for (uint32_t i = 0; i < list->noperands; i++)
    ptx_branch_to(d, d->ops.len - 1, &targets[i], list->operands[i].name);
  return true;
}

bool ptx_decode_ret(PtxDecoder *d) {
  ptx_take(d, "uni");
  if (!ptx_all_taken(d)) return false;
  ptx_emit(d, NULL, d->end_label ? FLOW_BRANCH : FLOW_EXIT);
  if (d->end_label) ptx_branch_to(d, d->ops.len - 1, NULL, d->end_label);
  return true;
}

bool ptx_decode_exit(PtxDecoder *d) {
  if (!ptx_all_taken(d)) return false;
  ptx_emit(d, NULL, FLOW_EXIT);
  return true;
}

bool ptx_decode_trap(PtxDecoder *d) {
  if (!ptx_all_taken(d)) return false;
  ptx_emit(d, ptx_run_trap, FLOW_CHECK);
  return true;
}

/* nanosleep and the like: time only. */
bool ptx_decode_nothing(PtxDecoder *d) {
  PtxType type;
  return ptx_take_type(d, &type) && ptx_all_taken(d);
}

/* Variables of the caller that stand in a list of a call. */
static const PtxSymbol *call_arguments(PtxDecoder *d, const PtxOperand *list,
                                       const PtxVariables *formal) {
  if (list->nitems != formal->len) {
    ptx_decode_error(d, "%u arguments, not %u", list->nitems, formal->len);
    return NULL;
  }
  PtxSymbol *out = ARENA_ARRAY(d->arena, PtxSymbol, list->nitems + 1);
  for (uint32_t i = 0; i < list->nitems; i++) {
    const PtxOperand *o = &list->items[i];
    const PtxSymbol *symbol = o->kind == OPERAND_NAME ? ptx_symbol(d, o->name) : NULL;
    if (!symbol || symbol->kind != SYMBOL_LOCAL || symbol->size < formal->data[i].bytes) {
      ptx_decode_error(d, "argument %u must be a .param variable of %llu bytes", i + 1,
                       (unsigned long long)formal->data[i].bytes);
      return NULL;
    }
    out[i] = *symbol;
  }
  return out;
}

bool ptx_decode_call(PtxDecoder *d) {
  ptx_take(d, "uni");
  if (!ptx_all_taken(d) || !ptx_operand_count(d, 1, 3)) return false;
  static const PtxOperand none = {.kind = OPERAND_LIST};
  const PtxOperand *o = d->at->operands, *end = o + d->at->noperands;
  const PtxOperand *results = o->kind == OPERAND_LIST ? o++ : &none;
  if (o == end || o->kind != OPERAND_NAME)
    return ptx_decode_error(d, "a function by name expected (indirect calls are not supported)");
  const char *name = (o++)->name;
  const PtxOperand *params = o < end && o->kind == OPERAND_LIST ? o++ : &none;
  if (o != end)
    return ptx_decode_error(d, "calls of '%s' through a prototype are not supported", name);
  if (!strcmp(name, "__assertfail")) {
    PtxOp *op = ptx_emit(d, ptx_run_trap, FLOW_CHECK);
    op->mode = 1;
    return true;
  }
  const PtxRoutine *callee = NULL;
  for (uint32_t i = 0; i < d->tree->routines.len; i++) {
    const PtxRoutine *r = &d->tree->routines.data[i];
    if (r->name == name && r->body && !r->entry) callee = r;
  }
  if (!callee) return ptx_decode_error(d, "function '%s' has no body here", name);
  const PtxSymbol *to = call_arguments(d, results, &callee->results);
  const PtxSymbol *from = to ? call_arguments(d, params, &callee->params) : NULL;
  if (!from) return false;
  uint32_t skip = PTX_NO_ROW;
  if (d->guard != PTX_NO_ROW) { /* lanes that do not call go around the body */
    PtxOp *op = ptx_emit(d, NULL, FLOW_BRANCH);
    op->guard_negated = !op->guard_negated;
    skip = d->ops.len - 1;
  }
  if (!ptx_inline(d, callee, to, from)) return false;
  if (skip != PTX_NO_ROW) d->ops.data[skip].target = d->ops.len;
  return true;
}
