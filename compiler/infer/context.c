/* Context parallelism is chosen by the names of mesh dims: which axes of a sequence are meant. */
#include "infer/infer.h"

#include <string.h>

ContextKind context_kind(const char *axis) {
  if (strcmp(axis, "ring_cp") == 0) return CONTEXT_RING;
  /* The second spelling is that of documents this follows. */
  if (strcmp(axis, "ulysses_cp") == 0 || strcmp(axis, "ulysess_cp") == 0) return CONTEXT_ULYSSES;
  return CONTEXT_NONE;
}

uint32_t context_axes(const TensorType *t, uint32_t dim, ContextKind kind) {
  uint8_t axes[DTM_MAX_AXES];
  uint32_t n = layout_dim_axes(&t->layout, dim, axes), set = 0;
  for (uint32_t i = 0; i < n; i++)
    if (context_kind(t->mesh->axis[axes[i]]) == kind) set |= 1u << axes[i];
  return set;
}
