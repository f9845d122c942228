/* Device meshes: see mesh.h. */
#include "types/mesh.h"

#include <string.h>

const char mesh_unnamed[] = "*";

int mesh_axis(const Mesh *mesh, const char *name) {
  for (uint32_t a = 0; a < mesh_ndims(mesh); a++)
    if (mesh->axis[a] == name) return (int)a;
  return -1;
}

uint32_t mesh_ndims(const Mesh *mesh) {
  return mesh->naxes - (mesh->naxes && mesh->axis[mesh->naxes - 1] == mesh_unnamed);
}

int64_t mesh_named_size(const Mesh *mesh) {
  int64_t n = 1;
  for (uint32_t a = 0; a < mesh_ndims(mesh); a++) n *= mesh->size[a];
  return n;
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

int64_t mesh_find(const Mesh *mesh, int64_t rank) {
  for (int64_t p = 0; p < mesh->nranks; p++)
    if (mesh_rank(mesh, p) == rank) return p;
  return -1;
}

int64_t mesh_last_rank(const Mesh *mesh) {
  int64_t last = 0;
  for (int64_t p = 0; p < mesh->nranks; p++)
    if (mesh_rank(mesh, p) > last) last = mesh_rank(mesh, p);
  return last;
}

int64_t *mesh_positions(Arena *arena, const Mesh *mesh, int64_t world) {
  int64_t *position = ARENA_ARRAY(arena, int64_t, world);
  for (int64_t r = 0; r < world; r++) position[r] = -1;
  for (int64_t p = 0; p < mesh->nranks; p++)
    if (mesh_rank(mesh, p) < world) position[mesh_rank(mesh, p)] = p;
  return position;
}

/* The next axis from `a` on that has more than one rank. */
static uint32_t skip_units(const Mesh *m, uint32_t a) {
  while (a < m->naxes && m->size[a] == 1) a++;
  return a;
}

bool mesh_same(const Mesh *a, const Mesh *b) {
  if (a == b) return true;
  if (a->nranks != b->nranks) return false;
  uint32_t i = skip_units(a, 0), j = skip_units(b, 0);
  for (; i < a->naxes && j < b->naxes; i = skip_units(a, i + 1), j = skip_units(b, j + 1))
    if (a->axis[i] != b->axis[j] || a->size[i] != b->size[j]) return false;
  if (i < a->naxes || j < b->naxes) return false;
  for (i = 0; i < mesh_ndims(a); i++)
    if (mesh_axis(b, a->axis[i]) < 0) return false;
  for (int64_t p = 0; p < a->nranks; p++)
    if (mesh_rank(a, p) != mesh_rank(b, p)) return false;
  return true;
}

bool mesh_alike(const Mesh *a, const Mesh *b) {
  if (a == b) return true;
  bool alike = a->naxes == b->naxes;
  for (uint32_t i = 0; alike && i < a->naxes; i++)
    alike = a->axis[i] == b->axis[i] && a->size[i] == b->size[i];
  return alike;
}

Mesh *mesh_unbind(Arena *arena, const Mesh *mesh, int axis, int64_t i) {
  Mesh *sub = ARENA_NEW(arena, Mesh);
  sub->name =
      arena_printf(arena, "%s.unbind(\"%s\")[%lld]", mesh->name, mesh->axis[axis], (long long)i);
  sub->sub = true;
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

const char *mesh_turn_name(Arena *arena, const Mesh *mesh, int axis, int64_t by) {
  return arena_printf(arena, "%s.turn(\"%s\", %lld)", mesh->name, mesh->axis[axis], (long long)by);
}

Mesh *mesh_turn(Arena *arena, const Mesh *mesh, int axis, int64_t by) {
  Mesh *sub = ARENA_NEW(arena, Mesh);
  *sub = *mesh;
  sub->name = mesh_turn_name(arena, mesh, axis, by);
  sub->sub = true;
  int64_t *ranks = ARENA_ARRAY(arena, int64_t, mesh->nranks);
  for (int64_t p = 0; p < mesh->nranks; p++) {
    int64_t coord[DTM_MAX_AXES];
    mesh_coords(mesh, p, coord);
    coord[axis] = (coord[axis] + by) % mesh->size[axis];
    ranks[p] = mesh_rank(mesh, mesh_position(mesh, coord));
  }
  sub->ranks = ranks;
  return sub;
}

/* Fills the ranks of `sub`, whose positions count through the axes of `mesh` in this order. */
static void reorder(Arena *arena, const Mesh *mesh, const uint8_t order[DTM_MAX_AXES], Mesh *sub) {
  int64_t *ranks = ARENA_ARRAY(arena, int64_t, mesh->nranks);
  for (int64_t p = 0; p < mesh->nranks; p++) {
    int64_t coord[DTM_MAX_AXES], rest = p;
    for (uint32_t i = mesh->naxes; i-- > 0;) {
      coord[order[i]] = rest % mesh->size[order[i]];
      rest /= mesh->size[order[i]];
    }
    ranks[p] = mesh_rank(mesh, mesh_position(mesh, coord));
  }
  sub->ranks = ranks;
  sub->nranks = mesh->nranks;
  sub->sub = true;
}

Mesh *mesh_keep(Arena *arena, const Mesh *mesh, uint32_t axes) {
  Mesh *sub = ARENA_NEW(arena, Mesh);
  uint8_t order[DTM_MAX_AXES];
  uint32_t n = 0;
  StrBuf name;
  strbuf_init(&name, arena);
  strbuf_printf(&name, "%s[", mesh->name);
  for (uint32_t a = 0; a < mesh->naxes; a++) {
    if (!(axes >> a & 1)) continue;
    strbuf_printf(&name, "%s\"%s\"", n ? ", " : "", mesh->axis[a]);
    sub->axis[n] = mesh->axis[a];
    sub->size[n] = mesh->size[a];
    order[n++] = (uint8_t)a;
  }
  strbuf_putc(&name, ']');
  sub->name = name.text;
  sub->naxes = n;
  if (n < mesh->naxes) {
    sub->axis[n] = mesh_unnamed;
    sub->size[n] = 1;
    sub->naxes = n + 1;
  }
  for (uint8_t a = 0; a < mesh->naxes; a++) {
    if (axes >> a & 1) continue;
    sub->size[sub->naxes - 1] *= mesh->size[a];
    order[n++] = a;
  }
  reorder(arena, mesh, order, sub);
  return sub;
}

Mesh *mesh_flatten(Arena *arena, const Mesh *mesh, const uint8_t *axes, uint32_t n,
                   const char *name) {
  Mesh *sub = ARENA_NEW(arena, Mesh);
  uint8_t order[DTM_MAX_AXES];
  uint32_t set = 0, norder = 0;
  StrBuf text;
  strbuf_init(&text, arena);
  strbuf_printf(&text, "%s.flatten(", mesh->name);
  for (uint32_t i = 0; i < n; i++) {
    strbuf_printf(&text, "%s\"%s\"", i ? ", " : "", mesh->axis[axes[i]]);
    set |= 1u << axes[i];
  }
  strbuf_printf(&text, " as \"%s\")", name);
  sub->name = text.text;
  for (uint32_t a = 0; a < mesh->naxes; a++) {
    if (set >> a & 1 && a != axes[0]) continue;
    sub->axis[sub->naxes] = a == axes[0] ? name : mesh->axis[a];
    sub->size[sub->naxes] = mesh->size[a];
    if (a != axes[0]) order[norder++] = (uint8_t)a;
    for (uint32_t i = 0; a == axes[0] && i < n; i++) {
      if (i) sub->size[sub->naxes] *= mesh->size[axes[i]];
      order[norder++] = axes[i];
    }
    sub->naxes++;
  }
  reorder(arena, mesh, order, sub);
  return sub;
}

/* The row-major position among the named axes. */
static int64_t named_position(const Mesh *mesh, int64_t rank_position) {
  return rank_position / (mesh->nranks / mesh_named_size(mesh));
}

Mesh *mesh_concatenate(Arena *arena, const Mesh *a, const Mesh *b, const char **error) {
  const Mesh *parts[] = {a, b};
  Mesh *sub = ARENA_NEW(arena, Mesh);
  *error = NULL;
  sub->name = arena_printf(arena, "concatenate(%s, %s)", a->name, b->name);
  sub->sub = true;
  int64_t cells = mesh_named_size(a) * mesh_named_size(b);
  int64_t world = mesh_last_rank(a) + 1;
  const int64_t *in_b = mesh_positions(arena, b, world);
  *error = "they are not selections of dims of one mesh: their ranks differ";
  for (int64_t p = 0; p < a->nranks; p++)
    if (in_b[mesh_rank(a, p)] < 0) return NULL;
  if (a->nranks != b->nranks) return NULL;
  *error = "they have ranks in common that no pair of their dims tells apart";
  if (a->nranks % cells) return NULL;
  for (uint32_t k = 0; k < 2; k++)
    for (uint32_t i = 0; i < mesh_ndims(parts[k]); i++) {
      int twin = k ? mesh_axis(a, b->axis[i]) : -1;
      if (twin >= 0 && a->size[twin] == 1 && b->size[i] == 1) continue; /* as if absent */
      *error = "both have a dim of the same name";
      if (twin >= 0) return NULL;
      *error = "together they have too many dims";
      if (sub->naxes == DTM_MAX_AXES) return NULL;
      sub->axis[sub->naxes] = parts[k]->axis[i];
      sub->size[sub->naxes++] = parts[k]->size[i];
    }
  int64_t copies = a->nranks / cells;
  if (copies > 1) {
    if (sub->naxes == DTM_MAX_AXES) return NULL;
    sub->axis[sub->naxes] = mesh_unnamed;
    sub->size[sub->naxes++] = copies;
  }
  /* By coordinates on both; ranks that agree there follow each other in their order. */
  int64_t *ranks = ARENA_ARRAY(arena, int64_t, a->nranks);
  int64_t *found = ARENA_ARRAY(arena, int64_t, cells);
  const int64_t *in_a = mesh_positions(arena, a, world);
  for (int64_t r = 0; r < world; r++) {
    if (in_a[r] < 0) continue;
    int64_t cell = named_position(a, in_a[r]) * mesh_named_size(b) + named_position(b, in_b[r]);
    *error = "they have ranks in common that no pair of their dims tells apart";
    if (found[cell] == copies) return NULL;
    ranks[cell * copies + found[cell]++] = r;
  }
  sub->nranks = a->nranks;
  sub->ranks = ranks;
  *error = NULL;
  return sub;
}

const char *mesh_dims_print(Arena *arena, const Mesh *mesh) {
  StrBuf sb;
  strbuf_init(&sb, arena);
  for (uint32_t a = 0; a < mesh_ndims(mesh); a++)
    strbuf_printf(&sb, "%s%s", a ? ", " : "", mesh->axis[a]);
  return mesh_ndims(mesh) ? sb.text : "none";
}

const char *mesh_print(Arena *arena, const Mesh *mesh) {
  StrBuf sb;
  strbuf_init(&sb, arena);
  strbuf_puts(&sb, "mesh(");
  for (uint32_t a = 0; a < mesh_ndims(mesh); a++)
    strbuf_printf(&sb, "%s%s %lld", a ? ", " : "", mesh->axis[a], (long long)mesh->size[a]);
  strbuf_putc(&sb, ')');
  return sb.text;
}
