/* Kernels of a program, and updates of many parameters in few launches, on a driver that only notes
 * what is launched: whatever the actions read and write, each runs once, behind those it depends
 * on, and none of one launch depend on each other. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "comm/errors.h"
#include "device/cuda/bundle.h"
#include "device/cuda/kernels.h"
#include "support/suite.h"

enum {
  MOST = 40,
  SLOTS = 12, /* of memory, 256 bytes each */
  TYPED = 8,  /* the first so many are tensors, the others scratch */
  BUFFERS = 3,
  CODES = 3, /* the last has no entry for many */
  MANY = 100
};

/* --- a driver that notes -----------------------------------------------------------------------
 */

/* In which launch each action ran; 0: in none yet. Check runs a test in a process of its own. */
static struct { int launches, of_action[MOST]; } noted;

static void note(uint64_t action) {
  ck_assert_uint_lt(action, MOST);
  ck_assert_int_eq(noted.of_action[action], 0);
  noted.of_action[action] = noted.launches;
}

static CUresult fake_launch(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                            unsigned by, unsigned bz, unsigned shared, CUstream stream,
                            void **params, void **extra) {
  (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)stream, (void)extra;
  noted.launches++;
  if ((uintptr_t)function < MANY) {
    note(*(uint64_t *)params[BUFFERS]);
    return CUDA_SUCCESS;
  }
  const uint64_t *call = (const uint64_t *)(uintptr_t)(*(CUdeviceptr *)params[0]);
  uint64_t blocks = 0;
  for (int32_t i = 0; i < *(int32_t *)params[1]; i++, call += BUFFERS + 1 + ABI_CUDA_CALL_WORDS) {
    note(call[BUFFERS]);
    ck_assert_uint_eq(call[BUFFERS + 3], blocks); /* behind tasks and group: first, blocks */
    blocks += call[BUFFERS + 4];
  }
  ck_assert_uint_eq(blocks, gx);
  return CUDA_SUCCESS;
}

static CUresult fake_alloc(CUdeviceptr *address, size_t bytes) {
  *address = (CUdeviceptr)(uintptr_t)malloc(bytes);
  return CUDA_SUCCESS;
}

static CUresult fake_free(CUdeviceptr address) {
  free((void *)(uintptr_t)address);
  return CUDA_SUCCESS;
}

static CUresult fake_to_device(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
  (void)stream;
  memcpy((void *)(uintptr_t)to, from, bytes);
  return CUDA_SUCCESS;
}

static CUresult fake_sync(CUstream stream) {
  (void)stream;
  return CUDA_SUCCESS;
}

static int fake_fail(RtComm *c, int code, const char *message) {
  (void)c, (void)message;
  return code;
}

/* "k1" is function 2, "k1_many" 102. */
static CUresult fake_function(CUfunction *function, CUmodule module, const char *name) {
  (void)module;
  uintptr_t number = (uintptr_t)(name[1] - '0') + 1 + (strstr(name, "_many") ? MANY : 0);
  *function = (CUfunction)number;
  return CUDA_SUCCESS;
}

/* --- a program of updates ----------------------------------------------------------------------
 */

typedef struct Updates {
  uint32_t n;
  AbiAction action[MOST];
  AbiBuffer buffer[MOST * BUFFERS];
  int64_t ints[MOST * 3]; /* tasks, work, number of the action */
  unsigned char skip[MOST];
} Updates;

/* Reads two slots and writes one. */
static void add(Updates *u, uint32_t code, uint32_t a, uint32_t b, uint32_t out) {
  const uint32_t slots[BUFFERS] = {a, b, out};
  uint32_t i = u->n++;
  u->action[i] = (AbiAction){.kind = ABI_KERNEL,
                             .phase = ABI_OPTIMIZER,
                             .code = code,
                             .buffers = i * BUFFERS,
                             .nbuffers = BUFFERS,
                             .args = i * 3,
                             .nargs = 3};
  for (uint32_t k = 0; k < BUFFERS; k++)
    u->buffer[i * BUFFERS + k] = (AbiBuffer){.offset = 64 + slots[k] * 256,
                                             .type = slots[k] < TYPED ? 1 : 0,
                                             .scratch = slots[k] < TYPED ? 0 : 256 / ABI_ALIGN,
                                             .written = k == BUFFERS - 1};
  u->ints[i * 3] = 700 + 300 * i; /* several blocks, not the same number */
  u->ints[i * 3 + 2] = i;
}

static bool depend(const Updates *u, uint32_t i, uint32_t k) {
  const AbiBuffer *a = &u->buffer[i * BUFFERS], *b = &u->buffer[k * BUFFERS];
  for (int p = 0; p < BUFFERS; p++)
    for (int q = 0; q < BUFFERS; q++)
      if ((a[p].written || b[q].written) && a[p].offset == b[q].offset) return true;
  return false;
}

/* Runs them; how many launches it took. */
static int run_updates(const Updates *u) {
  static const AbiMesh mesh[2] = {{0}, {.nranks = 1}};
  static const AbiType type[2] = {{0}, {.dtype = ABI_F32, .rank = 1, .mesh = 1, .shape = {64}}};
  static const int32_t rank[1] = {0};
  static const AbiCudaHeader blob = {.nmodules = 1, .nfunctions = CODES};
  AbiProgram program[ABI_PROGRAM_COUNT] = {{0}};
  program[ABI_PROGRAM_TRAIN] = (AbiProgram){.present = 1, .nactions = u->n};
  AbiCudaFunction made[CODES];
  for (uint32_t i = 0; i < CODES; i++)
    made[i] = (AbiCudaFunction){.name = 3 * i,
                                .entry = 3 * i,
                                .kind = ABI_CUDA_GENERATED,
                                .nbuffers = BUFFERS,
                                .nints = 1,
                                .vec = ABI_CUDA_INT_ONE,
                                .width = 1,
                                .flags = i + 1 < CODES ? ABI_CUDA_MANY : 0};
  const Image image = {.string = "",
                       .mesh = mesh,
                       .mesh_count = 2,
                       .type = type,
                       .rank = rank,
                       .rank_count = 1,
                       .program = program,
                       .action = u->action,
                       .action_count = u->n,
                       .buffer = u->buffer};
  RtComm comm = {.world = 1};
  CUmodule module = (CUmodule)(uintptr_t)1; /* loaded */
  CUfunction found[CODES] = {NULL};
  void *states[MOST] = {NULL};
  CudaDevice d = {.base = {.image = &image, .comm = &comm, .arg_ints = u->ints, .skip = u->skip},
                  .driver = {.launch = fake_launch,
                             .memory_alloc = fake_alloc,
                             .memory_free = fake_free,
                             .to_device_async = fake_to_device,
                             .stream_sync = fake_sync,
                             .module_function = fake_function},
                  .capability = 90,
                  .code = {.header = &blob, .functions = made, .strings = "k0\0k1\0k2"},
                  .modules = &module,
                  .functions = found,
                  .arena = 1 << 20,
                  .states = states};
  d.cu = &d.driver;
  d.base.step = &d.step;
  for (uint32_t i = 0; i < u->n; i++)
    if (!u->skip[i]) ck_assert_int_eq(dtm_cuda_kernel_prepare(&d, i, &states[i]), 0);
  ck_assert_int_eq(dtm_cuda_bundle_open(&d), 0);
  memset(&noted, 0, sizeof noted);
  for (uint32_t i = 0, n; i < u->n; i += n) {
    n = dtm_cuda_bundle_size(&d, i);
    if (n)
      ck_assert_int_eq(dtm_cuda_bundle_run(&d, i), 0);
    else if (!u->skip[i])
      ck_assert_int_eq(dtm_cuda_kernel_run(&d, i, states[i]), 0);
    if (!n) n = 1;
  }
  dtm_cuda_bundle_close(&d);
  for (uint32_t i = 0; i < u->n; i++)
    if (states[i]) dtm_cuda_kernel_free(&d, states[i]);
  for (uint32_t i = 0; i < u->n; i++) {
    ck_assert_int_eq(noted.of_action[i] != 0, !u->skip[i]);
    for (uint32_t k = 0; k < i; k++)
      if (!u->skip[i] && !u->skip[k] && depend(u, i, k))
        ck_assert_int_lt(noted.of_action[k], noted.of_action[i]);
  }
  return noted.launches;
}

/* --- tests -------------------------------------------------------------------------------------
 */

START_TEST(independent_updates_of_two_codes) {
  Updates u = {0};
  for (uint32_t i = 0; i < SLOTS; i++) add(&u, i % 2, i, i, i);
  ck_assert_int_eq(run_updates(&u), 2);
}
END_TEST

START_TEST(a_code_without_the_entry) {
  Updates u = {0};
  for (uint32_t i = 0; i < SLOTS; i++) add(&u, 2, i, i, i);
  ck_assert_int_eq(run_updates(&u), SLOTS);
}
END_TEST

/* Sums, what is made of them, and updates that need it: three launches and the one between. */
START_TEST(a_norm_before_the_updates) {
  Updates u = {0};
  for (uint32_t i = 0; i < 4; i++) add(&u, 0, i, i, 4 + i);
  add(&u, 2, 4, 5, 8);
  for (uint32_t i = 0; i < 4; i++) add(&u, 1, i, 8, i);
  u.skip[2] = 1;
  ck_assert_int_eq(run_updates(&u), 3);
}
END_TEST

/* Sums in two kernels, the first of which leave their results in scratch. */
START_TEST(sums_through_scratch) {
  Updates u = {0};
  for (uint32_t i = 0; i < 4; i++) add(&u, 0, i, i, TYPED + i);
  for (uint32_t i = 0; i < 4; i++) add(&u, 1, TYPED + i, TYPED + i, 4 + i);
  ck_assert_int_eq(run_updates(&u), 2);
}
END_TEST

/* Each reads what the one before wrote. */
START_TEST(a_chain) {
  Updates u = {0};
  for (uint32_t i = 0; i + 1 < SLOTS; i++) add(&u, 0, i, i, i + 1);
  ck_assert_int_eq(run_updates(&u), SLOTS - 1);
}
END_TEST

START_TEST(any_updates) {
  uint32_t random = 7;
  int launches = 0, actions = 0;
  for (int round = 0; round < 500; round++) {
    Updates u = {0};
    for (int i = 0; i < MOST; i++) {
      uint32_t pick[5];
      for (int k = 0; k < 5; k++) pick[k] = (random = random * 1664525u + 1013904223u) >> 16;
      add(&u, pick[0] % CODES, pick[1] % SLOTS, pick[2] % SLOTS, pick[3] % SLOTS);
      u.skip[i] = pick[4] % 8 == 0;
      actions += !u.skip[i];
    }
    launches += run_updates(&u);
  }
  ck_assert_int_lt(launches, actions);
}
END_TEST

/* A program whose kernels are not those of its code for GPUs is told so, whatever they are. */
START_TEST(code_of_another_program) {
  static const AbiCudaHeader blob = {.nmodules = 1, .nfunctions = CODES};
  static const AbiCudaFunction made[CODES];
  static const uint32_t codes[] = {0, CODES, UINT32_MAX};
  const RtCommOps ops = {.fail = fake_fail};
  RtComm comm = {.ops = &ops, .world = 1};
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
    const AbiAction action = {.kind = ABI_KERNEL, .code = codes[i], .nargs = 2};
    const Image image = {.action = &action, .action_count = 1};
    CudaDevice d = {.base = {.image = &image, .comm = &comm},
                    .code = {.header = &blob, .functions = made}};
    void *state = NULL;
    ck_assert_int_eq(dtm_cuda_kernel_prepare(&d, 0, &state), RT_INTERNAL);
    ck_assert_ptr_null(state);
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("cuda_bundle");
  TCase *cases = tcase_create("bundles");
  tcase_add_test(cases, independent_updates_of_two_codes);
  tcase_add_test(cases, a_code_without_the_entry);
  tcase_add_test(cases, a_norm_before_the_updates);
  tcase_add_test(cases, sums_through_scratch);
  tcase_add_test(cases, a_chain);
  tcase_add_test(cases, any_updates);
  tcase_add_test(cases, code_of_another_program);
  suite_add_tcase(suite, cases);
  return suite_run(suite);
}
