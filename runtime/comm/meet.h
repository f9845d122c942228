/* Processes started one by one on one machine find each other: rank 0 creates the segment and hands
 * its descriptor to the others over an abstract unix socket named after the job. */
#ifndef DTM_RT_COMM_MEET_H
#define DTM_RT_COMM_MEET_H

#include "comm/local.h"

typedef struct Meeting {
  int32_t rank, world;
  size_t arena_size;
  uint64_t plan_hash;
  const char *job;
  double deadline; /* seconds until all must be there */
} Meeting;

/* Returns 0 with the segment mapped, or a code of errors.h after a message was printed: ranks that
 * did not come, came twice, or run another program. */
int dtm_local_meet(const Meeting *meeting, LocalSegment *segment);

#endif
