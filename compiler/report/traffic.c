/* The table of what moves between ranks: see traffic.h. */
#include "report/traffic.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "runtime/abi/transfers.h"
#include "types/dtype.h"

static const char *const phase_names[] = {
#define X(id, name) [ABI_##id] = name,
    ABI_PHASES(X)
#undef X
};

/* Calls that cost the same. */
typedef struct Line {
  const AbiAction *action; /* the first of them */
  uint32_t calls;
  int64_t bytes;
} Line;

typedef struct Traffic {
  Arena *arena;
#define X(name, T) const T *name;
  ABI_TABLES(X)
#undef X
  AbiTransfer *room;
  size_t capacity;
  IdMap bytes_of; /* what moves -> its place in `known` */
  VEC(int64_t) known;
  VEC(Line) lines;
  IdMap line_of;
} Traffic;

static int64_t elements(const AbiType *t, const AbiMesh *mesh, const int64_t *coord) {
  int64_t offset[ABI_MAX_DIMS], extent[ABI_MAX_DIMS], n = 1;
  abi_block(t, mesh, coord, offset, extent);
  for (uint32_t d = 0; d < t->rank; d++) n *= extent[d];
  return n;
}

static int32_t rank_at(const Traffic *r, const AbiMesh *mesh, int64_t position) {
  return r->rank[mesh->ranks + (uint64_t)position];
}

/* Elements that the rank at `receiver` gets of others. */
static int64_t pulled(Traffic *r, const AbiType *from, const AbiType *to, int64_t receiver) {
  const AbiMesh *source = &r->mesh[from->mesh], *target = &r->mesh[to->mesh];
  size_t n = abi_transfers_for(from, source, to, target, receiver, r->room, r->capacity);
  if (n > r->capacity) {
    r->capacity = 2 * n;
    r->room = ARENA_ARRAY(r->arena, AbiTransfer, r->capacity);
    abi_transfers_for(from, source, to, target, receiver, r->room, r->capacity);
  }
  int64_t sum = 0;
  for (size_t i = 0; i < n; i++) {
    if (rank_at(r, source, r->room[i].sender) == rank_at(r, target, receiver)) continue;
    int64_t box = 1;
    for (uint32_t d = 0; d < from->rank; d++) box *= r->room[i].extent[d];
    sum += box;
  }
  return sum;
}

static AbiType without_partial(AbiType t) {
  for (uint32_t a = 0; a < ABI_MAX_AXES; a++)
    if (t.at[a].kind == ABI_PARTIAL) t.at[a] = (AbiPlace){0};
  return t;
}

/* Of a bucket a rank receives what it receives of all members. A ring passes the addends of a
 * reduce-scatter on as it would the blocks of the gather the other way. */
static int64_t bytes_pulled(Traffic *r, const AbiAction *a, const uint32_t *types, uint32_t n) {
  const AbiType *first = &r->type[types[1]];
  int64_t most = 0;
  for (int64_t p = 0; p < r->mesh[first->mesh].nranks; p++) {
    int64_t sum = 0;
    for (uint32_t i = 0; i + 1 < n; i += 2) {
      const AbiType *from = &r->type[types[i]], *to = &r->type[types[i + 1]];
      const AbiType whole = without_partial(*from), parts = without_partial(*to);
      bool scatters = a->kind == ABI_REDUCE_SCATTER;
      sum += scatters ? pulled(r, &parts, &whole, p) : pulled(r, from, to, p);
    }
    if (sum > most) most = sum;
  }
  return most * (int64_t)dtype_bytes((DType)first->dtype);
}

static int64_t ranks_over(const AbiMesh *mesh, uint32_t axes) {
  int64_t n = 1;
  for (uint32_t a = 0; a < mesh->naxes; a++)
    if (axes >> a & 1) n *= mesh->size[a];
  return n;
}

/* A rank gets addends of all shares of its block but one, and then the sums of as many. */
static int64_t bytes_reduced(const Traffic *r, const AbiAction *a, const uint32_t *types,
                             uint32_t n) {
  const int64_t first[ABI_MAX_AXES] = {0};
  const AbiMesh *mesh = &r->mesh[a->mesh];
  int64_t ways = ranks_over(mesh, a->axes), sum = 0;
  for (uint32_t i = 0; i + 1 < n; i += 2) {
    int64_t block = elements(&r->type[types[i]], mesh, first);
    sum += 2 * (block - block / ways);
  }
  return sum * (int64_t)dtype_bytes((DType)r->type[types[0]].dtype);
}

static bool moves(const AbiAction *a) {
  return a->kind == ABI_PULL || a->kind == ABI_PULL_ROWS || a->kind == ABI_ALL_REDUCE ||
         a->kind == ABI_REDUCE_SCATTER || a->kind == ABI_TAKE;
}

/* Layers that are alike move alike: each kind of move is counted once. */
static int64_t bytes_of(Traffic *r, const AbiAction *a) {
  const AbiChannel *c = a->kind == ABI_TAKE ? &r->channel[a->code] : NULL;
  uint32_t n = c || a->kind == ABI_PULL_ROWS ? 2 : a->nbuffers, at;
  uint32_t *types = ARENA_ARRAY(r->arena, uint32_t, n + 1);
  for (uint32_t i = 0; i < n; i++)
    types[i] = c ? (i ? c->to : c->from) : r->buffer[a->buffers + i].type;
  const uint32_t how[] = {a->kind, a->axes, a->mesh};
  uint64_t key = hash_bytes(how, sizeof how, hash_bytes(types, n * sizeof *types, n));
  if (id_map_get(&r->bytes_of, key, &at)) return r->known.data[at];
  int64_t bytes =
      a->kind == ABI_ALL_REDUCE ? bytes_reduced(r, a, types, n) : bytes_pulled(r, a, types, n);
  id_map_put(r->arena, &r->bytes_of, key, r->known.len);
  VEC_PUSH(r->arena, &r->known, bytes);
  return bytes;
}

static void add_call(Traffic *r, const AbiAction *a) {
  int64_t bytes = moves(a) ? bytes_of(r, a) : 0;
  if (!bytes) return;
  const int64_t alike[] = {a->kind, a->name, a->source, a->phase, a->axes, a->mesh, bytes};
  uint64_t key = hash_bytes(alike, sizeof alike, 0);
  uint32_t line;
  if (!id_map_get(&r->line_of, key, &line)) {
    line = r->lines.len;
    id_map_put(r->arena, &r->line_of, key, line);
    VEC_PUSH(r->arena, &r->lines, ((Line){.action = a, .bytes = bytes}));
  }
  r->lines.data[line].calls++;
}

static int heavier(const void *x, const void *y) {
  const Line *a = x, *b = y;
  int64_t wa = a->bytes * a->calls, wb = b->bytes * b->calls;
  if (wa != wb) return wa > wb ? -1 : 1;
  return a->action < b->action ? -1 : a->action > b->action;
}

/* "all_reduce h over tp of stages[0]", "send_mesh to stages[1]". */
static void print_what(const Traffic *r, StrBuf *out, const AbiAction *a, uint32_t world) {
  const AbiMesh *mesh = &r->mesh[a->mesh];
  strbuf_puts(out, r->string + a->name);
  for (uint32_t x = 0, n = 0; x < mesh->naxes; x++)
    if (a->axes >> x & 1)
      strbuf_printf(out, "%s%s", n++ ? "," : " over ", r->string + mesh->axis[x]);
  if (a->axes) {
    if (a->mesh != world) strbuf_printf(out, " of %s", r->string + mesh->name);
    return;
  }
  uint32_t to = a->kind == ABI_TAKE ? r->channel[a->code].to : r->buffer[a->buffers + 1].type;
  strbuf_printf(out, " to %s", r->string + r->mesh[r->type[to].mesh].name);
}

static void print_line(StrBuf *out, uint32_t calls, int64_t each, int64_t all, const char *phase) {
  strbuf_printf(out, "  %6u  %10s %10s  %-9s  ", calls, each ? bytes_print(out->arena, each) : "",
                bytes_print(out->arena, all), phase);
}

/* Lines of a block in the order of their first calls. */
static Traffic open_block(Arena *arena, const void *image, uint32_t block) {
  const AbiHeader *h = image;
  Traffic r = {.arena = arena};
#define X(name, T) r.name = (const T *)(const void *)((const char *)image + h->name.offset);
  ABI_TABLES(X)
#undef X
  const AbiProgram *p = &r.program[block];
  for (uint32_t i = 0; i < p->nactions; i++) add_call(&r, &r.action[p->actions + i]);
  return r;
}

static uint32_t world_of(const void *image) {
  return ((const AbiHeader *)image)->world;
}

void traffic_print(StrBuf *out, const void *image, uint32_t block) {
  Traffic r = open_block(out->arena, image, block);
  if (!r.lines.len) return;
  qsort(r.lines.data, r.lines.len, sizeof *r.lines.data, heavier);
  strbuf_printf(out, "  %6s  %10s %10s  %-9s  %s\n", "calls", "received", "in all", "phase",
                "what goes from rank to rank");
  int64_t all = 0;
  uint32_t calls = 0;
  for (uint32_t i = 0; i < r.lines.len; i++) {
    const Line *l = &r.lines.data[i];
    print_line(out, l->calls, l->bytes, l->bytes * l->calls, phase_names[l->action->phase]);
    print_what(&r, out, l->action, world_of(image));
    strbuf_printf(out, "  %s\n", r.string + l->action->source);
    all += l->bytes * l->calls;
    calls += l->calls;
  }
  print_line(out, calls, 0, all, "");
  strbuf_puts(out, "in all\n");
}

void traffic_print_tabs(StrBuf *out, const void *image, uint32_t block, const char *name) {
  Traffic r = open_block(out->arena, image, block);
  for (uint32_t i = 0; i < r.lines.len; i++) {
    const Line *l = &r.lines.data[i];
    strbuf_printf(out, "%s\t%s\t%u\t%" PRId64 "\t", name, phase_names[l->action->phase], l->calls,
                  l->bytes);
    print_what(&r, out, l->action, world_of(image));
    strbuf_printf(out, "\t%s\n", r.string + l->action->source);
  }
}
