/* The stand-in for the driver: memory, contexts, errors of misuse. */
#include <check.h>
#include <signal.h>
#include <stdlib.h>

#include "gpusim/standin_driver.h"
#include "support/suite.h"

static void begin(void) {
  CUcontext context;
  setenv("GPUSIM_REPORT", "/dev/null", 1);
  setenv("GPUSIM_DEVICES", "2", 1);
  setenv("GPUSIM_MEMORY", "1048576", 1);
  ck_assert_int_eq(cuInit(0), CUDA_SUCCESS);
  ck_assert_int_eq(cuDevicePrimaryCtxRetain(&context, 1), CUDA_SUCCESS);
  ck_assert_int_eq(cuCtxSetCurrent(context), CUDA_SUCCESS);
}

START_TEST(before_it_is_started) {
  int n;
  CUdeviceptr at;
  CUdevice device;
  ck_assert_int_eq(cuDeviceGetCount(&n), CUDA_ERROR_NOT_INITIALIZED);
  ck_assert_int_eq(cuMemAlloc_v2(&at, 8), CUDA_ERROR_NOT_INITIALIZED);
  ck_assert_int_eq(cuInit(1), CUDA_ERROR_INVALID_VALUE);
  setenv("GPUSIM_DEVICES", "2", 1);
  ck_assert_int_eq(cuInit(0), CUDA_SUCCESS);
  ck_assert_int_eq(cuMemAlloc_v2(&at, 8), CUDA_ERROR_INVALID_CONTEXT);
  ck_assert_int_eq(cuDeviceGet(&device, 8), CUDA_ERROR_INVALID_DEVICE);
}
END_TEST

START_TEST(no_device) {
  setenv("GPUSIM_DEVICES", "0", 1);
  ck_assert_int_eq(cuInit(0), CUDA_ERROR_NO_DEVICE);
}
END_TEST

START_TEST(devices) {
  int n, value;
  CUdevice device;
  char name[32];
  begin();
  ck_assert_int_eq(cuDeviceGetCount(&n), CUDA_SUCCESS);
  ck_assert_int_eq(n, 2);
  ck_assert_int_eq(cuDeviceGet(&device, 1), CUDA_SUCCESS);
  ck_assert_int_eq(cuDeviceGetName(name, sizeof name, device), CUDA_SUCCESS);
  ck_assert_str_eq(name, "gpusim 1");
  cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  ck_assert_int_eq(value, 99);
  ck_assert_int_eq(cuDeviceGetAttribute(&value, (CUdevice_attribute)1, device),
                   CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(memory_is_counted) {
  CUdeviceptr a, b;
  size_t left, total;
  begin();
  ck_assert_int_eq(cuMemAlloc_v2(&a, 1 << 19), CUDA_SUCCESS);
  cuMemGetInfo_v2(&left, &total);
  ck_assert_uint_eq(total, 1 << 20);
  ck_assert_uint_eq(left, 1 << 19);
  ck_assert_int_eq(cuMemAlloc_v2(&b, (1 << 19) + 1), CUDA_ERROR_OUT_OF_MEMORY);
  ck_assert_int_eq(cuMemAlloc_v2(&b, 0), CUDA_ERROR_INVALID_VALUE);
  ck_assert_int_eq(cuMemFree_v2(a), CUDA_SUCCESS);
  ck_assert_int_eq(cuMemFree_v2(a), CUDA_ERROR_INVALID_VALUE);
  ck_assert_int_eq(cuMemAlloc_v2(&b, 1 << 20), CUDA_SUCCESS);
}
END_TEST

START_TEST(there_and_back) {
  CUdeviceptr a, b;
  char out[64] = {0};
  begin();
  cuMemAlloc_v2(&a, 64);
  cuMemAlloc_v2(&b, 64);
  ck_assert_int_eq(cuMemcpyHtoD_v2(a, "0123456789", 10), CUDA_SUCCESS);
  ck_assert_int_eq(cuMemcpyDtoDAsync_v2(b + 3, a, 10, NULL), CUDA_SUCCESS);
  ck_assert_int_eq(cuMemsetD8Async(b, 'x', 3, NULL), CUDA_SUCCESS);
  ck_assert_int_eq(cuMemsetD8Async(b + 14, 'a', 4, NULL), CUDA_SUCCESS);
  ck_assert_int_eq(cuMemsetD8Async(b + 13, '-', 1, NULL), CUDA_SUCCESS);
  ck_assert_int_eq(cuMemcpyDtoH_v2(out, b, 18), CUDA_SUCCESS);
  ck_assert_str_eq(out, "xxx0123456789-aaaa");
}
END_TEST

START_TEST(ranges_are_checked) {
  CUdeviceptr a;
  char out[128];
  begin();
  cuMemAlloc_v2(&a, 64);
  ck_assert_int_eq(cuMemcpyHtoD_v2(a + 32, out, 33), CUDA_ERROR_INVALID_VALUE);
  ck_assert_int_eq(cuMemsetD8Async(a + 2, 0, 63, NULL), CUDA_ERROR_INVALID_VALUE);
  ck_assert_int_eq(cuMemcpyDtoDAsync_v2(a, a + 8, 9, NULL), CUDA_ERROR_INVALID_VALUE);
  cuMemFree_v2(a);
  ck_assert_int_eq(cuMemsetD8Async(a, 0, 4, NULL), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(unwritten_bytes_end_the_device) {
  CUdeviceptr a;
  char out[64];
  begin();
  cuMemAlloc_v2(&a, 64);
  cuMemcpyHtoD_v2(a, "0123", 4);
  ck_assert_int_eq(cuMemcpyDtoH_v2(out, a, 5), CUDA_ERROR_LAUNCH_FAILED);
  ck_assert_int_eq(cuMemcpyDtoH_v2(out, a, 4), CUDA_ERROR_LAUNCH_FAILED);
  ck_assert_int_eq(cuMemFree_v2(a), CUDA_ERROR_LAUNCH_FAILED);
}
END_TEST

/* A device address is none of the host's. */
START_TEST(host_follows_a_device_address) {
  CUdeviceptr a;
  begin();
  cuMemAlloc_v2(&a, 64);
  cuMemcpyHtoD_v2(a, "0123", 4);
  *(volatile char *)(uintptr_t)a = 1;
}
END_TEST

START_TEST(handles_that_are_gone) {
  CUstream stream;
  CUevent event;
  begin();
  cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
  ck_assert_int_eq(cuEventRecord(event, (CUstream)event), CUDA_ERROR_INVALID_HANDLE);
  ck_assert_int_eq(cuEventDestroy_v2(event), CUDA_SUCCESS);
  ck_assert_int_eq(cuEventRecord(event, stream), CUDA_ERROR_INVALID_HANDLE);
  ck_assert_int_eq(cuEventDestroy_v2(event), CUDA_ERROR_INVALID_HANDLE);
  ck_assert_int_eq(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
  ck_assert_int_eq(cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
  ck_assert_int_eq(cuStreamDestroy_v2(stream), CUDA_ERROR_INVALID_HANDLE);
  ck_assert_int_eq(cuModuleUnload((CUmodule)stream), CUDA_ERROR_INVALID_HANDLE);
  ck_assert_int_eq(cuGraphLaunch((CUgraphExec)stream, NULL), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(errors_have_names) {
  const char *name, *text;
  ck_assert_int_eq(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &name), CUDA_SUCCESS);
  ck_assert_str_eq(name, "CUDA_ERROR_ILLEGAL_ADDRESS");
  ck_assert_int_eq(cuGetErrorString(CUDA_ERROR_MISALIGNED_ADDRESS, &text), CUDA_SUCCESS);
  ck_assert_str_eq(text, "misaligned address");
  ck_assert_int_eq(cuGetErrorName((CUresult)12345, &name), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("standin_driver");
  TCase *t = tcase_create("standin_driver");
  tcase_add_test(t, before_it_is_started);
  tcase_add_test(t, no_device);
  tcase_add_test(t, devices);
  tcase_add_test(t, memory_is_counted);
  tcase_add_test(t, there_and_back);
  tcase_add_test(t, ranges_are_checked);
  tcase_add_test(t, unwritten_bytes_end_the_device);
  tcase_add_test_raise_signal(t, host_follows_a_device_address, SIGSEGV);
  tcase_add_test(t, handles_that_are_gone);
  tcase_add_test(t, errors_have_names);
  suite_add_tcase(suite, t);
  return suite_run(suite);
}
