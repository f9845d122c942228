/* Inside codegen: emitting one kernel as CUDA C. See cuda.h for what a kernel looks like.
 *
 * The text is made in two forms with the same lines: for people, with names and places of the
 * source; and bare, which depends on the content of the kernel alone, for the compiler and its
 * cache. */
#ifndef DTM_CODEGEN_CUDA_TEXT_H
#define DTM_CODEGEN_CUDA_TEXT_H

#include "codegen/cuda.h"

/* How a value of a LOOP block stands in the text. */
typedef enum CudaForm {
  CUDA_FORM_NONE = 0,
  CUDA_FORM_UNIFORM, /* before the vector loop, once per thread */
  CUDA_FORM_ELEMENT, /* in the loop over the W elements of a thread */
  CUDA_FORM_ARRAY    /* W elements moved at once: a plain load, store or accumulation */
} CudaForm;

typedef struct CudaText {
  Arena *arena;
  const Kernel *k;
  const Sources *sources; /* NULL: bare */
  const char *bare;       /* that text behind its head, or NULL */
  StrBuf *out;
  int depth;
  uint32_t vec, width;   /* the VEC dim or KERNEL_MAX_DIMS; W */
  bool columns;          /* a thread goes down its columns: see cuda_is_columns */
  uint32_t across, side; /* cuda_tile.c: the dim that runs across the vector dim, elements of it in
                            a tile; 0 = no tiles */
  bool *tiled;           /* per instruction: it goes through a tile */
  bool tiling;           /* the text is that of tiles */
  uint32_t
      kept; /* vectors of a row, per thread, whose sums stay in registers; 0 = none: cuda_shape.c */
  bool keeping;     /* the text is that of rows for which they do */
  const char *each; /* elements of a thread at once as the text has it: W, or a variable that is 1
                       where rows do not begin at multiples of W */
  uint8_t *form;    /* per instruction: CudaForm, in LOOP blocks and with lanes */
  bool *sync;       /* per instruction: the group meets before it */
  const char **buf; /* names */
  const char *index[KERNEL_MAX_DIMS]; /* loop indices as they are at the moment, or NULL */
  const char *chunk, *block;          /* number of the chunk, of the block of the vector dim */
  bool element;                       /* within the loop over W elements */
  bool single;                        /* one element in place of W: what is no whole vector */
  const KNote *said;                  /* note of the statement before */
} CudaText;

/* --- cuda_shape.c ---- */
void cuda_find_forms(CudaText *t);
void cuda_find_syncs(CudaText *t);
/* Rows are reduced and nothing else: no value per row. Then a thread takes W columns for itself,
 * goes down the rows of the chunk, and keeps in registers what it adds up. */
bool cuda_is_columns(const Kernel *k);

/* A block moves vectors of rows that lie anywhere: one element apart, or where an index says. */
bool cuda_begins_anywhere(const CudaText *t, const KBlock *block);
/* Whether all rows begin at multiples of W: the condition as text; NULL when there are no rows but
 * one. */
const char *cuda_even_rows(const CudaText *t);

/* --- cuda_tile.c ---- */
void cuda_find_tiles(CudaText *t);
/* The loop over tiles, for launches that take them. */
void cuda_tiles(CudaText *t, const char *block, const char *blocks);
/* Where instruction i finds its element in a tile; NULL: in memory. */
const char *cuda_tile_place(const CudaText *t, uint32_t i);

/* --- cuda_name.c ---- */
const char *cuda_type(DType compute);    /* "float" */
const char *cuda_storage(DType storage); /* "dtm_bf16" */
void cuda_name_buffers(CudaText *t);

/* --- cuda_text.c ---- */
/* One line at the current depth. */
void cuda_line(CudaText *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same for a statement of instruction i: where it comes from stands behind it. */
void cuda_statement(CudaText *t, uint32_t i, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void cuda_open(CudaText *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void cuda_close(CudaText *t);

/* --- cuda_value.c ---- */
const char *cuda_int(const CudaText *t, KInt i);
const char *cuda_extent(const CudaText *t, uint32_t dim);
/* "n4 + i0 * n2 + i1" */
const char *cuda_address(const CudaText *t, const KAccess *a);
/* The value of an operand where it is used. */
const char *cuda_operand(const CudaText *t, KRef ref);
/* The expression of an instruction that has a value; `guard` says when memory may be read (NULL:
 * always). */
const char *cuda_value(const CudaText *t, uint32_t i, const char *guard);
/* a (op) b; the neutral element; the functor of dtm.cuh. */
const char *cuda_combine(const CudaText *t, ReduceOp op, DType type, const char *a, const char *b);
const char *cuda_neutral(ReduceOp op, DType type, Arena *arena);
const char *cuda_functor(ReduceOp op);
/* A number as it is stored in a buffer of this type. */
const char *cuda_stored(const CudaText *t, DType storage, const char *value);
const char *cuda_loaded(const CudaText *t, DType storage, const char *place);
/* The element that a load or store moves: "x[i0 * n1 + i1]". */
const char *cuda_place(const CudaText *t, uint32_t i);

/* --- cuda_block.c ---- */
/* One element of instruction i; `guard` says whether it is there, `stores` whether this thread is
 * to store it (NULL: yes). */
void cuda_instr(CudaText *t, uint32_t i, const char *guard, const char *stores);
/* All blocks in order, the vector dim from `lo` to `hi`. */
void cuda_blocks(CudaText *t, const char *lo, const char *hi);
/* What is added up over the rows of a chunk, before them and behind them. */
void cuda_begin_sums(CudaText *t, const char *extent);
void cuda_end_sums(CudaText *t);
/* `kept`: are rows short enough for that many, and made of whole, aligned vectors; `own`: vectors
 * of a row that are this thread's. */
void cuda_count_kept(CudaText *t, const char *extent);
/* Of columns: what is added up, before the rows; a row; and its way to memory, behind them. */
void cuda_begin_columns(CudaText *t);
void cuda_column_row(CudaText *t);
void cuda_end_columns(CudaText *t);

#endif
