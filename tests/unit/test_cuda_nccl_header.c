/* Our own declarations of NCCL against its header, where there is one: every entry has the type
 * that header gives it, every constant its value, the configuration its layout. */
#include <stdio.h>

#include "support/suite.h"

#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <nccl.h>
#pragma GCC diagnostic pop

#include "device/cuda/nccl.h"

#define SAME_TYPE(member, name, result, parameters)                                                \
  _Static_assert(__builtin_types_compatible_p(result parameters, __typeof__(name)), #name);
CUDA_NCCL(SAME_TYPE)

#define SAME_VALUE(name, value) _Static_assert((int)name == value, #name);
CUDA_NCCL_RESULTS(SAME_VALUE)
CUDA_NCCL_REDUCTIONS(SAME_VALUE)
CUDA_NCCL_TYPES(SAME_VALUE)
_Static_assert(NCCL_UNIQUE_ID_BYTES == 128 && NCCL_SPLIT_NOCOLOR == -1, "ids and colours");
_Static_assert((int)CUDA_NCCL_CONFIG_UNSET == NCCL_CONFIG_UNDEF_INT, "what is not set");

#define SAME_PLACE(member)                                                                         \
  _Static_assert(offsetof(CudaNcclConfig, member) == offsetof(ncclConfig_t, member), #member);
SAME_PLACE(size)
SAME_PLACE(magic)
SAME_PLACE(version)
SAME_PLACE(blocking)
SAME_PLACE(cgaClusterSize)
SAME_PLACE(minCTAs)
SAME_PLACE(maxCTAs)
SAME_PLACE(netName)
SAME_PLACE(splitShare)
_Static_assert(sizeof(CudaNcclConfig) <= sizeof(ncclConfig_t), "later versions only add members");

int main(void) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  if (config.magic != CUDA_NCCL_CONFIG_MAGIC) {
    printf("the magic number of a configuration is %x\n", config.magic);
    return 1;
  }
  printf("the declarations are those of nccl.h of NCCL %d.%d.%d\n", NCCL_MAJOR, NCCL_MINOR,
         NCCL_PATCH);
  return 0;
}
#else
int main(void) {
  return suite_skip("there is no nccl.h beside the headers of a CUDA toolkit in CUDA_HOME/include "
                    "or /usr/local/cuda/include");
}
#endif
