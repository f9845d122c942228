/* The mesh of the program: its declaration, --mesh, sub-meshes. See elab.h. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sema/elab.h"

enum { MAX_RANKS = 1 << 20 };

static const char *dim_list(Sema *s, const Mesh *mesh) {
  StrBuf sb;
  strbuf_init(&sb, s->arena);
  for (uint32_t a = 0; a < mesh->naxes; a++)
    strbuf_printf(&sb, "%s%s", a ? ", " : "", mesh->axis[a]);
  return mesh->naxes ? sb.text : "none";
}

static Diag *option_fault(Sema *s, const char *fmt, const char *what) {
  return sema_error(s, DIAG_MESH_OPTION, (Span){0}, fmt, what);
}

/* One `name=size` of --mesh; *automatic gets the axis whose size is `auto`, *given
 * a bit for each axis that was set. */
static bool apply_option(Sema *s, Mesh *mesh, const char *text, size_t len, int *automatic,
                         uint32_t *given) {
  const char *item = arena_strndup(s->arena, text, len);
  const char *equals = strchr(item, '=');
  if (!equals) {
    option_fault(s, "--mesh takes name=size, not '%s'", item);
    return false;
  }
  const char *name = intern_n(s->names, item, (size_t)(equals - item));
  int axis = mesh_axis(mesh, name);
  if (axis < 0) {
    Diag *d = option_fault(s, "--mesh: the program declares no mesh dim '%s'", name);
    diag_reason(s->sink, d, "its mesh dims are: %s", dim_list(s, mesh));
    return false;
  }
  if (*given & 1u << axis) {
    option_fault(s, "--mesh: %s is given twice", name);
    return false;
  }
  *given |= 1u << axis;
  if (strcmp(equals + 1, "auto") == 0) {
    if (*automatic >= 0) {
      option_fault(s, "--mesh: only one dim can be auto, but %s is a second", name);
      return false;
    }
    *automatic = axis;
    return true;
  }
  char *end;
  errno = 0;
  int64_t size = strtoll(equals + 1, &end, 10);
  if (errno || *end || end == equals + 1 || size < 1 || size > MAX_RANKS) {
    option_fault(s, "--mesh: '%s' has no size between 1 and 1048576", item);
    return false;
  }
  mesh->size[axis] = size;
  return true;
}

static bool apply_auto(Sema *s, Mesh *mesh, int axis) {
  int64_t others = 1;
  for (uint32_t a = 0; a < mesh->naxes; a++)
    if ((int)a != axis && __builtin_mul_overflow(others, mesh->size[a], &others))
      others = MAX_RANKS + 1;
  if (s->options->ranks < 1) {
    option_fault(s, "--mesh: %s=auto needs the number of ranks", mesh->axis[axis]);
    return false;
  }
  if (s->options->ranks % others != 0) {
    option_fault(s, "--mesh: %s",
                 arena_printf(s->arena,
                              "%" PRId64 " ranks do not divide by the other dims, %" PRId64,
                              s->options->ranks, others));
    return false;
  }
  mesh->size[axis] = s->options->ranks / others;
  return true;
}

static void apply_options(Sema *s, Mesh *mesh) {
  const char *text = s->options->mesh;
  if (!text || !*text) return;
  int automatic = -1;
  uint32_t given = 0;
  for (uint32_t a = 0; a < mesh->naxes; a++) mesh->size[a] = 1;
  bool ok = true;
  for (const char *p = text; *p;) {
    size_t len = strcspn(p, ",");
    if (len) ok &= apply_option(s, mesh, p, len, &automatic, &given);
    p += len + (p[len] == ',');
  }
  if (ok && automatic >= 0) apply_auto(s, mesh, automatic);
}

/* `ranks [0, 2, 1, 3]`: every rank once. */
static void rank_list(Sema *s, SourceUnit *file, Mesh *mesh, const Expr *e) {
  const List *list;
  Val v = eval(s, &file->env, e);
  if (v.kind == VAL_POISON || !want_list(s, v, e->span, "ranks", &list)) return;
  if (list->len != mesh->nranks) {
    sema_error(s, DIAG_MESH, e->span, "%u ranks for a mesh of %" PRId64, list->len, mesh->nranks);
    return;
  }
  int64_t *ranks = ARENA_ARRAY(s->arena, int64_t, list->len);
  bool *seen = ARENA_ARRAY(s->arena, bool, list->len);
  for (uint32_t i = 0; i < list->len; i++) {
    if (!want_int(s, list->data[i], e->span, "a rank", &ranks[i])) return;
    if (ranks[i] < 0 || ranks[i] >= list->len || seen[ranks[i]]) {
      sema_error(s, DIAG_MESH, e->span, "ranks must name each of 0 to %u once", list->len - 1);
      return;
    }
    seen[ranks[i]] = true;
  }
  mesh->ranks = ranks;
}

static Mesh *declared_mesh(Sema *s, SourceUnit *file, const Item *item) {
  Mesh *mesh = ARENA_NEW(s->arena, Mesh);
  mesh->name = item->name;
  for (uint32_t i = 0; i < item->as.mesh.dims.len; i++) {
    const MeshDim *dim = &item->as.mesh.dims.data[i];
    if (mesh->naxes == DTM_MAX_AXES) {
      sema_error(s, DIAG_MESH, dim->span, "a mesh has at most %d dims", DTM_MAX_AXES);
      break;
    }
    if (mesh_axis(mesh, dim->name) >= 0) {
      sema_error(s, DIAG_MESH, dim->span, "the mesh has two dims named %s", dim->name);
      continue;
    }
    int64_t size = 1;
    Val v = eval(s, &file->env, dim->size);
    if (v.kind != VAL_POISON && want_int(s, v, dim->size->span, "the size of a mesh dim", &size) &&
        (size < 1 || size > MAX_RANKS)) {
      sema_error(s, DIAG_MESH, dim->size->span, "the size of a mesh dim is 1 to %d, not %" PRId64,
                 MAX_RANKS, size);
      size = 1;
    }
    mesh->axis[mesh->naxes] = dim->name;
    mesh->size[mesh->naxes++] = size;
  }
  return mesh;
}

static void count_ranks(Sema *s, Mesh *mesh, Span span) {
  mesh->nranks = 1;
  for (uint32_t a = 0; a < mesh->naxes; a++) {
    if (s->options->assume_two && mesh->size[a] == 1) mesh->size[a] = 2;
    if (__builtin_mul_overflow(mesh->nranks, mesh->size[a], &mesh->nranks) ||
        mesh->nranks > MAX_RANKS) {
      sema_error(s, DIAG_MESH, span, "the mesh has more than %d ranks", MAX_RANKS);
      for (uint32_t b = 0; b < mesh->naxes; b++) mesh->size[b] = 1;
      mesh->nranks = 1;
      return;
    }
  }
}

/* Dims of the mesh are names of the whole program. */
static void check_names(Sema *s, const Mesh *mesh, Span declared) {
  for (uint32_t f = 0; f < s->files.len; f++) {
    if (s->files.data[f]->library) continue;
    for (uint32_t a = 0; a < mesh->naxes; a++) {
      const Binding *b = name_map_get(&s->files.data[f]->names, mesh->axis[a]);
      if (!b) continue;
      Diag *d = sema_error(s, DIAG_AXIS_REDECLARED, b->span, "%s is a dim of mesh %s",
                           mesh->axis[a], mesh->name);
      diag_note(s->sink, d, declared, "the mesh is declared here");
    }
  }
}

void mesh_declare(Sema *s) {
  /* sizes may be config values, which see a mesh without dims until there is one */
  static const Mesh nothing = {.name = "world", .nranks = 1};
  Mesh *world = NULL;
  Span span = {0};
  s->world = s->at.mesh = &nothing;
  for (uint32_t f = 0; f < s->files.len; f++) {
    SourceUnit *file = s->files.data[f];
    for (uint32_t i = 0; i < file->ast->items.len; i++) {
      const Item *item = file->ast->items.data[i];
      if (item->kind != ITEM_MESH) continue;
      if (world) {
        Diag *d = sema_error(s, DIAG_UNSUPPORTED, item->span, "a second mesh is not supported yet");
        diag_note(s->sink, d, span, "the mesh of the program");
        continue;
      }
      span = item->span;
      world = declared_mesh(s, file, item);
      apply_options(s, world);
      count_ranks(s, world, span);
      if (item->as.mesh.ranks && world->nranks > 1) rank_list(s, file, world, item->as.mesh.ranks);
    }
  }
  if (!world) {
    world = ARENA_NEW(s->arena, Mesh);
    *world = nothing;
    world->name = intern(s->names, "world");
    apply_options(s, world);
  }
  for (uint32_t f = 0; f < s->files.len; f++) {
    Env *env = &s->files.data[f]->env;
    Val v = {.kind = VAL_MESH, .as.mesh = world};
    if (!name_map_has(env->names, world->name)) env_set(s, env, world->name, BIND_CONST, v, span);
  }
  check_names(s, world, span);
  s->world = s->program->world = s->at.mesh = world;
  VEC_PUSH(s->arena, &s->program->meshes, world);
}

bool mesh_usable(Sema *s, const Mesh *mesh, Span span) {
  if (mesh == s->world) return true;
  Diag *d =
      sema_error(s, DIAG_UNSUPPORTED, span, "a program on more than one mesh is not supported yet");
  diag_reason(s->sink, d, "this is %s, the program is on %s", mesh_print(s->arena, mesh),
              mesh_print(s->arena, s->world));
  return false;
}

/* world["dp", "tp"]: the mesh without its other dims, which must have size 1. */
const Mesh *mesh_select(Sema *s, const Mesh *mesh, const Val *axes, uint32_t n, Span span) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < n; i++) {
    int axis;
    if (!want_axis(s, axes[i], mesh, span, false, &axis)) return NULL;
    if (axis >= 0) kept |= 1u << axis;
  }
  for (uint32_t a = 0; a < mesh->naxes; a++) {
    if (kept >> a & 1 || mesh->size[a] == 1) continue;
    Diag *d = sema_error(s, DIAG_UNSUPPORTED, span, "a sub-mesh is not supported yet");
    diag_reason(s->sink, d, "mesh dim %s has size %" PRId64 " and is left out", mesh->axis[a],
                mesh->size[a]);
    return NULL;
  }
  return mesh;
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
  for (int64_t i = 0; i < n; i++) {
    Mesh *sub = n > 1 ? mesh_unbind(s->arena, mesh, axis, i) : NULL;
    list->data[i] = (Val){.kind = VAL_MESH, .as.mesh = sub ? sub : mesh};
    if (sub) VEC_PUSH(s->arena, &s->program->meshes, sub);
  }
  return val_list(list);
}

Val mesh_member_call(Sema *s, const Mesh *mesh, const char *name, const Call *call) {
  if (strcmp(name, "unbind") == 0) return unbind(s, mesh, call);
  if (strcmp(name, "size") == 0) {
    Val v[1];
    Span at[1];
    int axis;
    if (!bind_words(s, call, "dim?", v, at)) return POISON;
    if (v[0].kind == VAL_UNSET) return val_int(mesh->nranks);
    if (!want_axis(s, v[0], mesh, at[0], false, &axis)) return POISON;
    return val_int(axis < 0 ? 1 : mesh->size[axis]);
  }
  if (strcmp(name, "flatten") == 0) {
    sema_error(s, DIAG_UNSUPPORTED, call->span, "flatten of a mesh is not supported yet");
    return POISON;
  }
  sema_error(s, DIAG_UNKNOWN_MEMBER, call->span, "a mesh has no operation %s", name);
  return POISON;
}
