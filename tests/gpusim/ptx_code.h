/* Decoded code and the machine that runs it.
 *
 * Every register of a warp is a row of 32 lanes of 2, 4 or 8 bytes; a predicate is a row of one
 * 32-bit mask. Constants and special registers are rows too, filled when a warp begins, so an
 * operand is nothing but the offset of a row. Calls are inlined, so there is one flat list of
 * operations. */
#ifndef DTM_TESTS_GPUSIM_PTX_CODE_H
#define DTM_TESTS_GPUSIM_PTX_CODE_H

#include "ptx.h"
#include "ptx_shadow.h"
#include "ptx_tree.h"

enum { PTX_LANES = 32, PTX_ARGS = 7 };
#define PTX_NO_ROW UINT32_MAX
/* Shared addresses begin here, so that 0 is none. */
#define PTX_SHARED_BEGIN 1024u

typedef struct PtxOp PtxOp;
typedef struct PtxWarp PtxWarp;
typedef struct PtxBlock PtxBlock;
typedef void PtxRun(PtxWarp *warp, const PtxOp *op);
/* Lanes for which a comparison of two rows holds. */
typedef uint32_t PtxCompare(const void *a, const void *b, uint32_t flags);

/* What comes after an operation. */
typedef enum PtxFlow {
  FLOW_NEXT,    /* the one behind it */
  FLOW_CHECK,   /* the one behind it, unless it failed; it may ask for the steps so far */
  FLOW_BRANCH,  /* lanes of the guard go to `target` */
  FLOW_SWITCH,  /* lanes go to targets[row arg[0]] */
  FLOW_EXIT,    /* lanes of the guard end */
  FLOW_BARRIER, /* the warp waits */
} PtxFlow;

/* Modifiers, in PtxOp.flags. */
enum {
  PTX_FTZ = 1 << 0,  /* subnormal operands and results are zeros */
  PTX_SAT = 1 << 1,  /* result into [0, 1] */
  PTX_RELU = 1 << 2, /* negative results are zero */
  PTX_RZ = 1 << 3,   /* rounding; to nearest even with none of them */
  PTX_RM = 1 << 4,
  PTX_RP = 1 << 5,
  PTX_RNA = 1 << 6, /* to nearest, ties away from zero */
  PTX_ROUNDINGS = PTX_RZ | PTX_RM | PTX_RP,
  PTX_INTEGRAL = 1 << 7, /* cvt.rni and the like: to a whole number */
  PTX_CARRY_OUT = 1 << 8,
  PTX_CARRY_IN = 1 << 9,
  PTX_SATFINITE = 1 << 10,
};

struct PtxOp {
  PtxRun *run;
  union {
    int64_t imm; /* of FLOW_BRANCH where lanes that part meet again */
    PtxCompare *compare;
    const uint32_t *targets; /* of FLOW_SWITCH, `target` of them; arg[1] is where they meet again */
    const struct PtxMemoryForm *memory;
  };
  uint32_t arg[PTX_ARGS]; /* rows: results first */
  uint32_t guard;         /* row, or PTX_NO_ROW */
  uint32_t target;        /* of a branch; number of targets of a switch */
  uint16_t flags;
  uint8_t flow;          /* PtxFlow */
  uint8_t guard_negated; /* bool */
  uint8_t mode;          /* of its own meaning to each `run` */
};

/* What a load, a store, an atomic and a copy share. */
typedef struct PtxMemoryForm {
  PtxSpace space;
  int64_t offset;
  uint32_t address;     /* row */
  uint8_t address_wide; /* 64 bits */
  uint8_t bytes, count; /* of an element; elements of a vector */
  uint8_t row_bytes;    /* of a lane of the data's registers */
  uint8_t is_signed;    /* narrow loads extend the sign */
  uint8_t way;          /* PtxAccess */
  uint32_t data[8];     /* rows; PTX_NO_ROW for _ */
} PtxMemoryForm;

typedef struct PtxPlace {
  uint32_t line, file, loc, outer_file, outer_loc; /* as PtxStatement has them */
} PtxPlace;

typedef enum PtxSpecial {
  SPECIAL_TID_X,
  SPECIAL_TID_Y,
  SPECIAL_TID_Z,
  SPECIAL_NTID_X,
  SPECIAL_NTID_Y,
  SPECIAL_NTID_Z,
  SPECIAL_CTAID_X,
  SPECIAL_CTAID_Y,
  SPECIAL_CTAID_Z,
  SPECIAL_NCTAID_X,
  SPECIAL_NCTAID_Y,
  SPECIAL_NCTAID_Z,
  SPECIAL_LANEID,
  SPECIAL_WARPID,
  SPECIAL_NWARPID,
  SPECIAL_ZERO, /* %smid and %gridid */
  SPECIAL_ONE,  /* %nsmid */
  SPECIAL_LANEMASK_EQ,
  SPECIAL_LANEMASK_LE,
  SPECIAL_LANEMASK_LT,
  SPECIAL_LANEMASK_GE,
  SPECIAL_LANEMASK_GT,
  SPECIAL_DYNAMIC_SHARED_SIZE,
  SPECIAL_TOTAL_SHARED_SIZE,
  SPECIAL_DYNAMIC_SHARED, /* address of extern .shared variables */
  SPECIAL_SHARED_WINDOW,  /* 64 bits: generic addresses of shared memory less shared ones */
  SPECIAL_LOCAL,          /* 64 bits: address of the thread's local memory */
  SPECIAL_PARAM,          /* 64 bits: address of the parameters */
  SPECIAL_COUNT,
} PtxSpecial;

typedef struct PtxConstant {
  uint32_t row, bytes; /* bytes of a lane; 0 for a predicate */
  uint64_t bits;
} PtxConstant;

struct PtxFunction {
  PtxInfo info;
  const PtxModule *module;
  PtxOp *ops;
  PtxPlace *places; /* of each operation */
  uint32_t nops;
  uint32_t rows_bytes; /* of a warp */
  PtxConstant *constants;
  uint32_t nconstants;
  uint32_t special[SPECIAL_COUNT]; /* rows, PTX_NO_ROW where unused */
};

typedef struct PtxGlobal {
  const char *name;
  void *address;
  size_t bytes;
} PtxGlobal;

struct PtxModule {
  Arena arena;
  PtxMemory *memory;
  const char **files; /* of .loc, by number; NULL where there is none */
  uint32_t nfiles;
  VEC(PtxFunction) functions;
  VEC(PtxGlobal) globals;
};

/* Lanes `mask` are at `pc` and meet those that parted at `join`. */
typedef struct PtxPath {
  uint32_t mask, pc, join;
} PtxPath;

typedef struct PtxAsync PtxAsync;

struct PtxWarp {
  uint8_t *rows;
  uint32_t mask;  /* lanes of the operation that runs */
  uint32_t carry; /* lanes whose carry flag is set */
  uint32_t live;  /* lanes that did not end */
  uint32_t all;   /* lanes that began */
  uint32_t index; /* in the block */
  uint32_t phase; /* counts bar.warp.sync: orders accesses of its lanes */
  uint64_t steps;
  bool waiting;          /* at a barrier */
  uint32_t barrier;      /* its number */
  uint32_t needed;       /* threads that it is for; 0 for all of the block */
  const PtxOp *at;       /* the barrier's operation */
  uint32_t contribution; /* lanes whose predicate holds, of bar.red */
  PtxPath *path;         /* stack; the last one runs */
  uint32_t depth, cap;
  PtxBlock *block;
  PtxAsync *async; /* copies under way, NULL until the first */
};

struct PtxBlock {
  PtxMemory *memory;
  const PtxFunction *function;
  const PtxLaunch *launch;
  PtxFault *fault;
  PtxClock clock, shared_clock; /* of shared memory nothing is older than the block */
  PtxRegion shared, local, params;
  uint32_t index[3];
  uint32_t nthreads, nwarps;
  PtxWarp *warps;
  uint32_t arrived[16]; /* threads that did not wait (bar.arrive), of each barrier */
  uint64_t steps, lane_steps;
  bool counted; /* lane_steps, too */
  bool failed;
  bool atomic_seen, fence_seen; /* both together order this block after the earlier ones */
};

#define PTX_ROW(warp, T, offset) ((T *)(void *)((warp)->rows + (offset)))

/* Ends the launch with a fault of a lane (of the first active one for lane < 0). */
void ptx_fail(PtxWarp *warp, const PtxOp *op, int lane, PtxFaultKind kind, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Fills a branch's imm and a switch's arg[1]: where the lanes that part meet again, PTX_NO_ROW for
 * nowhere. ptx_flow.c */
void ptx_flow_mark(PtxOp *ops, uint32_t nops);

/* A new epoch: what the threads of the block did so far is ordered before what comes. */
void ptx_block_advance(PtxBlock *block);

/* What all modules of a PtxMemory have in common. */
struct PtxNames {
  Arena arena, scratch; /* scratch: of the module that is being loaded */
  Interner interner;
  NameMap rows;    /* PtxRow, of operations of lanes */
  NameMap opcodes; /* PtxOpcode, of those that were seen */
};

/* Decodes an entry: ptx_decode.c. `scratch` lives until the module is loaded. */
bool ptx_decode(PtxModule *module, const PtxTree *tree, const PtxRoutine *routine, Arena *scratch,
                PtxFunction *out, PtxError *error);

/* --- operations of lanes, by name: ptx_lanes.inc ---------------------------------------------- */

typedef struct PtxRow {
  const char *name;    /* opcode without the modifiers of `allowed` */
  PtxRun *run;         /* without flags */
  PtxRun *flagged;     /* with flags; NULL when none are allowed */
  PtxCompare *compare; /* of a comparison, otherwise NULL */
  uint16_t allowed;    /* flags */
  uint8_t result;      /* bytes of a lane of it; 0 a predicate */
  uint8_t noperands;
  uint8_t operand[4];
} PtxRow;

#endif
