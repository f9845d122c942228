/* Launch: one process per rank, from the binary alone or under a launcher.
 *
 * Alone, the process that was started becomes the supervisor of `world` forked ranks (with one rank
 * it is the rank): it waits for them, reports the one that dies with the place it had reached, and
 * ends the rest. Under torchrun, mpirun, srun or a PMI launcher each process is one rank. Ranks on
 * one machine share memory; ranks on several need MPI.
 */
#ifndef DTM_RT_LAUNCH_H
#define DTM_RT_LAUNCH_H

#include "comm/comm.h"
#include "core/options.h"

typedef struct RtLaunch {
  int32_t world;      /* ranks the program was compiled for */
  size_t arena_size;  /* bytes per rank */
  bool mirror;        /* the arena is that of a GPU, and what is mapped here a mirror (comm.h) */
  uint64_t plan_hash; /* of the action table: ranks must run the same program */
  const RtOptions *options;
  char **argv; /* of main, for a start in another environment (waiting.h); may be NULL */
} RtLaunch;

/* Call it before anything starts threads (OpenMP, oneDNN). In a rank: *comm is set, returns 0. Else
 * *comm is NULL and main returns the value: the supervisor after its ranks ended, or an error,
 * already printed. */
int dtm_rt_launch(const RtLaunch *launch, RtComm **comm);

/* Ends this rank: a clean end (status 0) first waits for all ranks. Returns what main returns. */
int dtm_rt_finish(RtComm *comm, int status);

/* Ctrl-C or SIGTERM arrived at this process: save and stop. A second Ctrl-C kills. Ranks must agree
 * where to stop: call dtm_rt_stop_agreed once per step on every rank; *stop is the same on all. */
int dtm_rt_stop_agreed(RtComm *comm, bool *stop);

#endif
