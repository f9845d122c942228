/* A trace of actions in Chrome's trace event format (chrome://tracing, Perfetto). */
#ifndef DTM_RT_TRACE_H
#define DTM_RT_TRACE_H

#include "comm/comm.h"

typedef struct RtTrace RtTrace;

/* NULL path: *trace is NULL, and every function accepts NULL and does nothing. 0, or the code to
 * exit with when the file cannot be written: better to know before the run than after it. */
int dtm_rt_trace_open(const char *path, RtComm *comm, RtTrace **trace);
/* Nanoseconds of the monotonic clock, shared by all ranks of one machine. */
uint64_t dtm_rt_trace_now(void);
/* One finished action. `category`: "kernel", "matmul", "collective", "data", "save"; `action`: its
 * number in the image, as --report=actions has it. Strings must outlive the trace. Keeps the last
 * 1 Mi events of a rank. */
void dtm_rt_trace_event(RtTrace *t, const char *name, const char *category, const char *source,
                        uint32_t action, int64_t step, uint64_t begin, uint64_t end);
/* Collective over the world: every rank appends its events to the one file in turn. A file that was
 * there is replaced once the new one is complete, and kept when that fails. */
int dtm_rt_trace_close(RtTrace *t, RtComm *comm);

#endif
