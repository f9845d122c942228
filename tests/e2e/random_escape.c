/* Per-rank code in random programs, and programs whose last batch is short. */
#include "random_draft.h"

#include <string.h>

static unsigned axes_of(const Value *v) {
  unsigned set = 0;
  for (int i = 0; i < v->rank; i++)
    for (int k = 0; k < v->cut[i].n; k++) set |= 1u << v->cut[i].axis[k];
  return set;
}

void random_local(Draft *d) {
  if (d->auto_now || d->raw_now) return;
  Value v = draft_pick(d, 1, MAX_RANK);
  Cut cut[MAX_RANK];
  draft_random_cuts(d, v.rank, 0, cut);
  Value x = draft_lay_as(d, &v, cut);
  const char *dims = draft_dims(d, &x), *on = draft_on(d, d->at);
  int kind = draft_below(d, 3);
  if (kind == 0) {
    draft_define(d, x, "local(z = %s) -> f32%s%s { return tanh(z) * 0.8 }", x.name, dims, on);
    return;
  }
  if (kind == 1) {
    Value block = draft_define(d, x, "%s", x.name);
    draft_define(d, x, "unchecked(out = %s%s) { return sin(%s) + 0.1 }", dims, on, block.name);
    return;
  }
  Value sum = {.known = true, .partial = axes_of(&x)};
  if (!sum.partial) return;
  StrBuf axes;
  strbuf_init(&axes, d->arena);
  for (int a = 0; a < MAX_AXES; a++)
    if (sum.partial >> a & 1) strbuf_printf(&axes, "%s%s", axes.len ? ", " : "", d->axis_name[a]);
  draft_define(d, sum, "local(z = %s) -> f32[] partial(%s)%s { return sum(z * z) * 0.05 }", x.name,
               axes.text, on);
}

/* What keeps samples apart: dim 0 holds them, in order. */
static Value by_rows(Draft *d, const Value *x) {
  static const char same[] = "tanh(%s)|softmax(%s, 1)|layer_norm(%s)|%s * 0.7|sin(%s)";
  Cut cut[MAX_RANK];
  if (draft_chance(d, 50)) {
    draft_random_cuts(d, 2, 2, cut); /* some of these need dim 1 whole */
    Value v = draft_lay_as(d, x, cut);
    return draft_define(d, v, "%s", draft_apply(d, draft_word(d, same), v.name));
  }
  Value w = draft_parameter(d, 2, (int[]){2 + draft_below(d, 5), x->extent[1]});
  memset(cut, 0, sizeof cut);
  w = draft_lay_as(d, &w, cut);
  draft_random_cuts(d, 2, 2, cut);
  Value v = draft_lay_as(d, x, cut);
  Value y = v;
  y.extent[1] = w.extent[0];
  return draft_define(d, y, "linear(%s, %s)", v.name, w.name);
}

const char *random_rows(Draft *d, const Value *x) {
  Value h = *x;
  for (int n = 1 + draft_below(d, 5); n > 0; n--) h = by_rows(d, &h);
  Value w = draft_parameter(d, 2, (int[]){RANDOM_IDS, h.extent[1]});
  Cut cut[MAX_RANK] = {{0}};
  w = draft_lay_as(d, &w, cut);
  h = draft_lay_as(d, &h, x->cut);
  Value y = h;
  y.extent[1] = RANDOM_IDS;
  return draft_define(d, y, "linear(%s, %s)", h.name, w.name).name;
}
