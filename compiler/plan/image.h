/* Writing an image: growable tables, interned strings, types and meshes; see runtime/abi/abi.h. */
#ifndef DTM_PLAN_IMAGE_H
#define DTM_PLAN_IMAGE_H

#include "base/vec.h"
#include "runtime/abi/abi.h"
#include "types/layout.h"

typedef struct ImageWriter {
  Arena *arena;
#define X(name, T) VEC(T) name;
  ABI_TABLES(X)
#undef X
  const Mesh **mesh_of; /* per mesh record */
  uint32_t mesh_cap;
  IdMap strings, types; /* hash -> offset, index */
} ImageWriter;

void image_init(ImageWriter *w, Arena *arena);
/* Offset of the text in the string table; NULL and "" are 0. */
uint32_t image_string(ImageWriter *w, const char *text);
uint32_t image_mesh(ImageWriter *w, const Mesh *mesh);
uint32_t image_type(ImageWriter *w, const TensorType *type);
/* The finished blob, 64-aligned. Fills the rest of the header given. */
const unsigned char *image_finish(ImageWriter *w, AbiHeader *header);

#endif
