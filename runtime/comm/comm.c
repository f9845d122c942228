/* What every transport shares: sizes of element types, which reductions exist, places. */
#include "comm/comm.h"

size_t dtm_rt_dtype_bytes(int dtype) {
  switch ((RtDType)dtype) {
  case RT_F64:
  case RT_I64:
    return 8;
  case RT_F32:
  case RT_I32:
    return 4;
  case RT_BF16:
  case RT_F16:
  case RT_I16:
    return 2;
  case RT_F8_E4M3:
  case RT_F8_E5M2:
  case RT_I8:
  case RT_U8:
  case RT_BOOL:
    return 1;
  case RT_NONE:
  case RT_DTYPE_COUNT:
    break;
  }
  return 0;
}

bool dtm_rt_reduces(int dtype, int op) {
  if (dtype <= RT_NONE || dtype >= RT_DTYPE_COUNT || dtype == RT_F8_E4M3 || dtype == RT_F8_E5M2 ||
      op <= RT_REDUCE_NONE || op >= RT_REDUCE_COUNT) {
    return false;
  }
  bool is_float = dtype <= RT_F16;
  if (op == RT_REDUCE_AVG) {
    return is_float;
  }
  if (op == RT_REDUCE_AND || op == RT_REDUCE_OR || op == RT_REDUCE_XOR) {
    return !is_float;
  }
  return true;
}

void dtm_rt_comm_place(RtComm *c, RtPlace place) {
  c->place = place;
  c->ops->publish(c);
}

void dtm_rt_comm_tick(RtComm *c) {
  c->ops->publish(c);
}
