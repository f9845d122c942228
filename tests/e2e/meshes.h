/* Programs of programs/ on many meshes: see meshes.c. */
#ifndef DTM_TESTS_MESHES_H
#define DTM_TESTS_MESHES_H

#include "e2e/layouts.h"

/* The main of a program that compares them. `on` is where meshes of several ranks run, or NULL for
 * the CPU; elsewhere the losses of fewer steps are compared, in f32, each mesh with some of the
 * programs. */
int meshes_run(const char *suite, const LayoutsTarget *on);

#endif
