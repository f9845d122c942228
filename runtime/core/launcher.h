/* Which launcher started this process, and what it says about the job. */
#ifndef DTM_RT_LAUNCHER_H
#define DTM_RT_LAUNCHER_H

#include "core/options.h"

typedef struct Launcher {
  const char *name; /* "torchrun", ...; NULL = alone: start the ranks ourselves */
  int32_t rank, world;
  int32_t local_world; /* processes on this machine; 0 = unknown */
  char job[256];       /* the same for all processes of the job, another for every other job */
  bool mpi;            /* an MPI launcher: MPI_Init will work */
} Launcher;

/* First match wins: --rank/--world, torchrun (also Kubeflow's PyTorchJob), OpenMPI, PMI, Slurm. A
 * launcher that starts one process only counts as alone. Returns 0, or RT_USAGE after printing what
 * is wrong with the environment. */
int dtm_rt_launcher_find(const RtOptions *o, Launcher *launcher);

#endif
