/* The rows of an operator as text, found by asking inference itself.
 *
 * Every combination of placements of an example's operands on one mesh dim of size 2 goes through
 * infer_rules; those with a row are printed with letters for extents. Rows that differ only in the
 * op of their Partials, or only in the value of a constant, become one line. Nothing is written
 * twice: what is printed is what the table does.
 */
#include <string.h>

#include "infer/explain.h"
#include "infer/rules.h"

/* Values a constant takes: positive, zero, negative. */
static const double constants[] = {2, 0, -3};
enum { CONSTANTS = 3, FEW_OPERANDS = 3 };

typedef struct RowText {
  const char *text;        /* '$' = op of the Partials, '#' = the constant */
  uint32_t ops[CONSTANTS]; /* per constant: bit set of ReduceOp; bit 0 = no Partial */
} RowText;

typedef struct RowList {
  Arena *arena;
  const int64_t *extent;
  uint32_t letters;
  VEC(RowText) rows;
} RowList;

/* Even, large enough for slices and pads, and such that sums and products of letters are told
 * apart. */
static void letter_extents(int64_t extent[EXAMPLE_LETTERS]) {
  static const int64_t primes[EXAMPLE_LETTERS] = {11, 13, 17, 19,  23,  29,  31,  37, 41,
                                                  43, 47, 53, 59,  61,  67,  71,  73, 79,
                                                  83, 89, 97, 101, 103, 107, 109, 113};
  for (int l = 0; l < EXAMPLE_LETTERS; l++) extent[l] = 2 * primes[l];
}

/* An extent by its letter, as a product or sum of two letters, or as a number near a letter. */
static void put_extent(const RowList *l, StrBuf *sb, int64_t extent) {
  for (int a = 0; a < EXAMPLE_LETTERS; a++)
    if ((l->letters >> a & 1) && l->extent[a] == extent) {
      strbuf_printf(sb, "%c", 'a' + a);
      return;
    }
  for (int a = 0; a < EXAMPLE_LETTERS; a++)
    for (int b = a; b < EXAMPLE_LETTERS; b++) {
      if (!(l->letters >> a & 1) || !(l->letters >> b & 1)) continue;
      bool sum = l->extent[a] + l->extent[b] == extent,
           product = l->extent[a] * l->extent[b] == extent;
      if (!sum && !product) continue;
      strbuf_printf(sb, "%c%c%c", 'a' + a, sum ? '+' : '*', 'a' + b);
      return;
    }
  for (int a = 0; a < EXAMPLE_LETTERS; a++) {
    if (!(l->letters >> a & 1)) continue;
    int64_t more = extent - l->extent[a];
    if (more >= -3 && more <= 3) {
      strbuf_printf(sb, "%c%+lld", 'a' + a, (long long)more);
      return;
    }
    if (2 * extent == l->extent[a]) {
      strbuf_printf(sb, "%c/2", 'a' + a);
      return;
    }
  }
  strbuf_printf(sb, "%lld", (long long)extent);
}

static void put_type(const RowList *l, StrBuf *sb, const TensorType *t) {
  Place p = t->layout.at[0];
  strbuf_putc(sb, '[');
  for (uint32_t d = 0; d < t->rank; d++) {
    if (d) strbuf_puts(sb, ", ");
    size_t before = sb->len;
    put_extent(l, sb, t->shape[d]);
    if (p.kind != PLACE_SHARD || p.dim != d) continue;
    if (sb->len - before > 1 && t->shape[d] > 99) {
      const char *text = arena_strdup(l->arena, sb->text + before);
      sb->len = before;
      strbuf_printf(sb, "(%s)", text);
    }
    strbuf_puts(sb, "@x");
  }
  strbuf_puts(sb, p.kind == PLACE_PARTIAL ? "] $" : "]");
}

/* The op all Partials of the row share; REDUCE_COUNT when they differ, REDUCE_NONE without any. */
static ReduceOp common_op(const ExampleNode *n, const InferResult *out) {
  ReduceOp op = REDUCE_NONE;
  for (uint32_t i = 0; i < n->noperands + out->nresults; i++) {
    Place p = i < n->noperands ? n->operands[i].type.layout.at[0]
                               : out->results[i - n->noperands].layout.at[0];
    if (p.kind != PLACE_PARTIAL) continue;
    if (op && op != (ReduceOp)p.op) return REDUCE_COUNT;
    op = (ReduceOp)p.op;
  }
  return op;
}

/* Writes the ops into the '$' of a row whose Partials differ. */
static const char *name_ops(Arena *arena, const char *text, const ExampleNode *n,
                            const InferResult *out) {
  StrBuf sb;
  strbuf_init(&sb, arena);
  uint32_t i = 0, total = n->noperands + out->nresults;
  for (; *text; text++) {
    if (*text != '$') {
      strbuf_putc(&sb, *text);
      continue;
    }
    Place p = {0};
    while (i < total && p.kind != PLACE_PARTIAL) {
      p = i < n->noperands ? n->operands[i].type.layout.at[0]
                           : out->results[i - n->noperands].layout.at[0];
      i++;
    }
    strbuf_printf(&sb, "partial(x: %s)", reduce_op_name((ReduceOp)p.op));
  }
  return sb.text;
}

static void add_row(RowList *l, const ExampleNode *n, const InferResult *out, int constant) {
  StrBuf sb;
  strbuf_init(&sb, l->arena);
  for (uint32_t i = 0; i < n->noperands; i++) {
    if (i) strbuf_puts(&sb, ", ");
    if (n->operands[i].is_const)
      strbuf_putc(&sb, '#');
    else
      put_type(l, &sb, &n->operands[i].type);
  }
  if (n->noperands) strbuf_puts(&sb, "  ->  ");
  for (uint32_t k = 0; k < out->nresults; k++) {
    if (k) strbuf_puts(&sb, ", ");
    put_type(l, &sb, &out->results[k]);
  }
  ReduceOp op = common_op(n, out);
  const char *text = op == REDUCE_COUNT ? name_ops(l->arena, sb.text, n, out) : sb.text;
  uint32_t bit = 1u << (op == REDUCE_COUNT ? REDUCE_NONE : op), i = 0;
  while (i < l->rows.len && strcmp(l->rows.data[i].text, text) != 0) i++;
  if (i == l->rows.len) VEC_PUSH(l->arena, &l->rows, (RowText){.text = text});
  l->rows.data[i].ops[constant] |= bit;
}

/* Every placement of every operand and of a stated type on the one mesh dim; with many operands,
 * which only derivatives have, of the Partials sum and avg alone. */
static void enumerate(RowList *l, ExampleNode *n, uint32_t slot, int constant) {
  TensorType *t = NULL;
  if (slot < n->noperands && !n->operands[slot].is_const) t = &n->operands[slot].type;
  if (slot == n->noperands) t = n->stated;
  if (slot > n->noperands) {
    InferResult out;
    DiagCode code;
    int axis;
    for (uint32_t i = 0; i < n->noperands; i++)
      if (!n->operands[i].is_const && type_fault(l->arena, &n->operands[i].type, &code, &axis))
        return;
    if (infer_rules(l->arena, n->op, n->operands, n->noperands, n->attrs, n->nattrs, false, &out) &&
        out.nresults)
      add_row(l, n, &out, constant);
    return;
  }
  if (!t) {
    enumerate(l, n, slot + 1, constant);
    return;
  }
  t->layout.at[0] = (Place){.kind = PLACE_REPLICATE};
  enumerate(l, n, slot + 1, constant);
  for (uint32_t d = 0; d < t->rank; d++) {
    t->layout.at[0] = (Place){.kind = PLACE_SHARD, .dim = (uint8_t)d};
    enumerate(l, n, slot + 1, constant);
  }
  int ops = n->noperands > FEW_OPERANDS ? REDUCE_AVG + 1 : REDUCE_COUNT;
  for (int op = REDUCE_SUM; op < ops; op++) {
    t->layout.at[0] = (Place){.kind = PLACE_PARTIAL, .op = (uint8_t)op};
    enumerate(l, n, slot + 1, constant);
  }
  t->layout.at[0] = (Place){.kind = PLACE_REPLICATE};
}

/* "c" with the condition under which the row holds. */
static const char *constant_text(uint32_t holds) {
  static const char *const text[8] = {"",      "c > 0",  "c = 0",  "c >= 0",
                                      "c < 0", "c != 0", "c <= 0", "c"};
  return text[holds];
}

static const char *ops_text(Arena *arena, uint32_t ops) {
  StrBuf sb;
  strbuf_init(&sb, arena);
  strbuf_puts(&sb, "partial(x: ");
  bool first = true;
  for (int op = REDUCE_SUM; op < REDUCE_COUNT; op++) {
    if (!(ops >> op & 1)) continue;
    strbuf_printf(&sb, "%s%s", first ? "" : "|", reduce_op_name((ReduceOp)op));
    first = false;
  }
  strbuf_putc(&sb, ')');
  return sb.text;
}

static void put_row(StrBuf *sb, const RowList *l, const RowText *row, uint32_t ops,
                    uint32_t holds) {
  strbuf_puts(sb, "    ");
  for (const char *s = row->text; *s; s++) {
    if (*s == '$')
      strbuf_puts(sb, ops_text(l->arena, ops));
    else if (*s == '#')
      strbuf_puts(sb, constant_text(holds));
    else
      strbuf_putc(sb, *s);
  }
  strbuf_putc(sb, '\n');
}

/* One line per set of ops that holds for the same constants. */
static void put_rows(StrBuf *sb, const RowList *l) {
  for (uint32_t i = 0; i < l->rows.len; i++) {
    const RowText *row = &l->rows.data[i];
    uint32_t done = 0;
    for (uint32_t bit = 0; bit < REDUCE_COUNT; bit++) {
      if (done >> bit & 1) continue;
      uint32_t holds = 0, ops = 0;
      for (int c = 0; c < CONSTANTS; c++) holds |= (row->ops[c] >> bit & 1u) << c;
      if (!holds) continue;
      for (uint32_t other = bit; other < REDUCE_COUNT; other++) {
        uint32_t same = 0;
        for (int c = 0; c < CONSTANTS; c++) same |= (row->ops[c] >> other & 1u) << c;
        if (same == holds) ops |= 1u << other;
      }
      done |= ops;
      put_row(sb, l, row, ops, holds);
    }
  }
}

void explain_rows(Arena *arena, StrBuf *sb, Op op) {
  const Mesh mesh = {.name = "x", .naxes = 1, .axis = {"x"}, .size = {2}, .nranks = 2};
  int64_t extent[EXAMPLE_LETTERS];
  RowList all = {.arena = arena, .extent = extent};
  letter_extents(extent);
  for (uint32_t v = 0; v < example_count(op); v++)
    for (int c = 0; c < CONSTANTS; c++) {
      ExampleNode n;
      bool has_constant = false;
      example_build(arena, op, v, extent, &mesh, &n);
      for (uint32_t i = 0; i < n.noperands; i++) {
        has_constant |= n.operands[i].is_const;
        n.operands[i].const_value = constants[c];
      }
      all.letters = n.letters;
      enumerate(&all, &n, 0, c);
      if (!has_constant) break;
    }
  put_rows(sb, &all);
}

const char *op_class_name(OpClass cls) {
  static const char *const names[] = {[CLASS_NONE] = "none",
                                      [CLASS_POINTWISE] = "pointwise",
                                      [CLASS_CONTRACTION] = "contraction",
                                      [CLASS_REDUCTION] = "reduction",
                                      [CLASS_WHOLE_DIM] = "whole-dim",
                                      [CLASS_MOVEMENT] = "movement",
                                      [CLASS_INDEXING] = "indexing",
                                      [CLASS_FUSED] = "fused",
                                      [CLASS_RANDOM] = "random",
                                      [CLASS_FACTORY] = "factory",
                                      [CLASS_COMM] = "communication",
                                      [CLASS_STRUCTURE] = "structure"};
  return names[cls];
}

const char *op_class_rule(OpClass cls) {
  switch (cls) {
  case CLASS_CONTRACTION:
    return "For one mesh dim one index may be sharded, in every operand that has it; the result is "
           "sharded on it, or Partial where the index is summed. Or one operand is Partial and the "
           "others are Replicate. A bias is Partial iff the product is.";
  case CLASS_POINTWISE:
    return "Operands are aligned after broadcasting and must be cut alike along each dim. Where "
           "one "
           "list of mesh dims is a prefix of the other, the shorter side is sliced locally: a node "
           "of zero bytes, visible in the graph. A broadcast dim is not sliced.";
  case CLASS_REDUCTION:
    return "Over a sharded dim the result is Partial with the operator's own reduction, where it "
           "has one. Of a Partial operand only that reduction commutes. A mean divides by the "
           "global count.";
  case CLASS_WHOLE_DIM:
    return "The dims the operator looks along may not be sharded. Derivatives are linear in their "
           "cotangent, the first operand.";
  case CLASS_MOVEMENT:
    return "Dims carry their placement along. A dim whose boundaries would change may not be "
           "sharded. Partial passes.";
  case CLASS_INDEXING:
    return "Ids are global. The indexed dim may not be sharded, except the rows of an embedding.";
  case CLASS_FUSED:
    return "A loss reduces a sharded vocabulary inside: the result is Replicate there; a sum or "
           "mean "
           "over a sharded batch is Partial. Attention takes each query alone; keys are whole, or "
           "cut like the queries by mesh dims named ring_cp and ulysses_cp; ranks that cut heads "
           "of "
           "k keep the query heads that share one together.";
  case CLASS_RANDOM:
    return "The mask depends on the global index of an element, so every placement draws the same.";
  case CLASS_FACTORY:
    return "The type is stated. Every rank makes its own block.";
  case CLASS_COMM:
    return "Changes the placement, never the value. A Partial may not turn into another.";
  case CLASS_STRUCTURE:
  case CLASS_NONE:
    break;
  }
  return "Takes any placement.";
}

/* Appends text in lines of at most 96 characters. */
static void put_wrapped(StrBuf *sb, const char *text) {
  enum { WIDTH = 96 };
  size_t column = 0;
  while (*text) {
    size_t word = strcspn(text, " ");
    if (column && column + 1 + word > WIDTH) {
      strbuf_putc(sb, '\n');
      column = 0;
    } else if (column) {
      strbuf_putc(sb, ' ');
      column++;
    }
    strbuf_put_n(sb, text, word);
    column += word;
    text += word;
    while (*text == ' ') text++;
  }
  strbuf_putc(sb, '\n');
}

const char *infer_explain(Arena *arena, Op op, const char *call) {
  const OpInfo *info = op_info(op);
  StrBuf sb;
  strbuf_init(&sb, arena);
  strbuf_printf(&sb, "%s: %s\n\n", info->name, info->doc);
  if (call) strbuf_printf(&sb, "call: %s\n", call);
  strbuf_printf(&sb, "class: %s\n", op_class_name(info->cls));
  if (*(info->expr ? info->expr : "")) strbuf_printf(&sb, "meaning: %s\n", info->expr);
  if (info->attrs) {
    strbuf_puts(&sb, "attributes:");
    for (int key = ATTR_NONE + 1; key < ATTR_COUNT; key++)
      if (info->attrs >> key & 1) strbuf_printf(&sb, " %s", attr_name((AttrKey)key));
    strbuf_putc(&sb, '\n');
  }
  if (example_count(op)) {
    strbuf_puts(&sb,
                "\nrows on one mesh dim x (letters are extents; a dim without @x is whole):\n");
    explain_rows(arena, &sb, op);
  }
  strbuf_putc(&sb, '\n');
  put_wrapped(&sb, op_class_rule(info->cls));
  if (info->cls != CLASS_FACTORY && info->cls != CLASS_STRUCTURE && info->cls != CLASS_COMM)
    put_wrapped(&sb,
                "With several mesh dims each needs a row of its own, and operands that share a "
                "dim carry the same ordered list of mesh dims, which the result inherits.");
  return sb.text;
}
