/* Which processors the threads of a rank run on.
 *
 * Policy: ranks and threads are not pinned; the kernel spreads them, and two jobs on one machine do
 * not end up on the same processors. Under mpirun or srun the masks these set are kept.
 */
#ifndef DTM_RT_AFFINITY_H
#define DTM_RT_AFFINITY_H

/* Call it before ranks are forked. OMP_PROC_BIND pins thread i of *every* rank to place i of the
 * same list, all first threads to one processor. OpenMP has read it when main begins, so the
 * program starts itself again without it. Returns when there is nothing to undo. */
void dtm_rt_affinity_unbind(void);

#endif
