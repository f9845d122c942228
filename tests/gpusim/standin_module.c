/* Stands in for the driver: modules, which must be PTX, and kernels. See standin_driver.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpusim/sim_memory.h"
#include "gpusim/standin_driver.h"

enum {
  SHARED_DEFAULT = 49152,
  BLOCK_THREADS = 1024,
  GRID_YZ = 65535,
  DRIVER_PTX = 90 /* 9.0 */
};

typedef struct SimFunction SimFunction;

typedef struct SimModule {
  PtxModule *ptx;
  SimFunction *functions;
} SimModule;

struct SimFunction {
  SimFunction *next;
  SimModule *module;
  const PtxFunction *ptx;
  const PtxInfo *info;
  int shared; /* most dynamic bytes of a launch */
  /* Launches that were looked at for races, as hashes. */
  uint64_t *looked;
  size_t nlooked, room;
};

/* --- modules ---------------------------------------------------------------------------------- */

/* The number behind a directive, ".version 8.0" or ".target sm_80", in tenths where it has a point.
 * 0 when there is none. */
static int directive(const char *text, const char *name, const char *before) {
  const char *at = strstr(text, name);
  at = at ? strstr(at + strlen(name), before) : NULL;
  if (!at) return 0;
  char *end;
  long whole = strtol(at + strlen(before), &end, 10);
  return (int)(*end == '.' ? 10 * whole + strtol(end + 1, NULL, 10) : whole);
}

/* What a module is to this device. */
static CUresult image_check(const char *image) {
  while (*image == ' ' || *image == '\t' || *image == '\n' || *image == '\r') image++;
  if (memcmp(image, "\177ELF", 4) == 0) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  if (memcmp(image, "\x50\xed\x55\xba", 4) == 0) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  if (*image != '/' && *image != '.') return CUDA_ERROR_INVALID_IMAGE;
  int version = directive(image, ".version", " "), target = directive(image, ".target", "sm_");
  if (!version || !target) return CUDA_ERROR_INVALID_PTX;
  if (version > DRIVER_PTX) return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  return target > sim_process()->capability ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_SUCCESS;
}

/* The error in the buffer that the caller gave for it, and in the report. */
static void tell(const char *error, unsigned n, const CUjit_option *options, void **values) {
  char *buffer = NULL;
  size_t room = 0;
  for (unsigned i = 0; i < n; i++) {
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER) buffer = values[i];
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) room = (size_t)(uintptr_t)values[i];
  }
  if (buffer && room) snprintf(buffer, room, "%s", error);
  sim_report("a module is refused: %s", error);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned noptions,
                            CUjit_option *options, void **values) {
  sim_enter("cuModuleLoadDataEx", NULL);
  CUresult failure = standin_check();
  if (!failure) failure = sim_capture_forbids();
  if (!failure) failure = image_check(image);
  if (failure) return standin_leave(failure);
  char *error = NULL;
  PtxModule *ptx = ptx_module_load(sim_current()->memory, image, &error);
  if (!ptx) {
    tell(error, noptions, options, values);
    free(error);
    return standin_leave(CUDA_ERROR_INVALID_PTX);
  }
  SimModule *m = calloc(1, sizeof *m);
  if (!m) abort();
  m->ptx = ptx;
  sim_handle_add(m, SIM_MODULE);
  *module = (CUmodule)m;
  return standin_leave(CUDA_SUCCESS);
}

CUresult cuModuleUnload(CUmodule module) {
  sim_enter("cuModuleUnload", NULL);
  CUresult error = standin_check();
  if (!error) error = sim_capture_forbids();
  if (error) return standin_leave(error);
  if (!sim_handle_is(module, SIM_MODULE)) return standin_leave(CUDA_ERROR_INVALID_HANDLE);
  error = sim_wait_device(sim_current());
  if (error) return standin_leave(error);
  SimModule *m = (SimModule *)module;
  for (SimFunction *f = m->functions, *next; f; f = next) {
    next = f->next;
    sim_handle_remove(f);
    free(f->looked);
    free(f);
  }
  ptx_module_free(m->ptx);
  sim_handle_remove(m);
  free(m);
  return standin_leave(CUDA_SUCCESS);
}

static SimFunction *find(SimModule *m, const char *name) {
  for (SimFunction *f = m->functions; f; f = f->next)
    if (strcmp(f->info->name, name) == 0) return f;
  const PtxFunction *ptx = ptx_module_find(m->ptx, name);
  if (!ptx) return NULL;
  SimFunction *f = calloc(1, sizeof *f);
  if (!f) abort();
  *f = (SimFunction){.next = m->functions, .module = m, .ptx = ptx, .info = ptx_function_info(ptx)};
  f->shared = SHARED_DEFAULT - (int)f->info->shared_bytes;
  m->functions = f;
  sim_handle_add(f, SIM_FUNCTION);
  return f;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  sim_enter("cuModuleGetFunction", "%s", name);
  CUresult error = standin_check();
  if (error) return standin_leave(error);
  if (!sim_handle_is(module, SIM_MODULE)) return standin_leave(CUDA_ERROR_INVALID_HANDLE);
  *function = (CUfunction)find((SimModule *)module, name);
  return standin_leave(*function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND);
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  sim_enter("cuFuncSetAttribute", NULL);
  if (!sim_handle_is(function, SIM_FUNCTION)) return standin_leave(CUDA_ERROR_INVALID_HANDLE);
  SimFunction *f = (SimFunction *)function;
  if ((int)attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
      value > STANDIN_SHARED - (int)f->info->shared_bytes)
    return standin_leave(CUDA_ERROR_INVALID_VALUE);
  f->shared = value;
  return standin_leave(CUDA_SUCCESS);
}

/* --- launches --------------------------------------------------------------------------------- */

typedef struct Launch {
  SimOp op;
  SimFunction *function;
  PtxLaunch launch;
  unsigned char params[];
} Launch;

/* FNV-1a. */
static uint64_t hash(uint64_t h, const void *bytes, size_t n) {
  for (size_t i = 0; i < n; i++) h = (h ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
  return h;
}

/* Whether the same launch, to the last parameter, was looked at for races already. What its blocks
 * touch is the same again, but for where numbers in memory decide, and to record it is most of
 * what a launch costs. */
static bool looked_at(const Launch *l) {
  SimFunction *f = l->function;
  uint64_t h = hash(0xcbf29ce484222325u, l->launch.grid, sizeof l->launch.grid);
  h = hash(h, l->launch.block, sizeof l->launch.block);
  h = hash(h, &l->launch.shared_bytes, sizeof l->launch.shared_bytes);
  h = hash(h, l->params, f->info->param_bytes);
  for (size_t i = 0; i < f->nlooked; i++)
    if (f->looked[i] == h) return true;
  if (f->nlooked == f->room) {
    f->room = f->room ? 2 * f->room : 8;
    f->looked = realloc(f->looked, f->room * sizeof *f->looked);
    if (!f->looked) abort();
  }
  f->looked[f->nlooked++] = h;
  return false;
}

static SimPoll launch_step(SimOp *op) {
  Launch *l = (Launch *)op;
  PtxFault fault = {0};
  if (!sim_process()->all_races) l->launch.races_unchecked = looked_at(l);
  SimDevice *device = op->stream->device;
  sim_memory_show();
  if (ptx_launch(device->memory, l->function->ptx, &l->launch, NULL, &fault)) return SIM_DONE;
  return sim_fault(device, &fault, l->function->info->name);
}

static void launch_free(SimOp *op) {
  free(op);
}

static SimOp *launch_clone(const SimOp *op);

static const SimKind kernel = {"kernel", launch_step, NULL, launch_clone, launch_free, false};

static Launch *launch_new(SimFunction *function, const PtxLaunch *launch) {
  Launch *l = calloc(1, sizeof *l + function->info->param_bytes);
  if (!l) abort();
  l->op.kind = &kernel;
  l->function = function;
  l->launch = *launch;
  l->launch.params = l->params;
  return l;
}

static SimOp *launch_clone(const SimOp *op) {
  const Launch *l = (const Launch *)op;
  Launch *copy = launch_new(l->function, &l->launch);
  memcpy(copy->params, l->params, l->function->info->param_bytes);
  return &copy->op;
}

static CUresult launch_check(const SimFunction *f, const PtxLaunch *l) {
  uint64_t threads = (uint64_t)l->block[0] * l->block[1] * l->block[2];
  const char *wrong = NULL;
  CUresult error = CUDA_ERROR_INVALID_VALUE;
  for (int i = 0; i < 3; i++) {
    if (!l->grid[i] || !l->block[i]) wrong = "a size of grid or block is 0";
    if (f->info->required[i] && l->block[i] != f->info->required[i])
      wrong = "the block is not the one that the kernel requires";
  }
  if (l->grid[0] > INT32_MAX || l->grid[1] > GRID_YZ || l->grid[2] > GRID_YZ)
    wrong = "the grid is too large";
  if (threads > BLOCK_THREADS || l->block[2] > 64) wrong = "the block is too large";
  if (l->shared_bytes > (uint64_t)(f->shared < 0 ? 0 : f->shared))
    wrong = "more shared memory than was asked for with cuFuncSetAttribute";
  if (!wrong && threads > f->info->max_threads) {
    wrong = "the block is larger than the kernel was compiled for";
    error = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  }
  if (!wrong) return CUDA_SUCCESS;
  sim_report("launch of %s, grid %u x %u x %u, block %u x %u x %u, %u bytes of shared memory: %s",
             f->info->name, l->grid[0], l->grid[1], l->grid[2], l->block[0], l->block[1],
             l->block[2], l->shared_bytes, wrong);
  return error;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                        CUstream handle, void **params, void **extra) {
  SimFunction *f = (SimFunction *)function;
  pthread_mutex_lock(&sim_process()->lock);
  bool known = sim_handle_is(function, SIM_FUNCTION);
  pthread_mutex_unlock(&sim_process()->lock);
  sim_enter("cuLaunchKernel", "%s grid %u %u %u block %u %u %u", known ? f->info->name : "?",
            grid_x, grid_y, grid_z, block_x, block_y, block_z);
  CUresult error = standin_check();
  if (!error && !known) error = CUDA_ERROR_INVALID_HANDLE;
  SimStream *stream = error ? NULL : sim_stream(handle, &error);
  if (!error && (extra || (f->info->nparams && !params))) error = CUDA_ERROR_INVALID_VALUE;
  PtxLaunch launch = {.grid = {grid_x, grid_y, grid_z},
                      .block = {block_x, block_y, block_z},
                      .shared_bytes = shared};
  if (!error) error = launch_check(f, &launch);
  if (error) return standin_leave(error);
  Launch *l = launch_new(f, &launch);
  for (uint32_t i = 0; i < f->info->nparams; i++)
    memcpy(l->params + f->info->params[i].offset, params[i], f->info->params[i].bytes);
  sim_enqueue(stream, &l->op);
  return standin_leave(CUDA_SUCCESS);
}
