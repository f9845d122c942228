/* Which instance of the attention kernels an action needs: see cuda.h. */
#include <stdio.h>

#include "runtime/abi/cuda.h"

/* Tensor cores read rows in words of so many bytes; so many elements fill one. */
enum { WORD = 16, CHUNK = 8, FEW = 32 };

static const uint32_t classes[] = {32, 64, 96, 128, 192, 256};

uint32_t abi_cuda_attention_class(uint32_t dtype, int64_t width, int64_t features) {
  int64_t most = width > features ? width : features;
  if (dtype != ABI_BF16 && dtype != ABI_F16) return 0;
  if (width <= 0 || features <= 0 || width % CHUNK || features % CHUNK) return 0;
  for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
    if (most <= classes[i]) return classes[i];
  return 0;
}

/* Whether ranks hold parts of a dim. */
static int is_cut(const Image *image, const AbiType *type, uint32_t dim) {
  const AbiMesh *mesh = &image->mesh[type->mesh];
  for (uint32_t a = 0; a < mesh->naxes; a++)
    if (type->at[a].kind == ABI_SHARD && type->at[a].dim == dim && mesh->size[a] > 1) return 1;
  return 0;
}

static const AbiType *operand(const Image *image, const AbiAction *action, uint32_t i) {
  return &image->type[image->buffer[action->buffers + i].type];
}

/* Blocks may be views of others, from any element on. */
static int is_aligned(const Image *image, const AbiAction *action) {
  for (uint32_t i = 0; i < action->nbuffers; i++) {
    const AbiBuffer *b = &image->buffer[action->buffers + i];
    if (b->offset % WORD || b->stride % WORD) return 0;
  }
  return 1;
}

int abi_cuda_attention_few(int64_t queries, int64_t keys) {
  return queries <= FEW || keys <= FEW;
}

AbiCudaAttention abi_cuda_attention(const Image *image, const AbiAction *action) {
  int backward = action->code == ABI_LIB_ATTENTION_BACKWARD;
  const AbiType *q = operand(image, action, backward ? 1 : 0),
                *k = operand(image, action, backward ? 2 : 1),
                *v = operand(image, action, backward ? 3 : 2);
  uint32_t last = q->rank - 1;
  AbiCudaAttention a = {.dtype = q->dtype, .backward = backward};
  if (!is_cut(image, v, last) && is_aligned(image, action)) /* cut, they may have any width */
    a.head = abi_cuda_attention_class(q->dtype, q->shape[last], v->shape[last]);
  a.few = !a.head && abi_cuda_attention_few(q->shape[last - 1], k->shape[last - 1]);
  return a;
}

AbiCudaInstance abi_cuda_attention_instance(const AbiCudaAttention *a) {
  AbiCudaInstance i = {.file = a->head ? "attention_mma" : "attention"};
  const char *name = abi_dtype_name(a->dtype), *end = a->backward ? "_backward" : "";
  if (a->head) {
    snprintf(i.suffix, sizeof i.suffix, "_%s_%u%s", name, (unsigned)a->head, end);
    snprintf(i.defines, sizeof i.defines, "-DATTENTION_F16=%d -DHEAD=%u -DBACKWARD=%d",
             a->dtype == ABI_F16, (unsigned)a->head, a->backward);
  } else {
    snprintf(i.suffix, sizeof i.suffix, "_%s%s%s", name, a->few ? "_few" : "", end);
    snprintf(i.defines, sizeof i.defines, "-DELEMENT=%s -DEACH=%d -DBACKWARD=%d",
             abi_cuda_element(a->dtype), a->few ? 1 : 4, a->backward);
  }
  return i;
}
