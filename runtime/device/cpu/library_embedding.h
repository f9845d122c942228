/* The gradient of an embedding over a block of the vocabulary: part of library.h. */
#ifndef DTM_RT_LIBRARY_EMBEDDING_H
#define DTM_RT_LIBRARY_EMBEDDING_H

#include "device/cpu/library.h"

/* g [*, D], ids [*] -> dweight [V, D]. Ids outside its block are skipped. */
void dtm_rt_embedding_backward(const LibCall *c, int64_t *scratch, LibFault *fault);
size_t dtm_rt_embedding_scratch(const LibCall *c);

#endif
