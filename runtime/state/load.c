/* Loading variables from safetensors: every rank cuts its own block out of the mapped files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/errors.h"
#include "runtime/abi/number.h"
#include "state/checksum.h"
#include "state/files.h"

enum { LISTED = 8 /* names shown in one message */ };

/* One variable on its way from a file into the arena. */
typedef struct Load {
  const VarBlock *block;
  const void *file;
  uint32_t file_dtype;
  unsigned char *local;
} Load;

static int load_run(void *context, VarRun r) {
  const Load *l = context;
  uint32_t dtype = l->block->type->dtype;
  size_t size = abi_dtype_bytes(dtype);
  if (dtype == l->file_dtype) {
    const unsigned char *from = (const unsigned char *)l->file + (size_t)r.global * size;
    unsigned char *to = l->local + (size_t)r.local * size;
    if (r.step == 1)
      memcpy(to, from, (size_t)r.count * size);
    else
      for (int64_t k = 0; k < r.count; k++)
        memcpy(to + (size_t)(k * r.step) * size, from + (size_t)k * size, size);
    return 0;
  }
  for (int64_t k = 0; k < r.count; k++) {
    int64_t to = r.local + k * r.step;
    if (abi_is_float(dtype))
      abi_store(l->local, dtype, to, abi_load(l->file, l->file_dtype, r.global + k));
    else
      abi_store_int(l->local, dtype, to, abi_load_int(l->file, l->file_dtype, r.global + k));
  }
  return 0;
}

static void load_block(RtComm *comm, const VarBlock *b, const StStore *store, const StTensor *t) {
  int64_t neutral;
  unsigned char *local = comm->arena + b->var->offset;
  if (!dtm_rt_var_keeps(b, &neutral)) {
    for (int64_t i = 0; i < dtm_rt_var_count(b); i++)
      if (abi_is_float(b->type->dtype))
        abi_store(local, b->type->dtype, i, (double)neutral);
      else
        abi_store_int(local, b->type->dtype, i, neutral);
    return;
  }
  Load l = {b, dtm_rt_st_data(store, t), t->dtype, local};
  dtm_rt_var_runs(b, load_run, &l);
}

/* A file being read: where its tensors are, and what all their names begin with beside what the
 * program says ("transformer."; "" as a rule). */
typedef struct Names {
  const Image *image;
  const LoadSetup *setup;
  const StStore *store;
  char prefix[64];
} Names;

static const char *file_name(const Image *image, const AbiVar *v) {
  return abi_text(image, v->foreign_name ? v->foreign_name : v->name);
}

/* The tensor of a variable: under its name in files, or its own. */
static const StTensor *find_tensor(const Names *n, const AbiVar *v) {
  const char *name = file_name(n->image, v);
  char longer[ST_WHY];
  const StTensor *t = NULL;
  if (*n->prefix && snprintf(longer, sizeof longer, "%s%s", n->prefix, name) < (int)sizeof longer)
    t = dtm_rt_st_find(n->store, longer);
  if (!t) t = dtm_rt_st_find(n->store, name);
  return t || !v->foreign_name ? t : dtm_rt_st_find(n->store, abi_text(n->image, v->name));
}

static bool finds_all(const Names *n) {
  for (uint32_t i = 0; i < n->image->var_count; i++)
    if (n->setup->wanted(&n->image->var[i]) && !find_tensor(n, &n->image->var[i])) return false;
  return true;
}

/* Files put the same model into a larger one at times: "transformer.h.0.ln_1.weight" for
 * "h.0.ln_1.weight". A prefix is taken when every tensor is found with it. */
static void find_prefix(Names *n) {
  const AbiVar *v = NULL;
  for (uint32_t i = 0; i < n->image->var_count && !v; i++)
    if (n->setup->wanted(&n->image->var[i]) && !find_tensor(n, &n->image->var[i]))
      v = &n->image->var[i];
  if (!v) return;
  const char *name = file_name(n->image, v);
  size_t length = strlen(name);
  for (size_t i = 0; i < n->store->ntensors; i++) {
    const char *have = n->store->tensors[i].name;
    size_t more = strlen(have) > length ? strlen(have) - length : 0;
    if (!more || more >= sizeof n->prefix || have[more - 1] != '.' ||
        strcmp(have + more, name) != 0)
      continue;
    memcpy(n->prefix, have, more);
    n->prefix[more] = 0;
    if (finds_all(n)) return;
    n->prefix[0] = 0;
  }
}

static void print_shape(char *out, size_t room, const int64_t *shape, uint32_t rank) {
  size_t n = (size_t)snprintf(out, room, "[");
  for (uint32_t d = 0; d < rank && n < room; d++)
    n += (size_t)snprintf(out + n, room - n, "%s%lld", d ? ", " : "", (long long)shape[d]);
  if (n < room) snprintf(out + n, room - n, "]");
}

/* Whether tensor and variable agree; reports when not. */
static int check_tensor(RtComm *comm, const Image *image, const AbiVar *v, const StTensor *t,
                        const char *path) {
  const AbiType *type = &image->type[v->type];
  int64_t want[ABI_MAX_DIMS] = {0};
  char have_text[200], want_text[200];
  uint32_t rank = dtm_rt_var_file_shape(v, type, want);
  bool same = t->rank == rank;
  for (uint32_t d = 0; d < rank && same; d++) same = t->shape[d] == want[d];
  bool floats = abi_is_float(type->dtype) && abi_is_float(t->dtype);
  if (same && (t->dtype == type->dtype || floats)) return 0;
  print_shape(have_text, sizeof have_text, t->shape, t->rank);
  print_shape(want_text, sizeof want_text, want, rank);
  return dtm_rt_fail(comm, RT_BAD_DATA,
                     "%s: tensor \"%s\" is %s%s, but %s (declared at %s) needs %s%s%s", path,
                     t->name, t->dtype_name, have_text, abi_text(image, v->name),
                     abi_text(image, v->source), abi_dtype_name(type->dtype), want_text,
                     same ? "; only floats are converted into one another" : "");
}

/* Letters that differ, for "did you mean": the length without common beginning and end. */
static size_t distance(const char *a, const char *b) {
  size_t n = strlen(a), m = strlen(b), i = 0;
  while (i < n && i < m && a[i] == b[i]) i++;
  while (n > i && m > i && a[n - 1] == b[m - 1]) n--, m--;
  return (n > m ? n : m) - i;
}

static const char *nearest(const StStore *store, const char *name) {
  const char *best = NULL;
  size_t least = strlen(name) / 2 + 1;
  for (size_t i = 0; i < store->ntensors; i++) {
    size_t d = distance(store->tensors[i].name, name);
    if (d < least) {
      least = d;
      best = store->tensors[i].name;
    }
  }
  return best;
}

static int missing(RtComm *comm, const Names *names) {
  const Image *image = names->image;
  char list[1500];
  size_t n = 0, count = 0;
  for (uint32_t i = 0; i < image->var_count; i++) {
    const AbiVar *v = &image->var[i];
    if (!names->setup->wanted(v) || find_tensor(names, v)) continue;
    if (count++ >= LISTED) continue;
    const char *name = file_name(image, v), *near = nearest(names->store, name);
    if (n < sizeof list)
      n += (size_t)snprintf(list + n, sizeof list - n, "\n  %.120s%s%.120s", name,
                            near ? "; the file has " : "", near ? near : "");
  }
  if (!count) return 0;
  return dtm_rt_fail(comm, RT_BAD_DATA, "%s lacks %zu of the program's tensors:%s%s",
                     names->setup->path, count, list, count > LISTED ? "\n  ..." : "");
}

/* Tensors of the file that no variable takes, said once. */
static void warn_unexpected(RtComm *comm, const Names *names) {
  const StStore *store = names->store;
  size_t taken = 0, count = 0, n = 0;
  char list[600] = "";
  bool *used = calloc(store->ntensors + 1, sizeof *used);
  if (!used) return;
  for (uint32_t i = 0; i < names->image->var_count; i++) {
    if (!names->setup->wanted(&names->image->var[i])) continue;
    const StTensor *t = find_tensor(names, &names->image->var[i]);
    if (t && !used[t - store->tensors]) taken++;
    if (t) used[t - store->tensors] = true;
  }
  for (size_t i = 0; i < store->ntensors; i++)
    if (!used[i] && count++ < LISTED && n < sizeof list)
      n += (size_t)snprintf(list + n, sizeof list - n, "%s%.100s", n ? ", " : "",
                            store->tensors[i].name);
  free(used);
  if (count && taken)
    dtm_rt_warn(comm, "%s: %zu tensors are not used: %s%s", names->setup->path, count, list,
                count > LISTED ? ", ..." : "");
}

typedef struct SumRun {
  const unsigned char *file;
  size_t element;
  uint64_t sum;
} SumRun;

static int sum_run(void *context, VarRun r) {
  SumRun *s = context;
  s->sum += dtm_rt_checksum(s->file + (size_t)r.global * s->element, s->element, r.global, r.count);
  return 0;
}

/* Collective: the content of every tensor that is wanted, out of a file of ours, against its
 * checksum. Each rank adds up the blocks that it owns. */
static int check_content(RtComm *comm, const Names *names) {
  const Image *image = names->image;
  const StStore *store = names->store;
  const char *path = names->setup->path, *digits = dtm_rt_st_metadata(store, CHECKSUM_KEY);
  if (!digits) return 0; /* of another program */
  if (strlen(digits) != store->ntensors * CHECKSUM_DIGITS)
    return dtm_rt_fail(comm, RT_BAD_DATA, "%s is damaged: its header lacks checksums", path);
  uint64_t *sums = calloc(store->ntensors + 1, sizeof *sums);
  if (!sums) return dtm_rt_fail(comm, RT_DEVICE, "out of memory");
  for (uint32_t i = 0; i < image->var_count; i++) {
    VarBlock b;
    const AbiVar *v = &image->var[i];
    if (!names->setup->wanted(v)) continue;
    dtm_rt_var_block(image, i, comm->rank, &b);
    const StTensor *t = find_tensor(names, v);
    if (!b.present || !b.owner) continue;
    SumRun run = {dtm_rt_st_data(store, t), (size_t)(t->end - t->begin), 0};
    int64_t elements = 1;
    for (uint32_t d = 0; d < t->rank; d++) elements *= t->shape[d];
    if (elements) run.element /= (size_t)elements;
    dtm_rt_var_runs(&b, sum_run, &run);
    sums[t - store->tensors] += run.sum;
    dtm_rt_comm_tick(comm);
  }
  int status = dtm_rt_checksum_add_up(comm, sums, store->ntensors);
  for (uint32_t i = 0; i < image->var_count && !status; i++) {
    uint64_t want;
    if (!names->setup->wanted(&image->var[i])) continue;
    const StTensor *t = find_tensor(names, &image->var[i]);
    size_t at = (size_t)(t - store->tensors);
    if (!dtm_rt_checksum_read(digits + at * CHECKSUM_DIGITS, &want) || want != sums[at])
      status = dtm_rt_fail(comm, RT_BAD_DATA,
                           "%s is damaged: the content of tensor \"%s\" is not what was saved "
                           "(its checksum differs)",
                           path, t->name);
  }
  free(sums);
  return status;
}

static int load_variable(RtComm *comm, const VarBlock *b, const StStore *store, const StTensor *t) {
  size_t bytes = (size_t)dtm_rt_var_count(b) * abi_dtype_bytes(b->type->dtype);
  load_block(comm, b, store, t);
  int status = dtm_rt_comm_flush(comm, b->var->offset, bytes);
  dtm_rt_comm_release(comm, b->var->offset, bytes);
  return status;
}

int dtm_rt_load_vars(RtComm *comm, const Image *image, const LoadSetup *setup,
                     const StStore *store) {
  Names names = {.image = image, .setup = setup, .store = store};
  find_prefix(&names);
  int status = missing(comm, &names);
  /* All are checked before the first is overwritten. */
  for (int pass = 0; pass < 2 && !status; pass++) {
    if (pass == 1) status = check_content(comm, &names);
    for (uint32_t i = 0; i < image->var_count && !status; i++) {
      const AbiVar *v = &image->var[i];
      VarBlock b;
      if (!setup->wanted(v)) continue;
      const StTensor *t = find_tensor(&names, v);
      dtm_rt_var_block(image, i, comm->rank, &b);
      if (pass == 0)
        status = check_tensor(comm, image, v, t, setup->path);
      else if (b.present)
        status = load_variable(comm, &b, store, t);
      dtm_rt_comm_tick(comm);
    }
  }
  if (!status) warn_unexpected(comm, &names);
  return status;
}
