/* Where the actions of a program run: one table of functions per kind of device, the processor
 * (cpu/) or a GPU (cuda/).
 *
 * The executor (core/exec.c) opens a device for a rank, has it prepare every action that the rank
 * takes part in, and then walks the action table. Everything that depends on the rank alone
 * (integers) it has found before. A device may run ahead of the calls: what its outputs are is
 * known after `finish`.
 *
 * All entries that return int return 0 or the code to exit with, the job's failure printed.
 */
#ifndef DTM_RT_DEVICE_H
#define DTM_RT_DEVICE_H

#include "comm/comm.h"
#include "runtime/abi/image.h"

/* What the loops of training and evaluation do for the actions that touch the outside. Each returns
 * 0 or the code to exit with, its message printed. */
typedef struct RtHooks {
  void *context;
  /* This rank's block of the batch at hand of source `source`, into host memory. */
  int (*input)(void *context, uint32_t source, void *dst);
  /* The value (dense, Replicate) of output `output`, in host memory; `step` is the block of
   * integers it was computed with. */
  int (*output)(void *context, uint32_t output, const AbiStep *step, const void *value);
} RtHooks;

typedef struct RtDevice RtDevice;

/* An action ran from `begin` to `end`, in nanoseconds of CLOCK_MONOTONIC. */
typedef void RtTimed(void *context, uint32_t action, int64_t step, uint64_t begin, uint64_t end);

typedef struct RtDeviceOps {
  const char *name; /* "cpu", "cuda" */
  /* Once for each action that this rank takes part in, in their order. */
  int (*prepare)(RtDevice *d, uint32_t action);
  /* After the last of them. */
  int (*ready)(RtDevice *d);
  /* The integers of d->step are those of what runs from now on. */
  int (*set_step)(RtDevice *d);
  /* An action; its blocks are those of micro-batch d->step->micro. */
  int (*run)(RtDevice *d, uint32_t action, const RtHooks *hooks);
  /* Whether the device runs the actions from `first` on in one piece, `count` at most. *done: how
   * many it ran; 0: they are to be run one by one. NULL where it never does. */
  int (*run_many)(RtDevice *d, uint32_t first, uint32_t count, const RtHooks *hooks,
                  uint32_t *done);
  /* The end of a walk: outputs that are still under way are handed out. */
  int (*finish)(RtDevice *d, const RtHooks *hooks);
  /* Waits for all that was run, and reports what was wrong with it. */
  int (*sync)(RtDevice *d);
  /* What it is and how much of its memory the program takes, in one line; NULL: nothing to say. */
  void (*describe)(RtDevice *d, char *text, size_t size);
  /* `bytes` at arena offset `offset` as they are after all that was run, in host memory, until the
   * next call. */
  int (*view)(RtDevice *d, uint64_t offset, size_t bytes, const void **data);
  /* From now on actions are timed by the device's own clock; NULL where it has none. */
  int (*clock)(RtDevice *d);
  /* Waits for all that was run, and hands out the times of actions since the last call, in the
   * order they ran in; only after `clock`. */
  int (*times)(RtDevice *d, RtTimed *give, void *context);
  /* Also of a device that was only half opened. */
  void (*close)(RtDevice *d);
} RtDeviceOps;

struct RtDevice {
  const RtDeviceOps *ops;
  const Image *image;
  RtComm *comm;
  const int64_t *syms;       /* per record of the image's `sym`: its value on this rank */
  const int64_t *arg_ints;   /* per record of `arg` */
  const unsigned char *skip; /* per action: this rank has no part in it */
  AbiStep *step;             /* the block of integers that kernels read, in host memory */
};

/* Publishes where this rank is, or was in a step before. */
void dtm_device_place(RtDevice *d, uint32_t action);
void dtm_device_place_at(RtDevice *d, uint32_t action, int64_t step);

/* Bytes from the first block of a buffer to that of the micro-batch at hand. */
static inline size_t dtm_device_slot(const RtDevice *d, const AbiBuffer *b) {
  return b->slots > 1 ? (size_t)(d->step->micro % b->slots) * b->stride : 0;
}

/* START, PULL, PULL_ROWS, ALL_REDUCE, REDUCE_SCATTER, SLICE, FILL, COPY. */
static inline int dtm_device_is_move(uint32_t kind) {
  return kind == ABI_START || kind == ABI_PULL || kind == ABI_PULL_ROWS || kind == ABI_ALL_REDUCE ||
         kind == ABI_REDUCE_SCATTER || kind == ABI_SLICE || kind == ABI_FILL || kind == ABI_COPY;
}

typedef struct RtCode RtCode;
typedef int RtDeviceOpen(const RtDevice *found, const RtCode *code, RtDevice **device);

/* The kernels of a program, as its object file exports them. */
struct RtCode {
  RtDeviceOpen *open;          /* the device they are for */
  AbiKernelFn *const *kernels; /* for the processor */
  const unsigned char *cuda;   /* for GPUs (abi/cuda.h); such a program when cuda_size > 0 */
  size_t cuda_size;
};

/* Each sets *device, also when it fails; `found` has what the executor found. */
RtDeviceOpen dtm_cpu_open, dtm_cuda_open;

/* The object file names the one its code is for, so that the linker leaves out the other and what
 * that needs: a program for GPUs holds no oneDNN, one for the processor nothing of CUDA. */
extern RtDeviceOpen *const dtm_open_device;

#endif
