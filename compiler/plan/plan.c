/* The planner's driver: see plan.h. In: fused blocks. Out: the image. */
#include "plan/plan.h"

#include <string.h>

#include "plan/block.h"

static uint64_t aligned(uint64_t n) {
  return (n + ABI_ALIGN - 1) / ABI_ALIGN * ABI_ALIGN;
}

/* Variables one after the other behind the step block, on every rank its own: those on many ranks
 * first, so that others follow them without a gap. Returns the end of the last. */
static uint64_t place_variables(Arena *arena, const Program *program, const RankSets *sets,
                                uint64_t *offset, Plan *plan) {
  uint64_t end[64], kinds[64][VAR_COUNT] = {{0}}, top = ABI_STEP_BYTES;
  bool *placed = ARENA_ARRAY(arena, bool, program->vars.len);
  for (uint32_t c = 0; c < 64; c++) end[c] = ABI_STEP_BYTES;
  for (uint32_t most = sets->nclasses; most > 0; most--)
    for (uint32_t i = 0; i < program->vars.len; i++) {
      const Var *v = &program->vars.data[i];
      uint64_t ranks = rank_set(sets, v->type.mesh), at = ABI_STEP_BYTES;
      if (placed[i] || (uint32_t)__builtin_popcountll(ranks) < most) continue;
      placed[i] = true;
      uint64_t bytes = aligned((uint64_t)type_local_bytes(&v->type));
      for (uint32_t c = 0; c < sets->nclasses; c++)
        if (ranks >> c & 1 && end[c] > at) at = end[c];
      offset[i] = at;
      for (uint32_t c = 0; c < sets->nclasses; c++) {
        if (!(ranks >> c & 1)) continue;
        end[c] = at + bytes;
        kinds[c][v->kind] += bytes;
      }
      if (at + bytes > top) top = at + bytes;
    }
  uint32_t fullest = 0;
  for (uint32_t c = 1; c < sets->nclasses; c++)
    if (end[c] > end[fullest]) fullest = c;
  memcpy(plan->variables, kinds[fullest], sizeof plan->variables);
  return top;
}

static void raise(uint64_t *top, uint64_t end) {
  if (end > *top) *top = end;
}

/* What stages need besides buffers. */
static void measure_variables(Arena *arena, const Program *program, const RankSets *sets,
                              const uint64_t *offset, Plan *plan) {
  const Pipeline *p = program->block[BLOCK_TRAIN].pipeline;
  if (!p) return;
  plan->stages = ARENA_ARRAY(arena, StageMemory, p->stages.len);
  for (uint32_t s = 0; s < p->stages.len; s++) {
    uint64_t ranks = rank_set(sets, p->stages.data[s].mesh), *top = &plan->stages[s].arena;
    *top = ABI_STEP_BYTES;
    for (uint32_t i = 0; i < program->vars.len; i++)
      if (rank_set(sets, program->vars.data[i].type.mesh) & ranks)
        raise(top, offset[i] + (uint64_t)type_local_bytes(&program->vars.data[i].type));
  }
}

/* What they need of a block's buffers. */
static void measure_stages(const PlanBlock *b, Plan *plan) {
  const Pipeline *p = b->program->block[BLOCK_TRAIN].pipeline;
  for (uint32_t s = 0; p && s < p->stages.len; s++) {
    uint64_t ranks = rank_set(b->sets, p->stages.data[s].mesh);
    for (uint32_t v = 1; v < b->fused->values.len; v++) {
      const Storage *x = &b->storage[v];
      if (x->parent != v || x->first == NOWHERE || x->var || x->step || !(x->ranks & ranks))
        continue;
      raise(&plan->stages[s].arena, x->offset + storage_bytes(x));
      if (x->slots && !x->outbox) plan->stages[s].kept += storage_bytes(x);
    }
  }
}

static void emit_variables(ImageWriter *w, const Program *program, const uint64_t *offset) {
  for (uint32_t i = 0; i < program->vars.len; i++) {
    const Var *v = &program->vars.data[i];
    AbiVar a = {.kind = v->kind,
                .name = image_string(w, v->name),
                .foreign_name = image_string(w, v->foreign_name),
                .transposed = v->transposed,
                .type = image_type(w, &v->type),
                .param = v->param,
                .chunks = v->chunks > 1 ? v->chunks : 1,
                .offset = offset[i]};
    if (v->span.file && program->sources)
      a.source = image_string(w, span_print(w->arena, program->sources, v->span));
    VEC_PUSH(w->arena, &w->var, a);
  }
}

Plan *plan_run(Arena *arena, const Program *program, FusedProgram *const fused[BLOCK_COUNT],
               uint32_t nkernels, const PlanOptions *options) {
  Plan *plan = ARENA_NEW(arena, Plan);
  ImageWriter w;
  image_init(&w, arena);
  image_mesh(&w, program->world);
  for (BlockKind i = BLOCK_INIT; i < BLOCK_COUNT; i++)
    VEC_PUSH(arena, &w.program, (AbiProgram){.accumulate = 1, .microbatches = 1});
  uint64_t *offset = ARENA_ARRAY(arena, uint64_t, program->vars.len);
  RankSets sets;
  rank_sets_find(arena, program, fused, &sets);
  plan->persistent_size = place_variables(arena, program, &sets, offset, plan);
  const Pipeline *pipeline = program->block[BLOCK_TRAIN].pipeline;
  const uint64_t counts = plan->persistent_size;
  if (pipeline) plan->persistent_size += aligned(pipeline->channels.len * ABI_CHANNEL_BYTES);
  plan->arena_size = plan->persistent_size;
  emit_variables(&w, program, offset);
  measure_variables(arena, program, &sets, offset, plan);
  for (BlockKind i = BLOCK_INIT; i < BLOCK_COUNT; i++) {
    if (!fused[i]) continue;
    PlanBlock b = {.arena = arena, .program = program, .fused = fused[i], .sets = &sets};
    b.ahead = options->ahead;
    b.pipeline = program->block[i].pipeline;
    block_order(&b);
    block_share(&b, options->reuse);
    block_find_buckets(&b);
    block_find_begins(&b);
    block_place(&b, plan->persistent_size, offset, options->reuse);
    measure_stages(&b, plan);
    block_emit(&b, &w, i, offset, &plan->blocks[i]);
    block_list_buffers(&b, plan->persistent_size, &plan->blocks[i]);
    uint64_t end = plan->persistent_size + b.height;
    if (end > plan->arena_size) plan->arena_size = end;
  }
  AbiHeader header = {.nkernels = nkernels,
                      .seed = program->seed,
                      .arena_size = plan->arena_size,
                      .persistent_size = plan->persistent_size,
                      .counts_offset = counts,
                      .path = image_string(&w, options->path),
                      .compiler = image_string(&w, options->compiler),
                      .world = image_mesh(&w, program->world)};
  plan->image = image_finish(&w, &header);
  plan->image_size = header.size;
  return plan;
}
