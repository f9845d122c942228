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

static bool is_letter(char c) {
  return isalnum((unsigned char)c) || c == '_';
}

/* Whether `text` has the name as a word, which a member such as that of threadIdx.x is not. */
static bool has_word(const char *text, const char *name) {
  size_t n = strlen(name);
  for (const char *p = text; (p = strstr(p, name)); p += n)
    if ((p == text || (!is_letter(p[-1]) && p[-1] != '.')) && !is_letter(p[n])) return true;
  return false;
}

/* Names as the compiler and dtm.cuh have them. */
static bool is_reserved(const char *name) {
  return strncmp(name, "__", 2) == 0 || strncmp(name, "dtm_", 4) == 0 ||
         strncmp(name, "DTM_", 4) == 0;
}

/* Names that mean something in C++ or in the text of this kernel, which `bare` is without names of
 * the source: types, functions and variables of ours among them. */
static bool is_taken(const char *name, const char *bare) {
  static const char words[] =
      "alignas alignof and and_eq asm assert auto bitand bitor bool break case catch char "
      "char16_t char32_t class compl const const_cast constexpr continue decltype default "
      "delete do double dynamic_cast else enum explicit export extern false float for "
      "friend goto if inline int linux long mutable namespace new noexcept not not_eq "
      "nullptr operator or or_eq private protected public register reinterpret_cast return "
      "short signed sizeof static static_assert static_cast struct switch template this "
      "thread_local throw true try typedef typeid typename union unix unsigned using "
      "virtual void volatile wchar_t while xor xor_eq NULL NAN INFINITY";
  return has_word(words, name) || (bare && has_word(bare, name));
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
    if (is_reserved(name)) name = arena_printf(t->arena, "x%s", name);
    while (is_taken(name, t->bare)) name = arena_printf(t->arena, "%s_", name);
    const char *plain = name;
    for (uint32_t copy = 2, j = 0; j < i; j++) {
      if (strcmp(t->buf[j], name) != 0) continue;
      name = arena_printf(t->arena, "%s_%u", plain, copy++);
      j = UINT32_MAX; /* again, from the first */
    }
    t->buf[i] = name;
  }
}

/* "sum" of "k3_sum". */
static const char *hint_of(const Kernel *k) {
  const char *p = k->name ? k->name : "kernel";
  if (p[0] != 'k' || !isdigit((unsigned char)p[1])) return p;
  const char *q = p + 1;
  while (isdigit((unsigned char)*q)) q++;
  return *q == '_' && q[1] ? q + 1 : p;
}

const char *cuda_entry(Arena *arena, const Kernel *k) {
  return spelled(arena, arena_printf(arena, "k_%s", hint_of(k)));
}
