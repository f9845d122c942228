/* Offsets of a block's memory: see block.h. Buckets of gradient reductions, then packing. */
#include <string.h>

#include "plan/block.h"

/* --- buckets
 * --------------------------------------------------------------------------------------- */

static const Node *group_node(const PlanBlock *b, uint32_t g) {
  return graph_node(b->fused->graph, b->fused->groups.data[g].node);
}

/* The bucket of a collective, of an all-reduce if it runs in place; 0 = it has none. */
static int64_t bucket_of(const PlanBlock *b, uint32_t g) {
  const Node *n = group_node(b, g);
  if (n->op != OP_ALL_REDUCE) return node_int(n, ATTR_BUCKET, 0);
  const Group *group = &b->fused->groups.data[g];
  const Storage *s = block_storage(b, group->outputs[0]);
  if (s != block_storage(b, group->inputs[0]) || s->step) return 0;
  return node_int(n, ATTR_BUCKET, 0);
}

/* Both may be one collective: same operator, ranks, element type and, on its axes, reduction. */
static bool alike(const PlanBlock *b, uint32_t g, uint32_t h) {
  const Graph *graph = b->fused->graph;
  const Node *m = group_node(b, g), *n = group_node(b, h);
  const TensorType *s = value_type(graph, m->operands[0]), *t = value_type(graph, n->operands[0]);
  if (m->op != n->op || s->mesh != t->mesh || s->dtype != t->dtype ||
      !attr_equal(node_attr(m, ATTR_AXES), node_attr(n, ATTR_AXES)))
    return false;
  const Attr *axes = node_attr(m, ATTR_AXES);
  for (uint32_t i = 0; i < axes->as.ints.len; i++) {
    const Place *p = &s->layout.at[axes->as.ints.data[i]],
                *q = &t->layout.at[axes->as.ints.data[i]];
    if ((p->kind == PLACE_PARTIAL || q->kind == PLACE_PARTIAL) && memcmp(p, q, sizeof *p) != 0)
      return false;
  }
  return true;
}

/* What the members before read is needed, and what they write is made, when `g` runs. */
static void extend_lives(PlanBlock *b, uint32_t g) {
  for (uint32_t m = b->bucket_before[g]; m; m = b->bucket_before[m - 1]) {
    const Group *member = &b->fused->groups.data[m - 1];
    Storage *in = block_storage(b, member->inputs[0]), *out = block_storage(b, member->outputs[0]);
    if (in->last < b->position[g]) in->last = b->position[g];
    if (out->last < b->position[g]) out->last = b->position[g];
  }
}

/* Members of a bucket are moved as parts of one buffer, which those with a block for each
 * micro-batch under way are not. */
static bool has_slots(const PlanBlock *b, uint32_t g) {
  const Group *group = &b->fused->groups.data[g];
  return block_storage(b, group->inputs[0])->slots > 1 ||
         block_storage(b, group->outputs[0])->slots > 1;
}

void block_find_buckets(PlanBlock *b) {
  uint32_t ngroups = b->fused->groups.len, last = 0; /* 1 + the member before */
  b->bucket_before = ARENA_ARRAY(b->arena, uint32_t, ngroups);
  b->bucket_goes_on = ARENA_ARRAY(b->arena, bool, ngroups);
  for (uint32_t p = 0; p < b->norder; p++) {
    uint32_t g = b->order[p];
    if (b->fused->groups.data[g].kind == GROUP_VIEW || group_op(b, g) == OP_READ) continue;
    int64_t bucket = bucket_of(b, g);
    if (bucket && last && bucket == bucket_of(b, last - 1) && alike(b, last - 1, g) &&
        !has_slots(b, last - 1) && !has_slots(b, g)) {
      b->bucket_before[g] = last;
      b->bucket_goes_on[last - 1] = true;
      extend_lives(b, g);
    }
    last = bucket ? g + 1 : 0;
  }
}

/* --- packing
 * --------------------------------------------------------------------------------------- */

/* Where a storage lies: `at` bytes into a packed item. */
typedef struct Slot {
  uint32_t item, storage;
  uint64_t at;
} Slot;

static uint32_t storage_index(const PlanBlock *b, FValueId v) {
  return (uint32_t)(block_storage(b, v) - b->storage);
}

/* Puts the members of a bucket that follow each other into one item, but for accumulators, which
 * have their place among the variables; an item grows to `most` bytes. A storage that several
 * buckets use (scattered over one axis, then reduced in place over another) is in the item of the
 * first that joined it. slot_of[storage] = 1 + slot; 0 = none. Returns the bytes of the largest
 * item that was made, 0 when none was. */
static uint64_t join_buckets(const PlanBlock *b, PackItem *items, Slot *slots,
                             const uint32_t *slot_of, uint64_t most) {
  uint64_t largest = 0;
  for (uint32_t p = 0; p < b->norder; p++) {
    uint32_t g = b->order[p];
    if (!b->bucket_before[g]) continue;
    const Group *before = &b->fused->groups.data[b->bucket_before[g] - 1];
    uint32_t slot = slot_of[storage_index(b, b->fused->groups.data[g].outputs[0])];
    uint32_t slot_before = slot_of[storage_index(b, before->outputs[0])];
    if (!slot || !slot_before) continue;
    Slot *mine = &slots[slot - 1];
    PackItem *into = &items[slots[slot_before - 1].item];
    PackItem *old = &items[mine->item];
    bool joined = mine->item != slot - 1 || old->size != storage_bytes(&b->storage[mine->storage]);
    if (joined || into->size + old->size > most) continue;
    mine->at = into->size;
    mine->item = (uint32_t)(into - items);
    into->size += old->size;
    old->size = 0;
    if (old->first < into->first) into->first = old->first;
    if (old->last > into->last) into->last = old->last;
    into->where |= old->where;
    if (into->size > largest) largest = into->size;
  }
  return largest;
}

/* The members of a bucket lie side by side, so that one transfer serves them all, as far as memory
 * allows: all are alive from the first one on. Pieces are halved until the arena is within 2 % of
 * what is alive. */
static void pack(PlanBlock *b, const PackItem *items, Slot *slots, uint32_t n,
                 const uint32_t *slot_of, PackItem *packed) {
  b->live_bound = pack_bound(b->arena, items, n);
  const uint64_t allowed = b->live_bound + b->live_bound / 50;
  for (uint64_t most = UINT64_MAX;;) {
    memcpy(packed, items, n * sizeof *packed);
    for (uint32_t i = 0; i < n; i++) slots[i].item = i, slots[i].at = 0;
    uint64_t bound, largest = join_buckets(b, packed, slots, slot_of, most);
    if (largest == 0 || pack_bound(b->arena, packed, n) <= allowed) {
      b->height = pack_items(b->arena, packed, n, &bound);
      if (largest == 0 || b->height <= allowed) return;
    }
    most = largest / 2;
  }
}

void block_place(PlanBlock *b, uint64_t base, const uint64_t *var_offset, bool reuse) {
  uint32_t nvalues = b->fused->values.len, n = 0;
  PackItem *items = ARENA_ARRAY(b->arena, PackItem, nvalues);
  PackItem *packed = ARENA_ARRAY(b->arena, PackItem, nvalues);
  Slot *slots = ARENA_ARRAY(b->arena, Slot, nvalues);
  uint32_t *slot_of = ARENA_ARRAY(b->arena, uint32_t, nvalues);
  for (uint32_t v = 1; v < nvalues; v++) {
    Storage *s = &b->storage[v];
    if (s->parent != v || s->first == NOWHERE) continue;
    s->offset = base;
    if (s->var)
      s->offset = var_offset[s->var - 1];
    else if (s->step)
      s->offset = ABI_STEP_OFFSET + offsetof(AbiStep, step);
    else {
      items[n] = (PackItem){
          .size = storage_bytes(s), .first = s->first, .last = s->last, .where = s->ranks};
      if (!reuse) items[n] = (PackItem){.size = storage_bytes(s), .last = b->norder};
      slots[n] = (Slot){.storage = v};
      slot_of[v] = ++n;
    }
  }
  pack(b, items, slots, n, slot_of, packed);
  for (uint32_t i = 0; i < n; i++)
    b->storage[slots[i].storage].offset = base + packed[slots[i].item].offset + slots[i].at;
}
