/* What every command shares: see session.h. */
#include "driver/session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool usage(const char *option, const char *value, const char *allowed) {
  fprintf(stderr, "dtmc: %s does not take '%s'; it takes %s\n", option, value, allowed);
  return false;
}

static bool choose_format(Session *s) {
  static const struct {
    const char *name;
    DiagFormat format;
    unsigned commands;
  } formats[] = {{"text", DIAG_TEXT, CMD_ALL},
                 {"json", DIAG_JSON, CMD_COMPILE | CMD_CHECK},
                 {"sarif", DIAG_SARIF, CMD_COMPILE | CMD_CHECK},
                 {"github", DIAG_GITHUB, CMD_COMPILE | CMD_CHECK},
                 {"json", DIAG_TEXT, CMD_EXPLAIN}, /* the answer; what is wrong stays text */
                 {"svg", DIAG_TEXT, CMD_EXPLAIN}};
  const char *name = option_value(&s->options, OPT_FORMAT, "text");
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
    if (strcmp(formats[i].name, name) == 0 && (formats[i].commands & s->options.command)) {
      s->format = formats[i].format;
      return true;
    }
  return usage("--format", name,
               s->options.command == CMD_EXPLAIN ? "text, json or svg"
                                                 : "text, json, sarif or github");
}

bool session_color(const Session *s, int descriptor) {
  const char *when = option_value(&s->options, OPT_COLOR, "auto"), *no = getenv("NO_COLOR");
  if (strcmp(when, "never") == 0 || (no && *no)) return false;
  return strcmp(when, "always") == 0 || isatty(descriptor);
}

static bool choose_color(Session *s) {
  const char *when = option_value(&s->options, OPT_COLOR, "auto");
  if (strcmp(when, "never") != 0 && strcmp(when, "always") != 0 && strcmp(when, "auto") != 0)
    return usage("--color", when, "auto, always or never");
  s->color = session_color(s, STDERR_FILENO);
  return true;
}

/* The library folder lies beside the folder of the executable, in a build tree as after install. */
static void find_library(Session *s) {
  char exe[4096];
  ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
  exe[n > 0 ? n : 0] = 0;
  for (int up = 0; up < 2; up++) { /* the name, then its folder; the link is resolved, no ".." */
    char *slash = strrchr(exe, '/');
    if (slash) *slash = 0;
  }
  s->library = arena_printf(&s->arena, "%s/lib/dtm", exe);
  s->stdlib = arena_printf(&s->arena, "%s/stdlib", s->library);
}

/* Reads and checks the file of --topology. */
static bool read_topology(Session *s) {
  const char *path = option_value(&s->options, OPT_TOPOLOGY, NULL), *error = NULL;
  if (!path) return true;
  Sources inputs; /* not a source of the program */
  sources_init(&inputs, &s->arena);
  uint32_t id = sources_read(&inputs, path);
  if (!id) {
    fprintf(stderr, "dtmc: cannot read %s: %s\n", path, strerror(errno));
    return false;
  }
  const SourceFile *file = sources_get(&inputs, id);
  s->topology = file->text;
  if (strlen(file->text) != file->size)
    error = "it holds a NUL byte";
  else if (plan_cache_set_topology(plan_cache_new(&s->arena), s->topology, &error))
    return true;
  fprintf(stderr, "dtmc: --topology %s: %s\n", path, error);
  return false;
}

PlanCache *session_plans(Session *s) {
  const char *error;
  PlanCache *plans = plan_cache_new(&s->arena);
  if (s->topology) plan_cache_set_topology(plans, s->topology, &error);
  return plans;
}

bool session_init(Session *s) {
  interner_init(&s->names, &s->arena);
  sources_init(&s->sources, &s->arena);
  diag_init(&s->sink, &s->arena, &s->sources);
  find_library(s);
  return choose_format(s) && choose_color(s) && read_topology(s);
}

int session_finish(Session *s) {
  if (option_given(&s->options, OPT_STRICT))
    for (uint32_t i = 0; i < s->sink.diags.len; i++) {
      Diag *d = s->sink.diags.data[i];
      if (d->severity != SEV_WARNING) continue;
      d->severity = SEV_ERROR;
      s->sink.warnings--;
      s->sink.errors++;
    }
  FILE *out = s->format == DIAG_TEXT ? stderr : stdout;
  if (s->sink.diags.len || s->format == DIAG_JSON || s->format == DIAG_SARIF)
    diag_render(&s->sink, out, s->format, s->color);
  return s->sink.errors ? EXIT_ERRORS : EXIT_OK;
}

bool session_sema_options(Session *s, const char *path, const char *mesh, SemaOptions *out) {
  const Options *o = &s->options;
  const StringList *defines = &o->values[OPT_DEFINE];
  ConfigOverride *overrides = ARENA_ARRAY(&s->arena, ConfigOverride, defines->len);
  for (uint32_t i = 0; i < defines->len; i++) {
    const char *text = defines->data[i], *equals = strchr(text, '=');
    if (!equals || equals == text) {
      fprintf(stderr, "dtmc: -D needs NAME=VALUE, not '%s'\n", text);
      return false;
    }
    overrides[i] =
        (ConfigOverride){arena_strndup(&s->arena, text, (size_t)(equals - text)), equals + 1};
  }
  const StringList *mesh_words = &o->values[OPT_MESH];
  if (mesh_words->len > 1) { /* the dims of the first would become 1 without a word */
    fprintf(stderr,
            "dtmc: --mesh is given twice, '%s' and '%s'; name all dims in one: DIM=N,DIM=N\n",
            mesh_words->data[0], mesh_words->data[1]);
    return false;
  }
  if (mesh_words->len && !*mesh_words->data[0]) return usage("--mesh", "", "DIM=N,...");
  int64_t ranks = 0;
  const char *given = option_value(o, OPT_RANKS, NULL);
  if (given) {
    char *end;
    ranks = strtoll(given, &end, 10);
    if (*end || ranks < 1) return usage("--ranks", given, "a number from 1");
    const char *meshes = option_value(o, OPT_MESH, NULL); /* of check: several */
    if (!meshes || !strstr(meshes, "=auto")) {
      fprintf(stderr, "dtmc: --ranks needs a mesh dim to fill: say --mesh DIM=auto\n");
      return false;
    }
  }
  *out = (SemaOptions){
      .main_path = path,
      .defines = overrides,
      .ndefines = defines->len,
      .mesh = mesh,
      .ranks = ranks,
      .include_paths = o->values[OPT_INCLUDE].data,
      .ninclude_paths = o->values[OPT_INCLUDE].len,
      .stdlib = s->stdlib,
      .widen = option_given(o, OPT_WIDEN),
  };
  return true;
}

static bool cannot_write(const char *path, const char *why) {
  fprintf(stderr, "dtmc: cannot write %s: %s\n", path, why);
  return false;
}

/* The files read, by index: the sources, the kernels of --load-cuda, then the topology. NULL after
 * the last. */
static const char *file_read(const Session *s, uint32_t i) {
  if (i < s->sources.files.len) return s->sources.files.data[i]->path;
  i -= s->sources.files.len;
  if (i < s->kernels.len) return s->kernels.data[i];
  return i == s->kernels.len ? option_value(&s->options, OPT_TOPOLOGY, NULL) : NULL;
}

bool session_may_write(Session *s, const char *path) {
  struct stat there, source;
  const char *read;
  if (strcmp(path, "-") == 0 || stat(path, &there) != 0) return true;
  for (uint32_t i = 0; (read = file_read(s, i)); i++)
    if (stat(read, &source) == 0 && source.st_dev == there.st_dev && source.st_ino == there.st_ino)
      return cannot_write(path, "it is a source of this program");
  return true;
}

bool session_can_write(Session *s, const char *path, bool folder) {
  struct stat there;
  if (strcmp(path, "-") == 0) return true;
  if (!*path) return cannot_write("''", "it is no name");
  bool exists = stat(path, &there) == 0, within = exists && S_ISDIR(there.st_mode);
  if (within && !folder) return cannot_write(path, "it is a folder");
  if (exists && !within && !S_ISREG(there.st_mode)) return true; /* a device */
  /* A name beside it, as a file that is written has at first, or in it. */
  const char *probe =
      arena_printf(&s->arena, "%s%s.tmp%ld", path, within ? "/" : "", (long)getpid());
  int fd = open(probe, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return cannot_write(path, strerror(errno));
  close(fd);
  unlink(probe);
  return true;
}

bool session_write_file(Session *s, const char *path, const void *data, size_t size) {
  if (strcmp(path, "-") == 0) {
    bool ok = fwrite(data, 1, size, stdout) == size && fflush(stdout) == 0;
    return ok || cannot_write("standard output", strerror(errno));
  }
  /* A pipe or a device is written to; a rename would put a file in its place. */
  struct stat there;
  bool direct = stat(path, &there) == 0 && !S_ISREG(there.st_mode);
  const char *temporary =
      direct ? path : arena_printf(&s->arena, "%s.tmp%ld", path, (long)getpid());
  FILE *f = fopen(temporary, "wb");
  if (!f) return cannot_write(path, strerror(errno));
  bool ok = fwrite(data, 1, size, f) == size;
  ok = fflush(f) == 0 && ok;
  int error = errno;
  ok = fclose(f) == 0 && ok;
  if (ok && (direct || rename(temporary, path) == 0)) return true;
  if (ok) error = errno;
  if (!direct) unlink(temporary);
  return cannot_write(path, strerror(error));
}

/* Make reads a space in a name as its end, '#' as a comment and '$' as a variable. */
static void put_make_name(StrBuf *sb, const char *name) {
  for (; *name; name++) {
    if (*name == ' ' || *name == '#') strbuf_putc(sb, '\\');
    if (*name == '$') strbuf_putc(sb, '$');
    strbuf_putc(sb, *name);
  }
}

bool session_write_deps(Session *s, const char *target) {
  StrBuf sb;
  strbuf_init(&sb, &s->arena);
  put_make_name(&sb, target);
  strbuf_putc(&sb, ':');
  const char *read;
  for (uint32_t i = 0; (read = file_read(s, i)); i++) {
    strbuf_puts(&sb, " \\\n  ");
    put_make_name(&sb, read);
  }
  strbuf_putc(&sb, '\n');
  const char *path =
      option_value(&s->options, OPT_DEPS_FILE, arena_printf(&s->arena, "%s.d", target));
  return session_may_write(s, path) && session_write_file(s, path, sb.text, sb.len);
}
