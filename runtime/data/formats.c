/* The file formats: IDX, .npy (versions 1 to 3), llm.c token files, text, raw numbers.
 *
 * A parser looks at bytes in memory and fills type, shape, order and data of a table. It reads
 * nothing outside [bytes, bytes + size) and multiplies with checks.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/table.h"

static bool refuse(char why[TABLE_WHY], const char *text) {
  snprintf(why, TABLE_WHY, "%s", text);
  return false;
}

/* Row-major strides (or column-major), and the elements must fill [offset, size) exactly. */
static bool finish(Table *t, const unsigned char *bytes, size_t size, size_t offset, bool fortran,
                   char why[TABLE_WHY]) {
  int64_t n = 1;
  for (uint32_t i = 0; i < t->rank; i++) {
    uint32_t d = fortran ? i : t->rank - 1 - i;
    t->stride[d] = n;
    if (__builtin_mul_overflow(n, t->shape[d], &n))
      return refuse(why, "the shape in its header is too large");
  }
  int64_t need;
  if (__builtin_mul_overflow(n, dtm_rt_file_type_bytes(t->type), &need))
    return refuse(why, "the shape in its header is too large");
  if ((uint64_t)need != (uint64_t)(size - offset)) {
    snprintf(why, TABLE_WHY,
             "its header promises %lld bytes of %s data, but %zu follow: the file is %s",
             (long long)need, dtm_rt_file_type_name(t->type), size - offset,
             (uint64_t)need > size - offset ? "truncated" : "longer than it should be");
    return false;
  }
  t->data = bytes + offset;
  t->data_offset = (int64_t)offset;
  return true;
}

static uint32_t big32(const unsigned char *p) {
  return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}
static uint32_t little32(const unsigned char *p) {
  return (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0];
}

/* IDX: 0 0 type rank, then extents as u32, then data; all big-endian (Y. LeCun's MNIST page). */
static bool parse_idx(Table *t, const unsigned char *b, size_t size, char why[TABLE_WHY]) {
  if (size < 4 || b[0] || b[1])
    return refuse(why, "not an IDX file: it does not begin with two zero bytes");
  static const struct {
    uint8_t code;
    FileType type;
  } types[] = {{0x08, FILE_U8},  {0x09, FILE_I8},  {0x0b, FILE_I16},
               {0x0c, FILE_I32}, {0x0d, FILE_F32}, {0x0e, FILE_F64}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (types[i].code == b[2]) t->type = types[i].type;
  if (!t->type) {
    snprintf(why, TABLE_WHY, "not an IDX file: unknown element type 0x%02x", b[2]);
    return false;
  }
  t->rank = b[3];
  t->big_endian = true;
  if (t->rank == 0 || t->rank > ABI_MAX_DIMS) {
    snprintf(why, TABLE_WHY, "an IDX file of rank %u; 1 to %d can be read", t->rank, ABI_MAX_DIMS);
    return false;
  }
  if (size < 4 + 4 * (size_t)t->rank) return refuse(why, "truncated inside the IDX header");
  for (uint32_t d = 0; d < t->rank; d++) t->shape[d] = big32(b + 4 + 4 * d);
  return finish(t, b, size, 4 + 4 * (size_t)t->rank, false, why);
}

/* A cursor over the header of a .npy file. */
typedef struct Cursor {
  const char *at, *end;
} Cursor;

static void skip_space(Cursor *c) {
  while (c->at < c->end && strchr(" \t\r\n", *c->at) && *c->at) c->at++;
}

static bool accept(Cursor *c, char ch) {
  skip_space(c);
  if (c->at >= c->end || *c->at != ch) return false;
  c->at++;
  return true;
}

/* 'text' or "text" into a buffer. */
static bool quoted(Cursor *c, char *out, size_t room) {
  skip_space(c);
  if (c->at >= c->end || (*c->at != '\'' && *c->at != '"')) return false;
  char quote = *c->at++;
  size_t n = 0;
  while (c->at < c->end && *c->at != quote) {
    if (n + 1 >= room) return false;
    out[n++] = *c->at++;
  }
  out[n] = 0;
  return c->at < c->end && c->at++;
}

static bool word(Cursor *c, const char *text) {
  skip_space(c);
  size_t n = strlen(text);
  if ((size_t)(c->end - c->at) < n || memcmp(c->at, text, n) != 0) return false;
  c->at += n;
  return true;
}

/* (60000, 28) or (5,) or () */
static bool shape(Cursor *c, Table *t) {
  if (!accept(c, '(')) return false;
  t->rank = 0;
  while (!accept(c, ')')) {
    skip_space(c);
    int64_t v = 0;
    const char *first = c->at;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++)
      if (__builtin_mul_overflow(v, (int64_t)10, &v) ||
          __builtin_add_overflow(v, (int64_t)(*c->at - '0'), &v))
        return false;
    if (c->at == first || t->rank == ABI_MAX_DIMS) return false;
    t->shape[t->rank++] = v;
    if (accept(c, ',')) continue;
    return accept(c, ')');
  }
  return true;
}

static bool descr(const char *text, Table *t) {
  static const struct {
    const char *text;
    FileType type;
  } types[] = {{"f2", FILE_F16}, {"f4", FILE_F32}, {"f8", FILE_F64}, {"u1", FILE_U8},
               {"u2", FILE_U16}, {"u4", FILE_U32}, {"u8", FILE_U64}, {"i1", FILE_I8},
               {"i2", FILE_I16}, {"i4", FILE_I32}, {"i8", FILE_I64}, {"b1", FILE_BOOL}};
  if (!*text || !strchr("<>|=", *text)) return false;
  t->big_endian = *text == '>';
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (strcmp(types[i].text, text + 1) == 0) t->type = types[i].type;
  return t->type != FILE_NONE;
}

/* NumPy's format: magic, version, header length, a Python dict, data (numpy.lib.format). */
static bool parse_npy(Table *t, const unsigned char *b, size_t size, char why[TABLE_WHY]) {
  if (size < 10 || memcmp(b, "\x93NUMPY", 6) != 0)
    return refuse(why, "not a .npy file: it does not begin with \\x93NUMPY");
  bool longer = b[6] >= 2;
  if (b[6] < 1 || b[6] > 3) {
    snprintf(why, TABLE_WHY, ".npy version %u.%u; 1 to 3 can be read", b[6], b[7]);
    return false;
  }
  size_t begin = longer ? 12 : 10;
  if (size < begin) return refuse(why, "truncated inside the .npy header");
  size_t length = longer ? little32(b + 8) : (size_t)b[8] | (size_t)b[9] << 8;
  if (length > size - begin) return refuse(why, "truncated inside the .npy header");
  Cursor c = {(const char *)b + begin, (const char *)b + begin + length};
  bool fortran = false, has[3] = {false, false, false};
  if (!accept(&c, '{')) return refuse(why, "the .npy header is not a dict");
  while (!accept(&c, '}')) {
    char key[32], value[32];
    if (!quoted(&c, key, sizeof key) || !accept(&c, ':'))
      return refuse(why, "the .npy header is damaged");
    if (strcmp(key, "descr") == 0 && !has[0]) {
      if (!quoted(&c, value, sizeof value) || !descr(value, t))
        return refuse(why, "its element type cannot be read; save it as a plain bool, integer or "
                           "float array");
      has[0] = true;
    } else if (strcmp(key, "fortran_order") == 0 && !has[1]) {
      fortran = word(&c, "True");
      if (!fortran && !word(&c, "False")) return refuse(why, "the .npy header is damaged");
      has[1] = true;
    } else if (strcmp(key, "shape") == 0 && !has[2]) {
      if (!shape(&c, t)) return refuse(why, "the shape in the .npy header cannot be read");
      has[2] = true;
    } else {
      return refuse(why, "the .npy header has an unknown or repeated key");
    }
    if (!accept(&c, ',')) {
      if (!accept(&c, '}')) return refuse(why, "the .npy header is damaged");
      break;
    }
  }
  if (!has[0] || !has[1] || !has[2]) return refuse(why, "the .npy header lacks a key");
  return finish(t, b, size, begin + length, fortran, why);
}

/* llm.c: 256 little-endian i32 (magic, version, count), then u16 (GPT-2) or u32 (Llama 3) tokens.
 */
static bool parse_bin(Table *t, const unsigned char *b, size_t size, char why[TABLE_WHY]) {
  enum { HEADER = 1024 };
  if (size < HEADER) return refuse(why, "too short for the header of a token file (1024 bytes)");
  uint32_t magic = little32(b), version = little32(b + 4);
  if (magic == 20240520 && version == 1)
    t->type = FILE_U16;
  else if (magic == 20240801 && version == 7)
    t->type = FILE_U32;
  else {
    snprintf(why, TABLE_WHY,
             "not a token file: magic %u version %u; 20240520 version 1 (u16) and 20240801 version "
             "7 (u32) can be read, plain numbers with reader raw",
             magic, version);
    return false;
  }
  t->rank = 1;
  t->shape[0] = little32(b + 8);
  return finish(t, b, size, HEADER, false, why);
}

static FileType raw_type(uint32_t dtype) {
  switch ((AbiDType)dtype) {
  case ABI_F64:
    return FILE_F64;
  case ABI_F32:
    return FILE_F32;
  case ABI_BF16:
    return FILE_BF16;
  case ABI_F16:
    return FILE_F16;
  case ABI_I64:
    return FILE_I64;
  case ABI_I32:
    return FILE_I32;
  case ABI_I16:
    return FILE_I16;
  case ABI_I8:
    return FILE_I8;
  case ABI_U8:
    return FILE_U8;
  case ABI_BOOL:
    return FILE_BOOL;
  case ABI_F8_E4M3:
  case ABI_F8_E5M2:
  case ABI_NONE:
  case ABI_DTYPE_COUNT:
    break;
  }
  return FILE_NONE;
}

static bool parse_raw(Table *t, const unsigned char *b, size_t size, FileType type,
                      char why[TABLE_WHY]) {
  t->type = type;
  if (!type) return refuse(why, "raw files of this element type cannot be read");
  int64_t bytes = dtm_rt_file_type_bytes(type);
  if (size % (size_t)bytes) {
    snprintf(why, TABLE_WHY, "its length, %zu bytes, is not a multiple of the %lld bytes of %s",
             size, (long long)bytes, dtm_rt_file_type_name(type));
    return false;
  }
  t->rank = 1;
  t->shape[0] = (int64_t)size / bytes;
  return finish(t, b, size, 0, false, why);
}

bool dtm_rt_table_parse(Table *t, const char *reader, const unsigned char *bytes, size_t size,
                        uint32_t file_dtype, char why[TABLE_WHY]) {
  memset(t, 0, sizeof *t);
  if (strcmp(reader, "idx") == 0) return parse_idx(t, bytes, size, why);
  if (strcmp(reader, "npy") == 0) return parse_npy(t, bytes, size, why);
  if (strcmp(reader, "bin") == 0) return parse_bin(t, bytes, size, why);
  if (strcmp(reader, "text") == 0) return parse_raw(t, bytes, size, FILE_U8, why);
  if (strcmp(reader, "raw") == 0) return parse_raw(t, bytes, size, raw_type(file_dtype), why);
  snprintf(why, TABLE_WHY, "there is no reader \"%s\"", reader);
  return false;
}
