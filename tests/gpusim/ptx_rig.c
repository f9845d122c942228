/* Running kernels in tests: see ptx_rig.h. */
#include "gpusim/ptx_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool ptx_rig_open(PtxRig *rig, const char *text) {
  *rig = (PtxRig){.memory = ptx_memory_new()};
  char *error = NULL;
  rig->module = ptx_module_load(rig->memory, text, &error);
  if (rig->module) return true;
  printf("%s\n", error);
  free(error);
  ptx_rig_close(rig);
  return false;
}

void ptx_rig_close(PtxRig *rig) {
  ptx_module_free(rig->module);
  ptx_memory_free(rig->memory);
  for (uint32_t i = 0; i < rig->nbuffers; i++) free(rig->buffers[i]);
  *rig = (PtxRig){0};
}

void *ptx_rig_buffer(PtxRig *rig, const char *name, size_t bytes, const void *from) {
  void *p = aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (!p || rig->nbuffers == sizeof rig->buffers / sizeof *rig->buffers) abort();
  rig->buffers[rig->nbuffers++] = p;
  ptx_memory_add(rig->memory, p, bytes, name);
  if (!from) {
    memset(p, 0xa5, bytes);
  } else {
    memcpy(p, from, bytes);
    PtxFault fault;
    if (!ptx_memory_check_write(rig->memory, p, bytes, &fault)) abort();
  }
  return p;
}

bool ptx_rig_launch_3d(PtxRig *rig, const char *entry, const uint32_t grid[3],
                       const uint32_t block[3], uint32_t shared_bytes, const uint64_t *params) {
  const PtxFunction *function = ptx_module_find(rig->module, entry);
  if (!function) {
    rig->fault = (PtxFault){.kind = PTX_FAULT_LAUNCH};
    snprintf(rig->fault.text, sizeof rig->fault.text, "no kernel '%s'", entry);
    return false;
  }
  const PtxInfo *info = ptx_function_info(function);
  uint8_t *bytes = calloc(1, info->param_bytes + 8);
  if (!bytes) abort();
  for (uint32_t i = 0; i < info->nparams; i++)
    memcpy(bytes + info->params[i].offset, &params[i],
           info->params[i].bytes < 8 ? info->params[i].bytes : 8);
  PtxLaunch launch = {.shared_bytes = shared_bytes,
                      .params = bytes,
                      .max_steps = rig->max_steps,
                      .races_unchecked = rig->races_unchecked};
  memcpy(launch.grid, grid, sizeof launch.grid);
  memcpy(launch.block, block, sizeof launch.block);
  rig->fault = (PtxFault){0};
  bool ok = ptx_launch(rig->memory, function, &launch, &rig->count, &rig->fault);
  free(bytes);
  return ok;
}

bool ptx_rig_launch(PtxRig *rig, const char *entry, uint32_t grid, uint32_t block,
                    uint32_t shared_bytes, const uint64_t *params) {
  return ptx_rig_launch_3d(rig, entry, (uint32_t[]){grid, 1, 1}, (uint32_t[]){block, 1, 1},
                           shared_bytes, params);
}
