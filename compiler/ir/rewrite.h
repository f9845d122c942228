/* Building one graph from another: value mapping, dead code, common subexpressions. */
#ifndef DTM_IR_REWRITE_H
#define DTM_IR_REWRITE_H

#include "ir/graph.h"

/* From the values of one graph to those of the graph that a pass builds. A pass walks the old nodes
 * in order; for each it copies (graph_map_copy) or adds nodes of its own and maps the old results
 * (graph_map_set). */
typedef struct GraphMap {
  const Graph *from;
  Graph *to;
  ValueId *value; /* per old value; 0 = not mapped */
} GraphMap;

/* `to` is a new graph in `arena` with the name and the scopes of `from`, so that scope indices stay
 * the same. The map itself lives in `scratch`. */
GraphMap graph_map_begin(Arena *scratch, Arena *arena, const Graph *from);
/* The new value; the old one must be mapped (0 stays 0). */
ValueId graph_map_get(const GraphMap *map, ValueId old);
void graph_map_set(GraphMap *map, ValueId old, ValueId new_value);
/* Appends a copy of an old node with mapped operands, the same types, phase, names; maps its
 * results. */
NodeId graph_map_copy(GraphMap *map, NodeId old);

/* Drops dead nodes and makes equal ones one, in place and keeping the order. Dead is what neither
 * has an effect (no results) nor feeds something that has, nor feeds `keep`. Equal are nodes of one
 * operator with the same operands, attributes, result types and phase; random operators stay apart,
 * and so do nodes of different phases: a variable read in one phase may have another value than in
 * the next. keep[i] (0 = none) is renumbered. */
void graph_simplify(Arena *scratch, Graph *g, ValueId *keep, uint32_t nkeep);

#endif
