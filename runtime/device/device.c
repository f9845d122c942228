/* What all devices share: see device.h. */
#include "device/device.h"

void dtm_device_place(RtDevice *d, uint32_t action) {
  const AbiAction *a = &d->image->action[action];
  dtm_rt_comm_place(d->comm, (RtPlace){.step = d->step->step + 1, /* people count from 1 */
                                       .operation = abi_text(d->image, a->name),
                                       .source = abi_text(d->image, a->source)});
}
