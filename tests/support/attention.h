/* Attention by plain loops in f64: what the attention of every device is compared with. */
#ifndef DTM_TESTS_ATTENTION_H
#define DTM_TESTS_ATTENTION_H

#include "device/cpu/attention.h"

/* One whole call: the tensors as numbers, and what comes of them. */
typedef struct AttentionWhole {
  Attention a;
  int64_t rows, keys; /* of q; of k */
  double *q, *k, *v, *g;
  double *out, *lse, *dq, *dk, *dv;
} AttentionWhole;

/* The tensors of a call in their element type; results begin as NaN. */
typedef struct AttentionRun {
  AttentionTensors t;
  void *scratch;
} AttentionRun;

Attention attention_shape(uint32_t dtype, int64_t batch, int64_t heads, int64_t groups,
                          int64_t queries, int64_t keys, int64_t width, int64_t features);
/* A block out of the middle of a larger tensor, with dropout: what is drawn follows from where an
 * element lies in the whole. */
Attention attention_dropped(uint32_t dtype, int64_t queries, int64_t keys);
/* Heads 3 .. 7 of twelve, which see key heads 1 and 2 of four. */
Attention attention_cut_heads(uint32_t dtype);
/* Random operands in [-1, 1). At most one batch dim. */
AttentionWhole attention_begin(Attention a);
void attention_end(AttentionWhole *w);
/* The results, by definition. */
void attention_define(AttentionWhole *w);
double attention_inner(const double *x, const double *y, int64_t n);
uint32_t attention_sums_dtype(uint32_t dtype); /* of lse */
AttentionRun attention_allocate(const AttentionWhole *w);
void attention_release(AttentionRun *r);
/* Fails the test where an element is off by more than `tolerance` of the largest, or of 1. */
void attention_compare(const char *what, const void *got, uint32_t dtype, const double *want,
                       int64_t n, double tolerance);

#endif
