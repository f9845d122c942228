/* Device meshes: named dims (axes) over a row-major list of ranks. Pure values. */
#ifndef DTM_TYPES_MESH_H
#define DTM_TYPES_MESH_H

#include "base/str.h"

enum { DTM_MAX_AXES = 8, DTM_MAX_DIMS = 8 };

/* A mesh names up to DTM_MAX_AXES axes. A size-1 axis stays in the list (so that its name is known)
 * but no layout ever mentions it. Meshes are immutable and compared by pointer; a sub-mesh made by
 * `unbind` or by name is a mesh of its own, whose axis names are those of its parent. */
typedef struct Mesh {
  const char *name; /* interned; for messages: "world", "world.unbind(pp)[1]" */
  uint32_t naxes;
  const char *axis[DTM_MAX_AXES]; /* interned */
  int64_t size[DTM_MAX_AXES];     /* >= 1 */
  int64_t nranks;                 /* product of sizes */
  const int64_t *ranks;           /* row-major position -> world rank; NULL = identity */
} Mesh;

/* Index of the axis with this interned name, or -1. */
int mesh_axis(const Mesh *mesh, const char *name);
/* Row-major coordinates of position `pos` in the mesh. */
void mesh_coords(const Mesh *mesh, int64_t pos, int64_t coord[DTM_MAX_AXES]);
int64_t mesh_position(const Mesh *mesh, const int64_t coord[DTM_MAX_AXES]);
/* World rank of a position. */
int64_t mesh_rank(const Mesh *mesh, int64_t pos);
/* Sub-mesh i of the dim `axis` (that dim removed, the others kept). */
Mesh *mesh_unbind(Arena *arena, const Mesh *mesh, int axis, int64_t i);
/* "mesh(dp 2, tp 4)" */
const char *mesh_print(Arena *arena, const Mesh *mesh);

#endif
