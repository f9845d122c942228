/* Attention on a GPU: its kernels, found at start, and their launches. See attention_plan.h. */
#include <stdio.h>
#include <stdlib.h>

#include "comm/errors.h"
#include "device/cuda/attention_plan.h"
#include "device/cuda/cuda.h"

typedef struct State {
  AttentionPlan plan;
  CUfunction function[ATTENTION_MAX_LAUNCHES];
} State;

enum { FREE_SHARED = 48 << 10 };

/* More shared memory than a kernel may have unasked. */
static int allow_shared(CudaDevice *d, CUfunction function, uint32_t bytes) {
  if (bytes <= FREE_SHARED) return 0;
  CUresult error =
      d->cu->function_set(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)bytes);
  return error ? dtm_cuda_failed(d, error, "give attention its shared memory") : 0;
}

static int find_functions(CudaDevice *d, State *s) {
  AbiCudaInstance instance = abi_cuda_attention_instance(&s->plan.which);
  for (uint32_t i = 0; i < s->plan.nlaunches; i++) {
    char name[96];
    snprintf(name, sizeof name, "%s%s", s->plan.launch[i].kernel, instance.suffix);
    int status = dtm_cuda_function(d, name, &s->function[i]);
    if (!status) status = allow_shared(d, s->function[i], s->plan.launch[i].shared);
    if (status) return status;
  }
  return 0;
}

int dtm_cuda_attention_prepare(CudaDevice *d, uint32_t action, void **state) {
  const AbiAction *a = dtm_cuda_action(d, action);
  LibTensor t[ATTENTION_MAX_TENSORS];
  State *s = calloc(1, sizeof *s);
  *state = s;
  if (!s) return dtm_rt_fail(d->base.comm, RT_DEVICE, "out of memory");
  AbiCudaAttention which = abi_cuda_attention(d->base.image, a);
  for (uint32_t i = 0; i < a->nbuffers; i++)
    t[i] = dtm_device_tensor(&d->base, &d->base.image->buffer[a->buffers + i], NULL);
  s->plan = dtm_cuda_attention_plan(&which, t, a->nbuffers, d->base.arg_ints + a->args);
  if (s->plan.scratch > d->scratch_bytes) d->scratch_bytes = s->plan.scratch;
  return find_functions(d, s);
}

int dtm_cuda_attention_run(CudaDevice *d, uint32_t action, void *state) {
  State *s = state;
  const AbiAction *a = dtm_cuda_action(d, action);
  void *address[ATTENTION_MAX_TENSORS];
  for (uint32_t i = 0; i < a->nbuffers; i++)
    address[i] = (void *)(uintptr_t)dtm_cuda_address(d, &d->base.image->buffer[a->buffers + i]);
  AttentionArgs args = dtm_cuda_attention_args(&s->plan, address, (void *)(uintptr_t)d->scratch,
                                               (void *)(uintptr_t)(d->arena + ABI_STEP_OFFSET));
  void *params[] = {&args};
  for (uint32_t i = 0; i < s->plan.nlaunches; i++) {
    const AttentionLaunch *l = &s->plan.launch[i];
    int status = dtm_cuda_launch(d, d->compute, s->function[i], l->grid, l->block, l->shared,
                                 params, action);
    if (status) return status;
  }
  return 0;
}

void dtm_cuda_attention_free(CudaDevice *d, void *state) {
  (void)d;
  free(state);
}
