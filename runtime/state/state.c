/* Variables and whole checkpoints: see state.h.
 *
 * A checkpoint is FILE and one file in FILE.state/. FILE's metadata holds the progress and names
 * that second file, which is written first under a name of its own: the rename of FILE is the
 * moment at which the new checkpoint replaces the old one, and a crash before or after it leaves a
 * whole one. Files in FILE.state/ that FILE does not name are removed after it. Where FILE is a
 * symbolic link, all this happens at its end, and the link stays.
 */
#include "state/state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "comm/errors.h"
#include "state/files.h"

enum { PATH_ROOM = 4096, NUMBER = 24 };

static bool is_model(const AbiVar *v) {
  return v->kind == ABI_VAR_PARAM || v->kind == ABI_VAR_BUFFER;
}
static bool is_optimizer(const AbiVar *v) {
  return v->kind == ABI_VAR_OPTIMIZER;
}

static int open_store(RtComm *comm, const char *path, StStore *store) {
  char why[ST_WHY];
  return dtm_rt_st_open(store, path, why) ? 0 : dtm_rt_fail(comm, RT_BAD_DATA, "%s", why);
}

int dtm_rt_state_load(RtComm *comm, const Image *image, const char *path) {
  StStore store;
  uint32_t all;
  int status = open_store(comm, path, &store);
  if (status) return status;
  status = dtm_rt_load_vars(comm, image, &(LoadSetup){path, is_model}, &store);
  dtm_rt_st_close(&store);
  return status ? status : comm->ops->agree(comm, 0, &all);
}

/* Where links from `path` end, which need not exist. 0 or the code to exit with. */
static int follow(RtComm *comm, const char *path, char out[PATH_ROOM]) {
  enum { MOST_LINKS = 40 };
  char target[PATH_ROOM];
  struct stat s;
  if (snprintf(out, PATH_ROOM, "%s", path) >= PATH_ROOM)
    return dtm_rt_fail(comm, RT_USAGE, "the path of the checkpoint is too long");
  for (int links = 0; lstat(out, &s) == 0 && S_ISLNK(s.st_mode); links++) {
    ssize_t n = links < MOST_LINKS ? readlink(out, target, sizeof target - 1) : -1;
    const char *slash = strrchr(out, '/');
    size_t folder = slash ? (size_t)(slash - out) + 1 : 0;
    if (n < 0)
      return dtm_rt_fail(comm, RT_BAD_DATA, "%s is a link that leads nowhere: %s", path,
                         strerror(links < MOST_LINKS ? errno : ELOOP));
    target[n] = 0;
    if (target[0] == '/') folder = 0;
    if (folder + (size_t)n >= PATH_ROOM)
      return dtm_rt_fail(comm, RT_USAGE, "the path of the checkpoint is too long");
    memcpy(out + folder, target, (size_t)n + 1);
  }
  return 0;
}

static bool state_path(char out[PATH_ROOM], const char *path, const char *name) {
  return snprintf(out, PATH_ROOM, "%s.state/%s", path, name) < PATH_ROOM;
}

/* Removes what earlier saves left in FILE.state/. */
static void clean_folder(const char *path, const char *keep) {
  char folder[PATH_ROOM], file[PATH_ROOM];
  if (!state_path(folder, path, "")) return;
  DIR *d = opendir(folder);
  if (!d) return;
  for (struct dirent *e; (e = readdir(d));)
    if (strncmp(e->d_name, "optimizer-", 10) == 0 && strcmp(e->d_name, keep) != 0 &&
        state_path(file, path, e->d_name))
      unlink(file);
  closedir(d);
}

/* A rename would put a file in the place of a device or a folder, and of other people's work: the
 * program itself, its data, its source. An empty file and one that begins like a safetensors file
 * (eight bytes of length, then JSON) may go. */
static int check_replaceable(RtComm *comm, const char *path) {
  struct stat s;
  unsigned char head[9];
  if (stat(path, &s) != 0) return 0;
  if (!S_ISREG(s.st_mode))
    return dtm_rt_fail(comm, RT_BAD_DATA, "cannot save %s: it is %s, not a file", path,
                       S_ISDIR(s.st_mode) ? "a folder" : "a device");
  int fd = s.st_size > 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (fd < 0) return 0;
  ssize_t n = read(fd, head, sizeof head);
  close(fd);
  if (n == sizeof head && head[8] == '{') return 0;
  return dtm_rt_fail(comm, RT_BAD_DATA,
                     "cannot save %s: a file that is no checkpoint is there; save to another name, "
                     "or remove it first",
                     path);
}

/* Two runs that save to one FILE would remove each other's parts of it. The lock is on the folder,
 * so nothing is left behind, and lasts as long as this process; where locks do not work there are
 * none. */
static int lock_folder(RtComm *comm, const char *path, const char *folder) {
  int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return 0;
  close(fd);
  return dtm_rt_fail(comm, RT_BAD_DATA,
                     "cannot save %s: another run is saving to it; end that one, or give this one "
                     "another --save",
                     path);
}

static int make_folder(RtComm *comm, const char *path, const char *folder) {
  if (mkdir(folder, 0777) == 0 || errno == EEXIST) return 0;
  return dtm_rt_fail(comm, RT_BAD_DATA, "cannot save %s: cannot make folder %s: %s", path, folder,
                     strerror(errno));
}

/* Rank 0's part of the probe. */
static int probe(RtComm *comm, const char *given) {
  char path[PATH_ROOM], folder[PATH_ROOM], trial[PATH_ROOM];
  int status = follow(comm, given, path);
  if (!status) status = check_replaceable(comm, path);
  if (status) return status;
  if (!state_path(folder, path, "") ||
      snprintf(trial, sizeof trial, "%s.partial", path) >= PATH_ROOM)
    return dtm_rt_fail(comm, RT_USAGE, "the path to save to is too long");
  int fd = open(trial, O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
  if (fd < 0)
    return dtm_rt_fail(comm, RT_BAD_DATA, "cannot save %s: cannot create a file beside it: %s",
                       path, strerror(errno));
  close(fd);
  unlink(trial);
  status = make_folder(comm, path, folder);
  return status ? status : lock_folder(comm, path, folder);
}

int dtm_rt_checkpoint_probe(RtComm *comm, const char *path) {
  uint32_t all;
  int status = comm->rank == 0 ? probe(comm, path) : 0;
  return status ? status : comm->ops->agree(comm, 0, &all);
}

int dtm_rt_checkpoint_save(RtComm *comm, const Image *image, const char *given,
                           const RtProgress *progress) {
  char path[PATH_ROOM], name[64], state[PATH_ROOM], folder[PATH_ROOM], step[NUMBER], epoch[NUMBER],
      batch[NUMBER];
  char seed[NUMBER];
  struct timespec now = {0};
  if (comm->rank == 0) clock_gettime(CLOCK_REALTIME, &now);
  uint64_t id = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
  int status = follow(comm, given, path);
  if (!status) status = comm->ops->broadcast_host(comm, &id, sizeof id, 0);
  if (status) return status;
  snprintf(name, sizeof name, "optimizer-%" PRId64 "-%" PRIx64 ".safetensors", progress->step, id);
  if (!state_path(state, path, name) || !state_path(folder, path, ""))
    return dtm_rt_fail(comm, RT_USAGE, "the path to save to is too long");
  if (comm->rank == 0) status = check_replaceable(comm, path);
  if (!status && comm->rank == 0) status = make_folder(comm, path, folder);
  if (status) return status;
  snprintf(step, sizeof step, "%" PRId64, progress->step);
  snprintf(epoch, sizeof epoch, "%" PRId64, progress->epoch);
  snprintf(batch, sizeof batch, "%" PRId64, progress->batch);
  snprintf(seed, sizeof seed, "%" PRIu64, progress->seed);
  const char *const metadata[] = {"format", "pt",    STATE_MARK,  "1",     "step",
                                  step,     "epoch", epoch,       "batch", batch,
                                  "seed",   seed,    "optimizer", name};
  const SaveSetup model = {path, is_model, metadata, 7};
  const SaveSetup optimizer = {state, is_optimizer, metadata, 3}; /* up to the step */
  status = dtm_rt_save_vars(comm, image, &optimizer);
  if (!status) status = dtm_rt_save_vars(comm, image, &model);
  if (!status && comm->rank == 0) clean_folder(path, name);
  return status;
}

/* A number of the metadata; false when it is absent or damaged. */
static bool get_number(const StStore *store, const char *key, int64_t *out) {
  const char *text = dtm_rt_st_metadata(store, key);
  char *end;
  if (!text || !*text) return false;
  errno = 0;
  *out = (int64_t)(*text == '-' ? (uint64_t)strtoll(text, &end, 10) : strtoull(text, &end, 10));
  return errno == 0 && *end == 0;
}

int dtm_rt_checkpoint_load(RtComm *comm, const Image *image, const char *given,
                           RtProgress *progress) {
  StStore model, optimizer;
  char path[PATH_ROOM], state[PATH_ROOM];
  uint32_t all;
  int64_t seed = 0;
  int status = follow(comm, given, path);
  if (!status) status = open_store(comm, path, &model);
  if (status) return status;
  RtProgress p = {0};
  const char *name = dtm_rt_st_metadata(&model, "optimizer");
  if (!name || strchr(name, '/') || !state_path(state, path, name) ||
      !get_number(&model, "step", &p.step) || !get_number(&model, "epoch", &p.epoch) ||
      !get_number(&model, "batch", &p.batch) || !get_number(&model, "seed", &seed) || p.step < 0 ||
      p.epoch < 0 || p.batch < 0) {
    status = dtm_rt_fail(comm, RT_BAD_DATA,
                         "%s holds a model but no state of its training; start from it with --load "
                         "instead of --resume",
                         path);
  } else {
    p.seed = (uint64_t)seed;
    if (access(state, R_OK) != 0)
      status = dtm_rt_fail(comm, RT_BAD_DATA,
                           "%s belongs to the optimizer state in %s: %s\n"
                           "  was it copied without its folder %s.state, or from another run? "
                           "--load takes the parameters alone",
                           path, state, strerror(errno), path);
    if (!status) status = open_store(comm, state, &optimizer);
    if (!status) {
      int64_t of = p.step;
      if (get_number(&optimizer, "step", &of) && of != p.step)
        status =
            dtm_rt_fail(comm, RT_BAD_DATA, "%s is of step %" PRId64 ", but %s of step %" PRId64,
                        path, p.step, state, of);
      else
        status = dtm_rt_load_vars(comm, image, &(LoadSetup){state, is_optimizer}, &optimizer);
      dtm_rt_st_close(&optimizer);
    }
    if (!status) status = dtm_rt_load_vars(comm, image, &(LoadSetup){path, is_model}, &model);
  }
  dtm_rt_st_close(&model);
  if (!status) *progress = p;
  return status ? status : comm->ops->agree(comm, 0, &all);
}
