/* Reading an image: checks it once, then gives typed pointers into it. */
#ifndef DTM_RT_IMAGE_H
#define DTM_RT_IMAGE_H

#include "runtime/abi/abi.h"

typedef struct Image {
  const AbiHeader *header;
#define X(name, T)                                                                                 \
  const T *name;                                                                                   \
  uint64_t name##_count;
  ABI_TABLES(X)
#undef X
} Image;

/* Points `image` into `data` (8-aligned, stays alive). Returns NULL, or what is wrong: another
 * build's image, a table or reference out of range. */
const char *abi_image_open(const unsigned char *data, size_t size, Image *image);

static inline const char *abi_text(const Image *image, uint32_t string) {
  return image->string + string;
}
static inline const AbiMesh *abi_type_mesh(const Image *image, const AbiType *type) {
  return &image->mesh[type->mesh];
}

/* Position of a world rank in a mesh, or -1. */
int64_t abi_mesh_position(const Image *image, const AbiMesh *mesh, int32_t rank);

#endif
