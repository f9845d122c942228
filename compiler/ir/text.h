/* The text form of programs and graphs: readable, stable, and read back byte for byte.
 *
 * One node is one line:
 *
 *   %5 h: f32[8@dp, 64] partial(tp) = linear(%3, %4) {…}    // mlp.dtm:14:18  #3 layers.0.mlp
 *
 * A name after the id is the `let` name. The trailing place is part of the form: line and column of
 * the node's span, then `#` and the index of its scope. Line and column are kept, the end of a span
 * is not. Printing, parsing and printing again gives equal bytes.
 */
#ifndef DTM_IR_TEXT_H
#define DTM_IR_TEXT_H

#include "ir/graph.h"

void program_print(StrBuf *out, const Program *program);
/* `program` gives sources, the world mesh and the names of variables. */
void graph_print(StrBuf *out, const Program *program, const Graph *graph);
/* One line without the newline: messages of the verifier and of failing passes. */
void node_print(StrBuf *out, const Program *program, const Graph *graph, NodeId id);

/* Reads what program_print wrote. NULL with *error = "line 12: …" (in `arena`) when the text is not
 * of that form. Files that the text names but `sources` lacks are entered with blank text of the
 * right size, so that lines and columns survive. */
Program *program_parse(Arena *arena, Interner *names, Sources *sources, const char *text,
                       const char **error);

#endif
