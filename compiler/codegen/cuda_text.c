/* A kernel as CUDA C: its parameters, tasks and rows; the blocks within are cuda_block.c's. The
 * loop nest is the one kernel.h describes. */
#include "codegen/cuda_text.h"

#include <stdarg.h>
#include <string.h>

/* --- lines ---- */

static void put_line(CudaText *t, const char *fmt, va_list ap) {
  for (int i = 0; i < t->depth; i++) strbuf_puts(t->out, "  ");
  strbuf_puts(t->out, arena_vprintf(t->arena, fmt, ap));
}

void cuda_line(CudaText *t, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  put_line(t, fmt, ap);
  va_end(ap);
  strbuf_putc(t->out, '\n');
}

static bool same_note(const KNote *a, const KNote *b) {
  return a->op == b->op && a->span.file == b->span.file && a->span.start == b->span.start;
}

/* A place in a comment that ends with the line: the name of a file may have an end of line in it.
 */
static void put_place(CudaText *t, Span span) {
  const char *p = span_print(t->arena, t->sources, span);
  for (strbuf_puts(t->out, ", "); *p; p++) strbuf_putc(t->out, (unsigned char)*p < ' ' ? '?' : *p);
}

void cuda_statement(CudaText *t, uint32_t i, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  put_line(t, fmt, ap);
  va_end(ap);
  const KNote *note = t->sources && t->k->notes ? &t->k->notes[i] : NULL;
  if (note && note->op && (!t->said || !same_note(t->said, note))) {
    strbuf_printf(t->out, " // %s", op_name(note->op));
    if (note->span.file) put_place(t, note->span);
    t->said = note;
  }
  strbuf_putc(t->out, '\n');
}

void cuda_open(CudaText *t, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  put_line(t, fmt, ap);
  va_end(ap);
  strbuf_putc(t->out, '\n');
  t->depth++;
}

void cuda_close(CudaText *t) {
  t->depth--;
  cuda_line(t, "}");
}

/* --- the entry ---- */

/* `text` as lines of a comment. */
static void put_comment(StrBuf *out, const char *text) {
  strbuf_puts(out, "/* ");
  for (const char *p = text; *p; p++) {
    if (*p == '\n' && !p[1]) break;
    if (p[0] == '*' && p[1] == '/')
      strbuf_puts(out, "* "); /* no end of the comment */
    else if (*p == '\n')
      strbuf_puts(out, "\n * ");
    else
      strbuf_putc(out, *p);
  }
  strbuf_puts(out, " */\n");
}

/* The IR, whose lines are the same in both forms. */
static void put_head(CudaText *t) {
  StrBuf ir;
  strbuf_init(&ir, t->arena);
  Kernel named = *t->k;
  if (!t->sources) named.name = NULL;
  kernel_print(&ir, &named);
  put_comment(t->out, ir.text);
  strbuf_puts(t->out, "#include \"dtm.cuh\"\n\n");
}

static const char *buffer_type(const KBuf *b) {
  return b->kind == KBUF_STEP ? "int64_t" : cuda_storage((DType)b->dtype);
}

/* "const float *x,\n    float *y,\n    int64_t n0, " */
static void put_parameters(CudaText *t) {
  const Kernel *k = t->k;
  for (uint32_t i = 0; i < k->nbufs; i++)
    strbuf_printf(t->out, "%s%s *%s,\n    ", k->bufs[i].written ? "" : "const ",
                  buffer_type(&k->bufs[i]), t->buf[i]);
  for (uint32_t i = 0; i < k->nints; i++) strbuf_printf(t->out, "int64_t n%u, ", i);
}

/* Sums in registers are not to be spilled for the sake of more blocks at a time. */
static void put_entry(CudaText *t, const char *name, const char *suffix) {
  cuda_line(t, "extern \"C\" __global__ void __launch_bounds__(DTM_BLOCK%s)", t->kept ? ", 1" : "");
  strbuf_printf(t->out, "%s%s(", name, suffix);
}

/* The arguments of the kernel's tasks, `from` in front of each: "call.x, call.y, call.n0, " */
static void put_arguments(CudaText *t, const char *from) {
  for (uint32_t i = 0; i < t->k->nbufs; i++) strbuf_printf(t->out, "%s%s, ", from, t->buf[i]);
  for (uint32_t i = 0; i < t->k->nints; i++) strbuf_printf(t->out, "%sn%u, ", from, i);
}

/* The entries of a kernel that is called for many parameters at once: for one, and for a table of
 * them, of which each has some blocks of the grid. */
static void put_entries(CudaText *t, const char *name) {
  const Kernel *k = t->k;
  put_entry(t, name, "");
  put_parameters(t);
  strbuf_printf(t->out, "int64_t tasks, int32_t group) {\n  %s_tasks(", name);
  put_arguments(t, "");
  strbuf_printf(t->out, "tasks, group, blockIdx.x, gridDim.x);\n}\n\nstruct %s_call {\n", name);
  for (uint32_t i = 0; i < k->nbufs; i++)
    strbuf_printf(t->out, "  %s%s *%s;\n", k->bufs[i].written ? "" : "const ",
                  buffer_type(&k->bufs[i]), t->buf[i]);
  for (uint32_t i = 0; i < k->nints; i++) strbuf_printf(t->out, "  int64_t n%u;\n", i);
  strbuf_puts(t->out, "  int64_t tasks, group, block, blocks;\n};\n\n");
  put_entry(t, name, "_many");
  strbuf_printf(t->out, "const %s_call *calls, int32_t ncalls) {\n", name);
  strbuf_printf(t->out,
                "  const %s_call call = calls[dtm_find_call(calls, ncalls, blockIdx.x)];\n"
                "  %s_tasks(",
                name, name);
  put_arguments(t, "call.");
  strbuf_puts(t->out, "call.tasks, (int32_t)call.group,\n    (uint32_t)(blockIdx.x - call.block), "
                      "(uint32_t)call.blocks);\n}\n");
}

/* --- tasks and rows ---- */

/* The indices of the dims of a role out of their number `rest`; the outermost takes what is left,
 * unless something lies around it. */
static void decompose(CudaText *t, KDimRole role, bool more) {
  uint32_t first = KERNEL_MAX_DIMS;
  for (uint32_t d = t->k->ndims; d-- > 0;)
    if (t->k->dims[d].role == role) first = d;
  for (uint32_t d = t->k->ndims; d-- > 0;) {
    if (t->k->dims[d].role != role) continue;
    t->index[d] = arena_printf(t->arena, "i%u", d);
    if (d == first && !more)
      cuda_line(t, "const int64_t i%u = rest;", d);
    else
      cuda_line(t, "const int64_t i%u = dtm_take(rest, %s);", d, cuda_extent(t, d));
  }
}

static bool has_role(const Kernel *k, KDimRole role) {
  for (uint32_t d = 0; d < k->ndims; d++)
    if (k->dims[d].role == role) return true;
  return false;
}

/* Loops over rows of few instructions are unrolled: their loads then wait together. */
static void open_rows(CudaText *t) {
  enum { FEW = 16 };
  const Kernel *k = t->k;
  StrBuf rows;
  strbuf_init(&rows, t->arena);
  for (uint32_t d = 0; d < k->ndims; d++)
    if (k->dims[d].role == KDIM_ROW)
      strbuf_printf(&rows, "%s%s", rows.len ? " * " : "", cuda_extent(t, d));
  const char *size = cuda_int(t, k->chunk_rows);
  cuda_line(t, "const int64_t end = dtm_least(chunk * %s + %s, %s);", size, size, rows.text);
  if (t->columns && k->ninstrs <= FEW) cuda_line(t, "#pragma unroll 4");
  cuda_open(t, "for (int64_t row = chunk * %s; row < end; row++) {", size);
  cuda_line(t, "int64_t rest = row;");
  decompose(t, KDIM_ROW, false);
}

static void put_chunk(CudaText *t, const char *extent) {
  cuda_begin_sums(t, extent);
  open_rows(t);
  cuda_blocks(t, "0", extent);
  cuda_close(t);
  cuda_end_sums(t);
}

static void put_rows(CudaText *t, const char *extent) {
  if (t->kept) {
    const char *each = t->each;
    t->keeping = true;
    t->each = arena_printf(t->arena, "%u", t->width);
    cuda_open(t, "if (kept) {");
    put_chunk(t, extent);
    t->keeping = false;
    t->each = each;
    t->depth--;
    cuda_open(t, "} else {");
  }
  put_chunk(t, extent);
  if (t->kept) cuda_close(t);
}

static void put_columns(CudaText *t, const char *extent) {
  t->index[t->vec] = arena_printf(t->arena, "i%u", t->vec);
  cuda_line(t, "const int64_t i%u = (piece * group + lane) * %u;", t->vec, t->width);
  cuda_line(t, "if (i%u >= %s) continue;", t->vec, extent);
  if (t->width > 1)
    cuda_line(t, "const int count = dtm_count<%u>(%s - i%u);", t->width, extent, t->vec);
  cuda_begin_columns(t);
  open_rows(t);
  cuda_column_row(t);
  cuda_close(t);
  cuda_end_columns(t);
  t->index[t->vec] = NULL;
}

static void put_task(CudaText *t) {
  const Kernel *k = t->k;
  const char *extent = t->vec < k->ndims ? cuda_extent(t, t->vec) : "0";
  bool grid = has_role(k, KDIM_GRID);
  cuda_line(t, "int64_t rest = task;");
  if (k->chunk_rows != KINT_ZERO) {
    t->chunk = "chunk";
    if (t->columns)
      cuda_line(t, "const int64_t piece = dtm_take(rest, dtm_ceil_div(%s, group * %u));", extent,
                t->width);
    cuda_line(t, "const int64_t chunk = dtm_take(rest, %s);", cuda_int(t, k->nchunks));
    decompose(t, KDIM_GRID, false);
    if (t->columns)
      put_columns(t, extent);
    else
      put_rows(t, extent);
  } else if (k->lanes) {
    cuda_line(t, "const int64_t strip = dtm_take(rest, dtm_ceil_div(%s, %u)) * %u;", extent,
              k->vec_block, k->vec_block);
    decompose(t, KDIM_GRID, false);
    cuda_line(t, "const int64_t i%u = strip + lane;", t->vec);
    cuda_line(t, "const bool live = lane < %u && i%u < %s;", k->vec_block, t->vec, extent);
    cuda_blocks(t, NULL, NULL);
  } else if (k->vec_block) {
    decompose(t, KDIM_GRID, true);
    t->block = "block";
    cuda_line(t, "const int64_t block = rest;");
    cuda_line(t, "const int64_t first = block * %u;", k->vec_block);
    cuda_line(t, "const int64_t end = dtm_least(first + %u, %s);", k->vec_block, extent);
    cuda_blocks(t, "first", "end");
  } else {
    if (grid) decompose(t, KDIM_GRID, false);
    cuda_blocks(t, "0", extent);
  }
}

/* The tasks of a block, the numbers of it and of all in `block`, `blocks`. */
static void put_tasks(CudaText *t, const char *block, const char *blocks) {
  t->depth = 1;
  if (t->side) cuda_tiles(t, block, blocks);
  cuda_line(t, "const int32_t lane = (int32_t)threadIdx.x & (group - 1);");
  const char *even = t->width > 1 && !t->columns ? cuda_even_rows(t) : NULL;
  t->each = even ? "each" : arena_printf(t->arena, "%u", t->width);
  if (even) cuda_line(t, "const int32_t each = %s ? %u : 1;", even, t->width);
  if (t->kept) cuda_count_kept(t, cuda_extent(t, t->vec));
  cuda_line(t, "const int64_t step = (int64_t)%s * (DTM_BLOCK / group);", blocks);
  cuda_line(t, "int64_t task = (int64_t)%s * (DTM_BLOCK / group) + threadIdx.x / group;", block);
  cuda_open(t, "for (; task < tasks; task += step) {");
  put_task(t);
  cuda_close(t);
  t->depth = 0;
  cuda_line(t, "}");
}

void cuda_text(StrBuf *out, Arena *arena, const Kernel *k, const CudaTextOptions *options) {
  CudaText t = {.arena = arena, .k = k, .sources = options->sources, .out = out};
  const char *name = cuda_entry(arena, k);
  if (options->sources && options->bare) t.bare = strstr(options->bare, "*/");
  cuda_find_forms(&t);
  cuda_find_syncs(&t);
  cuda_name_buffers(&t);
  put_head(&t);
  if (options->many) {
    cuda_line(&t, "DTM_DEVICE void %s_tasks(", name);
    strbuf_puts(out, "    ");
    put_parameters(&t);
    strbuf_puts(out, "int64_t tasks, int32_t group, uint32_t block_, uint32_t blocks_) {\n");
    put_tasks(&t, "block_", "blocks_");
    strbuf_putc(out, '\n');
    put_entries(&t, name);
  } else {
    put_entry(&t, name, "");
    put_parameters(&t);
    strbuf_puts(out, "int64_t tasks, int32_t group) {\n");
    put_tasks(&t, "blockIdx.x", "gridDim.x");
  }
  if (!options->about || !options->sources) return;
  strbuf_putc(out, '\n');
  put_comment(out, options->about);
}
