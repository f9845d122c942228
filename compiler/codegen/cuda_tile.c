/* Kernels that turn the innermost dim, as CUDA C: what is contiguous along another dim than the
 * vector dim goes through tiles in shared memory.
 *
 * A tile is vec_block elements of the vector dim by `side` of the other, and a block of threads
 * takes it at once: what is read across is loaded into the tile along its own rows, then the
 * elements are computed with neighbouring threads along the vector dim, then what is written across
 * leaves the tile along its own rows. Everything else is read and written as without tiles. Where
 * one of the extents is small, and for what has no tile, there is the ordinary text beside it;
 * abi_cuda_launch chooses.
 *
 * Rows of a tile are an odd number of words: a warp that goes down a column meets every bank of
 * shared memory once. */
#include "codegen/cuda_text.h"

enum {
  SEGMENT = 128, /* bytes along the other dim that are moved at once */
  BANK = 4,      /* bytes */
  SHARED = 24 << 10,
  FEW = 16 /* instructions: loops over them are unrolled */
};

static size_t bytes_of(const Kernel *k, const KInstr *in) {
  return dtype_bytes((DType)k->bufs[in->access.buf].dtype);
}

/* Contiguous along `dim` and not along the vector dim, at places that depend on indices alone. */
static bool runs_across(const KInstr *in, uint32_t vec, uint32_t dim) {
  if (in->kind != K_LOAD && in->kind != K_STORE) return false;
  if (in->b || (in->kind == K_LOAD && in->a)) return false;
  return in->access.stride[vec] >= 0 && in->access.stride[dim] == KINT_ONE;
}

/* Elements that are computed each on its own, in any order: a map whose values per row, if any, are
 * not stored, and that reads nothing it writes. */
static bool is_map(const Kernel *k) {
  if (k->vec_block != KERNEL_TURN_BLOCK || k->lanes) return false;
  for (uint32_t d = 0; d < k->ndims; d++)
    if (k->dims[d].role != KDIM_GRID && k->dims[d].role != KDIM_VEC) return false;
  for (uint32_t b = 0; b < k->nblocks; b++)
    for (uint32_t i = k->blocks[b].first; i < k->blocks[b].first + k->blocks[b].count; i++) {
      const KInstr *in = &k->instrs[i];
      if (in->kind == K_REDUCE || in->kind == K_ACCUM) return false;
      if (in->kind == K_STORE && !k->blocks[b].loop) return false;
      if (in->kind == K_LOAD && k->bufs[in->access.buf].written) return false;
    }
  return true;
}

static uint32_t pad_of(size_t bytes) {
  return bytes < BANK ? (uint32_t)(BANK / bytes) : 1;
}

void cuda_find_tiles(CudaText *t) {
  const Kernel *k = t->k;
  size_t most = 0, widest = 1;
  t->side = 0;
  t->across = KERNEL_MAX_DIMS;
  t->tiled = ARENA_ARRAY(t->arena, bool, k->ninstrs + 1);
  if (t->vec == KERNEL_MAX_DIMS || !is_map(k)) return;
  for (uint32_t d = 0; d < k->ndims; d++) {
    size_t bytes = 0;
    for (uint32_t i = 0; d != t->vec && i < k->ninstrs; i++)
      if (runs_across(&k->instrs[i], t->vec, d)) bytes += bytes_of(k, &k->instrs[i]);
    if (bytes <= most) continue;
    most = bytes;
    t->across = d;
  }
  if (!most) return;
  for (uint32_t i = 0; i < k->ninstrs; i++) {
    t->tiled[i] = runs_across(&k->instrs[i], t->vec, t->across);
    if (t->tiled[i] && bytes_of(k, &k->instrs[i]) > widest) widest = bytes_of(k, &k->instrs[i]);
  }
  t->side = (uint32_t)(SEGMENT / widest);
  if (t->side < KERNEL_TURN_BLOCK) t->side = KERNEL_TURN_BLOCK;
  size_t shared = 0;
  for (uint32_t i = 0; i < k->ninstrs; i++) {
    size_t bytes = t->tiled[i] ? bytes_of(k, &k->instrs[i]) : 0;
    size_t room = bytes ? KERNEL_TURN_BLOCK * (t->side + pad_of(bytes)) * bytes : 0;
    t->tiled[i] = bytes && shared + room <= SHARED;
    if (t->tiled[i]) shared += room;
  }
}

const char *cuda_tile_place(const CudaText *t, uint32_t i) {
  return t->tiling && t->tiled[i] ? arena_printf(t->arena, "tile%u[down][along]", i + 1) : NULL;
}

/* for the elements of a tile: how far `down` the vector dim and `along` the other, which vary
 * fastest along the latter or, with `turn`, down. */
static void open_tile(CudaText *t, bool turn, bool unroll) {
  uint32_t row = turn ? KERNEL_TURN_BLOCK : t->side;
  cuda_line(t, "#pragma unroll%s", unroll ? "" : " 1");
  cuda_open(t, "for (uint32_t part = 0; part < %u; part += DTM_BLOCK) {",
            KERNEL_TURN_BLOCK * t->side);
  cuda_line(t, "const uint32_t e = part + threadIdx.x, %s = e / %u, %s = e %% %u;",
            turn ? "along" : "down", row, turn ? "down" : "along", row);
}

static void element_or_none(CudaText *t) {
  cuda_line(t, "const int64_t i%u = first%u + down, i%u = first%u + along;", t->vec, t->vec,
            t->across, t->across);
  cuda_line(t, "if (i%u >= %s || i%u >= %s) continue;", t->vec, cuda_extent(t, t->vec), t->across,
            cuda_extent(t, t->across));
}

/* Beyond the end it is the last one, so that loads are made under no condition and wait together.
 */
static void element_or_last(CudaText *t) {
  cuda_line(t, "const int64_t i%u = dtm_least(first%u + down, %s - 1);", t->vec, t->vec,
            cuda_extent(t, t->vec));
  cuda_line(t, "const int64_t i%u = dtm_least(first%u + along, %s - 1);", t->across, t->across,
            cuda_extent(t, t->across));
}

static bool is_tiled(const CudaText *t, uint32_t i, KKind kind) {
  return t->tiled[i] && t->k->instrs[i].kind == kind;
}

static bool any_tiled(const CudaText *t, KKind kind) {
  for (uint32_t i = 0; i < t->k->ninstrs; i++)
    if (is_tiled(t, i, kind)) return true;
  return false;
}

static const char *in_memory(const CudaText *t, uint32_t i) {
  const KAccess *a = &t->k->instrs[i].access;
  return arena_printf(t->arena, "%s[%s]", t->buf[a->buf], cuda_address(t, a));
}

static const char *type_of(const CudaText *t, uint32_t i) {
  return cuda_storage((DType)t->k->bufs[t->k->instrs[i].access.buf].dtype);
}

/* What is read across, along its own rows. Threads meet between loads and tiles: when the tile
 * before was read, and so that all loads are on their way first. */
static void load_tiles(CudaText *t) {
  uint32_t n = t->k->ninstrs, each = KERNEL_TURN_BLOCK * t->side / ABI_CUDA_BLOCK;
  if (!any_tiled(t, K_LOAD)) return;
  for (uint32_t i = 0; i < n; i++)
    if (is_tiled(t, i, K_LOAD)) cuda_line(t, "%s held%u[%u];", type_of(t, i), i + 1, each);
  open_tile(t, false, true);
  element_or_last(t);
  for (uint32_t i = 0; i < n; i++)
    if (is_tiled(t, i, K_LOAD))
      cuda_statement(t, i, "held%u[part / DTM_BLOCK] = %s;", i + 1, in_memory(t, i));
  cuda_close(t);
  cuda_line(t, "__syncthreads();");
  open_tile(t, false, true);
  for (uint32_t i = 0; i < n; i++)
    if (is_tiled(t, i, K_LOAD))
      cuda_line(t, "%s = held%u[part / DTM_BLOCK];", cuda_tile_place(t, i), i + 1);
  cuda_close(t);
}

/* What is written across, along its own rows. */
static void store_tiles(CudaText *t) {
  if (!any_tiled(t, K_STORE)) return;
  cuda_line(t, "__syncthreads();");
  open_tile(t, false, true);
  element_or_none(t);
  for (uint32_t i = 0; i < t->k->ninstrs; i++)
    if (is_tiled(t, i, K_STORE))
      cuda_statement(t, i, "%s = %s;", in_memory(t, i), cuda_tile_place(t, i));
  cuda_close(t);
}

/* First indices of the tile, the indices of the other dims. As without tiles, the pieces of the
 * vector dim vary slowest. */
static void find_tile(CudaText *t) {
  const Kernel *k = t->k;
  cuda_line(t, "int64_t rest = task;");
  cuda_line(t, "const int64_t first%u = dtm_take(rest, dtm_ceil_div(%s, %u)) * %u;", t->across,
            cuda_extent(t, t->across), t->side, t->side);
  for (uint32_t d = k->ndims; d-- > 0;) {
    t->index[d] = arena_printf(t->arena, "i%u", d);
    if (d != t->across && d != t->vec)
      cuda_line(t, "const int64_t i%u = dtm_take(rest, %s);", d, cuda_extent(t, d));
  }
  cuda_line(t, "const int64_t first%u = rest * %u;", t->vec, KERNEL_TURN_BLOCK);
}

static void declare_tiles(CudaText *t) {
  const Kernel *k = t->k;
  for (uint32_t i = 0; i < k->ninstrs; i++)
    if (t->tiled[i])
      cuda_line(t, "__shared__ %s tile%u[%u][%u];", type_of(t, i), i + 1, KERNEL_TURN_BLOCK,
                t->side + pad_of(bytes_of(k, &k->instrs[i])));
}

void cuda_tiles(CudaText *t, const char *block, const char *blocks) {
  cuda_open(t, "if (group == DTM_BLOCK) { // tiles of %u by %u", KERNEL_TURN_BLOCK, t->side);
  declare_tiles(t);
  cuda_open(t, "for (int64_t task = %s; task < tasks; task += %s) {", block, blocks);
  find_tile(t);
  t->tiling = true;
  load_tiles(t);
  cuda_line(t, "__syncthreads();");
  open_tile(t, true, t->k->ninstrs <= FEW);
  element_or_none(t);
  for (uint32_t i = 0; i < t->k->ninstrs; i++) cuda_instr(t, i, NULL, NULL);
  cuda_close(t);
  store_tiles(t);
  t->tiling = false;
  for (uint32_t d = 0; d < t->k->ndims; d++) t->index[d] = NULL;
  t->said = NULL;
  cuda_close(t);
  cuda_line(t, "return;");
  cuda_close(t);
}
