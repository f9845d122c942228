/* What NVRTC made, kept on disk under the hash of all that decides it.
 *
 * An entry is one file, written beside its place and renamed; it carries its key and a checksum, so
 * that one that was cut off or damaged is compiled anew. The time of an entry is that of its last
 * use. */
#include "codegen/nvrtc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_LENGTH = 32 };
static const uint64_t magic = 0x65686361636d7464ull; /* "dtmcache" */
static const uint64_t most_bytes = 256ull << 20, kept_bytes = 192ull << 20;

typedef struct EntryHead {
  uint64_t magic;
  NvrtcKey key;
  uint64_t ptx_size, cubin_size, checksum;
} EntryHead;

static bool make_folder(char *path) {
  for (char *p = path + 1; *p; p++) {
    if (*p != '/') continue;
    *p = 0;
    bool ok = mkdir(path, 0777) == 0 || errno == EEXIST;
    *p = '/';
    if (!ok) return false;
  }
  return mkdir(path, 0777) == 0 || errno == EEXIST;
}

const char *nvrtc_cache_folder(Arena *arena) {
  const char *named = getenv("DTM_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  char *path = NULL;
  if (named)
    path = *named ? arena_strdup(arena, named) : NULL;
  else if (xdg && *xdg == '/')
    path = arena_printf(arena, "%s/dtm", xdg);
  else if (home && *home == '/')
    path = arena_printf(arena, "%s/.cache/dtm", home);
  struct stat s;
  if (!path || !make_folder(path) || stat(path, &s) || !S_ISDIR(s.st_mode)) return NULL;
  return path;
}

static const char *entry_path(Arena *arena, const char *folder, NvrtcKey key) {
  return arena_printf(arena, "%s/%016llx%016llx", folder, (unsigned long long)key.word[0],
                      (unsigned long long)key.word[1]);
}

bool nvrtc_cache_get(Arena *arena, const char *folder, NvrtcKey key, NvrtcJob *job) {
  const char *path = entry_path(arena, folder, key);
  struct stat s;
  FILE *f = stat(path, &s) == 0 && S_ISREG(s.st_mode) ? fopen(path, "rb") : NULL;
  EntryHead head;
  if (!f) return false;
  bool ok = fstat(fileno(f), &s) == 0 && fread(&head, sizeof head, 1, f) == 1 &&
            head.magic == magic && memcmp(&head.key, &key, sizeof key) == 0;
  uint64_t rest = ok && s.st_size > 0 ? (uint64_t)s.st_size - sizeof head : 0;
  ok = ok && head.ptx_size <= rest && head.cubin_size == rest - head.ptx_size &&
       (!job->binary || head.cubin_size);
  char *bytes = ok ? arena_alloc(arena, rest + 2) : NULL;
  ok = ok && fread(bytes, 1, rest, f) == rest && hash_stable(bytes, rest, 3) == head.checksum;
  if (ok) futimens(fileno(f), (struct timespec[2]){{0, UTIME_NOW}, {0, UTIME_NOW}});
  fclose(f);
  if (!ok) return false;
  char *cubin = arena_alloc(arena, head.cubin_size + 1);
  memcpy(cubin, bytes + head.ptx_size, head.cubin_size);
  bytes[head.ptx_size] = 0;
  job->ptx = bytes;
  job->ptx_size = head.ptx_size;
  job->cubin = cubin;
  job->cubin_size = head.cubin_size;
  return true;
}

void nvrtc_cache_put(Arena *arena, const char *folder, NvrtcKey key, const NvrtcJob *job) {
  size_t size = job->ptx_size + job->cubin_size;
  char *bytes = arena_alloc(arena, size + 1);
  memcpy(bytes, job->ptx, job->ptx_size);
  if (job->cubin_size) memcpy(bytes + job->ptx_size, job->cubin, job->cubin_size);
  EntryHead head = {.magic = magic,
                    .key = key,
                    .ptx_size = job->ptx_size,
                    .cubin_size = job->cubin_size,
                    .checksum = hash_stable(bytes, size, 3)};
  const char *path = entry_path(arena, folder, key);
  const char *temporary = arena_printf(arena, "%s.tmp%ld", path, (long)getpid());
  FILE *f = fopen(temporary, "wb");
  if (!f) return;
  bool ok = fwrite(&head, sizeof head, 1, f) == 1 && fwrite(bytes, 1, size, f) == size;
  ok = fclose(f) == 0 && ok;
  if (!ok || rename(temporary, path) != 0) unlink(temporary);
}

typedef struct Entry {
  struct timespec used;
  uint64_t size;
  const char *path;
} Entry;

static int oldest_first(const void *pa, const void *pb) {
  const Entry *a = pa, *b = pb;
  if (a->used.tv_sec != b->used.tv_sec) return a->used.tv_sec < b->used.tv_sec ? -1 : 1;
  if (a->used.tv_nsec != b->used.tv_nsec) return a->used.tv_nsec < b->used.tv_nsec ? -1 : 1;
  return strcmp(a->path, b->path);
}

/* Only what looks like an entry is touched, or like one that was never finished. */
static bool is_entry(const char *name) {
  return strspn(name, "0123456789abcdef") == NAME_LENGTH &&
         (!name[NAME_LENGTH] || strncmp(name + NAME_LENGTH, ".tmp", 4) == 0);
}

void nvrtc_cache_trim(Arena *arena, const char *folder) {
  DIR *dir = opendir(folder);
  VEC(Entry) entries = {0};
  uint64_t total = 0;
  struct dirent *e;
  while (dir && (e = readdir(dir))) {
    struct stat s;
    if (!is_entry(e->d_name)) continue;
    const char *path = arena_printf(arena, "%s/%s", folder, e->d_name);
    if (stat(path, &s) || !S_ISREG(s.st_mode)) continue;
    Entry entry = {s.st_mtim, (uint64_t)s.st_size, path};
    VEC_PUSH(arena, &entries, entry);
    total += entry.size;
  }
  if (dir) closedir(dir);
  if (total <= most_bytes) return;
  qsort(entries.data, entries.len, sizeof *entries.data, oldest_first);
  for (uint32_t i = 0; i < entries.len && total > kept_bytes; i++)
    if (unlink(entries.data[i].path) == 0) total -= entries.data[i].size;
}
