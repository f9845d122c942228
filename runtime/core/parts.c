/* Prints of a batch in micro-batches: see run.h.
 *
 * The ranks of a value's mesh keep its part of each micro-batch. When the batch is through, the
 * first of them gives the parts to all ranks, and what is printed is the parts joined, or their
 * mean.
 */
#include <stdlib.h>
#include <string.h>

#include "comm/errors.h"
#include "core/print.h"
#include "core/run.h"
#include "runtime/abi/number.h"

static bool comes_in_parts(const Run *r, uint32_t output) {
  const AbiOutput *o = &r->image->output[output];
  bool parts = o->role == ABI_PRINT_ROWS || o->role == ABI_PRINT_MEAN;
  return parts && o->program == (uint32_t)r->program;
}

static int64_t elements(const AbiType *type) {
  int64_t n = 1;
  for (uint32_t d = 0; d < type->rank; d++) n *= type->shape[d];
  return n;
}

static size_t part_bytes(const AbiType *type) {
  return (size_t)elements(type) * abi_dtype_bytes(type->dtype);
}

int dtm_rt_parts_open(Run *r) {
  for (uint32_t i = 0; i < r->image->output_count; i++) {
    if (!comes_in_parts(r, i) || r->parts[i]) continue;
    const AbiType *type = &r->image->type[r->image->output[i].type];
    /* as much again, to join them in */
    r->parts[i] = calloc((size_t)run_program(r)->microbatches * 2, part_bytes(type) + 1);
    if (!r->parts[i]) return dtm_rt_fail(r->comm, RT_DEVICE, "out of memory");
  }
  return 0;
}

void dtm_rt_parts_close(Run *r) {
  for (uint32_t i = 0; r->parts && i < r->image->output_count; i++) free(r->parts[i]);
  free(r->parts);
}

bool dtm_rt_parts_take(Run *r, uint32_t output, int64_t micro, const void *value) {
  if (!comes_in_parts(r, output)) return false;
  size_t bytes = part_bytes(&r->image->type[r->image->output[output].type]);
  memcpy(r->parts[output] + bytes * (size_t)micro, value, bytes);
  return true;
}

/* The first rank of the value's mesh. */
static int32_t holder(const Run *r, const AbiType *type) {
  int32_t rank = 0;
  while (type->mesh && abi_mesh_position(r->image, abi_type_mesh(r->image, type), rank) != 0)
    rank++;
  return rank;
}

static void join(const AbiType *type, uint32_t dim, int64_t parts, const unsigned char *from,
                 unsigned char *to) {
  size_t run = abi_dtype_bytes(type->dtype);
  int64_t outer = 1;
  for (uint32_t d = 0; d < type->rank; d++) {
    if (d < dim)
      outer *= type->shape[d];
    else
      run *= (size_t)type->shape[d];
  }
  for (int64_t i = 0; i < outer; i++)
    for (int64_t p = 0; p < parts; p++, to += run)
      memcpy(to, from + (size_t)(p * outer + i) * run, run);
}

static void average(const AbiType *type, int64_t parts, const unsigned char *from,
                    unsigned char *to) {
  int64_t n = elements(type);
  for (int64_t i = 0; i < n; i++) {
    double sum = 0;
    for (int64_t p = 0; p < parts; p++) sum += abi_load(from, type->dtype, p * n + i);
    abi_store(to, type->dtype, i, sum / (double)parts);
  }
}

static int print(Run *r, uint32_t output) {
  const AbiOutput *o = &r->image->output[output];
  AbiType type = r->image->type[o->type];
  int64_t parts = run_program(r)->microbatches;
  unsigned char *from = r->parts[output], *to = from + part_bytes(&type) * (size_t)parts;
  int status = r->comm->ops->broadcast_host(r->comm, from, part_bytes(&type) * (size_t)parts,
                                            holder(r, &type));
  if (status) return status;
  if (o->role == ABI_PRINT_ROWS) {
    join(&type, o->dim, parts, from, to);
    type.shape[o->dim] *= parts;
  } else {
    average(&type, parts, from, to);
  }
  dtm_rt_print_tensor(r->log, abi_text(r->image, o->name), &type, to);
  return 0;
}

int dtm_rt_parts_print(Run *r) {
  int status = 0;
  for (uint32_t i = 0; i < r->image->output_count && !status; i++)
    if (comes_in_parts(r, i)) status = print(r, i);
  return status;
}
