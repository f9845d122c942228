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
  bool transposed;
  unsigned char *local;
} Load;

static int load_run(void *context, VarRun r) {
  const Load *l = context;
  uint32_t dtype = l->block->type->dtype;
  size_t size = abi_dtype_bytes(dtype);
  if (dtype == l->file_dtype && !l->transposed) {
    memcpy(l->local + (size_t)r.local * size,
           (const unsigned char *)l->file + (size_t)r.global * size, (size_t)r.count * size);
    return 0;
  }
  int64_t rows = l->block->type->shape[0], columns = l->block->type->shape[1];
  for (int64_t k = 0; k < r.count; k++) {
    int64_t g = r.global + k, at = l->transposed ? g % columns * rows + g / columns : g;
    if (abi_is_float(dtype))
      abi_store(l->local, dtype, r.local + k, abi_load(l->file, l->file_dtype, at));
    else
      abi_store_int(l->local, dtype, r.local + k, abi_load_int(l->file, l->file_dtype, at));
  }
  return 0;
}

/* The block's elements, all chunks. */
static int64_t count_block(const VarBlock *b) {
  int64_t n = b->chunks;
  for (uint32_t d = 0; d < b->type->rank; d++) n *= b->extent[d];
  return n;
}

static void load_block(RtComm *comm, const VarBlock *b, const StStore *store, const StTensor *t,
                       bool transposed) {
  int64_t neutral;
  unsigned char *local = comm->arena + b->var->offset;
  if (!dtm_rt_var_keeps(b, &neutral)) {
    for (int64_t i = 0; i < count_block(b); i++)
      if (abi_is_float(b->type->dtype))
        abi_store(local, b->type->dtype, i, (double)neutral);
      else
        abi_store_int(local, b->type->dtype, i, neutral);
    return;
  }
  Load l = {b, dtm_rt_st_data(store, t), t->dtype, transposed, local};
  dtm_rt_var_runs(b, load_run, &l);
}

/* The tensor of a variable. Files that we wrote hold our names and order; others the foreign name
 * first, and foreign order. */
static const StTensor *find_tensor(const Image *image, const AbiVar *v, const StStore *store,
                                   bool ours, bool *transposed) {
  const StTensor *t = NULL;
  if (!ours && v->foreign_name) t = dtm_rt_st_find(store, abi_text(image, v->foreign_name));
  if (!t) t = dtm_rt_st_find(store, abi_text(image, v->name));
  *transposed = !ours && v->transposed;
  return t;
}

static void print_shape(char *out, size_t room, const int64_t *shape, uint32_t rank) {
  size_t n = (size_t)snprintf(out, room, "[");
  for (uint32_t d = 0; d < rank && n < room; d++)
    n += (size_t)snprintf(out + n, room - n, "%s%lld", d ? ", " : "", (long long)shape[d]);
  if (n < room) snprintf(out + n, room - n, "]");
}

/* Whether tensor and variable agree; reports when not. */
static int check_tensor(RtComm *comm, const Image *image, const VarBlock *b, const StTensor *t,
                        const char *path, bool transposed) {
  const AbiType *type = b->type;
  int64_t want[ABI_MAX_DIMS] = {0};
  char have_text[200], want_text[200];
  bool same = t->rank == type->rank;
  for (uint32_t d = 0; d < type->rank; d++)
    want[d] = type->shape[transposed && type->rank == 2 ? 1 - d : d];
  for (uint32_t d = 0; d < type->rank && same; d++) same = t->shape[d] == want[d];
  bool floats = abi_is_float(type->dtype) && abi_is_float(t->dtype);
  if (same && (t->dtype == type->dtype || floats)) return 0;
  print_shape(have_text, sizeof have_text, t->shape, t->rank);
  print_shape(want_text, sizeof want_text, want, type->rank);
  return dtm_rt_fail(comm, RT_BAD_DATA,
                     "%s: tensor \"%s\" is %s%s, but %s (declared at %s) needs %s%s%s", path,
                     t->name, t->dtype_name, have_text, abi_text(image, b->var->name),
                     abi_text(image, b->var->source), abi_dtype_name(type->dtype), want_text,
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

static int missing(RtComm *comm, const Image *image, const LoadSetup *setup, const StStore *store,
                   bool ours) {
  char list[1500];
  size_t n = 0, count = 0;
  for (uint32_t i = 0; i < image->var_count; i++) {
    const AbiVar *v = &image->var[i];
    bool transposed;
    if (!setup->wanted(v) || find_tensor(image, v, store, ours, &transposed)) continue;
    if (count++ >= LISTED) continue;
    const char *name = abi_text(image, !ours && v->foreign_name ? v->foreign_name : v->name);
    const char *near = nearest(store, name);
    if (n < sizeof list)
      n += (size_t)snprintf(list + n, sizeof list - n, "\n  %.120s%s%.120s", name,
                            near ? "; the file has " : "", near ? near : "");
  }
  if (!count) return 0;
  return dtm_rt_fail(comm, RT_BAD_DATA, "%s lacks %zu of the program's tensors:%s%s", setup->path,
                     count, list, count > LISTED ? "\n  ..." : "");
}

/* Tensors of the file that no variable takes, said once. */
static void warn_unexpected(RtComm *comm, const Image *image, const LoadSetup *setup,
                            const StStore *store, bool ours) {
  size_t taken = 0, count = 0, n = 0;
  char list[600] = "";
  bool *used = calloc(store->ntensors + 1, sizeof *used), transposed;
  if (!used) return;
  for (uint32_t i = 0; i < image->var_count; i++) {
    if (!setup->wanted(&image->var[i])) continue;
    const StTensor *t = find_tensor(image, &image->var[i], store, ours, &transposed);
    if (t && !used[t - store->tensors]) taken++;
    if (t) used[t - store->tensors] = true;
  }
  for (size_t i = 0; i < store->ntensors; i++)
    if (!used[i] && count++ < LISTED && n < sizeof list)
      n += (size_t)snprintf(list + n, sizeof list - n, "%s%.100s", n ? ", " : "",
                            store->tensors[i].name);
  free(used);
  if (count && taken)
    dtm_rt_warn(comm, "%s: %zu tensors are not used: %s%s", setup->path, count, list,
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
static int check_content(RtComm *comm, const Image *image, const LoadSetup *setup,
                         const StStore *store) {
  const char *digits = dtm_rt_st_metadata(store, CHECKSUM_KEY);
  if (!digits) return 0; /* of an earlier version */
  if (strlen(digits) != store->ntensors * CHECKSUM_DIGITS)
    return dtm_rt_fail(comm, RT_BAD_DATA, "%s is damaged: its header lacks checksums", setup->path);
  uint64_t *sums = calloc(store->ntensors + 1, sizeof *sums);
  if (!sums) return dtm_rt_fail(comm, RT_DEVICE, "out of memory");
  for (uint32_t i = 0; i < image->var_count; i++) {
    VarBlock b;
    bool transposed;
    const AbiVar *v = &image->var[i];
    if (!setup->wanted(v) || !dtm_rt_var_block(image, i, comm->rank, &b)) continue;
    const StTensor *t = find_tensor(image, v, store, true, &transposed);
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
    bool transposed;
    uint64_t want;
    if (!setup->wanted(&image->var[i])) continue;
    const StTensor *t = find_tensor(image, &image->var[i], store, true, &transposed);
    size_t at = (size_t)(t - store->tensors);
    if (!dtm_rt_checksum_read(digits + at * CHECKSUM_DIGITS, &want) || want != sums[at])
      status = dtm_rt_fail(comm, RT_BAD_DATA,
                           "%s is damaged: the content of tensor \"%s\" is not what was saved "
                           "(its checksum differs)",
                           setup->path, t->name);
  }
  free(sums);
  return status;
}

int dtm_rt_load_vars(RtComm *comm, const Image *image, const LoadSetup *setup,
                     const StStore *store) {
  bool ours = dtm_rt_st_metadata(store, STATE_MARK) != NULL;
  int status = missing(comm, image, setup, store, ours);
  /* All are checked before the first is overwritten. */
  for (int pass = 0; pass < 2 && !status; pass++) {
    if (pass == 1 && ours) status = check_content(comm, image, setup, store);
    for (uint32_t i = 0; i < image->var_count && !status; i++) {
      const AbiVar *v = &image->var[i];
      VarBlock b;
      bool transposed;
      if (!setup->wanted(v)) continue;
      const StTensor *t = find_tensor(image, v, store, ours, &transposed);
      if (!dtm_rt_var_block(image, i, comm->rank, &b))
        status = dtm_rt_fail(comm, RT_BAD_DATA, "%s: %lld chunks do not cut evenly over the mesh",
                             abi_text(image, v->name), (long long)v->chunks);
      else if (pass == 0)
        status = check_tensor(comm, image, &b, t, setup->path, transposed);
      else if (b.present)
        load_block(comm, &b, store, t, transposed);
      dtm_rt_comm_tick(comm);
    }
  }
  if (!status) warn_unexpected(comm, image, setup, store, ours);
  return status;
}
