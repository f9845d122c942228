/* Modules: parse, place the variables, decode every entry. */
#include "ptx_code.h"

#include <stdlib.h>
#include <string.h>

#include "ptx_lanes.h"

static void place_globals(PtxModule *module, const PtxTree *tree) {
  const PtxVariables *list = &tree->variables;
  for (uint32_t i = 0; i < list->len; i++) {
    const PtxVariable *v = &list->data[i];
    if (v->space != SPACE_GLOBAL && v->space != SPACE_CONST) continue;
    size_t align = v->align < 256 ? 256 : v->align;
    void *base = aligned_alloc(align, (v->bytes / align + 1) * align);
    if (!base) abort();
    memset(base, 0, v->bytes);
    if (v->initial) memcpy(base, v->initial, v->bytes);
    ptx_memory_add(module->memory, base, v->bytes, v->name);
    PtxRegion *region = ptx_memory_find(module->memory, (uint64_t)(uintptr_t)base);
    if (region) { /* static storage is zero; one of no bytes is not found */
      ptx_region_mark(region, 0, v->bytes);
      region->read_only = v->space == SPACE_CONST;
      region->recorded = !region->read_only;
    }
    VEC_PUSH(&module->arena, &module->globals, (PtxGlobal){v->name, base, v->bytes});
  }
}

static bool decode_all(PtxModule *module, const PtxTree *tree, Arena *scratch, PtxError *error) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < tree->routines.len; i++)
    n += tree->routines.data[i].entry && tree->routines.data[i].body;
  VEC_RESERVE(&module->arena, &module->functions, n);
  for (uint32_t i = 0; i < tree->routines.len; i++) {
    const PtxRoutine *r = &tree->routines.data[i];
    if (!r->entry || !r->body) continue;
    PtxFunction function = {0};
    if (!ptx_decode(module, tree, r, scratch, &function, error)) return false;
    VEC_PUSH(&module->arena, &module->functions, function);
  }
  module->nfiles = tree->files.len;
  module->files = ARENA_ARRAY(&module->arena, const char *, module->nfiles + 1);
  for (uint32_t i = 0; i < module->nfiles; i++) module->files[i] = tree->files.data[i];
  return true;
}

static PtxNames *names_of(PtxMemory *memory) {
  if (memory->names) return memory->names;
  PtxNames *names = memory->names = calloc(1, sizeof *names);
  if (!names) abort();
  arena_init(&names->arena);
  arena_init(&names->scratch);
  interner_init(&names->interner, &names->arena);
  for (const PtxRow *row = ptx_lanes_table(); row->name; row++)
    name_map_put(&names->arena, &names->rows, intern(&names->interner, row->name),
                 (void *)(uintptr_t)row);
  return names;
}

void ptx_names_free(PtxNames *names) {
  if (!names) return;
  arena_free(&names->arena);
  arena_free(&names->scratch);
  free(names);
}

PtxModule *ptx_module_load(PtxMemory *memory, const char *text, char **error) {
  PtxModule *module = calloc(1, sizeof *module);
  if (!module) abort();
  PtxNames *names = names_of(memory);
  PtxTree tree = {0};
  arena_init(&module->arena);
  module->memory = memory;
  PtxError first = {.arena = &module->arena};
  bool ok = ptx_parse(&tree, text, &names->scratch, &names->interner, &first);
  if (ok) {
    place_globals(module, &tree);
    ok = decode_all(module, &tree, &names->scratch, &first);
  }
  arena_reset(&names->scratch);
  if (ok) return module;
  *error = strdup(first.text);
  ptx_module_free(module);
  return NULL;
}

void ptx_module_free(PtxModule *module) {
  if (!module) return;
  for (uint32_t i = 0; i < module->globals.len; i++) {
    ptx_memory_remove(module->memory, module->globals.data[i].address);
    free(module->globals.data[i].address);
  }
  arena_free(&module->arena);
  free(module);
}

const PtxFunction *ptx_module_find(const PtxModule *module, const char *entry) {
  for (uint32_t i = 0; i < module->functions.len; i++)
    if (!strcmp(module->functions.data[i].info.name, entry)) return &module->functions.data[i];
  return NULL;
}

bool ptx_module_global(const PtxModule *module, const char *name, void **address, size_t *bytes) {
  for (uint32_t i = 0; i < module->globals.len; i++)
    if (!strcmp(module->globals.data[i].name, name)) {
      *address = module->globals.data[i].address;
      *bytes = module->globals.data[i].bytes;
      return true;
    }
  return false;
}

const PtxInfo *ptx_function_info(const PtxFunction *function) {
  return &function->info;
}
