/* Data sources: see data.h. */
#include "data/data.h"

#include <stdlib.h>

#include "comm/errors.h"

struct RtData {
  int64_t samples;
};

int dtm_rt_data_open(const RtDataSetup *setup, RtData **data) {
  *data = NULL;
  for (uint32_t i = 0; i < setup->image->source_count; i++)
    if (setup->image->source[i].program == setup->program)
      return dtm_rt_fail(setup->comm, RT_BAD_DATA, "no reader for %s",
                         abi_text(setup->image, setup->image->source[i].reader));
  *data = calloc(1, sizeof **data);
  return *data ? 0 : dtm_rt_fail(setup->comm, RT_DEVICE, "out of memory");
}

void dtm_rt_data_close(RtData *data) {
  free(data);
}

int64_t dtm_rt_data_samples(const RtData *data) {
  return data->samples;
}

int dtm_rt_data_read(RtData *data, uint32_t source, int64_t epoch, int64_t batch, void *dst) {
  (void)data, (void)source, (void)epoch, (void)batch, (void)dst;
  return RT_BAD_DATA;
}
