/* Symbolic integers: extents, offsets and strides that differ between ranks.
 *
 * One binary serves all ranks, so whatever depends on the rank is an expression over "local extent
 * of this type along this dim", "first global index of the block", "coordinate on this axis",
 * evaluated once per rank at start. Expressions are hash-consed into one table per program and
 * folded when they are the same on every rank; a Sym is an index, equal expression = equal index.
 */
#ifndef DTM_TYPES_SYM_H
#define DTM_TYPES_SYM_H

#include "base/vec.h"
#include "runtime/abi/abi.h"
#include "types/layout.h"

typedef uint32_t Sym; /* index in SymTable; 0 is the constant 0 */

typedef struct SymNode {
  AbiSymOp op;
  uint32_t a, b; /* EXTENT, OFFSET: a = index in `types`, b = dim; COORD: a = index in `meshes` */
  int64_t imm;
} SymNode;

typedef struct SymTable {
  Arena *arena;
  VEC(SymNode) nodes;       /* [0] is the constant 0 */
  VEC(TensorType) types;    /* [0] unused; distinct types */
  VEC(const Mesh *) meshes; /* [0] unused */
  IdMap node_ids, type_ids; /* hash -> index (chained by probing) */
} SymTable;

void sym_init(SymTable *table, Arena *arena);
Sym sym_const(SymTable *table, int64_t value);
/* Local extent of this rank's block; a constant when the dim is not cut. */
Sym sym_extent(SymTable *table, const TensorType *type, uint32_t dim);
/* First global index of this rank's block. */
Sym sym_offset(SymTable *table, const TensorType *type, uint32_t dim);
Sym sym_coord(SymTable *table, const Mesh *mesh, uint32_t axis);
/* `op` is one of ADD .. EQ. Folds constants, x + 0, x * 1, x * 0. */
Sym sym_binary(SymTable *table, AbiSymOp op, Sym a, Sym b);
static inline Sym sym_add(SymTable *t, Sym a, Sym b) {
  return sym_binary(t, ABI_SYM_ADD, a, b);
}
static inline Sym sym_sub(SymTable *t, Sym a, Sym b) {
  return sym_binary(t, ABI_SYM_SUB, a, b);
}
static inline Sym sym_mul(SymTable *t, Sym a, Sym b) {
  return sym_binary(t, ABI_SYM_MUL, a, b);
}
/* Number of elements of the local block. */
Sym sym_elements(SymTable *table, const TensorType *type);
/* True, with the value, when the same on every rank. */
bool sym_is_const(const SymTable *table, Sym s, int64_t *value);
/* Value at these coordinates of the (only) mesh it mentions. For tests and reports. */
int64_t sym_eval(const SymTable *table, Sym s, const int64_t coord[DTM_MAX_AXES]);
/* Index of the type in `types`, added when new. */
uint32_t sym_type(SymTable *table, const TensorType *type);
uint32_t sym_mesh(SymTable *table, const Mesh *mesh);

#endif
