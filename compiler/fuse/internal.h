/* Inside fuse/: what the steps of the pass share.
 *
 * Steps: classify (what becomes of each node; views looked through) -> absorb (epilogues of
 * contractions) -> group (which kernel a node belongs to; lanes.c: how it reduces) -> recompute
 * (values cheaper to compute again than to store) -> lower (each kind of group once: a kernel's
 * loop IR, its dims, integers, buffers) -> order.
 */
#ifndef DTM_FUSE_INTERNAL_H
#define DTM_FUSE_INTERNAL_H

#include "fuse/fuse.h"
#include "kernel/build.h"

enum { SYM_ZERO = 0, SYM_ONE = 1 };

typedef enum NodeKind {
  NODE_NONE = 0,
  NODE_FREE,   /* computed wherever it is used: constants, iota, step */
  NODE_ALIAS,  /* same bytes under a shape that differs in dims of extent 1 only */
  NODE_TURN,   /* permute, expand: kernels look through it; copied only for other users */
  NODE_VIEW,   /* reshape: same bytes, dims merged or split */
  NODE_KERNEL, /* computed in a kernel */
  NODE_CONTRACT,
  NODE_COLLECTIVE,
  NODE_LIBRARY,
  NODE_STRUCTURE,
  NODE_ABSORBED /* part of a contraction's epilogue */
} NodeKind;

/* Index map of a value: per dim, a domain dim; or one of these. */
enum { DIM_UNIT = -1, DIM_UNKNOWN = -2 };
typedef struct DimMap {
  int8_t at[DTM_MAX_DIMS];
} DimMap;

/* A value seen through aliases, permutes and expands. */
typedef struct Root {
  ValueId value;
  DimMap dim; /* per dim of the outer value: dim of the root, or DIM_UNIT */
} Root;

typedef struct ReadMap {
  ValueId value; /* root */
  DimMap map;
} ReadMap;

/* Nodes that become one kernel. */
typedef struct KGroup {
  const Mesh *mesh;  /* of all its nodes */
  VEC(NodeId) nodes; /* ascending */
  NodeId vertex;     /* in the order of waits.c */
  VEC(ReadMap) reads;
  uint32_t ndims;
  SymId extent[DTM_MAX_DIMS]; /* the domain: none is 1 */
  int64_t max_extent[DTM_MAX_DIMS];
  uint32_t inner;  /* domain dims that row reductions reduce, as bits; see lanes.c */
  uint32_t rows;   /* domain dims that reductions over rows reduce */
  uint32_t part;   /* of the step, see fuse_part: one kernel runs at one time */
  uint32_t again;  /* see fuse_again */
  uint32_t round;  /* see fuse_round_fits */
  uint32_t merged; /* 0, or the group this one became part of */
  VEC(Group) made; /* what it was lowered to: one call, or two levels of a reduction */
} KGroup;

/* How a value of a group depends on the domain. */
typedef enum Level {
  LEVEL_FULL = 0, /* on all dims */
  LEVEL_ROW,      /* on all but the inner dims */
  LEVEL_TOTAL     /* reduced over the rows: complete only after the kernel */
} Level;

/* What a contraction does after the product; its result is then `result`. */
typedef struct Absorbed {
  Op activation;
  ValueId addend, result;
  NodeId by; /* of an absorbed node: the contraction */
} Absorbed;

/* See waits.c. */
typedef struct Vertex {
  uint64_t label; /* ascending along the list; 0 = not in it */
  NodeId before, after;
} Vertex;

typedef struct FoundVertex {
  uint64_t label;
  NodeId vertex;
} FoundVertex;

typedef struct Pattern Pattern; /* see reuse.c */

/* See types.c; of integers UINT32_MAX = not asked for yet. */
typedef struct TypeFacts {
  const TensorType *type;
  int64_t bytes; /* on the largest rank */
  SymId extent[DTM_MAX_DIMS], count;
} TypeFacts;

typedef struct Fuser {
  Arena *arena;
  const Graph *g;
  FusedProgram *p;
  const FuseOptions *options;
  const FuseTarget *target;
  uint32_t *type_of; /* per value: index into types */
  VEC(TypeFacts) types;
  uint8_t *kind;      /* per node: NodeKind */
  Root *root;         /* per value */
  bool *needed;       /* per value: must be stored, since others than kernels read it */
  bool *stored;       /* per value: some kernel writes it, or another group makes it */
  bool *recompute;    /* per value: not stored; computed again in each kernel that uses it */
  uint32_t *group;    /* per node: index into groups, 0 = none */
  uint8_t *level;     /* per node in a group: Level */
  uint8_t *lanes;     /* per node: see lanes.c */
  DimMap *map;        /* per node in a group: iteration dims -> domain dims */
  uint32_t *reader;   /* per value: last group that reads it whole */
  Absorbed *absorbed; /* per contraction node and what it absorbed */
  Vertex *vertex;     /* per node that is one; [0] is both ends of the list */
  uint32_t *first_user,
      *users;           /* per root value: kernel nodes that use it, users[first_user[v]..] */
  uint32_t *recomputed; /* graph_recomputed_scopes */
  uint32_t *round;      /* per node: the last step of attention around a ring that it comes of */
  uint8_t *mark;        /* per node, for searches */
  VEC(NodeId) marked;
  VEC(FoundVertex) found;
  VEC(KGroup) groups; /* [0] unused */
  /* reuse.c: the description of a group, what descriptions are made of, and those there are */
  VEC(uint32_t) words;
  VEC(ValueId) seen;
  uint32_t *number; /* per value */
  VEC(Pattern *) patterns;
  IdMap attr_ids, pattern_ids;
} Fuser;

/* --- sym.c ---- */
SymId sym_axis_coord(Arena *arena, FusedProgram *p, const Mesh *mesh, uint32_t axis);

/* --- types.c ---- */
void fuse_number_types(Fuser *f);
int64_t fuse_bytes(const Fuser *f, ValueId v); /* on the largest rank */
int64_t fuse_elements(const Fuser *f, ValueId v);
SymId fuse_extent(Fuser *f, ValueId v, uint32_t dim);
SymId fuse_local_count(Fuser *f, ValueId v); /* local elements */
SymId fuse_count(Fuser *f, const TensorType *t);

/* --- classify.c ---- */
void fuse_classify(Fuser *f);
/* Marks the storage of a value as needed. */
void fuse_need(Fuser *f, ValueId v);
/* The value whose storage `v` shares (through aliases). */
ValueId fuse_storage(const Fuser *f, ValueId v);
void fuse_find_users(Fuser *f);
bool fuse_in_kernel(const Fuser *f, NodeId n);
/* What runs together: a segment of a pipeline, or 0: forward and backward, 1: once per step. */
uint32_t fuse_part(const Node *n);
/* Operand i is read at run-time indices: it must lie in memory. */
bool fuse_in_memory(const Node *n, uint32_t i);
/* The value that operand i is read from: past what kernels look through, unless it must be in
 * memory. */
ValueId fuse_source(const Fuser *f, const Node *n, uint32_t i);

/* --- absorb.c ---- */
void fuse_absorb(Fuser *f);

/* --- maps.c ---- */
/* The dims a node iterates over: the operand's for a reduction, else the result's. */
const TensorType *fuse_iteration(const Fuser *f, NodeId n);
ValueId fuse_iterated(const Fuser *f, NodeId n); /* a value of that type */
bool fuse_is_reduction(Op op);
/* Per dim of operand i: the iteration dim it moves with, or DIM_UNIT. False where the operand is
 * read at other indices than the result's. */
bool fuse_aligned(const Fuser *f, NodeId n, uint32_t i, DimMap *out);
/* Operand i's root and its map under the node's map. False where it is read at other indices. */
bool fuse_operand_map(const Fuser *f, NodeId n, uint32_t i, const DimMap *node, Root *root,
                      DimMap *out);
uint32_t fuse_find(Fuser *f, uint32_t group);
const ReadMap *fuse_find_read(const KGroup *k, ValueId v); /* NULL = it does not read v */
/* False where the dim is known to be another. */
bool fuse_set_dim(DimMap *m, uint32_t d, int8_t to);
/* The dims a reduction reduces, as bits of its operand's dims, or of the group's domain. */
uint32_t fuse_reduced(const Node *n, const TensorType *t);
uint32_t fuse_reduced_domain(const Fuser *f, NodeId id);
uint32_t fuse_reduced_under(const Fuser *f, NodeId id, const DimMap *map);
/* Dims of a node's result -> domain dims. */
DimMap fuse_result_map(const Fuser *f, NodeId id);

/* --- waits.c ---- */
/* Puts a node that runs alone, or begins a group, at the end of the order. */
void fuse_waits_add(Fuser *f, NodeId id);
/* May the node be part of the group? True only where no circle comes of it. */
bool fuse_waits_allows(Fuser *f, NodeId id, uint32_t group);
/* The node becomes part of the group, which was allowed. */
void fuse_waits_join(Fuser *f, NodeId id, uint32_t group);
/* The node is the last one its contraction absorbs. */
void fuse_waits_absorbed(Fuser *f, NodeId id);
/* Makes two groups one vertex; false where a circle would come of it. */
bool fuse_waits_unite(Fuser *f, uint32_t a, uint32_t b);

/* --- fit.c ---- */
enum { GROUP_MAX_NODES = 48, GROUP_MAX_READS = 24 };
/* How a node lies in a group. */
typedef struct Join {
  DimMap map;
  Level level;
  uint32_t inner, rows; /* of the group afterwards */
} Join;
/* Nodes of one kernel have one of these. 0 but in the backward pass of what is recomputed: were a
 * kernel of it shared with the forward pass, or with that of another part of the model, its results
 * would be kept from there. */
uint32_t fuse_again(const Fuser *f, const Node *n);
/* What comes of one step around a ring of attention is no kernel with what comes of another:
 * results of steps are added up, and would all wait for the last one. */
bool fuse_round_fits(uint32_t a, uint32_t b);
/* Dims and reductions only: waits are another matter. */
bool fuse_fits(Fuser *f, NodeId id, uint32_t group, Join *j);
/* One dim that is worth cutting into blocks for several tasks: what reduces it is a total. */
bool fuse_is_long(const Fuser *f, const KGroup *k);
/* The level of a node whose map is known. */
bool fuse_fit_level(Fuser *f, NodeId id, const KGroup *k, Join *j);

/* --- lanes.c ---- */
/* A reduction over other dims than the innermost, whose result comes back to what it reduces. */
bool fuse_keeps_lanes(Fuser *f, NodeId id);
/* Would the group, reducing `inner`, keep the innermost dim? Then it has no reductions over rows.
 */
bool fuse_has_lanes(const KGroup *k, uint32_t inner);

/* --- merge.c ---- */
/* After `id` joined `group`: takes in the groups that made or read its other operands. */
void fuse_pull_in(Fuser *f, NodeId id, uint32_t group);

/* --- group.c ---- */
void fuse_group(Fuser *f);

/* --- recompute.c ---- */
void fuse_recompute(Fuser *f);
/* Finds the values kernels must store: what is needed, and what kernels of those read. */
void fuse_demand(Fuser *f);
/* An elementary function: worth more than a store and a load. */
bool fuse_is_dear(Op op);
/* Is this root value computed where `group` uses it, rather than loaded? */
bool fuse_computed_in(Fuser *f, ValueId root, uint32_t group);

/* --- reuse.c ---- */
/* Lowers all groups, each kind of them once. */
void fuse_lower(Fuser *f);

/* --- eval.c, lower.c ---- */
void fuse_lower_group(Fuser *f, uint32_t group);

/* --- fuse.c ---- */
FValueId fuse_value(Fuser *f, ValueId v);
FValueId fuse_temporary(Fuser *f, DType dtype, SymId elements, int64_t max_elements);

#endif
