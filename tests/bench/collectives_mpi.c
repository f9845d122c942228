/* The MPI side of collectives.c: the same cases over the library's own collectives. Rank 0 prints
 * "collective size seconds" lines. */
#include "bench/collectives.h"

#include "bench/table.h"

#include <mpi.h>
#include <stdlib.h>
#include <sys/mman.h>

static void collective(int which, float *src, float *dst, int count, int part) {
  switch (which) {
  case ALL_REDUCE:
    MPI_Allreduce(src, dst, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    return;
  case REDUCE_SCATTER:
    MPI_Reduce_scatter_block(src, dst, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    return;
  case ALL_GATHER:
    MPI_Allgather(src, part, MPI_FLOAT, dst, part, MPI_FLOAT, MPI_COMM_WORLD);
    return;
  default:
    MPI_Alltoall(src, part, MPI_FLOAT, dst, part, MPI_FLOAT, MPI_COMM_WORLD);
  }
}

int main(int argc, char **argv) {
  int rank, ranks;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  size_t most = collective_bytes[SIZES - 1];
  const size_t large = 2 << 20;
  float *src = argc > 1 ? aligned_alloc(large, most) : malloc(most);
  float *dst = argc > 1 ? aligned_alloc(large, most) : malloc(most);
  if (!src || !dst) {
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  if (argc > 1) {
    madvise(src, most, MADV_HUGEPAGE);
    madvise(dst, most, MADV_HUGEPAGE);
  }
  fill_source(src, most / 4, rank);
  memset(dst, 0, most);
  for (int which = 0; which < COLLECTIVES; which++) {
    for (int size = 0; size < SIZES; size++) {
      int count = (int)(collective_bytes[size] / 4);
      double least = 0;
      for (int t = 0; t <= collective_timings[size]; t++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double begin = bench_now();
        for (int i = 0; i < collective_repeats[size]; i++) {
          collective(which, src, dst, count, count / ranks);
        }
        double seconds = (bench_now() - begin) / collective_repeats[size];
        if (t > 0 && (least == 0 || seconds < least)) {
          least = seconds;
        }
      }
      if (!right_result(which, collective_bytes[size], dst, rank, ranks)) {
        MPI_Abort(MPI_COMM_WORLD, 1);
      }
      if (rank == 0) {
        printf("%d %d %.9f\n", which, size, least);
      }
    }
  }
  free(src);
  free(dst);
  return MPI_Finalize();
}
