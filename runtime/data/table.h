/* A data file as an array: where its elements lie and what they are.
 *
 * Plain files are mapped, so a rank touches only the pages it reads; gzip files are unpacked into
 * memory. Opening checks everything the format says against the file's length.
 */
#ifndef DTM_RT_DATA_TABLE_H
#define DTM_RT_DATA_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/abi/abi.h"

/* What an element of a file is. X(enum, name, bytes, is float) */
#define FILE_TYPES(X)                                                                              \
  X(U8, "u8", 1, false)                                                                            \
  X(I8, "i8", 1, false)                                                                            \
  X(U16, "u16", 2, false)                                                                          \
  X(I16, "i16", 2, false)                                                                          \
  X(U32, "u32", 4, false)                                                                          \
  X(I32, "i32", 4, false)                                                                          \
  X(U64, "u64", 8, false)                                                                          \
  X(I64, "i64", 8, false)                                                                          \
  X(BOOL, "bool", 1, false)                                                                        \
  X(F16, "f16", 2, true)                                                                           \
  X(BF16, "bf16", 2, true)                                                                         \
  X(F32, "f32", 4, true)                                                                           \
  X(F64, "f64", 8, true)

typedef enum FileType {
  FILE_NONE = 0,
#define X(id, name, bytes, is_float) FILE_##id,
  FILE_TYPES(X)
#undef X
} FileType;

const char *dtm_rt_file_type_name(FileType t);
int64_t dtm_rt_file_type_bytes(FileType t);
bool dtm_rt_file_type_float(FileType t);

typedef struct Table {
  FileType type;
  bool big_endian;
  uint32_t rank;
  int64_t shape[ABI_MAX_DIMS];
  int64_t stride[ABI_MAX_DIMS]; /* elements */
  const unsigned char *data;    /* the first element */
  int64_t data_offset;          /* of it in the (unpacked) file, for messages */
  /* What holds the bytes. */
  unsigned char *base;
  size_t size;
  bool mapped;
} Table;

enum { TABLE_WHY = 400 };

/* Opens `path` for a reader ("npy", "idx", "bin", "text", "raw"; raw states `file_dtype`, a
 * AbiDType). False with what is wrong, without the path, in `why`; then nothing is left open. */
bool dtm_rt_table_open(Table *t, const char *reader, const char *path, uint32_t file_dtype,
                       char why[TABLE_WHY]);
/* The same on bytes in memory, which stay the caller's. */
bool dtm_rt_table_parse(Table *t, const char *reader, const unsigned char *bytes, size_t size,
                        uint32_t file_dtype, char why[TABLE_WHY]);
void dtm_rt_table_close(Table *t);

/* Element at this index (in elements from the first, by strides) as a number. */
double dtm_rt_table_float(const Table *t, int64_t index);
/* The same of a type that is not a float; u64 beyond the range of i64 is negative. */
int64_t dtm_rt_table_int(const Table *t, int64_t index);

#endif
