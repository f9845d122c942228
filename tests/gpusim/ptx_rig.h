/* What tests of the interpreter run kernels with: a module, a few buffers, one launch. */
#ifndef DTM_TESTS_GPUSIM_PTX_RIG_H
#define DTM_TESTS_GPUSIM_PTX_RIG_H

#include "gpusim/ptx.h"

typedef struct PtxRig {
  PtxMemory *memory;
  PtxModule *module;
  void *buffers[32];
  uint32_t nbuffers;
  PtxFault fault;
  PtxCount count;
  bool races_unchecked;
  uint64_t max_steps;
} PtxRig;

/* Loads a module; false after the error was printed. */
bool ptx_rig_open(PtxRig *rig, const char *text);
void ptx_rig_close(PtxRig *rig);

/* Device memory, filled from `from`; unwritten when that is NULL. */
void *ptx_rig_buffer(PtxRig *rig, const char *name, size_t bytes, const void *from);

/* Runs an entry of the module over grid x block threads in one dimension; each parameter is the low
 * bytes of a word. False with rig->fault filled. */
bool ptx_rig_launch(PtxRig *rig, const char *entry, uint32_t grid, uint32_t block,
                    uint32_t shared_bytes, const uint64_t *params);
bool ptx_rig_launch_3d(PtxRig *rig, const char *entry, const uint32_t grid[3],
                       const uint32_t block[3], uint32_t shared_bytes, const uint64_t *params);

#endif
