/* plan: from fused groups to the image the runtime executes.
 *
 * Orders the groups, finds when every buffer is alive, lets outputs take the place of inputs that
 * die, puts all buffers at offsets of one arena (variables first, for the whole run), and writes
 * the action table. Linear or n log n.
 */
#ifndef DTM_PLAN_PLAN_H
#define DTM_PLAN_PLAN_H

#include "fuse/fuse.h"
#include "ir/graph.h"
#include "spmd/pipeline.h"

/* A buffer of a block; columns count what is executed, views and reads of variables not counted. */
typedef struct PlanBuffer {
  uint64_t offset, size; /* bytes; offset 0 = the lowest above the variables */
  uint32_t first, last;  /* columns in which it is alive */
  Phase phase;           /* of what makes it */
  const char *name;      /* "h", or the operator when it has no name: "linear" */
  const char *source;    /* "mlp.dtm:14:13" */
} PlanBuffer;

/* What is known of one program block after planning; sizes in bytes of the rank with the most. */
typedef struct PlanReport {
  bool present;
  uint32_t actions, kernels, matmuls, collectives, copies;
  uint64_t live_bound; /* largest sum of buffers alive at once, variables not counted */
  uint64_t height;     /* arena above the variables */
  VEC(PlanBuffer) buffers;
  uint32_t columns;
  uint32_t phase_end[PHASE_OPTIMIZER + 1]; /* columns up to the last one of a phase */
} PlanReport;

typedef struct Plan {
  const unsigned char *image; /* see runtime/abi/abi.h; 64-aligned */
  size_t image_size;
  uint64_t arena_size, persistent_size;
  uint64_t variables[VAR_COUNT]; /* bytes per VarKind, of the rank with the most */
  PlanReport blocks[BLOCK_COUNT];
  StageMemory *stages; /* of train's pipeline, per stage; NULL without one */
} Plan;

typedef struct PlanOptions {
  const char *path;     /* absolute path of the .dtm file: data paths are relative to its folder */
  const char *compiler; /* "dtmc 0.1.0" */
  bool reuse;           /* false: every buffer its own bytes, for tests of reuse on = off */
  bool ahead;           /* collectives may begin before what runs meanwhile */
  bool together;        /* updates side by side at the end; false: each behind its gradient */
} PlanOptions;

/* `fused` are the blocks init, train, eval, infer in this order; NULL = absent. They share one
 * KernelSet. Never fails. */
Plan *plan_run(Arena *arena, const Program *program, FusedProgram *const fused[BLOCK_COUNT],
               uint32_t nkernels, const PlanOptions *options);

/* Text of --emit=plan: variables, then per block one line per action with offsets, sizes, phase and
 * source. */
void plan_print(StrBuf *out, const Plan *plan);

/* The arena of every block over time, as a drawing (--emit=memory): one SVG document. */
void plan_draw(StrBuf *out, const Plan *plan);

#endif
