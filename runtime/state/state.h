/* Variables in files: safetensors in and out, whole checkpoints with optimizer state.
 *
 * Every function is collective over the world and works on the variables' memory in the arena
 * (AbiVar.offset). A file holds full tensors; each rank reads and writes only its own bytes: Shard
 * slices, Replicate copies, Partial(sum) keeps the value on rank 0 of that axis (product: 1 on the
 * others; avg, max, min: every rank keeps it). Files are replaced atomically. Each returns 0 or the
 * code to exit with, its message printed.
 */
#ifndef DTM_RT_STATE_H
#define DTM_RT_STATE_H

#include "comm/comm.h"
#include "runtime/abi/image.h"

/* Where training stands: what a resumed run continues from, bit by bit. */
typedef struct RtProgress {
  int64_t step;  /* finished steps */
  int64_t epoch; /* that the next batch belongs to */
  int64_t batch; /* index of the next batch in its epoch */
  uint64_t seed;
} RtProgress;

/* Parameters and buffers from a safetensors file, a sharded index (*.index.json) or a folder that
 * holds either. Names and storage in files are those that the program declares (`name`, `rename`,
 * `transposed`, `chunks`), in what is saved too. A prefix that all names of the file have beside
 * them is passed over; tensors that are not used are listed. A missing tensor or one of another
 * shape or type is an error. */
int dtm_rt_state_load(RtComm *comm, const Image *image, const char *path);

/* Whether a checkpoint can be put at `path`, before hours of training depend on it: an error for a
 * folder, a device, a file that is no checkpoint, where no file can be created, and where another
 * run saves. Makes FILE.state/ and holds it until this process ends. */
int dtm_rt_checkpoint_probe(RtComm *comm, const char *path);

/* Parameters and buffers to one safetensors file, and beside it what a resumed run needs: optimizer
 * state and progress (FILE.state/). Loading takes the same path. */
int dtm_rt_checkpoint_save(RtComm *comm, const Image *image, const char *path,
                           const RtProgress *progress);
int dtm_rt_checkpoint_load(RtComm *comm, const Image *image, const char *path,
                           RtProgress *progress);

#endif
