/* What every transport shares: sizes of element types, which reductions exist, places. */
#include "comm/comm.h"

size_t dtm_rt_dtype_bytes(int dtype) {
  switch ((AbiDType)dtype) {
  case ABI_F64:
  case ABI_I64:
    return 8;
  case ABI_F32:
  case ABI_I32:
    return 4;
  case ABI_BF16:
  case ABI_F16:
  case ABI_I16:
    return 2;
  case ABI_F8_E4M3:
  case ABI_F8_E5M2:
  case ABI_I8:
  case ABI_U8:
  case ABI_BOOL:
    return 1;
  case ABI_NONE:
  case ABI_DTYPE_COUNT:
    break;
  }
  return 0;
}

bool dtm_rt_reduces(int dtype, int op) {
  if (dtype <= ABI_NONE || dtype >= ABI_DTYPE_COUNT || dtype == ABI_F8_E4M3 ||
      dtype == ABI_F8_E5M2 || op <= ABI_REDUCE_NONE || op >= RT_REDUCE_OPS) {
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
