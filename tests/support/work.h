/* A folder for what a test program makes with dtmc ($DTMC), and commands that run in it. */
#ifndef DTM_TESTS_WORK_H
#define DTM_TESTS_WORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Makes the folder and decides where programs run (target.h); false, after a message, when that or
 * $DTMC fails, or when the test does not run in a folder below tests/. */
bool work_begin(void);
/* Removes it with all that is in it. */
bool work_end(void);

/* Its path. */
const char *work_folder(void);

/* The folder that holds tests/ and samples/. */
const char *work_root(void);
/* The text of a file there, to be freed. */
char *work_source(const char *path);

/* A new file in the folder, never NULL; also for use outside of tests. */
FILE *work_create(const char *name);
void work_write(const char *name, const char *text);
/* A new NumPy file in the folder, its header written: descr "<i8", shape "(60, 8)". */
FILE *work_npy(const char *name, const char *descr, const char *shape);

/* How many lines of a file of the folder match a pattern of grep. */
int work_count(const char *pattern, const char *name);

/* Runs a shell command in the folder. What it prints, errors too, goes to `out` (cut off at
 * `size`); the result is its exit code, 128 + n for signal n. Also for use outside of tests. What
 * simulated GPUs report fails the test. */
int work_run(char *out, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
