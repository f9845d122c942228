/* One action on the processor and on the simulated GPU, from the same bytes: kernels of products
 * and of library operators against the CPU's functions.
 *
 * A case is built tensor by tensor, inputs first, as the action wants its buffers; each lies in the
 * arena behind the one before, with a gap. What nobody writes on the GPU nobody may read.
 */
#ifndef DTM_TESTS_ONE_ACTION_H
#define DTM_TESTS_ONE_ACTION_H

#include <stdbool.h>
#include <stdint.h>

#include "device/cuda/cuda.h"

typedef struct OneAction OneAction;

/* Whether there is all that is needed ($GPUSIM, NVRTC); why not in *reason. */
bool one_action_possible(const char **reason);

/* Of rank `rank` of `ranks`. */
OneAction *one_action_new(uint32_t kind, uint32_t code, int32_t rank, int32_t ranks);
void one_action_free(OneAction *o);

/* A tensor, its dim `shard` cut over the ranks (-1: whole everywhere); its number. */
uint32_t one_action_tensor(OneAction *o, uint32_t dtype, uint32_t rank, const int64_t *shape,
                           int shard, bool written);
/* The last tensor lies where this one does. */
void one_action_share(OneAction *o, uint32_t with);
/* The next tensor begins so many elements behind an address that is a multiple of 256. */
void one_action_misalign(OneAction *o, uint32_t elements);
void one_action_arg(OneAction *o, int64_t value);
/* Of a product: a constant. */
uint32_t one_action_sym(OneAction *o, int64_t value);
void one_action_matmul(OneAction *o, const AbiMatmul *m);

/* This rank's block of a tensor, to be filled before it runs; elements are counted. */
void *one_action_input(OneAction *o, uint32_t tensor, int64_t *count);
uint32_t one_action_dtype(const OneAction *o, uint32_t tensor);

/* Runs it on both. False after a message when the GPU fails. */
bool one_action_run(OneAction *o);
const void *one_action_cpu(const OneAction *o, uint32_t tensor);
const void *one_action_gpu(const OneAction *o, uint32_t tensor);
/* What the GPU told; action 0 = nothing. */
const CudaFault *one_action_fault(const OneAction *o);
/* Whether the CPU said that something is wrong. */
bool one_action_cpu_failed(const OneAction *o);

#endif
