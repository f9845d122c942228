/* Files: reading, parsing, imports, top-level names. See elab.h. */
#include <errno.h>
#include <string.h>

#include "sema/elab.h"

static uint32_t find_source(const Sema *s, const char *path) {
  for (uint32_t i = 0; i < s->sources->files.len; i++)
    if (strcmp(s->sources->files.data[i]->path, path) == 0) return i + 1;
  return 0;
}

/* Id of a file that is among the sources or can be read; 0 with errno. */
static uint32_t open_source(Sema *s, const char *path) {
  uint32_t id = find_source(s, path);
  return id ? id : sources_read(s->sources, path);
}

static SourceUnit *load(Sema *s, const char *path, uint32_t source, bool library);

static void declare_items(Sema *s, SourceUnit *file);

static const char *in_folder(Sema *s, const char *folder, const char *name) {
  size_t len = strlen(folder);
  const char *slash = len && folder[len - 1] != '/' ? "/" : "";
  return intern(s->names, arena_printf(s->arena, "%s%s%s", folder, slash, name));
}

/* Folder part of a path, with its slash. */
static const char *folder_of(Sema *s, const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? arena_strndup(s->arena, path, (size_t)(slash - path) + 1) : "";
}

static SourceUnit *not_found(Sema *s, Span span, const char *name, const char *tried) {
  Diag *d = sema_error(s, DIAG_IMPORT, span, "cannot read %s", name);
  diag_reason(s->sink, d, "tried: %s", tried);
  return NULL;
}

static SourceUnit *find_library(Sema *s, const char *name, Span span) {
  const char *file = arena_printf(s->arena, "%s.dtm", name);
  StrBuf tried;
  strbuf_init(&tried, s->arena);
  for (uint32_t i = 0; i <= s->options->ninclude_paths; i++) {
    const char *folder =
        i < s->options->ninclude_paths ? s->options->include_paths[i] : s->options->stdlib;
    if (!folder) continue;
    const char *path = in_folder(s, folder, file);
    strbuf_printf(&tried, "%s%s", tried.len ? ", " : "", path);
    SourceUnit *have = name_map_get(&s->files_by_path, path);
    if (have) return have;
    uint32_t source = open_source(s, path);
    if (source) return load(s, path, source, true);
  }
  return not_found(s, span, file, tried.len ? tried.text : "no search path is set");
}

SourceUnit *load_library(Sema *s, const char *name, Span span) {
  return find_library(s, name, span);
}

static SourceUnit *import_file(Sema *s, const SourceUnit *from, const Item *item) {
  if (!item->as.import.quoted) return find_library(s, item->as.import.path, item->span);
  const char *name = item->as.import.path;
  const char *path =
      *name == '/' ? intern(s->names, name) : in_folder(s, folder_of(s, from->path), name);
  SourceUnit *have = name_map_get(&s->files_by_path, path);
  if (have) return have;
  uint32_t source = open_source(s, path);
  if (!source)
    return not_found(s, item->span, name, arena_printf(s->arena, "%s: %s", path, strerror(errno)));
  return load(s, path, source, from->library);
}

static SourceUnit *load(Sema *s, const char *path, uint32_t source, bool library) {
  SourceUnit *file = ARENA_NEW(s->arena, SourceUnit);
  file->source = source;
  file->path = path;
  file->library = library;
  file->env = (Env){.names = &file->names, .file = file};
  name_map_put(s->arena, &s->files_by_path, path, file);
  VEC_PUSH(s->arena, &s->files, file);
  file->ast = ast_parse(s->arena, s->names, s->sink, source);
  declare_items(s, file);
  return file;
}

/* "blocks/mlp.dtm" is called mlp; NULL after a report when that is no name. */
static const char *import_name(Sema *s, const Item *item) {
  const char *path = item->as.import.path, *slash = strrchr(path, '/');
  const char *base = slash ? slash + 1 : path;
  size_t len = strcspn(base, ".");
  size_t good = strspn(base, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
  if (len && good >= len && (*base < '0' || *base > '9')) return intern_n(s->names, base, len);
  Diag *d =
      sema_error(s, DIAG_IMPORT, item->span, "the name of %s is no name of the language", path);
  diag_help(s->sink, d, (Span){0}, NULL, NULL, "give it one: import \"%s\" as blocks", path);
  return NULL;
}

static void declare_let(Sema *s, SourceUnit *file, const Item *item) {
  const Stmt *let = item->as.let;
  if (let->as.let.names.len != 1) {
    sema_error(s, DIAG_RESULT_COUNT, item->span, "a let outside a body has one name");
    return;
  }
  Name name = let->as.let.names.data[0];
  Binding *b = env_declare(s, &file->env, name.text, BIND_CONST, POISON, name.span);
  b->expr = let->as.let.value;
  b->lazy = LAZY_WAITING;
}

static void declare_items(Sema *s, SourceUnit *file) {
  for (uint32_t i = 0; i < file->ast->items.len; i++) {
    const Item *item = file->ast->items.data[i];
    const char *name = item->name;
    Span span = item->name ? item->name_span : item->span;
    Val v = {0};
    switch (item->kind) {
    case ITEM_IMPORT: {
      SourceUnit *other = import_file(s, file, item);
      if (!name) name = import_name(s, item);
      v = other ? (Val){.kind = VAL_FILE, .as.file = other} : POISON;
      break;
    }
    case ITEM_FN: {
      Fn *fn = ARENA_NEW(s->arena, Fn);
      *fn = (Fn){.item = item, .file = file};
      fn->what = arena_printf(s->arena, "fn %s", item->name);
      v = (Val){.kind = VAL_FN, .as.fn = fn};
      if (!file->library) VEC_PUSH(s->arena, &s->fns, fn);
      break;
    }
    case ITEM_MODULE: {
      ModuleDef *def = ARENA_NEW(s->arena, ModuleDef);
      *def = (ModuleDef){.item = item, .file = file};
      def->what = arena_printf(s->arena, "module %s", item->name);
      v = (Val){.kind = VAL_MODULE, .as.module = def};
      break;
    }
    case ITEM_LET:
      declare_let(s, file, item);
      continue;
    case ITEM_CONFIG:
      config_declare(s, file, item);
      continue;
    case ITEM_ERROR:
      /* the name of what could not be read, so that its uses are not errors as well */
      v = POISON;
      break;
    case ITEM_MESH:
    case ITEM_BLOCK:
      continue;
    }
    if (name) env_declare(s, &file->env, name, BIND_CONST, v, span);
  }
}

SourceUnit *load_main(Sema *s) {
  const char *path = intern(s->names, s->options->main_path);
  uint32_t source = open_source(s, path);
  if (source) return load(s, path, source, false);
  sema_error(s, DIAG_IMPORT, (Span){0}, "cannot read %s: %s", path, strerror(errno));
  return NULL;
}
