/* object: constant bytes to an object file, without LLVM, whose loading takes longer than all the
 * rest that dtmc does for a program of a GPU. */
#ifndef DTM_CODEGEN_OBJECT_H
#define DTM_CODEGEN_OBJECT_H

#include "codegen/codegen.h"

/* The object that codegen_emit makes of an image for a GPU and no kernels: ELF for this machine, in
 * `arena`. False where this machine's objects are not known; nothing is made then. */
bool object_of_image(Arena *arena, const CodegenImage *image, CodegenPiece *out);

#endif
