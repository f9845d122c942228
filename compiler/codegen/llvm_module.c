/* One module: kernels, their table, the image; passes; object, text or assembly.
 *
 * The instruction set is exactly a list of named features, kept in the object as
 * `dtm_cpu_features`, so that the program can check them when it starts.
 */
#include "codegen/llvm_door.h"
#include "codegen/llvm_emit.h"

#include <llvm-c/Analysis.h>
#include <llvm-c/Error.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Features of x86 that the code may use. */
static const char *const x86_features[] = {
    "sse3", "ssse3", "sse4.1", "sse4.2",  "popcnt",   "avx",      "avx2",     "fma",
    "f16c", "bmi",   "bmi2",   "avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"};

static const struct {
  const char *name;
  const char *features; /* "+a,+b" */
} levels[] = {
    {"x86-64", ""},
    {"x86-64-v2", "+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt"},
    {"x86-64-v3", "+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+avx,+avx2,+fma,+f16c,+bmi,+bmi2"},
    {"x86-64-v4", "+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+avx,+avx2,+fma,+f16c,+bmi,+bmi2,"
                  "+avx512f,+avx512cd,+avx512bw,+avx512dq,+avx512vl"}};

/* "+name" as a whole item of a comma-separated list. */
static bool lists(const char *features, const char *name) {
  size_t n = strlen(name);
  for (const char *p = features; (p = strstr(p, name)); p += n)
    if (p > features && p[-1] == '+' && (p[n] == ',' || p[n] == 0)) return true;
  return false;
}

static void host_features(char *out, size_t size) {
  char *all = LLVMGetHostCPUFeatures();
  size_t at = 0;
  out[0] = 0;
  for (size_t i = 0; i < sizeof x86_features / sizeof *x86_features; i++)
    if (lists(all, x86_features[i]))
      at += (size_t)snprintf(out + at, size - at, "%s+%s", at ? "," : "", x86_features[i]);
  LLVMDisposeMessage(all);
}

typedef struct Target {
  char features[512];
  char *tune;
  LLVMTargetMachineRef machine;
} Target;

static char *copy_text(const char *s) {
  size_t n = strlen(s) + 1;
  char *p = malloc(n);
  if (!p) abort();
  return memcpy(p, s, n);
}

static bool choose_target(Target *t, const char *march, char **error) {
  bool native = !march || strcmp(march, "native") == 0;
  char *triple = LLVMGetDefaultTargetTriple();
  bool x86 = strncmp(triple, "x86_64", 6) == 0;
  const char *cpu = x86 ? "x86-64" : "generic";
  t->tune = NULL;
  if (native) {
    t->tune = LLVMGetHostCPUName();
    if (x86) host_features(t->features, sizeof t->features);
  } else {
    size_t n = sizeof levels / sizeof *levels, i = 0;
    while (i < n && strcmp(levels[i].name, march) != 0) i++;
    if (!x86 || i == n) {
      *error = copy_text("unknown instruction set for --march; it may be native, x86-64, "
                         "x86-64-v2, x86-64-v3 or x86-64-v4");
      LLVMDisposeMessage(triple);
      return false;
    }
    snprintf(t->features, sizeof t->features, "%s", levels[i].features);
  }
  LLVMTargetRef target;
  char *message = NULL;
  if (LLVMGetTargetFromTriple(triple, &target, &message)) {
    *error = copy_text(message);
    LLVMDisposeMessage(message);
    LLVMDisposeMessage(triple);
    return false;
  }
  t->machine = LLVMCreateTargetMachine(target, triple, cpu, t->features, LLVMCodeGenLevelDefault,
                                       LLVMRelocPIC, LLVMCodeModelDefault);
  LLVMDisposeMessage(triple);
  return true;
}

static LLVMValueRef export(Emitter *e, const char *name, LLVMValueRef init) {
  LLVMValueRef g = LLVMAddGlobal(e->module, LLVMTypeOf(init), name);
  LLVMSetInitializer(g, init);
  LLVMSetGlobalConstant(g, 1);
  return g;
}

static void emit_tables(Emitter *e, LLVMValueRef *functions, uint32_t n, const CodegenImage *image,
                        const char *features) {
  LLVMTypeRef ptr = LLVMPointerTypeInContext(e->context, 0);
  LLVMValueRef none = LLVMConstNull(ptr);
  export(e, "dtm_kernels", LLVMConstArray2(ptr, n ? functions : &none, n ? n : 1));
  export(e, "dtm_kernels_count", ll_i64(e, n));
  export(e, "dtm_cpu_features",
         LLVMConstStringInContext2(e->context, features, strlen(features), 0));
  if (!image) return;
  LLVMValueRef bytes = LLVMConstStringInContext2(e->context, image->data, image->size, 1);
  LLVMSetAlignment(export(e, "dtm_image", bytes), 64);
  export(e, "dtm_image_size", ll_i64(e, (int64_t)image->size));
}

/* Enough to clean up what the emitter leaves: stack slots to registers, equal subexpressions,
 * invariants out of loops. The vector shape is already chosen. */
static const char passes[] =
    "function(sroa,early-cse,instsimplify,loop-mssa(licm))";

static bool run_passes(Emitter *e, Target *t, const CodegenOptions *options, char **error) {
  char *message = NULL;
  if (options->verify && LLVMVerifyModule(e->module, LLVMReturnStatusAction, &message)) {
    *error = copy_text(message);
    LLVMDisposeMessage(message);
    return false;
  }
  LLVMDisposeMessage(message);
  LLVMPassBuilderOptionsRef o = LLVMCreatePassBuilderOptions();
  LLVMErrorRef fault = LLVMRunPasses(e->module, passes, t->machine, o);
  LLVMDisposePassBuilderOptions(o);
  if (!fault) return true;
  message = LLVMGetErrorMessage(fault);
  *error = copy_text(message);
  LLVMDisposeErrorMessage(message);
  return false;
}

static bool write_out(Emitter *e, Target *t, CodegenOutput output, char **bytes, size_t *size,
                      char **error) {
  if (output == CODEGEN_LLVM) {
    char *text = LLVMPrintModuleToString(e->module);
    *bytes = copy_text(text);
    *size = strlen(text);
    LLVMDisposeMessage(text);
    return true;
  }
  LLVMMemoryBufferRef memory;
  char *message = NULL;
  LLVMCodeGenFileType kind = output == CODEGEN_ASM ? LLVMAssemblyFile : LLVMObjectFile;
  if (LLVMTargetMachineEmitToMemoryBuffer(t->machine, e->module, kind, &message, &memory)) {
    *error = copy_text(message);
    LLVMDisposeMessage(message);
    return false;
  }
  *size = LLVMGetBufferSize(memory);
  *bytes = malloc(*size + 1);
  if (!*bytes) abort();
  memcpy(*bytes, LLVMGetBufferStart(memory), *size);
  (*bytes)[*size] = 0;
  LLVMDisposeMemoryBuffer(memory);
  return true;
}

bool dtm_llvm_emit(Kernel *const *kernels, uint32_t nkernels, const CodegenImage *image,
                   const CodegenOptions *options, CodegenOutput output, char **bytes, size_t *size,
                   char **error) {
  LLVMInitializeNativeTarget();
  LLVMInitializeNativeAsmPrinter();
  Target t = {.machine = NULL};
  if (!choose_target(&t, options->march, error)) return false;
  Emitter e = {.context = LLVMContextCreate(),
               .tune = t.tune ? t.tune : "generic",
               .has_fma = lists(t.features, "fma")};
#if defined(__aarch64__)
  e.has_fma = true;
#endif
  e.module = LLVMModuleCreateWithNameInContext("dtm", e.context);
  e.builder = LLVMCreateBuilderInContext(e.context);
  char *triple = LLVMGetTargetMachineTriple(t.machine);
  LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(t.machine);
  LLVMSetTarget(e.module, triple);
  LLVMSetModuleDataLayout(e.module, layout);
  LLVMValueRef *functions = calloc((size_t)nkernels + 1, sizeof *functions);
  if (!functions) abort();
  for (uint32_t i = 0; i < nkernels; i++) functions[i] = ll_kernel(&e, kernels[i]);
  emit_tables(&e, functions, nkernels, image, t.features);
  bool ok = run_passes(&e, &t, options, error) && write_out(&e, &t, output, bytes, size, error);
  free(functions);
  LLVMDisposeTargetData(layout);
  LLVMDisposeMessage(triple);
  LLVMDisposeBuilder(e.builder);
  LLVMDisposeModule(e.module);
  LLVMContextDispose(e.context);
  LLVMDisposeTargetMachine(t.machine);
  if (t.tune) LLVMDisposeMessage(t.tune);
  return ok;
}
