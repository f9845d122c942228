/* Element types. */
#ifndef DTM_TYPES_DTYPE_H
#define DTM_TYPES_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/abi/lists.h"

typedef enum DType {
  DT_NONE = 0,
#define X(id, name, bytes, st) DT_##id,
  ABI_DTYPES(X)
#undef X
      DT_COUNT
} DType;

const char *dtype_name(DType t);
size_t dtype_bytes(DType t);
DType dtype_by_name(const char *name); /* DT_NONE when unknown */
bool dtype_is_float(DType t);
bool dtype_is_storage(DType t); /* 8-bit floats: moved and cast, nothing is computed in them */
bool dtype_is_integer(DType t); /* signed and unsigned integers; not bool */
/* Widest exact conversion: every value of `from` is a value of `to`. */
bool dtype_widens(DType from, DType to);

#endif
