/* The rule of direct exchanges, shared by compiler and runtime: who sends what to whom when a value
 * goes from one layout to another without any reduction.
 *
 * The distinct blocks of the source layout cut the tensor into disjoint pieces, each held by a
 * number of replicas. A receiver pulls the intersection of its target block with every piece, so it
 * receives exactly what it lacks. Which replica sends is chosen so that the replicas of one piece
 * send equally much, to the element: the demands of all receivers on a piece are laid on one line
 * and the line is cut into equal segments, one per replica. Positions on the line have a closed
 * form, because a piece, a target block and hence their intersection are products over tensor dims;
 * so every rank finds its own transfers without listing those of others.
 *
 * On one mesh a replica is sought only along axes that the target shards ("spread" axes); on the
 * axes that neither layout shards sender and receiver have the same coordinate. Axes that are
 * Partial in both layouts are never crossed: each addend moves among its like.
 *
 * Memory that moves inside a rank is listed too (sender = receiver).
 */
#ifndef DTM_RT_TRANSFERS_H
#define DTM_RT_TRANSFERS_H

#include "runtime/abi/blocks.h"

typedef struct AbiTransfer {
  int64_t sender;                                     /* position in the source's mesh */
  int64_t offset[ABI_MAX_DIMS], extent[ABI_MAX_DIMS]; /* global box */
} AbiTransfer;

/* An interval [begin, begin + length) of one tensor dim. */
typedef struct AbiSpan {
  int64_t begin, length;
} AbiSpan;

/* One side of an exchange: per dim the axes that cut it, outer first. */
typedef struct AbiSide {
  const AbiType *type;
  const AbiMesh *mesh;
  uint8_t axes[ABI_MAX_DIMS][ABI_MAX_AXES];
  uint32_t naxes[ABI_MAX_DIMS];
} AbiSide;

/* State of the walk over the source pieces that one receiver needs. */
typedef struct AbiWalk {
  AbiSide from, to;
  uint32_t rank;
  int one_mesh;
  int64_t receiver, coord[ABI_MAX_AXES]; /* on the target's mesh */
  AbiSpan need[ABI_MAX_DIMS];
  uint8_t spread[ABI_MAX_AXES], echo[ABI_MAX_AXES]; /* axes of the source's, the target's mesh */
  uint32_t nspread, necho;
  uint8_t order[ABI_MAX_DIMS]; /* dims in the order of the line */
  int64_t replicas, echoes;    /* products of the sizes of spread and echo axes */
  int64_t owner[ABI_MAX_AXES]; /* coordinates of the piece under the walk */
  AbiSpan piece[ABI_MAX_DIMS];
  AbiTransfer *out;
  size_t capacity, count;
} AbiWalk;

static inline void abi_side_init(AbiSide *s, const AbiType *type, const AbiMesh *mesh) {
  s->type = type;
  s->mesh = mesh;
  for (uint32_t d = 0; d < ABI_MAX_DIMS; d++) s->naxes[d] = 0;
  for (uint32_t a = 0; a < mesh->naxes; a++) {
    AbiPlace p = type->at[a];
    if (p.kind != ABI_SHARD) continue;
    s->axes[p.dim][p.order] = (uint8_t)a;
    s->naxes[p.dim]++;
  }
}

/* The part of a dim at these coordinates, as nested chunks give it: of an empty part only the
 * length means something. */
static inline AbiSpan abi_side_span(const AbiSide *s, uint32_t dim,
                                    const int64_t coord[ABI_MAX_AXES]) {
  AbiSpan span = {0, s->type->shape[dim]};
  for (uint32_t i = 0; i < s->naxes[dim]; i++) {
    int64_t begin;
    abi_chunk(span.length, s->mesh->size[s->axes[dim][i]], coord[s->axes[dim][i]], &begin,
              &span.length);
    span.begin += begin;
  }
  return span;
}

static inline AbiSpan abi_span_common(AbiSpan a, AbiSpan b) {
  int64_t lo = a.begin > b.begin ? a.begin : b.begin;
  int64_t a_end = a.begin + a.length, b_end = b.begin + b.length,
          hi = a_end < b_end ? a_end : b_end;
  return (AbiSpan){lo, hi > lo ? hi - lo : 0};
}

static inline void abi_walk_emit(AbiWalk *w, int64_t sender, const AbiSpan box[ABI_MAX_DIMS]) {
  if (w->count < w->capacity) {
    AbiTransfer *t = &w->out[w->count];
    t->sender = sender;
    for (uint32_t d = 0; d < ABI_MAX_DIMS; d++) {
      t->offset[d] = d < w->rank ? box[d].begin : 0;
      t->extent[d] = d < w->rank ? box[d].length : 0;
    }
  }
  w->count++;
}

/* Emits elements [lo, hi) of a box in row-major order, as few boxes. `dim`: dims before it have
 * extent 1. */
static inline void abi_walk_emit_range(AbiWalk *w, int64_t sender, AbiSpan box[ABI_MAX_DIMS],
                                       uint32_t dim, int64_t lo, int64_t hi) {
  if (lo >= hi) return;
  while (dim < w->rank && box[dim].length == 1) dim++;
  if (dim >= w->rank) {
    abi_walk_emit(w, sender, box);
    return;
  }
  int64_t inner = 1;
  for (uint32_t d = dim + 1; d < w->rank; d++) inner *= box[d].length;
  AbiSpan whole = box[dim];
  int64_t first = lo / inner, last = hi / inner, head = lo % inner, tail = hi % inner;
  if (head && first < last) {
    box[dim] = (AbiSpan){whole.begin + first, 1};
    abi_walk_emit_range(w, sender, box, dim + 1, head, inner);
    first++;
    head = 0;
  }
  if (first < last) {
    box[dim] = (AbiSpan){whole.begin + first, last - first};
    abi_walk_emit(w, sender, box);
    first = last;
  }
  if (first == last && head < tail) {
    box[dim] = (AbiSpan){whole.begin + first, 1};
    abi_walk_emit_range(w, sender, box, dim + 1, head, tail);
  }
  box[dim] = whole;
}

/* Where the demand of the receiver at `coord` on the piece under the walk begins on the line,
 * owners of the piece counted like others; *volume = its length. */
static inline int64_t abi_walk_line(const AbiWalk *w, const int64_t coord[ABI_MAX_AXES],
                                    int64_t *volume) {
  int64_t position = 0, weight = 1;
  for (uint32_t k = 0; k < w->rank; k++) {
    uint32_t d = w->order[k];
    AbiSpan need = abi_side_span(&w->to, d, coord), piece = w->piece[d];
    int64_t before = need.begin - piece.begin;
    if (before < 0) before = 0;
    if (before > piece.length) before = piece.length;
    position = position * piece.length + weight * before;
    weight *= abi_span_common(need, piece).length;
  }
  for (uint32_t i = 0; i < w->necho; i++)
    position = position * w->to.mesh->size[w->echo[i]] + weight * coord[w->echo[i]];
  *volume = weight;
  return position;
}

/* Sets the coordinates of `coord` on the spread axes to replica number `index`. */
static inline void abi_walk_replica(const AbiWalk *w, int64_t index, int64_t coord[ABI_MAX_AXES]) {
  for (uint32_t i = w->nspread; i-- > 0;) {
    coord[w->spread[i]] = index % w->from.mesh->size[w->spread[i]];
    index /= w->from.mesh->size[w->spread[i]];
  }
}

/* The piece at w->owner, which meets the receiver's block. */
static inline void abi_walk_piece(AbiWalk *w) {
  AbiSpan box[ABI_MAX_DIMS];
  int mine = w->one_mesh;
  int64_t total = w->echoes;
  for (uint32_t d = 0; d < w->rank; d++) {
    box[d] = abi_span_common(w->need[d], w->piece[d]);
    total *= w->piece[d].length;
    for (uint32_t i = 0; i < w->from.naxes[d]; i++)
      if (w->owner[w->from.axes[d][i]] != w->coord[w->from.axes[d][i]]) mine = 0;
  }
  if (mine) {
    abi_walk_emit(w, w->receiver, box);
    return;
  }
  int64_t volume, at = abi_walk_line(w, w->coord, &volume), begin = at;
  if (w->one_mesh && w->replicas > 1) { /* owners pull nothing: close their gaps in the line */
    int64_t coord[ABI_MAX_AXES];
    for (uint32_t a = 0; a < ABI_MAX_AXES; a++) coord[a] = w->owner[a];
    for (int64_t r = 0; r < w->replicas; r++) {
      int64_t own;
      abi_walk_replica(w, r, coord);
      int64_t p = abi_walk_line(w, coord, &own);
      total -= own;
      if (own && p < at) begin -= own;
    }
  }
  /* Segments: the first `longer` have one element more than `share`. */
  int64_t share = total / w->replicas, longer = total % w->replicas, done = 0;
  if (w->replicas == 1) share = begin + volume, longer = 0;
  while (done < volume) {
    int64_t x = begin + done, split = longer * (share + 1);
    int64_t r = x < split ? x / (share + 1) : longer + (x - split) / share;
    int64_t end = x < split ? (r + 1) * (share + 1) : split + (r - longer + 1) * share;
    int64_t stop = end - begin < volume ? end - begin : volume;
    abi_walk_replica(w, r, w->owner);
    abi_walk_emit_range(w, abi_position(w->from.mesh, w->owner), box, 0, done, stop);
    done = stop;
  }
}

/* Walks the source's parts of dim `dim` that meet the need: axis number `i` of its list is next. */
static inline void abi_walk_dim(AbiWalk *w, uint32_t dim, uint32_t i) {
  if (dim == w->rank) {
    abi_walk_piece(w);
  } else if (i == w->from.naxes[dim]) {
    w->piece[dim] = abi_side_span(&w->from, dim, w->owner);
    if (abi_span_common(w->piece[dim], w->need[dim]).length) abi_walk_dim(w, dim + 1, 0);
  } else {
    uint8_t axis = w->from.axes[dim][i];
    for (int64_t c = 0; c < w->from.mesh->size[axis]; c++) {
      w->owner[axis] = c;
      abi_walk_dim(w, dim, i + 1);
    }
  }
}

/* Sorts axes into spread, echo and those with equal coordinates; orders the line so that replicas
 * and receivers with the same coordinate meet where sizes are even. */
static inline void abi_walk_axes(AbiWalk *w) {
  uint32_t n = 0;
  for (int coupled = 0; coupled < 2; coupled++)
    for (uint32_t d = 0; d < w->rank; d++)
      if ((w->from.naxes[d] > 0) == coupled) w->order[n++] = (uint8_t)d;
  w->replicas = w->echoes = 1;
  const AbiPlace *from = w->from.type->at, *to = w->to.type->at;
  for (uint32_t k = 0; k < w->rank && w->one_mesh; k++)
    for (uint32_t i = 0; i < w->to.naxes[w->order[k]]; i++) {
      uint8_t a = w->to.axes[w->order[k]][i];
      if (from[a].kind != ABI_SHARD) w->spread[w->nspread++] = a;
    }
  for (uint8_t a = 0; a < ABI_MAX_AXES; a++) {
    if (from[a].kind == ABI_PARTIAL && to[a].kind == ABI_PARTIAL) continue;
    if (!w->one_mesh && a < w->from.mesh->naxes && from[a].kind != ABI_SHARD)
      w->spread[w->nspread++] = a;
    if (a < w->to.mesh->naxes && to[a].kind != ABI_SHARD &&
        (!w->one_mesh || from[a].kind == ABI_SHARD))
      w->echo[w->necho++] = a;
  }
  for (uint32_t i = 0; i < w->nspread; i++) w->replicas *= w->from.mesh->size[w->spread[i]];
  for (uint32_t i = 0; i < w->necho; i++) w->echoes *= w->to.mesh->size[w->echo[i]];
}

/* Lists what the device at position `receiver` of the target's mesh pulls. Returns how many
 * transfers there are and fills at most `capacity` of them. The types agree in rank and shape; each
 * Partial of one is in the other on the same axis (of the same size). Same mesh: same pointer. */
static inline size_t abi_transfers_for(const AbiType *from, const AbiMesh *from_mesh,
                                       const AbiType *to, const AbiMesh *to_mesh, int64_t receiver,
                                       AbiTransfer *out, size_t capacity) {
  AbiWalk w = {.rank = from->rank,
               .one_mesh = from_mesh == to_mesh,
               .receiver = receiver,
               .out = out,
               .capacity = capacity};
  abi_side_init(&w.from, from, from_mesh);
  abi_side_init(&w.to, to, to_mesh);
  abi_coords(to_mesh, receiver, w.coord);
  for (uint32_t d = 0; d < w.rank; d++) {
    w.need[d] = abi_side_span(&w.to, d, w.coord);
    if (w.need[d].length == 0) return 0;
  }
  abi_walk_axes(&w);
  for (uint32_t a = 0; a < ABI_MAX_AXES; a++)
    w.owner[a] = w.one_mesh || from->at[a].kind == ABI_PARTIAL ? w.coord[a] : 0;
  abi_walk_dim(&w, 0, 0);
  return w.count;
}

#endif
