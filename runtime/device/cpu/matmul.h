/* Matrix products of the action table on the CPU.
 *
 * f32, bf16 and f16 run through packed loops of our own (matmul_packed.h) or oneDNN, other element
 * types through plain loops (matmul_own.c). Every element is computed by one thread, in an order of
 * additions that sizes alone decide, so results do not depend on the number of threads. Nothing is
 * allocated when it runs.
 */
#ifndef DTM_RT_MATMUL_H
#define DTM_RT_MATMUL_H

#include "device/operands.h"

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
