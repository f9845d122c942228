/* Comparing checkpoints: see checkpoint.h. */
#include "support/checkpoint.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/work.h"

void checkpoint_open(StStore *store, const char *path) {
  char whole[1024], why[ST_WHY];
  snprintf(whole, sizeof whole, "%s%s%s", *path == '/' ? "" : work_folder(),
           *path == '/' ? "" : "/", path);
  ck_assert_msg(dtm_rt_st_open(store, whole, why), "%s", why);
}

void checkpoint_open_state(StStore *store, const char *path) {
  StStore model;
  char state[1024];
  checkpoint_open(&model, path);
  const char *name = dtm_rt_st_metadata(&model, "optimizer");
  ck_assert_msg(name != NULL, "%s names no optimizer state", path);
  snprintf(state, sizeof state, "%s.state/%s", path, name);
  dtm_rt_st_close(&model);
  checkpoint_open(store, state);
}

const StTensor *checkpoint_find(const StStore *store, const char *name, uint32_t dtype) {
  const StTensor *t = dtm_rt_st_find(store, name);
  ck_assert_msg(t != NULL, "no %s", name);
  ck_assert_msg(t->dtype == dtype, "%s is of type %s", name, t->dtype_name);
  return t;
}

static double element(const StStore *store, const StTensor *t, uint64_t i) {
  const void *data = dtm_rt_st_data(store, t);
  return t->dtype == ABI_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

Apart checkpoint_apart(const StStore *got, const StStore *want, const StTensor *tensor) {
  ck_assert(tensor->dtype == ABI_F32 || tensor->dtype == ABI_F64);
  const StTensor *t = checkpoint_find(got, tensor->name, tensor->dtype);
  ck_assert_msg(t->rank == tensor->rank && memcmp(t->shape, tensor->shape, sizeof t->shape) == 0,
                "%s has another shape", t->name);
  Apart apart = {0, 0};
  uint64_t n = (t->end - t->begin) / (t->dtype == ABI_F64 ? sizeof(double) : sizeof(float));
  for (uint64_t i = 0; i < n; i++) {
    double w = element(want, tensor, i), d = fabs(element(got, t, i) - w);
    if (d > apart.difference || isnan(d)) apart.difference = d;
    apart.largest = fmax(apart.largest, fabs(w));
  }
  return apart;
}
