/* A random program under construction: its values with shapes and layouts, and the text so far.
 *
 * Every value knows its layout where it follows from a simple rule (`known`). draft_lay and
 * draft_lay_as give an operand the layout that an operator needs, by a redistribute where it has
 * another; draft_define writes a line and puts its value into the pool. */
#ifndef DTM_RANDOM_DRAFT_H
#define DTM_RANDOM_DRAFT_H

#include "base/str.h"
#include "random_program.h"

enum { MAX_RANK = 4, MAX_AXES = 5, MAX_POOL = 128, MAX_MESHES = 5, MOST_ELEMENTS = 500 };

typedef struct Cut {
  int n, axis[MAX_AXES];
} Cut;

typedef struct Value {
  const char *name; /* or an expression */
  int id;           /* among the names */
  int rank, extent[MAX_RANK], mesh;
  int bound;  /* of ids, which are below it; 0 = a float */
  bool rows;  /* dim 0 is that of the rows of data, of which micro-batches have a part: B */
  bool known; /* the two below */
  Cut cut[MAX_RANK];
  unsigned partial; /* axes over which a sum is pending */
} Value;

typedef struct Mesh {
  const char *name;
  unsigned axes;
} Mesh;

typedef struct Draft {
  Arena *arena;
  uint64_t state; /* of the random numbers */
  RandomOptions options;
  StrBuf *params, *body;
  int names; /* given so far */
  Value pool[MAX_POOL];
  int npool, first_local; /* values before first_local belong to another module */
  Mesh mesh[MAX_MESHES];
  int nmeshes;
  const char *axis_name[MAX_AXES];
  bool context;    /* there are ring_cp and perhaps ulysses_cp */
  bool fixed_mesh; /* inside a module that lives on the mesh `at` */
  bool used[1000]; /* by id: as an operand */
  bool wild;       /* some operators stand in auto blocks, or get no redistribute */
  bool auto_now, raw_now;
  int at; /* the mesh of the operator being made */
} Draft;

/* Axes by number: those of ranks alike, of which the second and third are in some programs those
 * that attention runs around; stages; two of the others flattened. */
enum { AXIS_RING = 1, AXIS_ULYSSES = 2, AXIS_STAGES = 3, AXIS_FLAT = 4 };

int draft_below(Draft *d, int n);
bool draft_chance(Draft *d, int percent);
__attribute__((format(printf, 2, 3))) const char *draft_text(Draft *d, const char *format, ...);
/* One of the words, which are separated by |. */
const char *draft_word(Draft *d, const char *words);
/* `format` with `operand` in the place of its %s. */
const char *draft_apply(Draft *d, const char *format, const char *operand);

int value_elements(const Value *v);
bool value_has_cuts(const Value *v, const Cut *cut);

/* "[4@a, 5@(b, c)]" */
const char *draft_dims(Draft *d, const Value *v);
/* " on m", or "" for the world. */
const char *draft_on(Draft *d, int mesh);
/* The axes of the mesh at hand in a random order; their number. */
int draft_shuffled_axes(Draft *d, int *axis);
/* `whole`: dims that no axis may cut. */
void draft_random_cuts(Draft *d, int rank, unsigned whole, Cut *cut);
/* v on the mesh at hand, under this layout. */
Value draft_lay_as(Draft *d, const Value *v, const Cut *cut);
/* v under some layout in which the dims `whole` are not cut; a pending sum may stay. */
Value draft_lay(Draft *d, const Value *v, unsigned whole, bool partial_too);

/* let vN = expression, of the shape and layout of `like`. */
__attribute__((format(printf, 3, 4))) Value draft_define(Draft *d, Value like, const char *format,
                                                         ...);
Value draft_parameter(Draft *d, int rank, const int *extent);
/* A float of a rank, from late in the program rather than from its start. Sets the mesh at hand. */
Value draft_pick(Draft *d, int least, int most);
/* Ids below `bound` of this shape, from the numbers of their places. */
Value draft_ids(Draft *d, int rank, const int *extent, int bound);

/* Each adds an operator, or nothing where what it picked does not suit. */
void random_unary(Draft *d);
void random_scale(Draft *d);
void random_binary(Draft *d);
void random_pending(Draft *d);
void random_contract(Draft *d);
void random_reduce(Draft *d);
void random_whole_dim(Draft *d);
void random_composed(Draft *d);
void random_attention(Draft *d);
void random_experts(Draft *d);
void random_balanced(Draft *d);
void random_shape(Draft *d);
void random_move(Draft *d);
void random_index(Draft *d);
void random_noise(Draft *d);
void random_redistribute(Draft *d);
void random_loss(Draft *d);
void random_local(Draft *d);
/* The name of logits over RANDOM_IDS, [B, ids], each row of which is of its sample of x alone; laid
 * out like x. */
const char *random_rows(Draft *d, const Value *x);

#endif
