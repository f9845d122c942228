/* The meshes of the program: declarations and --mesh. See elab.h.
 *
 * The first mesh is the world: all ranks of a run. Every other lies in it. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sema/elab.h"

/* The meshes that the program declares, the world first. */
typedef struct Declared {
  VEC(Mesh *) meshes;
  VEC(Span) spans;
} Declared;

static Diag *option_fault(Sema *s, const char *fmt, const char *what) {
  return sema_error(s, DIAG_MESH_OPTION, (Span){0}, fmt, what);
}

static const char *all_dims(Sema *s, const Declared *d) {
  StrBuf sb;
  strbuf_init(&sb, s->arena);
  for (uint32_t m = 0; m < d->meshes.len; m++)
    if (d->meshes.data[m]->naxes)
      strbuf_printf(&sb, "%s%s", sb.len ? ", " : "", mesh_dims_print(s->arena, d->meshes.data[m]));
  return sb.len ? sb.text : "none";
}

/* Sets a dim in all meshes that have it. */
static void set_size(const Declared *d, const char *name, int64_t size) {
  for (uint32_t m = 0; m < d->meshes.len; m++) {
    int axis = mesh_axis(d->meshes.data[m], name);
    if (axis >= 0) d->meshes.data[m]->size[axis] = size;
  }
}

/* One `name=size` of --mesh; *automatic gets the dim whose size is `auto`, `given` those that were
 * set. */
static bool apply_option(Sema *s, const Declared *d, const char *text, size_t len,
                         const char **automatic, NameMap *given) {
  const char *item = arena_strndup(s->arena, text, len);
  const char *equals = strchr(item, '=');
  if (!equals) {
    option_fault(s, "--mesh takes name=size, not '%s'", item);
    return false;
  }
  const char *name = intern_n(s->names, item, (size_t)(equals - item));
  bool known = false;
  for (uint32_t m = 0; m < d->meshes.len; m++) known |= mesh_axis(d->meshes.data[m], name) >= 0;
  if (!known) {
    Diag *diag = option_fault(s, "--mesh: the program declares no mesh dim '%s'", name);
    diag_reason(s->sink, diag, "its mesh dims are: %s", all_dims(s, d));
    return false;
  }
  if (name_map_put(s->arena, given, name, (void *)name)) {
    option_fault(s, "--mesh: %s is given twice", name);
    return false;
  }
  if (strcmp(equals + 1, "auto") == 0) {
    if (*automatic) {
      option_fault(s, "--mesh: only one dim can be auto, but %s is a second", name);
      return false;
    }
    *automatic = name;
    return true;
  }
  char *end;
  errno = 0;
  int64_t size = strtoll(equals + 1, &end, 10);
  if (errno || *end || end == equals + 1 || size < 1 || size > DTM_MAX_RANKS) {
    option_fault(s, "--mesh: '%s' has no size between 1 and 1048576", item);
    return false;
  }
  set_size(d, name, size);
  return true;
}

/* The rest of the ranks goes to a dim of the world. */
static bool apply_auto(Sema *s, const Declared *d, const char *name) {
  const Mesh *world = d->meshes.data[0];
  int64_t others = 1;
  int axis = mesh_axis(world, name);
  if (axis < 0) {
    option_fault(s, "--mesh: only a dim of the first mesh can be auto, not %s", name);
    return false;
  }
  for (uint32_t a = 0; a < world->naxes; a++)
    if ((int)a != axis && __builtin_mul_overflow(others, world->size[a], &others))
      others = DTM_MAX_RANKS + 1;
  if (s->options->ranks < 1) {
    option_fault(s, "--mesh: %s=auto needs the number of ranks", name);
    return false;
  }
  if (s->options->ranks % others != 0) {
    option_fault(s, "--mesh: %s",
                 arena_printf(s->arena,
                              "%" PRId64 " ranks do not divide by the other dims, %" PRId64,
                              s->options->ranks, others));
    return false;
  }
  set_size(d, name, s->options->ranks / others);
  return true;
}

static void apply_options(Sema *s, const Declared *d) {
  const char *text = s->options->mesh;
  if (!text || !*text) return;
  const char *automatic = NULL;
  NameMap given = {0};
  for (uint32_t m = 0; m < d->meshes.len; m++)
    for (uint32_t a = 0; a < d->meshes.data[m]->naxes; a++) d->meshes.data[m]->size[a] = 1;
  bool ok = true;
  for (const char *p = text; *p;) {
    size_t len = strcspn(p, ",");
    ok &= apply_option(s, d, p, len, &automatic, &given);
    p += len + (p[len] == ',');
    if (!*p && p[-1] == ',') ok &= apply_option(s, d, p, 0, &automatic, &given);
  }
  if (ok && automatic) apply_auto(s, d, automatic);
}

/* `ranks [0, 2, 1, 3]`: different ranks, and for the world all of them. */
static void rank_list(Sema *s, SourceUnit *file, Mesh *mesh, const Expr *e) {
  const List *list;
  Val v = eval(s, &file->env, e);
  if (v.kind == VAL_POISON || !want_list(s, v, e->span, "ranks", &list)) return;
  if (list->len != mesh->nranks) {
    sema_error(s, DIAG_MESH, e->span, "%u ranks for a mesh of %" PRId64, list->len, mesh->nranks);
    return;
  }
  int64_t world = mesh->sub ? s->world->nranks : mesh->nranks;
  int64_t *ranks = ARENA_ARRAY(s->arena, int64_t, list->len);
  bool *seen = ARENA_ARRAY(s->arena, bool, world);
  for (uint32_t i = 0; i < list->len; i++) {
    if (!want_int(s, list->data[i], e->span, "a rank", &ranks[i])) return;
    if (ranks[i] < 0 || ranks[i] >= world || seen[ranks[i]]) {
      sema_error(s, DIAG_MESH, e->span,
                 mesh->sub ? "ranks must be different ones of 0 to %" PRId64
                           : "ranks must name each of 0 to %" PRId64 " once",
                 world - 1);
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
        (size < 1 || size > DTM_MAX_RANKS)) {
      sema_error(s, DIAG_MESH, dim->size->span, "the size of a mesh dim is 1 to %d, not %" PRId64,
                 DTM_MAX_RANKS, size);
      size = 1;
    }
    mesh->axis[mesh->naxes] = dim->name;
    mesh->size[mesh->naxes++] = size;
  }
  return mesh;
}

/* Sizes of 1 are raised to 2 where the check asks for it, in a further mesh while it fits into the
 * world. */
static void count_ranks(Sema *s, Mesh *mesh, Span span) {
  int64_t most = mesh->sub ? s->world->nranks : DTM_MAX_RANKS;
  mesh->nranks = 1;
  for (uint32_t a = 0; a < mesh->naxes; a++)
    if (__builtin_mul_overflow(mesh->nranks, mesh->size[a], &mesh->nranks))
      mesh->nranks = DTM_MAX_RANKS + 1;
  for (uint32_t a = 0; a < mesh->naxes && s->options->assume_two; a++) {
    const char *only = s->options->only_two;
    if (only && strcmp(mesh->axis[a], only) != 0) continue;
    if (mesh->size[a] > 1 || (mesh->sub && 2 * mesh->nranks > most)) continue;
    mesh->size[a] = 2;
    mesh->nranks *= 2;
  }
  if (mesh->nranks <= most) return;
  if (mesh->sub && mesh->nranks <= DTM_MAX_RANKS) {
    Diag *d = sema_error(s, DIAG_MESH, span, "mesh %s has more ranks than the program", mesh->name);
    diag_reason(s->sink, d,
                "it has %" PRId64 ", the first mesh, %s, which all ranks belong to, has %" PRId64,
                mesh->nranks, s->world->name, most);
  } else {
    sema_error(s, DIAG_MESH, span, "the mesh has more than %d ranks", DTM_MAX_RANKS);
  }
  for (uint32_t b = 0; b < mesh->naxes; b++) mesh->size[b] = 1;
  mesh->nranks = 1;
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

static void name_mesh(Sema *s, const Mesh *mesh, Span span) {
  Val v = {.kind = VAL_MESH, .as.mesh = mesh_listed(s, mesh)};
  for (uint32_t f = 0; f < s->files.len; f++) {
    Env *env = &s->files.data[f]->env;
    if (!name_map_has(env->names, mesh->name)) env_set(s, env, mesh->name, BIND_CONST, v, span);
  }
  check_names(s, mesh, span);
}

/* Further meshes count their ranks against the world, so it is finished first. */
static void finish_mesh(Sema *s, const Declared *d, uint32_t i, SourceUnit *file,
                        const Item *item) {
  Mesh *mesh = d->meshes.data[i];
  mesh->sub = i > 0;
  count_ranks(s, mesh, d->spans.data[i]);
  if (item && item->as.mesh.ranks && mesh->nranks > 1)
    rank_list(s, file, mesh, item->as.mesh.ranks);
  if (i == 0) s->world = s->program->world = s->at.mesh = mesh;
  name_mesh(s, mesh, d->spans.data[i]);
}

static bool named_twice(Sema *s, const Declared *d, const Item *item) {
  for (uint32_t m = 0; m < d->meshes.len; m++) {
    if (d->meshes.data[m]->name != item->name) continue;
    Diag *diag =
        sema_error(s, DIAG_REDECLARED, item->span, "there are two meshes named %s", item->name);
    diag_note(s->sink, diag, d->spans.data[m], "the first one");
    return true;
  }
  return false;
}

void mesh_declare(Sema *s) {
  /* sizes may be config values, which see a mesh without dims until there is one */
  static const Mesh nothing = {.name = "world", .nranks = 1};
  Declared d = {0};
  VEC(SourceUnit *) files = {0};
  VEC(const Item *) items = {0};
  s->world = s->at.mesh = &nothing;
  for (uint32_t f = 0; f < s->files.len; f++) {
    SourceUnit *file = s->files.data[f];
    for (uint32_t i = 0; i < file->ast->items.len; i++) {
      const Item *item = file->ast->items.data[i];
      if (item->kind != ITEM_MESH || named_twice(s, &d, item)) continue;
      VEC_PUSH(s->arena, &d.meshes, declared_mesh(s, file, item));
      VEC_PUSH(s->arena, &d.spans, item->span);
      VEC_PUSH(s->arena, &files, file);
      VEC_PUSH(s->arena, &items, item);
    }
  }
  if (!d.meshes.len) {
    Mesh *world = ARENA_NEW(s->arena, Mesh);
    *world = nothing;
    world->name = intern(s->names, "world");
    VEC_PUSH(s->arena, &d.meshes, world);
    VEC_PUSH(s->arena, &d.spans, (Span){0});
    VEC_PUSH(s->arena, &files, NULL);
    VEC_PUSH(s->arena, &items, NULL);
  }
  apply_options(s, &d);
  for (uint32_t i = 0; i < d.meshes.len; i++) finish_mesh(s, &d, i, files.data[i], items.data[i]);
  s->ndeclared = s->program->meshes.len;
}
