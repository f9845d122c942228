/* Ways to cut the world into groups: see cuts.h. */
#include "device/cuda/cuts.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/abi/blocks.h"

static CudaCut *new_cut(CudaCuts *all) {
  CudaCut *more = realloc(all->at, sizeof *more * (all->n + 1));
  if (!more) return NULL;
  all->at = more;
  CudaCut *c = &more[all->n++];
  *c = (CudaCut){.color = malloc(sizeof *c->color * (size_t)all->world),
                 .key = calloc((size_t)all->world, sizeof *c->key)};
  if (!c->color || !c->key) return NULL;
  for (int32_t r = 0; r < all->world; r++) c->color[r] = -1;
  return c;
}

static void drop_cut(CudaCuts *all) {
  CudaCut *c = &all->at[--all->n];
  free(c->color);
  free(c->key);
}

/* The groups of a mesh whose ranks differ in `axes` alone, ranks in the order of their positions.
 */
static int cut_mesh(const Image *image, uint32_t mesh, uint32_t axes, CudaCuts *all) {
  const AbiMesh *m = &image->mesh[mesh];
  CudaCut *c = new_cut(all);
  for (int64_t p = 0; c && p < m->nranks; p++) {
    int64_t coord[ABI_MAX_AXES], place = 0;
    abi_coords(m, p, coord);
    for (uint32_t a = 0; a < m->naxes; a++) {
      if (!(axes >> a & 1)) continue;
      place = place * m->size[a] + coord[a];
      coord[a] = 0;
    }
    int32_t rank = image->rank[m->ranks + (uint64_t)p];
    c->color[rank] = image->rank[m->ranks + (uint64_t)abi_position(m, coord)];
    c->key[rank] = (int32_t)place;
  }
  return c ? 0 : -1;
}

static int cut_channel(const Image *image, uint32_t channel, CudaCuts *all) {
  int32_t *ranks = malloc(sizeof *ranks * (size_t)all->world);
  CudaCut *c = ranks ? new_cut(all) : NULL;
  int32_t n = c ? dtm_cuda_channel_ranks(image, channel, ranks) : 0;
  for (int32_t i = 0; i < n; i++) {
    c->color[ranks[i]] = ranks[0];
    c->key[ranks[i]] = i;
  }
  if (c) c->channel = 1;
  free(ranks);
  return c ? 0 : -1;
}

static int same_cut(const CudaCuts *all, const CudaCut *a, const CudaCut *b) {
  size_t bytes = sizeof *a->color * (size_t)all->world;
  return !a->channel && !b->channel && !memcmp(a->color, b->color, bytes) &&
         !memcmp(a->key, b->key, bytes);
}

static int is_world(const CudaCuts *all, const CudaCut *c) {
  for (int32_t r = 0; r < all->world; r++)
    if (c->color[r] != 0 || c->key[r] != r) return 0;
  return !c->channel;
}

static int share_ranks(const CudaCuts *all, const CudaCut *a, const CudaCut *b) {
  for (int32_t r = 0; r < all->world; r++)
    if (a->color[r] >= 0 && b->color[r] >= 0) return 1;
  return 0;
}

/* The first round whose cuts have no rank of this one. */
static void choose_round(CudaCuts *all, uint32_t cut) {
  CudaCut *c = &all->at[cut];
  int taken = 1;
  for (c->round = 0; taken; c->round += (uint32_t)taken) {
    taken = 0;
    for (uint32_t i = 0; i < cut && !taken; i++)
      taken = all->at[i].round == c->round && share_ranks(all, c, &all->at[i]);
  }
  if (c->round >= all->nrounds) all->nrounds = c->round + 1;
}

/* Adds the last cut for a key, or finds an earlier one. *which: its number + 1; 0: the world. */
static void keep_cut(CudaCuts *all, uint32_t *which) {
  uint32_t last = all->n - 1;
  *which = 0;
  if (is_world(all, &all->at[last])) {
    drop_cut(all);
    return;
  }
  for (uint32_t i = 0; i < last; i++)
    if (same_cut(all, &all->at[i], &all->at[last])) {
      drop_cut(all);
      *which = i + 1;
      return;
    }
  choose_round(all, last);
  *which = all->n;
}

/* What an action asks for, unless it was asked for before. */
static int want(const Image *image, CudaCuts *all, CudaCutKey key) {
  for (uint32_t i = 0; i < all->nkeys; i++) {
    const CudaCutKey *k = &all->keys[i];
    if (k->kind == key.kind && k->mesh == key.mesh && k->axes == key.axes &&
        k->channel == key.channel)
      return 0;
  }
  CudaCutKey *more = realloc(all->keys, sizeof *more * (all->nkeys + 1));
  if (!more) return -1;
  all->keys = more;
  int status = key.kind == CUDA_COMM_GROUP ? cut_mesh(image, key.mesh, key.axes, all)
                                           : cut_channel(image, key.channel, all);
  if (status) return status;
  keep_cut(all, &key.cut);
  more[all->nkeys++] = key;
  return 0;
}

int dtm_cuda_cuts_find(const Image *image, int32_t world, CudaCuts *all) {
  int status = 0;
  *all = (CudaCuts){.world = world};
  for (uint64_t i = 0; i < image->action_count && !status; i++) {
    const AbiAction *a = &image->action[i];
    CudaCutKey key = {.kind = CUDA_COMM_CHANNEL, .channel = a->code};
    if (a->kind != ABI_POST) {
      if (!dtm_cuda_move_has_group(image, a)) continue;
      key = (CudaCutKey){.kind = CUDA_COMM_GROUP,
                         .mesh = image->type[image->buffer[a->buffers].type].mesh,
                         .axes = a->axes};
    }
    status = want(image, all, key);
  }
  return status;
}

void dtm_cuda_cuts_free(CudaCuts *all) {
  while (all->n) drop_cut(all);
  free(all->at);
  free(all->keys);
}

const CudaCut *dtm_cuda_cuts_of(const CudaCuts *all, uint32_t round, int32_t rank) {
  for (uint32_t i = 0; i < all->n; i++)
    if (all->at[i].round == round && all->at[i].color[rank] >= 0) return &all->at[i];
  return NULL;
}

int dtm_cuda_cuts_ctas(const CudaCuts *all) {
  enum { ALL_CTAS = 64, MOST = 8 };
  int most = 1;
  for (int32_t r = 0; r < all->world; r++) {
    int n = 0;
    for (uint32_t i = 0; i < all->n; i++) n += all->at[i].channel && all->at[i].color[r] >= 0;
    if (n > most) most = n;
  }
  int ctas = ALL_CTAS / most;
  return ctas > MOST ? MOST : ctas < 1 ? 1 : ctas;
}
