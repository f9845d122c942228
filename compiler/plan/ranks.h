/* Which ranks hold a piece of memory: two pieces on disjoint ranks may have the same bytes. */
#ifndef DTM_PLAN_RANKS_H
#define DTM_PLAN_RANKS_H

#include "fuse/fuse.h"
#include "ir/graph.h"

/* Ranks that belong to the same meshes are alike, and are one class. A set of ranks is a bit set of
 * classes; where there are more than 64, the last bit stands for all further ones. */
typedef struct RankSets {
  uint32_t n; /* meshes that values or variables of the program are on */
  const Mesh **meshes;
  uint64_t *sets;
  uint32_t nclasses; /* at least 1, at most 64 */
} RankSets;

void rank_sets_find(Arena *arena, const Program *program, FusedProgram *const fused[BLOCK_COUNT],
                    RankSets *out);
/* Ranks of a mesh; all of them for NULL. */
uint64_t rank_set(const RankSets *sets, const Mesh *mesh);

#endif
