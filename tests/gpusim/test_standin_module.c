/* The stand-in for the driver: modules and launches. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpusim/standin_driver.h"
#include "support/suite.h"

/* y[i] = x[i] + a, one thread each; .loc names a line of add.cu. And y[x[i]] = i. */
static const char module_text[] =
    ".version 8.0\n"
    ".target sm_80\n"
    ".address_size 64\n"
    ".visible .entry add(.param .u64 x, .param .u64 y, .param .f32 a)\n"
    "{\n"
    "  .reg .b32 %r<3>;\n"
    "  .reg .f32 %f<4>;\n"
    "  .reg .b64 %rd<8>;\n"
    "  ld.param.u64 %rd1, [x];\n"
    "  ld.param.u64 %rd2, [y];\n"
    "  ld.param.f32 %f1, [a];\n"
    "  cvta.to.global.u64 %rd3, %rd1;\n"
    "  cvta.to.global.u64 %rd4, %rd2;\n"
    "  mov.u32 %r1, %tid.x;\n"
    "  mul.wide.u32 %rd5, %r1, 4;\n"
    "  add.s64 %rd6, %rd3, %rd5;\n"
    "  add.s64 %rd7, %rd4, %rd5;\n"
    "  .loc 1 7 3\n"
    "  ld.global.f32 %f2, [%rd6];\n"
    "  add.f32 %f3, %f2, %f1;\n"
    "  st.global.f32 [%rd7], %f3;\n"
    "  ret;\n"
    "}\n"
    ".visible .entry put(.param .u64 x, .param .u64 y)\n"
    "{\n"
    "  .reg .b32 %r<3>;\n"
    "  .reg .b64 %rd<7>;\n"
    "  ld.param.u64 %rd1, [x];\n"
    "  ld.param.u64 %rd2, [y];\n"
    "  mov.u32 %r1, %tid.x;\n"
    "  mul.wide.u32 %rd3, %r1, 4;\n"
    "  add.s64 %rd4, %rd1, %rd3;\n"
    "  ld.global.u32 %r2, [%rd4];\n"
    "  mul.wide.u32 %rd5, %r2, 4;\n"
    "  add.s64 %rd6, %rd2, %rd5;\n"
    "  st.global.u32 [%rd6], %r1;\n"
    "  ret;\n"
    "}\n"
    ".file 1 \"add.cu\"\n";

enum { THREADS = 40 };

typedef struct Fixture {
  CUmodule module;
  CUfunction add;
  CUstream stream;
  CUdeviceptr x, y;
  float a;
} Fixture;

static Fixture begin(const char *report) {
  Fixture f = {.a = 0.5f};
  CUcontext context;
  float x[THREADS];
  setenv("GPUSIM_REPORT", report, 1);
  ck_assert_int_eq(cuInit(0), CUDA_SUCCESS);
  cuDevicePrimaryCtxRetain(&context, 0);
  cuCtxSetCurrent(context);
  cuStreamCreate(&f.stream, CU_STREAM_NON_BLOCKING);
  ck_assert_int_eq(cuModuleLoadDataEx(&f.module, module_text, 0, NULL, NULL), CUDA_SUCCESS);
  ck_assert_int_eq(cuModuleGetFunction(&f.add, f.module, "add"), CUDA_SUCCESS);
  cuMemAlloc_v2(&f.x, sizeof x);
  cuMemAlloc_v2(&f.y, sizeof x);
  for (int i = 0; i < THREADS; i++) x[i] = (float)i;
  cuMemcpyHtoD_v2(f.x, x, sizeof x);
  return f;
}

static CUresult launch(Fixture *f, unsigned threads, unsigned shared) {
  void *params[] = {&f->x, &f->y, &f->a};
  return cuLaunchKernel(f->add, 1, 1, 1, threads, 1, 1, shared, f->stream, params, NULL);
}

START_TEST(a_kernel_runs) {
  Fixture f = begin("/dev/null");
  float y[THREADS];
  ck_assert_int_eq(launch(&f, THREADS, 0), CUDA_SUCCESS);
  f.a = 9; /* values of parameters are those of the call */
  ck_assert_int_eq(cuStreamSynchronize(f.stream), CUDA_SUCCESS);
  ck_assert_int_eq(cuMemcpyDtoH_v2(y, f.y, sizeof y), CUDA_SUCCESS);
  for (int i = 0; i < THREADS; i++) ck_assert(y[i] == (float)i + 0.5f);
}
END_TEST

START_TEST(a_graph_keeps_parameters) {
  Fixture f = begin("/dev/null");
  CUgraph graph;
  CUgraphExec exec;
  float y[THREADS];
  cuStreamBeginCapture_v2(f.stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  ck_assert_int_eq(launch(&f, THREADS, 0), CUDA_SUCCESS);
  ck_assert_int_eq(cuStreamEndCapture(f.stream, &graph), CUDA_SUCCESS);
  cuGraphInstantiateWithFlags(&exec, graph, 0);
  f.a = 9;
  cuGraphLaunch(exec, f.stream);
  ck_assert_int_eq(cuStreamSynchronize(f.stream), CUDA_SUCCESS);
  cuMemcpyDtoH_v2(y, f.y, sizeof y);
  ck_assert(y[3] == 3.5f);
}
END_TEST

/* Thread 40 reads behind the allocation: one report that names it, and errors from then on. */
START_TEST(a_fault_is_told) {
  char path[] = "/tmp/gpusim-report-XXXXXX", text[4096] = "";
  close(mkstemp(path));
  Fixture f = begin(path);
  ck_assert_int_eq(launch(&f, THREADS + 1, 0), CUDA_SUCCESS);
  ck_assert_int_eq(cuStreamSynchronize(f.stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  ck_assert_int_eq(launch(&f, 1, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
  ck_assert_int_eq(cuStreamSynchronize(f.stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  FILE *file = fopen(path, "r");
  size_t n = fread(text, 1, sizeof text - 1, file);
  text[n] = 0;
  fclose(file);
  unlink(path);
  ck_assert_msg(strstr(text, "add") && strstr(text, "40") && strstr(text, "add.cu:7"), "%s", text);
  ck_assert_ptr_eq(strchr(text, '\n'), text + n - 1);
}
END_TEST

/* Launches by how many of them look for races: a kernel that numbers in memory make race is told of
 * at its first launch, at the next one only when all are asked for, and always where an argument is
 * another one. */
START_TEST(a_launch_like_an_earlier_one_is_not_looked_at_for_races) {
  enum { ALL = 1, OTHER = 2 };
  setenv("GPUSIM_RACES", _i & ALL ? "1" : "0", 1);
  Fixture f = begin("/dev/null");
  CUfunction put;
  uint32_t places[THREADS], y[THREADS];
  CUdeviceptr other;
  void *params[] = {&f.x, _i & OTHER ? &other : &f.y};
  cuMemAlloc_v2(&other, sizeof y);
  cuModuleGetFunction(&put, f.module, "put");
  for (uint32_t i = 0; i < THREADS; i++) places[i] = THREADS - 1 - i;
  cuMemcpyHtoD_v2(f.x, places, sizeof places);
  cuLaunchKernel(put, 1, 1, 1, THREADS, 1, 1, 0, f.stream, (void *[]){&f.x, &f.y}, NULL);
  ck_assert_int_eq(cuStreamSynchronize(f.stream), CUDA_SUCCESS);
  cuMemcpyDtoH_v2(y, f.y, sizeof y);
  ck_assert_uint_eq(y[0], THREADS - 1);
  cuMemcpyHtoD_v2(f.x, (uint32_t[THREADS]){0}, sizeof places);
  cuLaunchKernel(put, 1, 1, 1, THREADS, 1, 1, 0, f.stream, params, NULL);
  ck_assert_int_eq(cuStreamSynchronize(f.stream) != CUDA_SUCCESS, _i != 0);
}
END_TEST

START_TEST(launches_are_checked) {
  Fixture f = begin("/dev/null");
  CUfunction none;
  ck_assert_int_eq(cuModuleGetFunction(&none, f.module, "sub"), CUDA_ERROR_NOT_FOUND);
  ck_assert_int_eq(launch(&f, 0, 0), CUDA_ERROR_INVALID_VALUE);
  ck_assert_int_eq(launch(&f, 1025, 0), CUDA_ERROR_INVALID_VALUE);
  ck_assert_int_eq(launch(&f, 1, 50000), CUDA_ERROR_INVALID_VALUE);
  ck_assert_int_eq(
      cuFuncSetAttribute(f.add, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 50000),
      CUDA_SUCCESS);
  ck_assert_int_eq(
      cuFuncSetAttribute(f.add, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 300000),
      CUDA_ERROR_INVALID_VALUE);
  ck_assert_int_eq(launch(&f, 1, 50000), CUDA_SUCCESS);
  ck_assert_int_eq(cuModuleUnload(f.module), CUDA_SUCCESS);
  ck_assert_int_eq(launch(&f, 1, 0), CUDA_ERROR_INVALID_HANDLE);
}
END_TEST

START_TEST(images_are_checked) {
  static const struct {
    const char *image;
    CUresult error;
  } cases[] = {{"\177ELF of a cubin", CUDA_ERROR_NO_BINARY_FOR_GPU},
               {".version 99.0\n.target sm_80\n", CUDA_ERROR_UNSUPPORTED_PTX_VERSION},
               {".version 8.0\n.target sm_999\n", CUDA_ERROR_NO_BINARY_FOR_GPU},
               {".version 8.0\n.target sm_80\n.address_size 64\n.entry k() { nonsense.u32; }\n",
                CUDA_ERROR_INVALID_PTX},
               {"text", CUDA_ERROR_INVALID_IMAGE}};
  CUmodule module;
  char log[256] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void *values[] = {log, (void *)sizeof log};
  begin("/dev/null");
  ck_assert_int_eq(cuModuleLoadDataEx(&module, cases[_i].image, 2, options, values),
                   cases[_i].error);
  ck_assert_int_eq(*log != 0, cases[_i].error == CUDA_ERROR_INVALID_PTX);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("standin_module");
  TCase *t = tcase_create("standin_module");
  tcase_add_test(t, a_kernel_runs);
  tcase_add_test(t, a_graph_keeps_parameters);
  tcase_add_test(t, a_fault_is_told);
  tcase_add_loop_test(t, a_launch_like_an_earlier_one_is_not_looked_at_for_races, 0, 4);
  tcase_add_test(t, launches_are_checked);
  tcase_add_loop_test(t, images_are_checked, 0, 5);
  suite_add_tcase(suite, t);
  return suite_run(suite);
}
