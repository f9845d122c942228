/* The one symbol of libdtm_llvm.so. */
#ifndef DTM_CODEGEN_LLVM_DOOR_H
#define DTM_CODEGEN_LLVM_DOOR_H

#include "codegen/codegen.h"

/* As codegen_emit; bytes and *error are malloc'ed. */
typedef bool LlvmEmitFn(Kernel *const *kernels, uint32_t nkernels, const CodegenImage *image,
                        const CodegenOptions *options, CodegenOutput output, CodegenResult *out,
                        char **error);
LlvmEmitFn dtm_llvm_emit;

#endif
