/* Inside runtime/device/cuda: stretches of the action table as CUDA graphs.
 *
 * A stretch is a run of actions without work of the host between them: no input, no output, nothing
 * that its prepare has marked as `plain`, and no pipeline. It runs plainly the first time (code is
 * loaded, algorithms are chosen), is captured the second time and replayed from then on: one call
 * for all of its launches, collectives and copies. DTM_CUDA_GRAPHS=0 in the environment turns this
 * off. */
#ifndef DTM_RT_DEVICE_CUDA_GRAPH_H
#define DTM_RT_DEVICE_CUDA_GRAPH_H

#include "device/cuda/cuda.h"

/* After all actions were prepared. */
int dtm_cuda_graph_open(CudaDevice *d);
void dtm_cuda_graph_close(CudaDevice *d);
/* Whether a stretch begins at this action, with `count` actions at most, that is to run as a graph
 * now. */
int dtm_cuda_graph_begins(CudaDevice *d, uint32_t first, uint32_t count);
/* Runs it. *done: its actions. */
int dtm_cuda_graph_run(CudaDevice *d, uint32_t first, uint32_t *done);

#endif
