/* Operands with their integers evaluated: see operands.h. */
#include "device/operands.h"

#include <string.h>

#include "comm/errors.h"
#include "runtime/abi/blocks.h"

LibTensor dtm_device_tensor(const RtDevice *d, const AbiBuffer *b, void *data) {
  const AbiType *type = &d->image->type[b->type];
  const AbiMesh *mesh = abi_type_mesh(d->image, type);
  LibTensor t = {.data = data, .dtype = type->dtype, .rank = type->rank};
  int64_t coord[ABI_MAX_AXES];
  abi_coords(mesh, abi_mesh_position(d->image, mesh, d->comm->rank), coord);
  abi_block(type, mesh, coord, t.offset, t.extent);
  memcpy(t.shape, type->shape, sizeof t.shape);
  return t;
}

int64_t dtm_device_elements(const LibTensor *t) {
  int64_t n = 1;
  for (uint32_t d = 0; d < t->rank; d++) n *= t->extent[d];
  return n;
}

size_t dtm_device_bytes(const LibTensor *t) {
  return (size_t)dtm_device_elements(t) * abi_dtype_bytes(t->dtype);
}

MatmulShape dtm_device_matmul_shape(const RtDevice *d, const AbiAction *a) {
  const AbiMatmul *m = &d->image->matmul[a->code];
  const AbiBuffer *b = &d->image->buffer[a->buffers], *out = &b[a->nbuffers - 1];
  const int64_t *v = d->syms;
  MatmulShape s = {.dtype = d->image->type[out->type].dtype,
                   .nbatch = m->nbatch,
                   .m = v[m->m],
                   .n = v[m->n],
                   .k = v[m->k],
                   .a_m = v[m->a_m],
                   .a_k = v[m->a_k],
                   .b_k = v[m->b_k],
                   .b_n = v[m->b_n],
                   .out_m = v[m->out_m],
                   .out_n = v[m->out_n],
                   .bias = m->bias,
                   .addend = m->addend,
                   .in_place = m->addend && b[2 + m->bias].offset == out->offset,
                   .activation = m->activation};
  for (uint32_t i = 0; i < m->nbatch; i++) {
    s.batch[i] = v[m->batch[i]];
    s.a_batch[i] = v[m->a_batch[i]];
    s.b_batch[i] = v[m->b_batch[i]];
    s.out_batch[i] = v[m->out_batch[i]];
  }
  return s;
}

static void drop_batch(MatmulShape *s, uint32_t d) {
  s->nbatch--;
  for (uint32_t i = d; i < s->nbatch; i++) {
    s->batch[i] = s->batch[i + 1];
    s->a_batch[i] = s->a_batch[i + 1];
    s->b_batch[i] = s->b_batch[i + 1];
    s->out_batch[i] = s->out_batch[i + 1];
  }
}

void dtm_device_matmul_simplify(MatmulShape *s) {
  for (uint32_t d = s->nbatch; d-- > 0;)
    if (s->batch[d] == 1) drop_batch(s, d);
  for (uint32_t d = s->nbatch; d-- > 1;) {
    int64_t n = s->batch[d];
    if (s->a_batch[d - 1] != n * s->a_batch[d] || s->b_batch[d - 1] != n * s->b_batch[d] ||
        s->out_batch[d - 1] != n * s->out_batch[d])
      continue;
    s->batch[d] *= s->batch[d - 1];
    drop_batch(s, d - 1);
  }
  while (s->nbatch) {
    uint32_t d = s->nbatch - 1;
    if (s->b_batch[d] != 0 || s->a_batch[d] != s->m * s->a_m || s->out_batch[d] != s->m * s->out_m)
      break;
    s->m *= s->batch[d];
    s->nbatch--;
  }
  /* The stride of a single row or column is free: choose what looks dense. */
  if (s->m == 1) {
    s->a_m = s->a_k == 1 ? s->k : 1;
    s->out_m = s->out_n == 1 ? s->n : 1;
  }
  if (s->n == 1) {
    s->b_n = s->b_k == 1 ? s->k : 1;
    s->out_n = s->out_m == 1 && s->m != 1 ? s->m : 1;
  }
  if (s->k == 1) {
    s->a_k = s->a_m == 1 && s->m != 1 ? s->m : 1;
    s->b_k = s->b_n == 1 && s->n != 1 ? s->n : 1;
  }
}

int dtm_device_report(const RtDevice *d, const AbiAction *a, const LibFault *fault) {
  long long index = (long long)fault->index, extent = (long long)fault->extent;
  if (a->kind == ABI_PULL_ROWS)
    return dtm_rt_fail(d->comm, RT_BAD_DATA, "used says %lld rows where there are %lld", index,
                       extent);
  if (a->code == ABI_LIB_SAME_AS)
    return dtm_rt_fail(d->comm, RT_BAD_DATA,
                       "ranks that should hold the same differ: element %lld of %lld is %.9g here "
                       "and %.9g on the first rank of the mesh dim",
                       index, extent, fault->mine, fault->first);
  if (a->code == ABI_LIB_GROUPED_LINEAR || a->code == ABI_LIB_GROUPED_LINEAR_WEIGHT)
    return dtm_rt_fail(d->comm, RT_BAD_DATA,
                       "counts say %lld rows for an expert whose block has room for %lld", index,
                       extent - 1);
  return dtm_rt_fail(d->comm, RT_BAD_DATA, "index %lld is outside [0, %lld)", index, extent);
}
