/* One training step of GPT-2 124M: time beside its bare matrix products and beside PyTorch, tokens
 * per second, peak memory.
 *
 *   bench_gpt2 [DTMC] [ROW]
 *
 * samples/gpt2 is compiled by dtmc and trained on random tokens in processes of its own, whose
 * steps are timed by the lines that they print. So is gpt2.py, when $DTM_BENCH_PYTHON or python3
 * has PyTorch. The bare products are plain row-major f32 products of oneDNN in this process,
 * measured before, between and after. Both programs get as many threads as there are processors,
 * two at most, and share them among their ranks. ROW: only this row of the table, from 0.
 */
#include <dnnl.h>
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <omp.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "table.h"

enum { VOCAB = 50257, CONTEXT = 1024, DIM = 768, LAYERS = 12, HEADS = 12, FFN = 3072 };
enum { WARM = 1, STEPS = 16, STEPS_LEAST = 2, TOKENS = 1 << 17, THREADS = 2 };
/* Seconds: of timed steps of one program, of the bare products between two programs, until a
 * program must have made one step, and until PyTorch in bf16 has or is given up. */
static const double budget = 6, bare_budget = 2, patience = 180, patience_bf16 = 30;

extern char **environ;

static _Noreturn void fail(const char *what) {
  fprintf(stderr, "bench_gpt2: ");
  perror(what);
  exit(1);
}

/* --- the bare products
 * ------------------------------------------------------------------------------ */

typedef struct Product {
  dnnl_primitive_t primitive;
  dnnl_exec_arg_t args[3];
  int times; /* in a step */
} Product;

typedef struct Bare {
  dnnl_engine_t engine;
  dnnl_stream_t stream;
  Product product[64];
  int n;
} Bare;

static void check(dnnl_status_t status) {
  if (status == dnnl_success) return;
  fprintf(stderr, "bench_gpt2: oneDNN fails: %d\n", (int)status);
  exit(1);
}

static dnnl_memory_t matrices(dnnl_engine_t engine, int64_t batch, int64_t rows, int64_t columns,
                              dnnl_memory_desc_t *desc) {
  const dnnl_dims_t dims = {batch, rows, columns}, plain = {rows, columns};
  dnnl_memory_t m;
  size_t n = (size_t)(batch * rows * columns);
  float *data = aligned_alloc(64, (n * sizeof *data + 63) / 64 * 64);
  if (!data) fail("memory");
  for (size_t i = 0; i < n; i++) data[i] = (float)(i % 17) * 0.01f;
  check(batch > 1 ? dnnl_memory_desc_init_by_tag(desc, 3, dims, dnnl_f32, dnnl_abc)
                  : dnnl_memory_desc_init_by_tag(desc, 2, plain, dnnl_f32, dnnl_ab));
  check(dnnl_memory_create(&m, desc, engine, data));
  return m;
}

/* [m, k] x [k, n]. */
static void add_product(Bare *x, int times, int64_t batch, int64_t m, int64_t n, int64_t k) {
  Product *p = &x->product[x->n++];
  dnnl_memory_desc_t a, b, c;
  p->times = times;
  p->args[0] = (dnnl_exec_arg_t){DNNL_ARG_SRC, matrices(x->engine, batch, m, k, &a)};
  p->args[1] = (dnnl_exec_arg_t){DNNL_ARG_WEIGHTS, matrices(x->engine, batch, k, n, &b)};
  p->args[2] = (dnnl_exec_arg_t){DNNL_ARG_DST, matrices(x->engine, batch, m, n, &c)};
  dnnl_matmul_desc_t op;
  dnnl_primitive_desc_t desc;
  check(dnnl_matmul_desc_init(&op, &a, &b, NULL, &c));
  check(dnnl_primitive_desc_create(&desc, &op, NULL, x->engine, NULL));
  check(dnnl_primitive_create(&p->primitive, desc));
  check(dnnl_primitive_desc_destroy(desc));
}

/* A linear layer: forward, the gradients of its input and of its weight. */
static void add_layer(Bare *x, int times, int64_t rows, int64_t in, int64_t out) {
  add_product(x, times, 1, rows, out, in);
  add_product(x, times, 1, rows, in, out);
  add_product(x, times, 1, out, in, rows);
}

/* The products of attention are whole squares here, though it is causal. */
static void add_products(Bare *x, int64_t batch, int64_t seq) {
  int64_t rows = batch * seq, heads = batch * HEADS, width = DIM / HEADS;
  check(dnnl_engine_create(&x->engine, dnnl_cpu, 0));
  check(dnnl_stream_create(&x->stream, x->engine, dnnl_stream_default_flags));
  add_layer(x, LAYERS, rows, DIM, 3 * DIM);
  add_layer(x, LAYERS, rows, DIM, DIM);
  add_layer(x, LAYERS, rows, DIM, FFN);
  add_layer(x, LAYERS, rows, FFN, DIM);
  add_layer(x, 1, rows, DIM, VOCAB);
  add_product(x, 2 * LAYERS, heads, seq, seq, width); /* q k^T, g v^T */
  add_product(x, 4 * LAYERS, heads, seq, width, seq); /* p v, p^T g, ds k, ds^T q */
}

/* Runs them as often as the time allows, once at least; *least is lowered to the least time. */
static void measure_products(const Bare *x, double *least) {
  double first = bench_now(), now = first;
  do {
    double begin = now;
    for (int i = 0; i < x->n; i++)
      for (int t = 0; t < x->product[i].times; t++)
        check(dnnl_primitive_execute(x->product[i].primitive, x->stream, 3, x->product[i].args));
    now = bench_now();
    if (now - begin < *least) *least = now - begin;
  } while (now - first < bare_budget);
}

static void close_products(Bare *x) {
  for (int i = 0; i < x->n; i++) {
    for (int k = 0; k < 3; k++) {
      void *data;
      check(dnnl_memory_get_data_handle(x->product[i].args[k].memory, &data));
      free(data);
      check(dnnl_memory_destroy(x->product[i].args[k].memory));
    }
    check(dnnl_primitive_destroy(x->product[i].primitive));
  }
  check(dnnl_stream_destroy(x->stream));
  check(dnnl_engine_destroy(x->engine));
}

/* --- other processes
 * -------------------------------------------------------------------------------- */

typedef struct Timed {
  double least, median; /* seconds of a step; 0 = did not run, infinity = no step in time */
  uint64_t peak;        /* resident bytes of the rank with the most */
} Timed;

/* A process group of its own; what it prints comes back through *out. */
static pid_t start(char *const *argv, int *out, bool quiet) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC)) fail("pipe");
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attr;
  pid_t child;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
  if (quiet) posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_init(&attr);
  posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP);
  int wrong = posix_spawnp(&child, argv[0], &files, &attr, argv, environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attr);
  close(ends[1]);
  *out = ends[0];
  return wrong ? -1 : child;
}

/* True when the program ran and ended with 0. */
static bool succeeds(char *const *argv, bool quiet) {
  int out, status;
  char drop[512];
  pid_t child = start(argv, &out, quiet);
  while (child > 0 && read(out, drop, sizeof drop) > 0) continue;
  close(out);
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

/* VmHWM of the process of this group that has the most. */
static uint64_t group_peak(pid_t group) {
  uint64_t peak = 0;
  DIR *all = opendir("/proc");
  for (struct dirent *e; all && (e = readdir(all));) {
    pid_t pid = (pid_t)atoi(e->d_name);
    if (pid <= 0 || getpgid(pid) != group) continue;
    char path[64], line[256];
    unsigned long long kib;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
      if (sscanf(line, "VmHWM: %llu", &kib) == 1 && kib * 1024 > peak) peak = kib * 1024;
    if (f) fclose(f);
  }
  if (all) closedir(all);
  return peak;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Whether a line comes before this moment. */
static bool line_in_time(FILE *out, double until) {
  struct pollfd p = {.fd = fileno(out), .events = POLLIN};
  double left = until - bench_now();
  return poll(&p, 1, left > 0 ? (int)(left * 1e3) : 0) > 0;
}

/* Runs a program that prints a line with "step" in it after every step, until enough of them are
 * timed, and ends it. Gives up after `until` seconds without a step. */
static Timed time_steps(char *const *argv, double until) {
  Timed t = {.least = INFINITY, .median = INFINITY};
  int fd;
  pid_t child = start(argv, &fd, false);
  FILE *out = child > 0 ? fdopen(fd, "r") : NULL;
  if (!out) fail(argv[0]);
  setvbuf(out, NULL, _IONBF, 0);
  char line[512];
  double steps[STEPS], begin = 0, last = bench_now();
  int seen = 0, n = 0;
  bool ended = false;
  while (n < STEPS && (seen || line_in_time(out, last + until))) {
    ended = !fgets(line, sizeof line, out);
    if (ended) break;
    if (!strstr(line, "step")) continue;
    double now = bench_now();
    if (seen++ == WARM) begin = last;
    if (seen > WARM) steps[n++] = now - last;
    last = now;
    if (n >= STEPS_LEAST && now - begin > budget) break;
  }
  t.peak = group_peak(child);
  kill(-child, SIGKILL);
  waitpid(child, NULL, 0);
  fclose(out);
  if (ended) {
    fprintf(stderr, "bench_gpt2: %s ended after %d steps\n", argv[0], seen);
    exit(1);
  }
  if (n) {
    qsort(steps, (size_t)n, sizeof *steps, ascending);
    t.least = steps[0];
    t.median = steps[n / 2];
  }
  return t;
}

/* --- the table
 * ---------------------------------------------------------------------------------- */

typedef struct Setting {
  int batch, seq; /* of a rank */
  bool bf16, clip;
  int ranks;
} Setting;

static const Setting settings[] = {
    {4, 64, false, false, 1},  {4, 64, false, true, 1},    {4, 64, true, false, 1},
    {4, 64, false, false, 2},  {4, 64, true, false, 2},    {1, 1024, false, false, 1},
    {1, 1024, true, false, 1}, {1, 1024, false, false, 2}, {1, 1024, true, false, 2},
};

/* Random tokens with the header of llm.c. */
static void write_tokens(const char *path) {
  static uint16_t tokens[TOKENS];
  uint32_t header[256] = {20240520, 1, TOKENS}, x = 1;
  for (int i = 0; i < TOKENS; i++) {
    x = x * 1664525u + 1013904223u;
    tokens[i] = (uint16_t)((uint64_t)x * VOCAB >> 32);
  }
  FILE *f = fopen(path, "wb");
  if (!f || fwrite(header, sizeof header, 1, f) != 1 || fwrite(tokens, sizeof tokens, 1, f) != 1 ||
      fclose(f))
    fail(path);
}

static void must_step(const Timed *t, const char *program) {
  if (!isinf(t->least)) return;
  fprintf(stderr, "bench_gpt2: %s makes no step in %.0f s\n", program, patience);
  exit(1);
}

static Timed ours(const char *dtmc, const char *folder, const Setting *s, int threads) {
  char program[128], data[128], batch[32], seq[32], mesh[32], count[32];
  snprintf(program, sizeof program, "%s/train", folder);
  snprintf(data, sizeof data, "text=%s/tokens.bin", folder);
  snprintf(batch, sizeof batch, "-Dbatch=%d", s->batch * s->ranks);
  snprintf(seq, sizeof seq, "-Dseq=%d", s->seq);
  snprintf(mesh, sizeof mesh, "--mesh=dp=%d", s->ranks);
  snprintf(count, sizeof count, "%d", threads / s->ranks > 0 ? threads / s->ranks : 1);
  char *compile[] = {(char *)(uintptr_t)dtmc,
                     DTM_BENCH "/../../samples/gpt2/gpt2.dtm",
                     "-Dvocab=50257",
                     "-Dtokens=true",
                     "-Dcontext=1024",
                     "-Ddim=768",
                     "-Dlayers=12",
                     "-Dheads=12",
                     "-Dkv_heads=12",
                     "-Dffn=3072",
                     "-Dsteps=1000",
                     batch,
                     seq,
                     s->bf16 ? "-Dmixed=true" : "-Dmixed=false",
                     s->clip ? "-Dclip=1.0" : "-Dclip=0",
                     mesh,
                     "-o",
                     program,
                     NULL};
  if (!succeeds(compile, false)) {
    fprintf(stderr, "bench_gpt2: %s does not compile samples/gpt2\n", dtmc);
    exit(1);
  }
  Timed t = time_steps((char *[]){program, "train", "--no-eval", "--log", "json", "--threads",
                                  count, "--data", data, NULL},
                       patience);
  unlink(program);
  must_step(&t, program);
  return t;
}

static Timed theirs(const char *python, const char *folder, const Setting *s, int threads) {
  char data[128], batch[16], seq[16], ranks[16], count[16];
  snprintf(data, sizeof data, "%s/tokens.bin", folder);
  snprintf(batch, sizeof batch, "%d", s->batch);
  snprintf(seq, sizeof seq, "%d", s->seq);
  snprintf(ranks, sizeof ranks, "%d", s->ranks);
  snprintf(count, sizeof count, "%d", threads / s->ranks > 0 ? threads / s->ranks : 1);
  Timed t =
      time_steps((char *[]){(char *)(uintptr_t)python, DTM_BENCH "/gpt2.py", data, batch, seq,
                            s->bf16 ? "bf16" : "f32", ranks, count, s->clip ? "1" : "0", NULL},
                 s->bf16 ? patience_bf16 : patience);
  if (!s->bf16) must_step(&t, python);
  return t;
}

static void print_row(const Setting *s, double bare, const Timed *a, const Timed *b) {
  double tokens = (double)(s->batch * s->seq * s->ranks);
  char name[64], products[2][16] = {"", ""}, torch[4][16] = {"", "", "", ""};
  snprintf(name, sizeof name, "%d x %d %s%s, %d rank%s", s->batch, s->seq, s->bf16 ? "bf16" : "f32",
           s->clip ? " clip" : "", s->ranks, s->ranks > 1 ? "s" : "");
  if (bare > 0) {
    snprintf(products[0], sizeof products[0], "%.0f", 1e3 * bare);
    snprintf(products[1], sizeof products[1], "%.3f", a->least / bare);
  }
  if (isinf(b->least)) {
    snprintf(torch[0], sizeof torch[0], "> %.0f", 1e3 * patience_bf16);
  } else if (b->least > 0) {
    snprintf(torch[0], sizeof torch[0], "%.0f", 1e3 * b->least);
    snprintf(torch[1], sizeof torch[1], "%.0f", 1e3 * b->median);
    snprintf(torch[2], sizeof torch[2], "%.2f", (double)b->peak / 1e9);
    snprintf(torch[3], sizeof torch[3], "%.2f", b->least / a->least);
  }
  printf("| %-24s | %7.0f | %7.0f | %7.0f | %5.2f | %7s | %6s | %8s | %7s | %5s | %6s |\n", name,
         1e3 * a->least, 1e3 * a->median, tokens / a->least, (double)a->peak / 1e9, products[0],
         products[1], torch[0], torch[1], torch[2], torch[3]);
  fflush(stdout);
}

int main(int argc, char **argv) {
  const char *dtmc = argc > 1 ? argv[1] : DTM_DTMC, *python = getenv("DTM_BENCH_PYTHON");
  int processors = (int)sysconf(_SC_NPROCESSORS_ONLN);
  int threads = processors < THREADS ? processors : THREADS;
  char folder[] = "/tmp/dtm-bench-XXXXXX", tokens[64];
  omp_set_num_threads(threads);
  bool chosen = python && *python;
  if (!chosen) python = "python3";
  if (!succeeds((char *[]){(char *)(uintptr_t)python, "-c", "import torch", NULL}, !chosen)) {
    if (chosen) {
      fprintf(stderr, "bench_gpt2: DTM_BENCH_PYTHON=%s has no PyTorch\n", python);
      return 1;
    }
    python = NULL;
  }
  if (!mkdtemp(folder)) fail(folder);
  snprintf(tokens, sizeof tokens, "%s/tokens.bin", folder);
  write_tokens(tokens);
  printf("GPT-2 124M, AdamW, %d threads in all; batch and sequence of a rank; GB = 1e9 bytes%s\n\n",
         threads, python ? "" : "; PyTorch not found: its columns are empty");
  table_head("| %-24s | %7s | %7s | %7s | %5s | %7s | %6s | %8s | %7s | %5s | %6s |", "", "step ms",
             "median", "tok/s", "GB", "bare ms", "ratio", "torch ms", "median", "GB", "faster");
  Bare bare = {0};
  double least = INFINITY;  /* of the bare products */
  const Setting *of = NULL; /* whose products these are */
  bool hopeless = false;    /* PyTorch in bf16 */
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
    const Setting *s = &settings[i];
    if (argc > 2 && (size_t)atoi(argv[2]) != i) continue;
    bool measure = s->ranks == 1 && (!of || of->seq != s->seq);
    if (measure) {
      least = INFINITY;
      of = s;
      bare = (Bare){0};
      add_products(&bare, s->batch, s->seq);
      measure_products(&bare, &least);
    }
    Timed a = ours(dtmc, folder, s, threads), b = {0};
    if (measure) measure_products(&bare, &least);
    if (python && !(s->bf16 && hopeless)) b = theirs(python, folder, s, threads);
    if (s->bf16 && isinf(b.least)) hopeless = true;
    if (measure) {
      measure_products(&bare, &least);
      close_products(&bare);
    }
    print_row(s, s->ranks == 1 ? least : 0, &a, &b);
  }
  unlink(tokens);
  rmdir(folder);
  return 0;
}
