/* Rows as text: shared by `explain op` and the operator reference. */
#ifndef DTM_INFER_EXPLAIN_H
#define DTM_INFER_EXPLAIN_H

#include "infer/example.h"

/* Appends the rows of an operator on one mesh dim, four spaces before each. */
void explain_rows(Arena *arena, StrBuf *sb, Op op);
const char *op_class_name(OpClass cls);
/* The rule of a class in a few sentences. */
const char *op_class_rule(OpClass cls);

#endif
