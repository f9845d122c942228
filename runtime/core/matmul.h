/* Matrix products of the action table on the CPU.
 *
 * f32, bf16 and f16 run through packed loops of our own (matmul_packed.h) or oneDNN, other element
 * types through plain loops (matmul_own.c). Every element is computed by one thread, in an order of
 * additions that sizes alone decide, so results do not depend on the number of threads. Nothing is
 * allocated when it runs.
 */
#ifndef DTM_RT_MATMUL_H
#define DTM_RT_MATMUL_H

#include "runtime/abi/abi.h"

/* AbiMatmul with its integers evaluated. Extents may be 0: M or N = 0 does nothing, K = 0 gives
 * act(bias) + addend of zeros. */
typedef struct MatmulShape {
  uint32_t dtype; /* AbiDType of all buffers */
  uint32_t nbatch;
  int64_t batch[ABI_MATMUL_BATCH];
  int64_t a_batch[ABI_MATMUL_BATCH], b_batch[ABI_MATMUL_BATCH], out_batch[ABI_MATMUL_BATCH];
  int64_t m, n, k;
  int64_t a_m, a_k, b_k, b_n, out_m, out_n;
  uint32_t bias, addend; /* 1 = present */
  uint32_t in_place;     /* the addend is the output's memory */
  uint32_t activation;   /* AbiActivation */
} MatmulShape;

typedef struct Matmul Matmul;

/* The engine and scratch memory that all products of a process share. */
typedef struct MatmulContext MatmulContext;
/* threads: as many may run one product. NULL when memory or oneDNN fail. */
MatmulContext *dtm_rt_matmul_open(int threads);
void dtm_rt_matmul_close(MatmulContext *c);

/* Prepares a product of these buffers. NULL with *error when it cannot. */
Matmul *dtm_rt_matmul_new(MatmulContext *c, const MatmulShape *shape, const void *a, const void *b,
                          const void *bias, const void *addend, void *out, const char **error);
/* 0, or -1 with *error. */
int dtm_rt_matmul_run(const Matmul *m, const char **error);
/* The same product of buffers elsewhere. */
void dtm_rt_matmul_move(Matmul *m, const void *a, const void *b, const void *bias,
                        const void *addend, void *out);
void dtm_rt_matmul_free(Matmul *m);

/* The own loops, of a shape that is not empty; also the oracle oneDNN is tested with. `scratch` has
 * dtm_rt_matmul_own_scratch bytes. */
size_t dtm_rt_matmul_own_scratch(const MatmulShape *s);
void dtm_rt_matmul_own(const MatmulShape *s, const void *a, const void *b, const void *bias,
                       const void *addend, void *out, void *scratch, int threads);

#endif
