/* Inside runtime/state: whether the content of a tensor is what was saved.
 *
 * The checksum of a tensor is the sum over its elements of bits * (2 index + 1), modulo 2^64, with
 * the index in the full tensor: ranks add up their blocks, whatever the mesh. It finds every
 * single change and, but for accidents, all others; it is no protection against intent.
 */
#ifndef DTM_RT_STATE_CHECKSUM_H
#define DTM_RT_STATE_CHECKSUM_H

#include "comm/comm.h"

/* Metadata key: 16 hexadecimal digits for each tensor of the file, in the order of their names. */
#define CHECKSUM_KEY "checksums"
enum { CHECKSUM_DIGITS = 16 };

/* Elements [first, first + count) of a tensor, `size` bytes each. */
uint64_t dtm_rt_checksum(const void *elements, size_t size, int64_t first, int64_t count);
/* Collective: each of the n sums becomes its sum over the world. */
int dtm_rt_checksum_add_up(RtComm *comm, uint64_t *sums, size_t n);
/* Digits to a number; false when they are none. */
bool dtm_rt_checksum_read(const char *digits, uint64_t *sum);

#endif
