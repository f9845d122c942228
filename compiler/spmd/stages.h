/* Inside spmd/: which ranks are a stage, and data on the meshes of stages. */
#ifndef DTM_SPMD_STAGES_H
#define DTM_SPMD_STAGES_H

#include "ir/rewrite.h"
#include "spmd/pipeline.h"

enum { NO_STAGE = UINT32_MAX };

/* Per node: it has an effect, or something that has needs it. */
bool *pipeline_live(Arena *arena, const Graph *g);

/* Data that is read on a mesh and then used on parts of it, is read on the parts: what leads from
 * an input to a local move to a smaller mesh is written again there. Other local moves are local
 * still. The new graph, of which keep is renumbered. */
Graph *pipeline_localise(Arena *scratch, Program *program, const Graph *g, ValueId *keep,
                         uint32_t nkeep);

/* Meshes of varying values by their ranks. */
typedef struct StageMap {
  uint32_t n; /* meshes */
  const Mesh **mesh;
  uint32_t *stage;    /* per mesh; NO_STAGE where it contains the ranks of several */
  uint32_t nstages;   /* in no order yet */
  const Mesh **ranks; /* per stage: a mesh with its ranks */
} StageMap;

/* False when two meshes share some ranks and neither contains the other: *fault says which. */
bool stages_find(Arena *arena, const Program *program, const Graph *g, const bool *varies,
                 const bool *live, StageMap *out, const char **fault);
uint32_t stage_of(const StageMap *map, const Mesh *mesh);

#endif
