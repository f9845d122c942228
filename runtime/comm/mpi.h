/* The MPI transport: a shared object of its own, because MPI libraries are not binary compatible
 * and most runs need none. Loaded when an MPI launcher started the process. */
#ifndef DTM_RT_COMM_MPI_H
#define DTM_RT_COMM_MPI_H

#include "comm/comm.h"

typedef struct MpiSetup {
  int32_t world; /* ranks the program was compiled for */
  size_t arena_size;
  uint64_t plan_hash;
  double deadline;
} MpiSetup;

/* Finds libdtm_rt_mpi.so (in DTM_LIB_DIR, beside the program, in ../lib/dtm of it, where it was
 * built or installed, in the loader's path), and joins. 0, or a code of errors.h after a
 * message. */
int dtm_mpi_join(const MpiSetup *setup, RtComm **comm);

/* The one symbol the shared object exports. */
typedef int MpiEntry(const MpiSetup *setup, RtComm **comm);
MpiEntry dtm_rt_mpi_join;

#endif
