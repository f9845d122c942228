/* Reading the environment that launchers leave: see launcher.h. */
#include "core/launcher.h"

#include "comm/errors.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct LauncherVariables {
  const char *name;
  const char *rank, *world, *local_world; /* variables; the last may be missing */
  const char *needs;                      /* also set when it is really this launcher; or NULL */
  const char *job[3];                     /* variables that together name the job */
  bool mpi;
} LauncherVariables;

/* In the order of precedence. Slurm sets rank and size also in a batch script, where nobody else
 * was started: only the id of a step tells that srun did it. */
static const LauncherVariables launchers[] = {
    {"torchrun",
     "RANK",
     "WORLD_SIZE",
     "LOCAL_WORLD_SIZE",
     NULL,
     {"TORCHELASTIC_RUN_ID", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"},
     false},
    {"mpirun (OpenMPI)",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     NULL,
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", NULL},
     true},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", NULL, {"PMI_FD", "PMI_ID", NULL}, true},
    {"srun (Slurm)",
     "SLURM_PROCID",
     "SLURM_NTASKS",
     NULL,
     "SLURM_STEP_ID",
     {"SLURM_JOB_ID", "SLURM_STEP_ID", NULL},
     false},
};

static int read_number(const LauncherVariables *l, const char *variable, int32_t least,
                       int32_t *value) {
  const char *text = getenv(variable);
  char *end;
  long v = text ? strtol(text, &end, 10) : 0;
  if (!text || end == text || *end || v < least || v > INT32_MAX) {
    return dtm_rt_fail(NULL, RT_USAGE, "%s was set by %s to '%s', which is not a rank or a size",
                       variable, l->name, text ? text : "");
  }
  *value = (int32_t)v;
  return 0;
}

/* Slurm says "4(x2),3": tasks on each node. One node: all of them. */
static int32_t slurm_local_world(int32_t world) {
  const char *nodes = getenv("SLURM_STEP_NUM_NODES");
  nodes = nodes ? nodes : getenv("SLURM_NNODES");
  return !nodes ? 0 : strcmp(nodes, "1") == 0 ? world : 1;
}

static void name_job(const LauncherVariables *l, Launcher *out) {
  size_t n = (size_t)snprintf(out->job, sizeof out->job, "%s", l->name);
  bool named = false;
  for (int i = 0; i < 3 && l->job[i]; i++) {
    const char *text = getenv(l->job[i]);
    /* PMI's file descriptor and id differ from process to process. */
    if (text && strncmp(l->job[i], "PMI_", 4) != 0 && n < sizeof out->job) {
      n += (size_t)snprintf(out->job + n, sizeof out->job - n, "/%s", text);
      named = true;
    }
  }
  if (!named && n < sizeof out->job) {
    /* Processes of one job on one machine have the launcher as parent. */
    snprintf(out->job + n, sizeof out->job - n, "/parent %d", (int)getppid());
  }
}

/* RANK and WORLD_SIZE come of torchrun, or of a pod's template (Kubeflow), and then every process
 * that an mpirun starts there has the same. Slurm's may differ: it starts torchrun and mpirun. */
static int check_alone(const LauncherVariables *l, const Launcher *found) {
  const LauncherVariables *mpirun = &launchers[1];
  Launcher other;
  if (l != &launchers[0] || getenv(l->job[0])) return 0;
  if (!getenv(mpirun->rank) || !getenv(mpirun->world)) return 0;
  int error = read_number(mpirun, mpirun->rank, 0, &other.rank);
  if (!error) error = read_number(mpirun, mpirun->world, 1, &other.world);
  if (error || (other.rank == found->rank && other.world == found->world)) return error;
  return dtm_rt_fail(NULL, RT_USAGE,
                     "the environment has %s=%d, %s=%d as of %s and %s=%d, %s=%d of %s\n"
                     "  unset those that are not of what started this process",
                     l->rank, (int)found->rank, l->world, (int)found->world, l->name, mpirun->rank,
                     (int)other.rank, mpirun->world, (int)other.world, mpirun->name);
}

int dtm_rt_launcher_find(const RtOptions *o, Launcher *out) {
  *out = (Launcher){.world = 1};
  if (o->rank >= 0) {
    *out = (Launcher){.name = "--rank", .rank = o->rank, .world = o->world};
    snprintf(out->job, sizeof out->job, "--job/%s", o->job ? o->job : "default");
    return 0;
  }
  for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
    const LauncherVariables *l = &launchers[i];
    if (!getenv(l->rank) || !getenv(l->world) || (l->needs && !getenv(l->needs))) {
      continue;
    }
    *out = (Launcher){.world = 1};
    int error = read_number(l, l->rank, 0, &out->rank);
    if (!error) {
      error = read_number(l, l->world, 1, &out->world);
    }
    if (!error && l->local_world && getenv(l->local_world)) {
      error = read_number(l, l->local_world, 1, &out->local_world);
    }
    if (error) {
      return error;
    }
    if (out->rank >= out->world) {
      return dtm_rt_fail(NULL, RT_USAGE, "%s=%d is not below %s=%d", l->rank, (int)out->rank,
                         l->world, (int)out->world);
    }
    if (out->world == 1) {
      continue;
    }
    if (out->local_world > out->world) {
      return dtm_rt_fail(NULL, RT_USAGE, "%s=%d is more than %s=%d", l->local_world,
                         (int)out->local_world, l->world, (int)out->world);
    }
    error = check_alone(l, out);
    if (error) {
      return error;
    }
    if (!l->local_world) {
      out->local_world = slurm_local_world(out->world);
    }
    out->name = l->name;
    out->mpi = l->mpi;
    name_job(l, out);
    return 0;
  }
  *out = (Launcher){.world = 1};
  return 0;
}
