/* Finding NVRTC and compiling with it: see nvrtc.h.
 *
 * NVRTC takes a tenth of a second or more for a kernel, and a fault of its own ends the process it
 * is in. So jobs run in children: each takes the next job off a shared counter and leaves what it
 * made in a file of its own, which the parent reads when all have ended. */
#include "codegen/nvrtc.h"

#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <link.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"

typedef struct NvrtcUnit NvrtcUnit; /* nvrtcProgram is a pointer to it */

/* X(entry, parameters): the declarations are ours, the library's header is not needed. */
#define NVRTC_ENTRIES(X)                                                                           \
  X(Version, (int *major, int *minor))                                                             \
  X(GetNumSupportedArchs, (int *n))                                                                \
  X(GetSupportedArchs, (int *archs))                                                               \
  X(CreateProgram, (NvrtcUnit * *unit, const char *text, const char *name, int nheaders,           \
                    const char *const *headers, const char *const *names))                         \
  X(DestroyProgram, (NvrtcUnit * *unit))                                                           \
  X(CompileProgram, (NvrtcUnit * unit, int noptions, const char *const *options))                  \
  X(GetPTXSize, (NvrtcUnit * unit, size_t * size))                                                 \
  X(GetPTX, (NvrtcUnit * unit, char *ptx))                                                         \
  X(GetCUBINSize, (NvrtcUnit * unit, size_t * size))                                               \
  X(GetCUBIN, (NvrtcUnit * unit, char *cubin))                                                     \
  X(GetProgramLogSize, (NvrtcUnit * unit, size_t * size))                                          \
  X(GetProgramLog, (NvrtcUnit * unit, char *log))

enum { OLDEST_MAJOR = 12, MINIMAL_SINCE = 13, MAX_ARCHS = 64, MAX_WORKERS = 64 };
enum { NO_ROOM = 3 }; /* the exit code of a child that could not keep what it made */

struct Nvrtc {
#define X(name, parameters) int(*name) parameters;
  NVRTC_ENTRIES(X)
#undef X
  int major, minor;
  char version[16];
  int archs[MAX_ARCHS], narchs;
};

/* --- finding the library ---- */

static const char *const file_names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
enum { NFILE_NAMES = sizeof file_names / sizeof *file_names };

static void *open_file(Arena *arena, const char *folder, const char *name) {
  const char *path = arena_printf(arena, "%s/%s", folder, name);
  return access(path, R_OK) == 0 ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
}

static void *open_in(Arena *arena, const char *folder) {
  void *handle = NULL;
  for (int i = 0; i < NFILE_NAMES && !handle; i++) handle = open_file(arena, folder, file_names[i]);
  return handle;
}

/* The newest in any of the folders that match; which of two of one version is left to their names.
 */
static void *open_matching(Arena *arena, const char *pattern) {
  glob_t found = {0};
  void *handle = NULL;
  if (glob(pattern, 0, NULL, &found) == 0)
    for (int i = 0; i < NFILE_NAMES; i++)
      for (size_t k = found.gl_pathc; k-- > 0 && !handle;)
        handle = open_file(arena, found.gl_pathv[k], file_names[i]);
  globfree(&found);
  return handle;
}

/* As pip installs nvidia-cuda-nvrtc, and as setup.sh unpacks it. */
static void *open_package(Arena *arena) {
  const char *home = getenv("HOME"), *environment = getenv("VIRTUAL_ENV");
  const char *const places[] = {
      environment ? arena_printf(arena, "%s/lib/python3*/site-packages", environment) : NULL,
      home ? arena_printf(arena, "%s/.local/lib/python3*/site-packages", home) : NULL,
      "/usr/local/lib/python3*/dist-packages",
      "/usr/local/lib/python3*/site-packages",
      "/usr/lib/python3*/dist-packages",
      "/usr/lib/python3*/site-packages",
      "/usr/local/lib/dtm/nvrtc",
      home ? arena_printf(arena, "%s/.local/lib/dtm/nvrtc", home) : NULL};
  void *handle = NULL;
  for (size_t i = 0; i < sizeof places / sizeof *places && !handle; i++)
    if (places[i]) handle = open_matching(arena, arena_printf(arena, "%s/nvidia/*/lib", places[i]));
  return handle;
}

static void *open_library(Arena *arena, const char **error) {
  const char *named = getenv("DTM_NVRTC");
  if (named && *named) {
    void *handle = dlopen(named, RTLD_NOW | RTLD_LOCAL);
    if (!handle) *error = arena_printf(arena, "cannot load NVRTC (DTM_NVRTC): %s", dlerror());
    return handle;
  }
  void *handle = NULL;
  static const char *const homes[] = {"CUDA_HOME", "CUDA_PATH"};
  for (int i = 0; i < 2 && !handle; i++) {
    const char *home = getenv(homes[i]);
    if (home && *home) handle = open_in(arena, arena_printf(arena, "%s/lib64", home));
    if (home && *home && !handle) handle = open_in(arena, arena_printf(arena, "%s/lib", home));
  }
  if (!handle) handle = open_in(arena, "/usr/local/cuda/lib64");
  for (int i = 0; i < NFILE_NAMES && !handle; i++)
    handle = dlopen(file_names[i], RTLD_NOW | RTLD_LOCAL);
  if (!handle) handle = open_package(arena);
  if (!handle)
    *error = "NVRTC, which makes code for GPUs, is not there (libnvrtc.so.13 or .12 in CUDA_HOME, "
             "/usr/local/cuda, the loader's path or Python's packages); install the CUDA toolkit, "
             "or run `pip install nvidia-cuda-nvrtc`, or name the file with DTM_NVRTC";
  return handle;
}

/* The file that a library came from. */
static const char *file_of(void *handle) {
  struct link_map *map = NULL;
  return dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map->l_name[0] ? map->l_name : "libnvrtc.so";
}

/* NVRTC opens a second library by name when it compiles, which the loader does not find where NVRTC
 * lies in a package of Python: there it is opened before. Elsewhere it may be missing here. */
static void open_builtins(Arena *arena, void *handle, const Nvrtc *n) {
  const char *file = file_of(handle), *end = strrchr(file, '/');
  if (end)
    dlopen(arena_printf(arena, "%.*s/libnvrtc-builtins.so.%s", (int)(end - file), file, n->version),
           RTLD_NOW | RTLD_LOCAL);
}

Nvrtc *nvrtc_open(Arena *arena, const char **error) {
  void *handle = open_library(arena, error);
  if (!handle) return NULL;
  Nvrtc *n = ARENA_NEW(arena, Nvrtc);
  const char *missing = NULL;
#define X(name, parameters)                                                                        \
  *(void **)&n->name = dlsym(handle, "nvrtc" #name);                                               \
  if (!n->name) missing = "nvrtc" #name;
  NVRTC_ENTRIES(X)
#undef X
  if (!missing) n->Version(&n->major, &n->minor);
  if (missing || n->major < OLDEST_MAJOR) {
    *error =
        missing ? arena_printf(arena, "%s has no entry %s; NVRTC 12.0 or later is needed",
                               file_of(handle), missing)
                : arena_printf(arena, "%s: NVRTC %d.%d is too old; version 12.0 or later is needed",
                               file_of(handle), n->major, n->minor);
    return NULL;
  }
  snprintf(n->version, sizeof n->version, "%d.%d", n->major, n->minor);
  open_builtins(arena, handle, n);
  n->GetNumSupportedArchs(&n->narchs);
  if (n->narchs < 0) n->narchs = 0;
  int *archs = ARENA_ARRAY(arena, int, n->narchs + 1);
  n->GetSupportedArchs(archs);
  if (n->narchs > MAX_ARCHS) n->narchs = MAX_ARCHS;
  memcpy(n->archs, archs, sizeof *archs * (size_t)n->narchs);
  return n;
}

const char *nvrtc_version(const Nvrtc *n) {
  return n->version;
}

bool nvrtc_knows(const Nvrtc *n, uint32_t arch) {
  for (int i = 0; i < n->narchs; i++)
    if (n->archs[i] == (int)arch) return true;
  return false;
}

const char *nvrtc_archs(const Nvrtc *n, Arena *arena) {
  StrBuf sb;
  strbuf_init(&sb, arena);
  for (int i = 0; i < n->narchs; i++) strbuf_printf(&sb, "%ssm_%d", i ? " " : "", n->archs[i]);
  return sb.text;
}

/* --- one job ---- */

/* Nothing but the contraction of products and sums is done to the arithmetic that was written. */
static uint32_t options_of(const Nvrtc *n, Arena *arena, const NvrtcJob *job,
                           const char *options[8]) {
  uint32_t count = 0;
  options[count++] =
      arena_printf(arena, "--gpu-architecture=%s_%u", job->binary ? "sm" : "compute", job->arch);
  options[count++] = "--std=c++17";
  options[count++] = "--generate-line-info";
  options[count++] = job->exact ? "--fmad=false" : "--fmad=true";
  if (n->major >= MINIMAL_SINCE) options[count++] = "--minimal";
  return count;
}

/* Everything that decides what comes out. */
static NvrtcKey key_of(const Nvrtc *n, Arena *arena, const NvrtcJob *job) {
  enum { FORMAT = 2 }; /* of what is made of the same text */
  const char *options[8];
  StrBuf sb;
  strbuf_init(&sb, arena);
  strbuf_printf(&sb, "%d %s %s", FORMAT, n->version, job->file);
  for (uint32_t i = 0, count = options_of(n, arena, job, options); i < count; i++)
    strbuf_printf(&sb, " %s", options[i]);
  for (uint32_t i = 0; i < job->nheaders; i++)
    strbuf_printf(&sb, "\n%s %zu\n%s", job->headers[i].name, strlen(job->headers[i].text),
                  job->headers[i].text);
  strbuf_printf(&sb, "\n%zu\n%s", strlen(job->text), job->text);
  return (NvrtcKey){{hash_stable(sb.text, sb.len, 1), hash_stable(sb.text, sb.len, 2)}};
}

/* What a child leaves of a job, followed by the bytes. */
typedef struct Made {
  uint32_t job, ok;
  uint64_t ptx_size, cubin_size, log_size;
} Made;

static bool compile_one(const Nvrtc *n, Arena *arena, const NvrtcJob *job, uint32_t number,
                        int fd) {
  NvrtcUnit *unit = NULL;
  const char **texts = ARENA_ARRAY(arena, const char *, job->nheaders + 1);
  const char **names = ARENA_ARRAY(arena, const char *, job->nheaders + 1);
  for (uint32_t i = 0; i < job->nheaders; i++) {
    texts[i] = job->headers[i].text;
    names[i] = job->headers[i].name;
  }
  const char *options[8];
  uint32_t count = options_of(n, arena, job, options);
  Made made = {.job = number};
  if (n->CreateProgram(&unit, job->text, job->file, (int)job->nheaders, texts, names)) return false;
  made.ok = n->CompileProgram(unit, (int)count, options) == 0;
  size_t ptx = 0, cubin = 0, log = 0;
  n->GetProgramLogSize(unit, &log);
  if (made.ok && (n->GetPTXSize(unit, &ptx) || ptx <= 1)) made.ok = 0; /* its NUL alone */
  if (made.ok && job->binary && (n->GetCUBINSize(unit, &cubin) || !cubin)) made.ok = 0;
  char *ptx_bytes = arena_alloc(arena, ptx + 1), *cubin_bytes = arena_alloc(arena, cubin + 1);
  char *log_bytes = arena_alloc(arena, log + 1);
  n->GetProgramLog(unit, log_bytes);
  if (made.ok && (n->GetPTX(unit, ptx_bytes) || (cubin && n->GetCUBIN(unit, cubin_bytes))))
    made.ok = 0;
  n->DestroyProgram(&unit);
  made.ptx_size = ptx;
  made.cubin_size = cubin;
  made.log_size = log;
  return file_write_all(fd, &made, sizeof made) && file_write_all(fd, ptx_bytes, ptx) &&
         file_write_all(fd, cubin_bytes, cubin) && file_write_all(fd, log_bytes, log);
}

/* --- the children ---- */

typedef struct Shared {
  atomic_uint next;
  uint32_t current[MAX_WORKERS]; /* job + 1 */
} Shared;

typedef struct Pool {
  const Nvrtc *n;
  Arena *arena;
  NvrtcJob *jobs;
  const uint32_t *todo; /* jobs to compile */
  uint32_t ntodo, nworkers;
  Shared *shared;
  int fd[MAX_WORKERS];
  pid_t pid[MAX_WORKERS];
} Pool;

static void wait_for(pid_t pid, int *status) {
  while (waitpid(pid, status, 0) < 0 && errno == EINTR) {
  }
}

/* What ends dtmc ends its children, and what NVRTC does wrong is not for our handlers. */
static void become_child(pid_t parent) {
  static const int ours[] = {SIGABRT, SIGSEGV, SIGFPE};
  for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) signal(ours[i], SIG_DFL);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  /* it died before we asked to be told */
  dup2(STDERR_FILENO, STDOUT_FILENO); /* where a text may be expected */
}

static _Noreturn void work(Pool *p, uint32_t worker) {
  /* Line tables name files with the folder that NVRTC is called in. */
  bool ok = chdir("/") == 0;
  for (unsigned i; ok && (i = atomic_fetch_add(&p->shared->next, 1)) < p->ntodo;) {
    p->shared->current[worker] = p->todo[i] + 1;
    ok = compile_one(p->n, p->arena, &p->jobs[p->todo[i]], p->todo[i], p->fd[worker]);
  }
  if (ok) p->shared->current[worker] = 0;
  _exit(ok ? 0 : NO_ROOM);
}

/* "k3_sum.cu(12): error: ..." */
static const char *failure(Arena *arena, const Nvrtc *n, const NvrtcJob *job, const char *log) {
  if (!*log) log = "NVRTC made nothing and says nothing of it";
  size_t length = strlen(log);
  while (length && log[length - 1] == '\n') length--;
  return arena_printf(arena, "NVRTC %s cannot compile %s for %s_%u:\n%.*s", n->version, job->what,
                      job->binary ? "sm" : "compute", job->arch, (int)length, log);
}

/* What one child left. The failure with the least number is the one reported: it does not depend on
 * who was first. */
static void collect(Pool *p, uint32_t worker, bool *have, uint32_t *worst, const char **error) {
  Made made;
  if (lseek(p->fd[worker], 0, SEEK_SET)) return;
  while (file_read_all(p->fd[worker], &made, sizeof made)) {
    char *ptx = arena_alloc(p->arena, made.ptx_size + 1);
    char *cubin = arena_alloc(p->arena, made.cubin_size + 1);
    char *log = arena_alloc(p->arena, made.log_size + 1);
    if (!file_read_all(p->fd[worker], ptx, made.ptx_size) ||
        !file_read_all(p->fd[worker], cubin, made.cubin_size) ||
        !file_read_all(p->fd[worker], log, made.log_size))
      return; /* it ended while it wrote */
    NvrtcJob *job = &p->jobs[made.job];
    have[made.job] = true;
    if (!made.ok && made.job < *worst) {
      *worst = made.job;
      *error = failure(p->arena, p->n, job, log);
    }
    if (!made.ok) continue;
    job->ptx = ptx;
    job->ptx_size = strlen(ptx);
    job->cubin = cubin;
    job->cubin_size = made.cubin_size;
  }
}

/* NULL when the child did all that it took. */
static const char *died(Pool *p, uint32_t worker, int status) {
  uint32_t current = p->shared->current[worker];
  if (!current) return status ? "a process that compiles for the GPU ended early" : NULL;
  int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  const char *how =
      number == SIGKILL ? "it was killed; if nobody did it, the system ran out of memory"
      : number
          ? arena_printf(p->arena,
                         "NVRTC crashed by signal %d (%s); try another version of NVRTC, whose "
                         "file DTM_NVRTC names",
                         number, strsignal(number))
      : WEXITSTATUS(status) == NO_ROOM
          ? "it had no memory or no disk left"
          : arena_printf(p->arena,
                         "NVRTC ended its process with exit code %d; try another version of "
                         "NVRTC, whose file DTM_NVRTC names",
                         WEXITSTATUS(status));
  return failure(p->arena, p->n, &p->jobs[current - 1], how);
}

static bool run_pool(Pool *p, const char **error) {
  p->shared =
      mmap(NULL, sizeof *p->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (p->shared == MAP_FAILED) {
    *error = arena_printf(p->arena, "cannot compile for the GPU: %s", strerror(errno));
    return false;
  }
  fflush(NULL);
  uint32_t started = 0;
  pid_t parent = getpid();
  for (; started < p->nworkers; started++) {
    p->fd[started] = memfd_create("dtm_nvrtc", MFD_CLOEXEC);
    p->pid[started] = p->fd[started] < 0 ? -1 : fork();
    if (p->pid[started] == 0) {
      become_child(parent);
      work(p, started);
    }
    if (p->pid[started] > 0) continue;
    if (p->fd[started] >= 0) close(p->fd[started]);
    break; /* those that there are do */
  }
  const char *cannot = strerror(errno), *death = NULL;
  uint32_t worst = UINT32_MAX;
  const char *fault = NULL;
  uint32_t njobs = 0;
  for (uint32_t i = 0; i < p->ntodo; i++)
    if (p->todo[i] >= njobs) njobs = p->todo[i] + 1;
  bool *have = ARENA_ARRAY(p->arena, bool, njobs + 1);
  for (uint32_t i = 0; i < started; i++) {
    int status = 0;
    wait_for(p->pid[i], &status);
    collect(p, i, have, &worst, &fault);
    if (!death) death = died(p, i, status);
    close(p->fd[i]);
  }
  munmap(p->shared, sizeof *p->shared);
  for (uint32_t i = 0; i < p->ntodo && !fault; i++)
    if (!have[p->todo[i]])
      fault = death ? death
                    : arena_printf(p->arena,
                                   "cannot compile for the GPU: no process could be "
                                   "started: %s",
                                   cannot);
  *error = fault;
  return !fault;
}

typedef struct Todo {
  size_t length;
  uint32_t job;
} Todo;

static int longest_first(const void *pa, const void *pb) {
  const Todo *a = pa, *b = pb;
  if (a->length != b->length) return a->length < b->length ? 1 : -1;
  return a->job < b->job ? -1 : a->job > b->job;
}

/* The longest text first, so that no child has much left to do when the others are done. */
static void order_todo(Arena *arena, const NvrtcJob *jobs, uint32_t *todo, uint32_t n) {
  Todo *order = ARENA_ARRAY(arena, Todo, n);
  for (uint32_t i = 0; i < n; i++) order[i] = (Todo){strlen(jobs[todo[i]].text), todo[i]};
  qsort(order, n, sizeof *order, longest_first);
  for (uint32_t i = 0; i < n; i++) todo[i] = order[i].job;
}

/* How many processes compile: DTM_JOBS, else as many as there are processors. Each reads the
 * library anew, which is half of what a kernel costs: where programs are compiled beside each
 * other, one per program does most. 0 with *error. */
static uint32_t workers_allowed(Arena *arena, const char **error) {
  const char *given = getenv("DTM_JOBS");
  if (given && *given) {
    char *end;
    long n = strtol(given, &end, 10);
    if (*end || n < 1 || n > MAX_WORKERS) {
      *error = arena_printf(
          arena, "DTM_JOBS=%s: how many processes compile for GPUs is a number from 1 to %d", given,
          MAX_WORKERS);
      return 0;
    }
    return (uint32_t)n;
  }
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n < 1 ? 1 : n > MAX_WORKERS ? MAX_WORKERS : (uint32_t)n;
}

bool nvrtc_compile(Nvrtc *n, Arena *arena, NvrtcJob *jobs, uint32_t njobs, const char **error) {
  uint32_t *todo = ARENA_ARRAY(arena, uint32_t, njobs + 1), ntodo = 0;
  NvrtcKey *keys = ARENA_ARRAY(arena, NvrtcKey, njobs + 1);
  const char *folder = nvrtc_cache_folder(arena);
  for (uint32_t i = 0; i < njobs; i++) {
    if (folder) keys[i] = key_of(n, arena, &jobs[i]);
    jobs[i].cached = folder && nvrtc_cache_get(arena, folder, keys[i], &jobs[i]);
    if (!jobs[i].cached) todo[ntodo++] = i;
  }
  if (!ntodo) return true;
  uint32_t allowed = workers_allowed(arena, error);
  if (!allowed) return false;
  order_todo(arena, jobs, todo, ntodo);
  Pool pool = {.n = n, .arena = arena, .jobs = jobs, .todo = todo, .ntodo = ntodo};
  pool.nworkers = allowed < ntodo ? allowed : ntodo;
  if (!run_pool(&pool, error)) return false;
  for (uint32_t i = 0; folder && i < ntodo; i++)
    nvrtc_cache_put(arena, folder, keys[todo[i]], &jobs[todo[i]]);
  if (folder) nvrtc_cache_trim(arena, folder);
  return true;
}
