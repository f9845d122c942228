/* What a program that dtmc made prints with --log=json. */
#ifndef DTM_TESTS_LOG_H
#define DTM_TESTS_LOG_H

/* The numbers under `key` of the lines of training steps, in order; their number, `most` at most.
 */
int log_steps(const char *log, const char *key, double *value, int most);

#endif
