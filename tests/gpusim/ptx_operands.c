/* Names and operands of instructions -> rows and addresses. */
#include "ptx_decode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- names ------------------------------------------------------------------------------------ */

uint32_t ptx_aligned(uint32_t offset, uint32_t align) {
  return (offset + align - 1) / align * align;
}

uint32_t ptx_new_row(PtxDecoder *d, uint32_t bytes) {
  uint32_t row = d->rows_bytes;
  d->rows_bytes += bytes ? PTX_LANES * bytes : 64;
  return row;
}

PtxSymbol *ptx_new_symbol(PtxDecoder *d, PtxSymbol symbol) {
  PtxSymbol *s = ARENA_NEW(d->scratch, PtxSymbol);
  *s = symbol;
  return s;
}

/* A .shared variable gets its place when the kernel first names it. */
static const PtxSymbol *place_shared(PtxDecoder *d, const PtxVariable *v) {
  PtxSymbol *known = name_map_get(&d->shared, v->name);
  if (known) return known;
  PtxSymbol symbol = {.kind = SYMBOL_DYNAMIC, .size = v->bytes};
  if (!v->unsized) {
    d->shared_bytes = ptx_aligned(d->shared_bytes, v->align);
    symbol = (PtxSymbol){
        .kind = SYMBOL_SHARED, .value = PTX_SHARED_BEGIN + d->shared_bytes, .size = v->bytes};
    d->shared_bytes += (uint32_t)v->bytes;
  } else if (v->align > d->shared_align) {
    d->shared_align = v->align;
  }
  known = ptx_new_symbol(d, symbol);
  name_map_put(d->scratch, &d->shared, v->name, known);
  return known;
}

bool ptx_declare(PtxDecoder *d, const PtxVariable *v) {
  PtxSymbol symbol = {.size = v->bytes};
  switch (v->space) {
  case SPACE_REGISTER:
    symbol.kind = SYMBOL_REGISTER;
    symbol.bytes = v->element == 1 ? 2 : v->element;
    symbol.count = v->count;
    symbol.row = ptx_new_row(d, symbol.bytes);
    symbol.row_step = d->rows_bytes - symbol.row;
    for (uint32_t i = 1; i < v->count; i++) ptx_new_row(d, symbol.bytes);
    break;
  case SPACE_SHARED:
    name_map_put(d->scratch, &d->scope->symbols, v->name, (void *)(uintptr_t)place_shared(d, v));
    return true;
  case SPACE_LOCAL:
  case SPACE_PARAM: /* of a call */
    symbol.kind = SYMBOL_LOCAL;
    d->local_bytes = ptx_aligned(d->local_bytes, v->align < 8 ? 8 : v->align);
    symbol.value = d->local_bytes;
    d->local_bytes += (uint32_t)v->bytes;
    break;
  case SPACE_GENERIC:
  case SPACE_GLOBAL:
  case SPACE_CONST:
    return ptx_error(d->error, v->line, "variable '%s' of this space inside of a function",
                     v->name);
  }
  name_map_put(d->scratch, &d->scope->symbols, v->name, ptx_new_symbol(d, symbol));
  return true;
}

/* A register of a range by its number. */
static const PtxSymbol *find_in_range(PtxDecoder *d, const char *name) {
  size_t n = strlen(name), digits = 0;
  while (digits < n && name[n - digits - 1] >= '0' && name[n - digits - 1] <= '9') digits++;
  if (!digits || digits > 9 || digits == n) return NULL;
  const char *prefix = intern_n(&d->names->interner, name, n - digits);
  uint32_t number = (uint32_t)strtoul(name + n - digits, NULL, 10);
  for (PtxScope *s = d->scope; s; s = s->is_routine ? NULL : s->outer) {
    const PtxSymbol *range = name_map_get(&s->symbols, prefix);
    if (!range || range->kind != SYMBOL_REGISTER || number >= range->count) continue;
    PtxSymbol *one = ptx_new_symbol(d, *range);
    one->row += number * range->row_step;
    one->count = 0;
    name_map_put(d->scratch, &s->symbols, name, one);
    return one;
  }
  return NULL;
}

const PtxSymbol *ptx_symbol(PtxDecoder *d, const char *name) {
  for (PtxScope *s = d->scope; s; s = s->is_routine ? NULL : s->outer) {
    const PtxSymbol *symbol = name_map_get(&s->symbols, name);
    if (symbol) return symbol;
  }
  const PtxSymbol *symbol = find_in_range(d, name);
  if (symbol) return symbol;
  const PtxTree *tree = d->tree;
  for (uint32_t i = 0; i < tree->variables.len; i++) {
    const PtxVariable *v = &tree->variables.data[i];
    if (v->name == name && v->space == SPACE_SHARED) return place_shared(d, v);
  }
  for (uint32_t i = 0; i < d->module->globals.len; i++) {
    const PtxGlobal *g = &d->module->globals.data[i];
    if (g->name == name)
      return ptx_new_symbol(d, (PtxSymbol){.kind = SYMBOL_GLOBAL,
                                           .value = (uint64_t)(uintptr_t)g->address,
                                           .size = g->bytes});
  }
  return NULL;
}

/* --- operands --------------------------------------------------------------------------------- */

static const struct {
  const char *name;
  PtxSpecial special;
} SPECIALS[] = {
    {"%tid.x", SPECIAL_TID_X},
    {"%tid.y", SPECIAL_TID_Y},
    {"%tid.z", SPECIAL_TID_Z},
    {"%ntid.x", SPECIAL_NTID_X},
    {"%ntid.y", SPECIAL_NTID_Y},
    {"%ntid.z", SPECIAL_NTID_Z},
    {"%ctaid.x", SPECIAL_CTAID_X},
    {"%ctaid.y", SPECIAL_CTAID_Y},
    {"%ctaid.z", SPECIAL_CTAID_Z},
    {"%nctaid.x", SPECIAL_NCTAID_X},
    {"%nctaid.y", SPECIAL_NCTAID_Y},
    {"%nctaid.z", SPECIAL_NCTAID_Z},
    {"%laneid", SPECIAL_LANEID},
    {"%warpid", SPECIAL_WARPID},
    {"%nwarpid", SPECIAL_NWARPID},
    {"%smid", SPECIAL_ZERO},
    {"%gridid", SPECIAL_ZERO},
    {"%nsmid", SPECIAL_ONE},
    {"%lanemask_eq", SPECIAL_LANEMASK_EQ},
    {"%lanemask_le", SPECIAL_LANEMASK_LE},
    {"%lanemask_lt", SPECIAL_LANEMASK_LT},
    {"%lanemask_ge", SPECIAL_LANEMASK_GE},
    {"%lanemask_gt", SPECIAL_LANEMASK_GT},
    {"%dynamic_smem_size", SPECIAL_DYNAMIC_SHARED_SIZE},
    {"%total_smem_size", SPECIAL_TOTAL_SHARED_SIZE},
};

uint32_t ptx_special_row(PtxDecoder *d, PtxSpecial special) {
  if (d->special[special] == PTX_NO_ROW) d->special[special] = ptx_new_row(d, 8);
  return d->special[special];
}

uint32_t ptx_constant(PtxDecoder *d, uint64_t bits, uint32_t bytes) {
  uint32_t which = bytes == 0 ? 0 : bytes == 2 ? 1 : bytes == 4 ? 2 : 3, row;
  if (bytes && bytes < 8) bits &= ((uint64_t)1 << 8 * bytes) - 1;
  if (id_map_get(&d->constant_rows[which], bits, &row)) return row;
  row = ptx_new_row(d, bytes);
  id_map_put(d->scratch, &d->constant_rows[which], bits, row);
  VEC_PUSH(d->scratch, &d->constants, (PtxConstant){row, bytes, bits});
  return row;
}

bool ptx_register(PtxDecoder *d, const char *name, uint32_t *row, uint32_t *bytes) {
  const PtxSymbol *symbol = ptx_symbol(d, name);
  if (!symbol || symbol->kind != SYMBOL_REGISTER || symbol->count) return false;
  *row = symbol->row;
  *bytes = symbol->bytes;
  return true;
}

/* A helper of the instruction at hand: without its guard, in front of it. */
static PtxOp *emit_helper(PtxDecoder *d, const char *name) {
  const PtxRow *row = ptx_row_named(d, name);
  uint32_t guard = d->guard;
  d->guard = PTX_NO_ROW;
  PtxOp *op = ptx_emit(d, row ? row->run : NULL, FLOW_NEXT);
  d->guard = guard;
  return op;
}

static void run_not_pred(PtxWarp *w, const PtxOp *op) {
  *PTX_ROW(w, uint32_t, op->arg[0]) = ~*PTX_ROW(w, uint32_t, op->arg[1]);
}

/* base + offset in a row of 64 bits. */
static uint32_t offset_row(PtxDecoder *d, uint32_t base, uint64_t offset) {
  if (!offset) return base;
  uint32_t row = ptx_new_row(d, 8), add = ptx_constant(d, offset, 8);
  PtxOp *op = emit_helper(d, "add.u64");
  op->arg[0] = row;
  op->arg[1] = base;
  op->arg[2] = add;
  return row;
}

/* Row of 64 bits with the address of a variable, as its own space counts. */
static bool address_row(PtxDecoder *d, const PtxSymbol *symbol, int64_t offset, uint32_t *row) {
  switch (symbol->kind) {
  case SYMBOL_SHARED:
  case SYMBOL_GLOBAL:
    *row = ptx_constant(d, symbol->value + (uint64_t)offset, 8);
    return true;
  case SYMBOL_DYNAMIC:
    *row = offset_row(d, ptx_special_row(d, SPECIAL_DYNAMIC_SHARED), (uint64_t)offset);
    return true;
  case SYMBOL_LOCAL:
    *row = offset_row(d, ptx_special_row(d, SPECIAL_LOCAL), symbol->value + (uint64_t)offset);
    return true;
  case SYMBOL_PARAM:
    *row = offset_row(d, ptx_special_row(d, SPECIAL_PARAM), symbol->value + (uint64_t)offset);
    return true;
  case SYMBOL_REGISTER:
    break;
  }
  return false;
}

static bool constant_operand(PtxDecoder *d, const PtxOperand *o, uint32_t bytes, uint32_t *row) {
  uint64_t bits = (uint64_t)o->value;
  if (o->kind == OPERAND_F32 && bytes != 4)
    return ptx_decode_error(d, "a constant of 32 bits where %u are expected", 8 * bytes);
  if (o->kind == OPERAND_F64 && bytes == 4) {
    double value;
    memcpy(&value, &bits, sizeof value);
    float narrow = (float)value;
    uint32_t narrow_bits;
    memcpy(&narrow_bits, &narrow, sizeof narrow);
    bits = narrow_bits;
  } else if (o->kind == OPERAND_F64 && bytes != 8) {
    return ptx_decode_error(d, "a constant of 64 bits where %u are expected", 8 * bytes);
  }
  *row = ptx_constant(d, bits, bytes);
  return true;
}

bool ptx_source_any(PtxDecoder *d, const PtxOperand *o, uint32_t *bytes, uint32_t *row) {
  switch (o->kind) {
  case OPERAND_INTEGER:
  case OPERAND_F32:
  case OPERAND_F64:
    return constant_operand(d, o, *bytes, row);
  case OPERAND_NAME:
    break;
  case OPERAND_SINK:
  case OPERAND_VECTOR:
  case OPERAND_ADDRESS:
  case OPERAND_PAIR:
  case OPERAND_LIST:
    return ptx_decode_error(d, "register or constant expected");
  }
  if (ptx_register(d, o->name, row, bytes)) {
    if (!o->negated) return true;
    if (*bytes) return ptx_decode_error(d, "'!' before '%s', which is no predicate", o->name);
    uint32_t inverse = ptx_new_row(d, 0);
    PtxOp *op = emit_helper(d, "");
    op->run = run_not_pred;
    op->arg[0] = inverse;
    op->arg[1] = *row;
    *row = inverse;
    return true;
  }
  for (size_t i = 0; i < sizeof SPECIALS / sizeof *SPECIALS; i++)
    if (!strcmp(SPECIALS[i].name, o->name)) {
      *row = ptx_special_row(d, SPECIALS[i].special);
      *bytes = 4;
      return true;
    }
  if (!strcmp(o->name, "WARP_SZ")) {
    *row = ptx_constant(d, PTX_LANES, *bytes);
    return true;
  }
  const PtxSymbol *symbol = ptx_symbol(d, o->name);
  if (!symbol || symbol->kind == SYMBOL_REGISTER)
    return ptx_decode_error(d, "'%s' is not known", o->name);
  if (*bytes == 4 && symbol->kind == SYMBOL_SHARED) {
    *row = ptx_constant(d, symbol->value + (uint64_t)o->value, 4);
    return true;
  }
  if (*bytes == 4 && symbol->kind == SYMBOL_DYNAMIC) {
    uint32_t wide = offset_row(d, ptx_special_row(d, SPECIAL_DYNAMIC_SHARED), (uint64_t)o->value);
    *row = ptx_new_row(d, 4);
    PtxOp *op = emit_helper(d, "cvt.u32.u64");
    op->arg[0] = *row;
    op->arg[1] = wide;
    return true;
  }
  *bytes = 8;
  return address_row(d, symbol, o->value, row);
}

static const char *width_name(uint32_t bytes, char *text, size_t size) {
  if (!bytes) return "a predicate";
  snprintf(text, size, "%u bits", 8 * bytes);
  return text;
}

bool ptx_source(PtxDecoder *d, const PtxOperand *o, uint32_t bytes, uint32_t *row) {
  uint32_t found = bytes;
  char has[20], wants[20];
  if (!ptx_source_any(d, o, &found, row)) return false;
  if (found == bytes) return true;
  return ptx_decode_error(d, "operand '%s' has %s, not %s", o->name ? o->name : "?",
                          width_name(found, has, sizeof has),
                          width_name(bytes, wants, sizeof wants));
}

bool ptx_result(PtxDecoder *d, const PtxOperand *o, uint32_t bytes, uint32_t *row) {
  uint32_t found;
  char has[20], wants[20];
  if (o->kind == OPERAND_SINK) {
    *row = ptx_new_row(d, bytes);
    return true;
  }
  if (o->kind != OPERAND_NAME || !ptx_register(d, o->name, row, &found))
    return ptx_decode_error(d, "the result must be a register");
  if (found == bytes) return true;
  return ptx_decode_error(d, "register '%s' has %s, not %s", o->name,
                          width_name(found, has, sizeof has),
                          width_name(bytes, wants, sizeof wants));
}

bool ptx_address(PtxDecoder *d, const PtxOperand *o, PtxMemoryForm *form) {
  if (o->kind != OPERAND_ADDRESS) return ptx_decode_error(d, "[address] expected");
  form->offset = o->value;
  form->address_wide = true;
  if (!o->name) {
    form->address = ptx_constant(d, 0, 8);
    return true;
  }
  uint32_t bytes;
  if (ptx_register(d, o->name, &form->address, &bytes)) {
    if (bytes < 4) return ptx_decode_error(d, "'%s' is too narrow for an address", o->name);
    form->address_wide = bytes == 8;
    return true;
  }
  const PtxSymbol *symbol = ptx_symbol(d, o->name);
  if (!symbol) return ptx_decode_error(d, "'%s' is not known", o->name);
  static const PtxSpace spaces[] = {[SYMBOL_SHARED] = SPACE_SHARED,
                                    [SYMBOL_DYNAMIC] = SPACE_SHARED,
                                    [SYMBOL_LOCAL] = SPACE_LOCAL,
                                    [SYMBOL_GLOBAL] = SPACE_GLOBAL,
                                    [SYMBOL_PARAM] = SPACE_PARAM};
  if (form->space == SPACE_GENERIC || form->space == SPACE_PARAM)
    form->space = spaces[symbol->kind];
  if (symbol->kind == SYMBOL_LOCAL || symbol->kind == SYMBOL_PARAM) {
    PtxSpecial base = symbol->kind == SYMBOL_LOCAL ? SPECIAL_LOCAL : SPECIAL_PARAM;
    form->address = ptx_special_row(d, base);
    form->offset += (int64_t)symbol->value;
    return true;
  }
  return address_row(d, symbol, 0, &form->address);
}

bool ptx_immediate(PtxDecoder *d, const PtxOperand *o, int64_t *value) {
  *value = o->value;
  return o->kind == OPERAND_INTEGER || ptx_decode_error(d, "constant expected");
}
