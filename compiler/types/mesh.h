/* Device meshes: named dims (axes) over a row-major list of ranks. Pure values. */
#ifndef DTM_TYPES_MESH_H
#define DTM_TYPES_MESH_H

#include "base/str.h"

enum { DTM_MAX_AXES = 8, DTM_MAX_DIMS = 8, DTM_MAX_RANKS = 1 << 20 };

/* A mesh names up to DTM_MAX_AXES axes. A size-1 axis stays in the list (so that its name is known)
 * but no layout ever mentions it. Meshes are immutable and compared by pointer; a sub-mesh is a
 * mesh of its own, whose axis names are those of its parent.
 *
 * A selection of dims, world["dp"], keeps all ranks: those that differ in the dims left out lie
 * along one last axis, mesh_unnamed, which nothing can name, so every value is Replicate on it. */
typedef struct Mesh {
  const char *name; /* source text: "world", "world.unbind(\"pp\")[1]"; one name is one mesh */
  uint32_t naxes;
  const char *axis[DTM_MAX_AXES]; /* interned, or mesh_unnamed */
  int64_t size[DTM_MAX_AXES];     /* >= 1 */
  int64_t nranks;                 /* product of sizes */
  const int64_t *ranks;           /* row-major position -> world rank; NULL = identity */
  bool sub;                       /* not the world: printed types say `on NAME` */
} Mesh;

/* The name of the axis of dims left out; at most one, the last. */
extern const char mesh_unnamed[];

/* Index of the axis with this interned name, or -1. */
int mesh_axis(const Mesh *mesh, const char *name);
/* Row-major coordinates of position `pos` in the mesh. */
void mesh_coords(const Mesh *mesh, int64_t pos, int64_t coord[DTM_MAX_AXES]);
int64_t mesh_position(const Mesh *mesh, const int64_t coord[DTM_MAX_AXES]);
/* World rank of a position. */
int64_t mesh_rank(const Mesh *mesh, int64_t pos);
/* Number of axes that have names; size of all of them together. */
uint32_t mesh_ndims(const Mesh *mesh);
int64_t mesh_named_size(const Mesh *mesh);
/* Position of a world rank, -1 when it is not in the mesh. Linear. */
int64_t mesh_find(const Mesh *mesh, int64_t rank);
/* Position of every world rank below `world`, -1 where it is not in the mesh. */
int64_t *mesh_positions(Arena *arena, const Mesh *mesh, int64_t world);
/* Largest world rank of the mesh. */
int64_t mesh_last_rank(const Mesh *mesh);
/* `b` can stand for `a`: the same ranks in the same order, the same axes but for size-1 ones, and b
 * knows every name of a. */
bool mesh_same(const Mesh *a, const Mesh *b);
/* Dims of the same names and sizes in the same order, on whatever ranks. */
bool mesh_alike(const Mesh *a, const Mesh *b);
/* Sub-mesh i of the dim `axis` (that dim removed, the others kept). */
Mesh *mesh_unbind(Arena *arena, const Mesh *mesh, int axis, int64_t i);
/* The same ranks, each `by` places further along the axis: what stands at coordinate i of the
 * result is at coordinate (i + by) mod size of `mesh`. A value on it is one whose blocks went round
 * a ring that far. */
Mesh *mesh_turn(Arena *arena, const Mesh *mesh, int axis, int64_t by);
/* Its name. */
const char *mesh_turn_name(Arena *arena, const Mesh *mesh, int axis, int64_t by);
/* The axes of the bit set, in their order, then all others as the unnamed one. */
Mesh *mesh_keep(Arena *arena, const Mesh *mesh, uint32_t axes);
/* The `n` >= 1 axes as one named `name` in the place of the first of the list; its coordinates
 * count through them in the order of the list. */
Mesh *mesh_flatten(Arena *arena, const Mesh *mesh, const uint8_t *axes, uint32_t n,
                   const char *name);
/* The axes of a, then those of b: selections of dims of one mesh that have no dim in common. NULL
 * with *error when they are not, or have too many axes. */
Mesh *mesh_concatenate(Arena *arena, const Mesh *a, const Mesh *b, const char **error);
/* "dp, tp", or "none" */
const char *mesh_dims_print(Arena *arena, const Mesh *mesh);
/* "mesh(dp 2, tp 4)" */
const char *mesh_print(Arena *arena, const Mesh *mesh);

#endif
