/* Shared by the files of plan/: one program block while it is planned. */
#ifndef DTM_PLAN_BLOCK_H
#define DTM_PLAN_BLOCK_H

#include "plan/image.h"
#include "plan/pack.h"
#include "plan/plan.h"
#include "plan/ranks.h"
#include "spmd/pipeline.h"

enum { NOWHERE = UINT32_MAX };

/* A piece of memory: one materialised value that is no alias, with what was put in its place. */
typedef struct Storage {
  uint32_t parent;      /* union-find over values that share the memory */
  uint64_t bytes;       /* rounded up to the alignment */
  uint32_t first, last; /* positions in the order at which it is alive; first NOWHERE = never */
  uint32_t var;         /* 1 + index of the variable whose memory it is; 0 = none */
  uint64_t ranks;       /* that hold it, see ranks.h */
  bool step;            /* lies in the step block */
  bool outbox;          /* of a channel between stages */
  uint32_t slots;       /* blocks of `bytes` side by side, for micro-batches under way; 0 = one */
  uint64_t offset;      /* in the arena, when planned */
} Storage;

typedef struct PlanBlock {
  Arena *arena;
  const Program *program;
  FusedProgram *fused;
  const RankSets *sets;
  uint32_t *order, norder;  /* groups in execution order */
  const Pipeline *pipeline; /* or NULL */
  bool one_batch;           /* of a step: nothing is accumulated */
  uint32_t looped;          /* the first `looped` of them run per batch or micro-batch */
  uint32_t *position;       /* per group: index in order */
  Storage *storage;         /* per FValue */
  bool *copies;             /* per group: an ASSIGN that copies */
  /* Collectives that one action does together: per group 1 + the member before it, and whether one
   * follows. The last member's action stands for all; buffers of all-reduces lie side by side. */
  uint32_t *bucket_before;
  bool *bucket_goes_on;
  bool ahead;       /* collectives may begin before what runs meanwhile */
  bool together;    /* updates stand side by side at the end of the step */
  uint32_t *begins; /* per group, of a bucket the last: 1 + the position before which it begins; 0 =
                     * where it ends */
  uint64_t live_bound, height;
} PlanBlock;

/* The mesh whose ranks run a group; NULL = the world. */
const Mesh *block_mesh(const PlanBlock *b, const Group *g);
/* The memory of a value: the representative of its alias root. */
Storage *block_storage(const PlanBlock *b, FValueId v);

/* Fills order, looped, position. */
void block_order(PlanBlock *b);
/* The groups by key; of one key the owner (which stands at this position now) last or first. */
void block_sort(const PlanBlock *b, uint32_t *order, const uint32_t *key, bool owner_first);
/* Makes room for what begins ahead. */
void block_order_ahead(PlanBlock *b, uint32_t *order);
bool block_is_ring_step(const PlanBlock *b, const Group *g);
/* The part of the step in which a group runs; parts come one after the other. */
uint32_t block_part(const PlanBlock *b, uint32_t g);
/* Parts before this one run per batch or micro-batch. */
uint32_t block_first_once(const PlanBlock *b);
/* The position of the last member of the bucket that stands at this position; the position itself
 * where none does. */
uint32_t block_bucket_end(const PlanBlock *b, const uint32_t *order, uint32_t at);
/* The value whose memory a value is, views looked through, before memory is shared. */
static inline FValueId block_root(const PlanBlock *b, FValueId v) {
  FValueId alias = b->fused->values.data[v].alias;
  return alias ? alias : v;
}
/* Per value root 1 + the variable it is the old value of; 0 = none. */
uint32_t *block_old_values(const PlanBlock *b);
/* Puts kernels of the optimizer that are alike side by side. */
void block_order_together(const PlanBlock *b, uint32_t *order);
/* Gives values that live from one segment of a pipeline to another a block for each micro-batch
 * that is under way meanwhile; lives are those of `block_share`'s first pass. */
void block_find_slots(PlanBlock *b);
/* Fills storage (all but offset), copies: lives, sharing, variables updated in place. */
void block_share(PlanBlock *b, bool reuse);
/* What kernels of the optimizer that stand side by side touch lives as long as the last of them, so
 * that none has to wait for another. */
void block_find_runs(PlanBlock *b);
/* Fills bucket_*: runs of neighbouring collectives of one ATTR_BUCKET. Their buffers live until the
 * last of them. */
void block_find_buckets(PlanBlock *b);
/* Fills begins. What is written before is alive from there on. */
void block_find_begins(PlanBlock *b);
/* Gives offsets above `base`; var_offset per variable. */
void block_place(PlanBlock *b, uint64_t base, const uint64_t *var_offset, bool reuse);
/* Lists what block_place placed, for the drawing. */
void block_list_buffers(const PlanBlock *b, uint64_t base, PlanReport *report);
/* Appends the block's actions. `kind` is its index in the program table. */
void block_emit(PlanBlock *b, ImageWriter *w, BlockKind kind, const uint64_t *var_offset,
                PlanReport *report);

static inline Phase group_phase(const PlanBlock *b, uint32_t g) {
  return (Phase)graph_node(b->fused->graph, b->fused->groups.data[g].node)->phase;
}
static inline uint32_t group_segment(const PlanBlock *b, uint32_t g) {
  return graph_node(b->fused->graph, b->fused->groups.data[g].node)->segment;
}
static inline uint64_t storage_bytes(const Storage *s) {
  return s->bytes * (s->slots > 1 ? s->slots : 1);
}
static inline Op group_op(const PlanBlock *b, uint32_t g) {
  return graph_node(b->fused->graph, b->fused->groups.data[g].node)->op;
}

#endif
