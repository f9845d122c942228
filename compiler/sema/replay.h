/* What modules alike leave to do once: the layers of a model are built and elaborated once, the
 * others are copies.
 *
 * When an instance is called, the nodes that its call appends are noted. A later call at the same
 * place, of an instance that differs from the first in names alone, appends copies of them: on its
 * own arguments, variables, random numbers and scopes. Likewise an instance that is made like an
 * earlier one gets variables, and nodes that initialise them, that are copies of those; its members
 * are copied when something asks for them. The program is the same as without, to the last id and
 * name.
 *
 * What a body can see decides: two calls are alike when all of it is equal (twins.c), that is
 *
 * - the place of the call, the state of elaboration there, and that no error was found so far;
 * - the arguments: compile-time values by value, tensors by type and by how they hold samples;
 * - of the instance and all that it and the arguments lead to: modules, meshes, members, constants,
 *   declarations of variables, and which of them are one and the same. The names of variables, and
 *   the paths of modules, may differ: code does not see them.
 *
 * So a module that was given its index is elaborated for every index. So is whatever uses instances
 * or variables through names of a file, opens a region that counts as an escape, or makes
 * anything but nodes: it is recorded and then found unfit. What code leaves behind is seen where it
 * changes Sema or the Program (effects.c); who lets it do, or look at, something that does not show
 * there counts that in Sema.unrepeatable.
 *
 * Two instances are made alike when place, state and arguments are equal, instances and variables
 * among the arguments being the same ones: the body of a module sees nothing else.
 */
#ifndef DTM_SEMA_REPLAY_H
#define DTM_SEMA_REPLAY_H

#include "sema/elab.h"

/* --- calls (replay.c) ---------------------------------------------------------------------------
 */

typedef struct Recording Recording;

/* Gives the result of a call like an earlier one, whose nodes are then there: true. Else *out is
 * the record to keep when the call is done, or NULL. */
bool replay_call(Sema *s, Instance *inst, const Call *call, Val *result, Recording **out);
/* The call is done; takes NULL. */
void replay_keep(Sema *s, Recording *r, Val result);

/* --- instances (remake.c) -----------------------------------------------------------------------
 */

typedef struct Making Making;

/* An instance made like an earlier one; else NULL, and *out is the record to keep when the instance
 * is made, or NULL. */
Instance *remake(Sema *s, const ModuleDef *def, const Call *call, Making **out);
/* It is made, without a fault; takes NULL. */
void remake_keep(Sema *s, Making *m);
/* What stands in the place of an instance or variable of `inst->like` in `inst`. */
Instance *copied_instance(const Sema *s, const Instance *inst, Instance *of);
uint32_t copied_var(const Instance *inst, uint32_t of);

/* --- what two sides have in each other's place (twins.c) ----------------------------------------
 */

typedef struct InstanceTwin {
  Instance *a, *b;
} InstanceTwin;
typedef struct IdTwin {
  uint32_t a, b;
} IdTwin;

typedef struct Twins {
  uint32_t stamp, reach_stamp, depth;
  bool inside; /* an instance, where no value of a graph belongs */
  VEC(InstanceTwin) instances;
  VEC(IdTwin) vars, tensors;
} Twins;

/* The instances and the arguments are alike; fills s->twins, in the order in which they are met. */
bool twins_match(Sema *s, Instance *a, const CallArg *a_args, Instance *b, const CallArg *b_args,
                 uint32_t nargs);
/* The arguments are equal, instances and variables the same; none is a tensor. */
bool twins_equal_args(const CallArg *a, const CallArg *b, uint32_t nargs);

/* --- a range of a graph, and its copies (range.c) -----------------------------------------------
 */

/* How far a graph has come. */
typedef struct Mark {
  NodeId node;
  ValueId value;
  uint32_t scope, draw;
} Mark;

/* A value that something beyond the range may give a name. */
typedef struct Named {
  ValueId value;
  const char *name;
  uint32_t scope;
} Named;

/* Nodes, values and scopes that were appended to the graph at hand. */
typedef struct Range {
  Mark begin, end;
  uint32_t scope;     /* around it */
  VEC(Named) unnamed; /* arguments that had no name at its begin, with what they have at its end */
  VEC(Named) results; /* of the range, as they were at its end */
  Val result;
  uint64_t effects; /* before it */
  bool makes_vars;  /* a copy makes its own */
  bool unfit;
  struct Form *form;
} Range;

/* At the place where the range begins, and ends. */
void range_begin(const Sema *s, Range *r, bool makes_vars);
void range_note_unnamed(Sema *s, Range *r, Val argument);
void range_end(Sema *s, Range *r, Val result);
/* It can be copied to the place at hand, where s->twins are those of it and the copy. */
bool range_fits(Sema *s, Range *r);
/* Appends the copy and gives its result. */
Val range_copy(Sema *s, const Range *r);

/* --- what code leaves behind (effects.c) --------------------------------------------------------
 */

/* Of all that elaboration remembers but nodes and what copies add for themselves; `makes_vars`:
 * variables are among that. */
uint64_t effects_hash(const Sema *s, bool makes_vars);

#endif
