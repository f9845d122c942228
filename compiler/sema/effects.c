/* What code leaves behind besides nodes. See replay.h.
 *
 * All that elaboration and the program remember counts, so a new member of Sema or Program does
 * until it is passed over here: where a call changes it, the call is no model for copies. What
 * changes without its place in them changing (a counter behind a pointer), or is only read, is
 * counted in Sema.unrepeatable by who does it.
 */
#include <string.h>

#include "sema/replay.h"

#define PASS_OVER(member) memset(&(member), 0, sizeof(member))

uint64_t effects_hash(const Sema *s, bool makes_vars) {
  Sema now;
  memcpy(&now, s, sizeof now); /* with what lies between members */
  /* where elaboration is, and what it has done so far: copies add their own */
  PASS_OVER(now.at);
  PASS_OVER(now.expr_depth);
  PASS_OVER(now.work);
  /* meshes are listed once, whoever names them first */
  PASS_OVER(now.axes);
  PASS_OVER(now.nknown);
  PASS_OVER(now.meshes);
  PASS_OVER(now.nlisted);
  /* tables that are filled when something is first asked for */
  PASS_OVER(now.signatures);
  PASS_OVER(now.word_specs);
  PASS_OVER(now.plans);
  PASS_OVER(now.twins);
  /* instances: a copy of one makes its own, code of a call gives none away */
  PASS_OVER(now.instances);
  PASS_OVER(now.made);
  PASS_OVER(now.makings);
  /* go with the variables of the program */
  PASS_OVER(now.var_names);
  PASS_OVER(now.var_info);
  Program program;
  memcpy(&program, s->program, sizeof program);
  PASS_OVER(program.meshes);
  if (makes_vars) PASS_OVER(program.vars);
  return hash_bytes(&program, sizeof program, hash_bytes(&now, sizeof now, 1));
}
