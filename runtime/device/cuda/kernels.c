/* Code of the blob, and the actions of kind KERNEL: see cuda.h and abi/cuda.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "comm/errors.h"
#include "device/cuda/comm.h"
#include "device/cuda/kernels.h"

/* --- failures -----------------------------------------------------------------------------------
 */

/* Kernels run behind the calls: what fails now may have been enqueued earlier. */
static int is_late(CUresult error) {
  return error == CUDA_ERROR_ILLEGAL_ADDRESS || error == CUDA_ERROR_LAUNCH_FAILED ||
         error == CUDA_ERROR_MISALIGNED_ADDRESS || error == CUDA_ERROR_ILLEGAL_INSTRUCTION ||
         error == CUDA_ERROR_INVALID_ADDRESS_SPACE || error == CUDA_ERROR_INVALID_PC ||
         error == CUDA_ERROR_HARDWARE_STACK_ERROR || error == CUDA_ERROR_LAUNCH_TIMEOUT ||
         error == CUDA_ERROR_ASSERT || error == CUDA_ERROR_ECC_UNCORRECTABLE;
}

int dtm_cuda_failed(CudaDevice *d, CUresult error, const char *what) {
  /* memory of a peer whose process ended is gone while kernels of NCCL are in it */
  int code = d->base.comm->world > 1 && is_late(error) ? dtm_cuda_comm_told(d) : 0;
  if (code) return code;
  char text[512];
  dtm_cuda_error_text(d->cu, error, text, sizeof text);
  return dtm_rt_fail(d->base.comm, dtm_cuda_error_is_machine(error) ? RT_DEVICE : RT_INTERNAL,
                     "cannot %s on GPU %d: %s%s%s", what, (int)d->device, text,
                     dtm_cuda_error_remedy(error),
                     is_late(error) && !d->waits
                         ? "\n  a GPU reports such a fault late, so an earlier operation "
                           "may be its cause; with DTM_CUDA_WAIT=1 in the environment every "
                           "operation is waited for, and the one at fault is named"
                         : "");
}

/* --- modules ------------------------------------------------------------------------------------
 */

static int no_code(CudaDevice *d, uint32_t module) {
  char have[256];
  abi_cuda_list(&d->code, module, have, sizeof have);
  return dtm_rt_fail(d->base.comm, RT_DEVICE,
                     "this program has no code for GPU %d, %s (sm_%d): it was compiled for %s\n  "
                     "compile it again with --target=cuda:sm_%d",
                     (int)d->device, d->name, d->capability, have, d->capability);
}

/* The driver translates PTX: what it has to say about that is worth more than the code. */
static int load_failed(CudaDevice *d, CUresult error, const AbiCudaImage *image, const char *log) {
  char text[512];
  dtm_cuda_error_text(d->cu, error, text, sizeof text);
  const char *remedy =
      error == CUDA_ERROR_UNSUPPORTED_PTX_VERSION || error == CUDA_ERROR_INVALID_IMAGE ||
              error == CUDA_ERROR_NO_BINARY_FOR_GPU
          ? "\n  the driver may be older than the compiler of the code: install a newer "
            "driver, or compile the program with an older CUDA toolkit"
          : dtm_cuda_error_remedy(error);
  return dtm_rt_fail(
      d->base.comm, RT_DEVICE, "cannot load code for %s_%u on GPU %d, %s (sm_%d): %s%s%s%s",
      image->format == ABI_CUDA_PTX ? "compute" : "sm", (unsigned)image->arch, (int)d->device,
      d->name, d->capability, text, log[0] ? "\n  " : "", log, remedy);
}

/* The code, one malloc. 0 or the code to exit with. */
static int unpack(CudaDevice *d, const AbiCudaImage *image, void **code) {
  const unsigned char *bytes = (const unsigned char *)d->code.header + image->offset;
  uLongf size = image->size;
  *code = malloc(size + 1);
  int status = *code ? uncompress(*code, &size, bytes, image->bytes) : Z_MEM_ERROR;
  if (status == Z_OK && size == image->size) return 0;
  free(*code);
  *code = NULL;
  if (status == Z_MEM_ERROR) return dtm_rt_fail(d->base.comm, RT_DEVICE, "out of memory");
  return dtm_rt_fail(
      d->base.comm, RT_BAD_DATA,
      "the code for GPUs cannot be unpacked: this program is damaged, compile it again");
}

static int load_module(CudaDevice *d, uint32_t module) {
  enum { LOG = 4096 };
  if (d->modules[module]) return 0;
  const AbiCudaImage *image = abi_cuda_image(&d->code, module, (uint32_t)d->capability);
  if (!image) return no_code(d, module);
  char log[LOG] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void *values[] = {log, (void *)(uintptr_t)LOG}, *code;
  int status = unpack(d, image, &code);
  if (status) return status;
  CUresult error = d->cu->module_load(&d->modules[module], code, 2, options, values);
  free(code);
  log[LOG - 1] = 0;
  return error ? load_failed(d, error, image, log) : 0;
}

/* An entry of a module. */
static int find_entry(CudaDevice *d, uint32_t module, const char *name, CUfunction *function) {
  int status = load_module(d, module);
  if (status || !d->cu->module_function(function, d->modules[module], name)) return status;
  *function = NULL;
  return dtm_rt_fail(d->base.comm, RT_INTERNAL, "the code for GPUs has no function %s", name);
}

/* Function number `f` of the blob. */
static int function_at(CudaDevice *d, uint32_t f, CUfunction *function) {
  const AbiCudaFunction *record = &d->code.functions[f];
  int status = 0;
  if (!d->functions[f])
    status = find_entry(d, record->module, d->code.strings + record->entry, &d->functions[f]);
  *function = d->functions[f];
  return status;
}

int dtm_cuda_kernel_many(CudaDevice *d, uint32_t code, CUfunction *function) {
  enum { NAME = 512 };
  const AbiCudaFunction *record = &d->code.functions[code];
  char name[NAME];
  snprintf(name, sizeof name, "%s_many", d->code.strings + record->entry);
  return find_entry(d, record->module, name, function);
}

int dtm_cuda_function(CudaDevice *d, const char *name, CUfunction *function) {
  for (uint32_t f = 0; f < d->code.header->nfunctions; f++)
    if (strcmp(d->code.strings + d->code.functions[f].name, name) == 0)
      return function_at(d, f, function);
  *function = NULL;
  return dtm_rt_fail(d->base.comm, RT_INTERNAL, "the code for GPUs has no function %s", name);
}

int dtm_cuda_launch(CudaDevice *d, CUstream stream, CUfunction function, unsigned grid,
                    unsigned block, unsigned shared, void **params, uint32_t action) {
  if (grid == 0) return 0;
  CUresult error = d->cu->launch(function, grid, 1, 1, block, 1, 1, shared, stream, params, NULL);
  if (!error) return 0;
  dtm_device_place(&d->base, action);
  return dtm_cuda_failed(d, error, "launch a kernel");
}

/* --- generated kernels --------------------------------------------------------------------------
 */

int dtm_cuda_kernel_prepare(CudaDevice *d, uint32_t action, void **state) {
  const AbiAction *a = dtm_cuda_action(d, action);
  const AbiCudaFunction *f =
      a->code < d->code.header->nfunctions ? &d->code.functions[a->code] : NULL;
  if (!f || f->kind != ABI_CUDA_GENERATED || f->nbuffers != a->nbuffers || f->nints + 2 != a->nargs)
    return dtm_rt_fail(d->base.comm, RT_INTERNAL, "the code for GPUs is not that of this program");
  const int64_t *ints = d->base.arg_ints + a->args + 2;
  size_t n = (size_t)f->nbuffers + f->nints;
  CudaKernel *k = calloc(1, sizeof *k);
  *state = k;
  if (k) k->params = calloc(n + 2, sizeof *k->params);
  if (k) k->words = calloc(n + 1, sizeof *k->words);
  if (!k || !k->params || !k->words) return dtm_rt_fail(d->base.comm, RT_DEVICE, "out of memory");
  int status = function_at(d, a->code, &k->function);
  if (status) return status;
  k->launch = abi_cuda_launch(f, ints, ints[-2]);
  k->nbuffers = f->nbuffers;
  k->nints = f->nints;
  for (uint32_t i = 0; i < f->nbuffers; i++) {
    const AbiBuffer *b = &d->base.image->buffer[a->buffers + i];
    k->slotted |= b->slots > 1;
    k->words[i] = d->arena + b->offset;
  }
  for (uint32_t i = 0; i < f->nints; i++)
    memcpy(&k->words[f->nbuffers + i], &ints[i], sizeof *ints);
  for (size_t i = 0; i < n; i++) k->params[i] = &k->words[i];
  k->params[n] = &k->launch.tasks;
  k->params[n + 1] = &k->launch.group;
  return 0;
}

int dtm_cuda_kernel_run(CudaDevice *d, uint32_t action, void *state) {
  CudaKernel *k = state;
  const AbiBuffer *b = &d->base.image->buffer[dtm_cuda_action(d, action)->buffers];
  if (k->slotted)
    for (uint32_t i = 0; i < k->nbuffers; i++) k->words[i] = dtm_cuda_address(d, &b[i]);
  return dtm_cuda_launch(d, d->compute, k->function, k->launch.grid, ABI_CUDA_BLOCK, 0, k->params,
                         action);
}

void dtm_cuda_kernel_free(CudaDevice *d, void *state) {
  CudaKernel *k = state;
  (void)d;
  free(k->params);
  free(k->words);
  free(k);
}
