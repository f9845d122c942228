/* Shape and placement of one node: the PlacementSignature table.
 *
 * Metadata only; never communicates. Called by sema while it builds the graph, by autodiff for the
 * nodes it adds, and by the proof test for every combination.
 */
#ifndef DTM_INFER_INFER_H
#define DTM_INFER_INFER_H

#include "ir/fix.h"

/* What inference knows of one operand. */
typedef struct Operand {
  TensorType type;
  bool is_const;      /* a scalar constant: rules about constants apply */
  double const_value; /* when is_const */
} Operand;

typedef enum InferStatus {
  INFER_OK = 0,
  INFER_ERROR /* `error` is filled */
} InferStatus;

enum { INFER_MAX_FIXES = 16, INFER_MAX_OPERANDS = 64, INFER_MAX_RESULTS = 3 };

typedef struct InferResult {
  InferStatus status;
  TensorType results[INFER_MAX_RESULTS];
  uint32_t nresults;
  /* Zero-byte exceptions: operand i must pass through redistribute(implicit) to slice_to[i] first.
   * slice[i] false = as it is. Filled only on OK. */
  bool slice[INFER_MAX_OPERANDS];
  TensorType slice_to[INFER_MAX_OPERANDS];
  /* Why a result is Partial on an axis ("linear contracts dim 1, which is sharded on tp on both
   * sides"); NULL where it is not, or where an operand was Partial already. */
  const char *why_partial[DTM_MAX_AXES];
  /* On ERROR */
  DiagCode code;
  const char *message; /* "gelu cannot take a Partial operand on mesh dim tp" */
  const char *reason;  /* "gelu is not linear: gelu of a sum is not the sum of gelus" */
  uint32_t bad_operand;
  int bad_axis; /* -1 = none in particular */
  struct {
    uint32_t operand;
    TensorType to;
  } fixes[INFER_MAX_FIXES]; /* candidates, unverified */
  uint32_t nfixes;
} InferResult;

/* Infers results of `op` on operands (all on one mesh) with these attributes. Strings live in
 * `arena`. Shape, element type and arity faults are errors like placement faults. A scalar constant
 * is on every mesh: its mesh is not looked at. */
void infer_node(Arena *arena, Op op, const Operand *operands, uint32_t noperands, const Attr *attrs,
                uint32_t nattrs, InferResult *out);

/* The same without a word about an error: true when there is a row. `out` has the results then. */
bool infer_allows(Arena *arena, Op op, const Operand *operands, uint32_t noperands,
                  const Attr *attrs, uint32_t nattrs, InferResult *out);

/* Builds a node in `g`: infers, inserts implicit slices, adds. Attributes are made canonical first:
 * dims counted from 0, lists of dims sorted and complete, defaults and -1 extents filled in, so
 * that later passes read them as they are. On error emits the diagnostic (with fix candidates) to
 * `sink` and returns a node whose results are poisoned; a poisoned operand gives a poisoned result
 * silently. `spans[i]` are the operands' expressions (NULL = none known). Not for OP_READ and
 * OP_INPUT without a TYPE attribute: their types are the variable's, the source's (graph_add). */
NodeId infer_add(Graph *g, DiagSink *sink, Op op, const ValueId *operands, uint32_t noperands,
                 const Attr *attrs, uint32_t nattrs, Span span, const Span *spans, uint32_t scope);

/* NULL when the result types of a node are those that inference gives; else what differs. A
 * `VerifyTypes` (ir/verify.h). */
const char *infer_check(Arena *arena, const Graph *g, NodeId id);

/* The rows of an operator as text, for `dtmc explain op NAME`; `call` is how programs write it, or
 * NULL. */
const char *infer_explain(Arena *arena, Op op, const char *call);
/* All operators as Markdown. */
const char *infer_reference(Arena *arena);

/* How attention deals with a sequence that a mesh dim cuts: by the name of the dim. */
typedef enum ContextKind {
  CONTEXT_NONE = 0, /* it may not be cut */
  CONTEXT_RING,     /* ring_cp: blocks of keys and values go round the ranks */
  CONTEXT_ULYSSES   /* ulysses_cp: heads are cut in its place while attention runs */
} ContextKind;

ContextKind context_kind(const char *axis);
/* The axes (bit set) of this kind that cut dim `dim`. */
uint32_t context_axes(const TensorType *t, uint32_t dim, ContextKind kind);

/* Einsum letters of a contraction node, the form every later pass works on. Letters are small
 * integers; -1 ends nothing: lengths are ranks. For linear the bias is operand 2 and has the letter
 * of the output's last dim. Batch dims of matmul that broadcast have letters only where extent > 1.
 * matmul follows numpy for rank-1 operands. */
typedef struct Contraction {
  uint32_t rank[3], out_rank;
  int8_t letter[3][DTM_MAX_DIMS]; /* letter of each dim of each operand; -1 = extent-1 broadcast */
  int8_t out[DTM_MAX_DIMS];
  uint32_t nletters;
  int64_t extent[3 * DTM_MAX_DIMS]; /* per letter */
} Contraction;

/* False when the spec or shapes do not fit; *why says so. */
bool contraction_of(Arena *arena, Op op, const TensorType *operands, uint32_t noperands,
                    const char *spec, Contraction *out, const char **why);

#endif
