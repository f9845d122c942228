/* Exact traffic of one step: see measure.h.
 *
 * The worst device is found without looking at pairs of devices. Of an exchange, a device receives
 * |need| - |own and need|. A piece with r replicas sends, in all, its elements times the number of
 * devices that need each, less what its owners need of it themselves, and its replicas share that
 * evenly. Both are sums over the devices of the axes that either layout shards, and the axes that
 * begin both lists of a dim drop out: under their coordinates the rest is the same problem on a
 * part of the dim, and chunking makes few distinct part sizes.
 */
#include "place/measure.h"

#include <string.h>

enum { MAX_EXTENTS = 32 /* distinct part sizes of one dim */, STACK_SPANS = 2048 };

typedef struct Span1 {
  int64_t begin, length;
} Span1;

/* One dim that an exchange changes, without the axes that begin both lists. */
typedef struct DimCut {
  uint8_t from[DTM_MAX_AXES], to[DTM_MAX_AXES];
  uint32_t nfrom, nto;
  int64_t extents[MAX_EXTENTS]; /* part sizes that occur under the common axes */
  uint32_t nextents;
  int64_t from_ways, to_ways;
  Span1 *from_spans, *to_spans; /* of each part, in order of its coordinates */
} DimCut;

/* An exchange reduced to what changes. */
typedef struct Problem {
  const Mesh *mesh;
  DimCut dims[DTM_MAX_DIMS];
  uint32_t ndims;
  int64_t factor; /* elements of the dims that do not change, largest shard */
  uint8_t axes[DTM_MAX_AXES];
  uint32_t naxes, nowner; /* the first `nowner` axes cut the source */
  int64_t replicas;       /* devices that hold one piece */
  int64_t echoes;         /* devices that need one block of the target */
} Problem;

/* Elements of the largest shard. */
static int64_t measure_local(const TensorType *t) {
  return type_local_bytes(t) / (int64_t)dtype_bytes(t->dtype);
}

int64_t measure_ways(const Mesh *mesh, uint32_t axes) {
  int64_t n = 1;
  for (uint32_t a = 0; a < mesh->naxes; a++)
    if (axes >> a & 1) n *= mesh->size[a];
  return n;
}

static uint32_t common_prefix(const uint8_t *a, uint32_t na, const uint8_t *b, uint32_t nb) {
  uint32_t n = 0;
  while (n < na && n < nb && a[n] == b[n]) n++;
  return n;
}

uint32_t measure_axes(const TensorType *from, const TensorType *to) {
  uint32_t axes = 0;
  for (uint32_t d = 0; d < from->rank; d++) {
    uint8_t f[DTM_MAX_AXES], t[DTM_MAX_AXES];
    uint32_t nf = layout_dim_axes(&from->layout, d, f), nt = layout_dim_axes(&to->layout, d, t);
    uint32_t n = common_prefix(f, nf, t, nt);
    for (uint32_t i = n; i < nf; i++) axes |= 1u << f[i];
    for (uint32_t i = n; i < nt; i++) axes |= 1u << t[i];
  }
  return axes;
}

static void add_extent(int64_t *extents, uint32_t *n, int64_t extent) {
  for (uint32_t i = 0; i < *n; i++)
    if (extents[i] == extent) return;
  if (*n < MAX_EXTENTS) extents[(*n)++] = extent;
}

/* Replaces the set of part sizes by those after one more cut into `ways`. */
static void cut_extents(int64_t *extents, uint32_t *n, int64_t ways) {
  int64_t old[MAX_EXTENTS];
  uint32_t nold = *n;
  memcpy(old, extents, nold * sizeof *old);
  *n = 0;
  for (uint32_t i = 0; i < nold; i++) {
    /* A chunk is whole, or the one that takes what is left, or empty. */
    int64_t whole = (old[i] + ways - 1) / ways, full = whole ? old[i] / whole : 0;
    add_extent(extents, n, whole);
    if (full < ways) add_extent(extents, n, old[i] - full * whole);
    if (full + 1 < ways) add_extent(extents, n, 0);
  }
}

static void problem_init(Problem *p, const TensorType *from, const TensorType *to) {
  memset(p, 0, sizeof *p);
  p->mesh = from->mesh;
  p->factor = p->replicas = p->echoes = 1;
  uint32_t owners = 0, receivers = 0;
  int64_t local[DTM_MAX_DIMS];
  type_local_max(from, local);
  for (uint32_t d = 0; d < from->rank; d++) {
    DimCut *c = &p->dims[p->ndims];
    uint32_t nf = layout_dim_axes(&from->layout, d, c->from);
    uint32_t nt = layout_dim_axes(&to->layout, d, c->to);
    uint32_t n = common_prefix(c->from, nf, c->to, nt);
    if (n == nf && n == nt) {
      p->factor *= local[d];
      continue;
    }
    c->extents[0] = from->shape[d];
    c->nextents = 1;
    for (uint32_t i = 0; i < n; i++)
      cut_extents(c->extents, &c->nextents, p->mesh->size[c->from[i]]);
    c->nfrom = nf - n;
    c->nto = nt - n;
    memmove(c->from, c->from + n, c->nfrom);
    memmove(c->to, c->to + n, c->nto);
    c->from_ways = c->to_ways = 1;
    for (uint32_t i = 0; i < c->nfrom; i++) {
      owners |= 1u << c->from[i];
      c->from_ways *= p->mesh->size[c->from[i]];
    }
    for (uint32_t i = 0; i < c->nto; i++) {
      receivers |= 1u << c->to[i];
      c->to_ways *= p->mesh->size[c->to[i]];
    }
    p->ndims++;
  }
  for (uint8_t a = 0; a < p->mesh->naxes; a++)
    if (owners >> a & 1) p->axes[p->naxes++] = a;
  p->nowner = p->naxes;
  for (uint8_t a = 0; a < p->mesh->naxes; a++)
    if ((receivers & ~owners) >> a & 1) p->axes[p->naxes++] = a;
  p->replicas = measure_ways(p->mesh, receivers & ~owners);
  p->echoes = measure_ways(p->mesh, owners & ~receivers);
}

static void list_spans(const Mesh *mesh, const uint8_t *axes, uint32_t n, Span1 whole,
                       Span1 **next) {
  if (n == 0) {
    *(*next)++ = whole;
    return;
  }
  for (int64_t r = 0; r < mesh->size[axes[0]]; r++) {
    Span1 part;
    chunk(whole.length, mesh->size[axes[0]], r, &part.begin, &part.length);
    part.begin += whole.begin;
    list_spans(mesh, axes + 1, n - 1, part, next);
  }
}

static int64_t overlap(Span1 a, Span1 b) {
  int64_t lo = a.begin > b.begin ? a.begin : b.begin;
  int64_t a_end = a.begin + a.length, b_end = b.begin + b.length,
          hi = a_end < b_end ? a_end : b_end;
  return hi > lo ? hi - lo : 0;
}

/* Two numbers of a device or a piece, each pair once where that is seen soon. */
typedef struct Pair {
  int64_t a, b;
} Pair;
typedef struct PairList {
  Pair *data;
  uint32_t len;
} PairList;

static void add_pair(PairList *l, int64_t a, int64_t b) {
  enum { LOOK_BACK = 64 };
  uint32_t first = l->len > LOOK_BACK ? l->len - LOOK_BACK : 0;
  for (uint32_t i = l->len; i-- > first;)
    if (l->data[i].a == a && l->data[i].b == b) return;
  l->data[l->len++] = (Pair){a, b};
}

/* Dims that share no axis change independently: what a device needs, has and sends is the product
 * of what it is in each such part of the problem. */
typedef struct Part {
  uint32_t dims, axes; /* bit sets */
  int64_t devices;
  PairList needs;  /* per device: elements needed, those of them that it has */
  PairList pieces; /* per piece: its elements, those its owners need themselves */
} Part;

static uint32_t axes_of(const DimCut *c) {
  uint32_t axes = 0;
  for (uint32_t i = 0; i < c->nfrom; i++) axes |= 1u << c->from[i];
  for (uint32_t i = 0; i < c->nto; i++) axes |= 1u << c->to[i];
  return axes;
}

static uint32_t find_parts(const Problem *p, Part *parts) {
  uint32_t n = 0;
  for (uint32_t d = 0; d < p->ndims; d++) {
    Part joined = {.dims = 1u << d, .axes = axes_of(&p->dims[d])};
    for (uint32_t i = 0; i < n;) {
      if (!(parts[i].axes & joined.axes)) {
        i++;
        continue;
      }
      joined.dims |= parts[i].dims;
      joined.axes |= parts[i].axes;
      parts[i] = parts[--n];
    }
    parts[n++] = joined;
  }
  for (uint32_t i = 0; i < n; i++) parts[i].devices = measure_ways(p->mesh, parts[i].axes);
  return n;
}

/* Walks all devices of a part: those that own one piece come one after the other. */
static void walk(const Problem *p, Part *part) {
  int64_t coord[DTM_MAX_AXES] = {0}, part_from[DTM_MAX_DIMS] = {0}, part_to[DTM_MAX_DIMS] = {0};
  /* How far one step along an axis moves in the parts of the dims it cuts. */
  int64_t step_from[DTM_MAX_AXES] = {0}, step_to[DTM_MAX_AXES] = {0}, replicas = 1;
  uint32_t dim_from[DTM_MAX_AXES] = {0}, dim_to[DTM_MAX_AXES] = {0}, naxes = 0;
  uint8_t axes[DTM_MAX_AXES], dims[DTM_MAX_DIMS];
  uint32_t ndims = 0;
  for (uint32_t d = 0; d < p->ndims; d++) {
    const DimCut *c = &p->dims[d];
    if (!(part->dims >> d & 1)) continue;
    dims[ndims++] = (uint8_t)d;
    int64_t step = 1;
    for (uint32_t i = c->nfrom; i-- > 0; step *= p->mesh->size[c->from[i]]) {
      step_from[c->from[i]] = step;
      dim_from[c->from[i]] = d;
    }
    step = 1;
    for (uint32_t i = c->nto; i-- > 0; step *= p->mesh->size[c->to[i]]) {
      step_to[c->to[i]] = step;
      dim_to[c->to[i]] = d;
    }
  }
  for (uint32_t i = 0; i < p->naxes; i++) {
    if (!(part->axes >> p->axes[i] & 1)) continue;
    axes[naxes++] = p->axes[i];
    if (i >= p->nowner) replicas *= p->mesh->size[p->axes[i]];
  }
  int64_t kept = 0; /* of one piece, what its owners need themselves */
  for (int64_t replica = 0;;) {
    int64_t need = 1, both = 1, piece = 1;
    for (uint32_t k = 0; k < ndims; k++) {
      const DimCut *c = &p->dims[dims[k]];
      Span1 own = c->from_spans[part_from[dims[k]]], want = c->to_spans[part_to[dims[k]]];
      need *= want.length;
      piece *= own.length;
      both *= overlap(own, want);
    }
    add_pair(&part->needs, need, both);
    kept += both;
    if (++replica == replicas) {
      add_pair(&part->pieces, piece, kept);
      replica = kept = 0;
    }
    uint32_t i = naxes;
    for (; i > 0; i--) {
      uint8_t a = axes[i - 1];
      bool wrap = ++coord[a] == p->mesh->size[a];
      if (wrap) coord[a] = 0;
      int64_t by = wrap ? 1 - p->mesh->size[a] : 1;
      part_from[dim_from[a]] += by * step_from[a];
      part_to[dim_to[a]] += by * step_to[a];
      if (!wrap) break;
    }
    if (i == 0) break;
  }
}

/* The worst device of all combinations of what there is in each part. */
static void combine(const Problem *p, const Part *parts, uint32_t n, Pair need, Pair piece,
                    Traffic *worst) {
  if (n == 0) {
    if (need.a - need.b > worst->received) worst->received = need.a - need.b;
    int64_t sent = (p->echoes * piece.a - piece.b) * p->factor;
    sent = (sent + p->replicas - 1) / p->replicas;
    if (sent > worst->sent) worst->sent = sent;
    return;
  }
  uint32_t most = parts->needs.len > parts->pieces.len ? parts->needs.len : parts->pieces.len;
  for (uint32_t i = 0; i < most; i++) {
    Pair x = parts->needs.data[i < parts->needs.len ? i : 0];
    Pair y = parts->pieces.data[i < parts->pieces.len ? i : 0];
    combine(p, parts + 1, n - 1, (Pair){need.a * x.a, need.b * x.b},
            (Pair){piece.a * y.a, piece.b * y.b}, worst);
  }
}

Traffic measure_exchange(const TensorType *from, const TensorType *to) {
  Problem p;
  problem_init(&p, from, to);
  if (p.ndims == 0) return (Traffic){0, 0};
  int64_t nspans = 0, combinations = 1;
  for (uint32_t d = 0; d < p.ndims; d++) {
    nspans += p.dims[d].from_ways + p.dims[d].to_ways;
    combinations *= p.dims[d].nextents;
  }
  Part parts[DTM_MAX_DIMS];
  uint32_t nparts = find_parts(&p, parts);
  int64_t npairs = 0;
  for (uint32_t i = 0; i < nparts; i++) npairs += 2 * parts[i].devices;
  Arena scratch;
  arena_init(&scratch);
  Span1 few[STACK_SPANS], *spans = few;
  Pair few_pairs[STACK_SPANS], *pairs = few_pairs;
  if (nspans > STACK_SPANS) spans = ARENA_ARRAY(&scratch, Span1, nspans);
  if (npairs > STACK_SPANS) pairs = ARENA_ARRAY(&scratch, Pair, npairs);
  Traffic worst = {0, 0};
  for (int64_t k = 0; k < combinations; k++) {
    int64_t rest = k;
    Span1 *next = spans;
    for (uint32_t d = 0; d < p.ndims; d++) {
      DimCut *c = &p.dims[d];
      Span1 whole = {0, c->extents[rest % c->nextents]};
      rest /= c->nextents;
      c->from_spans = next;
      list_spans(p.mesh, c->from, c->nfrom, whole, &next);
      c->to_spans = next;
      list_spans(p.mesh, c->to, c->nto, whole, &next);
    }
    Pair *free_pairs = pairs;
    for (uint32_t i = 0; i < nparts; i++) {
      parts[i].needs = (PairList){free_pairs, 0};
      parts[i].pieces = (PairList){free_pairs + parts[i].devices, 0};
      free_pairs += 2 * parts[i].devices;
      walk(&p, &parts[i]);
    }
    combine(&p, parts, nparts, (Pair){1, 1}, (Pair){1, 1}, &worst);
  }
  arena_free(&scratch);
  worst.received *= p.factor;
  return worst;
}

Traffic measure_reduce_scatter(const TensorType *from, const TensorType *to) {
  /* Seen as a gather run backwards: the block before is the union of the blocks after. */
  TensorType gathered = *from;
  for (uint32_t a = 0; a < DTM_MAX_AXES; a++)
    if (gathered.layout.at[a].kind == PLACE_PARTIAL) gathered.layout.at[a] = (Place){0};
  TensorType scattered = *to;
  for (uint32_t a = 0; a < DTM_MAX_AXES; a++)
    if (scattered.layout.at[a].kind == PLACE_PARTIAL) scattered.layout.at[a] = (Place){0};
  int64_t n = measure_exchange(&scattered, &gathered).received;
  return (Traffic){n, n};
}

Traffic measure_all_reduce(const TensorType *from, uint32_t axes) {
  int64_t ways = measure_ways(from->mesh, axes), n = measure_local(from);
  int64_t moved = 2 * (n - n / ways);
  return (Traffic){moved, moved};
}

bool place_send_is_local(const TensorType *from, const TensorType *to) {
  if (mesh_find(from->mesh, mesh_rank(to->mesh, 0)) < 0) return false;
  Arena scratch;
  arena_init(&scratch);
  int64_t last = mesh_last_rank(from->mesh);
  const int64_t *position = mesh_positions(&scratch, from->mesh, last + 1);
  bool local = true;
  for (int64_t p = 0; p < to->mesh->nranks && local; p++) {
    int64_t rank = mesh_rank(to->mesh, p), have[DTM_MAX_AXES], want[DTM_MAX_AXES];
    local = rank <= last && position[rank] >= 0;
    if (!local) break;
    mesh_coords(from->mesh, position[rank], have);
    mesh_coords(to->mesh, p, want);
    Block own = type_block(from, have), need = type_block(to, want);
    bool empty = false;
    for (uint32_t d = 0; d < to->rank; d++) empty |= need.extent[d] == 0;
    for (uint32_t d = 0; d < to->rank && !empty; d++)
      local &= own.offset[d] <= need.offset[d] &&
               need.offset[d] + need.extent[d] <= own.offset[d] + own.extent[d];
    for (uint32_t a = 0; a < DTM_MAX_AXES; a++)
      if (from->layout.at[a].kind == PLACE_PARTIAL) local &= have[a] == want[a];
  }
  arena_free(&scratch);
  return local;
}

Traffic measure_send(const TensorType *from, const TensorType *to) {
  const Mesh *a = from->mesh, *b = to->mesh;
  if (place_send_is_local(from, to)) return (Traffic){0, 0};
  int64_t replicas = a->nranks, echoes = b->nranks;
  for (uint32_t x = 0; x < a->naxes; x++)
    if (from->layout.at[x].kind != PLACE_REPLICATE) replicas /= a->size[x];
  for (uint32_t x = 0; x < b->naxes; x++)
    if (to->layout.at[x].kind != PLACE_REPLICATE) echoes /= b->size[x];
  return (Traffic){measure_local(to), (measure_local(from) * echoes + replicas - 1) / replicas};
}
