/* Inside runtime/state: variables to and from one safetensors file. */
#ifndef DTM_RT_STATE_FILES_H
#define DTM_RT_STATE_FILES_H

#include "comm/comm.h"
#include "state/safetensors.h"
#include "state/var_block.h"

/* Metadata key of files that a compiled program wrote. */
#define STATE_MARK "dtm"

typedef struct LoadSetup {
  const char *path; /* for messages */
  bool (*wanted)(const AbiVar *v);
} LoadSetup;

/* Collective. Variables that `wanted` accepts, out of an open store. */
int dtm_rt_load_vars(RtComm *comm, const Image *image, const LoadSetup *setup,
                     const StStore *store);

typedef struct SaveSetup {
  const char *path;
  bool (*wanted)(const AbiVar *v);
  const char *const *metadata; /* pairs of strings */
  size_t nmetadata;
} SaveSetup;

/* Collective over the world. Writes PATH.partial (each element by its one owner), then renames it
 * over PATH: the old file stays whole until the new one is on disk. Partial variables are reduced
 * first and hold the sum on coordinate 0 afterwards, as after loading. */
int dtm_rt_save_vars(RtComm *comm, const Image *image, const SaveSetup *setup);

#endif
