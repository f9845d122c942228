/* Operators that are C functions of the runtime: sorting, indexing, running sums.
 *
 * They work on this rank's blocks, dense and row-major; indices are global. All element types and
 * zero extents. Results do not depend on the number of threads: each output element is made by one
 * thread, in one order of additions.
 */
#ifndef DTM_RT_LIBRARY_H
#define DTM_RT_LIBRARY_H

#include "device/operands.h"

enum { LIB_MAX_TENSORS = 11, LIB_MAX_ARGS = 6 };

typedef struct LibCall {
  uint32_t code; /* AbiLibrary, which says what the tensors and args are */
  uint32_t ntensors;
  LibTensor t[LIB_MAX_TENSORS];
  int64_t args[LIB_MAX_ARGS];
  int threads;
  const AbiStep *step; /* of the run: seed and step of random numbers */
} LibCall;

/* Bytes of scratch memory a call needs. */
size_t dtm_rt_library_scratch(const LibCall *call);
/* 0, or -1 with *fault when an index or a count is out of range or same_as finds a difference
 * (every output is written all the same). */
int dtm_rt_library_run(const LibCall *call, void *scratch, LibFault *fault);

#endif
