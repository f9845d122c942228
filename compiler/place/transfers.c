/* What an exchange moves, box by box: the list that the runtime follows, for reports and tests. The
 * rule itself is runtime/abi/transfers.h. */
#include "place/place.h"

#include <string.h>

#include "place/measure.h"
#include "runtime/abi/transfers.h"

_Static_assert(sizeof(Place) == sizeof(AbiPlace), "Place and AbiPlace have the same bytes");
_Static_assert((int)DTM_MAX_AXES == (int)ABI_MAX_AXES && (int)DTM_MAX_DIMS == (int)ABI_MAX_DIMS,
               "limits agree");

/* The shared form of a type; string and mesh indices are zero. */
static AbiType abi_type(const TensorType *type) {
  AbiType t = {.dtype = type->dtype, .rank = type->rank};
  memcpy(t.shape, type->shape, sizeof(int64_t) * type->rank);
  memcpy(t.at, type->layout.at, sizeof t.at);
  return t;
}

static AbiMesh abi_mesh(const Mesh *mesh) {
  AbiMesh m = {.naxes = mesh->naxes, .nranks = mesh->nranks};
  memcpy(m.size, mesh->size, sizeof m.size);
  return m;
}

void place_transfers_for(Arena *arena, const TensorType *from, const TensorType *to,
                         int64_t receiver, TransferList *out) {
  AbiType f = abi_type(from), t = abi_type(to);
  AbiMesh from_mesh = abi_mesh(from->mesh), to_mesh = abi_mesh(to->mesh);
  const AbiMesh *there = from->mesh == to->mesh ? &from_mesh : &to_mesh;
  size_t n = abi_transfers_for(&f, &from_mesh, &t, there, receiver, NULL, 0);
  AbiTransfer *list = ARENA_ARRAY(arena, AbiTransfer, n);
  abi_transfers_for(&f, &from_mesh, &t, there, receiver, list, n);
  for (size_t i = 0; i < n; i++) {
    Transfer x = {.sender = list[i].sender, .receiver = receiver};
    memcpy(x.block.offset, list[i].offset, sizeof x.block.offset);
    memcpy(x.block.extent, list[i].extent, sizeof x.block.extent);
    VEC_PUSH(arena, out, x);
  }
}

void place_transfers(Arena *arena, const TensorType *from, const TensorType *to,
                     TransferList *out) {
  for (int64_t d = 0; d < to->mesh->nranks; d++) place_transfers_for(arena, from, to, d, out);
}

int64_t place_bound(const TensorType *from, const TensorType *to) {
  return measure_exchange(from, to).received * (int64_t)dtype_bytes(to->dtype);
}
