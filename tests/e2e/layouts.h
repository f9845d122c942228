/* Models on many meshes, with what else a user may ask for, against the same model on one rank.
 *
 * A model is a source of samples/ or of programs/ with sizes of its own; a row is a mesh and what
 * is said there beside it. What is compared: losses of 20 steps, and behind the first of them the
 * state of AdamW of every parameter, which is that step's gradient (times 1 - beta) and its square.
 * On one rank the run stops behind the first step and is resumed from what it saved. On GPUs
 * (support/target.h) rows are smaller, and the first 5 steps are compared.
 */
#ifndef DTM_TESTS_LAYOUTS_H
#define DTM_TESTS_LAYOUTS_H

#include <stdbool.h>

enum { LAYOUTS_ROWS = 40, LAYOUTS_EDITS = 8 };

/* Text that occurs in a source, and what stands there instead. */
typedef struct LayoutsEdit {
  const char *from, *to;
} LayoutsEdit;

typedef struct LayoutsRow {
  const char *mesh;
  const char *train; /* more lines of the train block: "store @dp", or NULL */
  const char *flags; /* more options of dtmc, or NULL */
  bool again;        /* blocks are called with recompute */
  bool half;         /* in bf16 too */
} LayoutsRow;

typedef struct LayoutsModel {
  const char *name, *source, *flags;
  const char *small; /* more of them, on GPUs: sizes that simulate fast */
  const char *train; /* on one rank too */
  LayoutsEdit edits[LAYOUTS_EDITS];
  LayoutsEdit again; /* what recompute changes */
  LayoutsRow rows[LAYOUTS_ROWS];
} LayoutsModel;

/* A row that is refused: dtmc ends with exit code 1 and says `why`. */
typedef struct LayoutsRefusal {
  const char *source, *flags, *why;
  LayoutsRow row;
} LayoutsRefusal;

/* The table, one array for each program that runs a part of it. Models without a name end it. */
extern const LayoutsModel layouts_llama[], layouts_gpt2[], layouts_mixed[], layouts_experts[];
extern const LayoutsRefusal layouts_refused[];

/* The main of a program that compares these models. */
int layouts_run(const char *suite, const LayoutsModel *models);
/* Compiles a row that is to be refused and fails the test if it is not. */
void layouts_refuse(const LayoutsRefusal *refusal);

#endif
