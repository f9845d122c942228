/* explicit: parameters that are kept in pieces are gathered where they are used. */
#ifndef DTM_PLACE_STORE_H
#define DTM_PLACE_STORE_H

#include "ir/graph.h"

/* In every block of the program: a parameter with `store gradients` or `store parameters` becomes a
 * variable of its stored layout, with a redistribute behind its READ (and before its ASSIGN in
 * `init`). Gathers of one block of the model stand side by side before its first use and share an
 * ATTR_BUCKET. `store optimizer` changes nothing here: autodiff/ does what it says. */
void store_run(Program *program);
/* The level of the parameter that this node of the forward pass gathers; STORE_NONE for others. */
StoreLevel store_gathered(const Program *program, const Graph *g, const Node *n);

#endif
