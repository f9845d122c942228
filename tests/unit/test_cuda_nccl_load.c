/* What is said when NCCL is not there, or is something else, and what is set for it. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/nccl.h"
#include "support/suite.h"

static CudaNccl nccl;
static char message[2048];

static void expect(const char *text) {
  ck_assert_msg(strstr(message, text) != NULL, "'%s' is missing in:\n%s", text, message);
}

START_TEST(is_not_there) {
  setenv("DTM_NCCL", "/nowhere/libnccl.so.2", 1);
  ck_assert_ptr_eq(dtm_cuda_nccl_load(&nccl, message, sizeof message), message);
  expect("this program runs on several GPUs, and NCCL could not be loaded: /nowhere/libnccl.so.2");
  expect("(DTM_NCCL in the environment)");
  expect("NCCL 2.18 or later is needed");
}
END_TEST

START_TEST(is_something_else) {
  setenv("DTM_NCCL", "libc.so.6", 1);
  ck_assert_ptr_eq(dtm_cuda_nccl_load(&nccl, message, sizeof message), message);
  expect("libc.so.6 has no entry nccl");
}
END_TEST

/* Sums in the switch are off, unless the user wants them. */
START_TEST(keeps_what_the_user_set) {
  setenv("DTM_NCCL", "/nowhere", 1);
  unsetenv("NCCL_NVLS_ENABLE");
  dtm_cuda_nccl_load(&nccl, message, sizeof message);
  ck_assert_str_eq(getenv("NCCL_NVLS_ENABLE"), "0");
  setenv("NCCL_NVLS_ENABLE", "1", 1);
  dtm_cuda_nccl_load(&nccl, message, sizeof message);
  ck_assert_str_eq(getenv("NCCL_NVLS_ENABLE"), "1");
}
END_TEST

int main(void) {
  Suite *suite = suite_create("cuda_nccl_load");
  TCase *t = tcase_create("load");
  tcase_add_test(t, is_not_there);
  tcase_add_test(t, is_something_else);
  tcase_add_test(t, keeps_what_the_user_set);
  suite_add_tcase(suite, t);
  return suite_run(suite);
}
