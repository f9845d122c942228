/* Lists whose numbers stand in the image: written once, for the compiler's enums and the runtime's.
 * Order matters: a change is a change of the image. */
#ifndef DTM_RT_LISTS_H
#define DTM_RT_LISTS_H

/* Element types: floats, then integers, then bool.
 * X(id, source name, bytes, safetensors name); 0 = none */
#define ABI_DTYPES(X)                                                                              \
  X(F64, "f64", 8, "F64")                                                                          \
  X(F32, "f32", 4, "F32")                                                                          \
  X(BF16, "bf16", 2, "BF16")                                                                       \
  X(F16, "f16", 2, "F16")                                                                          \
  X(F8_E4M3, "f8_e4m3", 1, "F8_E4M3")                                                              \
  X(F8_E5M2, "f8_e5m2", 1, "F8_E5M2")                                                              \
  X(I64, "i64", 8, "I64")                                                                          \
  X(I32, "i32", 4, "I32")                                                                          \
  X(I16, "i16", 2, "I16")                                                                          \
  X(I8, "i8", 1, "I8")                                                                             \
  X(U8, "u8", 1, "U8")                                                                             \
  X(BOOL, "bool", 1, "BOOL")

/* What a Partial value still needs. X(id, source name); 0 = none */
#define ABI_REDUCES(X)                                                                             \
  X(SUM, "sum")                                                                                    \
  X(AVG, "avg")                                                                                    \
  X(PRODUCT, "product")                                                                            \
  X(MAX, "max")                                                                                    \
  X(MIN, "min")                                                                                    \
  X(AND, "and")                                                                                    \
  X(OR, "or")                                                                                      \
  X(XOR, "xor")

/* Replicate comes first: a zeroed layout is whole everywhere. X(id) */
#define ABI_PLACE_KINDS(X) X(REPLICATE) X(SHARD) X(PARTIAL)

/* Variables that outlive a step. X(id, name); 0 = none */
#define ABI_VAR_KINDS(X)                                                                           \
  X(PARAM, "param")                                                                                \
  X(BUFFER, "buffer")                                                                              \
  X(OPTIMIZER, "optimizer")     /* moments; saved with the parameter's name and a suffix */        \
  X(ACCUMULATOR, "accumulator") /* gradients over accumulated micro-batches; not saved */         \
  X(STATE, "state")             /* what a step of infer leaves for the next; not saved */

/* Parts of a step, in the order in which they run. X(id, name) */
#define ABI_PHASES(X)                                                                              \
  X(FORWARD, "forward")                                                                            \
  X(RECOMPUTE, "recompute") /* forward values again, in the middle of the backward pass */         \
  X(BACKWARD, "backward")                                                                          \
  X(REDUCE, "reduce") /* gradient reductions; those of one ATTR_BUCKET may be one collective */    \
  X(OPTIMIZER, "optimizer") /* clipping, new values of parameters and optimizer state */

/* The blocks of a program. `init` has no settings of its own; at most one of each. X(id, name) */
#define ABI_BLOCKS(X)                                                                              \
  X(INIT, "init")                                                                                  \
  X(TRAIN, "train")                                                                                \
  X(EVAL, "eval")                                                                                  \
  X(INFER, "infer")

#endif
