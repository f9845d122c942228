/* Classes of ranks: see ranks.h. Refined mesh by mesh: ranks of one class that a mesh tells apart
 * become two. */
#include "plan/ranks.h"

enum { MAX_CLASSES = 64 };

static void add_mesh(Arena *arena, RankSets *s, const Mesh *mesh) {
  for (uint32_t i = 0; i < s->n; i++)
    if (s->meshes[i] == mesh) return;
  if (!mesh) return;
  s->meshes =
      arena_grow(arena, s->meshes, s->n * sizeof *s->meshes, (s->n + 1) * sizeof *s->meshes);
  s->meshes[s->n++] = mesh;
}

static void find_meshes(Arena *arena, const Program *program,
                        FusedProgram *const fused[BLOCK_COUNT], RankSets *s) {
  add_mesh(arena, s, program->world);
  for (uint32_t i = 0; i < program->vars.len; i++)
    add_mesh(arena, s, program->vars.data[i].type.mesh);
  for (BlockKind k = BLOCK_INIT; k < BLOCK_COUNT; k++)
    for (ValueId v = 1; fused[k] && v < fused[k]->graph->values.len; v++)
      if (value_type(fused[k]->graph, v)->mesh != program->world)
        add_mesh(arena, s, value_type(fused[k]->graph, v)->mesh);
}

void rank_sets_find(Arena *arena, const Program *program, FusedProgram *const fused[BLOCK_COUNT],
                    RankSets *s) {
  *s = (RankSets){.nclasses = 1};
  find_meshes(arena, program, fused, s);
  int64_t world = program->world->nranks;
  uint32_t *class_of = ARENA_ARRAY(arena, uint32_t, world);
  s->sets = ARENA_ARRAY(arena, uint64_t, s->n);
  for (uint32_t i = 0; i < s->n && s->nclasses < MAX_CLASSES; i++) {
    const int64_t *position = mesh_positions(arena, s->meshes[i], world);
    uint32_t *split = ARENA_ARRAY(arena, uint32_t, s->nclasses); /* class of those outside + 1 */
    bool *has_inside = ARENA_ARRAY(arena, bool, s->nclasses);
    uint32_t n = s->nclasses;
    for (int64_t r = 0; r < world; r++) has_inside[class_of[r]] |= position[r] >= 0;
    for (int64_t r = 0; r < world; r++) {
      uint32_t c = class_of[r];
      if (position[r] >= 0 || !has_inside[c]) continue;
      if (!split[c]) split[c] = n < MAX_CLASSES ? ++n : MAX_CLASSES;
      class_of[r] = split[c] - 1;
    }
    s->nclasses = n;
  }
  for (uint32_t i = 0; i < s->n; i++)
    for (int64_t p = 0; p < s->meshes[i]->nranks; p++)
      s->sets[i] |= UINT64_C(1) << class_of[mesh_rank(s->meshes[i], p)];
}

uint64_t rank_set(const RankSets *sets, const Mesh *mesh) {
  for (uint32_t i = 0; i < sets->n; i++)
    if (sets->meshes[i] == mesh) return sets->sets[i];
  return UINT64_MAX;
}
