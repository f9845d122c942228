/* safetensors files: u64 header length N, N bytes of JSON, data (huggingface/safetensors, format).
 *
 * A store is what a path names: one file, the files of a sharded index (*.index.json), or a folder
 * with model.safetensors or model.safetensors.index.json. Opening checks every promise of the
 * headers against the lengths of the files (bounds, holes, overlaps, duplicate keys); after that
 * all offsets can be trusted. Files are mapped: a rank touches only the pages it reads.
 */
#ifndef DTM_RT_SAFETENSORS_H
#define DTM_RT_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/abi/abi.h"

enum { ST_WHY = 900, ST_MAX_HEADER = 100000000 };

typedef struct StTensor {
  char *name;
  uint32_t dtype;         /* AbiDType; 0 = one that only this file format has (U16, ...) */
  const char *dtype_name; /* "BF16" */
  uint32_t rank;
  int64_t shape[ABI_MAX_DIMS];
  uint32_t file;       /* index in StStore.files */
  uint64_t begin, end; /* bytes in the file */
} StTensor;

typedef struct StFile {
  char *path;
  const unsigned char *base;
  size_t size;
} StFile;

typedef struct StStore {
  StFile *files;
  uint32_t nfiles;
  StTensor *tensors; /* sorted by name */
  size_t ntensors;
  char **keys, **values; /* __metadata__ of a single file */
  size_t nmetadata;
} StStore;

/* False with what is wrong, files named, in `why`; then nothing is left open. */
bool dtm_rt_st_open(StStore *store, const char *path, char why[ST_WHY]);
void dtm_rt_st_close(StStore *store);
const StTensor *dtm_rt_st_find(const StStore *store, const char *name); /* NULL when absent */
const char *dtm_rt_st_metadata(const StStore *store, const char *key);  /* NULL when absent */
static inline const void *dtm_rt_st_data(const StStore *store, const StTensor *t) {
  return store->files[t->file].base + t->begin;
}

/* Reads the header of a whole file in memory into `store` (file index `file`). For the open above
 * and for tests; `why` does not name the file. */
bool dtm_rt_st_parse(StStore *store, const unsigned char *bytes, size_t size, uint32_t file,
                     char why[ST_WHY]);

/* A tensor to write. `begin` is filled in. */
typedef struct StEntry {
  const char *name;
  uint32_t dtype, rank;
  const int64_t *shape;
  uint64_t begin; /* byte of the file where its data starts */
} StEntry;

/* The header of a file with these tensors: places them (largest element types first, so that all
 * stay aligned) and returns the bytes from the first of the file to the first of the data,
 * malloc'ed, *header_size of them; *file_size = length of the whole file. `metadata`: pairs of
 * strings. NULL when memory is short. */
unsigned char *dtm_rt_st_header(StEntry *entries, size_t n, const char *const *metadata,
                                size_t nmetadata, size_t *header_size, uint64_t *file_size);

#endif
