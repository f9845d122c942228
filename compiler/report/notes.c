/* Sentences about a tensor: see cut.h. */
#include "report/cut.h"

/* What the addends of a reduction become. */
static const char *reduction(ReduceOp op) {
  switch (op) {
  case REDUCE_SUM:
    return "their sum";
  case REDUCE_AVG:
    return "their mean";
  case REDUCE_PRODUCT:
    return "their product";
  case REDUCE_MAX:
    return "their maximum, element by element";
  case REDUCE_MIN:
    return "their minimum, element by element";
  case REDUCE_AND:
  case REDUCE_OR:
  case REDUCE_XOR:
    return "all of them together, bit by bit";
  case REDUCE_NONE:
  case REDUCE_COUNT:
    break;
  }
  return "?";
}

/* How a whole value becomes addends when it is loaded. */
static const char *loading(ReduceOp op) {
  switch (op) {
  case REDUCE_SUM:
  case REDUCE_XOR:
    return "the first of them gets the value and the others 0";
  case REDUCE_PRODUCT:
    return "the first of them gets the value and the others 1";
  case REDUCE_AVG:
  case REDUCE_MAX:
  case REDUCE_MIN:
  case REDUCE_AND:
  case REDUCE_OR:
    return "each of them gets the value";
  case REDUCE_NONE:
  case REDUCE_COUNT:
    break;
  }
  return "?";
}

const char *report_partial(Arena *arena, const TensorReport *r) {
  StrBuf sb;
  strbuf_init(&sb, arena);
  const Mesh *mesh = r->type->mesh;
  for (uint32_t a = 0; a < mesh->naxes; a++) {
    Place p = r->type->layout.at[a];
    if (p.kind != PLACE_PARTIAL) continue;
    strbuf_printf(&sb,
                  "%sPartial(%s) over %s: each of the %lld ranks along %s holds an addend of the "
                  "whole block; the value is %s",
                  sb.len ? ". " : "", reduce_op_name((ReduceOp)p.op), mesh->axis[a],
                  (long long)mesh->size[a], mesh->axis[a], reduction((ReduceOp)p.op));
    if (r->loaded) strbuf_printf(&sb, "; on loading, %s", loading((ReduceOp)p.op));
  }
  return sb.len ? sb.text : NULL;
}

const char *report_hidden_dims(Arena *arena, const Cut *c) {
  StrBuf sb;
  strbuf_init(&sb, arena);
  for (int d = 0; d < (int)c->type.rank; d++) {
    if (d == c->row || d == c->col) continue;
    if (!c->naxes[d]) {
      strbuf_printf(&sb, "%sdim %d (%s)", sb.len ? "; " : "", d, cut_dim_print(arena, c, d));
      continue;
    }
    int64_t coord[DTM_MAX_AXES], begin, length;
    cut_part(c, d, 0, coord, &begin, &length);
    strbuf_printf(&sb, "%sdim %d (%s): drawn for its part 0:%lld,", sb.len ? "; " : "", d,
                  cut_dim_print(arena, c, d), (long long)length);
    for (uint32_t k = 0; k < c->naxes[d]; k++)
      strbuf_printf(&sb, " %s=0", c->type.mesh->axis[c->axes[d][k]]);
  }
  return sb.len ? sb.text : NULL;
}

const char *cut_list_print(Arena *arena, const int64_t *n, uint32_t len) {
  StrBuf sb;
  strbuf_init(&sb, arena);
  strbuf_putc(&sb, '[');
  for (uint32_t i = 0; i < len; i++) strbuf_printf(&sb, "%s%lld", i ? ", " : "", (long long)n[i]);
  strbuf_putc(&sb, ']');
  return sb.text;
}

const char *cut_role_print(Arena *arena, const CutRank *r) {
  StrBuf sb;
  strbuf_init(&sb, arena);
  if (r->addends > 1)
    strbuf_printf(&sb, "addend %lld of %lld", (long long)r->addend + 1, (long long)r->addends);
  if (r->copies > 1) {
    if (sb.len) strbuf_puts(&sb, ", ");
    if (r->copy == 0)
      strbuf_puts(&sb, "owner");
    else
      strbuf_printf(&sb, "copy of rank %lld", (long long)r->owner);
  }
  return sb.text;
}

const char *cut_row_print(Arena *arena, const CutRow *row) {
  const char *text = cut_ranks_print(arena, row->ranks.data, row->ranks.len, 20);
  if (row->ranks.len < 3) return text;
  return arena_printf(arena, "%s (%u)", text, row->ranks.len);
}
