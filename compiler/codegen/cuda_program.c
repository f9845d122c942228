/* The modules of a program: texts of kernels, instances of library files, what was edited by hand.
 * See cuda_program.h. */
#include "codegen/cuda_program.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/abi/image.h"

/* --- --target ---- */

static const char *parse_arch(Arena *arena, const char *word, CudaTarget *out) {
  bool binary = strncmp(word, "sm_", 3) == 0;
  const char *digits = binary ? word + 3 : strncmp(word, "compute_", 8) == 0 ? word + 8 : "";
  if (strcmp(word, "native") == 0)
    return "the chip it will run on is not known here; name it, as in cuda:sm_90";
  size_t n = strspn(digits, "0123456789");
  if (n && (digits[n] == 'a' || digits[n] == 'f') && !digits[n + 1])
    return arena_printf(arena,
                        "'%s' stands for what that chip or its family alone has, and nothing here "
                        "makes use of it; name %.*s",
                        word, (int)strlen(word) - 1, word);
  if (!n || n > 4 || digits[n])
    return arena_printf(arena,
                        "'%s' is no chip; they are named like sm_90, or compute_90 for PTX, which "
                        "later chips translate",
                        word);
  if (out->narchs == CUDA_MAX_ARCHS) return "those are too many chips";
  out->arch[out->narchs++] = (CudaArch){(uint32_t)strtoul(digits, NULL, 10), binary};
  return NULL;
}

const char *cuda_target_parse(Arena *arena, const char *text, CudaTarget *out) {
  *out = (CudaTarget){0};
  const char *fault = *text && *text != ':' ? "it takes cpu, cuda or cuda:CHIP,..." : NULL;
  while (*text && !fault) {
    size_t n = strcspn(text + 1, ",");
    fault = parse_arch(arena, arena_strndup(arena, text + 1, n), out);
    text += 1 + n;
  }
  return fault;
}

/* --- files ---- */

/* The text of a file; NULL and the reason where there is none. A pipe would be waited for, and what
 * stands behind a NUL would be lost without a word. *missing (NULL: not asked): no such file. */
static char *read_file(Arena *arena, const char *path, bool *missing, const char **why) {
  struct stat s;
  StrBuf sb;
  strbuf_init(&sb, arena);
  bool found = stat(path, &s) == 0, plain = found && S_ISREG(s.st_mode);
  if (missing) *missing = !found && errno == ENOENT;
  FILE *f = plain ? fopen(path, "rb") : NULL;
  if (!f) {
    *why = found && !plain ? "it is no plain file" : strerror(errno);
    return NULL;
  }
  char piece[4096];
  errno = 0;
  for (size_t n; (n = fread(piece, 1, sizeof piece, f)) > 0;) strbuf_put_n(&sb, piece, n);
  *why = ferror(f)                   ? strerror(errno)
         : sb.len != strlen(sb.text) ? "there is a NUL byte in it, which no text has"
                                     : NULL;
  fclose(f);
  return *why ? NULL : sb.text;
}

typedef VEC(const char *) Names;

static int by_name(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Adds names in a folder that end so; all are sorted. False with errno set. */
static bool list_files(Arena *arena, const char *folder, const char *end, Names *out) {
  DIR *dir = opendir(folder);
  struct dirent *e;
  if (!dir) return false;
  while ((e = readdir(dir))) {
    size_t n = strlen(e->d_name), m = strlen(end);
    if (n > m && strcmp(e->d_name + n - m, end) == 0)
      VEC_PUSH(arena, out, arena_strdup(arena, e->d_name));
  }
  closedir(dir);
  if (out->len) qsort(out->data, out->len, sizeof *out->data, by_name);
  return true;
}

static bool has_name(const Names *names, const char *name) {
  for (uint32_t i = 0; i < names->len; i++)
    if (strcmp(names->data[i], name) == 0) return true;
  return false;
}

/* Adds the headers in the folder of --load-cuda that the library does not have. */
static void add_own_headers(Arena *arena, const char *folder, Names *names) {
  Names own = {0};
  if (!list_files(arena, folder, ".cuh", &own) || !list_files(arena, folder, ".h", &own))
    return; /* take_edited says why */
  for (uint32_t i = 0; i < own.len; i++)
    if (!has_name(names, own.data[i])) VEC_PUSH(arena, names, own.data[i]);
}

/* A header of --load-cuda beside that of the library: what the runtime passes to kernels must be
 * declared as when that was compiled. */
static bool check_header(Arena *arena, CudaProgram *p, const char *text, const char *path,
                         const char *made, const char **error) {
  const char *why, *same = read_file(arena, made, NULL, &why);
  size_t n = strlen(path), m = strlen("_args.h");
  if (!same || strcmp(text, same) == 0) return true;
  p->other_headers = true;
  if (n <= m || strcmp(path + n - m, "_args.h") != 0) return true;
  *error = arena_printf(arena,
                        "--load-cuda: %s is not as this dtmc has it, and must be: the runtime "
                        "passes what it declares; write it anew with --emit=cuda",
                        path);
  return false;
}

/* dtm.cuh and what else library files include; those of --load-cuda come first, with others that
 * lie there for the edited texts to include. */
static bool read_headers(Arena *arena, CudaProgram *p, const CudaOptions *o, const char **error) {
  const char *folder = arena_printf(arena, "%s/cuda", o->library);
  Names names = {0};
  if (!list_files(arena, folder, ".cuh", &names) || !list_files(arena, folder, ".h", &names) ||
      !names.len) {
    *error = arena_printf(arena, "%s/dtm.cuh is missing; is dtmc installed completely?", folder);
    return false;
  }
  if (o->edited) add_own_headers(arena, o->edited, &names);
  for (uint32_t i = 0; i < names.len; i++) {
    const char *name = names.data[i], *text = NULL, *why;
    bool missing = true;
    const char *path = o->edited ? arena_printf(arena, "%s/%s", o->edited, name) : NULL;
    if (path) text = read_file(arena, path, &missing, &why);
    if (text) VEC_PUSH(arena, &p->read, path);
    const char *made = arena_printf(arena, "%s/%s", folder, name);
    if (text && !check_header(arena, p, text, path, made, error)) return false;
    if (!text && missing) {
      path = made;
      text = read_file(arena, path, NULL, &why);
    }
    if (!text) {
      *error =
          arena_printf(arena, "%scannot read %s: %s", missing ? "" : "--load-cuda: ", path, why);
      return false;
    }
    NvrtcHeader h = {name, text};
    VEC_PUSH(arena, &p->headers, h);
  }
  return true;
}

/* --- kernels ---- */

static void put_type(StrBuf *out, const Image *im, const AbiBuffer *b) {
  if (!b->type) {
    strbuf_puts(out, b->offset == ABI_STEP_OFFSET ? "step" : "parts");
    return;
  }
  static const char *const names[] = {"",
#define X(id, name, bytes, st) name,
                                      ABI_DTYPES(X)
#undef X
  };
  const AbiType *t = &im->type[b->type];
  strbuf_printf(out, "%s[", names[t->dtype]);
  for (uint32_t d = 0; d < t->rank; d++)
    strbuf_printf(out, "%s%lld", d ? ", " : "", (long long)t->shape[d]);
  strbuf_putc(out, ']');
}

/* Which actions run each kernel: "add h, mlp.dtm:9:3: f32[8, 4], f32[4] -> f32[8, 4]". */
static const char **find_uses(Arena *arena, const Image *im, uint32_t nkernels) {
  enum { MOST = 20 };
  StrBuf *text = ARENA_ARRAY(arena, StrBuf, nkernels + 1);
  uint32_t *count = ARENA_ARRAY(arena, uint32_t, nkernels + 1);
  for (uint64_t i = 0; i < im->action_count; i++) {
    const AbiAction *a = &im->action[i];
    if (a->kind != ABI_KERNEL || count[a->code]++ >= MOST) continue;
    StrBuf *out = &text[a->code];
    if (!out->text) strbuf_init(out, arena);
    strbuf_printf(out, "%s%s, %s:", out->len ? "\n  " : "Shapes are those of the whole mesh.\n  ",
                  abi_text(im, a->name), abi_text(im, a->source));
    for (int written = 0; written < 2; written++) {
      const char *between = written ? " -> " : " ";
      for (uint32_t b = 0; b < a->nbuffers; b++) {
        const AbiBuffer *buffer = &im->buffer[a->buffers + b];
        if ((buffer->written != 0) != (written != 0)) continue;
        strbuf_puts(out, between);
        between = ", ";
        put_type(out, im, buffer);
      }
    }
  }
  const char **uses = ARENA_ARRAY(arena, const char *, nkernels + 1);
  for (uint32_t k = 0; k < nkernels; k++) {
    if (count[k] > MOST) strbuf_printf(&text[k], "\n  and %u more", count[k] - MOST);
    uses[k] = text[k].text;
  }
  return uses;
}

/* Kernels that the optimizer calls for several parameters: the runtime makes one launch of these.
 */
static bool *find_many(Arena *arena, const Image *im, uint32_t nkernels) {
  uint32_t *count = ARENA_ARRAY(arena, uint32_t, nkernels + 1);
  bool *many = ARENA_ARRAY(arena, bool, nkernels + 1);
  for (uint64_t i = 0; i < im->action_count; i++)
    if (im->action[i].kind == ABI_KERNEL && im->action[i].phase == ABI_OPTIMIZER)
      count[im->action[i].code]++;
  for (uint32_t k = 0; k < nkernels; k++) many[k] = count[k] > 1;
  return many;
}

static void add_kernels(Arena *arena, CudaProgram *p, Kernel *const *kernels, uint32_t n,
                        const Image *im, const Sources *sources) {
  const char **uses = find_uses(arena, im, n);
  const bool *many = find_many(arena, im, n);
  for (uint32_t i = 0; i < n; i++) {
    StrBuf text, bare;
    strbuf_init(&text, arena);
    strbuf_init(&bare, arena);
    CudaTextOptions options = {.about = uses[i], .many = many[i]};
    cuda_text(&bare, arena, kernels[i], &options);
    options.bare = bare.text;
    options.sources = sources;
    cuda_text(&text, arena, kernels[i], &options);
    CudaModule m = {.name = kernels[i]->name,
                    .text = text.text,
                    .bare = bare.text,
                    .file = arena_printf(arena, "%s.cu", cuda_entry(arena, kernels[i])),
                    .kernel = kernels[i],
                    .many = many[i]};
    VEC_PUSH(arena, &p->modules, m);
  }
}

/* --- instances of library files ---- */

/* The defines "-DT=float -DSIZE=64" as lines, then the file. */
static bool add_instance(Arena *arena, CudaProgram *p, const AbiCudaInstance *in,
                         const char *library, const char **error) {
  const char *name = arena_printf(arena, "%s%s", in->file, in->suffix);
  for (uint32_t i = 0; i < p->modules.len; i++)
    if (!p->modules.data[i].kernel && strcmp(p->modules.data[i].name, name) == 0) return true;
  const char *path = arena_printf(arena, "%s/cuda/%s.cu", library, in->file);
  const char *why, *source = read_file(arena, path, NULL, &why);
  if (!source) {
    *error = arena_printf(arena, "cannot read %s: %s; is dtmc installed completely?", path, why);
    return false;
  }
  StrBuf sb;
  strbuf_init(&sb, arena);
  strbuf_printf(&sb, "#define DTM_SUFFIX %s\n", in->suffix);
  for (const char *d = in->defines; *d;) {
    size_t n = strcspn(d, " "), equals = strcspn(d, "=");
    if (n > 2) {
      bool valued = equals < n;
      strbuf_printf(&sb, "#define %.*s %.*s\n", (int)((valued ? equals : n) - 2), d + 2,
                    valued ? (int)(n - equals - 1) : 1, valued ? d + equals + 1 : "1");
    }
    d += n + (d[n] == ' ');
  }
  strbuf_puts(&sb, source);
  CudaModule m = {
      .name = name, .text = sb.text, .bare = sb.text, .file = arena_printf(arena, "%s.cu", name)};
  VEC_PUSH(arena, &p->modules, m);
  return true;
}

static bool add_instances(Arena *arena, CudaProgram *p, const Image *im, const char *library,
                          const char **error) {
  for (uint64_t i = 0; i < im->action_count; i++) {
    AbiCudaInstance needed[ABI_CUDA_MAX_INSTANCES];
    uint32_t n = abi_cuda_instances(im, &im->action[i], needed);
    for (uint32_t j = 0; j < n; j++)
      if (!add_instance(arena, p, &needed[j], library, error)) return false;
  }
  return true;
}

/* --- --load-cuda ---- */

/* The comment that says what a kernel computes, as put at the head of its text; NULL where there is
 * none. */
static const char *head_of(Arena *arena, const char *text) {
  const char *head = strstr(text, "/* kernel "), *end = head ? strstr(head, "*/") : NULL;
  return end ? arena_strndup(arena, head + 2, (size_t)(end - head - 2)) : NULL;
}

typedef struct Line {
  const char *text;
  int len;
} Line;

/* Takes a line of a comment, without spaces around what it says. */
static Line take_line(const char **at) {
  const char *from = *at + strspn(*at, " *"), *end = from + strcspn(from, "\n");
  *at = end + (*end == '\n');
  while (end > from && (end[-1] == ' ' || end[-1] == '\r')) end--;
  return (Line){from, (int)(end - from)};
}

/* With a text of another kernel, be it edited or not, a change of the source would be lost without
 * a word: what differs in the heads, or NULL. */
static const char *head_differs(Arena *arena, const char *text, const char *made) {
  const char *old = head_of(arena, text), *now = head_of(arena, made);
  while (old && now && (*old || *now)) {
    Line a = take_line(&old), b = take_line(&now);
    if (a.len != b.len || memcmp(a.text, b.text, (size_t)a.len) != 0)
      return arena_printf(arena, "'%.*s' is '%.*s' now", a.len, a.text, b.len, b.text);
  }
  return NULL;
}

static CudaModule *find_module(CudaProgram *p, const char *file) {
  size_t n = strlen(file) - strlen(".cu");
  for (uint32_t i = 0; i < p->modules.len; i++) {
    const char *name = p->modules.data[i].name;
    if (strlen(name) == n && strncmp(name, file, n) == 0) return &p->modules.data[i];
  }
  return NULL;
}

/* A .cu of the folder. */
static bool take_file(Arena *arena, CudaProgram *p, const char *folder, const char *file,
                      const char **error) {
  const char *path = arena_printf(arena, "%s/%s", folder, file), *why;
  CudaModule *m = find_module(p, file);
  if (!m) {
    *error = arena_printf(arena,
                          "--load-cuda: %s is no kernel of this program as it is compiled now; "
                          "see what there is with --emit=cuda",
                          path);
    return false;
  }
  const char *text = read_file(arena, path, NULL, &why);
  if (!text) {
    *error = arena_printf(arena, "--load-cuda: cannot read %s: %s", path, why);
    return false;
  }
  VEC_PUSH(arena, &p->read, path);
  if (strcmp(text, m->text) == 0) return true; /* as it was made */
  const char *differs = m->kernel ? head_differs(arena, text, m->text) : NULL;
  if (differs) {
    *error = arena_printf(arena,
                          "--load-cuda: %s was made before its kernel changed: in the comment at "
                          "its head %s; write it anew with --emit=cuda, to another folder, and "
                          "edit that, or remove the comment to have the file taken as it is",
                          path, differs);
    return false;
  }
  m->made = m->bare;
  m->text = m->bare = text;
  m->file = path;
  m->edited = true;
  return true;
}

static bool take_edited(Arena *arena, CudaProgram *p, const char *folder, const char **error) {
  Names names = {0}, headers = {0};
  if (!list_files(arena, folder, ".cu", &names)) {
    *error =
        arena_printf(arena, "--load-cuda: cannot read the folder %s: %s", folder, strerror(errno));
    return false;
  }
  if (!names.len && list_files(arena, folder, ".cuh", &headers) &&
      list_files(arena, folder, ".h", &headers) && !headers.len) {
    *error = arena_printf(arena,
                          "--load-cuda: the folder %s holds no .cu, .cuh or .h; --emit=cuda -o "
                          "FOLDER/ writes what can be edited",
                          folder);
    return false;
  }
  for (uint32_t i = 0; i < names.len; i++)
    if (!take_file(arena, p, folder, names.data[i], error)) return false;
  return true;
}

/* Whether two PTX are for one chip and of one NVRTC, so that one text gives the same. */
static bool comparable(const char *a, const char *b) {
  const char *end = strstr(a, ".address_size");
  return end && strncmp(a, b, (size_t)(end - a)) == 0;
}

const char *cuda_program_unread(Arena *arena, const CudaProgram *p, const CudaOptions *options) {
  if (!options->edited || p->other_headers) return NULL;
  for (uint32_t i = 0; i < p->modules.len; i++) {
    const CudaModule *m = &p->modules.data[i];
    const char *path = arena_printf(arena, "%s/%s.ptx", options->edited, m->name), *why;
    const char *there = m->edited ? NULL : read_file(arena, path, NULL, &why);
    if (there && comparable(there, m->ptx) && strcmp(there, m->ptx) != 0) return path;
  }
  return NULL;
}

CudaProgram *cuda_program(Arena *arena, Kernel *const *kernels, uint32_t nkernels,
                          const unsigned char *image, size_t image_size, const CudaOptions *options,
                          const char **error) {
  CudaProgram *p = ARENA_NEW(arena, CudaProgram);
  Image im;
  const char *fault = abi_image_open(image, image_size, &im);
  if (fault) {
    *error = arena_printf(arena, "the plan is damaged: %s", fault);
    return NULL;
  }
  if (!read_headers(arena, p, options, error)) return NULL;
  add_kernels(arena, p, kernels, nkernels, &im, options->sources);
  if (!add_instances(arena, p, &im, options->library, error)) return NULL;
  if (options->edited && !take_edited(arena, p, options->edited, error)) return NULL;
  return p;
}
