/* PTX as it is written: the result of ptx_parse.c, what ptx_decode.c starts from. Names are
 * interned, so equal names are equal pointers. Everything lives in the arena of the module. */
#ifndef DTM_TESTS_GPUSIM_PTX_TREE_H
#define DTM_TESTS_GPUSIM_PTX_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "base/vec.h"

/* The first error of a module; later ones are consequences of it. */
typedef struct PtxError {
  Arena *arena;
  char *text; /* NULL while all is well */
} PtxError;

/* Notes an error at a line of the text; false, for `return ptx_error(...)`. */
bool ptx_error(PtxError *error, uint32_t line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* --- tokens -------------------------------------------------------------------------------------
 */

typedef enum PtxTokenKind {
  TOKEN_END,
  TOKEN_WORD,      /* name, opcode with its modifiers, special register: add.rn.f32 %r1 %tid.x */
  TOKEN_DIRECTIVE, /* begins with a dot */
  TOKEN_INTEGER,
  TOKEN_F32, /* bits */
  TOKEN_F64, /* bits */
  TOKEN_STRING,
  TOKEN_PUNCTUATION, /* its character in `bits` */
} PtxTokenKind;

typedef struct PtxToken {
  PtxTokenKind kind;
  uint32_t line;
  const char *text; /* interned; NULL for numbers and punctuation */
  uint64_t bits;
} PtxToken;

typedef struct PtxLexer {
  const char *at;
  uint32_t line;
  Interner *names;
  PtxError *error;
} PtxLexer;

PtxToken ptx_lex(PtxLexer *lexer);
/* The number that digits at *at are, which are left behind. */
uint64_t ptx_decimal(const char **at);

/* --- tree ---------------------------------------------------------------------------------------
 */

typedef enum PtxSpace {
  SPACE_GENERIC,
  SPACE_GLOBAL,
  SPACE_SHARED,
  SPACE_LOCAL,
  SPACE_CONST,
  SPACE_PARAM,
  SPACE_REGISTER,
} PtxSpace;

typedef enum PtxOperandKind {
  OPERAND_NAME, /* register, variable, label, function */
  OPERAND_INTEGER,
  OPERAND_F32,
  OPERAND_F64,
  OPERAND_SINK,    /* _ */
  OPERAND_VECTOR,  /* { a, b } */
  OPERAND_ADDRESS, /* [name + value] */
  OPERAND_PAIR,    /* a | b */
  OPERAND_LIST,    /* ( a, b ) of a call */
} PtxOperandKind;

typedef struct PtxOperand PtxOperand;
struct PtxOperand {
  PtxOperandKind kind;
  bool negated;      /* !%p */
  const char *name;  /* of NAME and ADDRESS, where it may be NULL */
  int64_t value;     /* of INTEGER, offset of ADDRESS, bits of F32 and F64 */
  PtxOperand *items; /* of VECTOR, PAIR, LIST */
  uint32_t nitems;
};

typedef struct PtxVariable {
  const char *name;
  PtxSpace space;
  uint32_t line;
  uint32_t align, element; /* bytes; element 0 for predicates */
  uint64_t bytes;
  bool unsized;     /* extern .shared x[]: the dynamic shared memory */
  uint8_t *initial; /* `bytes` of them, or NULL */
  uint32_t count;   /* of registers %name0 ... %name(count - 1); 0 for one that is called `name` */
} PtxVariable;

typedef enum PtxStatementKind {
  STATEMENT_INSTRUCTION,
  STATEMENT_LABEL,
  STATEMENT_VARIABLE,
  STATEMENT_TARGETS, /* name: .branchtargets a, b; */
  STATEMENT_OPEN,    /* { */
  STATEMENT_CLOSE,
} PtxStatementKind;

typedef struct PtxStatement {
  PtxStatementKind kind;
  uint32_t line;                  /* of the PTX */
  uint32_t file, loc;             /* of .loc; loc 0 when none was seen */
  uint32_t outer_file, outer_loc; /* into which line that is inlined; outer_loc 0: it is not */
  const char *name;               /* opcode, label */
  const char *guard;              /* predicate register or NULL */
  bool guard_negated;
  PtxOperand *operands;
  uint32_t noperands;
  const PtxVariable *variable;
} PtxStatement;

typedef VEC(PtxVariable) PtxVariables;

typedef struct PtxRoutine {
  const char *name;
  bool entry, body;
  uint32_t line;
  PtxVariables params, results;
  PtxStatement *statements;
  uint32_t nstatements;
  uint32_t max_threads[3], required[3]; /* 0 where not given */
} PtxRoutine;

typedef struct PtxTree {
  PtxVariables variables;
  VEC(PtxRoutine) routines;
  VEC(const char *) files; /* by number; NULL where there is none */
} PtxTree;

/* False after an error. */
bool ptx_parse(PtxTree *tree, const char *text, Arena *arena, Interner *names, PtxError *error);

#endif
