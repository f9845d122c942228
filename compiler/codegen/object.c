/* object: see object.h. A relocatable file of ELF (System V ABI, chapters 4 and 5): constants in
 * .rodata, each a symbol of its own, and one address, of the function that opens the device.
 */
#include "codegen/object.h"

#include <elf.h>
#include <string.h>

#include "base/str.h"

#if defined(__x86_64__)
enum { MACHINE = EM_X86_64, ADDRESS = R_X86_64_64 };
#elif defined(__aarch64__) && defined(__AARCH64EL__)
enum { MACHINE = EM_AARCH64, ADDRESS = R_AARCH64_ABS64 };
#else
enum { MACHINE = EM_NONE, ADDRESS = 0 };
#endif

enum Section { NONE, CONSTANTS, RELOCATED, RELOCATIONS, SYMBOLS, NAMES, TITLES, STACK, NSECTIONS };

enum { ALIGN = 64, NSYMBOLS = 10 };

typedef struct Object {
  StrBuf content[NSECTIONS];
  Elf64_Sym symbol[NSYMBOLS]; /* the first is none */
  uint32_t nsymbols;
} Object;

static size_t aligned(size_t at) {
  return (at + ALIGN - 1) / ALIGN * ALIGN;
}

static void pad(StrBuf *to, size_t align) {
  static const char zeros[ALIGN];
  if (to->len % align) strbuf_put_n(to, zeros, align - to->len % align);
}

/* The number of the symbol. */
static uint32_t add_symbol(Object *o, const char *name, enum Section section, uint64_t at,
                           uint64_t size) {
  StrBuf *names = &o->content[NAMES];
  o->symbol[o->nsymbols] =
      (Elf64_Sym){.st_name = (Elf64_Word)names->len,
                  .st_info = ELF64_ST_INFO(STB_GLOBAL, section == NONE ? STT_NOTYPE : STT_OBJECT),
                  .st_shndx = (Elf64_Section)section,
                  .st_value = at,
                  .st_size = size};
  strbuf_put_n(names, name, strlen(name) + 1);
  return o->nsymbols++;
}

static void add_constant(Object *o, const char *name, const void *bytes, size_t size) {
  StrBuf *to = &o->content[CONSTANTS];
  pad(to, ALIGN);
  add_symbol(o, name, CONSTANTS, to->len, size);
  strbuf_put_n(to, bytes, size);
}

/* Bytes, at least one, and how many there are. */
static void add_bytes(Object *o, const char *name, const char *count, const void *bytes,
                      size_t size) {
  uint64_t n = size;
  add_constant(o, name, size ? bytes : "", size ? size : 1);
  add_constant(o, count, &n, sizeof n);
}

static void add_device(Object *o, const char *function) {
  const uint64_t address = 0;
  add_symbol(o, "dtm_open_device", RELOCATED, 0, sizeof address);
  uint32_t target = add_symbol(o, function, NONE, 0, 0);
  const Elf64_Rela relocation = {.r_info = ELF64_R_INFO((uint64_t)target, ADDRESS)};
  strbuf_put_n(&o->content[RELOCATED], (const char *)&address, sizeof address);
  strbuf_put_n(&o->content[RELOCATIONS], (const char *)&relocation, sizeof relocation);
}

static const struct {
  const char *title;
  Elf64_Shdr header;
} sections[NSECTIONS] = {
    [NONE] = {"", {.sh_type = SHT_NULL}},
    [CONSTANTS] = {".rodata",
                   {.sh_type = SHT_PROGBITS, .sh_flags = SHF_ALLOC, .sh_addralign = ALIGN}},
    [RELOCATED] = {".data.rel.ro",
                   {.sh_type = SHT_PROGBITS,
                    .sh_flags = SHF_ALLOC | SHF_WRITE,
                    .sh_addralign = sizeof(uint64_t)}},
    [RELOCATIONS] = {".rela.data.rel.ro",
                     {.sh_type = SHT_RELA,
                      .sh_flags = SHF_INFO_LINK,
                      .sh_link = SYMBOLS,
                      .sh_info = RELOCATED,
                      .sh_addralign = sizeof(uint64_t),
                      .sh_entsize = sizeof(Elf64_Rela)}},
    [SYMBOLS] = {".symtab",
                 {.sh_type = SHT_SYMTAB,
                  .sh_link = NAMES,
                  .sh_info = 1, /* the first that is global */
                  .sh_addralign = sizeof(uint64_t),
                  .sh_entsize = sizeof(Elf64_Sym)}},
    [NAMES] = {".strtab", {.sh_type = SHT_STRTAB, .sh_addralign = 1}},
    [TITLES] = {".shstrtab", {.sh_type = SHT_STRTAB, .sh_addralign = 1}},
    [STACK] = {".note.GNU-stack", {.sh_type = SHT_PROGBITS, .sh_addralign = 1}},
};

/* Where each section lies, behind the header; where they end. */
static size_t place(Object *o, Elf64_Shdr table[NSECTIONS]) {
  StrBuf *titles = &o->content[TITLES];
  for (int i = 0; i < NSECTIONS; i++) {
    table[i] = sections[i].header;
    table[i].sh_name = (Elf64_Word)titles->len;
    strbuf_put_n(titles, sections[i].title, strlen(sections[i].title) + 1);
  }
  size_t at = sizeof(Elf64_Ehdr);
  for (int i = 0; i < NSECTIONS; i++) {
    at = aligned(at);
    table[i].sh_offset = i ? at : 0;
    table[i].sh_size = o->content[i].len;
    at += o->content[i].len;
  }
  return at;
}

/* Header, contents, table of sections. */
static void assemble(Object *o, StrBuf *out) {
  Elf64_Shdr table[NSECTIONS];
  Elf64_Ehdr header = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB,
                                   EV_CURRENT, ELFOSABI_NONE},
                       .e_type = ET_REL,
                       .e_machine = MACHINE,
                       .e_version = EV_CURRENT,
                       .e_ehsize = sizeof header,
                       .e_shentsize = sizeof(Elf64_Shdr),
                       .e_shnum = NSECTIONS,
                       .e_shstrndx = TITLES};
  header.e_shoff = aligned(place(o, table));
  strbuf_put_n(out, (const char *)&header, sizeof header);
  for (int i = 0; i < NSECTIONS; i++) {
    pad(out, ALIGN);
    if (o->content[i].len) strbuf_put_n(out, o->content[i].text, o->content[i].len);
  }
  pad(out, ALIGN);
  strbuf_put_n(out, (const char *)table, sizeof table);
}

bool object_of_image(Arena *arena, const CodegenImage *image, CodegenPiece *out) {
  if (MACHINE == EM_NONE) return false;
  Object o = {.nsymbols = 1};
  StrBuf whole;
  const uint64_t none = 0;
  for (int i = 0; i < NSECTIONS; i++) strbuf_init(&o.content[i], arena);
  strbuf_init(&whole, arena);
  strbuf_put_n(&o.content[NAMES], "", 1);
  add_constant(&o, "dtm_kernels", &none, sizeof none);
  add_constant(&o, "dtm_kernels_count", &none, sizeof none);
  add_constant(&o, "dtm_cpu_features", "", 1);
  add_bytes(&o, "dtm_image", "dtm_image_size", image->data, image->size);
  add_bytes(&o, "dtm_cuda", "dtm_cuda_size", image->cuda, image->cuda_size);
  add_device(&o, "dtm_cuda_open");
  strbuf_put_n(&o.content[SYMBOLS], (const char *)o.symbol, o.nsymbols * sizeof *o.symbol);
  assemble(&o, &whole);
  *out = (CodegenPiece){whole.text, whole.len};
  return true;
}
