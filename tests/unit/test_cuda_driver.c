/* The loader of the CUDA driver: what it says where there is none, an old one, one without a GPU.
 * The drivers are shared objects made here, of functions that only return a number. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/cuda/driver.h"
#include "support/suite.h"
#include "support/work.h"

/* A driver of that version whose cuInit returns `init`, in `path`. `lacks`: an entry it has not. */
static void make_driver(const char *path, int version, int init, const char *lacks) {
  char source[256], command[800];
  snprintf(source, sizeof source, "%s.c", path);
  FILE *f = fopen(source, "w");
  ck_assert_ptr_nonnull(f);
#define X(member, name, parameters)                                                                \
  if (strcmp(#name, lacks) != 0 && strcmp(#name, "cuInit") != 0 &&                                 \
      strcmp(#name, "cuDriverGetVersion") != 0)                                                    \
    fprintf(f, "int " #name "(void) { return 999; }\n");
  CUDA_DRIVER(X)
#undef X
  fprintf(f, "int cuInit(unsigned flags) { (void)flags; return %d; }\n", init);
  fprintf(f, "int cuDriverGetVersion(int *version) { *version = %d; return 0; }\n", version);
  fclose(f);
  snprintf(command, sizeof command, "${CC:-cc} -shared -fPIC -o '%s' '%s'", path, source);
  ck_assert_int_eq(system(command), 0);
}

/* The message of a load of that file; "" when it succeeds. */
static const char *load(const char *path) {
  static char message[2048];
  CudaDriver driver;
  setenv("DTM_CUDA_DRIVER", path, 1);
  const char *error = dtm_cuda_driver_load(&driver, message, sizeof message);
  return error ? error : "";
}

static void says(const char *message, const char *text) {
  ck_assert_msg(strstr(message, text) != NULL, "no \"%s\" in: %s", text, message);
}

START_TEST(missing) {
  const char *message = load("/nowhere/libcuda.so.1");
  says(message, "the CUDA driver could not be loaded: /nowhere/libcuda.so.1: cannot open");
  says(message, "(DTM_CUDA_DRIVER in the environment)");
  says(message, "https://www.nvidia.com/drivers");
}
END_TEST

START_TEST(other_drivers) {
  char folder[] = "/tmp/dtm-cuda-XXXXXX", path[64];
  ck_assert_ptr_nonnull(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/good.so", folder);
  make_driver(path, 12020, 0, "");
  ck_assert_str_eq(load(path), "");
  snprintf(path, sizeof path, "%s/lacks.so", folder);
  make_driver(path, 12020, 0, "cuGraphLaunch");
  says(load(path), "has no entry cuGraphLaunch (DTM_CUDA_DRIVER in the environment)");
  snprintf(path, sizeof path, "%s/old.so", folder);
  make_driver(path, 11080, 0, "");
  says(load(path), "the CUDA driver is too old: it is for CUDA 11.8");
  snprintf(path, sizeof path, "%s/none.so", folder);
  make_driver(path, 13000, CUDA_ERROR_NO_DEVICE, "");
  says(load(path), "the CUDA driver finds no GPU");
  snprintf(path, sizeof path, "%s/sick.so", folder);
  make_driver(path, 13000, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "");
  says(load(path), "the CUDA driver does not start: error 803");
  ck_assert_ptr_null(strstr(load(path), "CUDA 12.0 or later is needed")); /* it is not that */
  snprintf(path, sizeof path, "%s/early.so", folder);
  make_driver(path, 13000, CUDA_ERROR_SYSTEM_NOT_READY, "");
  says(load(path), "nvidia-fabricmanager");
  snprintf(path, sizeof path, "%s/stub.so", folder);
  make_driver(path, 13000, CUDA_ERROR_STUB_LIBRARY, "");
  says(load(path), "for linking only: take its folder `stubs` out of LD_LIBRARY_PATH");
  char command[128];
  snprintf(command, sizeof command, "rm -r '%s'", folder);
  ck_assert_int_eq(system(command), 0);
}
END_TEST

/* What a driver says of the machine is not a fault of the program, which exits 3 then, not 101. */
START_TEST(whose_fault) {
  ck_assert(dtm_cuda_error_is_machine(CUDA_ERROR_DEVICE_UNAVAILABLE));
  ck_assert(dtm_cuda_error_is_machine(CUDA_ERROR_MPS_MAX_CLIENTS_REACHED));
  ck_assert(!dtm_cuda_error_is_machine(CUDA_ERROR_ILLEGAL_ADDRESS));
  says(dtm_cuda_error_remedy(CUDA_ERROR_DEVICE_UNAVAILABLE), "has the GPU for itself");
  ck_assert_str_eq(dtm_cuda_error_remedy(CUDA_ERROR_INVALID_VALUE), "");
}
END_TEST

int main(void) {
  Suite *suite = suite_create("cuda_driver");
  TCase *cases = tcase_create("load");
  tcase_set_timeout(cases, 60);
  tcase_add_test(cases, missing);
  tcase_add_test(cases, other_drivers);
  tcase_add_test(cases, whose_fault);
  suite_add_tcase(suite, cases);
  return suite_run(suite);
}
