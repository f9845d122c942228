/* The gradients by class of operator, bound to operators in vjp.c. */
#ifndef DTM_AUTODIFF_VJP_H
#define DTM_AUTODIFF_VJP_H

#include "autodiff/grad.h"
#include "ops/scalar.h"

Vjp vjp_pointwise, vjp_contraction;
/* reductions */
Vjp vjp_sum, vjp_mean, vjp_prod, vjp_extremum, vjp_norm_l1, vjp_norm_l2, vjp_norm_inf,
    vjp_logsumexp, vjp_var, vjp_std;
/* whole-dim */
Vjp vjp_softmax, vjp_log_softmax, vjp_layer_norm, vjp_normalize, vjp_rms_norm, vjp_rms_normalize,
    vjp_cumsum, vjp_sort;
/* movement */
Vjp vjp_permute, vjp_reshape, vjp_expand, vjp_slice, vjp_unslice, vjp_pad, vjp_concat, vjp_flip,
    vjp_roll, vjp_balance, vjp_triangle;
Vjp vjp_attention, vjp_grouped_linear, vjp_redistribute_rows;
/* indexing, random, communication */
Vjp vjp_embedding, vjp_gather, vjp_scatter_add, vjp_index_select, vjp_dropout, vjp_redistribute,
    vjp_replica, vjp_same_as;

#endif
