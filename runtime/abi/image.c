/* Reading an image: see image.h. Every index an executor follows is checked here, so that a damaged
 * or foreign image is refused instead of followed. */
#include "runtime/abi/image.h"

#include <string.h>

int64_t abi_mesh_position(const Image *image, const AbiMesh *mesh, int32_t rank) {
  for (int64_t p = 0; p < mesh->nranks; p++)
    if (image->rank[mesh->ranks + (uint64_t)p] == rank) return p;
  return -1;
}

static int meshes_valid(const Image *im) {
  for (uint64_t i = 1; i < im->mesh_count; i++) {
    const AbiMesh *m = &im->mesh[i];
    if (m->naxes > ABI_MAX_AXES || m->nranks < 1 || m->ranks + (uint64_t)m->nranks > im->rank_count)
      return 0;
    int64_t n = 1;
    for (uint32_t a = 0; a < m->naxes; a++) {
      if (m->size[a] < 1 || m->size[a] > m->nranks / n) return 0;
      n *= m->size[a];
    }
    if (n != m->nranks) return 0;
  }
  return 1;
}

static int types_valid(const Image *im) {
  for (uint64_t i = 1; i < im->type_count; i++) {
    const AbiType *t = &im->type[i];
    if (t->dtype == 0 || t->dtype >= ABI_DTYPE_COUNT || t->rank > ABI_MAX_DIMS || t->mesh == 0 ||
        t->mesh >= im->mesh_count)
      return 0;
    for (uint32_t d = 0; d < t->rank; d++)
      if (t->shape[d] < 0 || t->shape[d] > (int64_t)1 << 60) return 0;
    for (uint32_t a = 0; a < ABI_MAX_AXES; a++)
      if (t->at[a].kind != ABI_REPLICATE && a >= im->mesh[t->mesh].naxes) return 0;
  }
  return 1;
}

static int syms_valid(const Image *im) {
  for (uint64_t i = 0; i < im->sym_count; i++) {
    const RtSym *s = &im->sym[i];
    const int before = s->a >= 0 && (uint64_t)s->a < i && s->b >= 0 && (uint64_t)s->b < i;
    switch ((RtSymOp)s->op) {
    case RT_SYM_NONE:
      return 0;
    case RT_SYM_CONST:
      break;
    case RT_SYM_COORD:
      if (s->a <= 0 || (uint64_t)s->a >= im->mesh_count || s->imm < 0 ||
          s->imm >= im->mesh[s->a].naxes)
        return 0;
      break;
    case RT_SYM_CHUNK_LENGTH:
    case RT_SYM_CHUNK_BEGIN:
      if (!before || s->imm < 1) return 0;
      break;
    case RT_SYM_IF_ZERO:
      if (!before || s->imm < 0 || (uint64_t)s->imm >= i) return 0;
      break;
    case RT_SYM_ADD:
    case RT_SYM_SUB:
    case RT_SYM_MUL:
    case RT_SYM_DIV:
    case RT_SYM_CEIL_DIV:
    case RT_SYM_MIN:
    case RT_SYM_MAX:
      if (!before) return 0;
      break;
    }
  }
  return 1;
}

static int actions_valid(const Image *im) {
  for (uint64_t i = 0; i < im->action_count; i++) {
    const AbiAction *a = &im->action[i];
    if (a->kind == ABI_ACTION_NONE || a->kind >= ABI_ACTION_COUNT || a->mesh >= im->mesh_count ||
        (uint64_t)a->buffers + a->nbuffers > im->buffer_count ||
        (uint64_t)a->args + a->nargs > im->arg_count || a->name >= im->string_count ||
        a->source >= im->string_count)
      return 0;
    if ((a->kind == ABI_KERNEL && (a->code >= im->header->nkernels || a->nargs < 2)) ||
        (a->kind == ABI_MATMUL && a->code >= im->matmul_count) ||
        (a->kind == ABI_LIBRARY && a->code >= ABI_LIB_COUNT) ||
        (a->kind == ABI_START && a->code != ABI_PULL && a->code != ABI_REDUCE_SCATTER) ||
        a->started > i ||
        (a->started && (im->action[a->started - 1].kind != ABI_START ||
                        im->action[a->started - 1].code != a->kind)) ||
        (a->kind == ABI_PULL_ROWS && a->nbuffers != 3) ||
        (a->kind == ABI_INPUT && a->code >= im->source_count) ||
        (a->kind == ABI_OUTPUT && a->code >= im->output_count) ||
        ((a->kind == ABI_POST || a->kind == ABI_TAKE) && a->code >= im->channel_count))
      return 0;
  }
  for (uint64_t i = 0; i < im->buffer_count; i++)
    if (im->buffer[i].type >= im->type_count || im->buffer[i].offset > im->header->arena_size ||
        (uint64_t)im->buffer[i].scratch * ABI_ALIGN >
            im->header->arena_size - im->buffer[i].offset ||
        (im->buffer[i].slots > 1 &&
         im->buffer[i].stride >
             (im->header->arena_size - im->buffer[i].offset) / im->buffer[i].slots))
      return 0;
  for (uint64_t i = 0; i < im->arg_count; i++)
    if (im->arg[i] >= im->sym_count) return 0;
  if (im->program_count != ABI_PROGRAM_COUNT) return 0;
  for (uint64_t i = 0; i < im->program_count; i++) {
    const AbiProgram *p = &im->program[i];
    if ((uint64_t)p->actions + p->nactions > im->action_count || p->looped > p->nactions ||
        p->loss > im->output_count || p->microbatches < 1 ||
        (uint64_t)p->prologue + p->counted > p->looped ||
        (uint64_t)p->stages + p->nstages > im->stage_count)
      return 0;
  }
  return 1;
}

static int stages_valid(const Image *im) {
  for (uint64_t i = 0; i < im->segment_count; i++)
    if ((uint64_t)im->segment[i].actions + im->segment[i].nactions > im->action_count) return 0;
  for (uint64_t i = 0; i < im->entry_count; i++)
    if (im->entry[i].segment >= im->segment_count) return 0;
  for (uint64_t i = 0; i < im->stage_count; i++) {
    const AbiStage *s = &im->stage[i];
    if (s->mesh == 0 || s->mesh >= im->mesh_count ||
        (uint64_t)s->entries + s->nentries > im->entry_count)
      return 0;
  }
  const uint64_t arena = im->header->arena_size, counts = im->header->counts_offset;
  for (uint64_t i = 0; i < im->channel_count; i++) {
    const AbiChannel *c = &im->channel[i];
    if (c->from == 0 || c->to == 0 || c->from >= im->type_count || c->to >= im->type_count ||
        c->slots == 0 || c->offset > arena || c->stride > (arena - c->offset) / c->slots)
      return 0;
  }
  return counts <= arena && im->channel_count <= (arena - counts) / ABI_CHANNEL_BYTES;
}

static int names_valid(const Image *im) {
  for (uint64_t i = 0; i < im->var_count; i++) {
    const AbiVar *v = &im->var[i];
    if (v->type == 0 || v->type >= im->type_count || v->name >= im->string_count ||
        v->foreign_name >= im->string_count || v->source >= im->string_count || v->chunks < 1)
      return 0;
  }
  for (uint64_t i = 0; i < im->source_count; i++) {
    const AbiSource *s = &im->source[i];
    if (s->type == 0 || s->type >= im->type_count || s->name >= im->string_count ||
        s->reader >= im->string_count || s->path >= im->string_count)
      return 0;
  }
  for (uint64_t i = 0; i < im->output_count; i++)
    if (im->output[i].type == 0 || im->output[i].type >= im->type_count ||
        im->output[i].name >= im->string_count ||
        (im->output[i].dim && im->output[i].dim >= im->type[im->output[i].type].rank))
      return 0;
  return 1;
}

const char *abi_image_open(const unsigned char *data, size_t size, Image *image) {
  const AbiHeader *h = (const AbiHeader *)(const void *)data;
  memset(image, 0, sizeof *image);
  if (size < sizeof *h || h->magic != ABI_MAGIC) return "the embedded program is not a dtm image";
  if (h->version != ABI_VERSION || h->signature != abi_signature())
    return "the embedded program was made by another version of dtmc";
  if (h->size != size) return "the embedded program is truncated";
  image->header = h;
#define X(name, T)                                                                                 \
  if (h->name.offset % 8 || h->name.offset > size ||                                               \
      h->name.count > (size - h->name.offset) / sizeof(T))                                         \
    return "the embedded program has a table out of range";                                        \
  image->name = (const T *)(const void *)(data + h->name.offset);                                  \
  image->name##_count = h->name.count;
  ABI_TABLES(X)
#undef X
  if (image->string_count == 0 || image->string[image->string_count - 1] != 0 ||
      image->sym_count == 0 || image->type_count == 0 || image->mesh_count == 0 || h->world == 0 ||
      h->world >= image->mesh_count || h->path >= image->string_count)
    return "the embedded program is damaged";
  if (!meshes_valid(image) || !types_valid(image) || !syms_valid(image) || !actions_valid(image) ||
      !stages_valid(image) || !names_valid(image))
    return "the embedded program has a reference out of range";
  return NULL;
}
