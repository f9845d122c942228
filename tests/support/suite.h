/* The end of the main of a test program. */
#ifndef DTM_TESTS_SUITE_H
#define DTM_TESTS_SUITE_H

#include <check.h>

/* Runs every test in a process of its own; 0, or 1 when one failed. */
int suite_run(Suite *suite);
/* Runs all tests in this process: OpenMP does not survive a fork. */
int suite_run_unforked(Suite *suite);
/* Says why a program's tests cannot run on this machine; the exit code that counts as skipped. */
int suite_skip(const char *reason);

#endif
