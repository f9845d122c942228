/* Saving variables: rank 0 lays the file out, every owner writes its blocks, rank 0 renames. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/errors.h"
#include "runtime/abi/blocks.h"
#include "runtime/abi/number.h"
#include "state/checksum.h"
#include "state/files.h"

/* A file under way. */
typedef struct Save {
  RtComm *comm;
  const Image *image;
  const SaveSetup *setup;
  char *partial;    /* PATH.partial */
  StEntry *entries; /* of the wanted variables, in order */
  int64_t (*shapes)[ABI_MAX_DIMS];
  size_t nentries;
  uint64_t *sums; /* per entry: checksum of what this rank writes, then of all */
  char *digits;   /* room for all checksums in the metadata */
  int fd;
} Save;

/* Ends the job with the reason; the half-written file goes. */
static int fail_write(Save *s, const char *what) {
  int error = errno;
  unlink(s->partial);
  return dtm_rt_fail(s->comm, RT_BAD_DATA, "cannot save %s: %s: %s%s", s->setup->path, what,
                     strerror(error),
                     error == ENOSPC || error == EDQUOT || error == EFBIG
                         ? "; free some space or save elsewhere (the file that was there is kept)"
                         : "");
}

static bool write_all(int fd, const unsigned char *p, size_t n, uint64_t at) {
  while (n) {
    ssize_t k = pwrite(fd, p, n, (off_t)at);
    if (k < 0 && errno == EINTR) continue;
    if (k <= 0) {
      if (k == 0) errno = ENOSPC;
      return false;
    }
    p += k;
    n -= (size_t)k;
    at += (uint64_t)k;
  }
  return true;
}

/* Group of the ranks that differ from this one in the Partial axes with this reduction. */
static int32_t partial_group(const Image *image, const VarBlock *b, uint8_t op, int32_t *group) {
  int32_t n = 0;
  bool any = false;
  for (uint32_t a = 0; a < b->mesh->naxes; a++)
    any |= b->type->at[a].kind == ABI_PARTIAL && b->type->at[a].op == op;
  for (int64_t p = 0; p < b->mesh->nranks && any; p++) {
    int64_t coord[ABI_MAX_AXES];
    abi_coords(b->mesh, p, coord);
    bool same = true;
    for (uint32_t a = 0; a < b->mesh->naxes; a++)
      if (!(b->type->at[a].kind == ABI_PARTIAL && b->type->at[a].op == op))
        same &= coord[a] == b->coord[a];
    if (same) group[n++] = image->rank[b->mesh->ranks + (uint64_t)p];
  }
  return n;
}

/* A Partial variable becomes its reduction where it is kept and neutral elsewhere: the same value,
 * in the form that loading gives. */
static int reduce_partial(Save *s, const VarBlock *b) {
  int64_t n = dtm_rt_var_count(b), neutral;
  size_t bytes = (size_t)n * abi_dtype_bytes(b->type->dtype);
  int32_t *group = malloc((size_t)b->mesh->nranks * sizeof *group);
  if (!group) return dtm_rt_fail(s->comm, RT_DEVICE, "out of memory");
  bool reduced = false;
  int status = 0;
  for (uint8_t op = ABI_SUM; op <= ABI_XOR && !status; op++) {
    int32_t ngroup = partial_group(s->image, b, op, group);
    if (ngroup < 2) continue;
    if (!reduced) status = dtm_rt_comm_fetch(s->comm, b->var->offset, bytes);
    reduced = true;
    if (status) break;
    status = s->comm->ops->all_reduce(s->comm, b->var->offset, b->var->offset, (size_t)n,
                                      (int)b->type->dtype, op, group, ngroup);
  }
  free(group);
  if (!status && reduced && !dtm_rt_var_keeps(b, &neutral))
    for (int64_t i = 0; i < n; i++) {
      if (abi_is_float(b->type->dtype))
        abi_store(s->comm->arena + b->var->offset, b->type->dtype, i, (double)neutral);
      else
        abi_store_int(s->comm->arena + b->var->offset, b->type->dtype, i, neutral);
    }
  if (!status && reduced) status = dtm_rt_comm_flush(s->comm, b->var->offset, bytes);
  return status;
}

/* Rank 0 creates the file with its header and room for all data. */
static int create(Save *s, const unsigned char *header, size_t n, uint64_t size) {
  int fd = open(s->partial, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0666);
  if (fd < 0) return fail_write(s, "cannot create a file beside it");
  int error = posix_fallocate(fd, 0, (off_t)size);
  if (error == EOPNOTSUPP || error == EINVAL) error = ftruncate(fd, (off_t)size) ? errno : 0;
  bool ok = error == 0;
  if (!ok) errno = error;
  ok = ok && write_all(fd, header, n, 0);
  if (close(fd) != 0) ok = false;
  return ok ? 0 : fail_write(s, "cannot write");
}

typedef struct WriteRun {
  int fd;
  const unsigned char *local;
  size_t element;
  uint64_t begin, sum;
} WriteRun;

static bool write_part(WriteRun *w, const unsigned char *p, int64_t global, int64_t count) {
  w->sum += dtm_rt_checksum(p, w->element, global, count);
  return write_all(w->fd, p, (size_t)count * w->element, w->begin + (uint64_t)global * w->element);
}

static int write_run(void *context, VarRun r) {
  WriteRun *w = context;
  const unsigned char *p = w->local + (size_t)r.local * w->element;
  if (r.step == 1) return write_part(w, p, r.global, r.count) ? 0 : -1;
  unsigned char side_by_side[4096];
  int64_t most = (int64_t)(sizeof side_by_side / w->element);
  for (int64_t done = 0; done < r.count; done += most) {
    int64_t n = r.count - done < most ? r.count - done : most;
    for (int64_t k = 0; k < n; k++)
      memcpy(side_by_side + (size_t)k * w->element, p + (size_t)((done + k) * r.step) * w->element,
             w->element);
    if (!write_part(w, side_by_side, r.global + done, n)) return -1;
  }
  return 0;
}

/* The blocks of which this rank is the owner. */
static int write_blocks(Save *s) {
  s->fd = open(s->partial, O_WRONLY | O_CLOEXEC);
  if (s->fd < 0)
    return fail_write(s, "cannot open the new file (is the folder shared by all ranks?)");
  size_t entry = 0;
  int status = 0;
  for (uint32_t i = 0; i < s->image->var_count && !status; i++) {
    VarBlock b;
    if (!s->setup->wanted(&s->image->var[i])) continue;
    uint64_t *sum = &s->sums[entry];
    const StEntry *e = &s->entries[entry++];
    dtm_rt_var_block(s->image, i, s->comm->rank, &b);
    if (!b.present || !b.owner) continue;
    size_t bytes = (size_t)dtm_rt_var_count(&b) * abi_dtype_bytes(b.type->dtype);
    status = dtm_rt_comm_fetch(s->comm, b.var->offset, bytes);
    if (status) break;
    WriteRun w = {s->fd, s->comm->arena + b.var->offset, abi_dtype_bytes(b.type->dtype), e->begin,
                  0};
    if (dtm_rt_var_runs(&b, write_run, &w)) status = fail_write(s, "cannot write");
    *sum = w.sum;
    dtm_rt_comm_release(s->comm, b.var->offset, bytes);
    dtm_rt_comm_tick(s->comm);
  }
  if (!status && fsync(s->fd) != 0) status = fail_write(s, "cannot write");
  if (close(s->fd) != 0 && !status) status = fail_write(s, "cannot write");
  return status;
}

static void sync_folder(const char *path) {
  char folder[4096];
  const char *slash = strrchr(path, '/');
  snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
  int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);
  close(fd);
}

static int by_name(const void *a, const void *b) {
  const StEntry *const *x = a, *const *y = b;
  return strcmp((*x)->name, (*y)->name);
}

/* Rank 0 puts the checksums where the header has room for them: they are known only now. */
static int write_sums(Save *s, const unsigned char *header, size_t n) {
  const char *room = memmem(header, n, s->digits, s->nentries * CHECKSUM_DIGITS);
  const StEntry **sorted = malloc((s->nentries + 1) * sizeof *sorted);
  if (!room || !sorted) {
    free(sorted);
    return dtm_rt_fail(s->comm, RT_DEVICE, "out of memory");
  }
  for (size_t i = 0; i < s->nentries; i++) sorted[i] = &s->entries[i];
  qsort(sorted, s->nentries, sizeof *sorted, by_name);
  for (size_t i = 0; i < s->nentries; i++) {
    char digits[CHECKSUM_DIGITS + 1];
    snprintf(digits, sizeof digits, "%016llx", (unsigned long long)s->sums[sorted[i] - s->entries]);
    memcpy(s->digits + i * CHECKSUM_DIGITS, digits, CHECKSUM_DIGITS);
  }
  free(sorted);
  int fd = open(s->partial, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return fail_write(s, "cannot open the new file");
  bool ok = write_all(fd, (const unsigned char *)s->digits, s->nentries * CHECKSUM_DIGITS,
                      (uint64_t)(room - (const char *)header)) &&
            fsync(fd) == 0;
  if (close(fd) != 0) ok = false;
  return ok ? 0 : fail_write(s, "cannot write");
}

static int prepare(Save *s) {
  const Image *image = s->image;
  size_t length = strlen(s->setup->path);
  s->partial = malloc(length + sizeof ".partial");
  s->entries = calloc(image->var_count + 1, sizeof *s->entries);
  s->shapes = calloc(image->var_count + 1, sizeof *s->shapes);
  s->sums = calloc(image->var_count + 1, sizeof *s->sums);
  s->digits = calloc(image->var_count + 1, CHECKSUM_DIGITS);
  if (!s->partial || !s->entries || !s->shapes || !s->sums || !s->digits)
    return dtm_rt_fail(s->comm, RT_DEVICE, "out of memory");
  memcpy(s->partial, s->setup->path, length);
  strcpy(s->partial + length, ".partial");
  for (uint32_t i = 0; i < image->var_count; i++) {
    const AbiVar *v = &image->var[i];
    if (!s->setup->wanted(v)) continue;
    const AbiType *t = &image->type[v->type];
    VarBlock b;
    int64_t *shape = s->shapes[s->nentries];
    s->entries[s->nentries++] = (StEntry){
        .name = abi_text(image, v->foreign_name ? v->foreign_name : v->name),
        .dtype = t->dtype,
        .rank = dtm_rt_var_file_shape(v, t, shape),
        .shape = shape,
    };
    dtm_rt_var_block(image, i, s->comm->rank, &b);
    int status = b.present ? reduce_partial(s, &b) : 0;
    if (status) return status;
  }
  return 0;
}

/* The header, with digits that stand for the checksums in its metadata. */
static unsigned char *make_header(Save *s, size_t *header_size, uint64_t *file_size) {
  enum { MOST_PAIRS = 16 };
  const SaveSetup *setup = s->setup;
  const char *pairs[2 * MOST_PAIRS];
  size_t n = setup->nmetadata;
  memcpy(pairs, setup->metadata, 2 * n * sizeof *pairs);
  memset(s->digits, '~', s->nentries * CHECKSUM_DIGITS); /* in no name and no number */
  pairs[2 * n] = CHECKSUM_KEY;
  pairs[2 * n + 1] = s->digits;
  return dtm_rt_st_header(s->entries, s->nentries, pairs, n + 1, header_size, file_size);
}

int dtm_rt_save_vars(RtComm *comm, const Image *image, const SaveSetup *setup) {
  Save s = {.comm = comm, .image = image, .setup = setup};
  size_t header_size = 0;
  uint64_t file_size = 0;
  uint32_t all;
  int status = prepare(&s);
  unsigned char *header = status ? NULL : make_header(&s, &header_size, &file_size);
  if (!status && !header) status = dtm_rt_fail(comm, RT_DEVICE, "out of memory");
  if (!status && comm->rank == 0) status = create(&s, header, header_size, file_size);
  if (!status) status = comm->ops->agree(comm, 0, &all); /* the file is there */
  if (!status) status = write_blocks(&s);
  if (!status) status = comm->ops->agree(comm, 0, &all); /* all is on disk */
  if (!status) status = dtm_rt_checksum_add_up(comm, s.sums, s.nentries);
  if (!status && comm->rank == 0 && s.nentries) status = write_sums(&s, header, header_size);
  if (!status && comm->rank == 0) {
    if (rename(s.partial, setup->path) != 0)
      status = fail_write(&s, "cannot put the new file in place");
    else
      sync_folder(setup->path);
  }
  if (!status) status = comm->ops->agree(comm, 0, &all);
  free(header);
  free(s.partial);
  free(s.entries);
  free(s.shapes);
  free(s.sums);
  free(s.digits);
  return status;
}
