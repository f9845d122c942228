/* What the lists say of each entry: see lists.h. */
#include "runtime/abi/abi.h"

size_t abi_dtype_bytes(uint32_t dtype) {
  static const uint8_t bytes[ABI_DTYPE_COUNT] = {
#define X(id, name, n, st) [ABI_##id] = n,
      ABI_DTYPES(X)
#undef X
  };
  return dtype < ABI_DTYPE_COUNT ? bytes[dtype] : 0;
}

const char *abi_dtype_name(uint32_t dtype) {
  static const char *const names[ABI_DTYPE_COUNT] = {
#define X(id, name, n, st) [ABI_##id] = name,
      ABI_DTYPES(X)
#undef X
  };
  return dtype < ABI_DTYPE_COUNT && names[dtype] ? names[dtype] : "?";
}

const char *abi_program_name(uint32_t kind) {
  static const char *const names[] = {
#define X(id, name) name,
      ABI_BLOCKS(X)
#undef X
  };
  return names[kind];
}
