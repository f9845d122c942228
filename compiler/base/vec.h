/* Typed growable arrays in an arena: `VEC(Node) nodes;` then `VEC_PUSH(arena, &nodes, node)`. */
#ifndef DTM_BASE_VEC_H
#define DTM_BASE_VEC_H

#include "base/arena.h"

#define VEC(T)                                                                                     \
  struct {                                                                                         \
    T *data;                                                                                       \
    uint32_t len, cap;                                                                             \
  }

/* Makes room for one more element; `len` is unchanged. */
#define VEC_RESERVE(arena, v, n)                                                                   \
  do {                                                                                             \
    if ((v)->len + (uint32_t)(n) > (v)->cap) {                                                     \
      uint32_t cap_ = (v)->cap ? (v)->cap : 4;                                                     \
      while (cap_ < (v)->len + (uint32_t)(n)) cap_ *= 2;                                           \
      (v)->data =                                                                                  \
          arena_grow((arena), (v)->data, (v)->cap * sizeof *(v)->data, cap_ * sizeof *(v)->data);  \
      (v)->cap = cap_;                                                                             \
    }                                                                                              \
  } while (0)

#define VEC_PUSH(arena, v, ...)                                                                    \
  do {                                                                                             \
    VEC_RESERVE(arena, v, 1);                                                                      \
    (v)->data[(v)->len++] = __VA_ARGS__;                                                           \
  } while (0)

#endif
