/* What the ranks of a program send one another: every collective and every move between meshes of
 * its plan, with the bytes that it costs. Part of what `dtmc --report` prints. */
#ifndef DTM_REPORT_TRAFFIC_H
#define DTM_REPORT_TRAFFIC_H

#include "base/str.h"

/* Table of one program block (an AbiProgramKind) of the image of a plan, most bytes first; nothing
 * where no rank sends anything. Bytes are those that the rank which receives most receives in one
 * call: as `place/measure.h` prices redistributes, so what an error offered is what stands here.
 * Calls of one operation over the same mesh dims, in one phase and for one place of the source,
 * with the same cost are one line. */
void traffic_print(StrBuf *out, const void *image, uint32_t block);

/* The same for programs, in the order of first calls: words with tabs between them. `name` of the
 * block begins each line. */
void traffic_print_tabs(StrBuf *out, const void *image, uint32_t block, const char *name);

#endif
