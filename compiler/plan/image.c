/* Writing an image: see image.h. */
#include "plan/image.h"

#include <string.h>

#include "runtime/abi/digest.h"

void image_init(ImageWriter *w, Arena *arena) {
  memset(w, 0, sizeof *w);
  w->arena = arena;
  VEC_PUSH(arena, &w->string, 0);
  VEC_PUSH(arena, &w->mesh, (AbiMesh){0});
  VEC_PUSH(arena, &w->type, (AbiType){0});
  VEC_PUSH(arena, &w->sym, (RtSym){.op = RT_SYM_CONST});
}

uint32_t image_string(ImageWriter *w, const char *text) {
  if (!text || !*text) return 0;
  size_t n = strlen(text);
  for (uint64_t key = hash_bytes(text, n, 0);; key++) {
    uint32_t at;
    if (!id_map_get(&w->strings, key, &at)) {
      at = w->string.len;
      VEC_RESERVE(w->arena, &w->string, n + 1);
      memcpy(w->string.data + at, text, n + 1);
      w->string.len += (uint32_t)n + 1;
      id_map_put(w->arena, &w->strings, key, at);
      return at;
    }
    if (strcmp(w->string.data + at, text) == 0) return at;
  }
}

uint32_t image_mesh(ImageWriter *w, const Mesh *mesh) {
  if (!mesh) return 1; /* a scalar on no mesh in particular: the world comes first */
  for (uint32_t i = 1; i < w->mesh.len; i++)
    if (w->mesh_of[i] == mesh) return i;
  AbiMesh m = {.name = image_string(w, mesh->name),
               .naxes = mesh->naxes,
               .nranks = mesh->nranks,
               .ranks = w->rank.len};
  for (uint32_t a = 0; a < mesh->naxes; a++) {
    m.axis[a] = image_string(w, mesh->axis[a]);
    m.size[a] = mesh->size[a];
  }
  for (int64_t p = 0; p < mesh->nranks; p++)
    VEC_PUSH(w->arena, &w->rank, (int32_t)mesh_rank(mesh, p));
  uint32_t id = w->mesh.len;
  VEC_PUSH(w->arena, &w->mesh, m);
  if (id >= w->mesh_cap) {
    uint32_t cap = w->mesh_cap ? 2 * w->mesh_cap : 8;
    w->mesh_of = arena_grow(w->arena, w->mesh_of, w->mesh_cap * sizeof *w->mesh_of,
                            cap * sizeof *w->mesh_of);
    w->mesh_cap = cap;
  }
  w->mesh_of[id] = mesh;
  return id;
}

uint32_t image_type(ImageWriter *w, const TensorType *type) {
  /* A scalar constant may have no mesh: it is the same on all. The first mesh is the world. */
  const uint32_t mesh = type->mesh ? image_mesh(w, type->mesh) : 1;
  AbiType t = {.dtype = type->dtype, .rank = type->rank, .mesh = mesh};
  memcpy(t.shape, type->shape, sizeof *t.shape * type->rank);
  memcpy(t.at, type->layout.at, sizeof t.at);
  for (uint64_t key = hash_bytes(&t, sizeof t, 1);; key++) {
    uint32_t id;
    if (!id_map_get(&w->types, key, &id)) {
      VEC_PUSH(w->arena, &w->type, t);
      id_map_put(w->arena, &w->types, key, w->type.len - 1);
      return w->type.len - 1;
    }
    if (memcmp(&w->type.data[id], &t, sizeof t) == 0) return id;
  }
}

static uint64_t aligned(uint64_t n, uint64_t to) {
  return (n + to - 1) / to * to;
}

const unsigned char *image_finish(ImageWriter *w, AbiHeader *h) {
  uint64_t size = aligned(sizeof *h, 8);
#define X(name, T)                                                                                 \
  h->name = (AbiTable){.offset = size, .count = w->name.len};                                      \
  size = aligned(size + sizeof(T) * w->name.len, 8);
  ABI_TABLES(X)
#undef X
  unsigned char *raw = arena_alloc(w->arena, size + ABI_ALIGN);
  unsigned char *blob = raw + (aligned((uintptr_t)raw, ABI_ALIGN) - (uintptr_t)raw);
#define X(name, T)                                                                                 \
  if (w->name.len) memcpy(blob + h->name.offset, w->name.data, sizeof(T) * w->name.len);
  ABI_TABLES(X)
#undef X
  h->magic = ABI_MAGIC;
  h->version = ABI_VERSION;
  h->signature = abi_signature();
  h->size = size;
  h->hash = 0;
  memcpy(blob, h, sizeof *h);
  h->hash = abi_digest(abi_digest(0, h, sizeof *h), blob + sizeof *h, size - sizeof *h);
  memcpy(blob, h, sizeof *h);
  return blob;
}
