/* How a tensor is cut over its mesh, as data: what the table, the JSON and the drawings of
 * `dtmc explain tensor` share.
 *
 * In: a type (types/layout.h). Out: for every rank its block and its part in replicas and pending
 * reductions; for every tensor dim its parts, in the order in which they lie along the dim.
 */
#ifndef DTM_REPORT_CUT_H
#define DTM_REPORT_CUT_H

#include "base/vec.h"
#include "types/layout.h"

typedef struct Cut {
  TensorType type;
  uint32_t naxes[DTM_MAX_DIMS];
  uint8_t axes[DTM_MAX_DIMS][DTM_MAX_AXES]; /* that cut a dim, outer first */
  int row, col; /* dims that a drawing shows, row < col; -1: the tensor has no such dim */
} Cut;

Cut cut_of(const TensorType *type);

/* Ranks whose blocks a dim has: the product of its axes, 1 when it is whole. */
int64_t cut_parts(const Cut *c, int dim);
/* Sets the coordinates of the dim's axes to those of its part `index`, and where the part lies (an
 * empty one has length 0). */
void cut_part(const Cut *c, int dim, int64_t index, int64_t coord[DTM_MAX_AXES], int64_t *begin,
              int64_t *length);
/* The part of a dim that is held at these coordinates. */
int64_t cut_part_index(const Cut *c, int dim, const int64_t coord[DTM_MAX_AXES]);

/* What one rank holds. */
typedef struct CutRank {
  int64_t rank, coord[DTM_MAX_AXES];
  int64_t shape[DTM_MAX_DIMS]; /* of the local block */
  int64_t offset[DTM_MAX_DIMS];
  int64_t bytes;
  int64_t owner;           /* the first of the replicas: it writes checkpoints */
  int64_t copy, copies;    /* which of the replicas of this block */
  int64_t addend, addends; /* which addend of its pending reduction; 0 of 1: none is pending */
} CutRank;
CutRank cut_rank(const Cut *c, int64_t position);

/* Rows of a table of ranks. Up to CUT_ROWS ranks each has its own; beyond, those of one block share
 * one; where that is too many still, those of one local shape. */
enum { CUT_ROWS = 64 };
typedef enum CutFold { FOLD_NONE = 0, FOLD_BLOCK, FOLD_SHAPE } CutFold;
typedef struct CutRow {
  CutRank first;
  VEC(int64_t) ranks;
} CutRow;
typedef struct CutTable {
  CutFold fold;
  VEC(CutRow) rows;
  int64_t least, most, total; /* bytes per rank, and of all ranks together */
} CutTable;
CutTable cut_table(Arena *arena, const Cut *c);

/* The parts of a dim that a drawing shows: all, or the first ones, a gap, and the last. */
typedef struct CutSlice {
  bool gap;
  int64_t index, begin, length;
  uint32_t level; /* which of the dim's axes (0 = outermost) moved since the part before */
  double size;    /* for the drawing to fill in */
} CutSlice;
typedef struct CutStrip {
  CutSlice *slice;
  uint32_t len;
  int dim;
} CutStrip;
CutStrip cut_strip(Arena *arena, const Cut *c, int dim, uint32_t most);

/* "0-3,8", "0,...,56" when longer than `budget` characters. */
const char *cut_ranks_print(Arena *arena, const int64_t *ranks, uint32_t n, uint32_t budget);
/* Which ranks hold the block of these slices (others dims: their first part): "0,4" for replicas,
 * "0+1" for the addends of a sum, "max(0,1)" for another reduction, "0+1, 4+5" for both. */
const char *cut_holders_print(Arena *arena, const Cut *c, const CutStrip *rows, uint32_t row,
                              const CutStrip *cols, uint32_t col, uint32_t budget);
/* "2:5", or the sign of an empty part. */
const char *cut_range_print(Arena *arena, const CutSlice *s);
/* "tp=1": the coordinate on the axis of this level. */
const char *cut_coord_print(Arena *arena, const Cut *c, const CutStrip *strip, uint32_t slice,
                            uint32_t level);
/* "10 over tp (2): 4, 4, 2", "4, whole": what the mesh does to a dim. */
const char *cut_dim_print(Arena *arena, const Cut *c, int dim);

/* "[3, 4]" */
const char *cut_list_print(Arena *arena, const int64_t *n, uint32_t len);
/* "owner", "copy of rank 0", "addend 1 of 2"; "" when nobody else holds the block. */
const char *cut_role_print(Arena *arena, const CutRank *r);
/* The ranks of a row; how many where they are many. */
const char *cut_row_print(Arena *arena, const CutRow *row);

#define CUT_EMPTY "\u2205" /* the empty set */

/* Everything there is to say about a named tensor. */
typedef struct TensorReport {
  const char *name, *what;  /* "fc1.weight", "parameter" */
  const TensorType *type;   /* of the whole tensor */
  bool loaded;              /* a checkpoint holds its value */
  VEC(const char *) places; /* "mlp.dtm:12:9, in train" */
  const char *mesh;         /* "mesh(dp 2, tp 3)" */
} TensorReport;

/* One sentence on each pending reduction, joined; NULL when nothing is pending. */
const char *report_partial(Arena *arena, const TensorReport *r);
/* Other dims than the two drawn that are cut too: which part is shown. NULL when there is none. */
const char *report_hidden_dims(Arena *arena, const Cut *c);

/* Text with a drawing in box characters at most `width` columns wide (where names allow it). */
void report_text(Arena *arena, StrBuf *out, const TensorReport *r, uint32_t width, bool color);
void report_json(Arena *arena, StrBuf *out, const TensorReport *r);
/* One SVG document that needs nothing else and suits light and dark pages. */
void report_svg(Arena *arena, StrBuf *out, const TensorReport *r);

#endif
