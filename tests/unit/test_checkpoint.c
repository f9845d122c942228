/* Checkpoints on forked ranks: saved on one mesh, loaded on every other, bit by bit; damaged and
 * foreign files; a full disk; crashes between writes. */
#include <check.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/errors.h"
#include "comm/local.h"
#include "runtime/abi/blocks.h"
#include "runtime/abi/number.h"
#include "state/safetensors.h"
#include "state/state.h"
#include "state/var_block.h"
#include "support/suite.h"

enum { ARENA = 1 << 20, NVARS = 11 };

/* --- a program's variables on a mesh ------------------------------------------------------------
 */
typedef struct World {
  const char *name;
  uint32_t naxes;
  int64_t size[2];
} World;
static const World worlds[] = {
    {"1", 1, {1}}, {"2", 1, {2}}, {"3", 1, {3}}, {"2x2", 2, {2, 2}}, {"1x4", 2, {1, 4}}};
enum { NWORLDS = sizeof worlds / sizeof *worlds };

typedef struct Program {
  AbiHeader header;
  AbiMesh mesh[2];
  int32_t ranks[8];
  AbiType types[NVARS + 1];
  AbiVar vars[NVARS];
  Image image;
} Program;

/* name, kind, dtype, rank, shape, dim of axis 0, dim of axis 1 (-1 Replicate, -2 Partial(sum), -3
 * Partial(max)), chunks, transposed */
static const struct {
  const char *name;
  uint32_t kind, dtype, rank;
  int64_t shape[3];
  int at[2];
  int64_t chunks;
  uint32_t transposed;
} declared[NVARS] = {
    {"w", ABI_VAR_PARAM, ABI_F32, 2, {5, 7}, {0, 1}, 1, 0},
    {"nested", ABI_VAR_PARAM, ABI_F32, 2, {5, 3}, {0, 0}, 1, 0}, /* empty shards */
    {"scale", ABI_VAR_PARAM, ABI_F64, 0, {0}, {-1, -1}, 1, 0},
    {"half", ABI_VAR_PARAM, ABI_BF16, 3, {2, 3, 8}, {2, 1}, 1, 0},
    {"bias", ABI_VAR_PARAM, ABI_F32, 1, {6}, {-2, 0}, 1, 0},
    {"qkv", ABI_VAR_PARAM, ABI_F32, 3, {3, 12, 2}, {1, -1}, 3, 1},
    {"turned", ABI_VAR_PARAM, ABI_F16, 2, {11, 3}, {0, 1}, 1, 1},
    {"gates", ABI_VAR_PARAM, ABI_F32, 2, {2, 7}, {1, 1}, 2, 0},
    {"table", ABI_VAR_BUFFER, ABI_I64, 1, {9}, {-3, 0}, 1, 0},
    {"w.m", ABI_VAR_OPTIMIZER, ABI_F32, 2, {5, 7}, {0, 1}, 1, 0},
    {"grad", ABI_VAR_ACCUMULATOR, ABI_F32, 1, {4}, {-1, -1}, 1, 0},
};

/* Strings of the image: all names, at fixed places. */
static char strings[1024];
static uint32_t strings_n;
static uint32_t string(const char *s) {
  for (uint32_t i = 1; i < strings_n; i += (uint32_t)strlen(strings + i) + 1)
    if (strcmp(strings + i, s) == 0) return i;
  if (!strings_n) strings_n = 1;
  uint32_t at = strings_n;
  strcpy(strings + at, s);
  strings_n += (uint32_t)strlen(s) + 1;
  return at;
}

static void program_init(Program *p, const World *w) {
  memset(p, 0, sizeof *p);
  p->mesh[1] = (AbiMesh){.naxes = w->naxes, .size = {w->size[0], w->size[1]}, .nranks = 1};
  for (uint32_t a = 0; a < w->naxes; a++) p->mesh[1].nranks *= w->size[a];
  for (int i = 0; i < 8; i++) p->ranks[i] = i;
  uint64_t offset = 64;
  for (uint32_t i = 0; i < NVARS; i++) {
    AbiType *t = &p->types[i + 1];
    *t = (AbiType){.dtype = declared[i].dtype, .rank = declared[i].rank, .mesh = 1};
    memcpy(t->shape, declared[i].shape, sizeof declared[i].shape);
    for (uint32_t a = 0; a < w->naxes; a++) {
      int d = declared[i].at[a];
      if (w->size[a] == 1 || d == -1) continue;
      if (d < 0)
        t->at[a] = (AbiPlace){.kind = ABI_PARTIAL, .op = d == -2 ? ABI_SUM : ABI_MAX};
      else
        t->at[a] = (AbiPlace){.kind = ABI_SHARD,
                              .dim = (uint8_t)d,
                              .order = a == 1 && declared[i].at[0] == d && w->size[0] > 1};
    }
    p->vars[i] = (AbiVar){.kind = declared[i].kind,
                          .name = string(declared[i].name),
                          .type = i + 1,
                          .chunks = declared[i].chunks,
                          .transposed = declared[i].transposed,
                          .offset = offset,
                          .source = string("t.dtm:1:1")};
    offset += 16384;
  }
  p->image = (Image){.header = &p->header,
                     .string = strings,
                     .string_count = sizeof strings,
                     .mesh = p->mesh,
                     .mesh_count = 2,
                     .rank = p->ranks,
                     .rank_count = 8,
                     .type = p->types,
                     .type_count = NVARS + 1,
                     .var = p->vars,
                     .var_count = NVARS};
}

/* Element g of the full tensor of variable i; exact in bf16. */
static double value(uint32_t i, int64_t g) {
  return (double)(i * 16) + (double)(g % 64) * 0.25 * (declared[i].dtype == ABI_I64 ? 4 : 1);
}

/* Index in the full tensor of each element of a rank's block, by brute force; returns the count. */
static int64_t block_indices(const Program *p, uint32_t i, int64_t rank, int64_t *out) {
  const AbiType *t = &p->types[i + 1];
  int64_t coord[ABI_MAX_AXES], n = 0, total = 1;
  abi_coords(&p->mesh[1], rank, coord);
  for (uint32_t d = 0; d < t->rank; d++) total *= t->shape[d];
  for (int64_t g = 0; g < total; g++) {
    int64_t rest = g;
    bool mine = true;
    for (uint32_t d = t->rank; d-- > 0;) {
      int64_t index = rest % t->shape[d], extent = t->shape[d], offset, local;
      rest /= t->shape[d];
      abi_block_dim(extent, d, t->at, p->mesh[1].size, coord, &offset, &local);
      mine &= index >= offset && index < offset + local;
    }
    if (mine) out[n++] = g;
  }
  return n;
}

/* --- ranks as processes
 * --------------------------------------------------------------------------- */
typedef int RankBody(RtComm *c, Program *p, const char *path);

/* Runs `body` on all ranks; returns the largest exit status. What they print goes to `log`. */
static char log_text[8192];
static int run(const World *w, RankBody *body, const char *path) {
  Program p;
  program_init(&p, w);
  LocalSegment segment;
  LocalSetup setup = {(int32_t)p.mesh[1].nranks, ARENA, false};
  ck_assert_int_eq(dtm_local_create(&setup, &segment), 0);
  char name[] = "/tmp/dtm_test_log_XXXXXX";
  int log = mkstemp(name);
  unlink(name);
  for (int r = 0; r < setup.world; r++)
    if (fork() == 0) {
      dup2(log, STDERR_FILENO);
      RtComm *c = dtm_local_join(&segment, r, 1, 20);
      int status = body(c, &p, path);
      c->ops->destroy(c, status);
      _exit(status);
    }
  int worst = 0;
  for (int r = 0; r < setup.world; r++) {
    int status;
    ck_assert(wait(&status) > 0);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 200;
    if (code > worst) worst = code;
  }
  ssize_t n = pread(log, log_text, sizeof log_text - 1, 0);
  log_text[n > 0 ? n : 0] = 0;
  close(log);
  close(segment.fd);
  return worst;
}

static void fill(RtComm *c, Program *p) {
  int64_t g[8192];
  for (uint32_t i = 0; i < NVARS; i++) {
    int64_t n = block_indices(p, i, c->rank, g), neutral;
    VarBlock b;
    dtm_rt_var_block(&p->image, i, c->rank, &b);
    bool keeps = dtm_rt_var_keeps(&b, &neutral);
    for (int64_t k = 0; k < n; k++)
      abi_store(c->arena + p->vars[i].offset, declared[i].dtype, k, keeps ? value(i, g[k]) : 0);
  }
}

/* 0, or 50 + the variable that is wrong. */
static int compare(RtComm *c, Program *p, bool optimizer) {
  int64_t g[8192];
  for (uint32_t i = 0; i < NVARS; i++) {
    if (declared[i].kind == ABI_VAR_ACCUMULATOR) continue;
    if (declared[i].kind == ABI_VAR_OPTIMIZER && !optimizer) continue;
    int64_t n = block_indices(p, i, c->rank, g);
    bool first = true;
    for (uint32_t a = 0; a < p->mesh[1].naxes; a++) {
      int64_t coord[ABI_MAX_AXES];
      abi_coords(&p->mesh[1], c->rank, coord);
      AbiPlace at = p->types[i + 1].at[a];
      if (at.kind == ABI_PARTIAL && at.op == ABI_SUM && coord[a]) first = false;
    }
    for (int64_t k = 0; k < n; k++)
      if (abi_load(c->arena + p->vars[i].offset, declared[i].dtype, k) !=
          (first ? value(i, g[k]) : 0))
        return 50 + (int)i;
  }
  return 0;
}

static const RtProgress progress = {12, 3, 45, 0xfedcba9876543210ull};

static int save_body(RtComm *c, Program *p, const char *path) {
  fill(c, p);
  /* Addends of a Partial may lie on any rank: 100 moves from coordinate 0 to the others. */
  if (p->types[5].at[0].kind == ABI_PARTIAL) {
    int64_t g[64], n = block_indices(p, 4, c->rank, g), coord[ABI_MAX_AXES];
    abi_coords(&p->mesh[1], c->rank, coord);
    for (int64_t k = 0; k < n; k++)
      ((float *)(c->arena + p->vars[4].offset))[k] +=
          coord[0] ? 100.0f : -100.0f * (float)(p->mesh[1].size[0] - 1);
  }
  int status = dtm_rt_checkpoint_save(c, &p->image, path, &progress);
  return status ? status : compare(c, p, true);
}

static int save_later_body(RtComm *c, Program *p, const char *path) {
  const RtProgress later = {13, 3, 46, 5};
  fill(c, p);
  return dtm_rt_checkpoint_save(c, &p->image, path, &later);
}

static int probe_body(RtComm *c, Program *p, const char *path) {
  (void)p;
  return dtm_rt_checkpoint_probe(c, path);
}

static int resume_body(RtComm *c, Program *p, const char *path) {
  RtProgress at;
  int status = dtm_rt_checkpoint_load(c, &p->image, path, &at);
  if (status) return status;
  if (memcmp(&at, &progress, sizeof at) != 0) return 49;
  return compare(c, p, true);
}

static int load_body(RtComm *c, Program *p, const char *path) {
  int status = dtm_rt_state_load(c, &p->image, path);
  return status ? status : compare(c, p, false);
}

static char folder[64], file[128];
static void make_folder(void) {
  strcpy(folder, "/tmp/dtm_test_ckpt_XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
  snprintf(file, sizeof file, "%s/model.safetensors", folder);
}
static void drop_folder(void) {
  char command[128];
  snprintf(command, sizeof command, "rm -rf '%s'", folder);
  ck_assert_int_eq(system(command), 0);
}
static int count_files(const char *where) {
  DIR *d = opendir(where);
  int n = 0;
  for (struct dirent *e; d && (e = readdir(d));) n += e->d_name[0] != '.';
  if (d) closedir(d);
  return n;
}

START_TEST(every_mesh) {
  make_folder();
  for (int from = 0; from < NWORLDS; from++) {
    ck_assert_msg(run(&worlds[from], save_body, file) == 0, "%s", log_text);
    for (int to = 0; to < NWORLDS; to++) {
      int status = run(&worlds[to], resume_body, file);
      ck_assert_msg(status == 0, "saved on %s, loaded on %s: %d %s", worlds[from].name,
                    worlds[to].name, status, log_text);
    }
    ck_assert_int_eq(run(&worlds[3], load_body, folder), 0);
    char state[160];
    snprintf(state, sizeof state, "%s.state", file);
    ck_assert_int_eq(count_files(state), 1); /* only the newest */
    ck_assert_int_eq(count_files(folder), 2);
  }
  drop_folder();
}
END_TEST

static void expect_refusal(int status, const char *text) {
  ck_assert_msg(status == RT_BAD_DATA, "status %d: %s", status, log_text);
  ck_assert_msg(strstr(log_text, text), "\"%s\" is not in: %s", text, log_text);
  char *first = strstr(log_text, "error:");
  ck_assert(first && !strstr(first + 1, "error:")); /* said once */
}

START_TEST(damaged) {
  make_folder();
  ck_assert_int_eq(run(&worlds[0], save_body, file), 0);
  FILE *f = fopen(file, "rb");
  static char bytes[8192];
  size_t n = fread(bytes, 1, sizeof bytes, f);
  fclose(f);
  for (size_t cut = 0; cut < n; cut += cut < 200 ? 7 : 61) {
    f = fopen(file, "wb");
    fwrite(bytes, 1, cut, f);
    fclose(f);
    expect_refusal(run(&worlds[1], resume_body, file), file);
  }
  f = fopen(file, "wb");
  fwrite(bytes, 1, n, f);
  fclose(f);
  ck_assert_int_eq(run(&worlds[1], resume_body, file), 0);
  /* The state beside it gone. */
  char command[256];
  snprintf(command, sizeof command, "rm -r '%s.state'", file);
  ck_assert_int_eq(system(command), 0);
  expect_refusal(run(&worlds[1], resume_body, file), "No such file");
  ck_assert_int_eq(run(&worlds[1], load_body, file), 0);
  drop_folder();
}
END_TEST

/* Flips one bit `back` bytes before the end of a file. */
static void flip(const char *path, long back) {
  FILE *f = fopen(path, "r+b");
  ck_assert_ptr_nonnull(f);
  fseek(f, -back, SEEK_END);
  int c = fgetc(f);
  fseek(f, -back, SEEK_END);
  fputc(c ^ 4, f);
  fclose(f);
}

/* The one file of FILE.state. */
static void state_file(char path[512]) {
  char where[160];
  snprintf(where, sizeof where, "%s.state", file);
  DIR *d = opendir(where);
  ck_assert_ptr_nonnull(d);
  for (struct dirent *e; (e = readdir(d));)
    if (e->d_name[0] != '.') snprintf(path, 512, "%s/%s", where, e->d_name);
  closedir(d);
}

/* A wrong bit, on any mesh, names the tensor; so does a pair of files that do not belong together.
 */
START_TEST(content) {
  make_folder();
  char state[512], other[512], command[1200];
  ck_assert_int_eq(run(&worlds[3], save_body, file), 0);
  state_file(state);
  for (long back = 1; back < 400; back += 97) {
    flip(file, back);
    for (int w = 0; w < NWORLDS; w += 2)
      expect_refusal(run(&worlds[w], resume_body, file), "is damaged: the content of tensor");
    expect_refusal(run(&worlds[1], load_body, file), "is damaged: the content of tensor");
    flip(file, back);
  }
  ck_assert_int_eq(run(&worlds[2], resume_body, file), 0);
  flip(state, 3);
  expect_refusal(run(&worlds[1], resume_body, file), "tensor \"w.m\" is not what was saved");
  ck_assert_int_eq(run(&worlds[1], load_body, file), 0);
  flip(state, 3);
  snprintf(command, sizeof command, "cp '%s' '%s/old'", state, folder);
  ck_assert_int_eq(system(command), 0);
  ck_assert_int_eq(run(&worlds[3], save_later_body, file), 0);
  state_file(other);
  ck_assert_str_ne(state, other);
  snprintf(command, sizeof command, "cp '%s/old' '%s'", folder, other);
  ck_assert_int_eq(system(command), 0);
  expect_refusal(run(&worlds[1], resume_body, file), "of step 12");
  drop_folder();
}
END_TEST

/* A link stays a link: what it leads to is replaced. */
START_TEST(links) {
  make_folder();
  char link_path[160], path[160];
  struct stat s;
  snprintf(link_path, sizeof link_path, "%s/latest", folder);
  ck_assert_int_eq(symlink("model.safetensors", link_path), 0); /* leads nowhere yet */
  ck_assert_int_eq(run(&worlds[1], probe_body, link_path), 0);
  for (int turn = 0; turn < 2; turn++) {
    ck_assert_int_eq(run(&worlds[1], save_body, link_path), 0);
    ck_assert(lstat(link_path, &s) == 0 && S_ISLNK(s.st_mode));
    ck_assert(lstat(file, &s) == 0 && S_ISREG(s.st_mode));
    ck_assert_int_eq(run(&worlds[2], resume_body, file), 0);
    ck_assert_int_eq(run(&worlds[2], resume_body, link_path), 0);
    ck_assert_int_eq(count_files(folder), 3);
  }
  snprintf(path, sizeof path, "%s/loop", folder);
  ck_assert_int_eq(symlink("loop", path), 0);
  expect_refusal(run(&worlds[1], save_body, path), "leads nowhere");
  expect_refusal(run(&worlds[1], probe_body, path), "leads nowhere");
  drop_folder();
}
END_TEST

/* Writes a file of one-dim f32 tensors. */
static void foreign_file(const char *const *names, const int64_t shapes[][2], size_t n) {
  StEntry entries[16];
  for (size_t i = 0; i < n; i++)
    entries[i] = (StEntry){.name = names[i], .dtype = ABI_F32, .rank = 2, .shape = shapes[i]};
  static const char *const metadata[] = {"format", "pt"};
  size_t header_size;
  uint64_t size;
  unsigned char *header = dtm_rt_st_header(entries, n, metadata, 1, &header_size, &size);
  FILE *f = fopen(file, "wb");
  fwrite(header, 1, header_size, f);
  for (uint64_t i = 0; i < (size - header_size) / 4; i++) {
    float v = (float)i;
    fwrite(&v, 4, 1, f);
  }
  fclose(f);
  free(header);
}

/* What is saved is what the program declares of files: names, merged dims, the last dim first. */
static int save_foreign_body(RtComm *c, Program *p, const char *path) {
  p->vars[5].foreign_name = string("hf.qkv");
  p->types[7].shape[0] = 2100; /* runs longer than are written at once */
  return save_body(c, p, path);
}

START_TEST(storage) {
  make_folder();
  for (int w = 0; w < NWORLDS; w++) {
    ck_assert_msg(run(&worlds[w], save_foreign_body, file) == 0, "%s", log_text);
    StStore store;
    char why[ST_WHY];
    ck_assert_msg(dtm_rt_st_open(&store, file, why), "%s", why);
    const StTensor *t = dtm_rt_st_find(&store, "hf.qkv");
    ck_assert(t && t->rank == 2 && t->shape[0] == 2 && t->shape[1] == 36);
    ck_assert_ptr_null(dtm_rt_st_find(&store, "qkv"));
    for (int64_t i = 0; i < 2; i++)
      for (int64_t o = 0; o < 36; o++)
        ck_assert(abi_load(dtm_rt_st_data(&store, t), ABI_F32, i * 36 + o) == value(5, o * 2 + i));
    t = dtm_rt_st_find(&store, "gates");
    ck_assert(t && t->rank == 1 && t->shape[0] == 14);
    dtm_rt_st_close(&store);
  }
  drop_folder();
}
END_TEST

/* Two variables: "w" under a foreign name, transposed there and f32 for bf16; "qkv" as it is. */
static void make_foreign(Program *p) {
  p->image.var_count = 2;
  p->vars[0].foreign_name = string("hf.w");
  p->vars[0].transposed = 1;
  p->types[1].dtype = ABI_BF16;
  p->vars[1].foreign_name = string("hf.qkv");
}

static int foreign_body(RtComm *c, Program *p, const char *path) {
  make_foreign(p);
  int status = dtm_rt_state_load(c, &p->image, path);
  int64_t g[64], n = block_indices(p, 0, c->rank, g);
  for (int64_t k = 0; k < n && !status; k++) {
    int64_t i = g[k] / 7, j = g[k] % 7; /* stored as [7, 5] */
    if (abi_load(c->arena + p->vars[0].offset, ABI_BF16, k) != (double)(j * 5 + i)) return 60;
  }
  return status;
}

START_TEST(foreign) {
  make_folder();
  foreign_file((const char *const[]){"hf.w", "hf.qkv", "extra"},
               (const int64_t[][2]){{7, 5}, {5, 3}, {1, 1}}, 3);
  for (int w = 0; w < NWORLDS; w++)
    ck_assert_msg(run(&worlds[w], foreign_body, file) == 0, "%s", log_text);
  ck_assert_ptr_nonnull(strstr(log_text, "extra"));
  foreign_file((const char *const[]){"lm.hf.w", "lm.hf.qkv", "hf.other"},
               (const int64_t[][2]){{7, 5}, {5, 3}, {1, 1}}, 3);
  ck_assert_msg(run(&worlds[1], foreign_body, file) == 0, "%s", log_text);
  foreign_file((const char *const[]){"lm.hf.w", "bert.hf.qkv"},
               (const int64_t[][2]){{7, 5}, {5, 3}}, 2);
  expect_refusal(run(&worlds[1], foreign_body, file), "lacks 2 of the program's tensors");
  foreign_file((const char *const[]){"hf.w", "hf.qvk"}, (const int64_t[][2]){{7, 5}, {5, 3}}, 2);
  expect_refusal(run(&worlds[1], foreign_body, file), "hf.qkv; the file has hf.qvk");
  foreign_file((const char *const[]){"hf.w", "hf.qkv"}, (const int64_t[][2]){{5, 7}, {5, 3}}, 2);
  expect_refusal(run(&worlds[1], foreign_body, file), "\"hf.w\" is F32[5, 7], but w");
  expect_refusal(run(&worlds[1], resume_body, file), "--load instead of --resume");
  drop_folder();
}
END_TEST

/* A full disk, as a limit on the size of files: the old file stays, nothing is left over. */
static int full_body(RtComm *c, Program *p, const char *path) {
  signal(SIGXFSZ, SIG_IGN);
  struct rlimit limit = {600, 600};
  setrlimit(RLIMIT_FSIZE, &limit);
  return save_body(c, p, path);
}

START_TEST(full_disk) {
  make_folder();
  ck_assert_int_eq(run(&worlds[3], save_body, file), 0);
  expect_refusal(run(&worlds[3], full_body, file), "free some space");
  ck_assert_int_eq(run(&worlds[1], resume_body, file), 0);
  ck_assert_int_eq(count_files(folder), 2);
  char path[160];
  snprintf(path, sizeof path, "%s/absent/model.safetensors", folder);
  expect_refusal(run(&worlds[3], save_body, path), "No such file");
  drop_folder();
}
END_TEST

/* Where no checkpoint can be put is known before training; nothing is replaced by asking. */
START_TEST(probed) {
  make_folder();
  ck_assert_int_eq(run(&worlds[1], probe_body, file), 0);
  ck_assert_int_eq(count_files(folder), 1); /* FILE.state/, which the run holds */
  expect_refusal(run(&worlds[1], probe_body, folder), "it is a folder");
  char path[160];
  snprintf(path, sizeof path, "%s/absent/model.safetensors", folder);
  expect_refusal(run(&worlds[1], probe_body, path), "No such file");
  snprintf(path, sizeof path, "%s/pipe", folder);
  ck_assert_int_eq(mkfifo(path, 0666), 0);
  expect_refusal(run(&worlds[1], probe_body, path), "not a file");
  ck_assert_int_eq(count_files(folder), 2);
  drop_folder();
}
END_TEST

/* Killed while a new checkpoint is half-written: the old one is whole. */
START_TEST(crashed) {
  make_folder();
  ck_assert_int_eq(run(&worlds[3], save_body, file), 0);
  char path[256];
  snprintf(path, sizeof path, "%s.partial", file);
  FILE *f = fopen(path, "wb");
  fputs("half", f);
  fclose(f);
  snprintf(path, sizeof path, "%s.state/optimizer-13-1.safetensors", file);
  f = fopen(path, "wb");
  fputs("half", f);
  fclose(f);
  ck_assert_int_eq(run(&worlds[2], resume_body, file), 0);
  ck_assert_int_eq(run(&worlds[2], save_body, file), 0);
  ck_assert_int_eq(run(&worlds[4], resume_body, file), 0);
  snprintf(path, sizeof path, "%s.state", file);
  ck_assert_int_eq(count_files(path), 1);
  drop_folder();
}
END_TEST

int main(void) {
  Suite *s = suite_create("checkpoint");
  TCase *c = tcase_create("checkpoint");
  tcase_set_timeout(c, 60);
  tcase_add_test(c, every_mesh);
  tcase_add_test(c, damaged);
  tcase_add_test(c, content);
  tcase_add_test(c, links);
  tcase_add_test(c, foreign);
  tcase_add_test(c, storage);
  tcase_add_test(c, full_disk);
  tcase_add_test(c, probed);
  tcase_add_test(c, crashed);
  suite_add_tcase(s, c);
  return suite_run(s);
}
