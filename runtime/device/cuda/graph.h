/* Inside runtime/device/cuda: stretches of the action table as CUDA graphs.
 *
 * A stretch is a run of actions without work of the host between them: no input, no output, no
 * message of a pipeline. It runs plainly the first time (code is loaded, algorithms are chosen), is
 * captured the second time and replayed from then on: one call for all of its launches, collectives
 * and copies. In a pipeline buffers have several blocks, and which of them a micro-batch uses is
 * part of a graph: then a stretch has a graph for each set of blocks. They are made at the end of
 * the first batch, when no message is under way: making a graph takes memory of the GPU, and
 * whatever takes memory may wait for all that the GPU does. What changes from step to step (its
 * number, valid samples) is read from memory: any batch, also one that is not full, replays the
 * same graphs.
 *
 * Which stretches there are follows from the table alone, the same on all ranks: NCCL wants an
 * operation captured on all of its ranks or on none, and graphs that belong together launched
 * together. DTM_CUDA_GRAPHS=0 in the environment of any rank turns graphs off on all.
 *
 * Messages of pipelines are not captured. A message waits for its taker, however far that is
 * behind, while the sender goes on: the streams of channels go beside that of computations.
 * Branches of a graph need not: of a node CUDA says that it may run once all that it depends on is
 * over, and when it does is CUDA's choice. One branch at a time is a choice, and a deadlock with
 * two stages of 1f1b: the first sends micro-batch 1 before it takes the gradient of 0, the last
 * sends the gradient of 0 before it takes micro-batch 1, each in a branch of its own, and each may
 * be the branch that the others wait behind. (Streams are no promise either, but there the number
 * of hardware queues can be set, channel.c; those that the branches of a graph get cannot.) For the
 * same reason graphs beside messages that are under way have no branches: what is begun ahead
 * (START) is not captured within the stages of a pipeline.
 *
 * Elsewhere a collective that was begun ahead may be under way all through a stretch, begun before
 * it and ended behind it. A graph with collectives of its own then waits for the stream of
 * collectives: nothing else orders the two, and one communicator carries one operation at a time.
 *
 * Sources: NCCL's user guide, "Using NCCL with CUDA Graphs" (captured or not, and which graph, is a
 * collective property) and "Using multiple NCCL communicators concurrently"; NVIDIA/nccl issue 783
 * (streams need not progress independently; a send may block until its receive); CUDA's programming
 * guide, "Graph structure" (scheduling is left to CUDA); meta-pytorch/torchcomms pull request 3358
 * (a node without an edge parks a collective when its hardware channel is busy). */
#ifndef DTM_RT_DEVICE_CUDA_GRAPH_H
#define DTM_RT_DEVICE_CUDA_GRAPH_H

#include "device/cuda/cuda.h"

/* After all actions were prepared. */
int dtm_cuda_graph_open(CudaDevice *d);
void dtm_cuda_graph_close(CudaDevice *d);
/* At the end of a batch: makes the graphs of a pipeline whose stretches have run. Collective over
 * the ranks that ran them. */
int dtm_cuda_graph_finish(CudaDevice *d);
/* Whether a stretch begins at this action, with `count` actions at most, that is to run as a graph
 * now. */
int dtm_cuda_graph_begins(CudaDevice *d, uint32_t first, uint32_t count);
/* Runs it. *done: its actions. */
int dtm_cuda_graph_run(CudaDevice *d, uint32_t first, uint32_t *done);

#endif
