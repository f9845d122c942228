/* Text that a program writes while it runs, byte by byte.
 *
 * One row is written as it comes, where a person reads; several rows, and the log as JSON, at the
 * end of each batch.
 */
#ifndef DTM_RT_TEXT_H
#define DTM_RT_TEXT_H

#include "core/log.h"
#include "runtime/abi/image.h"

typedef struct RtText {
  int64_t rows;
  char **row; /* what they came to so far; terminated */
  size_t *n, *room;
} RtText;

/* Adds the bytes of a value, integers [] or [rows] or [rows, n]: those below 0 are none, and what
 * is no byte shows as '?'. False when memory is short. */
bool dtm_rt_text_add(RtText *text, RtLog *log, const AbiType *type, const void *value);
/* Ends all rows and forgets them; false when there were none. */
bool dtm_rt_text_end(RtText *text, RtLog *log);

#endif
