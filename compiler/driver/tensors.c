/* Reading checkpoints that were saved a moment ago: see tensors.h. Their format is safetensors; the
 * runtime's reader also takes what others wrote, and is no part of the compiler. */
#include "driver/tensors.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/abi/number.h"

static const struct {
  const char *name;
  DType type;
} types[] = {
#define X(id, name, bytes, st) {st, DT_##id},
    ABI_DTYPES(X)
#undef X
};

static DType type_by_name(const char *name) {
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (strcmp(types[i].name, name) == 0) return types[i].type;
  return DT_NONE;
}

/* One entry of the header; `data` are `size` bytes. False when it is none. */
static bool read_tensor(Arena *arena, const json_t *entry, SavedTensor *t, const char *data,
                        size_t size) {
  const json_t *shape = json_object_get(entry, "shape");
  const char *type;
  json_int_t begin, end;
  if (json_unpack((json_t *)(uintptr_t)entry, "{s:s, s:[I, I!]}", "dtype", &type, "data_offsets",
                  &begin, &end))
    return false;
  t->type = type_by_name(type);
  t->count = 1;
  for (size_t d = 0; d < json_array_size(shape); d++) {
    VEC_PUSH(arena, &t->shape, json_integer_value(json_array_get(shape, d)));
    t->count *= t->shape.data[d];
  }
  t->data = data + begin;
  return t->type != DT_NONE && begin >= 0 && begin <= end && (uint64_t)end <= size &&
         end - begin == t->count * (int64_t)dtype_bytes(t->type);
}

static double largest_element(const SavedTensor *t) {
  double largest = 0;
  for (int64_t i = 0; i < t->count; i++) {
    double v = fabs(abi_load(t->data, (uint32_t)t->type, i));
    if (isfinite(v)) largest = fmax(largest, v);
  }
  return largest;
}

/* *state: the name of the file of the optimizer's state, which the metadata has. */
static bool read_header(Arena *arena, const json_t *header, const char *data, size_t size,
                        bool optimizer, SavedTensors *out, const char **state) {
  const char *key;
  json_t *entry;
  json_object_foreach((json_t *)(uintptr_t)header, key, entry) { /* in the order of the file */
    SavedTensor t = {.name = arena_strdup(arena, key), .optimizer = optimizer};
    if (strcmp(key, "__metadata__") == 0) {
      const char *name = json_string_value(json_object_get(entry, "optimizer"));
      if (name) *state = arena_strdup(arena, name);
      continue;
    }
    if (!read_tensor(arena, entry, &t, data, size)) return false;
    t.largest = largest_element(&t);
    VEC_PUSH(arena, out, t);
  }
  return json_is_object(header);
}

static const char *map_file(Arena *arena, const char *path, const char **bytes, size_t *size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  struct stat s = {0};
  void *base = MAP_FAILED;
  if (fd >= 0 && fstat(fd, &s) == 0 && s.st_size > 0)
    base = mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  const char *wrong =
      base == MAP_FAILED ? arena_printf(arena, "cannot read %s: %s", path, strerror(errno)) : NULL;
  if (fd >= 0) close(fd);
  *bytes = base;
  *size = (size_t)s.st_size;
  return wrong;
}

static const char *read_file(Arena *arena, const char *path, bool optimizer, SavedTensors *out,
                             const char **state) {
  const char *bytes, *wrong;
  size_t size;
  if ((wrong = map_file(arena, path, &bytes, &size))) return wrong;
  uint64_t length = 0;
  for (int i = 7; size >= 8 && i >= 0; i--) length = length << 8 | (unsigned char)bytes[i];
  bool ok = size >= 8 && length <= size - 8;
  json_t *header = ok ? json_loadb(bytes + 8, length, 0, NULL) : NULL;
  ok = header &&
       read_header(arena, header, bytes + 8 + length, size - 8 - length, optimizer, out, state);
  json_decref(header);
  return ok ? NULL : arena_printf(arena, "%s is no safetensors file", path);
}

const char *tensors_read(Arena *arena, const char *file, SavedTensors *out) {
  const char *state = "", *none, *wrong = read_file(arena, file, false, out, &state);
  if (wrong || !*state) return wrong;
  return read_file(arena, arena_printf(arena, "%s.state/%s", file, state), true, out, &none);
}

const SavedTensor *tensors_find(const SavedTensors *in, const char *name, bool optimizer) {
  for (uint32_t i = 0; i < in->len; i++)
    if (in->data[i].optimizer == optimizer && strcmp(in->data[i].name, name) == 0)
      return &in->data[i];
  return NULL;
}
