/* Modules to machine code, and all of it into one blob: see runtime/abi/cuda.h. */
#include "codegen/cuda_program.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* --- architectures ---- */

static bool choose_archs(Arena *arena, const Nvrtc *n, CudaTarget *t, const char **error) {
  static const uint32_t usual[] = {80, 90, 100};
  bool named = t->narchs > 0;
  for (size_t i = 0; !named && i < sizeof usual / sizeof *usual; i++)
    if (nvrtc_knows(n, usual[i])) t->arch[t->narchs++] = (CudaArch){usual[i], true};
  for (uint32_t i = 0; i < t->narchs; i++) {
    const CudaArch *a = &t->arch[i];
    if (nvrtc_knows(n, a->number)) continue;
    *error = arena_printf(arena,
                          "NVRTC %s makes no code for %s_%u; it knows %s (DTM_NVRTC names the file "
                          "of another version)",
                          nvrtc_version(n), a->binary ? "sm" : "compute", a->number,
                          nvrtc_archs(n, arena));
    return false;
  }
  if (!t->narchs)
    *error = arena_printf(arena,
                          "NVRTC %s knows no chip of the usual ones; name one "
                          "of %s with --target=cuda:CHIP",
                          nvrtc_version(n), nvrtc_archs(n, arena));
  return t->narchs > 0;
}

/* Files of kernels for tensor cores end in _mma. */
static bool check_tensor_cores(Arena *arena, const CudaProgram *p, const CudaTarget *t,
                               const char **error) {
  enum { FIRST = 80 };
  for (uint32_t i = 0; i < t->narchs; i++)
    for (uint32_t m = 0; m < p->modules.len && t->arch[i].number < FIRST; m++) {
      const CudaModule *module = &p->modules.data[m];
      if (module->kernel || !strstr(module->name, "_mma_")) continue;
      *error = arena_printf(arena,
                            "%s needs tensor cores as chips have them from sm_80 on, not those of "
                            "sm_%u; compute in f32 for that",
                            module->name, t->arch[i].number);
      return false;
    }
  return true;
}

/* What is made for one architecture: machine code when it was named so; PTX when it was named so,
 * or when it is the newest. */
typedef struct ArchPlan {
  uint32_t number;
  bool binary, ptx;
} ArchPlan;

static uint32_t plan_archs(const CudaTarget *t, ArchPlan *plan) {
  uint32_t n = 0, newest = 0;
  for (uint32_t i = 0; i < t->narchs; i++) {
    uint32_t j = 0;
    while (j < n && plan[j].number != t->arch[i].number) j++;
    if (j == n) plan[n++] = (ArchPlan){.number = t->arch[i].number};
    plan[j].binary |= t->arch[i].binary;
    plan[j].ptx |= !t->arch[i].binary;
    if (plan[j].number > plan[newest].number) newest = j;
  }
  plan[newest].ptx = true;
  ArchPlan first = plan[newest]; /* its PTX is the one that is shown */
  plan[newest] = plan[0];
  plan[0] = first;
  return n;
}

/* --- entries, as PTX declares them ---- */

typedef struct Entry {
  const char *name;
  const char *parameters; /* their types in order: "u64 u64 b8[288] u32 " */
} Entry;

/* The type of a parameter: ".u64 NAME" is u64, ".align 8 .b8 NAME[288]" is b8[288]. */
static void put_parameter(StrBuf *out, const char *p, const char *end) {
  size_t n = strcspn(p, ",\n"), left = (size_t)(end - p);
  const char *stop = p + (n < left ? n : left), *type = p;
  if (strncmp(p, ".align ", 7) == 0) type = p + 7 + strcspn(p + 7, ".");
  if (type < stop) strbuf_put_n(out, type + 1, strcspn(type + 1, " "));
  for (const char *q = type; q < stop; q++)
    if (*q == '[') strbuf_put_n(out, q, strcspn(q, "]") + 1);
  strbuf_putc(out, ' ');
}

/* The next entry of the text from *at on. */
static bool next_entry(Arena *arena, const char **at, Entry *e) {
  const char *p = strstr(*at, ".entry ");
  if (!p) return false;
  p += strlen(".entry ");
  StrBuf parameters;
  strbuf_init(&parameters, arena);
  const char *end = strchr(p, ')');
  if (!end) end = p + strlen(p);
  for (const char *q = p; (q = strstr(q, ".param ")) && q < end;) {
    q += strlen(".param ");
    put_parameter(&parameters, q, end);
  }
  *e = (Entry){arena_strndup(arena, p, strcspn(p, "( \n\t")), parameters.text};
  *at = end;
  return true;
}

/* Whether the module has this entry, with these parameters; `must` says so to people. */
static bool check_entry(Arena *arena, const CudaModule *m, const Entry *want, const char *must,
                        const char **error) {
  const char *at = m->ptx;
  for (Entry e; next_entry(arena, &at, &e);) {
    if (strcmp(e.name, want->name) != 0) continue;
    if (strcmp(e.parameters, want->parameters) == 0) return true;
    *error = arena_printf(arena, "--load-cuda: %s: %s must have %s", m->file, want->name, must);
    return false;
  }
  *error = arena_printf(arena, "--load-cuda: %s has no entry extern \"C\" __global__ void %s",
                        m->file, want->name);
  return false;
}

static bool check_kernel(Arena *arena, const CudaModule *m, const char **error) {
  const char *name = cuda_entry(arena, m->kernel);
  const char *must = arena_printf(arena,
                                  "%u pointers, %u integers of type int64_t, then int64_t tasks "
                                  "and int32_t group",
                                  m->kernel->nbufs, m->kernel->nints);
  StrBuf types;
  strbuf_init(&types, arena);
  for (uint32_t i = 0; i < m->kernel->nbufs + m->kernel->nints + 1; i++)
    strbuf_puts(&types, "u64 ");
  strbuf_puts(&types, "u32 ");
  const Entry one = {name, types.text}, many = {arena_printf(arena, "%s_many", name), "u64 u32 "};
  return check_entry(arena, m, &one, must, error) &&
         (!m->many ||
          check_entry(arena, m, &many, "a pointer to its calls and int32_t ncalls", error));
}

/* A file of the library must have the entries that it had, `made`: its PTX before it was edited. */
static bool check_library(Arena *arena, const CudaModule *m, const char *made, const char **error) {
  const char *at = made;
  for (Entry e; next_entry(arena, &at, &e);)
    if (!check_entry(arena, m, &e,
                     "the parameters that it has where --emit=cuda writes it, since the runtime "
                     "passes these",
                     error))
      return false;
  return true;
}

/* --- the blob ---- */

enum { PACKING = 3 }; /* zlib's level: a quarter of the size in a tenth of the time of the best */

typedef struct Blob {
  Arena *arena;
  VEC(AbiCudaFunction) functions;
  VEC(AbiCudaImage) images;
  StrBuf strings, bytes;
} Blob;

static uint32_t add_string(Blob *b, const char *s) {
  uint32_t at = (uint32_t)b->strings.len;
  strbuf_put_n(&b->strings, s, strlen(s) + 1);
  return at;
}

static void align(StrBuf *sb, size_t to) {
  while (sb->len % to) strbuf_putc(sb, 0);
}

static void add_image(Blob *b, uint32_t module, uint32_t arch, AbiCudaFormat format,
                      const void *data, size_t size) {
  uLongf bytes = compressBound(size);
  void *packed = arena_alloc(b->arena, bytes);
  if (compress2(packed, &bytes, data, size, PACKING)) abort(); /* memory is short */
  align(&b->bytes, ABI_CUDA_ALIGN);
  AbiCudaImage image = {.module = module,
                        .arch = arch,
                        .format = format,
                        .offset = b->bytes.len, /* from the first byte; moved when all is known */
                        .bytes = bytes,
                        .size = size};
  strbuf_put_n(&b->bytes, packed, bytes);
  VEC_PUSH(b->arena, &b->images, image);
}

static void add_functions(Blob *b, const CudaProgram *p) {
  for (uint32_t i = 0; i < p->modules.len; i++) {
    const CudaModule *m = &p->modules.data[i];
    if (m->kernel) {
      AbiCudaFunction f = cuda_function(m->kernel);
      f.module = i;
      f.flags |= m->many ? ABI_CUDA_MANY : 0;
      f.name = add_string(b, m->name);
      f.entry = add_string(b, cuda_entry(b->arena, m->kernel));
      VEC_PUSH(b->arena, &b->functions, f);
      continue;
    }
    const char *at = m->ptx;
    for (Entry e; next_entry(b->arena, &at, &e);) {
      uint32_t name = add_string(b, e.name);
      AbiCudaFunction f = {.kind = ABI_CUDA_LIBRARY,
                           .module = i,
                           .name = name,
                           .entry = name,
                           .vec = ABI_CUDA_INT_ONE,
                           .width = 1};
      VEC_PUSH(b->arena, &b->functions, f);
    }
  }
}

static void finish(Blob *b, CudaProgram *p) {
  StrBuf out;
  strbuf_init(&out, b->arena);
  AbiCudaHeader h = {.magic = ABI_CUDA_MAGIC,
                     .version = ABI_CUDA_VERSION,
                     .nmodules = p->modules.len,
                     .nfunctions = b->functions.len,
                     .nimages = b->images.len,
                     .string_bytes = b->strings.len,
                     .signature = abi_cuda_signature()};
  h.functions = (sizeof h + 7) / 8 * 8;
  h.images = (h.functions + b->functions.len * sizeof(AbiCudaFunction) + 7) / 8 * 8;
  h.strings = h.images + b->images.len * sizeof(AbiCudaImage);
  uint64_t bytes =
      (h.strings + b->strings.len + ABI_CUDA_ALIGN - 1) / ABI_CUDA_ALIGN * ABI_CUDA_ALIGN;
  h.size = bytes + b->bytes.len;
  for (uint32_t i = 0; i < b->images.len; i++) b->images.data[i].offset += bytes;
  strbuf_put_n(&out, (const char *)&h, sizeof h);
  align(&out, 8);
  if (b->functions.len)
    strbuf_put_n(&out, (const char *)b->functions.data, b->functions.len * sizeof(AbiCudaFunction));
  align(&out, 8);
  if (b->images.len)
    strbuf_put_n(&out, (const char *)b->images.data, b->images.len * sizeof(AbiCudaImage));
  strbuf_put_n(&out, b->strings.text, b->strings.len);
  align(&out, ABI_CUDA_ALIGN);
  if (b->bytes.len) strbuf_put_n(&out, b->bytes.text, b->bytes.len);
  h.digest = abi_cuda_digest((const unsigned char *)out.text);
  memcpy(out.text, &h, sizeof h);
  p->blob = out.text;
  p->blob_size = out.len;
}

/* What a module is compiled to for an architecture. */
static NvrtcJob job_of(Arena *arena, const CudaProgram *p, const CudaModule *m, const char *text,
                       const ArchPlan *arch) {
  /* What is computed in several kernels, or again, is the same to the bit in each: a kernel of ours
   * contracts nothing, for what stands beside a product depends on what was fused. */
  return (NvrtcJob){.file = m->file,
                    .what = arena_printf(arena, "kernel %s", m->name),
                    .text = text,
                    .headers = p->headers.data,
                    .nheaders = p->headers.len,
                    .arch = arch->number,
                    .binary = arch->binary,
                    .exact = m->kernel != NULL};
}

/* Whether the runtime can call what was edited. */
static bool check_edited(Nvrtc *n, Arena *arena, const CudaProgram *p, const CudaModule *m,
                         const ArchPlan *arch, const char **error) {
  if (!m->edited) return true;
  if (m->kernel) return check_kernel(arena, m, error);
  NvrtcJob made = job_of(arena, p, m, m->made, arch);
  made.binary = false;
  return nvrtc_compile(n, arena, &made, 1, error) && check_library(arena, m, made.ptx, error);
}

bool cuda_program_compile(Arena *arena, CudaProgram *p, const CudaOptions *options,
                          const char **error) {
  Nvrtc *n = nvrtc_open(arena, error);
  CudaTarget target = options->target;
  if (!n || !choose_archs(arena, n, &target, error) ||
      !check_tensor_cores(arena, p, &target, error))
    return false;
  ArchPlan plan[CUDA_MAX_ARCHS];
  uint32_t narchs = plan_archs(&target, plan), njobs = 0;
  NvrtcJob *jobs = ARENA_ARRAY(arena, NvrtcJob, p->modules.len * narchs + 1);
  for (uint32_t i = 0; i < p->modules.len; i++)
    for (uint32_t a = 0; a < narchs; a++) {
      const CudaModule *m = &p->modules.data[i];
      jobs[njobs++] = job_of(arena, p, m, m->bare, &plan[a]);
    }
  if (!nvrtc_compile(n, arena, jobs, njobs, error)) return false;
  Blob b = {.arena = arena};
  strbuf_init(&b.strings, arena);
  strbuf_init(&b.bytes, arena);
  add_string(&b, "");
  for (uint32_t i = 0; i < p->modules.len; i++) {
    CudaModule *m = &p->modules.data[i];
    const NvrtcJob *mine = &jobs[i * narchs];
    m->ptx = mine[0].ptx;
    if (!check_edited(n, arena, p, m, &plan[0], error)) return false;
    for (uint32_t a = 0; a < narchs; a++) {
      if (plan[a].binary)
        add_image(&b, i, plan[a].number, ABI_CUDA_CUBIN, mine[a].cubin, mine[a].cubin_size);
      if (plan[a].ptx)
        add_image(&b, i, plan[a].number, ABI_CUDA_PTX, mine[a].ptx, mine[a].ptx_size + 1);
    }
  }
  add_functions(&b, p);
  finish(&b, p);
  return true;
}
