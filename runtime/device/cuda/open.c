/* A GPU as a device (device.h). */
#include "comm/errors.h"
#include "device/device.h"

int dtm_cuda_open(const RtDevice *found, const RtCode *code, RtDevice **device) {
  (void)code;
  *device = NULL;
  return dtm_rt_fail(found->comm, RT_INTERNAL, "programs for CUDA do not run yet");
}
