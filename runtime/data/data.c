/* Data sources, read batch by batch: see data.h.
 *
 * A file of the batch's rank is one sample per row. A stream of one dim against a batch of two is
 * cut into windows: of integers each begins with the last element of the one before (the target of
 * its last position), of floats they are disjoint. Batches of more dims take disjoint pieces.
 */
#include "data/data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/errors.h"
#include "data/shuffle.h"
#include "data/table.h"
#include "runtime/abi/blocks.h"
#include "runtime/abi/number.h"

/* One opened source. Of a source of another program only `opened` (false) means anything. */
typedef struct Source {
  bool opened, mask; /* mask: no file */
  bool prompt;       /* a text, the same in every row */
  Table table;
  int64_t samples;
  int64_t first;                /* of them in the file */
  int64_t advance;              /* elements from one sample to the next */
  int64_t stride[ABI_MAX_DIMS]; /* of the dims of a batch, in elements; [0] unused */
  bool present;                 /* this rank is in the batch's mesh */
  int64_t offset[ABI_MAX_DIMS], extent[ABI_MAX_DIMS]; /* its block of a batch */
  float scaled[256];                                  /* u8 to f32 */
} Source;

struct RtData {
  RtDataSetup setup;
  Source *sources; /* per record of the image */
  int64_t samples, batch;
};

/* "PATH: WHY" with where it is declared. */
static int unfit(const RtData *d, uint32_t i, const char *why) {
  const Image *image = d->setup.image;
  const AbiSource *s = &image->source[i];
  return dtm_rt_fail(d->setup.comm, RT_BAD_DATA, "%s: %s\n  data %s is declared at %s",
                     d->setup.paths[i], why, abi_text(image, s->name), abi_text(image, s->source));
}

static void print_shape(char *out, size_t room, const int64_t *shape, uint32_t rank) {
  size_t n = (size_t)snprintf(out, room, "[");
  for (uint32_t k = 0; k < rank && n < room; k++)
    n += (size_t)snprintf(out + n, room - n, "%s%lld", k ? ", " : "", (long long)shape[k]);
  if (n < room) snprintf(out + n, room - n, "]");
}

/* How the file's elements make samples. */
static int find_samples(const RtData *d, uint32_t i) {
  Source *s = &d->sources[i];
  const Table *t = &s->table;
  const AbiType *type = &d->setup.image->type[d->setup.image->source[i].type];
  char why[TABLE_WHY], have[160], want[160];
  if (dtm_rt_file_type_float(t->type) && !abi_is_float(type->dtype)) {
    snprintf(why, sizeof why, "it holds %s numbers, which cannot be read as %s",
             dtm_rt_file_type_name(t->type), abi_dtype_name(type->dtype));
    return unfit(d, i, why);
  }
  int64_t window = 1;
  for (uint32_t k = type->rank; k-- > 1;) {
    s->stride[k] = window;
    window *= type->shape[k];
  }
  if (t->rank == type->rank) {
    bool same = true;
    for (uint32_t k = 1; k < t->rank; k++) {
      same &= t->shape[k] == type->shape[k];
      s->stride[k] = t->stride[k];
    }
    if (!same) {
      print_shape(have, sizeof have, t->shape, t->rank);
      print_shape(want, sizeof want, type->shape, type->rank);
      snprintf(why, sizeof why,
               "its shape is %s; a batch %s needs the same extents after the first", have, want);
      return unfit(d, i, why);
    }
    s->samples = t->shape[0];
    s->advance = t->stride[0];
  } else if (t->rank == 1 && type->rank >= 2) {
    bool shared = type->rank == 2 && window > 1 && !dtm_rt_file_type_float(t->type);
    s->advance = shared ? window - 1 : window;
    s->samples = window == 0 ? 0 : (t->shape[0] - (shared ? 1 : 0)) / s->advance;
  } else {
    print_shape(have, sizeof have, t->shape, t->rank);
    print_shape(want, sizeof want, type->shape, type->rank);
    snprintf(why, sizeof why, "its shape is %s; a batch %s needs an array of %u dims%s", have, want,
             type->rank, type->rank > 1 ? " or a stream of one" : "");
    return unfit(d, i, why);
  }
  if (s->samples <= 0) {
    snprintf(why, sizeof why, "it has no sample: %lld elements, a sample takes %lld",
             (long long)(t->rank ? t->shape[0] : 1), (long long)window);
    return unfit(d, i, why);
  }
  const AbiSource *record = &d->setup.image->source[i];
  if (record->to == 0) return 0;
  int64_t all = s->samples;
  s->first = (int64_t)((double)all * record->from);
  s->samples = (int64_t)((double)all * record->to) - s->first;
  if (s->samples > 0) return 0;
  snprintf(why, sizeof why, "no sample is between %g and %g of its %lld", record->from, record->to,
           (long long)all);
  return unfit(d, i, why);
}

static void find_block(const RtData *d, uint32_t i) {
  const Image *image = d->setup.image;
  const AbiSource *record = &image->source[i];
  const AbiType *type = &image->type[record->type];
  const AbiMesh *mesh = abi_type_mesh(image, type);
  Source *s = &d->sources[i];
  int64_t position = abi_mesh_position(image, mesh, d->setup.comm->rank), coord[ABI_MAX_AXES];
  s->present = position >= 0;
  if (!s->present) return;
  abi_coords(mesh, position, coord);
  abi_block(type, mesh, coord, s->offset, s->extent);
  for (int v = 0; v < 256; v++) s->scaled[v] = (float)((double)v * record->scale);
}

static int check_prompt(const RtData *d, uint32_t i) {
  const AbiSource *record = &d->setup.image->source[i];
  const AbiType *type = &d->setup.image->type[record->type];
  const unsigned char *text = (const unsigned char *)d->setup.paths[i];
  size_t n = strlen((const char *)text);
  char why[TABLE_WHY] = "";
  if (n == 0) return unfit(d, i, "the prompt is empty");
  if (n > (size_t)type->shape[1])
    snprintf(why, sizeof why, "the prompt has %zu bytes, but room for %lld", n,
             (long long)type->shape[1]);
  for (size_t k = 0; k < n && record->below && !*why; k++)
    if (text[k] >= record->below)
      snprintf(why, sizeof why, "byte %u of the prompt is not below %lld", text[k],
               (long long)record->below);
  d->sources[i].samples = type->shape[0];
  return *why ? unfit(d, i, why) : 0;
}

static void read_prompt(const RtData *d, uint32_t i, void *dst) {
  const Source *s = &d->sources[i];
  const AbiType *type = &d->setup.image->type[d->setup.image->source[i].type];
  const unsigned char *text = (const unsigned char *)d->setup.paths[i];
  int64_t n = (int64_t)strlen((const char *)text);
  for (int64_t row = 0; row < s->extent[0]; row++)
    for (int64_t k = 0; k < s->extent[1]; k++) {
      int64_t at = s->offset[1] + k;
      abi_store_int(dst, type->dtype, row * s->extent[1] + k, at < n ? text[at] : ABI_PROMPT_END);
    }
}

static int open_source(RtData *d, uint32_t i) {
  const AbiSource *record = &d->setup.image->source[i];
  Source *s = &d->sources[i];
  const char *reader = abi_text(d->setup.image, record->reader), *path = d->setup.paths[i];
  s->mask = strcmp(reader, ABI_READER_VALID) == 0 || strcmp(reader, ABI_READER_SHARE) == 0;
  s->prompt = strcmp(reader, ABI_READER_PROMPT) == 0;
  if (!s->mask && !s->prompt) {
    char why[TABLE_WHY];
    if (!dtm_rt_table_open(&s->table, reader, path, record->file_dtype, why))
      return unfit(d, i, why);
  }
  s->opened = true;
  find_block(d, i);
  return s->prompt ? check_prompt(d, i) : s->mask ? 0 : find_samples(d, i);
}

/* All sources of a block hold the same number of samples. */
static int agree_samples(RtData *d) {
  const Image *image = d->setup.image;
  uint32_t first = image->source_count;
  for (uint32_t i = 0; i < image->source_count; i++) {
    const Source *s = &d->sources[i];
    if (!s->opened || s->mask) continue;
    if (first == image->source_count) first = i;
    if (s->samples == d->sources[first].samples) continue;
    return dtm_rt_fail(d->setup.comm, RT_BAD_DATA,
                       "%s has %lld samples but %s has %lld; data %s and %s advance together",
                       d->setup.paths[first], (long long)d->sources[first].samples,
                       d->setup.paths[i], (long long)s->samples,
                       abi_text(image, image->source[first].name),
                       abi_text(image, image->source[i].name));
  }
  d->samples = first < image->source_count ? d->sources[first].samples : 0;
  return 0;
}

int dtm_rt_data_open(const RtDataSetup *setup, RtData **data) {
  const Image *image = setup->image;
  RtData *d = calloc(1, sizeof *d);
  *data = d;
  if (d) d->sources = calloc(image->source_count + 1, sizeof *d->sources);
  int status = d && d->sources ? 0 : dtm_rt_fail(setup->comm, RT_DEVICE, "out of memory");
  if (!status) {
    d->setup = *setup;
    const AbiProgram *p = &image->program[setup->program];
    d->batch = p->batch / p->microbatches; /* rows that are read at once */
    for (uint32_t i = 0; i < image->source_count && !status; i++)
      if (image->source[i].program == setup->program) status = open_source(d, i);
    if (!status) status = agree_samples(d);
  }
  if (status) {
    dtm_rt_data_close(d);
    *data = NULL;
  }
  return status;
}

void dtm_rt_data_close(RtData *data) {
  if (!data) return;
  for (uint32_t i = 0; data->sources && i < data->setup.image->source_count; i++)
    if (data->sources[i].opened) dtm_rt_table_close(&data->sources[i].table);
  free(data->sources);
  free(data);
}

int64_t dtm_rt_data_samples(const RtData *data) {
  return data->samples;
}

/* Smallest and largest value of an integer type. */
static void integer_range(uint32_t dtype, int64_t *low, int64_t *high) {
  *low = INT64_MIN;
  *high = INT64_MAX;
  if (dtype == ABI_I32) *low = INT32_MIN, *high = INT32_MAX;
  if (dtype == ABI_I16) *low = INT16_MIN, *high = INT16_MAX;
  if (dtype == ABI_I8) *low = INT8_MIN, *high = INT8_MAX;
  if (dtype == ABI_U8) *low = 0, *high = UINT8_MAX;
}

static int out_of_range(const RtData *d, uint32_t i, int64_t index, int64_t low, int64_t high) {
  const Table *t = &d->sources[i].table;
  char why[TABLE_WHY];
  snprintf(why, sizeof why,
           "value %lld at element %lld (byte %lld of the file) is outside [%lld, %lld]",
           (long long)dtm_rt_table_int(t, index), (long long)index,
           (long long)(t->data_offset + index * dtm_rt_file_type_bytes(t->type)), (long long)low,
           (long long)high);
  return unfit(d, i, why);
}

/* `n` elements of the file from `index` on, `stride` apart, to elements [at, at + n) of dst. */
static int convert(const RtData *d, uint32_t i, int64_t index, int64_t stride, int64_t n, void *dst,
                   int64_t at) {
  const AbiSource *record = &d->setup.image->source[i];
  const Source *s = &d->sources[i];
  const Table *t = &s->table;
  uint32_t dtype = d->setup.image->type[record->type].dtype;
  if (dtm_rt_file_type_float(t->type)) {
    if (t->type == FILE_F32 && dtype == ABI_F32 && stride == 1 && !t->big_endian)
      memcpy((float *)dst + at, t->data + index * 4, (size_t)n * 4);
    else
      for (int64_t k = 0; k < n; k++)
        abi_store(dst, dtype, at + k, dtm_rt_table_float(t, index + k * stride));
    return 0;
  }
  if (t->type == FILE_U8 && dtype == ABI_F32 && record->below == 0) {
    for (int64_t k = 0; k < n; k++) ((float *)dst)[at + k] = s->scaled[t->data[index + k * stride]];
    return 0;
  }
  int64_t low, high;
  integer_range(dtype, &low, &high);
  if (record->below > 0) {
    low = 0;
    if (record->below - 1 < high) high = record->below - 1;
  }
  bool to_float = abi_is_float(dtype), wide = t->type == FILE_U64 && high == INT64_MAX;
  for (int64_t k = 0; k < n; k++) {
    int64_t v = dtm_rt_table_int(t, index + k * stride);
    bool over = t->type == FILE_U64 && v < 0 && !(wide && to_float);
    bool ignored = record->ignores && v == record->ignore;
    if (((v < low || v > high) && !ignored) || over)
      return out_of_range(d, i, index + k * stride, low, high);
    if (to_float)
      abi_store(dst, dtype, at + k, dtm_rt_table_float(t, index + k * stride) * record->scale);
    else
      abi_store_int(dst, dtype, at + k, v);
  }
  return 0;
}

/* One sample's part of this rank's block: dims [dim, rank) from `index` on; *at advances in dst. */
static int convert_box(const RtData *d, uint32_t i, uint32_t dim, int64_t index, void *dst,
                       int64_t *at) {
  const Source *s = &d->sources[i];
  uint32_t rank = d->setup.image->type[d->setup.image->source[i].type].rank;
  if (dim >= rank) {
    int status = convert(d, i, index, 1, 1, dst, *at);
    (*at)++;
    return status;
  }
  index += s->offset[dim] * s->stride[dim];
  if (dim + 1 == rank) {
    int status = convert(d, i, index, s->stride[dim], s->extent[dim], dst, *at);
    *at += s->extent[dim];
    return status;
  }
  for (int64_t k = 0; k < s->extent[dim]; k++) {
    int status = convert_box(d, i, dim + 1, index + k * s->stride[dim], dst, at);
    if (status) return status;
  }
  return 0;
}

int dtm_rt_data_read(RtData *data, uint32_t source, int64_t epoch, int64_t batch, void *dst) {
  const Source *s = &data->sources[source];
  const AbiType *type = &data->setup.image->type[data->setup.image->source[source].type];
  if (!s->present) return 0;
  if (s->prompt) {
    read_prompt(data, source, dst);
    return 0;
  }
  int64_t first = batch * data->batch, at = 0;
  if (s->mask) {
    int64_t per = data->batch ? type->shape[0] / data->batch : 1;
    for (int64_t k = 0; k < s->extent[0]; k++)
      ((uint8_t *)dst)[k] = first + (s->offset[0] + k) / (per ? per : 1) < data->samples;
    return 0;
  }
  for (uint32_t k = 1; k < type->rank; k++)
    if (s->extent[k] == 0) return 0;
  for (int64_t k = 0; k < s->extent[0]; k++) {
    int64_t sample = first + s->offset[0] + k;
    if (sample >= data->samples) sample = data->samples - 1;
    if (data->setup.shuffle)
      sample = dtm_rt_shuffle(data->setup.seed, epoch, data->samples, sample);
    int status = convert_box(data, source, 1, (s->first + sample) * s->advance, dst, &at);
    if (status) return status;
  }
  return 0;
}
