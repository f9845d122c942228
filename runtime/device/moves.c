/* What collectives and local conversions move: see moves.h. */
#include "device/moves.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/abi/transfers.h"

/* One end of a move on one rank. */
typedef struct End {
  const AbiType *type;
  const AbiMesh *mesh;
  int64_t position; /* -1: the rank is not in the mesh */
  int64_t coord[ABI_MAX_AXES];
  int64_t offset[ABI_MAX_DIMS], extent[ABI_MAX_DIMS];
} End;

static void find_block(End *e, int64_t position) {
  abi_coords(e->mesh, position, e->coord);
  abi_block(e->type, e->mesh, e->coord, e->offset, e->extent);
}

static End end_of(const Image *image, const AbiBuffer *b, int32_t rank) {
  End e = {.type = &image->type[b->type]};
  e.mesh = abi_type_mesh(image, e.type);
  e.position = abi_mesh_position(image, e.mesh, rank);
  if (e.position >= 0) find_block(&e, e.position);
  return e;
}

static size_t count_of(const End *e) {
  size_t n = 1;
  for (uint32_t d = 0; d < e->type->rank; d++) n *= (size_t)e->extent[d];
  return n;
}

static void row_major(const End *e, int64_t stride[ABI_MAX_DIMS]) {
  int64_t n = 1;
  for (uint32_t d = e->type->rank; d-- > 0;) {
    stride[d] = n;
    n *= e->extent[d];
  }
}

/* The global box [offset, +extent) as it lies in the blocks of both ends. */
static RtBox box_between(const End *src, const End *dst, const int64_t *offset,
                         const int64_t *extent, int32_t peer) {
  RtBox b = {.peer = peer, .ndims = (int32_t)src->type->rank};
  row_major(src, b.src_stride);
  row_major(dst, b.dst_stride);
  for (uint32_t d = 0; d < src->type->rank; d++) {
    b.extent[d] = extent[d];
    b.src_offset += (offset[d] - src->offset[d]) * b.src_stride[d];
    b.dst_offset += (offset[d] - dst->offset[d]) * b.dst_stride[d];
  }
  return b;
}

/* Positions that differ from this rank's in the axes of the set only, ascending. */
static int find_group(const Image *image, const End *e, uint32_t axes, Moves *m) {
  int64_t n = 1, coord[ABI_MAX_AXES];
  for (uint32_t a = 0; a < e->mesh->naxes; a++)
    if (axes >> a & 1) n *= e->mesh->size[a];
  m->group = malloc(sizeof *m->group * (size_t)n);
  if (!m->group) return -1;
  memcpy(coord, e->coord, sizeof coord);
  for (int64_t i = 0; i < n; i++) {
    int64_t rest = i;
    for (uint32_t a = e->mesh->naxes; a-- > 0;) {
      if (!(axes >> a & 1)) continue;
      coord[a] = rest % e->mesh->size[a];
      rest /= e->mesh->size[a];
    }
    m->group[i] = image->rank[e->mesh->ranks + (uint64_t)abi_position(e->mesh, coord)];
  }
  m->ngroup = (int32_t)n;
  return 0;
}

/* Whether the rank at a position of the target's mesh gets something from `sender`. */
static int receives(const End *src, const End *dst, int64_t receiver, int64_t sender,
                    AbiTransfer **room, size_t *capacity) {
  size_t n =
      abi_transfers_for(src->type, src->mesh, dst->type, dst->mesh, receiver, *room, *capacity);
  if (n > *capacity) {
    AbiTransfer *more = realloc(*room, sizeof **room * n);
    if (!more) return -1;
    *room = more;
    *capacity = n;
    abi_transfers_for(src->type, src->mesh, dst->type, dst->mesh, receiver, more, n);
  }
  for (size_t i = 0; i < n; i++)
    if ((*room)[i].sender == sender) return 1;
  return 0;
}

/* A transfer between meshes: this rank, those that it receives from and those that receive from it,
 * ascending by world rank. Each meets its own neighbours alone, so that ranks on a ring need not
 * wait for those at its far side. */
static int find_neighbours(const Image *image, const End *src, const End *dst, int32_t rank,
                           Moves *m) {
  const AbiMesh *world = &image->mesh[image->header->world];
  m->group = malloc(sizeof *m->group * (size_t)world->nranks);
  AbiTransfer *room = NULL;
  size_t capacity = 0;
  int status = m->group ? 0 : -1;
  for (int64_t p = 0; p < world->nranks && status >= 0; p++) {
    int32_t other = image->rank[world->ranks + (uint64_t)p];
    int64_t sender = abi_mesh_position(image, src->mesh, other),
            receiver = abi_mesh_position(image, dst->mesh, other);
    status = other == rank;
    if (!status && dst->position >= 0 && sender >= 0)
      status = receives(src, dst, dst->position, sender, &room, &capacity);
    if (!status && src->position >= 0 && receiver >= 0)
      status = receives(src, dst, receiver, src->position, &room, &capacity);
    if (status > 0) m->group[m->ngroup++] = other;
  }
  free(room);
  return status < 0 ? -1 : 0;
}

/* Appends the boxes that the rank at dst->position pulls of one pair of buffers, of the rank at
 * position `sender` of the source's mesh alone if that is not -1. */
static int add_pull(const Image *image, const End *src, const End *dst, int64_t sender,
                    RtBox **list, size_t *nboxes) {
  if (dst->position < 0) return 0;
  size_t n = abi_transfers_for(src->type, src->mesh, dst->type, dst->mesh, dst->position, NULL, 0);
  AbiTransfer *t = malloc(sizeof *t * (n + 1));
  RtBox *boxes = realloc(*list, sizeof *boxes * (*nboxes + n + 1));
  if (boxes) *list = boxes;
  if (!t || !boxes) {
    free(t);
    return -1;
  }
  abi_transfers_for(src->type, src->mesh, dst->type, dst->mesh, dst->position, t, n);
  for (size_t i = 0; i < n; i++) {
    if (sender >= 0 && t[i].sender != sender) continue;
    End peer = *src;
    find_block(&peer, t[i].sender);
    int32_t from = image->rank[src->mesh->ranks + (uint64_t)t[i].sender];
    boxes[(*nboxes)++] = box_between(&peer, dst, t[i].offset, t[i].extent, from);
  }
  free(t);
  return 0;
}

/* Appends the block that one pair of buffers keeps of a reduction. */
static int add_scatter(const End *src, const End *dst, Moves *m) {
  RtBox *boxes = realloc(m->boxes, sizeof *boxes * (m->nboxes + 1));
  if (!boxes) return -1;
  m->boxes = boxes;
  if (count_of(dst)) boxes[m->nboxes++] = box_between(src, dst, dst->offset, dst->extent, -1);
  return 0;
}

/* All pairs of a bucket, as boxes of the first pair's buffers. */
static int find_members(const Image *image, const AbiAction *action, int32_t rank, Moves *m) {
  const AbiBuffer *first = &image->buffer[action->buffers];
  int64_t element = (int64_t)abi_dtype_bytes(m->dtype);
  uint32_t kind = action->kind == ABI_START ? action->code : action->kind;
  for (uint32_t i = 0; i + 1 < action->nbuffers; i += 2) {
    const End src = end_of(image, first + i, rank), dst = end_of(image, first + i + 1, rank);
    size_t before = m->nboxes;
    if (i == 0 && (src.mesh == dst.mesh ? find_group(image, &dst, action->axes, m)
                                        : find_neighbours(image, &src, &dst, rank, m)))
      return -1;
    if (kind == ABI_REDUCE_SCATTER ? add_scatter(&src, &dst, m)
                                   : add_pull(image, &src, &dst, -1, &m->boxes, &m->nboxes))
      return -1;
    int64_t src_at = (int64_t)(first[i].offset - first[0].offset) / element;
    int64_t dst_at = (int64_t)(first[i + 1].offset - first[1].offset) / element;
    for (size_t k = before; k < m->nboxes; k++) {
      m->boxes[k].src_offset += src_at;
      m->boxes[k].dst_offset += dst_at;
    }
  }
  return 0;
}

/* --- channels -----------------------------------------------------------------------------------
 */

/* What the rank at `receiver` takes, of `mine` alone if that is not -1; boxes name the other side.
 */
static int add_taken(const Image *image, const End *src, const End *dst, int64_t receiver,
                     int64_t mine, RtChannel *c) {
  End to = *dst;
  size_t before = c->nboxes;
  to.position = receiver;
  find_block(&to, receiver);
  if (add_pull(image, src, &to, mine, &c->boxes, &c->nboxes)) return -1;
  for (size_t i = before; i < c->nboxes && mine >= 0; i++)
    c->boxes[i].peer = image->rank[dst->mesh->ranks + (uint64_t)receiver];
  return 0;
}

/* Boxes peer by peer, in the order in which the pair has them. */
static int sort_boxes(RtChannel *c) {
  RtBox *sorted = malloc((c->nboxes + 1) * sizeof *sorted);
  c->peers = malloc((c->nboxes + 1) * sizeof *c->peers);
  size_t filled = 0;
  for (size_t i = 0; sorted && c->peers && i < c->nboxes; i++) {
    int32_t peer = c->boxes[i].peer, k = 0;
    while (k < c->npeers && c->peers[k] != peer) k++;
    if (k < c->npeers) continue;
    c->peers[c->npeers++] = peer;
    for (size_t j = i; j < c->nboxes; j++)
      if (c->boxes[j].peer == peer) sorted[filled++] = c->boxes[j];
  }
  if (!sorted || !c->peers) {
    free(sorted);
    return -1;
  }
  free(c->boxes);
  c->boxes = sorted;
  return 0;
}

int dtm_rt_channel_find(const Image *image, const AbiAction *action, int32_t rank, RtChannel *c) {
  const AbiChannel *a = &image->channel[action->code];
  const AbiBuffer from = {.type = a->from}, to = {.type = a->to};
  const End src = end_of(image, &from, rank), dst = end_of(image, &to, rank);
  *c = (RtChannel){.id = action->code,
                   .slots = a->slots,
                   .counts = image->header->counts_offset + action->code * ABI_CHANNEL_BYTES,
                   .outbox = a->offset,
                   .stride = a->stride,
                   .dtype = (int)src.type->dtype};
  int status = 0;
  if (action->kind == ABI_TAKE) status = add_taken(image, &src, &dst, dst.position, -1, c);
  for (int64_t q = 0; action->kind == ABI_POST && q < dst.mesh->nranks && !status; q++)
    status = add_taken(image, &src, &dst, q, src.position, c);
  return status ? status : sort_boxes(c);
}

void dtm_rt_channel_free(RtChannel *c) {
  free(c->boxes);
  free(c->peers);
  free(c->state);
}

/* One box: this rank's block of the smaller end. */
static int find_one(const End *src, const End *dst, const End *part, Moves *m) {
  m->boxes = malloc(sizeof *m->boxes);
  if (!m->boxes) return -1;
  if (count_of(part) == 0) return 0;
  m->boxes[0] = box_between(src, dst, part->offset, part->extent, -1);
  m->nboxes = 1;
  return 0;
}

/* Buffers of a bucket that follow each other up to alignment are reduced as one; the gap holds
 * nothing of interest. */
static int find_ranges(const Image *image, const AbiAction *action, int32_t rank, Moves *m) {
  m->ranges = malloc(sizeof *m->ranges * (action->nbuffers / 2 + 1));
  if (!m->ranges) return -1;
  for (uint32_t i = 0; i + 1 < action->nbuffers; i += 2) {
    const AbiBuffer *src = &image->buffer[action->buffers + i], *dst = src + 1;
    const End end = end_of(image, src, rank);
    size_t element = abi_dtype_bytes(end.type->dtype), count = count_of(&end);
    RtRange *last = m->nranges ? &m->ranges[m->nranges - 1] : NULL;
    if (count == 0) continue;
    if (last && src->offset > last->src && src->offset - last->src == dst->offset - last->dst &&
        src->offset - last->src - last->count * element < ABI_ALIGN)
      last->count = (src->offset - last->src) / element + count;
    else
      m->ranges[m->nranges++] = (RtRange){src->offset, dst->offset, count};
  }
  return 0;
}

/* Replicate or Shard to Partial. */
static int find_fill(const AbiAction *action, const End *src, const End *dst, Moves *m) {
  m->dst_bytes = count_of(dst) * abi_dtype_bytes(dst->type->dtype);
  m->neutral = action->code == ABI_PRODUCT;
  m->identity = action->code != ABI_SUM && action->code != ABI_PRODUCT && action->code != ABI_XOR;
  m->keeps = 1;
  for (uint32_t a = 0; a < dst->mesh->naxes; a++)
    if (action->axes >> a & 1 && src->type->at[a].kind != ABI_SHARD && dst->coord[a] != 0)
      m->keeps = m->identity;
  return find_one(src, dst, src, m);
}

/* --- rows ---------------------------------------------------------------------------------------
 */

/* A box holds whole rows of some groups: one box for each of these at most. */
static int find_rows(const End *dst, Moves *m) {
  size_t room = 1;
  for (size_t i = 0; i < m->nboxes; i++)
    room += (size_t)(m->boxes[i].extent[0] * m->boxes[i].extent[1]);
  m->groups = dst->extent[0] * dst->extent[1];
  m->rows = dst->extent[2];
  m->width = 1;
  for (uint32_t d = 3; d < dst->type->rank; d++) m->width *= dst->extent[d];
  m->trimmed = malloc(room * sizeof *m->trimmed);
  return m->trimmed ? 0 : -1;
}

int dtm_rt_moves_find(const Image *image, const AbiAction *action, int32_t rank, Moves *m) {
  const End src = end_of(image, &image->buffer[action->buffers], rank);
  const End dst = end_of(image, &image->buffer[action->buffers + 1], rank);
  *m = (Moves){.dtype = src.type->dtype};
  switch ((AbiActionKind)action->kind) {
  case ABI_START:
  case ABI_PULL:
  case ABI_REDUCE_SCATTER:
    return find_members(image, action, rank, m);
  case ABI_PULL_ROWS:
    return find_members(image, action, rank, m) || find_rows(&dst, m) ? -1 : 0;
  case ABI_ALL_REDUCE:
    return find_ranges(image, action, rank, m) || find_group(image, &src, action->axes, m) ? -1 : 0;
  case ABI_SLICE:
    return find_one(&src, &dst, &dst, m);
  case ABI_FILL:
    return find_fill(action, &src, &dst, m);
  case ABI_COPY:
    return find_one(&src, &dst, &src, m);
  case ABI_ACTION_NONE:
  case ABI_KERNEL:
  case ABI_MATMUL:
  case ABI_LIBRARY:
  case ABI_INPUT:
  case ABI_OUTPUT:
  case ABI_POST:
  case ABI_TAKE:
  case ABI_ACTION_COUNT:
    break;
  }
  return 0;
}

void dtm_rt_moves_free(Moves *m) {
  free(m->boxes);
  free(m->ranges);
  free(m->trimmed);
  free(m->group);
}

/* --- pair by pair -------------------------------------------------------------------------------
 */

int dtm_rt_moves_pulled(const Image *image, const AbiBuffer *pair, int32_t receiver, int32_t sender,
                        RtBox **boxes, size_t *nboxes) {
  const End src = end_of(image, &pair[0], receiver), dst = end_of(image, &pair[1], receiver);
  int64_t from = sender < 0 ? -1 : abi_mesh_position(image, src.mesh, sender);
  if (sender >= 0 && from < 0) return 0;
  return add_pull(image, &src, &dst, from, boxes, nboxes);
}

int dtm_rt_moves_kept(const Image *image, const AbiBuffer *pair, int32_t rank, RtBox *box) {
  const End src = end_of(image, &pair[0], rank), dst = end_of(image, &pair[1], rank);
  if (count_of(&dst) == 0) return 0;
  *box = box_between(&src, &dst, dst.offset, dst.extent, -1);
  return 1;
}

int64_t dtm_rt_moves_elements(const Image *image, const AbiBuffer *buffer, int32_t rank) {
  const End e = end_of(image, buffer, rank);
  return e.position < 0 ? 0 : (int64_t)count_of(&e);
}
