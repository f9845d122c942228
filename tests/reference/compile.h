/* A program from source text, for tests of what comes after the parser. */
#ifndef DTM_TESTS_COMPILE_H
#define DTM_TESTS_COMPILE_H

#include "sema/sema.h"

typedef struct Compiled {
  Arena arena;
  Interner names;
  Sources sources;
  DiagSink sink;
  ConfigList config;
  Program *program;
} Compiled;

/* Elaborates `text` as main file "test.dtm". `options` may be NULL; its main_path, stdlib and
 * config are set here, its mesh when `mesh` is not NULL. The current folder is that of a test ring.
 */
void compile_text(Compiled *c, const char *text, const char *mesh, const SemaOptions *options);
void compile_free(Compiled *c);
/* The same, and fails the test when there is an error or warning. */
void compile_clean(Compiled *c, const char *text, const char *mesh);
/* All diagnostics as text. */
const char *compile_messages(Compiled *c);

/* Nodes of one operator. */
uint32_t count_nodes(const Graph *g, Op op);
/* Type of the first value with this name, as text; fails the test when there is none. */
const char *type_of_name(Compiled *c, const Graph *g, const char *name);
/* Index of a variable; fails the test when there is none. */
uint32_t find_var(const Compiled *c, const char *name);

#endif
