/* What tells whether bytes are as they were written: a disk, a copy that broke off.
 *
 * Every change of one word changes it; it is no protection against whoever wants to change them. */
#ifndef DTM_RT_ABI_DIGEST_H
#define DTM_RT_ABI_DIGEST_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Of n bytes behind others, whose digest is `before` (0: none). */
static inline uint64_t abi_digest(uint64_t before, const void *data, size_t n) {
  const unsigned char *p = (const unsigned char *)data;
  uint64_t h = before ^ (uint64_t)n * 0x9e3779b97f4a7c15u;
  for (size_t i = 0; i < n; i += sizeof h) {
    uint64_t word = 0;
    memcpy(&word, p + i, n - i < sizeof word ? n - i : sizeof word);
    h = (h ^ word) * 0x9fb21c651e98df25u; /* odd, and the shift keeps all bits: one to one */
    h ^= h >> 32;
  }
  return h;
}

#endif
