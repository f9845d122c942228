/* Our own declarations of the CUDA driver against the header of a CUDA toolkit, where there is one:
 * every entry has the type that header gives it, every constant its value. */
#include <stdio.h>

#include "support/suite.h"

#if __has_include(<cuda.h>)
#define __CUDA_API_VERSION_INTERNAL /* all versions of an entry, and no renaming */
#include <cuda.h>

#include "device/cuda/driver.h"

#define SAME_TYPE(member, name, parameters)                                                        \
  _Static_assert(__builtin_types_compatible_p(CUresult parameters, __typeof__(name)), #name);
CUDA_DRIVER(SAME_TYPE)

#define SAME_VALUE(name, value) _Static_assert((int)name == value, #name);
CUDA_RESULTS(SAME_VALUE)
CUDA_DEVICE_ATTRIBUTES(SAME_VALUE)
CUDA_FUNCTION_ATTRIBUTES(SAME_VALUE)
CUDA_FLAGS(SAME_VALUE)

int main(void) {
  printf("the declarations are those of cuda.h of CUDA %d.%d\n", CUDA_VERSION / 1000,
         CUDA_VERSION % 1000 / 10);
  return 0;
}
#else
int main(void) {
  return suite_skip("there is no cuda.h of a CUDA toolkit in CUDA_HOME/include or "
                    "/usr/local/cuda/include");
}
#endif
