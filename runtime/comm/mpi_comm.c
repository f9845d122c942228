/* Joining, failing and leaving over MPI: see mpi.h. */
#include "comm/mpi.h"

#include "comm/errors.h"
#include "comm/mpi_private.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HUGE_PAGE = 2 << 20 };

static void mpi_publish(RtComm *comm) {
  MpiComm *c = mpi_of(comm);
  mpi_tell_alive(c);
  if (c->nrequests) { /* messages of a pull under way move on while MPI is called */
    int arrived;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, c->world, &arrived, MPI_STATUS_IGNORE);
  }
}

/* MPI_Abort of the first rank that unwinds ends all. When all fail alike, rank 0 speaks: the others
 * hold back for a moment, and are gone before they print. */
static int mpi_fail(RtComm *comm, int code, const char *message) {
  if (comm->rank != 0 && code != RT_LOST) {
    usleep(300000);
  }
  dtm_rt_print_error(message);
  return code;
}

static int mpi_agree(RtComm *comm, uint32_t flags, uint32_t *all) {
  MpiComm *c = mpi_of(comm);
  MPI_Request request;
  MPI_Iallreduce(&flags, all, 1, MPI_UINT32_T, MPI_BOR, c->world, &request);
  return mpi_wait_one(c, &request, -1);
}

static int mpi_broadcast_host(RtComm *comm, void *data, size_t n, int32_t root) {
  enum { PIECE = 1 << 30 };
  MpiComm *c = mpi_of(comm);
  for (size_t at = 0; at < n; at += PIECE) {
    MPI_Request request;
    MPI_Ibcast((char *)data + at, (int)(n - at < PIECE ? n - at : PIECE), MPI_BYTE, root, c->world,
               &request);
    int error = mpi_wait_one(c, &request, -1);
    if (error) {
      return error;
    }
  }
  return 0;
}

static void mpi_destroy(RtComm *comm, int status) {
  MpiComm *c = mpi_of(comm);
  if (status != 0) {
    MPI_Abort(c->world, status);
  }
  /* Messages of life that nobody waited for. */
  for (int arrived = 1; arrived;) {
    MPI_Status probed;
    MPI_Iprobe(MPI_ANY_SOURCE, TAG_ALIVE, c->world, &arrived, &probed);
    if (arrived) {
      MPI_Recv(NULL, 0, MPI_BYTE, probed.MPI_SOURCE, TAG_ALIVE, c->world, MPI_STATUS_IGNORE);
    }
  }
  MPI_Comm_free(&c->world);
  MPI_Finalize();
  munmap(comm->arena, comm->arena_size ? comm->arena_size : 1);
  free(c->heard);
  free(c->requests);
  free(c->request_peer);
  free(c->scratch);
  free(c);
}

/* MPI may not be called by two threads. */
static int mpi_look(RtComm *comm, bool moved, double *silent) {
  (void)comm;
  (void)moved;
  *silent = INFINITY;
  return 0;
}

static void mpi_latest(RtComm *comm, char *text, size_t size) {
  (void)comm;
  if (size) {
    text[0] = 0;
  }
}

static const RtCommOps mpi_ops = {
    .name = "mpi",
    .pull = mpi_pull,
    .pull_start = mpi_pull_start,
    .pull_finish = mpi_pull_finish,
    .scatter_start = mpi_scatter_start,
    .scatter_finish = mpi_scatter_finish,
    .all_reduce = mpi_all_reduce,
    .reduce_scatter = mpi_reduce_scatter,
    .post = mpi_post,
    .take = mpi_take,
    .barrier = mpi_barrier,
    .broadcast_host = mpi_broadcast_host,
    .agree = mpi_agree,
    .publish = mpi_publish,
    .look = mpi_look,
    .latest = mpi_latest,
    .fail = mpi_fail,
    .destroy = mpi_destroy,
};

/* All ranks run the same program: plan and arena of rank 0 decide. */
static int check_same(MpiComm *c, const MpiSetup *setup) {
  uint64_t mine[2] = {setup->plan_hash, setup->arena_size}, first[2] = {mine[0], mine[1]};
  char host[64] = "", first_host[64];
  gethostname(host, sizeof host - 1);
  memcpy(first_host, host, sizeof host);
  int error = mpi_broadcast_host(&c->base, first, sizeof first, 0);
  if (!error) {
    error = mpi_broadcast_host(&c->base, first_host, sizeof first_host, 0);
  }
  if (error || memcmp(mine, first, sizeof mine) == 0) {
    return error;
  }
  return dtm_rt_fail(&c->base, RT_LOST,
                     "rank %d (process %d on %s) runs another program than rank 0 on %s: its plan "
                     "is %016llx, not %016llx\n  start all ranks from the same file",
                     (int)c->base.rank, (int)getpid(), host, first_host,
                     (unsigned long long)mine[0], (unsigned long long)first[0]);
}

static void *map_arena(size_t size) {
  size_t room = (size ? size : 1) + HUGE_PAGE;
  unsigned char *p =
      mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) {
    return NULL;
  }
  unsigned char *arena =
      (unsigned char *)(((uintptr_t)p + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1));
  madvise(arena, size ? size : 1, MADV_HUGEPAGE);
  return arena;
}

__attribute__((visibility("default"))) int dtm_rt_mpi_join(const MpiSetup *setup, RtComm **comm) {
  int provided, rank, world, local_rank, local_world;
  MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  if (world != setup->world) {
    int error =
        dtm_rt_fail(NULL, RT_USAGE, "MPI started %d processes, not %d", world, (int)setup->world);
    MPI_Abort(MPI_COMM_WORLD, error);
    return error;
  }
  MPI_Comm local;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &local);
  MPI_Comm_rank(local, &local_rank);
  MPI_Comm_size(local, &local_world);
  MPI_Comm_free(&local);
  MpiComm *c = calloc(1, sizeof *c);
  double *heard = calloc((size_t)world, sizeof *heard);
  void *arena = map_arena(setup->arena_size);
  if (!c || !heard || !arena) {
    int error = dtm_rt_fail(NULL, RT_DEVICE, "cannot reserve %.2f GiB for rank %d: %s",
                            (double)setup->arena_size / (1 << 30), rank, strerror(errno));
    MPI_Abort(MPI_COMM_WORLD, error);
    return error;
  }
  c->heard = heard;
  c->told = mpi_now();
  for (int r = 0; r < world; r++) {
    heard[r] = c->told;
  }
  MPI_Comm_dup(MPI_COMM_WORLD, &c->world);
  c->base = (RtComm){.ops = &mpi_ops,
                     .rank = rank,
                     .world = world,
                     .local_rank = local_rank,
                     .local_world = local_world,
                     .threads = 1,
                     .arena = arena,
                     .arena_size = setup->arena_size,
                     .deadline = setup->deadline};
  int error = check_same(c, setup);
  if (error) {
    MPI_Abort(MPI_COMM_WORLD, error);
    return error;
  }
  *comm = &c->base;
  return 0;
}
