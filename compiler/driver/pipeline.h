/* The compiler as a table of passes over one Compilation. */
#ifndef DTM_DRIVER_PIPELINE_H
#define DTM_DRIVER_PIPELINE_H

#include "autodiff/autodiff.h"
#include "codegen/codegen.h"
#include "codegen/cuda_program.h"
#include "driver/session.h"
#include "fuse/fuse.h"
#include "plan/plan.h"

/* X(ID, name as in --emit, what it is) in the order a program passes through them. */
#define STAGES(X)                                                                                  \
  X(AST, "ast", "the source as a tree")                                                            \
  X(GRAPH, "graph", "elaborated: global shapes and layouts")                                       \
  X(EXPLICIT, "explicit", "all communication is a node")                                           \
  X(GRAD, "grad", "with backward pass and optimizer")                                              \
  X(LOCAL, "local", "what one rank does, with collectives")                                        \
  X(FUSED, "fused", "groups of nodes")                                                             \
  X(KERNEL, "kernel", "loop IR of each distinct kernel")                                           \
  X(PLAN, "plan", "buffers and actions in order")                                                  \
  X(MEMORY, "memory", "the arena over time, as SVG")                                               \
  X(SCHEDULE, "schedule", "what each stage of a pipeline does, in order")                          \
  X(PIPELINE, "pipeline", "the schedule over time, as SVG")                                        \
  X(LLVM, "llvm", "LLVM IR of the kernels")                                                        \
  X(ASM, "asm", "machine code of the kernels as text")                                             \
  X(CUDA, "cuda", "CUDA C of the kernels")                                                         \
  X(PTX, "ptx", "their PTX")                                                                       \
  X(OBJECT, "object", "object file")                                                               \
  X(EXECUTABLE, "executable", "linked")

typedef enum Stage {
  STAGE_SOURCE = 0,
#define X(ID, name, what) STAGE_##ID,
  STAGES(X)
#undef X
      STAGE_COUNT
} Stage;

typedef struct Compilation {
  Session *session;
  SemaOptions sema;
  const char *output; /* -o */
  bool for_cuda;      /* --target */
  CudaOptions cuda_options;
  bool emit[STAGE_COUNT];
  bool to_folder; /* CUDA and PTX go to files of the folder `output`, which compile.c writes */
  StrBuf emitted; /* what --emit asked for so far */
  Program *program;
  PlanCache *plans;
  FusedProgram *fused[BLOCK_COUNT];
  KernelSet kernels;
  Plan *plan;
  CudaProgram *cuda; /* for_cuda */
  CodegenResult objects;
} Compilation;

/* Stage by its name in --emit; STAGE_SOURCE when unknown. */
Stage stage_by_name(const char *name);
const char *stage_name(Stage stage);

/* Takes --target and what belongs to it from the options of the session. False after a usage error,
 * which is printed. */
bool compilation_target(Compilation *c);
/* A folder without slashes behind its name. */
const char *folder_name(Arena *arena, const char *folder);

/* Runs the passes up to `last`, printing stages as asked; stops after a pass that reported errors.
 * False then. */
bool pipeline_run(Compilation *c, Stage last);

#endif
