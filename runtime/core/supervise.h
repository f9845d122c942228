/* The process that was started by hand: forks the ranks and watches over them. */
#ifndef DTM_RT_SUPERVISE_H
#define DTM_RT_SUPERVISE_H

#include "comm/local.h"

/* Signals that ask to stop count as one request when they come within this time. */
enum { RT_SAME_REQUEST_MS = 500 };

/* Forks segment->world ranks. In a rank: returns its number. In the supervisor: returns -1 after
 * all ranks ended, with *status the exit code of the job. */
int32_t dtm_rt_supervise(const LocalSegment *segment, int32_t world, int *status);

#endif
