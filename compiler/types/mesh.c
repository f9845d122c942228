/* Device meshes: see mesh.h. */
#include "types/mesh.h"

#include <string.h>

int mesh_axis(const Mesh *mesh, const char *name) {
  for (uint32_t a = 0; a < mesh->naxes; a++)
    if (mesh->axis[a] == name) return (int)a;
  return -1;
}

void mesh_coords(const Mesh *mesh, int64_t pos, int64_t coord[DTM_MAX_AXES]) {
  memset(coord, 0, sizeof(int64_t) * DTM_MAX_AXES);
  for (uint32_t a = mesh->naxes; a-- > 0;) {
    coord[a] = pos % mesh->size[a];
    pos /= mesh->size[a];
  }
}

int64_t mesh_position(const Mesh *mesh, const int64_t coord[DTM_MAX_AXES]) {
  int64_t pos = 0;
  for (uint32_t a = 0; a < mesh->naxes; a++) pos = pos * mesh->size[a] + coord[a];
  return pos;
}

int64_t mesh_rank(const Mesh *mesh, int64_t pos) {
  return mesh->ranks ? mesh->ranks[pos] : pos;
}

Mesh *mesh_unbind(Arena *arena, const Mesh *mesh, int axis, int64_t i) {
  Mesh *sub = ARENA_NEW(arena, Mesh);
  sub->name =
      arena_printf(arena, "%s.unbind(\"%s\")[%lld]", mesh->name, mesh->axis[axis], (long long)i);
  for (uint32_t a = 0; a < mesh->naxes; a++) {
    if ((int)a == axis) continue;
    sub->axis[sub->naxes] = mesh->axis[a];
    sub->size[sub->naxes++] = mesh->size[a];
  }
  sub->nranks = mesh->nranks / mesh->size[axis];
  int64_t *ranks = ARENA_ARRAY(arena, int64_t, sub->nranks);
  int64_t inner = 1;
  for (uint32_t a = (uint32_t)axis + 1; a < mesh->naxes; a++) inner *= mesh->size[a];
  for (int64_t p = 0; p < sub->nranks; p++) {
    int64_t outer = p / inner, rest = p % inner;
    ranks[p] = mesh_rank(mesh, (outer * mesh->size[axis] + i) * inner + rest);
  }
  sub->ranks = ranks;
  return sub;
}

const char *mesh_print(Arena *arena, const Mesh *mesh) {
  StrBuf sb;
  strbuf_init(&sb, arena);
  strbuf_puts(&sb, "mesh(");
  for (uint32_t a = 0; a < mesh->naxes; a++)
    strbuf_printf(&sb, "%s%s %lld", a ? ", " : "", mesh->axis[a], (long long)mesh->size[a]);
  strbuf_putc(&sb, ')');
  return sb.text;
}
