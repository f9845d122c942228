/* Checksums of tensors: see checksum.h. */
#include "state/checksum.h"

#include <stdlib.h>
#include <string.h>

#include "comm/errors.h"

#define SUM_OF(type)                                                                               \
  for (int64_t i = 0; i < count; i++) {                                                            \
    type v;                                                                                        \
    memcpy(&v, p + (size_t)i * sizeof v, sizeof v);                                                \
    sum += (uint64_t)v * (2 * (uint64_t)(first + i) + 1);                                          \
  }

uint64_t dtm_rt_checksum(const void *elements, size_t size, int64_t first, int64_t count) {
  const unsigned char *p = elements;
  uint64_t sum = 0;
  if (size == 8)
    SUM_OF(uint64_t)
  else if (size == 4)
    SUM_OF(uint32_t)
  else if (size == 2)
    SUM_OF(uint16_t)
  else
    SUM_OF(uint8_t)
  return sum;
}

int dtm_rt_checksum_add_up(RtComm *comm, uint64_t *sums, size_t n) {
  if (comm->world == 1) return 0;
  uint64_t *total = calloc(n + 1, sizeof *total), *theirs = calloc(n + 1, sizeof *theirs);
  int status = total && theirs ? 0 : dtm_rt_fail(comm, RT_DEVICE, "out of memory");
  for (int32_t r = 0; r < comm->world && !status; r++) {
    if (r == comm->rank) memcpy(theirs, sums, n * sizeof *theirs);
    status = comm->ops->broadcast_host(comm, theirs, n * sizeof *theirs, r);
    for (size_t i = 0; i < n; i++) total[i] += theirs[i];
  }
  if (!status) memcpy(sums, total, n * sizeof *sums);
  free(total);
  free(theirs);
  return status;
}

bool dtm_rt_checksum_read(const char *digits, uint64_t *sum) {
  *sum = 0;
  for (int i = 0; i < CHECKSUM_DIGITS; i++) {
    const char *all = "0123456789abcdef", *at = digits[i] ? strchr(all, digits[i]) : NULL;
    if (!at) return false;
    *sum = *sum << 4 | (uint64_t)(at - all);
  }
  return true;
}
