/* The products of experts: part of library.h. */
#ifndef DTM_RT_LIBRARY_GROUPED_H
#define DTM_RT_LIBRARY_GROUPED_H

#include "device/cpu/library.h"

/* x [B, R, P, I], weight [E, O, I] (reverse: [E, I, O]), counts [B, E] -> y [B, R, P, O]. */
void dtm_rt_grouped_linear(const LibCall *c, void *scratch, LibFault *fault);
/* g [B, R, P, O], x [B, R, P, I], counts [B, E] -> dweight [E, O, I]. */
void dtm_rt_grouped_linear_weight(const LibCall *c, void *scratch, LibFault *fault);
size_t dtm_rt_grouped_scratch(const LibCall *c);

#endif
