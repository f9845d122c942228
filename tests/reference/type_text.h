/* Types from text, for tests: "f32[8@(x,y), 4@z] partial(w: max)", as type_print writes them. */
#ifndef DTM_TESTS_TYPE_TEXT_H
#define DTM_TESTS_TYPE_TEXT_H

#include "types/layout.h"

/* Ends the process with a message on a fault: the text is the test's own. */
TensorType type_from_text(const Mesh *mesh, const char *text);
/* A mesh of these axes; `name`s are single letters "xyzw" in order. */
void mesh_of(Mesh *mesh, uint32_t naxes, const int64_t *sizes);

#endif
