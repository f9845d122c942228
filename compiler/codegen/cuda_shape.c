/* What a kernel's text is shaped by: how many elements a thread takes at once, which values vary
 * along the vector dim, where threads must wait for each other. */
#include "codegen/cuda_text.h"

#include <string.h>

static uint32_t vec_dim(const Kernel *k) {
  for (uint32_t d = 0; d < k->ndims; d++)
    if (k->dims[d].role == KDIM_VEC) return d;
  return KERNEL_MAX_DIMS;
}

static bool has_value(const KInstr *in) {
  return in->kind != K_STORE && in->kind != K_ACCUM;
}

static bool in_memory(const KInstr *in) {
  return in->kind == K_LOAD || in->kind == K_STORE || in->kind == K_ACCUM;
}

static KInt vec_stride(const KAccess *a, uint32_t vec) {
  return vec < KERNEL_MAX_DIMS ? a->stride[vec] : KINT_ZERO;
}

/* Values that do not vary along the vector dim, of one block; with lanes of all blocks. */
static void find_uniform(const Kernel *k, uint32_t vec, const KBlock *block, bool *uniform) {
  for (uint32_t i = block->first; i < block->first + block->count; i++) {
    const KInstr *in = &k->instrs[i];
    bool u = has_value(in) && in->kind != K_REDUCE;
    const KRef refs[] = {in->a, in->b, in->c};
    for (int r = 0; r < 3; r++) {
      if (!refs[r]) continue;
      uint32_t def = refs[r] - 1;
      bool outside = !k->lanes && (def < block->first || k->instrs[def].kind == K_REDUCE);
      u = u && (outside || uniform[def]);
    }
    if (in->kind == K_LOAD || in->kind == K_INDEX)
      u = u && vec_stride(&in->access, vec) == KINT_ZERO;
    uniform[i] = u;
  }
}

static void find_all_uniform(const Kernel *k, uint32_t vec, bool *uniform) {
  for (uint32_t b = 0; b < k->nblocks; b++) {
    const KBlock *block = &k->blocks[b];
    if (block->loop || k->lanes) find_uniform(k, vec, block, uniform);
    for (uint32_t i = block->first; !block->loop && !k->lanes && i < block->first + block->count;
         i++)
      uniform[i] = true;
  }
}

/* Contiguous along the vector dim, without a predicate or an index that varies along it. */
static bool is_plain(const Kernel *k, uint32_t vec, const bool *uniform, const KInstr *in) {
  if (!in_memory(in) || vec_stride(&in->access, vec) != KINT_ONE) return false;
  if (in->kind != K_ACCUM && in->b) return false;
  return in->kind != K_LOAD || !in->a || uniform[in->a - 1] ||
         (!k->lanes && k->instrs[in->a - 1].kind == K_REDUCE);
}

/* Rows begin one element apart. */
static bool begins_anywhere(const Kernel *k, uint32_t vec, const KAccess *a) {
  bool any = a->offset == KINT_ONE;
  for (uint32_t d = 0; d < k->ndims; d++) any = any || (d != vec && a->stride[d] == KINT_ONE);
  return any;
}

static bool reduces(const Kernel *k) {
  for (uint32_t i = 0; i < k->ninstrs; i++)
    if (k->instrs[i].kind == K_REDUCE) return true;
  return false;
}

/* 16 bytes of the widest element that is moved contiguously; one at a time where anything is moved
 * otherwise: then neighbouring threads have neighbouring elements.
 *
 * How elements are dealt to threads is the order in which they are summed, which must not depend on
 * what was fused with a sum: the sums of a row that is computed again in another kernel are the
 * same to the bit. So kernels that reduce have one width, that of halves, and deal by the length of
 * the row alone.
 */
static uint32_t choose_width(const Kernel *k, uint32_t vec, const bool *uniform) {
  enum { WORD = 16, MOST = 8, REDUCED = 8 };
  size_t widest = 0;
  if (k->lanes) return 1;
  if (reduces(k)) return REDUCED;
  for (uint32_t b = 0; b < k->nblocks; b++) {
    const KBlock *block = &k->blocks[b];
    for (uint32_t i = block->first; block->loop && i < block->first + block->count; i++) {
      const KInstr *in = &k->instrs[i];
      if (!in_memory(in) || uniform[i]) continue;
      if (!is_plain(k, vec, uniform, in) || begins_anywhere(k, vec, &in->access)) return 1;
      size_t bytes = dtype_bytes((DType)k->bufs[in->access.buf].dtype);
      if (bytes > widest) widest = bytes;
    }
  }
  if (!widest) return 1;
  return WORD / widest < MOST ? (uint32_t)(WORD / widest) : MOST;
}

bool cuda_is_columns(const Kernel *k) {
  if (k->chunk_rows == KINT_ZERO || k->lanes || vec_dim(k) == KERNEL_MAX_DIMS) return false;
  for (uint32_t d = 0; d < k->ndims; d++)
    if (k->dims[d].role == KDIM_INNER) return false;
  for (uint32_t b = 0; b < k->nblocks; b++)
    if (!k->blocks[b].loop) return false;
  for (uint32_t i = 0; i < k->ninstrs; i++) {
    const KInstr *in = &k->instrs[i];
    if (in->kind == K_REDUCE) return false;
    /* what it writes it does not read */
    if (in->kind == K_LOAD && k->bufs[in->access.buf].written) return false;
  }
  return true;
}

static bool is_loaded(const Kernel *k, uint32_t buf) {
  for (uint32_t i = 0; i < k->ninstrs; i++)
    if (k->instrs[i].kind == K_LOAD && k->instrs[i].access.buf == buf) return true;
  return false;
}

bool cuda_begins_anywhere(const CudaText *t, const KBlock *block) {
  for (uint32_t i = block->first; i < block->first + block->count; i++) {
    const KInstr *in = &t->k->instrs[i];
    if (t->form[i] != CUDA_FORM_ARRAY) continue;
    if (begins_anywhere(t->k, t->vec, &in->access) || (in->kind == K_LOAD && in->a)) return true;
  }
  return false;
}

/* Where rows are reduced and their elements added up over the rows too (gradients of norms), and a
 * row has at most so many vectors per thread, the sums of a chunk stay in registers; 0 = they do
 * not in this kernel. abi_cuda_launch gives a thread of a warp 8 at most. */
static uint32_t kept_vectors(const CudaText *t) {
  enum { REGISTERS = 96, VECTORS = 8, INSTRS = 40 /* that are written out for every vector */ };
  const Kernel *k = t->k;
  uint32_t sums = 0;
  if (k->chunk_rows == KINT_ZERO || t->columns) return 0;
  for (uint32_t d = 0; d < k->ndims; d++)
    if (k->dims[d].role == KDIM_INNER) return 0;
  for (uint32_t b = 0; b < k->nblocks; b++) {
    const KBlock *block = &k->blocks[b];
    uint32_t before = sums;
    for (uint32_t i = block->first; block->loop && i < block->first + block->count; i++) {
      const KInstr *in = &k->instrs[i];
      if (in->kind != K_ACCUM) continue;
      if (is_loaded(k, in->access.buf)) return 0;
      if (t->width > 1 && t->form[i] != CUDA_FORM_ARRAY) return 0;
      sums += (uint32_t)dtype_bytes((DType)in->type) > 4 ? 2 : 1;
    }
    if (sums > before && (cuda_begins_anywhere(t, block) || block->count > INSTRS)) return 0;
  }
  uint32_t vectors = sums ? REGISTERS / (sums * t->width) : 0;
  return vectors < VECTORS ? vectors : VECTORS;
}

void cuda_find_forms(CudaText *t) {
  const Kernel *k = t->k;
  bool *uniform = ARENA_ARRAY(t->arena, bool, k->ninstrs + 1);
  t->form = ARENA_ARRAY(t->arena, uint8_t, k->ninstrs + 1);
  t->vec = vec_dim(k);
  find_all_uniform(k, t->vec, uniform);
  t->width = choose_width(k, t->vec, uniform);
  t->columns = cuda_is_columns(k);
  for (uint32_t i = 0; i < k->ninstrs; i++) {
    const KInstr *in = &k->instrs[i];
    t->form[i] = uniform[i]                                         ? CUDA_FORM_UNIFORM
                 : t->width > 1 && is_plain(k, t->vec, uniform, in) ? CUDA_FORM_ARRAY
                                                                    : CUDA_FORM_ELEMENT;
  }
  t->kept = kept_vectors(t);
  cuda_find_tiles(t);
}

const char *cuda_even_rows(const CudaText *t) {
  const Kernel *k = t->k;
  if (reduces(k)) return arena_printf(t->arena, "%s %% %u == 0", cuda_extent(t, t->vec), t->width);
  bool *listed = ARENA_ARRAY(t->arena, bool, k->nints + 1);
  StrBuf out;
  strbuf_init(&out, t->arena);
  for (uint32_t i = 0; i < k->ninstrs; i++) {
    const KAccess *a = &k->instrs[i].access;
    if (t->form[i] != CUDA_FORM_ARRAY) continue;
    for (uint32_t d = 0; d <= k->ndims; d++) {
      KInt n = d == k->ndims ? a->offset : d == t->vec ? KINT_ZERO : a->stride[d];
      if (n < 0 || listed[n]) continue; /* none is one: see choose_width */
      listed[n] = true;
      strbuf_printf(&out, "%sn%d %% %u == 0", out.len ? " && " : "", n, t->width);
    }
  }
  return out.len ? out.text : NULL;
}

AbiCudaFunction cuda_function(const Kernel *k) {
  Arena arena;
  arena_init(&arena);
  CudaText t = {.arena = &arena, .k = k};
  cuda_find_forms(&t);
  AbiCudaFunction f = {.kind = ABI_CUDA_GENERATED,
                       .nbuffers = k->nbufs,
                       .nints = k->nints,
                       .vec = t.vec < k->ndims ? k->dims[t.vec].extent : ABI_CUDA_INT_ONE,
                       .width = t.width,
                       .vec_block = k->vec_block,
                       .across = t.side ? k->dims[t.across].extent : ABI_CUDA_INT_ONE,
                       .side = t.side,
                       .flags =
                           (k->lanes ? ABI_CUDA_LANES : 0) | (t.columns ? ABI_CUDA_COLUMNS : 0)};
  arena_free(&arena);
  return f;
}

/* --- who waits for whom ----
 *
 * An element that LOOP code stores is read back by the thread that stored it where the access is
 * the same: the vector dim is dealt out in one way. All else that goes through memory from one
 * thread of a group to another needs all of them to meet: what is read of a buffer that was written
 * through another access, or by the first thread alone; and what the first thread alone writes
 * where the others have read just now (an output that lies in the place of an input). */

typedef struct Meeting {
  const CudaText *t;
  const uint32_t *block; /* per instruction */
  uint32_t since;        /* instructions from here on are after the last meeting */
} Meeting;

static bool by_all(const Meeting *m, uint32_t i) {
  return !m->t->k->lanes &&
         (!m->t->k->blocks[m->block[i]].loop || m->t->form[i] == CUDA_FORM_UNIFORM);
}

static bool same_access(const KAccess *a, const KAccess *b) {
  return a->offset == b->offset && memcmp(a->stride, b->stride, sizeof a->stride) == 0;
}

static bool reads_of_others(const Meeting *m, uint32_t at) {
  const Kernel *k = m->t->k;
  const KInstr *in = &k->instrs[at];
  for (uint32_t i = m->since; i < at; i++) {
    const KInstr *w = &k->instrs[i];
    if ((w->kind != K_STORE && w->kind != K_ACCUM) || w->access.buf != in->access.buf) continue;
    bool own = same_access(&w->access, &in->access) && !in->a &&
               (k->lanes || (k->blocks[m->block[i]].loop && !by_all(m, at)));
    if (!own) return true;
  }
  return false;
}

static bool writes_under_others(const Meeting *m, uint32_t at) {
  const Kernel *k = m->t->k;
  const KInstr *in = &k->instrs[at];
  if (k->lanes || k->blocks[m->block[at]].loop) return false;
  for (uint32_t i = m->since; i < at; i++) {
    const KInstr *r = &k->instrs[i];
    if (r->kind != K_LOAD) continue;
    bool size = dtype_bytes((DType)k->bufs[r->access.buf].dtype) ==
                dtype_bytes((DType)k->bufs[in->access.buf].dtype);
    if (r->access.buf == in->access.buf || (size && same_access(&r->access, &in->access)))
      return true;
  }
  return false;
}

void cuda_find_syncs(CudaText *t) {
  const Kernel *k = t->k;
  t->sync = ARENA_ARRAY(t->arena, bool, k->ninstrs + 1);
  uint32_t *block = ARENA_ARRAY(t->arena, uint32_t, k->ninstrs + 1);
  for (uint32_t b = 0; b < k->nblocks; b++)
    for (uint32_t i = 0; i < k->blocks[b].count; i++) block[k->blocks[b].first + i] = b;
  Meeting m = {.t = t, .block = block};
  for (uint32_t i = 0; i < k->ninstrs; i++) {
    const KInstr *in = &k->instrs[i];
    bool meets = in->kind == K_LOAD    ? reads_of_others(&m, i)
                 : in->kind == K_STORE ? writes_under_others(&m, i)
                                       : false;
    if (!meets) continue;
    /* Within a loop threads cannot meet: before it they do. */
    uint32_t at = k->blocks[block[i]].loop || k->lanes ? k->blocks[block[i]].first : i;
    t->sync[at] = true;
    m.since = at;
  }
}
