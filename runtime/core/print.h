/* Printing of tensors that a program hands out with print(x). */
#ifndef DTM_RT_PRINT_H
#define DTM_RT_PRINT_H

#include "core/log.h"
#include "runtime/abi/abi.h"

/* "NAME f32[2, 3] = [[1, 2, 3], [4, 5, 6]]" on one log line. A dim longer than 12 shows 4 elements at
 * each end, with "..." between; fewer, down to one, where a thousand elements would be exceeded. */
void dtm_rt_print_tensor(RtLog *log, const char *name, const AbiType *type, const void *data);

#endif
