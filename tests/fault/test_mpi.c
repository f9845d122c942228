/* The collectives of tests/unit/test_comm.c over the MPI transport, under mpirun. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/suite.h"

START_TEST(collectives) {
  char self[1024], command[1400];
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  ck_assert_int_gt(n, 0);
  self[n] = 0;
  *strrchr(self, '/') = 0;
  snprintf(command, sizeof command, "%s/../lib/dtm/libdtm_rt_mpi.so", self);
  if (access(command, R_OK) != 0 || system("mpirun --version >/dev/null 2>&1") != 0) {
    puts("skipped: no mpirun, or the MPI transport was not built");
    return;
  }
  snprintf(command, sizeof command,
           "DTM_TEST_MPI=1 mpirun --oversubscribe --allow-run-as-root -n %d '%s/unit_test_comm'",
           _i, self);
  ck_assert_int_eq(system(command), 0);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("mpi");
  TCase *tc = tcase_create("mpirun");
  tcase_set_timeout(tc, 300);
  tcase_add_loop_test(tc, collectives, 1, 5);
  suite_add_tcase(suite, tc);
  return suite_run(suite);
}
