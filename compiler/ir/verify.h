/* What each stage of a program promises, checked between passes. */
#ifndef DTM_IR_VERIFY_H
#define DTM_IR_VERIFY_H

#include "ir/graph.h"

/* The stages that are graphs; see graph.h. */
typedef enum GraphStage {
  GRAPH_ELABORATED = 1, /* "graph" */
  GRAPH_EXPLICIT,
  GRAPH_GRAD,
  GRAPH_LOCAL
} GraphStage;

/* Whether the result types of a node are what inference says of its operands: NULL, or what
 * differs. infer/ gives it (infer_check); the verifier, which lies below, only calls it. */
typedef const char *(*VerifyTypes)(Arena *arena, const Graph *g, NodeId id);

/* NULL when every graph of the program keeps the promises of `stage`; else a message that names
 * `pass`, the node and what is wrong, followed by the line of the node. A failure is a fault of the
 * pass, never of the user's program. `check` may be NULL (structure only); it is not asked about
 * stage local, where nodes have the types of their rank's block. Poisoned values are faults from
 * stage explicit on. */
const char *verify_program(Arena *arena, const Program *program, GraphStage stage, const char *pass,
                           VerifyTypes check);

#endif
