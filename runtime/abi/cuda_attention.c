/* Which instance of the attention kernels an action needs: see cuda.h. */
#include <stdio.h>

#include "runtime/abi/cuda.h"

/* Rows begin at multiples of 16 bytes where extents are multiples of this. */
enum { CHUNK = 8 };

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

uint32_t abi_cuda_attention_head(const Image *image, const AbiAction *action) {
  uint32_t first = action->code == ABI_LIB_ATTENTION_BACKWARD; /* q, then k and v */
  const AbiType *q = operand(image, action, first), *v = operand(image, action, first + 2);
  if (is_cut(image, v, v->rank - 1)) return 0; /* blocks may have any size */
  return abi_cuda_attention_class(q->dtype, q->shape[q->rank - 1], v->shape[v->rank - 1]);
}

void abi_cuda_attention_name(uint32_t dtype, uint32_t head, AbiCudaInstance *out) {
  const char *name = abi_dtype_name(dtype);
  out->file = head ? "attention_mma" : "attention";
  if (head) {
    snprintf(out->suffix, sizeof out->suffix, "_%s_%u", name, (unsigned)head);
    snprintf(out->defines, sizeof out->defines, "-DATTENTION_F16=%d -DHEAD=%u", dtype == ABI_F16,
             (unsigned)head);
  } else {
    snprintf(out->suffix, sizeof out->suffix, "_%s", name);
    snprintf(out->defines, sizeof out->defines, "-DELEMENT=%s", abi_cuda_element(dtype));
  }
}

AbiCudaInstance abi_cuda_attention_instance(const Image *image, const AbiAction *action) {
  uint32_t first = action->code == ABI_LIB_ATTENTION_BACKWARD;
  AbiCudaInstance i = {0};
  abi_cuda_attention_name(operand(image, action, first)->dtype,
                          abi_cuda_attention_head(image, action), &i);
  return i;
}
