/* What the optimizer does for many parameters, side by side: see block.h.
 *
 * In: an order in which every part of the step is right. Out: in the parts that run once per step,
 * kernels of the optimizer that run the same code for different parameters stand one behind the
 * other, as far as what they need allows: on a GPU the runtime makes one launch of such a run
 * (runtime/device/cuda/bundle.h). They share no memory that would put them behind one another.
 *
 * The way is list scheduling (Graham, 1969). Everything else runs as soon as what it needs is there
 * and the world's turn has come: collectives, messages and outputs keep their order among
 * themselves, and the members of a bucket stay neighbours. Only when nothing else can run do
 * kernels of the optimizer, all of one code that can: of a code that waits for nothing more if
 * there is one, the first of the old order among these. So the norm of all gradients is a few
 * launches, and a code is not begun before all its parameters are there unless others wait for it.
 */
#include <string.h>

#include "plan/block.h"

typedef VEC(uint32_t) List;

/* A group, or the neighbouring members of a bucket: what the schedule moves. */
typedef struct Unit {
  uint32_t begin, end; /* positions in the old order */
  uint32_t code;       /* 1 + index of the code; 0 = runs as soon as it can */
  uint32_t waits;      /* for so many units */
  List before;         /* the units that wait for this one */
} Unit;

/* A kernel of the optimizer. */
typedef struct Code {
  uint32_t kernel;
  uint32_t left; /* units that are still to run */
  List ready;
} Code;

/* One part of the step while it is put in order. */
typedef struct Schedule {
  const PlanBlock *b;
  const uint32_t *order;
  VEC(Unit) units;
  VEC(Code) codes;
  List ready;        /* units without a code, in the order in which they run */
  uint32_t *made;    /* per value: 1 + the unit that makes it */
  uint32_t *old;     /* per value root: 1 + the variable whose old value it is */
  uint32_t *written; /* per value root: 1 + the variable that it is assigned to */
  List *readers;     /* per variable: the units that read its old value */
  uint32_t *assign;  /* per variable: 1 + the unit that assigned it */
  uint32_t talked;   /* 1 + the last unit that talks to others */
} Schedule;

static const Group *group_at(const Schedule *s, uint32_t p) {
  return &s->b->fused->groups.data[s->order[p]];
}

static bool is_update(const PlanBlock *b, uint32_t g) {
  return b->fused->groups.data[g].kind == GROUP_KERNEL && group_phase(b, g) == PHASE_OPTIMIZER;
}

/* To other ranks, or to the world. */
static bool talks(const Schedule *s, uint32_t p) {
  Op op = group_op(s->b, s->order[p]);
  GroupKind kind = group_at(s, p)->kind;
  return kind == GROUP_COLLECTIVE || (kind == GROUP_STRUCTURE && op != OP_READ && op != OP_ASSIGN);
}

static uint32_t variable(const Schedule *s, uint32_t p) {
  return (uint32_t)node_int(graph_node(s->b->fused->graph, group_at(s, p)->node), ATTR_VAR, 0);
}

/* The unit u waits for the unit `first` - 1; 0 = for none. */
static void wait_for(Schedule *s, uint32_t u, uint32_t first) {
  if (!first || first - 1 == u) return;
  VEC_PUSH(s->b->arena, &s->units.data[first - 1].before, u);
  s->units.data[u].waits++;
}

/* What is assigned to a variable is made behind the readers of the old value, so that it may be
 * made in the variable's memory. */
static void wait_for_readers(Schedule *s, uint32_t u, uint32_t var) {
  const List *readers = &s->readers[var];
  for (uint32_t i = 0; i < readers->len; i++) wait_for(s, u, readers->data[i] + 1);
}

/* The group at p is part of unit u. */
static void find_waits(Schedule *s, uint32_t u, uint32_t p) {
  const Group *g = group_at(s, p);
  const Op op = group_op(s->b, s->order[p]);
  if (talks(s, p)) {
    wait_for(s, u, s->talked);
    s->talked = u + 1;
  }
  for (uint32_t k = 0; k < g->ninputs; k++) {
    if (!g->inputs[k]) continue;
    const FValueId root = block_root(s->b, g->inputs[k]);
    wait_for(s, u, s->made[g->inputs[k]]);
    if (root != g->inputs[k]) wait_for(s, u, s->made[root]);
    if (s->old[root]) VEC_PUSH(s->b->arena, &s->readers[s->old[root] - 1], u);
  }
  if (op == OP_READ) wait_for(s, u, s->assign[variable(s, p)]);
  if (op == OP_ASSIGN) {
    wait_for_readers(s, u, variable(s, p));
    wait_for(s, u, s->assign[variable(s, p)]);
    s->assign[variable(s, p)] = u + 1;
  }
  for (uint32_t k = 0; k < g->noutputs; k++) {
    const FValueId v = g->outputs[k], root = block_root(s->b, v);
    if (s->written[root]) wait_for_readers(s, u, s->written[root] - 1);
    s->made[v] = u + 1;
    if (g->kind != GROUP_VIEW) s->made[root] = u + 1;
    /* Added-up gradients are reduced where they lie (plan/share.c). */
    if (op == OP_ALL_REDUCE && !s->old[root]) s->old[root] = s->old[block_root(s->b, g->inputs[0])];
  }
}

static uint32_t code_of(Schedule *s, uint32_t kernel) {
  for (uint32_t i = 0; i < s->codes.len; i++)
    if (s->codes.data[i].kernel == kernel) return i;
  VEC_PUSH(s->b->arena, &s->codes, (Code){.kernel = kernel});
  return s->codes.len - 1;
}

static void add_unit(Schedule *s, uint32_t begin, uint32_t end) {
  Unit unit = {.begin = begin, .end = end};
  if (is_update(s->b, s->order[begin])) {
    const uint32_t code = code_of(s, group_at(s, begin)->kernel);
    s->codes.data[code].left++;
    unit.code = code + 1;
  }
  VEC_PUSH(s->b->arena, &s->units, unit);
  for (uint32_t p = begin; p < end; p++) find_waits(s, s->units.len - 1, p);
}

static void set_ready(Schedule *s, uint32_t u) {
  const uint32_t code = s->units.data[u].code;
  List *list = code ? &s->codes.data[code - 1].ready : &s->ready;
  VEC_PUSH(s->b->arena, list, u);
}

/* The unit runs at `to`; returns the position behind it. */
static uint32_t place_unit(Schedule *s, uint32_t u, uint32_t *to) {
  const Unit *unit = &s->units.data[u];
  uint32_t n = 0;
  for (uint32_t p = unit->begin; p < unit->end; p++) to[n++] = s->order[p];
  for (uint32_t i = 0; i < unit->before.len; i++) {
    const uint32_t next = unit->before.data[i];
    if (--s->units.data[next].waits == 0) set_ready(s, next);
  }
  return n;
}

/* The code whose ready kernels run next; NULL = all have run. */
static Code *next_code(Schedule *s) {
  Code *best = NULL;
  for (uint32_t i = 0; i < s->codes.len; i++) {
    Code *c = &s->codes.data[i];
    if (c->ready.len == 0) continue;
    if (!best || (c->left == c->ready.len && best->left != best->ready.len)) best = c;
  }
  return best;
}

static void run_schedule(Schedule *s, uint32_t *to) {
  uint32_t n = 0, next = 0;
  for (uint32_t u = 0; u < s->units.len; u++)
    if (s->units.data[u].waits == 0) set_ready(s, u);
  for (;;) {
    while (next < s->ready.len) n += place_unit(s, s->ready.data[next++], to + n);
    Code *c = next_code(s);
    if (!c) return;
    const List run = c->ready;
    c->ready = (List){0};
    c->left -= run.len;
    for (uint32_t i = 0; i < run.len; i++) n += place_unit(s, run.data[i], to + n);
  }
}

/* The order of positions [begin, end), which are one part. */
static void order_part(const PlanBlock *b, uint32_t *order, uint32_t begin, uint32_t end,
                       Schedule *s) {
  s->units.len = s->codes.len = s->ready.len = 0;
  s->talked = 0;
  memset(s->made, 0, b->fused->values.len * sizeof *s->made);
  memset(s->readers, 0, b->program->vars.len * sizeof *s->readers);
  memset(s->assign, 0, b->program->vars.len * sizeof *s->assign);
  for (uint32_t p = begin, next; p < end; p = next) {
    next = block_bucket_end(b, order, p) + 1;
    if (next > end) next = end;
    add_unit(s, p, next);
  }
  uint32_t *to = ARENA_ARRAY(b->arena, uint32_t, end - begin + 1);
  run_schedule(s, to);
  memcpy(order + begin, to, (end - begin) * sizeof *order);
}

void block_order_together(const PlanBlock *b, uint32_t *order) {
  const FusedProgram *f = b->fused;
  Schedule s = {.b = b,
                .order = order,
                .made = ARENA_ARRAY(b->arena, uint32_t, f->values.len),
                .old = block_old_values(b),
                .written = ARENA_ARRAY(b->arena, uint32_t, f->values.len),
                .readers = ARENA_ARRAY(b->arena, List, b->program->vars.len),
                .assign = ARENA_ARRAY(b->arena, uint32_t, b->program->vars.len)};
  for (uint32_t p = 0; p < b->norder; p++)
    if (group_op(b, order[p]) == OP_ASSIGN)
      s.written[block_root(b, group_at(&s, p)->inputs[0])] = variable(&s, p) + 1;
  for (uint32_t p = 0, end; p < b->norder; p = end) {
    const uint32_t part = block_part(b, order[p]);
    for (end = p + 1; end < b->norder && block_part(b, order[end]) == part;) end++;
    if (part >= block_first_once(b)) order_part(b, order, p, end, &s);
  }
}

/* --- memory ------------------------------------------------------------------------------------
 */

/* What the group touches lives at all of [first, last]. */
static void extend_lives(PlanBlock *b, const Group *g, uint32_t first, uint32_t last) {
  for (uint32_t k = 0; k < g->ninputs; k++) {
    Storage *s = g->inputs[k] ? block_storage(b, g->inputs[k]) : NULL;
    if (s && s->last < last) s->last = last;
  }
  for (uint32_t k = 0; k < g->noutputs; k++) {
    Storage *s = block_storage(b, g->outputs[k]);
    if (s->first > first) s->first = first;
    if (s->last < last) s->last = last;
  }
}

void block_find_runs(PlanBlock *b) {
  if (!b->together) return;
  for (uint32_t p = b->looped, end; p < b->norder; p = end) {
    const Group *g = &b->fused->groups.data[b->order[p]];
    end = p + 1;
    if (!is_update(b, b->order[p])) continue;
    while (end < b->norder && is_update(b, b->order[end]) &&
           b->fused->groups.data[b->order[end]].kernel == g->kernel)
      end++;
    for (uint32_t q = p; q < end; q++)
      extend_lives(b, &b->fused->groups.data[b->order[q]], p, end - 1);
  }
}
