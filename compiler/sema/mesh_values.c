/* Meshes as compile-time values: sub-meshes, their members, values that go from one to another.
 *
 * Two meshes with the same ranks and axes are one mesh: every sub-mesh that is made is looked up
 * among those of the program, so that the same expression in two places, or one that leaves out
 * only dims of size 1, names the same mesh and moves nothing. */
#include <inttypes.h>
#include <string.h>

#include <inttypes.h>

#include "sema/elab.h"

typedef VEC(const Mesh *) MeshesThere;

/* The meshes with the first and last rank of this one: a pipeline of many stages has as many
 * meshes, and the same are few of them. */
static MeshesThere *meshes_there(Sema *s, const Mesh *mesh) {
  const char *key =
      intern(s->names, arena_printf(s->arena, "%" PRId64 " %" PRId64 " %" PRId64, mesh->nranks,
                                    mesh_rank(mesh, 0), mesh_rank(mesh, mesh->nranks - 1)));
  MeshesThere *there = name_map_get(&s->meshes, key);
  if (!there) {
    there = ARENA_NEW(s->arena, MeshesThere);
    name_map_put(s->arena, &s->meshes, key, there);
  }
  return there;
}

const Mesh *mesh_listed(Sema *s, const Mesh *mesh) {
  for (; s->nlisted < s->program->meshes.len; s->nlisted++) {
    const Mesh *known = s->program->meshes.data[s->nlisted];
    VEC_PUSH(s->arena, meshes_there(s, known), known);
  }
  const MeshesThere *there = meshes_there(s, mesh);
  for (uint32_t i = 0; i < there->len; i++)
    if (mesh_same(mesh, there->data[i])) return there->data[i];
  VEC_PUSH(s->arena, &s->program->meshes, mesh);
  return mesh;
}

static Val val_mesh(Sema *s, const Mesh *mesh) {
  return (Val){.kind = VAL_MESH, .as.mesh = mesh_listed(s, mesh)};
}

bool mesh_knows_axis(Sema *s, const char *name) {
  for (; s->nknown < s->program->meshes.len; s->nknown++) {
    const Mesh *mesh = s->program->meshes.data[s->nknown];
    for (uint32_t a = 0; a < mesh_ndims(mesh); a++)
      name_map_put(s->arena, &s->axes, mesh->axis[a], (void *)mesh);
  }
  return name_map_has(&s->axes, name);
}

const Mesh *mesh_declaring(const Sema *s, const char *axis) {
  for (uint32_t i = 0; i < s->ndeclared; i++)
    if (mesh_axis(s->program->meshes.data[i], axis) >= 0) return s->program->meshes.data[i];
  return NULL;
}

const Mesh *mesh_select(Sema *s, const Mesh *mesh, const Val *axes, uint32_t n, Span span) {
  uint32_t kept = 0, all = 0;
  for (uint32_t i = 0; i < n; i++) {
    int axis;
    if (!want_axis(s, axes[i], mesh, span, false, &axis)) return NULL;
    if (axis >= 0) kept |= 1u << axis;
  }
  for (uint32_t a = 0; a < mesh->naxes; a++)
    if (mesh->size[a] > 1) all |= 1u << a;
  /* dims of size 1 are as if absent: leaving them out leaves the mesh itself */
  if ((kept & all) == all) return mesh;
  return mesh_listed(s, mesh_keep(s->arena, mesh, kept));
}

static Val unbind(Sema *s, const Mesh *mesh, const Call *call) {
  Val v[1];
  Span at[1];
  int axis;
  if (!bind_words(s, call, "dim", v, at) || !want_axis(s, v[0], mesh, at[0], false, &axis))
    return POISON;
  /* without the dim, or with one of size 1, there is one stage: the mesh itself */
  int64_t n = axis < 0 ? 1 : mesh->size[axis];
  List *list = list_new(s, (uint32_t)n);
  for (int64_t i = 0; i < n; i++)
    list->data[i] = val_mesh(s, n > 1 ? mesh_unbind(s->arena, mesh, axis, i) : mesh);
  return val_list(list);
}

/* flatten("dp", "cp" as "data") */
static Val flatten(Sema *s, const Mesh *mesh, const Call *call) {
  uint8_t axes[DTM_MAX_AXES];
  uint32_t n = 0, set = 0;
  const char *name = NULL;
  for (uint32_t i = 0; i < call->nargs; i++) {
    const CallArg *arg = &call->args[i];
    int axis;
    if (arg->value.kind == VAL_POISON) return POISON;
    if (arg->name && strcmp(arg->name, "as") == 0) {
      if (!want_string(s, arg->value, arg->span, "the name of the new dim", &name)) return POISON;
      name = intern(s->names, name);
      continue;
    }
    if (arg->name) {
      sema_error(s, DIAG_ARGUMENTS, arg->name_span, "flatten has no parameter %s", arg->name);
      return POISON;
    }
    if (!want_axis(s, arg->value, mesh, arg->span, false, &axis)) return POISON;
    if (axis < 0) continue;
    if (set >> axis & 1) {
      sema_error(s, DIAG_MESH, arg->span, "mesh dim %s stands twice", mesh->axis[axis]);
      return POISON;
    }
    set |= 1u << axis;
    axes[n++] = (uint8_t)axis;
  }
  if (!n || !name) {
    Diag *d = sema_error(s, DIAG_ARGUMENTS, call->span, "flatten needs dims and a name for them");
    diag_help(s->sink, d, (Span){0}, NULL, NULL, "write it as flatten(\"dp\", \"cp\" as \"data\")");
    return POISON;
  }
  int taken = mesh_axis(mesh, name);
  if (taken >= 0 && !(set >> taken & 1)) {
    sema_error(s, DIAG_MESH, call->span, "the mesh has another dim named %s", name);
    return POISON;
  }
  return val_mesh(s, mesh_flatten(s->arena, mesh, axes, n, name));
}

Val mesh_concatenated(Sema *s, const Mesh *a, const Mesh *b, Span span) {
  const char *error;
  const Mesh *mesh = mesh_concatenate(s->arena, a, b, &error);
  if (mesh) return val_mesh(s, mesh);
  Diag *d = sema_error(s, DIAG_MESH, span, "these meshes cannot be concatenated");
  diag_reason(s->sink, d, "%s", error);
  diag_help(s->sink, d, (Span){0}, NULL, NULL,
            "it joins dims of one mesh, as in concatenate(world[\"dp\"], world[\"tp\"])");
  return POISON;
}

/* coordinate(rank): a list, or none when the rank is not in the mesh; coordinate(rank, dim): an
 * int. */
static Val coordinate(Sema *s, const Mesh *mesh, const Call *call) {
  Val v[2];
  Span at[2];
  int64_t rank, coord[DTM_MAX_AXES];
  if (!bind_words(s, call, "rank dim?", v, at) || !want_int(s, v[0], at[0], "rank", &rank))
    return POISON;
  int64_t position = mesh_find(mesh, rank);
  if (position < 0) return NONE;
  mesh_coords(mesh, position, coord);
  if (v[1].kind != VAL_UNSET) {
    int axis;
    if (!want_axis(s, v[1], mesh, at[1], false, &axis)) return POISON;
    return val_int(axis < 0 ? 0 : coord[axis]);
  }
  List *list = list_new(s, mesh_ndims(mesh));
  for (uint32_t a = 0; a < list->len; a++) list->data[a] = val_int(coord[a]);
  return val_list(list);
}

Val mesh_member(Sema *s, const Mesh *mesh, const char *name) {
  if (strcmp(name, "size") == 0) return val_int(mesh_named_size(mesh));
  if (strcmp(name, "ranks") == 0) {
    List *list = list_new(s, (uint32_t)mesh->nranks);
    for (int64_t p = 0; p < mesh->nranks; p++) list->data[p] = val_int(mesh_rank(mesh, p));
    return val_list(list);
  }
  if (strcmp(name, "dims") == 0) {
    List *list = list_new(s, mesh_ndims(mesh));
    for (uint32_t a = 0; a < list->len; a++) list->data[a] = val_string(mesh->axis[a]);
    return val_list(list);
  }
  return (Val){.kind = VAL_UNSET};
}

Val mesh_member_call(Sema *s, const Mesh *mesh, const char *name, const Call *call) {
  if (strcmp(name, "unbind") == 0) return unbind(s, mesh, call);
  if (strcmp(name, "flatten") == 0) return flatten(s, mesh, call);
  if (strcmp(name, "coordinate") == 0) return coordinate(s, mesh, call);
  if (strcmp(name, "size") == 0) {
    Val v[1];
    Span at[1];
    int axis;
    if (!bind_words(s, call, "dim?", v, at)) return POISON;
    if (v[0].kind == VAL_UNSET) return val_int(mesh_named_size(mesh));
    if (!want_axis(s, v[0], mesh, at[0], false, &axis)) return POISON;
    return val_int(axis < 0 ? 1 : mesh->size[axis]);
  }
  sema_error(s, DIAG_UNKNOWN_MEMBER, call->span, "a mesh has no operation %s", name);
  return POISON;
}

bool move_to_mesh(Sema *s, TensorType *t, const Mesh *mesh, Span span) {
  const Mesh *from = t->mesh;
  int lost = type_to_mesh(t, mesh);
  if (lost < 0) return true;
  const char *axis = from->axis[lost];
  Diag *d = sema_error(s, DIAG_UNKNOWN_AXIS, span, "%s has no mesh dim %s, where the value is %s",
                       mesh->name, axis, place_print(s->arena, t->layout.at[lost]));
  diag_reason(s->sink, d, "the placements of a value go to the dims of the same name");
  diag_help(s->sink, d, (Span){0}, NULL, NULL,
            "say first what becomes of it: redistribute(%s: Replicate, mesh = %s)", axis,
            mesh->name);
  return false;
}
