/* Start and end of a rank: see launch.h. */
#include "core/launch.h"

#include "comm/errors.h"
#include "comm/local.h"
#include "comm/meet.h"
#include "comm/mpi.h"
#include "core/affinity.h"
#include "core/launcher.h"
#include "core/supervise.h"
#include "core/waiting.h"

#include <errno.h>
#include <omp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Mutable globals, the only ones: a signal handler has nowhere else to write. The number of the
 * signal that asked us to stop, or 0, and when it came (ms). */
static volatile sig_atomic_t stop_signal;
static volatile int64_t stop_time;

/* One request may arrive twice at once: from the terminal or `timeout`, which signal the whole
 * group, and passed on by the supervisor. Only a Ctrl-C some time later means "now". */
static void on_stop(int number) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  int64_t now = (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
  if (number == SIGINT && stop_signal && now - stop_time > RT_SAME_REQUEST_MS) {
    signal(SIGINT, SIG_DFL);
    raise(SIGINT);
  } else if (!stop_signal) {
    stop_signal = number;
    stop_time = now;
  }
}

static void catch_stop_signals(void) {
  struct sigaction action = {.sa_handler = on_stop, .sa_flags = SA_RESTART}, old;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  if (sigaction(SIGHUP, NULL, &old) == 0 && old.sa_handler != SIG_IGN) {
    sigaction(SIGHUP, &action, NULL);
  }
}

int dtm_rt_stop_agreed(RtComm *comm, bool *stop) {
  uint32_t all = 0;
  int error = comm->ops->agree(comm, (uint32_t)stop_signal, &all);
  if (!error && all && !stop_signal) {
    stop_signal = SIGTERM; /* another rank was asked */
  }
  *stop = all != 0;
  return error;
}

/* `requested` when > 0, else OMP_NUM_THREADS (at most RT_MOST_THREADS), else max(1, cores / ranks
 * on this machine). */
static int threads_of_rank(int requested, int32_t local_world) {
  const char *variable = getenv("OMP_NUM_THREADS"); /* "8", or "8,2" for nested regions */
  long wanted = variable ? strtol(variable, NULL, 10) : 0;
  int threads = requested;
  if (threads <= 0 && wanted > 0) {
    threads = wanted > RT_MOST_THREADS ? RT_MOST_THREADS : (int)wanted;
  }
  if (threads <= 0) {
    threads = dtm_rt_cores() / (local_world > 0 ? local_world : 1);
  }
  return threads < 1 ? 1 : threads;
}

/* Sets the size of the pool of OpenMP threads, also oneDNN's, and returns it. */
static int set_threads(int requested, int32_t local_world) {
  int threads = threads_of_rank(requested, local_world);
  omp_set_dynamic(0);
  omp_set_num_threads(threads);
  return threads;
}

/* Memory is taken as it is touched: without this check a program too large would train for a while
 * and then be killed without a word. */
static int check_memory(const RtLaunch *launch, int32_t ranks_here) {
  const double gib = 1 << 30;
  uint64_t total, available, need;
  if (launch->mirror) return 0; /* hardly any of it is ever there */
  dtm_rt_memory(&total, &available);
  if (__builtin_mul_overflow((uint64_t)launch->arena_size, (uint64_t)ranks_here, &need) ||
      need > total) {
    return dtm_rt_fail(
        NULL, RT_DEVICE,
        "this program needs %.2f GiB for each of %d ranks on this machine, which has "
        "%.2f GiB\n  use a smaller batch or model, or more machines",
        (double)launch->arena_size / gib, (int)ranks_here, (double)total / gib);
  }
  if (need > available) {
    dtm_rt_warn(NULL, "this program needs %.2f GiB on this machine, of which %.2f GiB are free",
                (double)need / gib, (double)available / gib);
  }
  return 0;
}

static int cannot_reserve(const RtLaunch *launch, int32_t ranks, int error) {
  return dtm_rt_fail(NULL, RT_DEVICE, "cannot reserve memory for %d rank%s of %.2f GiB each: %s%s",
                     (int)ranks, ranks == 1 ? "" : "s", (double)launch->arena_size / (1 << 30),
                     strerror(error),
                     error == EFBIG ? "\n  raise the limit on file sizes (ulimit -f)" : "");
}

static int join(const RtLaunch *launch, const LocalSegment *segment, int32_t rank, RtComm **comm) {
  int threads = set_threads(launch->options->threads, launch->world);
  *comm = dtm_local_join(segment, rank, threads, launch->options->deadline);
  catch_stop_signals();
  return *comm ? 0 : dtm_rt_fail(NULL, RT_DEVICE, "out of memory");
}

/* Every rank is a process; one machine cannot hold any number of them. */
static int check_world(const RtLaunch *launch) {
  if (launch->world <= LOCAL_MAX_WORLD) return 0;
  return dtm_rt_fail(NULL, RT_DEVICE,
                     "this program was compiled for %d ranks, which are one process each; on one "
                     "machine there can be %d\n"
                     "  start them on several machines with mpirun -n %d PROGRAM, or compile it "
                     "again with a smaller --mesh",
                     (int)launch->world, LOCAL_MAX_WORLD, (int)launch->world);
}

/* One memory segment, forked ranks. */
static int launch_alone(const RtLaunch *launch, RtComm **comm) {
  if (launch->world > 1) {
    dtm_rt_affinity_unbind();
  }
  LocalSegment segment;
  LocalSetup setup = {launch->world, launch->arena_size, launch->world > 1};
  int status = check_world(launch), error = 0;
  if (!status) status = check_memory(launch, launch->world);
  if (status) {
    return status;
  }
  error = dtm_local_create(&setup, &segment);
  if (error) {
    return cannot_reserve(launch, launch->world, error);
  }
  int32_t rank = launch->world > 1 ? dtm_rt_supervise(&segment, launch->world, &status) : 0;
  return rank < 0 ? status : join(launch, &segment, rank, comm);
}

static int launch_joined(const RtLaunch *launch, const Launcher *launcher, RtComm **comm) {
  Meeting meeting = {.rank = launcher->rank,
                     .world = launcher->world,
                     .arena_size = launch->arena_size,
                     .plan_hash = launch->plan_hash,
                     .job = launcher->job,
                     .deadline = launch->options->deadline};
  LocalSegment segment;
  int error = launcher->rank == 0 ? check_world(launch) : 0;
  if (!error && launcher->rank == 0) error = check_memory(launch, launcher->world);
  error = error ? error : dtm_local_meet(&meeting, &segment);
  return error ? error : join(launch, &segment, launcher->rank, comm);
}

static int launch_mpi(const RtLaunch *launch, RtComm **comm) {
  MpiSetup setup = {.world = launch->world,
                    .arena_size = launch->arena_size,
                    .plan_hash = launch->plan_hash,
                    .deadline = launch->options->deadline};
  int error = dtm_mpi_join(&setup, comm);
  if (error) {
    return error;
  }
  (*comm)->threads = set_threads(launch->options->threads, (*comm)->local_world);
  catch_stop_signals();
  return 0;
}

int dtm_rt_launch(const RtLaunch *launch, RtComm **comm) {
  const RtOptions *o = launch->options;
  Launcher launcher;
  *comm = NULL;
  signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes: writing fails with EFBIG and says so */
  int error = dtm_rt_launcher_find(o, &launcher);
  if (error) {
    return error;
  }
  int32_t joined = launcher.local_world ? launcher.local_world : launcher.world;
  int32_t here = launcher.name ? joined : launch->world;
  dtm_rt_waiting_settle(threads_of_rank(o->threads, here), here, launch->argv);
  if (!launcher.name) {
    if (o->transport == RT_TRANSPORT_MPI && launch->world > 1) {
      return dtm_rt_fail(NULL, RT_USAGE,
                         "--comm mpi needs an MPI launcher: mpirun -n %d PROGRAM --comm mpi",
                         (int)launch->world);
    }
    return launch_alone(launch, comm);
  }
  if (launcher.world != launch->world) {
    return dtm_rt_fail(NULL, RT_USAGE,
                       "%s started %d processes, but this program was compiled for %d ranks\n"
                       "  start %d processes, or compile it again with another --mesh",
                       launcher.name, (int)launcher.world, (int)launch->world, (int)launch->world);
  }
  bool one_machine = launcher.local_world == 0 || launcher.local_world == launcher.world;
  bool mpi =
      o->transport == RT_TRANSPORT_MPI || (o->transport == RT_TRANSPORT_AUTO && !one_machine);
  if (mpi && !launcher.mpi) {
    return dtm_rt_fail(NULL, RT_DEVICE,
                       "ranks on several machines need MPI, but %s started this process\n"
                       "  start it with mpirun",
                       launcher.name);
  }
  if (launcher.rank == 0 && !o->quiet) {
    fprintf(stderr, "started by %s: %d ranks over %s\n", launcher.name, (int)launcher.world,
            mpi ? "MPI" : "shared memory");
  }
  return mpi ? launch_mpi(launch, comm) : launch_joined(launch, &launcher, comm);
}

int dtm_rt_finish(RtComm *comm, int status) {
  if (status == RT_OK) {
    uint32_t all;
    status = comm->ops->agree(comm, 0, &all); /* nobody leaves before all are done */
  }
  comm->ops->destroy(comm, status);
  return status == RT_OK && stop_signal ? 128 + stop_signal : status;
}
