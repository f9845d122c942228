/* Communicators of a program for GPUs: one for each way in which its actions cut a mesh, made
 * together where they share no rank, and one per channel; their ranks are those of the moves. */
#include <string.h>

#include "device/cuda/cuts.h"
#include "device/moves.h"
#include "support/suite.h"

enum { MANY = 8, STAGES = 2 };

/* Two stages of 2 x 2 ranks and a mesh of all of them; an action for every set of axes; channels
 * between the stages in both directions. */
typedef struct Pipeline {
  AbiHeader header;
  AbiMesh mesh[1 + STAGES + 1];
  int32_t rank[2 * MANY];
  AbiType type[1 + STAGES + 1];
  AbiBuffer buffer[2 * 16];
  AbiAction action[16];
  AbiChannel channel[2];
  Image image;
} Pipeline;

static void pipeline_action(Pipeline *p, uint32_t kind, uint32_t type, uint32_t axes,
                            uint32_t code) {
  uint64_t n = p->image.action_count++;
  p->buffer[2 * n].type = p->buffer[2 * n + 1].type = type;
  p->action[n] = (AbiAction){.kind = kind,
                             .code = code,
                             .mesh = p->type[type].mesh,
                             .axes = axes,
                             .buffers = 2 * (uint32_t)n,
                             .nbuffers = 2};
}

static void make_pipeline(Pipeline *p) {
  memset(p, 0, sizeof *p);
  for (uint32_t s = 1; s <= STAGES; s++)
    p->mesh[s] = (AbiMesh){.naxes = 2, .size = {2, 2}, .nranks = 4, .ranks = 4 * (s - 1)};
  p->mesh[3] = (AbiMesh){.naxes = 1, .size = {MANY}, .nranks = MANY, .ranks = MANY};
  for (int32_t r = 0; r < 2 * MANY; r++) p->rank[r] = r % MANY;
  p->header.world = 3;
  p->image = (Image){.header = &p->header,
                     .mesh = p->mesh,
                     .mesh_count = 4,
                     .rank = p->rank,
                     .type = p->type,
                     .type_count = 4,
                     .buffer = p->buffer,
                     .action = p->action,
                     .channel = p->channel,
                     .channel_count = 2};
  for (uint32_t t = 1; t <= 3; t++) {
    p->type[t] = (AbiType){.dtype = ABI_F32, .rank = 1, .mesh = t, .shape = {4}};
    for (uint32_t axes = 1; axes < 1u << p->mesh[t].naxes; axes++)
      pipeline_action(p, ABI_ALL_REDUCE, t, axes, ABI_SUM);
  }
  pipeline_action(p, ABI_ALL_REDUCE, 1, 1, ABI_MAX);
  for (uint32_t c = 0; c < 2; c++) {
    p->channel[c] = (AbiChannel){.from = 1 + c, .to = 2 - c, .slots = 2};
    pipeline_action(p, ABI_POST, 1 + c, 0, c);
    pipeline_action(p, ABI_TAKE, 2 - c, 0, c);
  }
}

static const CudaCutKey *key_of(const CudaCuts *cuts, const AbiAction *a, uint32_t mesh) {
  bool channel = a->kind == ABI_POST || a->kind == ABI_TAKE;
  for (uint32_t i = 0; i < cuts->nkeys; i++) {
    const CudaCutKey *k = &cuts->keys[i];
    if (channel ? k->kind == CUDA_COMM_CHANNEL && k->channel == a->code
                : k->kind == CUDA_COMM_GROUP && k->mesh == mesh && k->axes == a->axes)
      return k;
  }
  return NULL;
}

START_TEST(communicators) {
  static Pipeline p;
  CudaCuts cuts;
  make_pipeline(&p);
  ck_assert_int_eq(dtm_cuda_cuts_find(&p.image, MANY, &cuts), 0);
  /* Three sets of axes of either stage, which are made together; the channels after them. */
  ck_assert_uint_eq(cuts.n, 2 * 3 + 2);
  ck_assert_uint_eq(cuts.nrounds, 3 + 2);
  for (uint32_t round = 0; round < cuts.nrounds; round++)
    for (int32_t r = 0; r < MANY; r++) {
      int n = 0;
      for (uint32_t i = 0; i < cuts.n; i++)
        n += cuts.at[i].round == round && cuts.at[i].color[r] >= 0;
      ck_assert_int_eq(n, 1);
    }
  for (uint64_t i = 0; i < p.image.action_count; i++) {
    const AbiAction *a = &p.action[i];
    const CudaCutKey *key = key_of(&cuts, a, p.type[p.buffer[a->buffers].type].mesh);
    ck_assert(key != NULL);
    if (a->kind == ABI_POST || a->kind == ABI_TAKE) {
      ck_assert(cuts.at[key->cut - 1].channel);
      continue;
    }
    for (int64_t q = 0; q < p.mesh[a->mesh].nranks; q++) {
      int32_t rank = p.rank[p.mesh[a->mesh].ranks + (uint64_t)q];
      Moves m;
      ck_assert_int_eq(dtm_rt_moves_find(&p.image, a, rank, &m), 0);
      if (!key->cut) ck_assert_int_eq(m.ngroup, MANY);
      const CudaCut *cut = key->cut ? &cuts.at[key->cut - 1] : NULL;
      for (int32_t k = 0; cut && k < m.ngroup; k++) {
        ck_assert_int_eq(cut->color[m.group[k]], cut->color[rank]);
        ck_assert_int_eq(cut->key[m.group[k]], k);
      }
      int32_t members = 0;
      for (int32_t r = 0; cut && r < MANY; r++) members += cut->color[r] == cut->color[rank];
      if (cut) ck_assert_int_eq(members, m.ngroup);
      dtm_rt_moves_free(&m);
    }
  }
  ck_assert_int_eq(dtm_cuda_cuts_ctas(&cuts), 8);
  dtm_cuda_cuts_free(&cuts);
}
END_TEST
int main(void) {
  Suite *suite = suite_create("cuda_cuts");
  TCase *t = tcase_create("cuts");
  tcase_add_test(t, communicators);
  suite_add_tcase(suite, t);
  return suite_run(suite);
}
