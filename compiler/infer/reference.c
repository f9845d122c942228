/* The operator reference as Markdown, from the same tables as inference. */
#include "infer/explain.h"

static const OpClass order[] = {CLASS_CONTRACTION, CLASS_POINTWISE, CLASS_REDUCTION,
                                CLASS_WHOLE_DIM,   CLASS_MOVEMENT,  CLASS_INDEXING,
                                CLASS_FUSED,       CLASS_RANDOM,    CLASS_FACTORY,
                                CLASS_COMM,        CLASS_STRUCTURE};

static void put_attributes(StrBuf *sb, const OpInfo *info) {
  if (!info->attrs) return;
  strbuf_puts(sb, "Attributes:");
  for (int key = ATTR_NONE + 1; key < ATTR_COUNT; key++)
    if (info->attrs >> key & 1) strbuf_printf(sb, " `%s`", attr_name((AttrKey)key));
  strbuf_puts(sb, "\n\n");
}

static void put_rows(Arena *arena, StrBuf *sb, Op op) {
  strbuf_puts(sb, "```\n");
  explain_rows(arena, sb, op);
  strbuf_puts(sb, "```\n\n");
}

static void put_operator(Arena *arena, StrBuf *sb, Op op) {
  const OpInfo *info = op_info(op);
  strbuf_printf(sb, "### %s\n\n%s\n\n", info->name, info->doc);
  put_attributes(sb, info);
  if (example_count(op)) put_rows(arena, sb, op);
}

/* Pointwise operators of one kind share their rows: a table of names, then the rows once. */
static void put_pointwise(Arena *arena, StrBuf *sb) {
  bool done[OP_COUNT] = {false};
  for (int first = OP_NONE + 1; first < OP_COUNT; first++) {
    const OpInfo *f = op_info((Op)first);
    if (f->cls != CLASS_POINTWISE || done[first]) continue;
    strbuf_puts(sb, "| operator | meaning |\n|---|---|\n");
    for (int op = first; op < OP_COUNT; op++) {
      const OpInfo *info = op_info((Op)op);
      if (info->cls != CLASS_POINTWISE || info->trait != f->trait || info->types != f->types ||
          info->max_operands != f->max_operands)
        continue;
      done[op] = true;
      strbuf_printf(sb, "| `%s` | %s |\n", info->name, info->doc);
    }
    strbuf_putc(sb, '\n');
    put_rows(arena, sb, (Op)first);
  }
}

const char *infer_reference(Arena *arena) {
  StrBuf sb;
  strbuf_init(&sb, arena);
  strbuf_puts(&sb,
              "# Operators and their placement rows\n\n"
              "Generated from the compiler's tables. Rows are for one mesh dim `x`: a letter "
              "is an extent, `@x` says that `x` shards the dim, `partial(x: sum|avg)` that "
              "the value is a pending sum or mean over it. With several mesh dims each needs a "
              "row of its own, and operands that share a dim carry the same ordered list of "
              "mesh dims.\n\n");
  for (size_t c = 0; c < sizeof order / sizeof *order; c++) {
    strbuf_printf(&sb, "## %s\n\n%s\n\n", op_class_name(order[c]), op_class_rule(order[c]));
    if (order[c] == CLASS_POINTWISE) {
      put_pointwise(arena, &sb);
      continue;
    }
    for (int op = OP_NONE + 1; op < OP_COUNT; op++)
      if (op_info((Op)op)->cls == order[c]) put_operator(arena, &sb, (Op)op);
  }
  return sb.text;
}
