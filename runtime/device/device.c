/* What all devices share: see device.h. */
#include "device/device.h"

void dtm_device_place_at(RtDevice *d, uint32_t action, int64_t step) {
  const AbiAction *a = &d->image->action[action];
  dtm_rt_comm_place(d->comm, (RtPlace){.step = step + 1, /* people count from 1 */
                                       .operation = abi_text(d->image, a->name),
                                       .source = abi_text(d->image, a->source)});
}

void dtm_device_place(RtDevice *d, uint32_t action) {
  dtm_device_place_at(d, action, d->step->step);
}
