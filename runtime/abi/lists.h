/* Lists whose numbers stand in the image: written once, for the compiler's enums and the runtime's.
 * Each entry is X(ID, name). */
#ifndef DTM_RT_LISTS_H
#define DTM_RT_LISTS_H

/* The blocks of a program. `init` has no settings of its own; at most one of each. */
#define ABI_BLOCKS(X)                                                                              \
  X(INIT, "init")                                                                                  \
  X(TRAIN, "train")                                                                                \
  X(EVAL, "eval")                                                                                  \
  X(INFER, "infer")

#endif
