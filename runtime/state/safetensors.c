/* Reading and laying out safetensors files: see safetensors.h. */
#include "state/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Every element type of the format; those the programs have no type for can be skipped. */
static const struct {
  const char *name;
  uint32_t dtype;
  uint64_t bytes;
} st_types[] = {
#define X(id, name, bytes, st) {st, ABI_##id, bytes},
    ABI_DTYPES(X)
#undef X
        {"U16", 0, 2},
    {"U32", 0, 4},
    {"U64", 0, 8},
    {"F8_E8M0", 0, 1},
    {"C64", 0, 8},
};

static bool refuse(char why[ST_WHY], const char *name, const char *text) {
  if (name)
    snprintf(why, ST_WHY, "tensor \"%.200s\": %s", name, text);
  else
    snprintf(why, ST_WHY, "%s", text);
  return false;
}

static bool get_count(const json_t *v, int64_t *out) {
  if (!json_is_integer(v) || json_integer_value(v) < 0) return false;
  *out = json_integer_value(v);
  return true;
}

/* One entry of the header; `data`: length of the data part. */
static bool parse_entry(const char *name, const json_t *entry, uint64_t data, StTensor *t,
                        char why[ST_WHY]) {
  const json_t *dtype = json_object_get(entry, "dtype"), *shape = json_object_get(entry, "shape");
  const json_t *offsets = json_object_get(entry, "data_offsets");
  if (!json_is_object(entry) || !json_is_string(dtype) || !json_is_array(shape) ||
      !json_is_array(offsets) || json_array_size(offsets) != 2)
    return refuse(why, name, "its entry needs dtype, shape and two data_offsets");
  uint64_t bytes = 0;
  for (size_t i = 0; i < sizeof st_types / sizeof *st_types; i++)
    if (strcmp(st_types[i].name, json_string_value(dtype)) == 0) {
      t->dtype = st_types[i].dtype;
      t->dtype_name = st_types[i].name;
      bytes = st_types[i].bytes;
    }
  if (!bytes) return refuse(why, name, "unknown element type");
  if (json_array_size(shape) > ABI_MAX_DIMS) return refuse(why, name, "more than 8 dims");
  t->rank = (uint32_t)json_array_size(shape);
  for (uint32_t d = 0; d < t->rank; d++) {
    if (!get_count(json_array_get(shape, d), &t->shape[d]))
      return refuse(why, name, "an extent is not a number of elements");
    if (__builtin_mul_overflow(bytes, (uint64_t)t->shape[d], &bytes))
      return refuse(why, name, "its shape is too large");
  }
  int64_t begin, end;
  if (!get_count(json_array_get(offsets, 0), &begin) ||
      !get_count(json_array_get(offsets, 1), &end))
    return refuse(why, name, "a data offset is not a number of bytes");
  if (end < begin || (uint64_t)(end - begin) != bytes)
    return refuse(why, name, "its data_offsets do not fit its shape and element type");
  if ((uint64_t)end > data)
    return refuse(why, name, "its data lies beyond the end of the file: the file is truncated");
  t->begin = (uint64_t)begin;
  t->end = (uint64_t)end;
  t->name = strdup(name);
  return t->name ? true : refuse(why, name, "out of memory");
}

static int by_offset(const void *a, const void *b) {
  const StTensor *x = a, *y = b;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  return x->end < y->end ? -1 : x->end > y->end;
}

static int by_name(const void *a, const void *b) {
  return strcmp(((const StTensor *)a)->name, ((const StTensor *)b)->name);
}

static bool parse_metadata(StStore *s, const json_t *object, char why[ST_WHY]) {
  if (json_is_null(object)) return true;
  if (!json_is_object(object)) return refuse(why, NULL, "__metadata__ is not an object");
  const char *key;
  json_t *value;
  s->keys = calloc(json_object_size(object) + 1, sizeof *s->keys);
  s->values = calloc(json_object_size(object) + 1, sizeof *s->values);
  if (!s->keys || !s->values) return refuse(why, NULL, "out of memory");
  json_object_foreach((json_t *)object, key, value) {
    if (!json_is_string(value))
      return refuse(why, NULL, "__metadata__ maps strings to strings, but it holds another value");
    s->keys[s->nmetadata] = strdup(key);
    s->values[s->nmetadata++] = strdup(json_string_value(value));
    if (!s->keys[s->nmetadata - 1] || !s->values[s->nmetadata - 1])
      return refuse(why, NULL, "out of memory");
  }
  return true;
}

/* The header object; `data`: length of the data part, which begins at byte `start`. */
static bool parse_header(StStore *s, const json_t *header, uint64_t start, uint64_t data,
                         uint32_t file, char why[ST_WHY]) {
  if (!json_is_object(header)) return refuse(why, NULL, "its header is not a JSON object");
  StTensor *more = realloc(s->tensors, (s->ntensors + json_object_size(header) + 1) * sizeof *more);
  if (!more) return refuse(why, NULL, "out of memory");
  s->tensors = more;
  size_t first = s->ntensors;
  const char *name;
  json_t *entry;
  json_object_foreach((json_t *)header, name, entry) {
    if (strcmp(name, "__metadata__") == 0) {
      if (!s->keys && !parse_metadata(s, entry, why)) return false;
      continue;
    }
    StTensor *t = &s->tensors[s->ntensors];
    memset(t, 0, sizeof *t);
    t->file = file;
    if (!parse_entry(name, entry, data, t, why)) return false;
    s->ntensors++;
  }
  qsort(s->tensors + first, s->ntensors - first, sizeof *s->tensors, by_offset);
  uint64_t at = 0;
  for (size_t i = first; i < s->ntensors; i++) {
    StTensor *t = &s->tensors[i];
    if (t->begin != at)
      return refuse(why, t->name,
                    t->begin > at ? "a hole lies before its data"
                                  : "its data overlaps that of another tensor");
    at = t->end;
    t->begin += start;
    t->end += start;
  }
  if (at != data) {
    snprintf(why, ST_WHY, "%llu bytes follow the last tensor: the file is damaged",
             (unsigned long long)(data - at));
    return false;
  }
  return true;
}

bool dtm_rt_st_parse(StStore *s, const unsigned char *bytes, size_t size, uint32_t file,
                     char why[ST_WHY]) {
  if (size < 8) return refuse(why, NULL, "too short for a safetensors file");
  uint64_t n = 0;
  for (int i = 7; i >= 0; i--) n = n << 8 | bytes[i];
  if (n > ST_MAX_HEADER)
    return refuse(why, NULL, "not a safetensors file: its header would be larger than 100 MB");
  if (n > size - 8) return refuse(why, NULL, "truncated inside its header");
  json_error_t error;
  json_t *header = json_loadb((const char *)bytes + 8, n, JSON_REJECT_DUPLICATES, &error);
  if (!header) {
    snprintf(why, ST_WHY, "its header is not valid JSON: %s (byte %d)", error.text,
             8 + error.position);
    return false;
  }
  bool ok = parse_header(s, header, 8 + n, size - 8 - n, file, why);
  json_decref(header);
  return ok;
}

static bool map_file(StFile *f, const char *path, char why[ST_WHY]) {
  f->path = strdup(path);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  struct stat st;
  bool ok = f->path && fd >= 0 && fstat(fd, &st) == 0;
  if (!ok) {
    snprintf(why, ST_WHY, "%.400s: %s", path, strerror(errno));
  } else if (!S_ISREG(st.st_mode) || st.st_size == 0) {
    snprintf(why, ST_WHY, "%.400s: %s", path,
             S_ISREG(st.st_mode) ? "the file is empty" : "not a regular file");
    ok = false;
  } else {
    void *base = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    ok = base != MAP_FAILED;
    if (ok) {
      f->base = base;
      f->size = (size_t)st.st_size;
    } else {
      snprintf(why, ST_WHY, "%.400s: cannot map it: %s", path, strerror(errno));
    }
  }
  if (fd >= 0) close(fd);
  return ok;
}

/* Maps and parses one more file of the store. */
static bool add_file(StStore *s, const char *path, char why[ST_WHY]) {
  StFile *more = realloc(s->files, (s->nfiles + 1) * sizeof *more);
  if (!more) return refuse(why, NULL, "out of memory");
  s->files = more;
  StFile *f = &s->files[s->nfiles];
  memset(f, 0, sizeof *f);
  s->nfiles++;
  if (!map_file(f, path, why)) return false;
  char reason[ST_WHY];
  size_t n = strlen(path);
  if (n > 3 && strcmp(path + n - 3, ".pt") == 0 && f->base[0] == 'P')
    snprintf(reason, sizeof reason,
             "PyTorch's pickle files are not read; convert it once with\n  python -c \"import "
             "torch; from safetensors.torch import save_file; "
             "save_file(torch.load('%.200s', weights_only=True), 'model.safetensors')\"",
             path);
  else if (dtm_rt_st_parse(s, f->base, f->size, s->nfiles - 1, reason))
    return true;
  snprintf(why, ST_WHY, "%.300s: %.590s", path, reason);
  return false;
}

static char *beside(const char *path, const char *name) {
  const char *slash = strrchr(path, '/');
  size_t folder = slash ? (size_t)(slash - path) + 1 : 0;
  char *out = malloc(folder + strlen(name) + 1);
  if (!out) return NULL;
  memcpy(out, path, folder);
  strcpy(out + folder, name);
  return out;
}

static bool ends_with(const char *s, const char *end) {
  size_t n = strlen(s), m = strlen(end);
  return n >= m && strcmp(s + n - m, end) == 0;
}

/* Drops tensors that the index puts elsewhere or does not name; each it names must be there. */
static bool keep_indexed(StStore *s, const json_t *map, const char *path, char why[ST_WHY]) {
  size_t kept = 0;
  for (size_t i = 0; i < s->ntensors; i++) {
    StTensor *t = &s->tensors[i];
    const char *file = json_string_value(json_object_get(map, t->name));
    const char *slash = strrchr(s->files[t->file].path, '/');
    if (file && strcmp(file, slash ? slash + 1 : s->files[t->file].path) == 0)
      s->tensors[kept++] = *t;
    else
      free(t->name);
  }
  s->ntensors = kept;
  qsort(s->tensors, s->ntensors, sizeof *s->tensors, by_name);
  const char *name;
  json_t *value;
  json_object_foreach((json_t *)map, name, value) {
    if (dtm_rt_st_find(s, name)) continue;
    snprintf(why, ST_WHY, "%.300s: %.200s does not hold tensor \"%.200s\"", path,
             json_string_value(value), name);
    return false;
  }
  return true;
}

static bool open_index(StStore *s, const char *path, char why[ST_WHY]) {
  json_error_t error;
  json_t *index = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
  json_t *map = json_object_get(index, "weight_map"), *value;
  if (!index || !json_is_object(map)) {
    snprintf(why, ST_WHY, "%.400s: %s", path, index ? "it has no weight_map" : error.text);
    json_decref(index);
    return false;
  }
  const char *name;
  bool ok = true;
  json_t *seen = json_object();
  json_object_foreach(map, name, value) {
    const char *file = json_string_value(value);
    ok = file && *file && !strchr(file, '/') && strcmp(file, "..") != 0 && strcmp(file, ".") != 0;
    if (!ok) {
      snprintf(why, ST_WHY, "%.400s: the file of tensor \"%.200s\" is not a name in its folder",
               path, name);
      break;
    }
    if (json_object_get(seen, file)) continue;
    json_object_set_new(seen, file, json_true());
    char *full = beside(path, file);
    ok = full && add_file(s, full, why);
    free(full);
    if (!ok) break;
  }
  ok = ok && keep_indexed(s, map, path, why);
  json_decref(seen);
  json_decref(index);
  return ok;
}

bool dtm_rt_st_open(StStore *s, const char *path, char why[ST_WHY]) {
  memset(s, 0, sizeof *s);
  struct stat st;
  char whole[4096];
  if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
    snprintf(whole, sizeof whole, "%s/model.safetensors.index.json", path);
    if (access(whole, F_OK) != 0) snprintf(whole, sizeof whole, "%s/model.safetensors", path);
    if (access(whole, F_OK) != 0) {
      snprintf(why, ST_WHY,
               "%.400s: the folder holds neither model.safetensors nor "
               "model.safetensors.index.json",
               path);
      return false;
    }
    path = whole;
  }
  bool ok = ends_with(path, ".index.json") ? open_index(s, path, why) : add_file(s, path, why);
  if (ok)
    qsort(s->tensors, s->ntensors, sizeof *s->tensors, by_name);
  else
    dtm_rt_st_close(s);
  return ok;
}

void dtm_rt_st_close(StStore *s) {
  for (uint32_t i = 0; i < s->nfiles; i++) {
    if (s->files[i].base) munmap((void *)(uintptr_t)s->files[i].base, s->files[i].size);
    free(s->files[i].path);
  }
  for (size_t i = 0; i < s->ntensors; i++) free(s->tensors[i].name);
  for (size_t i = 0; i < s->nmetadata; i++) {
    free(s->keys[i]);
    free(s->values[i]);
  }
  free(s->files);
  free(s->tensors);
  free(s->keys);
  free(s->values);
  memset(s, 0, sizeof *s);
}

const StTensor *dtm_rt_st_find(const StStore *s, const char *name) {
  StTensor key = {.name = (char *)(uintptr_t)name};
  return s->ntensors ? bsearch(&key, s->tensors, s->ntensors, sizeof key, by_name) : NULL;
}

const char *dtm_rt_st_metadata(const StStore *s, const char *key) {
  for (size_t i = 0; i < s->nmetadata; i++)
    if (strcmp(s->keys[i], key) == 0) return s->values[i];
  return NULL;
}

static uint64_t element_bytes(uint32_t dtype) {
  for (size_t i = 0; i < sizeof st_types / sizeof *st_types; i++)
    if (st_types[i].dtype == dtype) return st_types[i].bytes;
  return 0;
}

static const char *element_name(uint32_t dtype) {
  for (size_t i = 0; i < sizeof st_types / sizeof *st_types; i++)
    if (st_types[i].dtype == dtype) return st_types[i].name;
  return "?";
}

/* Places the data, relative to its start; returns its length. */
static uint64_t place(StEntry *entries, size_t n) {
  uint64_t at = 0;
  for (uint64_t bytes = 8; bytes; bytes /= 2)
    for (size_t i = 0; i < n; i++) {
      if (element_bytes(entries[i].dtype) != bytes) continue;
      uint64_t size = bytes;
      for (uint32_t d = 0; d < entries[i].rank; d++) size *= (uint64_t)entries[i].shape[d];
      entries[i].begin = at;
      at += size;
    }
  return at;
}

unsigned char *dtm_rt_st_header(StEntry *entries, size_t n, const char *const *metadata,
                                size_t nmetadata, size_t *header_size, uint64_t *file_size) {
  uint64_t data = place(entries, n);
  json_t *header = json_object(), *about = json_object();
  for (size_t i = 0; i < nmetadata; i++)
    json_object_set_new(about, metadata[2 * i], json_string(metadata[2 * i + 1]));
  json_object_set_new(header, "__metadata__", about);
  for (size_t i = 0; i < n; i++) {
    uint64_t size = element_bytes(entries[i].dtype);
    json_t *shape = json_array();
    for (uint32_t d = 0; d < entries[i].rank; d++) {
      json_array_append_new(shape, json_integer(entries[i].shape[d]));
      size *= (uint64_t)entries[i].shape[d];
    }
    json_object_set_new(header, entries[i].name,
                        json_pack("{s:s,s:o,s:[I,I]}", "dtype", element_name(entries[i].dtype),
                                  "shape", shape, "data_offsets", (json_int_t)entries[i].begin,
                                  (json_int_t)(entries[i].begin + size)));
  }
  char *text = json_dumps(header, JSON_COMPACT);
  json_decref(header);
  size_t length = text ? strlen(text) : 0, padded = (length + 7) / 8 * 8;
  unsigned char *out = text ? malloc(8 + padded) : NULL;
  if (out) {
    for (int i = 0; i < 8; i++) out[i] = (unsigned char)((uint64_t)padded >> 8 * i);
    memcpy(out + 8, text, length);
    memset(out + 8 + length, ' ', padded - length);
    for (size_t i = 0; i < n; i++) entries[i].begin += 8 + padded;
    *header_size = 8 + padded;
    *file_size = 8 + padded + data;
  }
  free(text);
  return out;
}
