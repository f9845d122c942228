/* A PTX interpreter for tests: runs the kernels that NVRTC made, on the host, and checks what no
 * GPU tells: accesses outside of allocations, reads of what nobody wrote, misaligned vectors,
 * barriers that not all threads reach, races. See README.md for what is checked and what is not
 * modelled.
 *
 * Stage in: the text of a PTX module and launches of its kernels. Stage out: their effect on
 * memory, or a fault that names kernel, block, thread, line of the PTX and line of the source
 * (.loc).
 *
 * Device addresses are addresses of this process: whoever stands in for the driver maps memory and
 * tells PtxMemory of it. One PtxMemory is used by one thread at a time. Blocks run one after the
 * other, warps of a block in turns between barriers; a launch therefore always does the same.
 *
 * Unknown opcodes, modifiers and types are errors of ptx_module_load, never skipped. */
#ifndef DTM_TESTS_GPUSIM_PTX_H
#define DTM_TESTS_GPUSIM_PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct PtxMemory PtxMemory;
typedef struct PtxModule PtxModule;
typedef struct PtxFunction PtxFunction;

typedef enum PtxFaultKind {
  PTX_FAULT_NONE,
  PTX_FAULT_OUTSIDE,    /* of every allocation, or of a freed one */
  PTX_FAULT_MISALIGNED, /* address no multiple of the size of the access */
  PTX_FAULT_UNWRITTEN,  /* read of bytes that nobody wrote */
  PTX_FAULT_READ_ONLY,  /* write to .const or to parameters */
  PTX_FAULT_BARRIER,    /* threads missing at a barrier, shuffle or vote */
  PTX_FAULT_RACE,       /* two threads, one byte, at least one write, nothing that orders them */
  PTX_FAULT_STEPS,      /* more steps than the launch allows */
  PTX_FAULT_TRAP,       /* the kernel executed trap, or an assertion of it failed */
  PTX_FAULT_LAUNCH, /* sizes of grid, block, shared memory or parameters do not fit the kernel */
} PtxFaultKind;

typedef struct PtxFault {
  PtxFaultKind kind;
  char kernel[128]; /* empty when the host did it */
  uint32_t block[3], thread[3];
  uint32_t ptx_line;    /* of the module's text, from 1; 0 when not in a kernel */
  char file[256];       /* of .loc; empty without -lineinfo */
  uint32_t line;        /* of .loc */
  char outer_file[256]; /* into which line that was inlined, where it was */
  uint32_t outer_line;
  char text[1400]; /* all of it as one line for people */
} PtxFault;

/* --- memory ------------------------------------------------------------------------------------
 */

PtxMemory *ptx_memory_new(void);
void ptx_memory_free(PtxMemory *memory);

/* [base, base + bytes) may be used by kernels from now on; nothing of it is written yet. `name` is
 * for messages. Allocations do not overlap. The bytes stay the caller's. */
void ptx_memory_add(PtxMemory *memory, void *base, size_t bytes, const char *name);
/* The allocation that begins at `base` is gone; false when there is none. */
bool ptx_memory_remove(PtxMemory *memory, const void *base);

/* What the host does to device memory (copies, memsets, libraries). Each returns true, or fills
 * `fault` (kind, text): for reads of bytes outside of one allocation or unwritten, for writes
 * outside. A write marks its bytes as written. */
bool ptx_memory_check_read(PtxMemory *memory, const void *address, size_t bytes, PtxFault *fault);
bool ptx_memory_check_write(PtxMemory *memory, void *address, size_t bytes, PtxFault *fault);
/* A copy on the device: unwritten bytes stay unwritten at the destination and are no fault. Moves
 * the bytes too. The ranges do not overlap. */
bool ptx_memory_copy(PtxMemory *memory, void *to, const void *from, size_t bytes, PtxFault *fault);
/* Nobody may read these bytes before they are written again. */
void ptx_memory_forget(PtxMemory *memory, void *address, size_t bytes);

/* --- modules ------------------------------------------------------------------------------------
 */

/* Parses and decodes a module, of which nothing but its error is kept by the caller. Its variables
 * (.global, .const) become allocations of `memory`, which outlives the module. NULL on failure;
 * then
 * `*error` is a text for people with the line of the PTX, to be freed. */
PtxModule *ptx_module_load(PtxMemory *memory, const char *text, char **error);
void ptx_module_free(PtxModule *module);

/* An entry by its name; NULL when there is none. */
const PtxFunction *ptx_module_find(const PtxModule *module, const char *entry);
/* A variable by its name. */
bool ptx_module_global(const PtxModule *module, const char *name, void **address, size_t *bytes);

typedef struct PtxParam {
  uint32_t offset, bytes, align; /* in the buffer of parameters */
} PtxParam;

typedef struct PtxInfo {
  const char *name;
  uint32_t nparams;
  const PtxParam *params;
  uint32_t param_bytes;  /* of all, with the gaps between them */
  uint32_t shared_bytes; /* static */
  uint32_t local_bytes;  /* of a thread */
  uint32_t max_threads;  /* of a block by .maxntid or .reqntid; 1024 without */
  uint32_t required[3];  /* .reqntid; 0 without */
} PtxInfo;

const PtxInfo *ptx_function_info(const PtxFunction *function);

/* --- launches -----------------------------------------------------------------------------------
 */

typedef struct PtxLaunch {
  uint32_t grid[3], block[3];
  uint32_t shared_bytes; /* dynamic, beside the static ones */
  const void *params;    /* PtxInfo.param_bytes of them, each at its offset */
  uint64_t max_steps;    /* instructions of one warp; 0 means 2^32 */
  bool races_unchecked;  /* do not look for races */
} PtxLaunch;

/* What a launch did, in instructions of a warp and in those times its active lanes. */
typedef struct PtxCount {
  uint64_t steps, lane_steps;
} PtxCount;

/* Runs a kernel to its end. True, or false with `fault` filled: the launch then ended early, and
 * what it wrote so far is in memory. `count`, which may be NULL, is added to. */
bool ptx_launch(PtxMemory *memory, const PtxFunction *function, const PtxLaunch *launch,
                PtxCount *count, PtxFault *fault);

#endif
