/* The blocks of a kernel as CUDA C: scalar code, loops over inner dims and the vector dim.
 *
 * Of the W elements that a thread takes at once arithmetic is written once, in a loop that is
 * unrolled; contiguous accesses are made for all of them together, loads before it and stores
 * behind it. */
#include "codegen/cuda_text.h"

#include <ctype.h>
#include <string.h>

static const KInstr *instr(const CudaText *t, uint32_t i) {
  return &t->k->instrs[i];
}

static DType storage_of(const CudaText *t, uint32_t i) {
  return (DType)t->k->bufs[instr(t, i)->access.buf].dtype;
}

static void meet(CudaText *t, uint32_t i) {
  if (t->sync[i]) cuda_line(t, "dtm_sync(group);");
}

/* --- single instructions ---- */

/* Within an accumulator's address the first ROW dim counts chunks. */
static void rows_to_chunk(CudaText *t, const char *saved[KERNEL_MAX_DIMS]) {
  bool first = true;
  memcpy(saved, t->index, sizeof t->index);
  for (uint32_t d = 0; d < t->k->ndims; d++) {
    if (t->k->dims[d].role != KDIM_ROW) continue;
    t->index[d] = first ? t->chunk : NULL;
    first = false;
  }
}

static const char *accumulator_address(CudaText *t, uint32_t i) {
  const char *saved[KERNEL_MAX_DIMS];
  rows_to_chunk(t, saved);
  const char *at = cuda_address(t, &instr(t, i)->access);
  memcpy(t->index, saved, sizeof t->index);
  return at;
}

/* "if (guard && predicate) " or "". */
static const char *condition(const CudaText *t, const char *guard, KRef pred) {
  const char *p = pred ? cuda_operand(t, pred) : NULL;
  if (guard && p) return arena_printf(t->arena, "if (%s && %s) ", guard, p);
  return guard || p ? arena_printf(t->arena, "if (%s) ", guard ? guard : p) : "";
}

static void emit_store(CudaText *t, uint32_t i, const char *guard) {
  const KInstr *in = instr(t, i);
  cuda_statement(t, i, "%s%s = %s;", condition(t, guard, in->b), cuda_place(t, i),
                 cuda_stored(t, storage_of(t, i), cuda_operand(t, in->a)));
}

/* Of one row's own: SCALAR code, which all threads run alike. */
static bool is_row_sum(const CudaText *t, uint32_t i) {
  return t->form[i] == CUDA_FORM_UNIFORM;
}

/* Where the sum of an accumulation is while rows go by; NULL: in memory. */
static const char *sum_register(const CudaText *t, uint32_t i) {
  if (!t->columns && !t->keeping && !is_row_sum(t, i)) return NULL;
  const char *column = t->keeping && !is_row_sum(t, i) ? "[c]" : "";
  bool array = t->form[i] == CUDA_FORM_ARRAY && !t->single;
  return arena_printf(t->arena, "v%u%s%s", i + 1, column, array ? "[e]" : "");
}

static void emit_accum(CudaText *t, uint32_t i, const char *guard) {
  const KInstr *in = instr(t, i);
  const char *kept = sum_register(t, i);
  if (kept) {
    cuda_statement(
        t, i, "%s = %s;", kept,
        cuda_combine(t, (ReduceOp)in->reduce, (DType)in->type, kept, cuda_operand(t, in->a)));
    return;
  }
  DType storage = storage_of(t, i);
  const char *place =
      arena_printf(t->arena, "%s[%s]", t->buf[in->access.buf], accumulator_address(t, i));
  const char *sum = cuda_combine(t, (ReduceOp)in->reduce, (DType)in->type,
                                 cuda_loaded(t, storage, place), cuda_operand(t, in->a));
  cuda_statement(t, i, "%s%s = %s;", condition(t, guard, 0), place, cuda_stored(t, storage, sum));
}

void cuda_instr(CudaText *t, uint32_t i, const char *guard, const char *stores) {
  const KInstr *in = instr(t, i);
  switch ((KKind)in->kind) {
  case K_NONE:
  case K_CONST: /* written where it is used */
    break;
  case K_INDEX:
  case K_LOAD:
  case K_POINT:
  case K_CAST:
  case K_RANDOM:
    cuda_statement(t, i, "const %s v%u = %s;", cuda_type((DType)in->type), i + 1,
                   cuda_value(t, i, guard));
    break;
  case K_REDUCE:
    cuda_statement(t, i, "%sv%u = %s;", condition(t, guard, 0), i + 1,
                   cuda_combine(t, (ReduceOp)in->reduce, (DType)in->type,
                                arena_printf(t->arena, "v%u", i + 1), cuda_operand(t, in->a)));
    break;
  case K_STORE:
    emit_store(t, i, stores);
    break;
  case K_ACCUM:
    emit_accum(t, i, stores);
    break;
  }
}

/* --- the vector dim ---- */

static bool is_array(const CudaText *t, uint32_t i) {
  return t->form[i] == CUDA_FORM_ARRAY && !t->single;
}

/* The sums that this block adds to stay in registers. */
static bool keeps(const CudaText *t, const KBlock *block) {
  for (uint32_t i = block->first; t->keeping && i < block->first + block->count; i++)
    if (instr(t, i)->kind == K_ACCUM && !is_row_sum(t, i)) return true;
  return false;
}

/* How a block that takes W elements at once moves them. Of a kernel that may keep sums in registers
 * one text is for rows of whole, aligned vectors and the other for those that are not (or are very
 * long): neither holds the loop of the other, which is half of what NVRTC has to do. */
typedef enum Moves { MOVES_EITHER, MOVES_VECTORS, MOVES_SINGLES } Moves;

static Moves moves_of(const CudaText *t, const KBlock *block) {
  if (!t->kept) return MOVES_EITHER;
  if (!t->keeping) return MOVES_SINGLES;
  return cuda_begins_anywhere(t, block) ? MOVES_EITHER : MOVES_VECTORS;
}

/* Where the vectors of every contiguous access begin, and whether they may be moved as words. */
static void emit_pointers(CudaText *t, const KBlock *block) {
  StrBuf wide;
  strbuf_init(&wide, t->arena);
  for (uint32_t i = block->first; i < block->first + block->count; i++) {
    const KInstr *in = instr(t, i);
    if (!is_array(t, i) || (in->kind == K_ACCUM && sum_register(t, i))) continue;
    const char *at = in->kind == K_ACCUM ? accumulator_address(t, i) : cuda_address(t, &in->access);
    const char *type = cuda_storage(storage_of(t, i));
    const char *index = in->kind == K_LOAD && in->a ? cuda_operand(t, in->a) : NULL;
    bool from_start = strcmp(at, "0") == 0;
    cuda_line(t, "%s%s *const p%u = %s%s%s%s%s;", in->kind == K_LOAD ? "const " : "", type, i + 1,
              t->buf[in->access.buf], from_start ? "" : " + ", from_start ? "" : at,
              index ? " + " : "", index ? index : "");
    strbuf_printf(&wide, "%sp%u", wide.len ? ", " : "", i + 1);
  }
  if (moves_of(t, block) == MOVES_VECTORS) return;
  const char *even = isdigit((unsigned char)*t->each) || t->columns
                         ? ""
                         : arena_printf(t->arena, "each == %u && ", t->width);
  if (wide.len)
    cuda_line(t, "const bool wide = %sdtm_aligned<%u>(%s);", even, t->width, wide.text);
  else /* a block of no memory, in a loop like those of the others */
    cuda_line(t, "const bool wide = %strue;", even);
}

static void load_arrays(CudaText *t, const KBlock *block, const char *at) {
  for (uint32_t i = block->first; i < block->first + block->count; i++) {
    const KInstr *in = instr(t, i);
    if (!is_array(t, i) || (in->kind == K_ACCUM && sum_register(t, i))) continue;
    cuda_line(t, "%s v%u[%u];", cuda_type((DType)in->type), i + 1, t->width);
    if (in->kind != K_STORE)
      cuda_statement(t, i, "dtm_load(v%u, p%u + %s%s);", i + 1, i + 1, at,
                     t->columns ? ", count, wide" : "");
  }
}

static void store_arrays(CudaText *t, const KBlock *block, const char *at) {
  for (uint32_t i = block->first; i < block->first + block->count; i++)
    if (is_array(t, i) && instr(t, i)->kind != K_LOAD &&
        !(instr(t, i)->kind == K_ACCUM && sum_register(t, i)))
      cuda_statement(t, i, "dtm_store(p%u + %s, v%u%s);", i + 1, at, i + 1,
                     t->columns ? ", count, wide" : "");
}

static void compute_elements(CudaText *t, const KBlock *block, const char *guard) {
  for (uint32_t i = block->first; i < block->first + block->count; i++) {
    const KInstr *in = instr(t, i);
    if (t->form[i] == CUDA_FORM_UNIFORM || (is_array(t, i) && in->kind == K_LOAD)) continue;
    if (!is_array(t, i) || (in->kind == K_ACCUM && sum_register(t, i))) {
      cuda_instr(t, i, guard, guard);
      continue;
    }
    const char *value = cuda_operand(t, in->a);
    if (in->kind == K_ACCUM)
      value = cuda_combine(t, (ReduceOp)in->reduce, (DType)in->type,
                           arena_printf(t->arena, "v%u[e]", i + 1), value);
    cuda_statement(t, i, "v%u[e] = %s;", i + 1, value);
  }
}

static void emit_uniform(CudaText *t, const KBlock *block) {
  for (uint32_t i = block->first; i < block->first + block->count; i++)
    if (t->form[i] == CUDA_FORM_UNIFORM) cuda_instr(t, i, NULL, NULL);
}

/* for the elements of this thread in [lo, hi), `each` of them at a time */
static void open_vectors(CudaText *t, const char *lo, const char *hi) {
  const char *i = arena_printf(t->arena, "i%u", t->vec);
  const char *from = strcmp(lo, "0") == 0 ? "" : arena_printf(t->arena, "%s + ", lo);
  if (t->width == 1)
    cuda_open(t, "for (int64_t %s = %slane; %s < %s; %s += group) {", i, from, i, hi, i);
  else
    cuda_open(t, "for (int64_t %s = %slane * %s; %s < %s; %s += group * %s) {", i, from, t->each, i,
              hi, i, t->each);
}

static void open_elements(CudaText *t) {
  cuda_line(t, "#pragma unroll");
  cuda_open(t, "for (int e = 0; e < %u; e++) {", t->width);
  t->element = true;
  t->index[t->vec] = arena_printf(t->arena, "i%u + e", t->vec);
}

static void close_elements(CudaText *t) {
  t->element = false;
  t->index[t->vec] = arena_printf(t->arena, "i%u", t->vec);
  cuda_close(t);
}

static bool computes_elements(const CudaText *t, const KBlock *block) {
  for (uint32_t i = block->first; i < block->first + block->count; i++)
    if (t->form[i] != CUDA_FORM_UNIFORM && !(is_array(t, i) && instr(t, i)->kind == K_LOAD))
      return true;
  return false;
}

/* The elements of a vector that is not whole, or not aligned, one by one: by the thread that has
 * the vector, so that a thread has the same elements in every loop. Where rows are not even, `each`
 * is 1, and neighbouring threads have neighbouring elements. */
static void open_singles(CudaText *t, const char *hi) {
  const char *i = arena_printf(t->arena, "i%u", t->vec);
  cuda_line(t, "#pragma unroll 1");
  cuda_open(t, "for (int64_t j = %s, last = dtm_least(%s + %s, %s); j < last; j++) {", i, i,
            t->each, hi);
  t->single = true;
  t->index[t->vec] = "j";
}

static void close_singles(CudaText *t) {
  t->index[t->vec] = arena_printf(t->arena, "i%u", t->vec);
  t->single = false;
  cuda_close(t);
}

static void emit_singles(CudaText *t, const KBlock *block, const char *hi) {
  open_singles(t, hi);
  compute_elements(t, block, NULL);
  close_singles(t);
}

static void emit_words(CudaText *t, const KBlock *block, const char *at) {
  load_arrays(t, block, at);
  open_elements(t);
  compute_elements(t, block, NULL);
  close_elements(t);
  store_arrays(t, block, at);
}

static void emit_vectors(CudaText *t, const KBlock *block, const char *lo, const char *hi) {
  if (!computes_elements(t, block)) return;
  Moves moves = moves_of(t, block);
  if (t->width > 1 && moves != MOVES_SINGLES) emit_pointers(t, block);
  open_vectors(t, lo, hi);
  const char *at = t->index[t->vec] = arena_printf(t->arena, "i%u", t->vec);
  if (t->width == 1) {
    compute_elements(t, block, NULL);
  } else if (moves == MOVES_VECTORS) {
    emit_words(t, block, at);
  } else if (moves == MOVES_SINGLES) {
    emit_singles(t, block, hi);
  } else {
    cuda_open(t, "if (wide && %s + %u <= %s) {", at, t->width, hi);
    emit_words(t, block, at);
    t->depth--;
    cuda_open(t, "} else {");
    emit_singles(t, block, hi);
    cuda_close(t);
  }
  t->index[t->vec] = NULL;
  cuda_close(t);
}

/* for the vectors of a row that this thread owns, `own` of them */
static void open_kept(CudaText *t) {
  uint32_t w = t->width;
  const char *at = t->index[t->vec] = arena_printf(t->arena, "i%u", t->vec);
  cuda_line(t, "#pragma unroll");
  cuda_open(t, "for (int c = 0; c < %u; c++) {", t->kept);
  cuda_line(t, "if (c >= own) break;");
  cuda_line(t, "const int %s = %s;", at,
            w > 1 ? arena_printf(t->arena, "(c * group + lane) * %u", w) : "c * group + lane");
}

static void close_kept(CudaText *t) {
  t->index[t->vec] = NULL;
  cuda_close(t);
}

static void emit_kept(CudaText *t, const KBlock *block) {
  if (t->width > 1) emit_pointers(t, block);
  open_kept(t);
  if (t->width > 1)
    emit_words(t, block, t->index[t->vec]);
  else
    compute_elements(t, block, NULL);
  close_kept(t);
}

/* --- inner dims ---- */

static uint32_t open_inner(CudaText *t) {
  uint32_t n = 0;
  for (uint32_t d = 0; d < t->k->ndims; d++) {
    if (t->k->dims[d].role != KDIM_INNER) continue;
    const char *i = arena_printf(t->arena, "i%u", d);
    cuda_open(t, "for (int64_t %s = 0; %s < %s; %s++) {", i, i, cuda_extent(t, d), i);
    t->index[d] = i;
    n++;
  }
  return n;
}

static void close_inner(CudaText *t, uint32_t n) {
  for (; n; n--) cuda_close(t);
  for (uint32_t d = 0; d < t->k->ndims; d++)
    if (t->k->dims[d].role == KDIM_INNER) t->index[d] = NULL;
}

/* Something is read before the vector loop, which may be empty. */
static bool reads_before(const CudaText *t, const KBlock *block) {
  for (uint32_t i = block->first; i < block->first + block->count; i++)
    if (t->form[i] == CUDA_FORM_UNIFORM && instr(t, i)->kind == K_LOAD) return true;
  return false;
}

static void begin_reduces(CudaText *t, const KBlock *block) {
  for (uint32_t i = block->first; i < block->first + block->count; i++) {
    const KInstr *in = instr(t, i);
    if (in->kind != K_REDUCE) continue;
    cuda_line(t, "%s v%u = %s;", cuda_type((DType)in->type), i + 1,
              cuda_neutral((ReduceOp)in->reduce, (DType)in->type, t->arena));
  }
}

static void emit_loop_block(CudaText *t, const KBlock *block, const char *lo, const char *hi) {
  begin_reduces(t, block);
  uint32_t inner = open_inner(t);
  bool guarded = reads_before(t, block);
  cuda_open(t, guarded ? "if (%s < %s) {" : "{", lo, hi);
  emit_uniform(t, block);
  if (keeps(t, block))
    emit_kept(t, block);
  else
    emit_vectors(t, block, lo, hi);
  cuda_close(t);
  close_inner(t, inner);
  for (uint32_t i = block->first; i < block->first + block->count; i++)
    if (instr(t, i)->kind == K_REDUCE)
      cuda_statement(t, i, "v%u = dtm_reduce(%s(), v%u, group);", i + 1,
                     cuda_functor((ReduceOp)instr(t, i)->reduce), i + 1);
}

static void emit_scalar_block(CudaText *t, const KBlock *block) {
  if (t->block) t->index[t->vec] = t->block;
  for (uint32_t i = block->first; i < block->first + block->count; i++) {
    if (i > block->first) meet(t, i);
    cuda_instr(t, i, NULL, "lane == 0");
  }
  if (t->block) t->index[t->vec] = NULL;
}

/* --- lanes: an element of the strip per thread ---- */

static void emit_lanes_block(CudaText *t, const KBlock *block) {
  uint32_t inner = 0;
  t->index[t->vec] = arena_printf(t->arena, "i%u", t->vec);
  if (block->loop) {
    begin_reduces(t, block);
    inner = open_inner(t);
  }
  for (uint32_t i = block->first; i < block->first + block->count; i++) {
    bool reduce = instr(t, i)->kind == K_REDUCE; /* of a lane that is not there nobody reads it */
    cuda_instr(t, i, reduce ? NULL : "live", "live");
  }
  close_inner(t, inner);
  t->index[t->vec] = NULL;
}

void cuda_blocks(CudaText *t, const char *lo, const char *hi) {
  for (uint32_t b = 0; b < t->k->nblocks; b++) {
    const KBlock *block = &t->k->blocks[b];
    if (block->count) meet(t, block->first);
    if (t->k->lanes)
      emit_lanes_block(t, block);
    else if (block->loop)
      emit_loop_block(t, block, lo, hi);
    else
      emit_scalar_block(t, block);
  }
}

/* --- columns ---- */

static void each_accumulator(CudaText *t, void (*put)(CudaText *t, uint32_t i)) {
  for (uint32_t i = 0; i < t->k->ninstrs; i++)
    if (instr(t, i)->kind == K_ACCUM) put(t, i);
}

static void begin_column(CudaText *t, uint32_t i) {
  const KInstr *in = instr(t, i);
  const char *type = cuda_type((DType)in->type);
  const char *neutral = cuda_neutral((ReduceOp)in->reduce, (DType)in->type, t->arena);
  if (!is_array(t, i)) {
    cuda_line(t, "%s v%u = %s;", type, i + 1, neutral);
    return;
  }
  StrBuf all;
  strbuf_init(&all, t->arena);
  for (uint32_t e = 0; e < t->width; e++) strbuf_printf(&all, "%s%s", e ? ", " : "", neutral);
  cuda_line(t, "%s v%u[%u] = {%s};", type, i + 1, t->width, all.text);
}

static void end_column(CudaText *t, uint32_t i) {
  const KInstr *in = instr(t, i);
  const char *buf = t->buf[in->access.buf], *at = accumulator_address(t, i);
  if (is_array(t, i))
    cuda_statement(t, i, "dtm_store(%s + %s, v%u, count, dtm_aligned<%u>(%s + %s));", buf, at,
                   i + 1, t->width, buf, at);
  else
    cuda_statement(t, i, "%s[%s] = %s;", buf, at,
                   cuda_stored(t, storage_of(t, i), arena_printf(t->arena, "v%u", i + 1)));
}

void cuda_begin_columns(CudaText *t) {
  each_accumulator(t, begin_column);
}

void cuda_column_row(CudaText *t) {
  const char *at = t->index[t->vec];
  for (uint32_t b = 0; b < t->k->nblocks; b++) {
    const KBlock *block = &t->k->blocks[b];
    cuda_open(t, "{");
    t->index[t->vec] = NULL;
    emit_uniform(t, block);
    if (t->width > 1) {
      emit_pointers(t, block);
      load_arrays(t, block, at);
      open_elements(t);
      compute_elements(t, block, "e < count");
      close_elements(t);
      store_arrays(t, block, at);
    } else {
      t->index[t->vec] = at;
      compute_elements(t, block, NULL);
    }
    t->index[t->vec] = at;
    cuda_close(t);
  }
}

void cuda_end_columns(CudaText *t) {
  each_accumulator(t, end_column);
}

/* --- sums over the rows of a chunk ---- */

static void begin_kept(CudaText *t, uint32_t i, const char *neutral) {
  const char *type = cuda_type((DType)instr(t, i)->type);
  bool array = is_array(t, i);
  const char *each = array ? arena_printf(t->arena, "[%u]", t->width) : "";
  cuda_line(t, "%s v%u[%u]%s;", type, i + 1, t->kept, each);
  cuda_line(t, "#pragma unroll");
  if (array)
    cuda_line(t, "for (int e = 0; e < %u; e++) v%u[e / %u][e %% %u] = %s;", t->kept * t->width,
              i + 1, t->width, t->width, neutral);
  else
    cuda_line(t, "for (int c = 0; c < %u; c++) v%u[c] = %s;", t->kept, i + 1, neutral);
}

/* Dealt out as in the loops that add: every thread begins the columns it owns. */
static void begin_in_memory(CudaText *t, uint32_t i, const char *neutral, const char *extent) {
  uint32_t inner = open_inner(t);
  open_vectors(t, "0", extent);
  t->index[t->vec] = arena_printf(t->arena, "i%u", t->vec);
  if (t->width > 1) open_singles(t, extent);
  cuda_line(t, "%s[%s] = %s;", t->buf[instr(t, i)->access.buf], accumulator_address(t, i),
            cuda_stored(t, storage_of(t, i), neutral));
  if (t->width > 1) close_singles(t);
  t->index[t->vec] = NULL;
  cuda_close(t);
  close_inner(t, inner);
}

void cuda_begin_sums(CudaText *t, const char *extent) {
  for (uint32_t i = 0; i < t->k->ninstrs; i++) {
    const KInstr *in = instr(t, i);
    if (in->kind != K_ACCUM) continue;
    const char *neutral = cuda_neutral((ReduceOp)in->reduce, (DType)in->type, t->arena);
    if (is_row_sum(t, i))
      cuda_line(t, "%s v%u = %s;", cuda_type((DType)in->type), i + 1, neutral);
    else if (t->keeping)
      begin_kept(t, i, neutral);
    else
      begin_in_memory(t, i, neutral, extent);
  }
}

void cuda_end_sums(CudaText *t) {
  for (uint32_t i = 0; i < t->k->ninstrs; i++) {
    const char *buf = t->buf[instr(t, i)->access.buf], *at;
    if (instr(t, i)->kind != K_ACCUM) continue;
    if (is_row_sum(t, i)) {
      const char *sum = arena_printf(t->arena, "v%u", i + 1);
      cuda_statement(t, i, "if (lane == 0) %s[%s] = %s;", buf, accumulator_address(t, i),
                     cuda_stored(t, storage_of(t, i), sum));
    } else if (t->keeping) {
      open_kept(t);
      at = accumulator_address(t, i);
      if (is_array(t, i))
        cuda_statement(t, i, "dtm_store(%s + %s, v%u[c]);", buf, at, i + 1);
      else
        cuda_statement(t, i, "%s[%s] = %s;", buf, at,
                       cuda_stored(t, storage_of(t, i), arena_printf(t->arena, "v%u[c]", i + 1)));
      close_kept(t);
    }
  }
}

/* Of vectors that the text for `kept` moves as words: each is whole, and lies at a multiple of its
 * size. */
void cuda_count_kept(CudaText *t, const char *extent) {
  StrBuf fit, wide;
  strbuf_init(&fit, t->arena);
  strbuf_init(&wide, t->arena);
  const Kernel *k = t->k;
  bool *listed = ARENA_ARRAY(t->arena, bool, k->nbufs + 1);
  bool *even = ARENA_ARRAY(t->arena, bool, k->nints + 1);
  uint32_t w = t->width;
  t->keeping = true;
  if (!isdigit((unsigned char)*t->each)) strbuf_printf(&fit, "each == %u && ", w);
  if (w > 1 && k->dims[t->vec].extent >= 0) even[k->dims[t->vec].extent] = true;
  for (uint32_t i = 0, b = 0; i < k->ninstrs; i++) {
    while (i >= k->blocks[b].first + k->blocks[b].count) b++;
    const KAccess *a = &instr(t, i)->access;
    if (!k->blocks[b].loop || !is_array(t, i) || moves_of(t, &k->blocks[b]) != MOVES_VECTORS)
      continue;
    for (uint32_t d = 0; d <= k->ndims; d++) {
      KInt n = d == k->ndims ? a->offset : d == t->vec ? KINT_ZERO : a->stride[d];
      if (n >= 0) even[n] = true;
    }
    if (listed[a->buf]) continue;
    listed[a->buf] = true;
    strbuf_printf(&wide, "%s%s", wide.len ? ", " : "", t->buf[a->buf]);
  }
  t->keeping = false;
  for (uint32_t n = 0; n < k->nints; n++)
    if (even[n]) strbuf_printf(&fit, "n%u %% %u == 0 && ", n, w);
  strbuf_printf(&fit, "%s <= group * %u", extent, t->kept * w);
  if (wide.len) strbuf_printf(&fit, " && dtm_aligned<%u>(%s)", w, wide.text);
  const char *each = w > 1 ? arena_printf(t->arena, " * %u", w) : "";
  cuda_line(t, "const bool kept = %s;", fit.text);
  cuda_line(t, "const int own = kept ? (int)dtm_ceil_div(%s - lane%s, group%s) : 0;", extent, each,
            each);
}
