/* Collectives of local ranks beside OpenMPI's on the same machine in the same run.
 *
 * Bytes: all-reduce and reduce-scatter have that many in every rank's input, all-gather in its
 * output, all-to-all in both; f32, sum; source and destination differ. Passes of ours and of
 * OpenMPI alternate and the least time of each case counts, so that noise of the machine hits both
 * alike. Both warm up and check their results. OpenMPI runs in two ways: as a program gets it when
 * it takes its buffers from malloc and does not ask for more, and tuned, with large pages and each
 * rank bound to a processor of its own when there are enough, as ours are. Without mpirun (or the
 * MPI program beside this one) only our times are printed. */
#include "bench/collectives.h"

#include "comm/local.h"

#include "bench/table.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* Destinations lie behind the largest source, and not a power of two away from it: in no program do
 * they, and it would make both fall on the same lines of a cache. */
enum { PASSES = 3, MAX_RANKS = 16, DST = (256 << 20) + 17 * 4160 };

typedef enum MpiWay { MPI_PLAIN, MPI_TUNED, MPI_WAYS } MpiWay;

typedef struct Table { /* seconds; 0 = not measured */
  double ours[COLLECTIVES][SIZES], mpi[MPI_WAYS][COLLECTIVES][SIZES];
} Table;

static void note(double *least, double seconds) {
  if (*least == 0 || seconds < *least) {
    *least = seconds;
  }
}

static int collective(RtComm *c, int which, size_t bytes, const int32_t *group) {
  size_t n = (size_t)c->world, count = bytes / 4, part = count / n;
  const size_t dst = DST;
  RtBox boxes[MAX_RANKS];
  switch (which) {
  case ALL_REDUCE:
    return c->ops->all_reduce(c, 0, dst, count, ABI_F32, ABI_SUM, group, c->world);
  case REDUCE_SCATTER:
    boxes[0] = (RtBox){.ndims = 1,
                       .extent = {(int64_t)part},
                       .src_offset = (int64_t)(part * (size_t)c->rank),
                       .src_stride = {1},
                       .dst_stride = {1}};
    return c->ops->reduce_scatter(c, 0, dst, ABI_F32, ABI_SUM, boxes, 1, group, c->world);
  default:
    for (size_t r = 0; r < n; r++) {
      boxes[r] = (RtBox){.peer = (int32_t)r,
                         .ndims = 1,
                         .extent = {(int64_t)part},
                         .src_offset = which == ALL_GATHER ? 0 : (int64_t)(part * (size_t)c->rank),
                         .src_stride = {1},
                         .dst_offset = (int64_t)(part * r),
                         .dst_stride = {1}};
    }
    return c->ops->pull(c, 0, dst, ABI_F32, boxes, n, group, c->world);
  }
}

/* One rank runs all cases; rank 0 writes its times to `out`. */
static void rank_main(RtComm *c, const int32_t *group, int out) {
  double times[COLLECTIVES][SIZES] = {0};
  memset(c->arena, 0, c->arena_size);
  fill_source((float *)(void *)c->arena, collective_bytes[SIZES - 1] / 4, c->rank);
  for (int which = 0; which < COLLECTIVES; which++) {
    for (int size = 0; size < SIZES; size++) {
      for (int t = 0; t <= collective_timings[size]; t++) { /* the first warms up */
        c->ops->barrier(c, group, c->world);
        double begin = bench_now();
        for (int i = 0; i < collective_repeats[size]; i++) {
          collective(c, which, collective_bytes[size], group);
        }
        if (t > 0) {
          note(&times[which][size], (bench_now() - begin) / collective_repeats[size]);
        }
      }
      c->ops->barrier(c, group, c->world);
      size_t bytes = collective_bytes[size];
      const float *dst = (const float *)(const void *)((const char *)c->arena + DST);
      if (!right_result(which, bytes, dst, c->rank, c->world)) {
        fprintf(stderr, "wrong result of %s, %zu KiB\n", collective_name[which], bytes >> 10);
        _exit(1);
      }
    }
  }
  if (c->rank == 0 && write(out, times, sizeof times) != (ssize_t)sizeof times) {
    _exit(1);
  }
}

/* A processor for every rank, as mpirun does it, when there are enough. */
static void bind_rank(int rank, int ranks) {
  cpu_set_t all, one;
  if (sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) < ranks) return;
  CPU_ZERO(&one);
  for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; cpu++)
    if (CPU_ISSET(cpu, &all) && seen++ == rank) CPU_SET(cpu, &one);
  sched_setaffinity(0, sizeof one, &one);
}

static int run_ours(int ranks, Table *table) {
  LocalSegment segment;
  LocalSetup setup = {ranks, DST + collective_bytes[SIZES - 1], false};
  int channel[2], error = dtm_local_create(&setup, &segment);
  if (error || pipe(channel) != 0) {
    fprintf(stderr, "cannot start: %s\n", strerror(error));
    return 1;
  }
  int32_t group[MAX_RANKS];
  for (int r = 0; r < ranks; r++) {
    group[r] = r;
  }
  for (int r = 0; r < ranks; r++) {
    if (fork() == 0) {
      bind_rank(r, ranks);
      RtComm *c = dtm_local_join(&segment, r, 1, 60);
      dtm_rt_comm_place(c, (RtPlace){0, "bench", "-"});
      rank_main(c, group, channel[1]);
      _exit(0);
    }
  }
  close(channel[1]);
  double times[COLLECTIVES][SIZES];
  bool good = read(channel[0], times, sizeof times) == (ssize_t)sizeof times;
  close(channel[0]);
  for (int status; wait(&status) > 0;) {
    good = good && status == 0;
  }
  close(segment.fd);
  for (int i = 0; i < COLLECTIVES && good; i++) {
    for (int j = 0; j < SIZES; j++) {
      note(&table->ours[i][j], times[i][j]);
    }
  }
  return !good;
}

/* Lines "collective size seconds" from the MPI program. */
static int run_mpi(const char *program, int ranks, MpiWay way, Table *table) {
  char command[1200];
  const char *bind = "--oversubscribe";
  if (way == MPI_TUNED)
    bind = ranks <= dtm_rt_cores() ? "--use-hwthread-cpus --bind-to hwthread"
                                   : "--oversubscribe --bind-to none";
  snprintf(command, sizeof command, "mpirun %s --allow-run-as-root -n %d '%s' %s 2>/dev/null", bind,
           ranks, program, way == MPI_TUNED ? "large-pages" : "");
  FILE *f = popen(command, "r");
  int which, size, lines = 0;
  double seconds;
  while (f && fscanf(f, "%d %d %lf", &which, &size, &seconds) == 3) {
    note(&table->mpi[way][which][size], seconds);
    lines++;
  }
  return !f || pclose(f) != 0 || lines != COLLECTIVES * SIZES;
}

static void print(int ranks, const Table *table) {
  printf("\n%d ranks\n\n", ranks);
  table_head("| %-14s | %7s | %9s | %10s | %5s | %9s | %5s |", "", "KiB", "ours us", "OpenMPI us",
             "ratio", "tuned us", "ratio");
  for (int i = 0; i < COLLECTIVES; i++) {
    for (int j = 0; j < SIZES; j++) {
      double ours = table->ours[i][j] * 1e6;
      printf("| %-14s | %7zu | %9.1f |", collective_name[i], collective_bytes[j] >> 10, ours);
      for (int way = 0; way < MPI_WAYS; way++) {
        double mpi = table->mpi[way][i][j] * 1e6;
        if (mpi > 0)
          printf(" %*.1f | %5.1f |", way == MPI_PLAIN ? 10 : 9, mpi, mpi / ours);
        else
          printf(" %*s | %5s |", way == MPI_PLAIN ? 10 : 9, "", "");
      }
      putchar('\n');
    }
  }
}

int main(int argc, char **argv) {
  int ranks[8] = {2, 4}, nranks = 2;
  if (argc > 1) {
    nranks = 0;
    for (int i = 1; i < argc && nranks < 8; i++) {
      ranks[nranks] = atoi(argv[i]);
      if (ranks[nranks] < 2 || ranks[nranks] > MAX_RANKS) {
        fprintf(stderr, "usage: %s [RANKS ...]   numbers of ranks from 2 to 16 (default 2 4)\n",
                argv[0]);
        return 2;
      }
      nranks++;
    }
  }
  char program[1024];
  ssize_t n = readlink("/proc/self/exe", program, sizeof program - 8);
  bool mpi = n > 0;
  if (mpi) {
    strcpy(program + n, "_mpi");
    mpi = access(program, X_OK) == 0 && system("mpirun --version >/dev/null 2>&1") == 0;
  }
  printf("%d processors%s\n", dtm_rt_cores(), mpi ? "" : "; no mpirun: our times only");
  for (int i = 0; i < nranks; i++) {
    Table table = {0};
    for (int pass = 0; pass < PASSES; pass++) {
      if (run_ours(ranks[i], &table) != 0) {
        return 1;
      }
      for (MpiWay way = 0; mpi && way < MPI_WAYS; way++) {
        if (run_mpi(program, ranks[i], way, &table) == 0) continue;
        fprintf(stderr, "OpenMPI failed; its columns are not complete\n");
        mpi = false;
      }
    }
    print(ranks[i], &table);
  }
  return 0;
}
