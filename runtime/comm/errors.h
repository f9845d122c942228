/* Exit codes of the built binary and the one way to report a failure at run time.
 *
 * A job prints one failure: the first rank to fail writes it, the others unwind in silence.
 */
#ifndef DTM_RT_COMM_ERRORS_H
#define DTM_RT_COMM_ERRORS_H

#include "comm/comm.h"

typedef enum RtStatus {
  RT_OK = 0,
  RT_BAD_DATA = 1,  /* an input or checkpoint is missing, damaged or does not fit; disk full */
  RT_USAGE = 2,     /* wrong option */
  RT_DEVICE = 3,    /* the machine lacks something: memory, CPU feature, transport */
  RT_LOST = 4,      /* a rank died, hangs or does not match */
  RT_INTERNAL = 101 /* a fault of the compiler or the runtime */
} RtStatus;

/* Reports "error: MESSAGE", with rank, step, operation and source line when `c` knows them, and
 * returns `code` for the caller to pass on. The message is one or more lines without a final
 * newline: what is wrong, where, and what to do about it. c may be NULL (before the launch). */
int dtm_rt_fail(RtComm *c, RtStatus code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Prints "error: MESSAGE" in one write; for transports, which know whether it is the first. */
void dtm_rt_print_error(const char *message);
/* "warning: MESSAGE" on stderr, from rank 0 only. */
void dtm_rt_warn(const RtComm *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
