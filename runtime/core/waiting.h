/* How the threads of a rank wait for each other between parallel regions. */
#ifndef DTM_RT_WAITING_H
#define DTM_RT_WAITING_H

#include <stdint.h>

/* libgomp lets a thread spin for some 10 ms before it sleeps. Where another process wants the same
 * processor that is what it gets from a thread that has nothing to do, at the end of each of the
 * hundreds of parallel regions of a step. Spins are cut to some 0.1 ms; where threads of all ranks
 * here are more than processors they sleep at once.
 *
 * libgomp reads its environment when it is loaded, so the program starts once more with another
 * one: same process, same arguments. Returns when there is nothing to change: one thread, or the
 * user's own OMP_WAIT_POLICY or GOMP_SPINCOUNT, which win. Call it before any thread is started. */
void dtm_rt_waiting_settle(int threads, int32_t ranks_here, char **argv);

#endif
