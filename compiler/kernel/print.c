/* Text of a kernel, as --emit=kernel shows it. */
#include "kernel/kernel.h"

static void print_int(StrBuf *out, KInt i) {
  if (i == KINT_ZERO)
    strbuf_putc(out, '0');
  else if (i == KINT_ONE)
    strbuf_putc(out, '1');
  else
    strbuf_printf(out, "n%d", i);
}

/* "n4 + i0*n2 + i1": only the terms that are there. */
static void print_address(StrBuf *out, const Kernel *k, const KAccess *a) {
  bool any = a->offset != KINT_ZERO;
  if (any) print_int(out, a->offset);
  for (uint32_t d = 0; d < k->ndims; d++) {
    if (a->stride[d] == KINT_ZERO) continue;
    strbuf_printf(out, "%si%u", any ? " + " : "", d);
    if (a->stride[d] != KINT_ONE) strbuf_printf(out, "*n%d", a->stride[d]);
    any = true;
  }
  if (!any) strbuf_putc(out, '0');
}

static void print_access(StrBuf *out, const Kernel *k, const KInstr *in) {
  strbuf_printf(out, "b%u[", in->access.buf);
  print_address(out, k, &in->access);
  if (in->kind == K_LOAD && in->a) strbuf_printf(out, " + %%%u", in->a);
  strbuf_putc(out, ']');
}

static void print_const(StrBuf *out, const KInstr *in) {
  if (dtype_is_float((DType)in->type))
    strbuf_printf(out, "%.17g", in->imm.f);
  else
    strbuf_printf(out, "%lld", (long long)in->imm.i);
}

static void print_instr(StrBuf *out, const Kernel *k, uint32_t index, const char *indent) {
  const KInstr *in = &k->instrs[index];
  strbuf_puts(out, indent);
  if (in->kind != K_STORE && in->kind != K_ACCUM)
    strbuf_printf(out, "%%%u: %s = ", index + 1, dtype_name((DType)in->type));
  switch ((KKind)in->kind) {
  case K_NONE:
    strbuf_puts(out, "none");
    break;
  case K_CONST:
    print_const(out, in);
    break;
  case K_INDEX:
    print_address(out, k, &in->access);
    break;
  case K_LOAD:
    strbuf_puts(out, "load ");
    print_access(out, k, in);
    if (in->b) strbuf_printf(out, " if %%%u", in->b);
    break;
  case K_POINT:
    strbuf_printf(out, "%s %%%u", op_name(in->op), in->a);
    if (in->b) strbuf_printf(out, ", %%%u", in->b);
    if (in->c) strbuf_printf(out, ", %%%u", in->c);
    break;
  case K_CAST:
    strbuf_printf(out, "cast %%%u", in->a);
    if (in->via) strbuf_printf(out, " rounded to %s", dtype_name((DType)in->via));
    break;
  case K_REDUCE:
    strbuf_printf(out, "reduce_%s %%%u", reduce_op_name((ReduceOp)in->reduce), in->a);
    break;
  case K_STORE:
    strbuf_puts(out, "store ");
    print_access(out, k, in);
    strbuf_printf(out, ", %%%u", in->a);
    if (in->b) strbuf_printf(out, " if %%%u", in->b);
    break;
  case K_ACCUM:
    strbuf_printf(out, "accumulate_%s ", reduce_op_name((ReduceOp)in->reduce));
    print_access(out, k, in);
    strbuf_printf(out, ", %%%u", in->a);
    break;
  case K_RANDOM:
    strbuf_printf(out, "%s instance ", in->random == KRANDOM_NORMAL ? "normal" : "uniform");
    print_int(out, in->access.offset);
    strbuf_printf(out, " at %%%u from b%u", in->a, in->access.buf);
    break;
  }
  strbuf_putc(out, '\n');
}

void kernel_print(StrBuf *out, const Kernel *k) {
  static const char *const roles[] = {"", "grid", "row", "inner", "vec"};
  strbuf_printf(out, "kernel %s(", k->name ? k->name : "?");
  for (uint32_t i = 0; i < k->nbufs; i++) {
    const KBuf *b = &k->bufs[i];
    strbuf_printf(out, "%sb%u: ", i ? ", " : "", i);
    if (b->kind == KBUF_STEP)
      strbuf_puts(out, "step block");
    else
      strbuf_printf(out, "%s%s", b->written ? "out " : "", dtype_name((DType)b->dtype));
  }
  strbuf_printf(out, "; %u integers)\n ", k->nints);
  for (uint32_t d = 0; d < k->ndims; d++) {
    strbuf_printf(out, " %s i%u < ", roles[k->dims[d].role], d);
    print_int(out, k->dims[d].extent);
  }
  if (k->chunk_rows != KINT_ZERO) {
    strbuf_puts(out, " in ");
    print_int(out, k->nchunks);
    strbuf_puts(out, " chunks of ");
    print_int(out, k->chunk_rows);
    strbuf_puts(out, " rows");
  }
  if (k->vec_block)
    strbuf_printf(out, " in %s of %u", k->lanes ? "strips" : "blocks", k->vec_block);
  strbuf_puts(out, "\n");
  for (uint32_t i = 0; i < k->nblocks; i++) {
    const KBlock *block = &k->blocks[i];
    strbuf_puts(out, block->loop ? "  loop\n" : k->lanes ? "  lanes\n" : "  scalar\n");
    for (uint32_t j = block->first; j < block->first + block->count; j++)
      print_instr(out, k, j, "    ");
  }
}
