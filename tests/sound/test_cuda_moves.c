/* Plans of moves on GPUs, proved by brute force: for all pairs of layouts on small meshes every
 * rank's list of steps is carried out (moves_machine.h), and the blocks that come of it are those
 * that the types say. */
#include <stdio.h>
#include <string.h>

#include "device/cpu/moves_local.h"
#include "device/moves.h"
#include "sound/moves_machine.h"
#include "support/suite.h"

enum { MAX_LAYOUTS = 400 };

typedef struct Layouts {
  AbiPlace at[MAX_LAYOUTS][ABI_MAX_AXES];
  uint32_t n;
} Layouts;

static void all_layouts(const AbiMesh *m, uint32_t rank, uint8_t op, uint32_t axis, AbiPlace *at,
                        Layouts *out) {
  if (axis == m->naxes) {
    EXPECT(out->n < MAX_LAYOUTS);
    memcpy(out->at[out->n++], at, sizeof *at * ABI_MAX_AXES);
    return;
  }
  at[axis] = (AbiPlace){0};
  all_layouts(m, rank, op, axis + 1, at, out);
  if (op) {
    at[axis] = (AbiPlace){.kind = ABI_PARTIAL, .op = op};
    all_layouts(m, rank, op, axis + 1, at, out);
  }
  AbiPlace before[ABI_MAX_AXES];
  memcpy(before, at, sizeof before);
  for (uint8_t d = 0; d < rank; d++) {
    uint8_t n = 0;
    for (uint32_t a = 0; a < axis; a++) n += before[a].kind == ABI_SHARD && before[a].dim == d;
    for (uint8_t order = 0; order <= n; order++) {
      memcpy(at, before, sizeof before);
      for (uint32_t a = 0; a < axis; a++)
        if (at[a].kind == ABI_SHARD && at[a].dim == d && at[a].order >= order) at[a].order++;
      at[axis] = (AbiPlace){.kind = ABI_SHARD, .dim = d, .order = order};
      all_layouts(m, rank, op, axis + 1, at, out);
    }
  }
  memcpy(at, before, sizeof before);
  at[axis] = (AbiPlace){0};
}

static void set_type(Case *c, uint32_t at, uint32_t dtype, uint32_t mesh, uint32_t rank,
                     const int64_t *shape, const AbiPlace *places) {
  AbiType *t = &c->type[at];
  *t = (AbiType){.dtype = dtype, .rank = rank, .mesh = mesh};
  memcpy(t->shape, shape, sizeof *shape * rank);
  memcpy(t->at, places, sizeof *places * ABI_MAX_AXES);
}

static bool same_partial(const AbiPlace *a, const AbiPlace *b) {
  for (uint32_t x = 0; x < ABI_MAX_AXES; x++)
    if ((a[x].kind == ABI_PARTIAL || b[x].kind == ABI_PARTIAL) && memcmp(&a[x], &b[x], sizeof *a))
      return false;
  return true;
}

/* All axes, or the fewest that are enough where the target keeps its places on the others. */
static uint32_t axes_between(const AbiMesh *m, const AbiPlace *from, const AbiPlace *to) {
  uint32_t differ = 0, gather = 1;
  for (uint32_t a = 0; a < m->naxes; a++) {
    if (!memcmp(&from[a], &to[a], sizeof *from)) continue;
    differ |= 1u << a;
    gather = gather && from[a].kind == ABI_SHARD && to[a].kind == ABI_REPLICATE;
    for (uint32_t k = 0; k < m->naxes; k++)
      if (from[k].kind == ABI_SHARD && to[k].kind == ABI_SHARD && from[k].dim == from[a].dim &&
          from[k].order > from[a].order)
        gather = 0;
  }
  return gather ? differ : (1u << m->naxes) - 1;
}

static const struct {
  uint32_t naxes;
  int64_t size[2];
} meshes[] = {{1, {2}}, {1, {3}}, {1, {4}}, {2, {2, 2}}};
static const struct {
  uint32_t rank;
  int64_t shape[3];
} shapes[] = {{1, {8}}, {1, {5}}, {2, {4, 6}}, {2, {5, 3}}, {2, {1, 7}}, {3, {4, 3, 2}}};
#define COUNT(a) (sizeof(a) / sizeof *(a))

static void within_mesh(uint32_t kind, uint32_t dtype, uint8_t op, uint32_t *forms) {
  static Layouts layouts;
  static Case c;
  const int64_t world = RANKS;
  for (size_t k = 0; k < COUNT(meshes); k++)
    for (size_t s = 0; s < COUNT(shapes); s++) {
      memset(&c, 0, sizeof c);
      machine_add_mesh(&c, 1, meshes[k].naxes, meshes[k].size, 0);
      machine_add_mesh(&c, 3, 1, &world, 0);
      machine_finish_case(&c);
      AbiPlace none[ABI_MAX_AXES] = {{0}};
      layouts.n = 0;
      all_layouts(&c.mesh[1], shapes[s].rank, op, 0, none, &layouts);
      for (uint32_t i = 0; i < layouts.n; i++)
        for (uint32_t j = 0; j < layouts.n; j++) {
          const AbiPlace *from = layouts.at[i], *to = layouts.at[j];
          uint32_t axes = 0;
          if (kind == ABI_PULL) {
            if (i == j || !same_partial(from, to)) continue;
            axes = axes_between(&c.mesh[1], from, to);
          } else { /* each axis as before, or Partial no more, innermost of its dim where cut */
            bool fits = true;
            for (uint32_t a = 0; a < c.mesh[1].naxes; a++) {
              if (!memcmp(&from[a], &to[a], sizeof *from)) continue;
              axes |= 1u << a;
              fits = fits && from[a].kind == ABI_PARTIAL &&
                     to[a].kind == (kind == ABI_ALL_REDUCE ? ABI_REPLICATE : ABI_SHARD);
              for (uint32_t x = 0; x < c.mesh[1].naxes; x++)
                if (to[a].kind == ABI_SHARD && from[x].kind == ABI_SHARD &&
                    from[x].dim == to[a].dim && to[x].order > to[a].order)
                  fits = false;
            }
            if (!fits || !axes) continue;
          }
          /* A bucket of the value and of one with another shape. */
          const int64_t other[3] = {6, 2, 4};
          for (uint32_t p = 0; p < PAIRS; p++) {
            const int64_t *shape = p ? other : shapes[s].shape;
            set_type(&c, 1 + 2 * p, dtype, 1, shapes[s].rank, shape, from);
            set_type(&c, 2 + 2 * p, dtype, 1, shapes[s].rank, shape, to);
          }
          for (uint32_t npairs = 1; npairs <= PAIRS; npairs++) {
            int index[RANKS] = {-1, -1, -1, -1};
            for (int64_t r = 0; r < c.mesh[1].nranks; r++) index[r] = 0;
            machine_set_buffers(&c, npairs, 512);
            c.action[0] = (AbiAction){.kind = kind,
                                      .code = kind == ABI_PULL ? 0 : op,
                                      .mesh = 1,
                                      .axes = axes,
                                      .nbuffers = 2 * npairs};
            machine_set_sources(&c, npairs);
            machine_run(&c, index, forms);
            char what[96];
            snprintf(what, sizeof what, "action %u, mesh %zu, shape %zu, layouts %u -> %u", kind, k,
                     s, i, j);
            machine_check_targets(&c, npairs, kind == ABI_PULL ? 0 : op, what);
          }
        }
    }
}

START_TEST(pulls) {
  uint32_t forms = 0;
  within_mesh(ABI_PULL, ABI_F32, ABI_SUM, &forms);
  EXPECT(forms == (1u << CUDA_CALL_ALL_GATHER | 1u << CUDA_CALL_SEND | 1u << CUDA_CALL_RECV));
  within_mesh(ABI_PULL, ABI_BOOL, ABI_OR, &forms);
}
END_TEST

START_TEST(reductions) {
  static const struct {
    uint8_t dtype, op, gathers;
  } all[] = {{ABI_F32, ABI_SUM, 0},  {ABI_BF16, ABI_SUM, 0}, {ABI_F64, ABI_PRODUCT, 0},
             {ABI_BF16, ABI_AVG, 1}, {ABI_F32, ABI_MAX, 1},  {ABI_F16, ABI_MIN, 1},
             {ABI_I64, ABI_MAX, 0},  {ABI_I16, ABI_SUM, 1},  {ABI_I32, ABI_XOR, 1},
             {ABI_BOOL, ABI_OR, 0},  {ABI_BOOL, ABI_AND, 0}, {ABI_BOOL, ABI_SUM, 0},
             {ABI_BOOL, ABI_XOR, 1}, {ABI_U8, ABI_MIN, 0},   {ABI_I8, ABI_SUM, 0}};
  for (size_t i = 0; i < COUNT(all); i++) {
    uint32_t forms = 0, scatter = 0;
    within_mesh(ABI_ALL_REDUCE, all[i].dtype, all[i].op, &forms);
    within_mesh(ABI_REDUCE_SCATTER, all[i].dtype, all[i].op, &scatter);
    EXPECT(forms == 1u << (all[i].gathers ? CUDA_CALL_ALL_GATHER : CUDA_CALL_ALL_REDUCE));
    EXPECT(all[i].gathers ? scatter == (1u << CUDA_CALL_SEND | 1u << CUDA_CALL_RECV)
                          : scatter == 1u << CUDA_CALL_REDUCE_SCATTER);
  }
}
END_TEST

/* Uneven and large: no padding, no copy through scratch memory of what is dense. */
START_TEST(large_and_uneven) {
  static const struct {
    uint32_t kind;
    int64_t shape[2];
    uint8_t dim, op;
    uint32_t forms;
  } all[] = {
      {ABI_PULL, {5, 32768}, 0, 0, 1u << CUDA_CALL_SEND | 1u << CUDA_CALL_RECV},
      {ABI_PULL, {8, 32768}, 0, 0, 1u << CUDA_CALL_ALL_GATHER},
      {ABI_PULL, {7, 32768}, 0, 0, 1u << CUDA_CALL_ALL_GATHER},
      {ABI_PULL, {32768, 5}, 1, 0, 1u << CUDA_CALL_SEND | 1u << CUDA_CALL_RECV},
      {ABI_REDUCE_SCATTER, {5, 32768}, 0, ABI_SUM, 1u << CUDA_CALL_REDUCE},
      {ABI_REDUCE_SCATTER, {32768, 5}, 1, ABI_SUM, 1u << CUDA_CALL_REDUCE},
      {ABI_REDUCE_SCATTER, {8, 32768}, 0, ABI_SUM, 1u << CUDA_CALL_REDUCE_SCATTER},
      {ABI_REDUCE_SCATTER, {7, 32768}, 0, ABI_SUM, 1u << CUDA_CALL_REDUCE_SCATTER},
      {ABI_REDUCE_SCATTER, {5, 32768}, 0, ABI_MAX, 1u << CUDA_CALL_SEND | 1u << CUDA_CALL_RECV},
      {ABI_ALL_REDUCE, {5, 32768}, 0, ABI_MAX, 1u << CUDA_CALL_ALL_GATHER}};
  static Case c;
  const int64_t world = RANKS;
  for (size_t i = 0; i < COUNT(all); i++) {
    int index[RANKS] = {0};
    uint32_t forms = 0;
    AbiPlace from[ABI_MAX_AXES] = {{0}}, to[ABI_MAX_AXES] = {{0}};
    memset(&c, 0, sizeof c);
    machine_add_mesh(&c, 1, 1, &world, 0);
    machine_add_mesh(&c, 3, 1, &world, 0);
    machine_finish_case(&c);
    AbiPlace cut = {.kind = ABI_SHARD, .dim = all[i].dim};
    from[0] = all[i].op ? (AbiPlace){.kind = ABI_PARTIAL, .op = all[i].op} : cut;
    if (all[i].kind == ABI_REDUCE_SCATTER) to[0] = cut;
    set_type(&c, 1, ABI_F32, 1, 2, all[i].shape, from);
    set_type(&c, 2, ABI_F32, 1, 2, all[i].shape, to);
    machine_set_buffers(&c, 1, 5 << 18);
    c.action[0] =
        (AbiAction){.kind = all[i].kind, .code = all[i].op, .mesh = 1, .axes = 1, .nbuffers = 2};
    machine_set_sources(&c, 1);
    machine_run(&c, index, &forms);
    EXPECT_MSG(forms == all[i].forms, "case %zu takes the forms %x", i, forms);
    machine_check_targets(&c, 1, all[i].op, "large");
  }
}
END_TEST

/* Between meshes, as one transfer and over a channel: from every layout on one to every layout on
 * the other, disjoint, overlapping and turned. */
static void between_meshes(bool channel) {
  static Layouts sources, targets;
  static Case c;
  static const struct {
    uint32_t naxes[2];
    int64_t size[2][2];
    int32_t first[2];
  } ends[] = {{{1, 1}, {{2}, {2}}, {0, 2}},
              {{1, 1}, {{1}, {3}}, {0, 1}},
              {{1, 1}, {{3}, {1}}, {1, 0}},
              {{1, 1}, {{3}, {3}}, {0, 1}},
              {{2, 1}, {{2, 2}, {2}}, {0, 1}}};
  const int64_t world = RANKS;
  for (size_t k = 0; k < COUNT(ends); k++)
    for (size_t s = 0; s < COUNT(shapes); s++) {
      if (channel && ends[k].first[1] < ends[k].first[0] + ends[k].size[0][0] &&
          ends[k].first[0] < ends[k].first[1] + ends[k].size[1][0])
        continue; /* stages are disjoint */
      memset(&c, 0, sizeof c);
      for (uint32_t e = 0; e < 2; e++)
        machine_add_mesh(&c, 1 + e, ends[k].naxes[e], ends[k].size[e], ends[k].first[e]);
      machine_add_mesh(&c, 3, 1, &world, 0);
      machine_finish_case(&c);
      AbiPlace none[ABI_MAX_AXES] = {{0}};
      sources.n = targets.n = 0;
      all_layouts(&c.mesh[1], shapes[s].rank, 0, 0, none, &sources);
      all_layouts(&c.mesh[2], shapes[s].rank, 0, 0, none, &targets);
      for (uint32_t i = 0; i < sources.n; i++)
        for (uint32_t j = 0; j < targets.n; j++) {
          int index[RANKS];
          uint32_t forms = 0;
          set_type(&c, 1, ABI_BF16, 1, shapes[s].rank, shapes[s].shape, sources.at[i]);
          set_type(&c, 2, ABI_BF16, 2, shapes[s].rank, shapes[s].shape, targets.at[j]);
          machine_set_buffers(&c, 1, 512);
          for (int32_t r = 0; r < RANKS; r++) {
            bool posts = abi_mesh_position(&c.image, &c.mesh[1], r) >= 0,
                 takes = abi_mesh_position(&c.image, &c.mesh[2], r) >= 0;
            index[r] = !posts && !takes ? -1 : channel && !posts ? 1 : 0;
          }
          c.action[0] =
              (AbiAction){.kind = channel ? ABI_POST : ABI_PULL, .mesh = 2, .nbuffers = 2};
          c.action[1] = (AbiAction){.kind = ABI_TAKE, .mesh = 2, .nbuffers = 2};
          c.image.action_count = 2;
          c.channel = (AbiChannel){
              .from = 1, .to = 2, .offset = c.buffer[1].offset, .stride = 512, .slots = 2};
          machine_set_sources(&c, 1);
          machine_run(&c, index, &forms);
          char what[96];
          snprintf(what, sizeof what, "ends %zu, shape %zu, layouts %u -> %u", k, s, i, j);
          machine_check_targets(&c, 1, 0, what);
        }
    }
}

START_TEST(transfers) {
  between_meshes(false);
}
END_TEST

START_TEST(channels) {
  between_meshes(true);
}
END_TEST

/* SLICE, FILL and COPY against what the processor does. */
START_TEST(within_a_rank) {
  static Case c;
  static Layouts layouts;
  static unsigned char before[4096], want[4096];
  const int64_t world = RANKS;
  static const uint8_t ops[] = {ABI_SUM, ABI_PRODUCT, ABI_MAX, ABI_XOR};
  for (size_t k = 0; k < COUNT(meshes); k++)
    for (size_t s = 0; s < COUNT(shapes); s++)
      for (size_t o = 0; o < COUNT(ops); o++) {
        uint32_t dtype = ops[o] == ABI_XOR ? ABI_I64 : o % 2 ? ABI_F64 : ABI_BF16;
        memset(&c, 0, sizeof c);
        machine_add_mesh(&c, 1, meshes[k].naxes, meshes[k].size, 0);
        machine_add_mesh(&c, 3, 1, &world, 0);
        machine_finish_case(&c);
        AbiPlace none[ABI_MAX_AXES] = {{0}};
        layouts.n = 0;
        all_layouts(&c.mesh[1], shapes[s].rank, ops[o], 0, none, &layouts);
        for (uint32_t i = 0; i < layouts.n; i++)
          for (uint32_t j = 0; j < layouts.n; j++) {
            uint32_t axes = 0;
            bool slices = true, fills = true;
            for (uint32_t a = 0; a < c.mesh[1].naxes; a++) {
              AbiPlace f = layouts.at[i][a], t = layouts.at[j][a];
              if (!memcmp(&f, &t, sizeof f)) continue;
              axes |= 1u << a;
              slices = slices && f.kind == ABI_REPLICATE && t.kind == ABI_SHARD;
              fills = fills && f.kind != ABI_PARTIAL && t.kind == ABI_PARTIAL;
              for (uint32_t x = 0; x < c.mesh[1].naxes; x++)
                if (t.kind == ABI_SHARD && layouts.at[j][x].kind == ABI_SHARD &&
                    layouts.at[j][x].dim == t.dim && layouts.at[j][x].order > t.order)
                  slices = false;
            }
            if (!slices && !fills) continue;
            set_type(&c, 1, dtype, 1, shapes[s].rank, shapes[s].shape, layouts.at[i]);
            set_type(&c, 2, dtype, 1, shapes[s].rank, shapes[s].shape, layouts.at[j]);
            machine_set_buffers(&c, 1, 512);
            c.action[0] = (AbiAction){.kind = !axes    ? ABI_COPY
                                              : slices ? ABI_SLICE
                                                       : ABI_FILL,
                                      .code = ops[o],
                                      .mesh = 1,
                                      .axes = axes,
                                      .nbuffers = 2};
            for (int32_t r = 0; r < c.mesh[1].nranks; r++) {
              int index[RANKS] = {-1, -1, -1, -1};
              uint32_t forms = 0;
              Moves m;
              index[r] = 0;
              machine_set_sources(&c, 1);
              memcpy(before, machine_arena(r), machine_arena_bytes());
              machine_run(&c, index, &forms);
              memcpy(want, before, machine_arena_bytes());
              ck_assert_int_eq(dtm_rt_moves_find(&c.image, &c.action[0], r, &m), 0);
              dtm_rt_moves_local(&m, &c.action[0], want + c.buffer[1].offset,
                                 want + c.buffer[0].offset, 1);
              dtm_rt_moves_free(&m);
              EXPECT(!forms && !memcmp(want, machine_arena(r), machine_arena_bytes()));
            }
          }
      }
}
END_TEST
int main(void) {
  Suite *suite = suite_create("cuda_moves");
  TCase *t = tcase_create("plans");
  tcase_add_test(t, pulls);
  tcase_add_test(t, reductions);
  tcase_add_test(t, large_and_uneven);
  tcase_add_test(t, transfers);
  tcase_add_test(t, channels);
  tcase_add_test(t, within_a_rank);
  tcase_set_timeout(t, 120);
  suite_add_tcase(suite, t);
  return suite_run(suite);
}
