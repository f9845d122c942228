/* Calls of alike modules: the layers of a model are elaborated once, the others are copies.
 *
 * When an instance is called, the nodes that its call appends are noted. A later call at the same
 * place, of an instance that differs from the first in names alone, appends copies of them: on its
 * own arguments, variables, random numbers and scopes. The graph is the same as without, to the
 * last id and name.
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
 * anything but nodes: it is recorded and then found unfit.
 */
#ifndef DTM_SEMA_REPLAY_H
#define DTM_SEMA_REPLAY_H

#include "sema/elab.h"

typedef struct Recording Recording;

/* Gives the result of a call like an earlier one, whose nodes are then there: true. Else *out is
 * the record to keep when the call is done, or NULL. */
bool replay_call(Sema *s, Instance *inst, const Call *call, Val *result, Recording **out);
/* The call is done; takes NULL. */
void replay_keep(Sema *s, Recording *r, Val result);

/* --- what two calls have in each other's place (twins.c) ----------------------------------------
 */

typedef struct InstanceTwin {
  Instance *a, *b;
} InstanceTwin;
typedef struct IdTwin {
  uint32_t a, b;
} IdTwin;

/* In the order in which they are met, which is the same for every call like a. */
typedef struct Twins {
  uint32_t stamp, depth;
  bool inside; /* an instance, where no value of a graph belongs */
  VEC(InstanceTwin) instances;
  VEC(IdTwin) vars, tensors;
} Twins;

/* The instances and the arguments are alike; fills s->twins. */
bool twins_match(Sema *s, Instance *a, const CallArg *a_args, Instance *b, const CallArg *b_args,
                 uint32_t nargs);

#endif
