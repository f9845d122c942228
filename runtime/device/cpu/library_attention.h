/* Attention as an operator of the action table: its tensors and arguments to a call of attention.h.
 */
#ifndef DTM_RT_LIBRARY_ATTENTION_H
#define DTM_RT_LIBRARY_ATTENTION_H

#include "device/cpu/library.h"

size_t dtm_rt_library_attention_scratch(const LibCall *c);
void dtm_rt_library_attention(const LibCall *c, void *scratch);

#endif
