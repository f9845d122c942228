/* Data files as arrays: mapping, gzip, and the elements. The formats are in formats.c. */
#include "data/table.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "runtime/abi/number.h"

static const struct {
  const char *name;
  int64_t bytes;
  bool is_float;
} file_types[] = {[FILE_NONE] = {"none", 0, false},
#define X(id, name, bytes, is_float) [FILE_##id] = {name, bytes, is_float},
                  FILE_TYPES(X)
#undef X
};

const char *dtm_rt_file_type_name(FileType t) {
  return file_types[t].name;
}
int64_t dtm_rt_file_type_bytes(FileType t) {
  return file_types[t].bytes;
}
bool dtm_rt_file_type_float(FileType t) {
  return file_types[t].is_float;
}

/* Unpacks a gzip file into t->base. The length at its end only hints at how much to get. */
static bool unpack(Table *t, const char *path, char why[TABLE_WHY]) {
  gzFile file = gzopen(path, "rb");
  size_t room = 1 << 20;
  unsigned char *data = file ? malloc(room) : NULL;
  if (!data) {
    if (file) gzclose(file);
    snprintf(why, TABLE_WHY, "%s", file ? "out of memory" : strerror(errno));
    return false;
  }
  gzbuffer(file, 1 << 17);
  size_t size = 0;
  int n;
  while ((n = gzread(file, data + size,
                     (unsigned)(room - size < 1 << 30 ? room - size : 1 << 30))) > 0) {
    size += (size_t)n;
    if (size < room) continue;
    unsigned char *more = realloc(data, room * 2);
    if (!more) {
      snprintf(why, TABLE_WHY, "out of memory after unpacking %zu bytes", size);
      break;
    }
    data = more;
    room *= 2;
  }
  int code;
  const char *message = gzerror(file, &code); /* "PATH: what", and the caller names the path */
  size_t named = strlen(path);
  if (strncmp(message, path, named) == 0 && message[named] == ':')
    message += named + 1 + strspn(message + named + 1, " ");
  bool ok = n == 0 && code == Z_OK;
  if (n < 0 || (n == 0 && !ok))
    snprintf(why, TABLE_WHY, "damaged or truncated gzip data after %zu unpacked bytes (%s)", size,
             code == Z_ERRNO ? strerror(errno) : message);
  if (gzclose(file) != Z_OK && ok) {
    ok = false;
    snprintf(why, TABLE_WHY, "truncated gzip data after %zu unpacked bytes", size);
  }
  if (!ok) {
    free(data);
    return false;
  }
  t->base = data;
  t->size = size;
  return true;
}

static bool map(Table *t, int fd, size_t size, char why[TABLE_WHY]) {
  void *base = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (base == MAP_FAILED) {
    snprintf(why, TABLE_WHY, "cannot map it: %s", strerror(errno));
    return false;
  }
  t->base = base;
  t->size = size;
  t->mapped = true;
  return true;
}

bool dtm_rt_table_open(Table *t, const char *reader, const char *path, uint32_t file_dtype,
                       char why[TABLE_WHY]) {
  memset(t, 0, sizeof *t);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  struct stat st;
  if (fd < 0 || fstat(fd, &st) != 0) {
    snprintf(why, TABLE_WHY, "%s", strerror(errno));
    if (fd >= 0) close(fd);
    return false;
  }
  unsigned char magic[2] = {0, 0};
  bool ok = false;
  if (!S_ISREG(st.st_mode)) {
    snprintf(why, TABLE_WHY, "not a regular file");
  } else if (st.st_size == 0) {
    snprintf(why, TABLE_WHY, "the file is empty");
  } else if (pread(fd, magic, 2, 0) == 2 && magic[0] == 0x1f && magic[1] == 0x8b &&
             strcmp(reader, "raw") != 0) {
    ok = unpack(t, path, why);
  } else {
    ok = map(t, fd, (size_t)st.st_size, why);
  }
  close(fd);
  if (!ok) return false;
  Table holder = *t;
  ok = dtm_rt_table_parse(t, reader, holder.base, holder.size, file_dtype, why);
  t->base = holder.base;
  t->size = holder.size;
  t->mapped = holder.mapped;
  if (!ok) dtm_rt_table_close(t);
  return ok;
}

void dtm_rt_table_close(Table *t) {
  if (t->base && t->mapped) munmap(t->base, t->size);
  if (t->base && !t->mapped) free(t->base);
  memset(t, 0, sizeof *t);
}

/* The element's bytes as a little-endian integer. */
static uint64_t bits_at(const Table *t, int64_t index) {
  int64_t n = file_types[t->type].bytes;
  const unsigned char *p = t->data + index * n;
  uint64_t v = 0;
  for (int64_t i = 0; i < n; i++) v = v << 8 | p[t->big_endian ? i : n - 1 - i];
  return v;
}

int64_t dtm_rt_table_int(const Table *t, int64_t index) {
  uint64_t v = bits_at(t, index);
  switch (t->type) {
  case FILE_I8:
    return (int8_t)v;
  case FILE_I16:
    return (int16_t)v;
  case FILE_I32:
    return (int32_t)v;
  case FILE_BOOL:
    return v != 0;
  case FILE_U8:
  case FILE_U16:
  case FILE_U32:
  case FILE_U64:
  case FILE_I64:
  case FILE_NONE:
  case FILE_F16:
  case FILE_BF16:
  case FILE_F32:
  case FILE_F64:
    break;
  }
  return (int64_t)v;
}

double dtm_rt_table_float(const Table *t, int64_t index) {
  if (!file_types[t->type].is_float) {
    int64_t v = dtm_rt_table_int(t, index);
    return t->type == FILE_U64 ? (double)(uint64_t)v : (double)v;
  }
  uint64_t bits = bits_at(t, index);
  if (t->type == FILE_F16) return (double)abi_from_f16((uint16_t)bits);
  if (t->type == FILE_BF16) return (double)abi_from_bf16((uint16_t)bits);
  if (t->type == FILE_F32) {
    uint32_t half = (uint32_t)bits;
    float f;
    memcpy(&f, &half, sizeof f);
    return (double)f;
  }
  double d;
  memcpy(&d, &bits, sizeof d);
  return d;
}
