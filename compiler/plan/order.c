/* The order of groups: see block.h.
 *
 * The fuser's order is topological. Kept from it: what may run per accumulated batch (FORWARD,
 * BACKWARD) comes before what runs once (REDUCE, OPTIMIZER). Changed: a group whose result is
 * wanted only later, and whose inputs stay alive anyway (constants, index vectors, casts of
 * variables), moves down to just before its first use, so that its result does not take memory
 * meanwhile. Gathers and reduce-scatters of one bucket move down to the last of them, where one
 * action can do them all. An ASSIGN moves behind every reader of the variable's old value. Where a
 * step has one batch, the optimizer updates a parameter as soon as its gradient is there and
 * nothing reads the old value any more: not all gradients live at once, and each is still in the
 * caches. With `together` updates stay at the end (plan/together.c).
 */
#include <string.h>

#include "plan/block.h"

uint32_t block_part(const PlanBlock *b, uint32_t g) {
  Phase p = group_phase(b, g);
  if (!b->pipeline) return p == PHASE_REDUCE || p == PHASE_OPTIMIZER;
  uint32_t segment = group_segment(b, g); /* ONCE, the first, comes last */
  return (segment ? segment : b->pipeline->segments.len) - 1;
}

uint32_t block_first_once(const PlanBlock *b) {
  return b->pipeline ? b->pipeline->segments.len - 2 : 1;
}

/* The parts of the step one after the other, each in the order of the fuser. */
static void partition(const PlanBlock *b, uint32_t *to) {
  uint32_t parts = b->pipeline ? b->pipeline->segments.len : 2;
  uint32_t *start = ARENA_ARRAY(b->arena, uint32_t, parts + 1);
  for (uint32_t i = 0; i < b->norder; i++) start[block_part(b, i) + 1]++;
  for (uint32_t i = 0; i < parts; i++) start[i + 1] += start[i];
  for (uint32_t i = 0; i < b->norder; i++) to[start[block_part(b, i)]++] = i;
}

/* Per value root: the last position at which it is used. */
static uint32_t *last_uses(const PlanBlock *b, const uint32_t *order) {
  uint32_t *last = ARENA_ARRAY(b->arena, uint32_t, b->fused->values.len);
  for (uint32_t i = 0; i < b->norder; i++) {
    const Group *g = &b->fused->groups.data[order[i]];
    for (uint32_t k = 0; k < g->ninputs; k++)
      if (g->inputs[k]) last[block_root(b, g->inputs[k])] = i;
  }
  return last;
}

/* A step along a ring: it is begun where its value is ready (plan/ahead.c) and is over where the
 * block is used, so what stands between them runs meanwhile. */
bool block_is_ring_step(const PlanBlock *b, const Group *g) {
  const Node *n = graph_node(b->fused->graph, g->node);
  return g->kind == GROUP_COLLECTIVE && n->op == OP_SEND_MESH && node_attr(n, ATTR_AXES);
}

/* May wait: computes, does not talk to others or to the world, and needs nothing that could have
 * been freed earlier. */
static bool can_wait(const PlanBlock *b, const Group *g, uint32_t at, const uint32_t *last) {
  if (block_is_ring_step(b, g)) return true;
  if (g->kind != GROUP_KERNEL && g->kind != GROUP_VIEW) return false;
  for (uint32_t k = 0; k < g->ninputs; k++)
    if (g->inputs[k] && last[block_root(b, g->inputs[k])] <= at) return false;
  return true;
}

void block_sort(const PlanBlock *b, uint32_t *order, const uint32_t *key, bool owner_first) {
  uint32_t *start = ARENA_ARRAY(b->arena, uint32_t, b->norder + 2);
  uint32_t *sorted = ARENA_ARRAY(b->arena, uint32_t, b->norder);
  for (uint32_t i = 0; i < b->norder; i++) start[key[i] + 1]++;
  for (uint32_t i = 0; i < b->norder; i++) start[i + 1] += start[i];
  for (int owners = owner_first ? 1 : 0, pass = 0; pass < 2; pass++, owners = !owners)
    for (uint32_t i = 0; i < b->norder; i++)
      if ((key[i] == i) == owners) sorted[start[key[i]]++] = order[i];
  memcpy(order, sorted, b->norder * sizeof *order);
}

/* Moves groups that can wait down to their first user, by giving each a sort key. */
static void sink(PlanBlock *b, uint32_t *order) {
  uint32_t nvalues = b->fused->values.len;
  uint32_t *last = last_uses(b, order);
  uint32_t *first_use =
      ARENA_ARRAY(b->arena, uint32_t, nvalues); /* new key of the first user + 1 */
  uint32_t *key = ARENA_ARRAY(b->arena, uint32_t, b->norder);
  for (uint32_t i = b->norder; i-- > 0;) {
    const Group *g = &b->fused->groups.data[order[i]];
    key[i] = i;
    if (can_wait(b, g, i, last)) {
      uint32_t wanted = NOWHERE;
      for (uint32_t k = 0; k < g->noutputs; k++) {
        uint32_t use = first_use[g->outputs[k]];
        if (use && use - 1 < wanted) wanted = use - 1;
      }
      if (wanted != NOWHERE && wanted > i &&
          block_part(b, order[i]) == block_part(b, order[wanted]))
        key[i] = wanted;
    }
    for (uint32_t k = 0; k < g->ninputs; k++) {
      uint32_t *use = g->inputs[k] ? &first_use[g->inputs[k]] : NULL;
      if (use && (*use == 0 || key[i] + 1 < *use)) *use = key[i] + 1;
    }
  }
  block_sort(b, order, key, false);
}

/* Every ASSIGN right behind the last reader of its variable's old value in its part of the step;
 * readers behind that part see the new value. */
static void delay_assigns(PlanBlock *b, uint32_t *order) {
  const FusedProgram *f = b->fused;
  uint32_t nvars = b->program->vars.len;
  uint32_t *last = last_uses(b, order);
  uint32_t *read_until = ARENA_ARRAY(b->arena, uint32_t, nvars); /* position + 1 */
  for (uint32_t i = 0; i < b->norder; i++) {
    const Group *g = &f->groups.data[order[i]];
    if (group_op(b, order[i]) != OP_READ) continue;
    uint32_t var = (uint32_t)node_int(graph_node(f->graph, g->node), ATTR_VAR, 0);
    uint32_t until = last[block_root(b, g->outputs[0])];
    if (until < i) until = i;
    if (until + 1 > read_until[var]) read_until[var] = until + 1;
  }
  uint32_t *key = ARENA_ARRAY(b->arena, uint32_t, b->norder);
  uint32_t *part_end = ARENA_ARRAY(b->arena, uint32_t, b->norder + 1); /* last of the same part */
  for (uint32_t i = b->norder; i-- > 0;) {
    bool ends = i + 1 == b->norder || block_part(b, order[i]) != block_part(b, order[i + 1]);
    part_end[i] = ends ? i : part_end[i + 1];
  }
  for (uint32_t i = 0; i < b->norder; i++) {
    key[i] = i;
    if (group_op(b, order[i]) == OP_ASSIGN) {
      const Group *g = &f->groups.data[order[i]];
      uint32_t var = (uint32_t)node_int(graph_node(f->graph, g->node), ATTR_VAR, 0);
      uint32_t until = read_until[var] > i ? read_until[var] - 1 : i;
      key[i] = until > part_end[i] ? part_end[i] : until;
    }
  }
  block_sort(b, order, key, true);
}

/* A bucket while its members are collected. */
typedef struct Collected {
  int64_t bucket;
  Op op;
  uint32_t last; /* position of the last member so far */
  uint32_t part; /* of the step */
  bool closed;
} Collected;

static Collected *collected(const PlanBlock *b, Collected *all, uint32_t n, uint32_t g) {
  const Node *node = graph_node(b->fused->graph, b->fused->groups.data[g].node);
  for (uint32_t i = n; i-- > 0;)
    if (all[i].bucket == node_int(node, ATTR_BUCKET, 0) && all[i].op == node->op &&
        all[i].part == block_part(b, g))
      return all[i].closed ? NULL : &all[i];
  return NULL;
}

/* Moves members of a bucket down to the last one before which nothing needs what they bring. */
static void join_buckets(PlanBlock *b, uint32_t *order) {
  const FusedProgram *f = b->fused;
  Collected *all = ARENA_ARRAY(b->arena, Collected, b->norder);
  uint32_t *of = ARENA_ARRAY(b->arena, uint32_t, b->norder); /* 1 + index in `all`, per position */
  uint32_t *made = ARENA_ARRAY(b->arena, uint32_t, f->values.len); /* likewise, per value */
  uint32_t n = 0;
  for (uint32_t i = 0; i < b->norder; i++) {
    const Group *g = &f->groups.data[order[i]];
    for (uint32_t k = 0; k < g->ninputs; k++)
      if (g->inputs[k] && made[block_root(b, g->inputs[k])])
        all[made[block_root(b, g->inputs[k])] - 1].closed = true;
    const Node *node = graph_node(f->graph, g->node);
    if (g->kind != GROUP_COLLECTIVE || node->op == OP_ALL_REDUCE) continue;
    int64_t bucket = node_int(node, ATTR_BUCKET, 0);
    if (!bucket) continue;
    Collected *c = collected(b, all, n, order[i]);
    if (!c) {
      c = &all[n++];
      *c = (Collected){.bucket = bucket, .op = node->op, .part = block_part(b, order[i])};
    }
    c->last = i;
    of[i] = made[g->outputs[0]] = (uint32_t)(c - all) + 1;
  }
  uint32_t *key = ARENA_ARRAY(b->arena, uint32_t, b->norder);
  for (uint32_t i = 0; i < b->norder; i++) key[i] = of[i] ? all[of[i] - 1].last : i;
  block_sort(b, order, key, false);
}

uint32_t block_bucket_end(const PlanBlock *b, const uint32_t *order, uint32_t at) {
  for (;; at++) {
    if (at + 1 == b->norder) return at;
    const Group *g = &b->fused->groups.data[order[at]];
    const Group *next = &b->fused->groups.data[order[at + 1]];
    if (g->kind != GROUP_COLLECTIVE || next->kind != GROUP_COLLECTIVE) return at;
    int64_t bucket = node_int(graph_node(b->fused->graph, g->node), ATTR_BUCKET, 0);
    if (!bucket || bucket != node_int(graph_node(b->fused->graph, next->node), ATTR_BUCKET, 0))
      return at;
  }
}

uint32_t *block_old_values(const PlanBlock *b) {
  uint32_t *of = ARENA_ARRAY(b->arena, uint32_t, b->fused->values.len);
  for (uint32_t i = 0; i < b->norder; i++) {
    if (group_op(b, i) != OP_READ) continue;
    const Group *g = &b->fused->groups.data[i];
    const Node *n = graph_node(b->fused->graph, g->node);
    of[block_root(b, g->outputs[0])] = (uint32_t)node_int(n, ATTR_VAR, 0) + 1;
  }
  return of;
}

/* What hoist_optimizer knows of a value and of a variable. */
typedef struct Hoist {
  const uint32_t *old; /* per root: block_old_values */
  uint32_t *made;      /* per root: new position of its maker */
  uint32_t *written;   /* per root: 1 + the variable that it is assigned to */
  uint32_t *last_read; /* per variable: position of the last reader of its old value */
  uint32_t *read;      /* per variable: new position of the last of its readers so far */
} Hoist;

static uint32_t assigned_var(const PlanBlock *b, const Hoist *h, const Group *g, uint32_t output) {
  const Node *n = graph_node(b->fused->graph, g->node);
  if (n->op == OP_ASSIGN) return (uint32_t)node_int(n, ATTR_VAR, 0) + 1;
  return output < g->noutputs ? h->written[block_root(b, g->outputs[output])] : 0;
}

/* The position behind which the group at i may run: everything that it reads is there, and nobody
 * reads the old values of what it writes any more. */
static uint32_t earliest(const PlanBlock *b, const Hoist *h, const Group *g, uint32_t i) {
  uint32_t at = 0;
  for (uint32_t k = 0; k < g->ninputs; k++)
    if (g->inputs[k] && h->made[block_root(b, g->inputs[k])] > at)
      at = h->made[block_root(b, g->inputs[k])];
  for (uint32_t k = 0; k < g->noutputs + 1; k++) {
    uint32_t var = assigned_var(b, h, g, k);
    if (!var) continue;
    if (h->last_read[var - 1] > i) return i;
    if (h->read[var - 1] > at) at = h->read[var - 1];
  }
  return at;
}

/* The group at i runs behind the one at `key`. */
static void settle(const PlanBlock *b, Hoist *h, const Group *g, uint32_t key) {
  for (uint32_t k = 0; k < g->noutputs; k++) h->made[block_root(b, g->outputs[k])] = key;
  for (uint32_t k = 0; k < g->ninputs; k++) {
    uint32_t var = g->inputs[k] ? h->old[block_root(b, g->inputs[k])] : 0;
    if (var && key > h->read[var - 1]) h->read[var - 1] = key;
  }
}

/* Moves what the optimizer does up among the groups of the only batch: behind what it needs and
 * behind the outputs, where a loss that is not finite ends the step. */
static void hoist_optimizer(const PlanBlock *b, uint32_t *order) {
  const FusedProgram *f = b->fused;
  uint32_t nvalues = f->values.len, nvars = b->program->vars.len, once = 0, outputs = 0;
  uint32_t *key = ARENA_ARRAY(b->arena, uint32_t, b->norder);
  Hoist h = {.old = block_old_values(b),
             .made = ARENA_ARRAY(b->arena, uint32_t, nvalues),
             .written = ARENA_ARRAY(b->arena, uint32_t, nvalues),
             .last_read = ARENA_ARRAY(b->arena, uint32_t, nvars),
             .read = ARENA_ARRAY(b->arena, uint32_t, nvars)};
  for (uint32_t i = 0; i < b->norder; i++) {
    const Group *g = &f->groups.data[order[i]];
    if (block_part(b, order[i]) < block_first_once(b)) once = i + 1;
    if (group_op(b, order[i]) == OP_OUTPUT && once == i + 1) outputs = i;
    if (group_op(b, order[i]) == OP_ASSIGN)
      h.written[block_root(b, g->inputs[0])] = assigned_var(b, &h, g, 0);
    for (uint32_t k = 0; k < g->ninputs; k++) {
      uint32_t var = g->inputs[k] ? h.old[block_root(b, g->inputs[k])] : 0;
      if (var) h.last_read[var - 1] = i;
    }
  }
  for (uint32_t i = 0; i < b->norder; i++) {
    const Group *g = &f->groups.data[order[i]];
    key[i] = i;
    if (i >= once && group_phase(b, order[i]) == PHASE_OPTIMIZER) {
      uint32_t at = earliest(b, &h, g, i);
      if (at < outputs) at = outputs;
      if (at < once) key[i] = block_bucket_end(b, order, at);
    }
    settle(b, &h, g, key[i]);
  }
  block_sort(b, order, key, true);
}

void block_order(PlanBlock *b) {
  b->norder = b->fused->groups.len;
  uint32_t *order = ARENA_ARRAY(b->arena, uint32_t, b->norder);
  partition(b, order);
  delay_assigns(b, order);
  sink(b, order);
  join_buckets(b, order);
  block_order_ahead(b, order);
  delay_assigns(b, order); /* a reader may have moved behind an ASSIGN */
  if (b->together)
    block_order_together(b, order);
  else if (b->one_batch)
    hoist_optimizer(b, order);
  b->order = order;
  b->position = ARENA_ARRAY(b->arena, uint32_t, b->norder);
  b->looped = 0;
  for (uint32_t i = 0; i < b->norder; i++) {
    b->position[order[i]] = i;
    if (block_part(b, order[i]) < block_first_once(b)) b->looped = i + 1;
  }
}
