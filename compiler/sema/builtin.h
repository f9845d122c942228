/* Built-in functions of tensors that are more than a row of ops.def. See elab.h. */
#ifndef DTM_SEMA_BUILTIN_H
#define DTM_SEMA_BUILTIN_H

#include "sema/elab.h"

/* Every one is `Val builtin_NAME(Sema *s, const Call *call)`; they are in builtin_*.c,
 * redistribute.c, distribute.c and collective.c. A name here hides an operator of that name, whose
 * row in signatures.def then holds the words of the function. */
#define TENSOR_BUILTINS(X)                                                                         \
  X(to)                                                                                            \
  X(transpose)                                                                                     \
  X(flatten)                                                                                       \
  X(squeeze)                                                                                       \
  X(select)                                                                                        \
  X(chunk)                                                                                         \
  X(split)                                                                                         \
  X(unbind)                                                                                        \
  X(stack)                                                                                         \
  X(repeat)                                                                                        \
  X(addmm)                                                                                         \
  X(baddbmm)                                                                                       \
  X(dot)                                                                                           \
  X(outer)                                                                                         \
  X(clamp)                                                                                         \
  X(clip)                                                                                          \
  X(norm)                                                                                          \
  X(max)                                                                                           \
  X(min)                                                                                           \
  X(pow)                                                                                           \
  X(gelu)                                                                                          \
  X(masked_fill)                                                                                   \
  X(take)                                                                                          \
  X(diagonal)                                                                                      \
  X(trace)                                                                                         \
  X(bucketize)                                                                                     \
  X(group_norm)                                                                                    \
  X(dropout)                                                                                       \
  X(bernoulli)                                                                                     \
  X(scaled_dot_product_attention)                                                                  \
  X(balance_causal)                                                                                \
  X(unbalance)                                                                                     \
  X(balance_like)                                                                                  \
  X(positions)                                                                                     \
  X(step)                                                                                          \
  X(zeros)                                                                                         \
  X(ones)                                                                                          \
  X(empty)                                                                                         \
  X(full)                                                                                          \
  X(constant)                                                                                      \
  X(rand)                                                                                          \
  X(randn)                                                                                         \
  X(normal)                                                                                        \
  X(uniform)                                                                                       \
  X(xavier_uniform)                                                                                \
  X(xavier_normal)                                                                                 \
  X(kaiming_uniform)                                                                               \
  X(kaiming_normal)                                                                                \
  X(xavier)                                                                                        \
  X(kaiming)                                                                                       \
  X(arange)                                                                                        \
  X(linspace)                                                                                      \
  X(logspace)                                                                                      \
  X(zeros_like)                                                                                    \
  X(ones_like)                                                                                     \
  X(empty_like)                                                                                    \
  X(full_like)                                                                                     \
  X(rand_like)                                                                                     \
  X(randn_like)                                                                                    \
  X(redistribute)                                                                                  \
  X(distribute)                                                                                    \
  X(to_local)                                                                                      \
  X(from_local)                                                                                    \
  X(all_reduce)                                                                                    \
  X(all_gather)                                                                                    \
  X(reduce_scatter)                                                                                \
  X(all_to_all)                                                                                    \
  X(coordinate)

#define X(name) Val builtin_##name(Sema *s, const Call *call);
TENSOR_BUILTINS(X)
#undef X

/* Binds the words and the first one as a tensor. */
bool bind_tensor(Sema *s, const Call *call, const char *words, Val *v, Span *at, ValueId *x);
/* What a function takes, "x, dim?", as the function itself binds it; NULL for other names. */
const char *builtin_parameters(Sema *s, const char *name);
/* A dim of a value of this rank, counted from 0; `otherwise` where none is given. */
bool want_dim(Sema *s, Val v, Span span, uint32_t rank, int64_t otherwise, int64_t *dim);

/* x itself where it is all of the dim. */
Val emit_slice(Sema *s, ValueId x, int64_t dim, int64_t start, int64_t stop, Span span);
/* An operator whose only attribute is a dim. */
Val emit_dim_op(Sema *s, Op op, ValueId x, int64_t dim, Span span);

/* The gather of a whole value, `full(x)`. */
Val redistribute_full(Sema *s, Val x, Span span);

#endif
