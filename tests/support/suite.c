/* Running a suite: see suite.h. */
#include "support/suite.h"

#include <stdio.h>

static int run(Suite *suite, enum fork_status fork) {
  SRunner *runner = srunner_create(suite);
  if (fork == CK_NOFORK) srunner_set_fork_status(runner, CK_NOFORK); /* else $CK_FORK decides */
  srunner_run_all(runner, CK_NORMAL);
  int failed = srunner_ntests_failed(runner);
  srunner_free(runner);
  return failed != 0;
}

int suite_run(Suite *suite) {
  return run(suite, CK_FORK);
}

int suite_run_unforked(Suite *suite) {
  return run(suite, CK_NOFORK);
}

int suite_skip(const char *reason) {
  printf("skipped: %s\n", reason);
  return 77;
}
