/* What every transport shares: which reductions exist, places. */
#include "comm/comm.h"

#include <stdlib.h>

bool dtm_rt_reduces(int dtype, int op) {
  if (dtype <= ABI_NONE || dtype >= ABI_DTYPE_COUNT || dtype == ABI_F8_E4M3 ||
      dtype == ABI_F8_E5M2 || op <= ABI_REDUCE_NONE || op >= ABI_REDUCE_COUNT) {
    return false;
  }
  bool is_float = dtype <= ABI_F16;
  if (op == ABI_AVG) {
    return is_float;
  }
  if (op == ABI_AND || op == ABI_OR || op == ABI_XOR) {
    return !is_float;
  }
  return true;
}

void dtm_rt_comm_place(RtComm *c, RtPlace place) {
  c->place = place;
  if (c->world > 1) {
    c->ops->publish(c);
  }
}

void dtm_rt_comm_tick(RtComm *c) {
  c->ops->publish(c);
}

void dtm_rt_pull_free(RtPull *pull) {
  free(pull->state);
  pull->state = NULL;
}
