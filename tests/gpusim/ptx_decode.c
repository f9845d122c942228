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

const PtxRow *ptx_row_named(PtxDecoder *d, const char *name) {
  return name_map_get(&d->names->rows, intern(&d->names->interner, name));
}

/* --- modifiers -------------------------------------------------------------------------------- */

/* Takes an opcode apart; NULL when it is too long for any. */
static PtxOpcode *split(PtxNames *names, const char *opcode) {
  PtxOpcode *o = ARENA_NEW(&names->arena, PtxOpcode);
  const char *dot = strchr(opcode, '.');
  size_t n = dot ? (size_t)(dot - opcode) : strlen(opcode);
  if (n >= sizeof o->base) return NULL;
  memcpy(o->base, opcode, n);
  while (dot) {
    const char *begin = dot + 1;
    dot = strchr(begin, '.');
    n = dot ? (size_t)(dot - begin) : strlen(begin);
    if (o->nmodifiers == PTX_MODIFIERS || n >= sizeof o->modifier[0]) return NULL;
    memcpy(o->modifier[o->nmodifiers++], begin, n);
  }
  o->decode = ptx_decode_lanes;
  for (size_t i = 0; i < sizeof INSTRUCTIONS / sizeof *INSTRUCTIONS; i++)
    if (!strcmp(INSTRUCTIONS[i].base, o->base)) o->decode = INSTRUCTIONS[i].decode;
  name_map_put(&names->arena, &names->opcodes, opcode, o);
  return o;
}

/* Most words differ in the first letter already. */
static bool same(const char *a, const char *b) {
  return *a == *b && !strcmp(a, b);
}

bool ptx_take(PtxDecoder *d, const char *modifier) {
  for (uint32_t i = 0; i < d->opcode->nmodifiers; i++)
    if (!d->taken[i] && same(d->opcode->modifier[i], modifier)) return d->taken[i] = true;
  return false;
}

int ptx_take_one(PtxDecoder *d, const char *const *list) {
  for (int i = 0; list[i]; i++)
    if (ptx_take(d, list[i])) return i;
  return -1;
}

static bool type_of(const char *word, PtxType *type) {
  for (int t = 0; t < TYPE_COUNT; t++)
    if (same(PTX_TYPE_INFO[t].name, word)) {
      *type = (PtxType)t;
      return true;
    }
  return false;
}

bool ptx_take_type(PtxDecoder *d, PtxType *type) {
  for (uint32_t i = d->opcode->nmodifiers; i-- > 0;)
    if (!d->taken[i] && type_of(d->opcode->modifier[i], type)) return d->taken[i] = true;
  return ptx_decode_error(d, "type expected");
}

bool ptx_take_first_type(PtxDecoder *d, PtxType *type) {
  for (uint32_t i = 0; i < d->opcode->nmodifiers; i++)
    if (!d->taken[i] && type_of(d->opcode->modifier[i], type)) return d->taken[i] = true;
  return ptx_decode_error(d, "type expected");
}

bool ptx_all_taken(PtxDecoder *d) {
  for (uint32_t i = 0; i < d->opcode->nmodifiers; i++)
    if (!d->taken[i])
      return ptx_decode_error(d, "modifier '.%s' is not known here", d->opcode->modifier[i]);
  return true;
}

bool ptx_operand_count(PtxDecoder *d, uint32_t at_least, uint32_t at_most) {
  if (d->at->noperands >= at_least && d->at->noperands <= at_most) return true;
  return ptx_decode_error(d, "%u operands, not %u", d->at->noperands, at_least);
}

/* --- code ------------------------------------------------------------------------------------- */

PtxOp *ptx_emit(PtxDecoder *d, PtxRun *run, PtxFlow flow) {
  VEC_PUSH(
      d->scratch, &d->ops,
      (PtxOp){
          .run = run, .flow = (uint8_t)flow, .guard = d->guard, .guard_negated = d->guard_negated});
  const PtxStatement *at = d->at;
  VEC_PUSH(d->scratch, &d->places,
           (PtxPlace){at->line, at->file, at->loc, at->outer_file, at->outer_loc});
  return &d->ops.data[d->ops.len - 1];
}

void ptx_branch_to(PtxDecoder *d, uint32_t op, uint32_t *target, const char *label) {
  VEC_PUSH(d->scratch, &d->scope->fixups, (PtxFixup){label, op, target, d->at->line});
}

static void open_scope(PtxDecoder *d, bool is_routine) {
  PtxScope *scope = ARENA_NEW(d->scratch, PtxScope);
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
      VEC_PUSH(d->scratch, &scope->outer->fixups, *f);
  }
  d->scope = scope->outer;
  return true;
}

static bool decode_instruction(PtxDecoder *d, const PtxStatement *s) {
  d->at = s;
  d->guard = PTX_NO_ROW;
  d->guard_negated = s->guard_negated;
  d->opcode = name_map_get(&d->names->opcodes, s->name);
  if (!d->opcode) d->opcode = split(d->names, s->name);
  if (!d->opcode) return ptx_decode_error(d, "unknown opcode");
  memset(d->taken, 0, sizeof d->taken);
  if (s->guard) {
    uint32_t bytes;
    if (!ptx_register(d, s->guard, &d->guard, &bytes) || bytes)
      return ptx_decode_error(d, "'%s' is no predicate", s->guard);
  }
  return d->opcode->decode(d);
}

static bool decode_body(PtxDecoder *d, const PtxRoutine *routine) {
  for (uint32_t i = 0; i < routine->nstatements; i++) {
    const PtxStatement *s = &routine->statements[i];
    d->at = s;
    switch (s->kind) {
    case STATEMENT_INSTRUCTION:
      if (!decode_instruction(d, s)) return false;
      break;
    case STATEMENT_LABEL:
      name_map_put(d->scratch, &d->scope->labels, s->name, (void *)(uintptr_t)(d->ops.len + 1));
      break;
    case STATEMENT_VARIABLE:
      if (!ptx_declare(d, s->variable)) return false;
      break;
    case STATEMENT_TARGETS:
      name_map_put(d->scratch, &d->scope->tables, s->name, (void *)(uintptr_t)s);
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
    name_map_put(d->scratch, &d->scope->symbols, routine->results.data[i].name,
                 ptx_new_symbol(d, results[i]));
  for (uint32_t i = 0; i < routine->params.len; i++)
    name_map_put(d->scratch, &d->scope->symbols, routine->params.data[i].name,
                 ptx_new_symbol(d, params[i]));
  d->end_label = intern(&d->names->interner, " end");
  if (!decode_body(d, routine)) return false;
  name_map_put(d->scratch, &d->scope->labels, d->end_label, (void *)(uintptr_t)(d->ops.len + 1));
  if (!close_scope(d)) return false;
  d->end_label = end_label;
  d->ncalls--;
  d->at = call;
  return true;
}

/* --- entries ---------------------------------------------------------------------------------- */

static void place_params(PtxDecoder *d, PtxInfo *info) {
  const PtxVariables *list = &d->entry->params;
  PtxParam *params = ARENA_ARRAY(d->arena, PtxParam, list->len + 1);
  uint32_t offset = 0;
  for (uint32_t i = 0; i < list->len; i++) {
    const PtxVariable *v = &list->data[i];
    offset = ptx_aligned(offset, v->align);
    params[i] = (PtxParam){offset, (uint32_t)v->bytes, v->align};
    name_map_put(
        d->scratch, &d->scope->symbols, v->name,
        ptx_new_symbol(d, (PtxSymbol){.kind = SYMBOL_PARAM, .value = offset, .size = v->bytes}));
    offset += (uint32_t)v->bytes;
  }
  info->nparams = list->len;
  info->params = params;
  info->param_bytes = offset;
}

static void *kept(Arena *arena, const void *data, size_t bytes) {
  return bytes ? memcpy(arena_alloc(arena, bytes), data, bytes) : NULL;
}

bool ptx_decode(PtxModule *module, const PtxTree *tree, const PtxRoutine *routine, Arena *scratch,
                PtxFunction *out, PtxError *error) {
  PtxStatement nowhere = {.line = routine->line, .name = routine->name};
  PtxDecoder d = {.module = module,
                  .error = error,
                  .arena = &module->arena,
                  .scratch = scratch,
                  .names = module->memory->names,
                  .tree = tree,
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
  VEC_RESERVE(scratch, &d.ops, routine->nstatements + 1);
  VEC_RESERVE(scratch, &d.places, routine->nstatements + 1);
  if (!decode_body(&d, routine)) return false;
  d.at = &nowhere;
  d.guard = PTX_NO_ROW;
  ptx_emit(&d, NULL, FLOW_EXIT); /* labels at the end stand before something */
  if (!close_scope(&d)) return false;
  ptx_flow_mark(d.ops.data, d.ops.len);
  out->module = module;
  out->ops = kept(d.arena, d.ops.data, d.ops.len * sizeof *d.ops.data);
  out->places = kept(d.arena, d.places.data, d.places.len * sizeof *d.places.data);
  out->nops = d.ops.len;
  out->rows_bytes = d.rows_bytes;
  out->constants = kept(d.arena, d.constants.data, d.constants.len * sizeof *d.constants.data);
  out->nconstants = d.constants.len;
  memcpy(out->special, d.special, sizeof out->special);
  info->shared_bytes = d.special[SPECIAL_DYNAMIC_SHARED] == PTX_NO_ROW
                           ? d.shared_bytes
                           : ptx_aligned(d.shared_bytes, d.shared_align);
  info->local_bytes = d.local_bytes;
  info->max_threads = 1024;
  memcpy(info->required, routine->required, sizeof info->required);
  const uint32_t *most = routine->required[0] ? routine->required : routine->max_threads;
  if (most[0]) info->max_threads = most[0] * most[1] * most[2];
  return true;
}
