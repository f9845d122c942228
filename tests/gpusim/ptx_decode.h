/* What the files of the decoder share: names, operands, and the code that grows. Each
 * ptx_decode_*.c has instructions of one kind; the table of all of them is in ptx_decode.c. */
#ifndef DTM_TESTS_GPUSIM_PTX_DECODE_H
#define DTM_TESTS_GPUSIM_PTX_DECODE_H

#include "ptx_code.h"
#include "ptx_types.h"

typedef enum PtxSymbolKind {
  SYMBOL_REGISTER,
  SYMBOL_SHARED,  /* value: address in shared memory */
  SYMBOL_DYNAMIC, /* extern .shared: behind the static ones */
  SYMBOL_LOCAL,   /* value: offset in the thread's local memory */
  SYMBOL_GLOBAL,  /* value: address */
  SYMBOL_PARAM,   /* value: offset in the kernel's parameters */
} PtxSymbolKind;

typedef struct PtxSymbol {
  PtxSymbolKind kind;
  uint32_t row, bytes; /* of a register; bytes 0 for predicates */
  uint32_t count;      /* of a range of registers whose rows follow each other */
  uint32_t row_step;
  uint64_t value, size;
} PtxSymbol;

/* A branch whose label was not seen yet. */
typedef struct PtxFixup {
  const char *label;
  uint32_t op;
  uint32_t *target; /* of a switch; NULL for the operation's own */
  uint32_t line;
} PtxFixup;

/* Names between two braces. */
typedef struct PtxScope PtxScope;
struct PtxScope {
  PtxScope *outer;
  bool is_routine; /* names of the caller are not seen */
  NameMap symbols, labels /* number of the operation + 1 */,
      tables /* PtxStatement: .branchtargets */;
  VEC(PtxFixup) fixups;
};

typedef struct PtxDecoder PtxDecoder;
typedef bool PtxDecode(PtxDecoder *d);

enum { PTX_MODIFIERS = 16 };

/* An opcode taken apart, kept by its name in PtxNames. */
typedef struct PtxOpcode {
  PtxDecode *decode;
  char base[24];
  char modifier[PTX_MODIFIERS][32]; /* without dots */
  uint32_t nmodifiers;
} PtxOpcode;

struct PtxDecoder {
  PtxModule *module;
  PtxError *error;
  Arena *arena;   /* of the module */
  Arena *scratch; /* until the module is loaded */
  PtxNames *names;
  const PtxTree *tree;
  const PtxRoutine *entry;
  VEC(PtxOp) ops;
  VEC(PtxPlace) places;
  VEC(PtxConstant) constants;
  IdMap constant_rows[4]; /* by width */
  uint32_t rows_bytes;
  uint32_t special[SPECIAL_COUNT];
  PtxScope *scope;
  NameMap shared; /* PtxSymbol of .shared variables that the kernel uses */
  uint32_t shared_bytes, shared_align, local_bytes;
  const char *calls[32]; /* routines that are being inlined */
  uint32_t ncalls;
  const char *end_label; /* where ret goes; NULL in the entry itself */

  /* the instruction at hand */
  const PtxStatement *at;
  const PtxOpcode *opcode;
  bool taken[PTX_MODIFIERS]; /* of its modifiers */
  uint32_t guard;
  bool guard_negated;
};

bool ptx_decode_error(PtxDecoder *d, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A row of ptx_ops.def; NULL when there is none. */
const PtxRow *ptx_row_named(PtxDecoder *d, const char *name);

/* --- modifiers -------------------------------------------------------------------------------- */

/* Takes a modifier when it is there. */
bool ptx_take(PtxDecoder *d, const char *modifier);
/* Takes the first of a list that ends in NULL; its number, or -1. */
int ptx_take_one(PtxDecoder *d, const char *const *list);
/* The last modifier that is a type and was not taken yet. */
bool ptx_take_type(PtxDecoder *d, PtxType *type);
/* The first one: dtype of cvt.dtype.atype. */
bool ptx_take_first_type(PtxDecoder *d, PtxType *type);
/* The error that names what nobody took, if there is something. */
bool ptx_all_taken(PtxDecoder *d);
bool ptx_operand_count(PtxDecoder *d, uint32_t at_least, uint32_t at_most);

/* --- names and rows: ptx_operands.c ----------------------------------------------------------- */

/* Up to a multiple. */
uint32_t ptx_aligned(uint32_t offset, uint32_t align);
PtxSymbol *ptx_new_symbol(PtxDecoder *d, PtxSymbol symbol);
/* A variable or registers of the scope at hand. */
bool ptx_declare(PtxDecoder *d, const PtxVariable *variable);
uint32_t ptx_new_row(PtxDecoder *d, uint32_t bytes);
uint32_t ptx_constant(PtxDecoder *d, uint64_t bits, uint32_t bytes);
uint32_t ptx_special_row(PtxDecoder *d, PtxSpecial special);
const PtxSymbol *ptx_symbol(PtxDecoder *d, const char *name);
/* Row of a register and the bytes of its lanes; false when it is none. */
bool ptx_register(PtxDecoder *d, const char *name, uint32_t *row, uint32_t *bytes);
/* Row of a source with lanes of `bytes` (0: a predicate). */
bool ptx_source(PtxDecoder *d, const PtxOperand *operand, uint32_t bytes, uint32_t *row);
/* The same for any width, which is told; constants get `bytes`. */
bool ptx_source_any(PtxDecoder *d, const PtxOperand *operand, uint32_t *bytes, uint32_t *row);
/* Row of a result; _ gives a row that nobody reads. */
bool ptx_result(PtxDecoder *d, const PtxOperand *operand, uint32_t bytes, uint32_t *row);
/* Row that holds the address of a memory operand, and what is to be added. */
bool ptx_address(PtxDecoder *d, const PtxOperand *operand, PtxMemoryForm *form);
/* A constant known now. */
bool ptx_immediate(PtxDecoder *d, const PtxOperand *operand, int64_t *value);

/* --- code ------------------------------------------------------------------------------------- */

/* A new operation under the guard of the instruction; valid until the next one. */
PtxOp *ptx_emit(PtxDecoder *d, PtxRun *run, PtxFlow flow);
void ptx_branch_to(PtxDecoder *d, uint32_t op, uint32_t *target, const char *label);
/* A routine's body in the place of a call. */
bool ptx_inline(PtxDecoder *d, const PtxRoutine *routine, const PtxSymbol *results,
                const PtxSymbol *params);

/* --- instructions ----------------------------------------------------------------------------- */

PtxDecode ptx_decode_lanes; /* rows of ptx_ops.def: what no other one takes */
PtxDecode ptx_decode_mov, ptx_decode_cvt, ptx_decode_cvta, ptx_decode_setp, ptx_decode_set,
    ptx_decode_logic, ptx_decode_selp, ptx_decode_carry, ptx_decode_testp;
PtxDecode ptx_decode_ld, ptx_decode_st, ptx_decode_atom, ptx_decode_red, ptx_decode_cp,
    ptx_decode_ldmatrix, ptx_decode_stmatrix, ptx_decode_prefetch, ptx_decode_isspacep;
PtxDecode ptx_decode_bra, ptx_decode_brx, ptx_decode_call, ptx_decode_ret, ptx_decode_exit,
    ptx_decode_trap, ptx_decode_nothing;
PtxDecode ptx_decode_bar, ptx_decode_fence, ptx_decode_shfl, ptx_decode_vote, ptx_decode_match,
    ptx_decode_activemask, ptx_decode_redux, ptx_decode_mma;

#endif
