/* link: see link.h.
 *
 * The linker driver runs as a child with its output captured; objects and executable are written
 * into a folder beside its final place, and the latter renamed, so a failed link leaves what was
 * there before. The runtime library is found relative to the running compiler: lib/dtm beside its
 * bin folder, as in the build tree and in an installation.
 */
#include "codegen/link.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/str.h"

/* Libraries the runtime is made of, behind it on the command line. */
static const char *const libraries[] = {"-ldnnl", "-ljansson", "-lz", DTM_OPENMP, "-lm", "-ldl"};
enum { NLIBRARIES = sizeof libraries / sizeof *libraries };

static bool is_executable(const char *path) {
  struct stat s;
  return stat(path, &s) == 0 && S_ISREG(s.st_mode) && access(path, X_OK) == 0;
}

/* Full path of a program of $PATH, or NULL. */
static const char *find_program(Arena *arena, const char *name) {
  if (strchr(name, '/')) return is_executable(name) ? name : NULL;
  for (const char *p = getenv("PATH"); p && *p;) {
    size_t n = strcspn(p, ":");
    const char *full = arena_printf(arena, "%.*s/%s", (int)n, p, name);
    if (n && is_executable(full)) return full;
    p += n + (p[n] == ':');
  }
  return NULL;
}

/* The words of a linker driver: $CC may hold options, as in "gcc -m64". */
static uint32_t split_words(Arena *arena, const char *text, const char **words, uint32_t room) {
  uint32_t n = 0;
  for (const char *p = text + strspn(text, " "); *p && n < room; p += strspn(p, " ")) {
    size_t len = strcspn(p, " ");
    words[n++] = arena_strndup(arena, p, len);
    p += len;
  }
  return n;
}

static uint32_t find_driver(Arena *arena, const char *wanted, const char **words, uint32_t room,
                            const char **error) {
  static const char *const names[] = {"cc", "gcc", "clang"};
  const char *env = getenv("CC");
  if (!wanted && env && *env) wanted = env;
  if (wanted) {
    uint32_t n = split_words(arena, wanted, words, room);
    const char *full = n ? find_program(arena, words[0]) : NULL;
    if (full) {
      words[0] = full;
      return n;
    }
    *error = arena_printf(arena, "cannot link: the C compiler `%s` is not there", wanted);
    return 0;
  }
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    words[0] = find_program(arena, names[i]);
    if (words[0]) return 1;
  }
  *error = "cannot link: no C compiler (cc, gcc or clang) in PATH; install one, such as Debian's "
           "package gcc, or name it with CC";
  return 0;
}

static const char *find_runtime(Arena *arena, const char *dir, const char **error) {
  struct stat s;
  char self[PATH_MAX];
  if (!dir) {
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n > 0) {
      self[n] = 0;
      char *slash = strrchr(self, '/');
      if (slash) *slash = 0;
      dir = arena_printf(arena, "%s/../lib/dtm", self);
    } else {
      dir = ".";
    }
  }
  const char *lib = arena_printf(arena, "%s/libdtm_rt.a", dir);
  if (stat(lib, &s) == 0) return lib;
  *error = arena_printf(arena,
                        "cannot link: the runtime library %s is missing; is dtmc installed "
                        "completely?",
                        lib);
  return NULL;
}

/* Runs argv; its output (the first bytes) goes to `text`. The exit status, or -1. */
static int run_captured(Arena *arena, char *const *argv, const char **text) {
  int pipes[2];
  *text = "";
  if (pipe(pipes)) return -1;
  pid_t pid = fork();
  if (pid == 0) {
    dup2(pipes[1], STDOUT_FILENO);
    dup2(pipes[1], STDERR_FILENO);
    close(pipes[0]);
    close(pipes[1]);
    execv(argv[0], argv);
    _exit(127);
  }
  close(pipes[1]);
  StrBuf sb;
  strbuf_init(&sb, arena);
  char piece[4096];
  for (;;) {
    ssize_t n = pid < 0 ? 0 : read(pipes[0], piece, sizeof piece);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    if (sb.len < 16384) strbuf_put_n(&sb, piece, (size_t)n);
  }
  close(pipes[0]);
  if (sb.len) *text = sb.text;
  int status = -1;
  while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return pid < 0 ? -1 : WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* What is in the folder of temporary files. */
typedef struct Workplace {
  const char *object[CODEGEN_MAX_PIECES], *executable;
  uint32_t nobjects;
} Workplace;

/* Linkers that are faster than the driver's own, the fastest first. */
static const char *const linkers[][2] = {{"ld.mold", "-fuse-ld=mold"}, {"ld.lld", "-fuse-ld=lld"}};
enum { NLINKERS = sizeof linkers / sizeof *linkers };

/* The option that chooses one of them; NULL when none is there. */
static const char *find_linker(Arena *arena) {
  for (int i = 0; i < NLINKERS; i++)
    if (find_program(arena, linkers[i][0])) return linkers[i][1];
  return NULL;
}

/* Links with the linker that `option` chooses, NULL: the driver's own. Libraries come from the
 * system's folders. What they in turn need is looked up when the program starts; reading it here
 * would take the linker longer than all the rest. */
static bool run_link(Arena *arena, const char *const *driver, uint32_t ndriver, const char *option,
                     const Workplace *w, const char *runtime, const char **error) {
  const char *argv[32 + NLIBRARIES + CODEGEN_MAX_PIECES];
  uint32_t n = 0;
  for (uint32_t i = 0; i < ndriver; i++) argv[n++] = driver[i];
  argv[n++] = "-Wl,--allow-shlib-undefined";
  argv[n++] = "-Wl,--as-needed"; /* oneDNN is for the processor only */
  if (option) argv[n++] = option;
  argv[n++] = "-o";
  argv[n++] = w->executable;
  for (uint32_t i = 0; i < w->nobjects; i++) argv[n++] = w->object[i];
  argv[n++] = runtime;
  for (uint32_t i = 0; i < NLIBRARIES; i++) argv[n++] = libraries[i];
  argv[n] = NULL;
  const char *text;
  int status = run_captured(arena, (char *const *)argv, &text);
  if (status == 0) return true;
  *error = arena_printf(arena, "cannot link with %s: %s", driver[0],
                        *text           ? text
                        : status == 127 ? "it does not start"
                                        : "it failed");
  return false;
}

static bool write_object(Arena *arena, const CodegenPiece *piece, const char *path,
                         const char **error) {
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
  bool ok = fd >= 0 && file_write_all(fd, piece->bytes, piece->size);
  int wrong = errno;
  if (fd >= 0 && close(fd) && ok) {
    ok = false;
    wrong = errno;
  }
  if (!ok) *error = arena_printf(arena, "cannot write %s: %s", path, strerror(wrong));
  return ok;
}

bool link_executable(Arena *arena, const CodegenResult *objects, const LinkOptions *options,
                     const char **error) {
  enum { MAX_DRIVER = 16 };
  const char *driver[MAX_DRIVER];
  uint32_t ndriver = find_driver(arena, options->cc, driver, MAX_DRIVER, error);
  const char *runtime = ndriver ? find_runtime(arena, options->runtime_dir, error) : NULL;
  if (!runtime) return false;
  struct stat s;
  if (stat(options->output, &s) == 0 && !S_ISREG(s.st_mode)) { /* rename would replace it */
    *error = arena_printf(arena, "cannot write %s: it is %s, not a file", options->output,
                          S_ISDIR(s.st_mode) ? "a folder" : "a device");
    return false;
  }
  /* with a slash in front the linker driver cannot take it for an option */
  char *dir =
      arena_printf(arena, "%s%s.XXXXXX", strchr(options->output, '/') ? "" : "./", options->output);
  if (!mkdtemp(dir)) {
    *error = arena_printf(arena, "cannot write %s: %s", options->output, strerror(errno));
    return false;
  }
  Workplace w = {.executable = arena_printf(arena, "%s/out", dir)};
  bool ok = true;
  for (uint32_t i = 0; ok && i < objects->npieces; i++) {
    w.object[w.nobjects] = arena_printf(arena, "%s/%u.o", dir, i);
    ok = write_object(arena, &objects->piece[i], w.object[w.nobjects++], error);
  }
  /* A driver with options of its own chooses for itself; one that is old may not know the fastest.
   */
  const char *linker = ndriver == 1 ? find_linker(arena) : NULL;
  if (ok)
    ok = (linker && run_link(arena, driver, ndriver, linker, &w, runtime, error)) ||
         run_link(arena, driver, ndriver, NULL, &w, runtime, error);
  if (ok && rename(w.executable, options->output)) {
    *error = arena_printf(arena, "cannot write %s: %s", options->output, strerror(errno));
    ok = false;
  }
  for (uint32_t i = 0; i < w.nobjects; i++) unlink(w.object[i]);
  if (!ok) unlink(w.executable);
  rmdir(dir);
  return ok;
}
