/* Modules: kernels, their table, the image; passes; object, text or assembly.
 *
 * An object is made in pieces, each a module of its own with the kernels dealt out to it, by as
 * many threads as there are processors. How many pieces there are and what is in them depends on
 * the kernels only. Text is one module.
 *
 * The instruction set is exactly a list of named features, kept in the object as
 * `dtm_cpu_features`, so that the program can check them when it starts.
 */
#include "codegen/llvm_door.h"
#include "codegen/llvm_emit.h"

#include <llvm-c/Analysis.h>
#include <llvm-c/Error.h>
#include <llvm-c/Support.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* What one thread after the other takes and makes. */
typedef struct Piece {
  Kernel **kernels; /* in their order */
  uint32_t nkernels;
  bool tables; /* it holds the tables and the image */
  uint64_t weight;
  CodegenPiece made;
  char *error;
} Piece;

typedef struct Work {
  Kernel *const *kernels; /* all */
  uint32_t nkernels, npieces;
  const CodegenImage *image;
  const CodegenOptions *options;
  CodegenOutput output;
  Piece piece[CODEGEN_MAX_PIECES];
  atomic_uint next;
} Work;

static LLVMValueRef find_kernel(Emitter *e, const Kernel *k) {
  LLVMValueRef f = LLVMGetNamedFunction(e->module, k->name);
  return f ? f : ll_declare_kernel(e, k);
}

/* Constant bytes, at least one, and how many there are. */
static void export_bytes(Emitter *e, const char *name, const char *count, const void *data,
                         size_t size) {
  LLVMValueRef bytes = LLVMConstStringInContext2(e->context, size ? data : "", size, size != 0);
  LLVMSetAlignment(export(e, name, bytes), 64);
  export(e, count, ll_i64(e, (int64_t)size));
}

static void emit_tables(Emitter *e, const Work *w, const char *features) {
  LLVMTypeRef ptr = LLVMPointerTypeInContext(e->context, 0);
  uint32_t n = w->nkernels;
  LLVMValueRef *functions = calloc((size_t)n + 1, sizeof *functions);
  if (!functions) abort();
  for (uint32_t i = 0; i < n; i++) functions[i] = find_kernel(e, w->kernels[i]);
  if (!n) functions[0] = LLVMConstNull(ptr);
  export(e, "dtm_kernels", LLVMConstArray2(ptr, functions, n ? n : 1));
  free(functions);
  export(e, "dtm_kernels_count", ll_i64(e, n));
  export(e, "dtm_cpu_features",
         LLVMConstStringInContext2(e->context, features, strlen(features), 0));
  if (!w->image) return;
  export_bytes(e, "dtm_image", "dtm_image_size", w->image->data, w->image->size);
  export_bytes(e, "dtm_cuda", "dtm_cuda_size", w->image->cuda, w->image->cuda_size);
  const char *device = w->image->cuda_size ? "dtm_cuda_open" : "dtm_cpu_open";
  export(e, "dtm_open_device", LLVMAddGlobal(e->module, ptr, device)); /* an address, no more */
}

/* Enough to clean up what the emitter leaves: stack slots to registers, equal subexpressions,
 * invariants out of loops. The vector shape is already chosen. */
static const char passes[] = "function(sroa,early-cse,instsimplify,loop-mssa(licm))";

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

static bool write_out(Emitter *e, Target *t, CodegenOutput output, CodegenPiece *made,
                      char **error) {
  if (output == CODEGEN_LLVM) {
    char *text = LLVMPrintModuleToString(e->module);
    *made = (CodegenPiece){copy_text(text), strlen(text)};
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
  size_t size = LLVMGetBufferSize(memory);
  char *bytes = malloc(size + 1);
  if (!bytes) abort();
  memcpy(bytes, LLVMGetBufferStart(memory), size);
  bytes[size] = 0;
  *made = (CodegenPiece){bytes, size};
  LLVMDisposeMemoryBuffer(memory);
  return true;
}

static void emit_piece(const Work *w, Piece *p) {
  Target t = {.machine = NULL};
  if (!choose_target(&t, w->options->march, &p->error)) return;
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
  for (uint32_t i = 0; i < p->nkernels; i++) ll_kernel(&e, p->kernels[i]);
  if (p->tables) emit_tables(&e, w, t.features);
  if (run_passes(&e, &t, w->options, &p->error)) write_out(&e, &t, w->output, &p->made, &p->error);
  LLVMDisposeTargetData(layout);
  LLVMDisposeMessage(triple);
  LLVMDisposeBuilder(e.builder);
  LLVMDisposeModule(e.module);
  LLVMContextDispose(e.context);
  LLVMDisposeTargetMachine(t.machine);
  if (t.tune) LLVMDisposeMessage(t.tune);
}

/* When the library is loaded, since LLVM takes an option once. The combiner looks for shorter
 * chains of operations that may be regrouped; floats may not, and it costs a seventh of the time.
 */
__attribute__((constructor)) static void set_options(void) {
#if defined(__x86_64__)
  static const char *const argv[] = {"dtmc", "-x86-machine-combiner=0"};
  LLVMParseCommandLineOptions(2, argv, NULL);
#endif
}

static void *emit_pieces(void *user) {
  Work *w = user;
  for (unsigned i; (i = atomic_fetch_add(&w->next, 1)) < w->npieces;) emit_piece(w, &w->piece[i]);
  return NULL;
}

/* --- dealing out ---- */

/* How long LLVM takes, roughly, against one instruction. */
enum { WEIGHT_FUNCTION = 10, WEIGHT_ELEMENTARY = 12, WEIGHT_UNIFORM = 60, WEIGHT_NORMAL = 140 };

static bool draws_normal(const Kernel *k) {
  for (uint32_t i = 0; i < k->ninstrs; i++)
    if (k->instrs[i].kind == K_RANDOM && k->instrs[i].random == KRANDOM_NORMAL) return true;
  return false;
}

/* Without the function that makes normal numbers. */
static uint64_t weight_of(const Kernel *k) {
  uint64_t n = WEIGHT_FUNCTION;
  for (uint32_t i = 0; i < k->ninstrs; i++) {
    const KInstr *in = &k->instrs[i];
    n += in->kind == K_RANDOM && in->random == KRANDOM_UNIFORM ? WEIGHT_UNIFORM : 1;
    if (in->kind == K_POINT && ll_is_elementary(in->op)) n += WEIGHT_ELEMENTARY;
  }
  return n;
}

typedef struct Weighed {
  uint64_t weight;
  uint32_t index;
} Weighed;

static int heavy_first(const void *pa, const void *pb) {
  const Weighed *a = pa, *b = pb;
  if (a->weight != b->weight) return a->weight < b->weight ? 1 : -1;
  return a->index < b->index ? -1 : a->index > b->index;
}

/* The heaviest first, each to the piece that has least; what draws normal numbers to the first
 * piece, so that their function is made once. */
static void deal_out(Work *w, Kernel **room) {
  enum { KERNELS_PER_PIECE = 2 };
  uint32_t n = w->nkernels, *piece_of = calloc((size_t)n + 1, sizeof *piece_of), at = 0;
  Weighed *order = calloc((size_t)n + 1, sizeof *order);
  if (!piece_of || !order) abort();
  w->npieces = w->output == CODEGEN_OBJECT ? n / KERNELS_PER_PIECE : 1;
  if (w->npieces > CODEGEN_MAX_PIECES) w->npieces = CODEGEN_MAX_PIECES;
  if (w->npieces < 1) w->npieces = 1;
  w->piece[0].tables = true;
  for (uint32_t i = 0; i < n; i++) {
    order[i] = (Weighed){weight_of(w->kernels[i]), i};
    if (draws_normal(w->kernels[i])) w->piece[0].weight = WEIGHT_NORMAL;
  }
  qsort(order, n, sizeof *order, heavy_first);
  for (uint32_t i = 0; i < n; i++) {
    uint32_t least = 0;
    bool stays = draws_normal(w->kernels[order[i].index]);
    for (uint32_t j = 1; !stays && j < w->npieces; j++)
      if (w->piece[j].weight < w->piece[least].weight) least = j;
    w->piece[least].weight += order[i].weight;
    piece_of[order[i].index] = least;
  }
  for (uint32_t j = 0; j < w->npieces; j++) {
    Piece *p = &w->piece[j];
    p->kernels = room + at;
    for (uint32_t i = 0; i < n; i++)
      if (piece_of[i] == j) p->kernels[p->nkernels++] = w->kernels[i];
    at += p->nkernels;
  }
  free(piece_of);
  free(order);
}

/* This thread and as many others as help. LLVM goes deep: the others get a stack like the first's.
 */
static void run_threads(Work *w) {
  enum { STACK = 8 << 20 };
  pthread_t thread[CODEGEN_MAX_PIECES];
  uint32_t n = 0;
  long processors = sysconf(_SC_NPROCESSORS_ONLN);
  pthread_attr_t attr;
  pthread_attr_init(&attr);
  pthread_attr_setstacksize(&attr, STACK);
  while (n + 1 < w->npieces && n + 1 < processors &&
         pthread_create(&thread[n], &attr, emit_pieces, w) == 0)
    n++;
  pthread_attr_destroy(&attr);
  emit_pieces(w);
  while (n) pthread_join(thread[--n], NULL);
}

bool dtm_llvm_emit(Kernel *const *kernels, uint32_t nkernels, const CodegenImage *image,
                   const CodegenOptions *options, CodegenOutput output, CodegenResult *out,
                   char **error) {
  LLVMInitializeNativeTarget();
  LLVMInitializeNativeAsmPrinter();
  Work w = {.kernels = kernels,
            .nkernels = nkernels,
            .image = image,
            .options = options,
            .output = output};
  Kernel **room = calloc((size_t)nkernels + 1, sizeof *room);
  if (!room) abort();
  deal_out(&w, room);
  run_threads(&w);
  *error = NULL;
  out->npieces = w.npieces;
  for (uint32_t i = 0; i < w.npieces; i++) {
    out->piece[i] = w.piece[i].made;
    if (*error)
      free(w.piece[i].error);
    else
      *error = w.piece[i].error;
  }
  for (uint32_t i = 0; *error && i < w.npieces; i++) free((void *)out->piece[i].bytes);
  free(room);
  return !*error;
}
