/* Where lanes that part at a branch meet again: its immediate post-dominator, by the algorithm of
 * Cooper, Harvey and Kennedy ("A simple, fast dominance algorithm") on the reversed graph of basic
 * blocks. The end of the kernel is a block of its own, the last one. */
#include "ptx_code.h"

#include <stdlib.h>

typedef struct Edge {
  uint32_t from, to;
} Edge;

typedef struct Flow {
  PtxOp *ops;
  uint32_t nops, nblocks; /* without the end */
  uint32_t *first;        /* operation of a block; first[nblocks] = nops */
  uint32_t *block_of;     /* of an operation */
  Edge *edges;
  size_t nedges, cap;
  uint32_t *rank;  /* in postorder of the reversed graph: the end has the greatest */
  uint32_t *order; /* blocks by rank */
  uint32_t nranked;
  uint32_t *ipdom;
} Flow;

static uint32_t *table(size_t n) {
  uint32_t *p = calloc(n + 1, sizeof *p);
  if (!p) abort();
  return p;
}

static bool ends_block(const PtxOp *op) {
  return op->flow == FLOW_BRANCH || op->flow == FLOW_SWITCH || op->flow == FLOW_EXIT;
}

static void find_blocks(Flow *f) {
  uint32_t *leads = table(f->nops + 1);
  leads[0] = 1;
  for (uint32_t i = 0; i < f->nops; i++) {
    const PtxOp *op = &f->ops[i];
    if (!ends_block(op)) continue;
    leads[i + 1] = 1;
    if (op->flow == FLOW_BRANCH) leads[op->target] = 1;
    for (uint32_t t = 0; op->flow == FLOW_SWITCH && t < op->target; t++) leads[op->targets[t]] = 1;
  }
  f->block_of = table(f->nops + 1);
  f->first = table(f->nops + 1);
  for (uint32_t i = 0; i < f->nops; i++) {
    if (leads[i]) f->first[f->nblocks++] = i;
    f->block_of[i] = f->nblocks - 1;
  }
  f->first[f->nblocks] = f->nops;
  f->block_of[f->nops] = f->nblocks; /* running off the end */
  free(leads);
}

static void add_edge(Flow *f, uint32_t from, uint32_t to) {
  if (f->nedges == f->cap) {
    f->cap = f->cap ? 2 * f->cap : 64;
    f->edges = realloc(f->edges, f->cap * sizeof *f->edges);
    if (!f->edges) abort();
  }
  f->edges[f->nedges++] = (Edge){from, to};
}

static void find_edges(Flow *f) {
  for (uint32_t b = 0; b < f->nblocks; b++) {
    uint32_t last = f->first[b + 1] - 1;
    const PtxOp *op = &f->ops[last];
    if (op->flow == FLOW_BRANCH) add_edge(f, b, f->block_of[op->target]);
    if (op->flow == FLOW_EXIT) add_edge(f, b, f->nblocks);
    for (uint32_t t = 0; op->flow == FLOW_SWITCH && t < op->target; t++)
      add_edge(f, b, f->block_of[op->targets[t]]);
    if (!ends_block(op) || op->guard != PTX_NO_ROW) add_edge(f, b, f->block_of[last + 1]);
  }
}

/* Lists of neighbours, flat: those of b are list[start[b]] to list[start[b + 1] - 1]. */
static void neighbours(const Flow *f, bool successors, uint32_t **start, uint32_t **list) {
  *start = table(f->nblocks + 2);
  *list = table(f->nedges);
  for (size_t e = 0; e < f->nedges; e++)
    ++(*start)[(successors ? f->edges[e].from : f->edges[e].to) + 1];
  for (uint32_t b = 0; b <= f->nblocks; b++) (*start)[b + 1] += (*start)[b];
  uint32_t *at = table(f->nblocks + 1);
  for (size_t e = 0; e < f->nedges; e++) {
    uint32_t b = successors ? f->edges[e].from : f->edges[e].to;
    (*list)[(*start)[b] + at[b]++] = successors ? f->edges[e].to : f->edges[e].from;
  }
  free(at);
}

/* Depth first from the end against the edges. Blocks from which the end cannot be reached get no
 * rank. */
static void rank_blocks(Flow *f) {
  uint32_t n = f->nblocks + 1, depth = 0;
  uint32_t *start, *pred, *stack = table(n), *next = table(n), *seen = table(n);
  neighbours(f, false, &start, &pred);
  f->rank = table(n);
  f->order = table(n);
  for (uint32_t b = 0; b < n; b++) {
    f->rank[b] = PTX_NO_ROW;
    next[b] = start[b];
  }
  stack[depth++] = f->nblocks;
  seen[f->nblocks] = 1;
  while (depth) {
    uint32_t b = stack[depth - 1];
    if (next[b] < start[b + 1]) {
      uint32_t p = pred[next[b]++];
      if (!seen[p]) {
        seen[p] = 1;
        stack[depth++] = p;
      }
    } else {
      f->rank[b] = f->nranked;
      f->order[f->nranked++] = b;
      depth--;
    }
  }
  free(start);
  free(pred);
  free(stack);
  free(next);
  free(seen);
}

static uint32_t meet(const Flow *f, uint32_t a, uint32_t b) {
  while (a != b) {
    while (f->rank[a] < f->rank[b]) a = f->ipdom[a];
    while (f->rank[b] < f->rank[a]) b = f->ipdom[b];
  }
  return a;
}

static void find_ipdoms(Flow *f) {
  uint32_t *start, *succ;
  neighbours(f, true, &start, &succ);
  f->ipdom = table(f->nblocks + 1);
  for (uint32_t b = 0; b <= f->nblocks; b++) f->ipdom[b] = PTX_NO_ROW;
  f->ipdom[f->nblocks] = f->nblocks;
  for (bool changed = true; changed;) {
    changed = false;
    for (uint32_t r = f->nranked - 1; r-- > 0;) { /* all but the end */
      uint32_t b = f->order[r], found = PTX_NO_ROW;
      for (uint32_t s = start[b]; s < start[b + 1]; s++) {
        if (f->ipdom[succ[s]] == PTX_NO_ROW) continue;
        found = found == PTX_NO_ROW ? succ[s] : meet(f, found, succ[s]);
      }
      if (found != f->ipdom[b]) {
        f->ipdom[b] = found;
        changed = true;
      }
    }
  }
  free(start);
  free(succ);
}

void ptx_flow_mark(PtxOp *ops, uint32_t nops) {
  if (!nops) return;
  Flow f = {.ops = ops, .nops = nops};
  find_blocks(&f);
  find_edges(&f);
  rank_blocks(&f);
  find_ipdoms(&f);
  for (uint32_t i = 0; i < nops; i++) {
    PtxOp *op = &ops[i];
    if (op->flow != FLOW_BRANCH && op->flow != FLOW_SWITCH) continue;
    uint32_t block = f.ipdom[f.block_of[i]];
    uint32_t join = block < f.nblocks ? f.first[block] : PTX_NO_ROW;
    if (op->flow == FLOW_BRANCH)
      op->imm = join;
    else
      op->arg[1] = join;
  }
  free(f.first);
  free(f.block_of);
  free(f.edges);
  free(f.rank);
  free(f.order);
  free(f.ipdom);
}
