/* Which communicators a program needs: the ways in which its actions cut the ranks of the world
 * into groups. Pure: a function of the image, the same on every rank.
 *
 * A mesh and a set of its axes cut the ranks of the mesh into disjoint groups; of two actions that
 * cut alike one communicator serves both. A channel has one of its own: its messages are under way
 * beside everything else, and NCCL runs the operations of one communicator one by one. Splitting
 * the world is one call of all ranks, those outside of any group with no colour: cuts that share no
 * rank (of the stages of a pipeline, of channels between them) are made by one call, a round. */
#ifndef DTM_RT_DEVICE_CUDA_CUTS_H
#define DTM_RT_DEVICE_CUDA_CUTS_H

#include "device/cuda/move_plan.h"

/* Per rank of the world its group (named by the rank that is first in it; -1: it is in none) and
 * its place in there. */
typedef struct CudaCut {
  int32_t *color, *key;
  int channel; /* shares no communicator with another cut */
  uint32_t round;
} CudaCut;

/* What an action asks for by. */
typedef struct CudaCutKey {
  CudaCommKind kind;   /* GROUP or CHANNEL */
  uint32_t mesh, axes; /* of a group */
  uint32_t channel;
  uint32_t cut; /* number + 1; 0: the world itself */
} CudaCutKey;

typedef struct CudaCuts {
  int32_t world;
  CudaCut *at;
  uint32_t n, nrounds;
  CudaCutKey *keys;
  uint32_t nkeys;
} CudaCuts;

/* 0, or -1 when memory is short. */
int dtm_cuda_cuts_find(const Image *image, int32_t world, CudaCuts *cuts);
void dtm_cuda_cuts_free(CudaCuts *cuts);

/* The cut that this rank is in a group of in a round; NULL: none. */
const CudaCut *dtm_cuda_cuts_of(const CudaCuts *cuts, uint32_t round, int32_t rank);

/* Blocks of threads for the messages of one channel: all that a rank may have under way must find
 * room on its GPU beside collectives (see channel.c). */
int dtm_cuda_cuts_ctas(const CudaCuts *cuts);

#endif
