/* The tree of a kernel -> operations. Calls are inlined, names become rows and addresses, labels
 * numbers of operations. Instructions are looked up by opcode in the table here; what it does not
 * have must be a row of ptx_ops.def, and a modifier that nobody takes is an error. */
#include "ptx_decode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const PtxTypeInfo PTX_TYPE_INFO[TYPE_COUNT] = {
#define X(id, name, bytes, kind) {name, bytes, kind},
    PTX_TYPES(X)
#undef X
};

static const struct {
  const char *base;
  PtxDecode *decode;
} INSTRUCTIONS[] = {
    {"mov", ptx_decode_mov},
    {"cvt", ptx_decode_cvt},
    {"cvta", ptx_decode_cvta},
    {"setp", ptx_decode_setp},
    {"set", ptx_decode_set},
    {"and", ptx_decode_logic},
    {"or", ptx_decode_logic},
    {"xor", ptx_decode_logic},
    {"not", ptx_decode_logic},
    {"selp", ptx_decode_selp},
    {"slct", ptx_decode_selp},
    {"testp", ptx_decode_testp},
    {"addc", ptx_decode_carry},
    {"subc", ptx_decode_carry},
    {"madc", ptx_decode_carry},
    {"add", ptx_decode_carry},
    {"sub", ptx_decode_carry},
    {"mad", ptx_decode_carry},
    {"ld", ptx_decode_ld},
    {"ldu", ptx_decode_ld},
    {"st", ptx_decode_st},
    {"atom", ptx_decode_atom},
    {"red", ptx_decode_red},
    {"cp", ptx_decode_cp},
    {"ldmatrix", ptx_decode_ldmatrix},
    {"stmatrix", ptx_decode_stmatrix},
    {"prefetch", ptx_decode_prefetch},
    {"prefetchu", ptx_decode_prefetch},
    {"isspacep", ptx_decode_isspacep},
    {"bra", ptx_decode_bra},
    {"brx", ptx_decode_brx},
    {"call", ptx_decode_call},
    {"ret", ptx_decode_ret},
    {"exit", ptx_decode_exit},
    {"trap", ptx_decode_trap},
    {"brkpt", ptx_decode_trap},
    {"nanosleep", ptx_decode_nothing},
    {"bar", ptx_decode_bar},
    {"barrier", ptx_decode_bar},
    {"membar", ptx_decode_fence},
    {"fence", ptx_decode_fence},
    {"shfl", ptx_decode_shfl},
    {"vote", ptx_decode_vote},
    {"match", ptx_decode_match},
    {"activemask", ptx_decode_activemask},
    {"redux", ptx_decode_redux},
    {"mma", ptx_decode_mma},
};

bool ptx_decode_error(PtxDecoder *d, const char *format, ...) {
  char what[300];
  va_list ap;
  va_start(ap, format);
  vsnprintf(what, sizeof what, format, ap);
  va_end(ap);
  return ptx_error(d->error, d->at->line, "'%s': %s", d->at->name, what);
}

/* --- modifiers
 * ------------------------------------------------------------------------------------ */

static bool split(PtxDecoder *d) {
  const char *dot = strchr(d->at->name, '.');
  size_t n = dot ? (size_t)(dot - d->at->name) : strlen(d->at->name);
  if (n >= sizeof d->base) return ptx_decode_error(d, "unknown opcode");
  memcpy(d->base, d->at->name, n);
  d->base[n] = 0;
  d->nmodifiers = 0;
  memset(d->taken, 0, sizeof d->taken);
  while (dot) {
    const char *begin = dot + 1;
    dot = strchr(begin, '.');
    n = dot ? (size_t)(dot - begin) : strlen(begin);
    if (d->nmodifiers == PTX_MODIFIERS || n >= sizeof d->modifier[0])
      return ptx_decode_error(d, "too many modifiers");
    memcpy(d->modifier[d->nmodifiers], begin, n);
    d->modifier[d->nmodifiers++][n] = 0;
  }
  return true;
}

bool ptx_take(PtxDecoder *d, const char *modifier) {
  for (uint32_t i = 0; i < d->nmodifiers; i++)
    if (!d->taken[i] && !strcmp(d->modifier[i], modifier)) return d->taken[i] = true;
  return false;
}

int ptx_take_one(PtxDecoder *d, const char *const *list) {
  for (int i = 0; list[i]; i++)
    if (ptx_take(d, list[i])) return i;
  return -1;
}

static bool type_of(const char *word, PtxType *type) {
  for (int t = 0; t < TYPE_COUNT; t++)
    if (!strcmp(PTX_TYPE_INFO[t].name, word)) {
      *type = (PtxType)t;
      return true;
    }
  return false;
}

bool ptx_take_type(PtxDecoder *d, PtxType *type) {
  for (uint32_t i = d->nmodifiers; i-- > 0;)
    if (!d->taken[i] && type_of(d->modifier[i], type)) return d->taken[i] = true;
  return ptx_decode_error(d, "type expected");
}

bool ptx_take_first_type(PtxDecoder *d, PtxType *type) {
  for (uint32_t i = 0; i < d->nmodifiers; i++)
    if (!d->taken[i] && type_of(d->modifier[i], type)) return d->taken[i] = true;
  return ptx_decode_error(d, "type expected");
}

bool ptx_all_taken(PtxDecoder *d) {
  for (uint32_t i = 0; i < d->nmodifiers; i++)
    if (!d->taken[i])
      return ptx_decode_error(d, "modifier '.%s' is not known here", d->modifier[i]);
  return true;
}

bool ptx_operand_count(PtxDecoder *d, uint32_t at_least, uint32_t at_most) {
  if (d->at->noperands >= at_least && d->at->noperands <= at_most) return true;
  return ptx_decode_error(d, "%u operands, not %u", d->at->noperands, at_least);
}

/* --- names
 * ----------------------------------------------------------------------------------------- */

static uint32_t aligned(uint32_t offset, uint32_t align) {
  return (offset + align - 1) / align * align;
}

uint32_t ptx_new_row(PtxDecoder *d, uint32_t bytes) {
  uint32_t row = d->rows_bytes;
  d->rows_bytes += bytes ? PTX_LANES * bytes : 64;
  return row;
}

static PtxSymbol *new_symbol(PtxDecoder *d, PtxSymbol symbol) {
  PtxSymbol *s = ARENA_NEW(d->arena, PtxSymbol);
  *s = symbol;
  return s;
}

/* A .shared variable gets its place when the kernel first names it. */
static const PtxSymbol *place_shared(PtxDecoder *d, const PtxVariable *v) {
  PtxSymbol *known = name_map_get(&d->shared, v->name);
  if (known) return known;
  PtxSymbol symbol = {.kind = SYMBOL_DYNAMIC, .size = v->bytes};
  if (!v->unsized) {
    d->shared_bytes = aligned(d->shared_bytes, v->align);
    symbol = (PtxSymbol){
        .kind = SYMBOL_SHARED, .value = PTX_SHARED_BEGIN + d->shared_bytes, .size = v->bytes};
    d->shared_bytes += (uint32_t)v->bytes;
  } else if (v->align > d->shared_align) {
    d->shared_align = v->align;
  }
  known = new_symbol(d, symbol);
  name_map_put(d->arena, &d->shared, v->name, known);
  return known;
}

static bool declare(PtxDecoder *d, const PtxVariable *v) {
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
    name_map_put(d->arena, &d->scope->symbols, v->name, (void *)(uintptr_t)place_shared(d, v));
    return true;
  case SPACE_LOCAL:
  case SPACE_PARAM: /* of a call */
    symbol.kind = SYMBOL_LOCAL;
    d->local_bytes = aligned(d->local_bytes, v->align < 8 ? 8 : v->align);
    symbol.value = d->local_bytes;
    d->local_bytes += (uint32_t)v->bytes;
    break;
  case SPACE_GENERIC:
  case SPACE_GLOBAL:
  case SPACE_CONST:
    return ptx_error(d->error, v->line, "variable '%s' of this space inside of a function",
                     v->name);
  }
  name_map_put(d->arena, &d->scope->symbols, v->name, new_symbol(d, symbol));
  return true;
}

/* A register of a range by its number. */
static const PtxSymbol *find_in_range(PtxDecoder *d, const char *name) {
  size_t n = strlen(name), digits = 0;
  while (digits < n && name[n - digits - 1] >= '0' && name[n - digits - 1] <= '9') digits++;
  if (!digits || digits > 9 || digits == n) return NULL;
  const char *prefix = intern_n(&d->module->names, name, n - digits);
  uint32_t number = (uint32_t)strtoul(name + n - digits, NULL, 10);
  for (PtxScope *s = d->scope; s; s = s->is_routine ? NULL : s->outer) {
    const PtxSymbol *range = name_map_get(&s->symbols, prefix);
    if (!range || range->kind != SYMBOL_REGISTER || number >= range->count) continue;
    PtxSymbol *one = new_symbol(d, *range);
    one->row += number * range->row_step;
    one->count = 0;
    name_map_put(d->arena, &s->symbols, name, one);
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
  const PtxTree *tree = &d->module->tree;
  for (uint32_t i = 0; i < tree->variables.len; i++) {
    const PtxVariable *v = &tree->variables.data[i];
    if (v->name == name && v->space == SPACE_SHARED) return place_shared(d, v);
  }
  for (uint32_t i = 0; i < d->module->globals.len; i++) {
    const PtxGlobal *g = &d->module->globals.data[i];
    if (g->name == name)
      return new_symbol(d, (PtxSymbol){.kind = SYMBOL_GLOBAL,
                                       .value = (uint64_t)(uintptr_t)g->address,
                                       .size = g->bytes});
  }
  return NULL;
}

/* --- operands
 * -------------------------------------------------------------------------------------- */

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
  id_map_put(d->arena, &d->constant_rows[which], bits, row);
  VEC_PUSH(d->arena, &d->constants, (PtxConstant){row, bytes, bits});
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
  const PtxRow *row = name_map_get(d->rows_by_name, intern(&d->module->names, name));
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

/* --- code
 * ------------------------------------------------------------------------------------------ */

PtxOp *ptx_emit(PtxDecoder *d, PtxRun *run, PtxFlow flow) {
  VEC_PUSH(
      d->arena, &d->ops,
      (PtxOp){
          .run = run, .flow = (uint8_t)flow, .guard = d->guard, .guard_negated = d->guard_negated});
  VEC_PUSH(d->arena, &d->places, (PtxPlace){d->at->line, d->at->file, d->at->loc});
  return &d->ops.data[d->ops.len - 1];
}

void ptx_branch_to(PtxDecoder *d, uint32_t op, uint32_t *target, const char *label) {
  VEC_PUSH(d->arena, &d->scope->fixups, (PtxFixup){label, op, target, d->at->line});
}

static void open_scope(PtxDecoder *d, bool is_routine) {
  PtxScope *scope = ARENA_NEW(d->arena, PtxScope);
  scope->outer = d->scope;
  scope->is_routine = is_routine;
  d->scope = scope;
}

/* Labels of the scope are known now; a branch out of it is left to the one around it. */
static bool close_scope(PtxDecoder *d) {
  PtxScope *scope = d->scope;
  for (uint32_t i = 0; i < scope->fixups.len; i++) {
    const PtxFixup *f = &scope->fixups.data[i];
    uintptr_t place = (uintptr_t)name_map_get(&scope->labels, f->label);
    if (place && f->target)
      *f->target = (uint32_t)(place - 1);
    else if (place)
      d->ops.data[f->op].target = (uint32_t)(place - 1);
    else if (scope->is_routine)
      return ptx_error(d->error, f->line, "label '%s' is not known", f->label);
    else
      VEC_PUSH(d->arena, &scope->outer->fixups, *f);
  }
  d->scope = scope->outer;
  return true;
}

static bool decode_instruction(PtxDecoder *d, const PtxStatement *s) {
  d->at = s;
  d->guard = PTX_NO_ROW;
  d->guard_negated = s->guard_negated;
  if (!split(d)) return false;
  if (s->guard) {
    uint32_t bytes;
    if (!ptx_register(d, s->guard, &d->guard, &bytes) || bytes)
      return ptx_decode_error(d, "'%s' is no predicate", s->guard);
  }
  for (size_t i = 0; i < sizeof INSTRUCTIONS / sizeof *INSTRUCTIONS; i++)
    if (!strcmp(INSTRUCTIONS[i].base, d->base)) return INSTRUCTIONS[i].decode(d);
  return ptx_decode_lanes(d);
}

static bool decode_body(PtxDecoder *d, const PtxRoutine *routine) {
  for (uint32_t i = 0; i < routine->statements.len; i++) {
    const PtxStatement *s = &routine->statements.data[i];
    d->at = s;
    switch (s->kind) {
    case STATEMENT_INSTRUCTION:
      if (!decode_instruction(d, s)) return false;
      break;
    case STATEMENT_LABEL:
      name_map_put(d->arena, &d->scope->labels, s->name, (void *)(uintptr_t)(d->ops.len + 1));
      break;
    case STATEMENT_VARIABLE:
      if (!declare(d, &s->variable)) return false;
      break;
    case STATEMENT_TARGETS:
      name_map_put(d->arena, &d->scope->tables, s->name, (void *)(uintptr_t)s);
      break;
    case STATEMENT_OPEN:
      open_scope(d, false);
      break;
    case STATEMENT_CLOSE:
      if (!close_scope(d)) return false;
      break;
    }
  }
  return true;
}

bool ptx_inline(PtxDecoder *d, const PtxRoutine *routine, const PtxSymbol *results,
                const PtxSymbol *params) {
  if (d->ncalls == sizeof d->calls / sizeof *d->calls)
    return ptx_decode_error(d, "calls nest too deeply");
  for (uint32_t i = 0; i < d->ncalls; i++)
    if (d->calls[i] == routine->name)
      return ptx_decode_error(d, "'%s' calls itself: recursion is not supported", routine->name);
  const PtxStatement *call = d->at;
  const char *end_label = d->end_label;
  d->calls[d->ncalls++] = routine->name;
  open_scope(d, true);
  for (uint32_t i = 0; i < routine->results.len; i++)
    name_map_put(d->arena, &d->scope->symbols, routine->results.data[i].name,
                 new_symbol(d, results[i]));
  for (uint32_t i = 0; i < routine->params.len; i++)
    name_map_put(d->arena, &d->scope->symbols, routine->params.data[i].name,
                 new_symbol(d, params[i]));
  d->end_label = intern(&d->module->names, " end");
  if (!decode_body(d, routine)) return false;
  name_map_put(d->arena, &d->scope->labels, d->end_label, (void *)(uintptr_t)(d->ops.len + 1));
  if (!close_scope(d)) return false;
  d->end_label = end_label;
  d->ncalls--;
  d->at = call;
  return true;
}

/* --- entries
 * ----------------------------------------------------------------------------------------- */

static void place_params(PtxDecoder *d, PtxInfo *info) {
  const PtxVariables *list = &d->entry->params;
  PtxParam *params = ARENA_ARRAY(d->arena, PtxParam, list->len + 1);
  uint32_t offset = 0;
  for (uint32_t i = 0; i < list->len; i++) {
    const PtxVariable *v = &list->data[i];
    offset = aligned(offset, v->align);
    params[i] = (PtxParam){offset, (uint32_t)v->bytes, v->align};
    name_map_put(
        d->arena, &d->scope->symbols, v->name,
        new_symbol(d, (PtxSymbol){.kind = SYMBOL_PARAM, .value = offset, .size = v->bytes}));
    offset += (uint32_t)v->bytes;
  }
  info->nparams = list->len;
  info->params = params;
  info->param_bytes = offset;
}

bool ptx_decode(PtxModule *module, const NameMap *rows_by_name, const PtxRoutine *routine,
                PtxFunction *out, PtxError *error) {
  PtxStatement nowhere = {.line = routine->line, .name = routine->name};
  PtxDecoder d = {.module = module,
                  .error = error,
                  .arena = &module->arena,
                  .rows_by_name = rows_by_name,
                  .entry = routine,
                  .shared_align = 16,
                  .guard = PTX_NO_ROW,
                  .at = &nowhere};
  for (int i = 0; i < SPECIAL_COUNT; i++) d.special[i] = PTX_NO_ROW;
  PtxInfo *info = &out->info;
  info->name = routine->name;
  open_scope(&d, true);
  place_params(&d, info);
  d.calls[d.ncalls++] = routine->name;
  if (!decode_body(&d, routine)) return false;
  d.at = &nowhere;
  d.guard = PTX_NO_ROW;
  ptx_emit(&d, NULL, FLOW_EXIT); /* labels at the end stand before something */
  if (!close_scope(&d)) return false;
  ptx_flow_mark(d.ops.data, d.ops.len);
  out->module = module;
  out->ops = d.ops.data;
  out->places = d.places.data;
  out->nops = d.ops.len;
  out->rows_bytes = d.rows_bytes;
  out->constants = d.constants.data;
  out->nconstants = d.constants.len;
  memcpy(out->special, d.special, sizeof out->special);
  info->shared_bytes = d.special[SPECIAL_DYNAMIC_SHARED] == PTX_NO_ROW
                           ? d.shared_bytes
                           : aligned(d.shared_bytes, d.shared_align);
  info->local_bytes = d.local_bytes;
  info->registers = d.rows_bytes / (PTX_LANES * 8);
  info->max_threads = 1024;
  memcpy(info->required, routine->required, sizeof info->required);
  const uint32_t *most = routine->required[0] ? routine->required : routine->max_threads;
  if (most[0]) info->max_threads = most[0] * most[1] * most[2];
  return true;
}
