/* Names in the text of a kernel: types, buffers, the entry. */
#include "codegen/cuda_text.h"

#include <ctype.h>
#include <string.h>

const char *cuda_type(DType compute) {
  switch (compute) {
  case DT_F64:
    return "double";
  case DT_F32:
  case DT_BF16:
  case DT_F16:
  case DT_F8_E4M3:
  case DT_F8_E5M2:
    return "float";
  case DT_I64:
    return "int64_t";
  case DT_I32:
    return "int32_t";
  case DT_I16:
    return "int16_t";
  case DT_I8:
    return "int8_t";
  case DT_U8:
    return "uint8_t";
  case DT_BOOL:
  case DT_NONE:
  case DT_COUNT:
    break;
  }
  return "bool";
}

const char *cuda_storage(DType storage) {
  switch (storage) {
  case DT_BF16:
    return "dtm_bf16";
  case DT_F16:
    return "dtm_f16";
  case DT_F8_E4M3:
    return "dtm_f8_e4m3";
  case DT_F8_E5M2:
    return "dtm_f8_e5m2";
  case DT_BOOL:
    return "dtm_bool";
  case DT_F64:
  case DT_F32:
  case DT_I64:
  case DT_I32:
  case DT_I16:
  case DT_I8:
  case DT_U8:
  case DT_NONE:
  case DT_COUNT:
    break;
  }
  return cuda_type(storage);
}

/* "i0", "tile3": what the text of a kernel counts. */
static bool is_counted(const char *name) {
  static const char *const words[] = {"n", "i", "v", "p", "b", "first", "tile", "held"};
  size_t letters = strcspn(name, "0123456789"), n = strlen(name);
  if (letters == n || letters + strspn(name + letters, "0123456789") < n) return false;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strlen(words[i]) == letters && strncmp(words[i], name, letters) == 0) return true;
  return false;
}

/* Words that mean something in CUDA C, or in the text of a kernel. */
static bool is_taken(const char *name) {
  static const char *const words[] = {
      "alignas",  "alignof",  "and",      "asm",       "auto",     "bool",      "break",
      "case",     "catch",    "char",     "class",     "const",    "constexpr", "continue",
      "decltype", "default",  "delete",   "do",        "double",   "else",      "enum",
      "explicit", "export",   "extern",   "false",     "float",    "for",       "friend",
      "goto",     "if",       "inline",   "int",       "long",     "mutable",   "namespace",
      "new",      "noexcept", "not",      "operator",  "or",       "private",   "protected",
      "public",   "register", "return",   "short",     "signed",   "sizeof",    "static",
      "struct",   "switch",   "template", "this",      "throw",    "true",      "try",
      "typedef",  "typeid",   "typename", "union",     "unsigned", "using",     "virtual",
      "void",     "volatile", "while",    "xor",       "task",     "tasks",     "group",
      "lane",     "step",     "first",    "rest",      "chunk",    "block",     "strip",
      "row",      "rows",     "end",      "live",      "wide",     "count",     "block_",
      "blocks_",  "call",     "calls",    "each",      "j",        "last",      "piece",
      "ncalls",   "blockIdx", "gridDim",  "threadIdx", "blockDim", "warpSize",  "int8_t",
      "int16_t",  "int32_t",  "int64_t",  "uint8_t",   "uint16_t", "uint32_t",  "uint64_t",
      "size_t",   "e",        "half",     "log",       "exp",      "kept",      "own",
      "part",     "down",     "along"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strcmp(words[i], name) == 0) return true;
  return is_counted(name) || strncmp(name, "dtm_", 4) == 0 || strncmp(name, "__", 2) == 0;
}

/* Letters, digits and underscores of a name of the source. */
static char *spelled(Arena *arena, const char *name) {
  enum { LONGEST = 40 };
  size_t n = strlen(name), skip = n > LONGEST ? n - LONGEST : 0;
  char *s = arena_printf(arena, "%s%s", isdigit((unsigned char)name[skip]) ? "_" : "", name + skip);
  for (char *p = s; *p; p++)
    if (!isalnum((unsigned char)*p) && *p != '_') *p = '_';
  return s;
}

void cuda_name_buffers(CudaText *t) {
  const Kernel *k = t->k;
  t->buf = ARENA_ARRAY(t->arena, const char *, k->nbufs + 1);
  for (uint32_t i = 0; i < k->nbufs; i++) {
    const char *name = k->buf_names && t->sources ? k->buf_names[i] : NULL;
    t->buf[i] = arena_printf(t->arena, "b%u", i);
    if (!name || !*name) continue;
    name = spelled(t->arena, name);
    if (is_taken(name)) name = arena_printf(t->arena, "%s_", name);
    const char *plain = name;
    for (uint32_t copy = 2, j = 0; j < i; j++) {
      if (strcmp(t->buf[j], name) != 0) continue;
      name = arena_printf(t->arena, "%s_%u", plain, copy++);
      j = UINT32_MAX; /* again, from the first */
    }
    t->buf[i] = name;
  }
}

const char *cuda_hint(const Kernel *k) {
  const char *p = k->name ? k->name : "kernel";
  if (p[0] != 'k' || !isdigit((unsigned char)p[1])) return p;
  const char *q = p + 1;
  while (isdigit((unsigned char)*q)) q++;
  return *q == '_' && q[1] ? q + 1 : p;
}

const char *cuda_entry(Arena *arena, const Kernel *k) {
  return spelled(arena, arena_printf(arena, "k_%s", cuda_hint(k)));
}
