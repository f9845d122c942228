/* Data sources of one program block, read batch by batch.
 *
 * All sources of a block advance together and hold the same number of samples. An epoch visits
 * every sample once, in an order that depends on (seed, epoch) alone when shuffled, never on the
 * mesh or the number of ranks. Each rank reads only the bytes of its own block of a batch. Values
 * are converted to the batch's element type (times the source's scale) and checked against `below`.
 *
 * A source may be a part of its file: the samples between two shares of them, so that training and
 * evaluation share a file and no sample.
 *
 * A file with as many dims as the batch holds one sample per row. A stream of one dim against a
 * batch of two is cut into windows of the batch's second extent: of integers, each begins with the
 * last element of the one before (tokens [batch, seq + 1]: nothing is left out and no target is
 * lost); of floats, and for batches of more dims, they are disjoint.
 */
#ifndef DTM_RT_DATA_H
#define DTM_RT_DATA_H

#include "comm/comm.h"
#include "runtime/abi/image.h"

typedef struct RtData RtData;

typedef struct RtDataSetup {
  RtComm *comm;
  const Image *image;
  uint32_t program;         /* AbiProgramKind: its sources are opened */
  const char *const *paths; /* per record of the image's `source` table: the file to read */
  bool shuffle;
  uint64_t seed;
} RtDataSetup;

/* The reader "valid" has no file: element i of its bool [N] is true when sample i / (N / batch) of
 * the batch is real and false when it is padding. Evaluation masks the last batch with it.
 *
 * Opens and checks every source of the program: missing, damaged or unfit files end with one
 * message that names the file, what was expected and the place of the declaration. Returns 0 or the
 * code to exit with. A program without sources gives an RtData of 0 samples. */
int dtm_rt_data_open(const RtDataSetup *setup, RtData **data);
void dtm_rt_data_close(RtData *data);

/* Samples of one epoch. */
int64_t dtm_rt_data_samples(const RtData *data);

/* This rank's block of batch `batch` of epoch `epoch` (both from 0) of source `source` (index in
 * the image), into `dst`, dense and row-major. Samples beyond the last repeat the last one: the
 * caller knows how many are valid. Returns 0 or the code to exit with (a value out of range). */
int dtm_rt_data_read(RtData *data, uint32_t source, int64_t epoch, int64_t batch, void *dst);

#endif
