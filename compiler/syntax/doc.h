/* Documents: text with places where a line may break, laid out to a width.
 *
 * After Wadler, "A prettier printer" (2003), in Lindig's strict form: a group is printed on one
 * line if it fits, otherwise all breaks directly in it become line ends.
 */
#ifndef DTM_SYNTAX_DOC_H
#define DTM_SYNTAX_DOC_H

#include "base/str.h"
#include "base/vec.h"

typedef struct Doc Doc;

/* NULL is the empty document everywhere. */
Doc *doc_text(Arena *arena, const char *text);
/* Text to the end of the line (a comment): a group that holds it breaks. */
Doc *doc_line_text(Arena *arena, const char *text);
/* The same, two blanks behind other text; on lines one after the other they start in one column
 * where the width allows it. */
Doc *doc_trailing(Arena *arena, const char *text);
Doc *doc_space(Arena *arena); /* a space, or a line end when its group breaks */
Doc *doc_soft(Arena *arena);  /* nothing, or a line end when its group breaks */
Doc *doc_hard(Arena *arena);  /* always a line end; groups around it break */
Doc *doc_if_broken(Arena *arena, const char *text); /* text only when its group breaks */
Doc *doc_nest(Arena *arena, unsigned indent, Doc *inner);
Doc *doc_group(Arena *arena, Doc *inner);
/* Concatenation; ends with DOC_END. */
Doc *doc_cat_(Arena *arena, ...);
#define DOC_END ((Doc *)-1)
#define DOC_CAT(arena, ...) doc_cat_((arena), __VA_ARGS__, DOC_END)
/* Appends `more` to *to, which may be NULL. */
void doc_append(Arena *arena, Doc **to, Doc *more);

void doc_layout(const Doc *doc, unsigned width, StrBuf *out);

#endif
