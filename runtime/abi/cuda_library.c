/* Which instances of library kernels an action needs: see cuda.h. */
#include <stdio.h>
#include <string.h>

#include "runtime/abi/cuda.h"

/* Types of elements as dtm.cuh names them. */
const char *abi_cuda_element(uint32_t dtype) {
  switch ((AbiDType)dtype) {
  case ABI_F64:
    return "double";
  case ABI_F32:
    return "float";
  case ABI_BF16:
    return "dtm_bf16";
  case ABI_F16:
    return "dtm_f16";
  case ABI_F8_E4M3:
    return "dtm_f8_e4m3";
  case ABI_F8_E5M2:
    return "dtm_f8_e5m2";
  case ABI_I64:
    return "int64_t";
  case ABI_I32:
    return "int32_t";
  case ABI_I16:
    return "int16_t";
  case ABI_I8:
    return "int8_t";
  case ABI_U8:
    return "uint8_t";
  case ABI_BOOL:
    return "dtm_bool";
  case ABI_NONE:
  case ABI_DTYPE_COUNT:
    break;
  }
  return "?";
}

/* FILE with -DELEMENT=, and -DSECOND= where there is one. */
static AbiCudaInstance instance(const char *file, uint32_t dtype, const char *second,
                                uint32_t second_dtype) {
  AbiCudaInstance i = {.file = file};
  const char *name = abi_dtype_name(dtype), *type = abi_cuda_element(dtype);
  if (second) {
    snprintf(i.suffix, sizeof i.suffix, "_%s_%s", name, abi_dtype_name(second_dtype));
    snprintf(i.defines, sizeof i.defines, "-DELEMENT=%s -D%s=%s", type, second,
             abi_cuda_element(second_dtype));
  } else {
    snprintf(i.suffix, sizeof i.suffix, "_%s", name);
    snprintf(i.defines, sizeof i.defines, "-DELEMENT=%s", type);
  }
  return i;
}

/* The sort that others build on. */
static AbiCudaInstance radix(int wide) {
  AbiCudaInstance i = {.file = "radix"};
  snprintf(i.suffix, sizeof i.suffix, wide ? "_u64" : "_u32");
  snprintf(i.defines, sizeof i.defines, "-DKEY=%s", wide ? "uint64_t" : "uint32_t");
  return i;
}

static uint32_t library(const Image *image, const AbiAction *a, const uint32_t *dtype,
                        AbiCudaInstance *out) {
  int wide = dtype[0] == ABI_F64 || dtype[0] == ABI_I64, narrow;
  AbiCudaAttention attention;
  switch ((AbiLibrary)a->code) {
  case ABI_LIB_SORT:
  case ABI_LIB_TOPK:
    out[0] = instance("sort", dtype[0], "INDEX", dtype[2]);
    out[1] = radix(wide);
    return 2;
  case ABI_LIB_CUMSUM:
    out[0] = instance("cumsum", dtype[0], "RESULT", dtype[1]);
    return 1;
  case ABI_LIB_SCATTER_ADD:
    out[0] = instance("scatter", dtype[0], "INDEX", dtype[1]);
    out[1] = radix(0);
    return 2;
  case ABI_LIB_EMBEDDING_BACKWARD:
    out[0] = instance("embedding", dtype[0], "INDEX", dtype[1]);
    out[1] = radix(0);
    return 2;
  case ABI_LIB_SAME_AS:
    out[0] = instance("same_as", dtype[0], NULL, 0);
    return 1;
  case ABI_LIB_GROUPED_LINEAR:
  case ABI_LIB_GROUPED_LINEAR_WEIGHT:
    narrow = dtype[0] == ABI_BF16 || dtype[0] == ABI_F16;
    out[0] = instance(narrow ? "grouped_mma" : "grouped", dtype[0], "COUNT", dtype[2]);
    return 1;
  case ABI_LIB_ATTENTION:
  case ABI_LIB_ATTENTION_BACKWARD:
    attention = abi_cuda_attention(image, a);
    out[0] = abi_cuda_attention_instance(&attention);
    return 1;
  case ABI_LIB_NONE:
  case ABI_LIB_COUNT:
    break;
  }
  return 0;
}

uint32_t abi_cuda_instances(const Image *image, const AbiAction *action,
                            AbiCudaInstance out[ABI_CUDA_MAX_INSTANCES]) {
  uint32_t dtype[3] = {0};
  for (uint32_t i = 0; i < 3 && i < action->nbuffers; i++)
    dtype[i] = image->type[image->buffer[action->buffers + i].type].dtype;
  if (action->kind == ABI_LIBRARY) return library(image, action, dtype, out);
  if (action->kind != ABI_MATMUL) return abi_cuda_move_instances(image, action, out);
  out[0] = instance("matmul", dtype[0], NULL, 0);
  return 1;
}
