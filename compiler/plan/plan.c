/* The planner's driver: see plan.h. In: fused blocks. Out: the image. */
#include "plan/plan.h"

#include <stdlib.h>
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

/* A piece of the arena, and the ranks that use it. */
typedef struct Piece {
  uint64_t begin, end, ranks;
} Piece;
typedef VEC(Piece) PieceList;

static int by_begin(const void *a, const void *b) {
  uint64_t x = ((const Piece *)a)->begin, y = ((const Piece *)b)->begin;
  return (x > y) - (x < y);
}

static void list_variables(Arena *arena, const Program *program, const RankSets *sets,
                           const uint64_t *offset, PieceList *out) {
  VEC_PUSH(arena, out, (Piece){0, ABI_STEP_BYTES, UINT64_MAX});
  for (uint32_t i = 0; i < program->vars.len; i++) {
    const TensorType *t = &program->vars.data[i].type;
    uint64_t end = offset[i] + (uint64_t)type_local_bytes(t);
    VEC_PUSH(arena, out, (Piece){offset[i], end, rank_set(sets, t->mesh)});
  }
}

/* Buffers of a block; what stages keep of them. */
static void list_buffers(const PlanBlock *b, Plan *plan, PieceList *out) {
  const Pipeline *p = b->program->block[BLOCK_TRAIN].pipeline;
  for (uint32_t v = 1; v < b->fused->values.len; v++) {
    const Storage *x = &b->storage[v];
    if (x->parent != v || x->first == NOWHERE || x->var || x->step) continue;
    VEC_PUSH(b->arena, out, (Piece){x->offset, x->offset + storage_bytes(x), x->ranks});
    if (!x->slots || x->outbox) continue;
    for (uint32_t s = 0; s < p->stages.len; s++)
      if (x->ranks & rank_set(b->sets, p->stages.data[s].mesh))
        plan->stages[s].kept += storage_bytes(x);
  }
}

/* How many bytes of the arena each stage uses. What lies between them is never touched. */
static void measure_stages(const Pipeline *p, const RankSets *sets, PieceList *pieces,
                           StageMemory *out) {
  qsort(pieces->data, pieces->len, sizeof *pieces->data, by_begin);
  for (uint32_t s = 0; s < p->stages.len; s++) {
    uint64_t ranks = rank_set(sets, p->stages.data[s].mesh), top = 0;
    for (uint32_t i = 0; i < pieces->len; i++) {
      const Piece *x = &pieces->data[i];
      if (!(x->ranks & ranks) || x->end <= top) continue;
      out[s].arena += x->end - (x->begin > top ? x->begin : top);
      top = x->end;
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
  PieceList pieces = {0};
  if (pipeline) {
    plan->stages = ARENA_ARRAY(arena, StageMemory, pipeline->stages.len);
    list_variables(arena, program, &sets, offset, &pieces);
  }
  for (BlockKind i = BLOCK_INIT; i < BLOCK_COUNT; i++) {
    if (!fused[i]) continue;
    PlanBlock b = {.arena = arena, .program = program, .fused = fused[i], .sets = &sets};
    b.ahead = options->ahead;
    b.together = options->together;
    b.pipeline = program->block[i].pipeline;
    b.one_batch = !b.pipeline && program->block[i].settings.accumulate <= 1;
    block_order(&b);
    block_share(&b, options->reuse);
    block_find_runs(&b);
    block_find_buckets(&b);
    block_find_begins(&b);
    block_place(&b, plan->persistent_size, offset, options->reuse);
    if (pipeline) list_buffers(&b, plan, &pieces);
    block_emit(&b, &w, i, offset, &plan->blocks[i]);
    block_list_buffers(&b, plan->persistent_size, &plan->blocks[i]);
    uint64_t end = plan->persistent_size + b.height;
    if (end > plan->arena_size) plan->arena_size = end;
  }
  if (pipeline) measure_stages(pipeline, &sets, &pieces, plan->stages);
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
