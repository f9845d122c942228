/* Operators that move, choose or draw elements, and losses. */
#include <string.h>

#include "random_draft.h"

void random_shape(Draft *d) {
  Value v = draft_pick(d, 1, MAX_RANK);
  Value x, r;
  switch (draft_below(d, 6)) {
  case 0:
  case 1: { /* permute */
    x = draft_lay(d, &v, 0, true);
    r = x;
    StrBuf s;
    strbuf_init(&s, d->arena);
    int order[MAX_RANK];
    for (int i = 0; i < v.rank; i++) order[i] = i;
    for (int i = v.rank; i-- > 1;) {
      int k = draft_below(d, i + 1), keep = order[i];
      order[i] = order[k];
      order[k] = keep;
    }
    for (int i = 0; i < v.rank; i++) {
      strbuf_printf(&s, ", %d", order[i]);
      r.extent[i] = x.extent[order[i]];
      r.cut[i] = x.cut[order[i]];
    }
    draft_define(d, r, "permute(%s%s)", x.name, s.text);
    break;
  }
  case 2: { /* two dims become one */
    if (v.rank < 2) break;
    int i = draft_below(d, v.rank - 1);
    x = draft_lay(d, &v, draft_chance(d, 85) ? 3u << i : 2u << i, true);
    r = x;
    bool clean = !x.cut[i].n && !x.cut[i + 1].n;
    r.known &= clean;
    r.extent[i] *= r.extent[i + 1];
    for (int k = i + 1; k + 1 < r.rank; k++) {
      r.extent[k] = r.extent[k + 1];
      r.cut[k] = r.cut[k + 1];
    }
    r.rank--;
    Value shape = r;
    memset(shape.cut, 0, sizeof shape.cut);
    draft_define(d, r, "reshape(%s, %s)", x.name, draft_dims(d, &shape));
    break;
  }
  case 3: { /* one dim becomes two */
    int i = draft_below(d, v.rank), f = 2;
    while (f < v.extent[i] && v.extent[i] % f) f++;
    if (v.rank == MAX_RANK || f >= v.extent[i]) break;
    x = draft_lay(d, &v, draft_chance(d, 85) ? 1u << i : 0, true);
    r = x;
    r.known &= !x.cut[i].n;
    for (int k = r.rank++; k > i; k--) {
      r.extent[k] = r.extent[k - 1];
      r.cut[k] = r.cut[k - 1];
    }
    r.cut[i + 1] = (Cut){0};
    r.extent[i] = v.extent[i] / f;
    r.extent[i + 1] = f;
    Value shape = r;
    memset(shape.cut, 0, sizeof shape.cut);
    draft_define(d, r, "%s.reshape(%s)", x.name, draft_dims(d, &shape));
    break;
  }
  case 4: { /* unsqueeze, then expand */
    if (v.rank == MAX_RANK) break;
    int i = draft_below(d, v.rank + 1), n = 1 + draft_below(d, 4);
    if (value_elements(&v) * n > MOST_ELEMENTS) n = 1;
    x = draft_lay(d, &v, 0, true);
    r = x;
    for (int k = r.rank++; k > i; k--) {
      r.extent[k] = r.extent[k - 1];
      r.cut[k] = r.cut[k - 1];
    }
    r.cut[i] = (Cut){0};
    r.extent[i] = n;
    Value shape = r;
    memset(shape.cut, 0, sizeof shape.cut);
    if (n == 1)
      draft_define(d, r, "unsqueeze(%s, %d)", x.name, i);
    else
      draft_define(d, r, "expand(unsqueeze(%s, %d), %s)", x.name, i, draft_dims(d, &shape));
    break;
  }
  default: { /* select */
    int i = draft_below(d, v.rank);
    x = draft_lay(d, &v, 1u << i, true);
    r = x;
    for (int k = i; k + 1 < r.rank; k++) {
      r.extent[k] = r.extent[k + 1];
      r.cut[k] = r.cut[k + 1];
    }
    r.rank--;
    StrBuf s;
    strbuf_init(&s, d->arena);
    for (int k = 0; k < v.rank; k++)
      strbuf_printf(
          &s, "%s%s", k ? ", " : "",
          k == i
              ? draft_text(d, "%d", draft_below(d, 2) - draft_below(d, 2) * 0 - (v.extent[i] < 2))
              : ":");
    draft_define(d, r, "%s[%s]", x.name, s.text);
    break;
  }
  }
}

void random_move(Draft *d) {
  Value v = draft_pick(d, 1, MAX_RANK);
  int dim = draft_below(d, v.rank), n = v.extent[dim], kind = draft_below(d, 9);
  Value x = draft_lay(d, &v, kind == 6 ? 0 : 1u << dim, kind != 4 && kind != 5), r = x;
  switch (kind) {
  case 0: {
    int from = draft_below(d, n), to = from + 1 + draft_below(d, n - from),
        step = 1 + draft_below(d, 2);
    r.extent[dim] = (to - from + step - 1) / step;
    draft_define(d, r, "slice(%s, %d, %d, %d, %d)", x.name, dim, from, to, step);
    break;
  }
  case 1: {
    int before = draft_below(d, 3), after = draft_below(d, 3);
    r.extent[dim] += before + after;
    draft_define(d, r, "pad(%s, %d, %d, %d%s)", x.name, dim, before, after,
                 x.partial || draft_chance(d, 40) ? "" : ", 0.7");
    break;
  }
  case 2:
    draft_define(d, r, "roll(%s, %d, %d)", x.name, draft_below(d, 2 * n + 1) - n, dim);
    break;
  case 3:
    draft_define(d, r, "flip(%s, %d)", x.name, dim);
    break;
  case 4:
  case 5: { /* cat with itself or another value of the same other dims */
    Value y = v;
    for (int i = d->first_local; i < d->npool; i++) {
      const Value *o = &d->pool[i];
      if (o->bound || o->rank != v.rank) continue;
      bool fits = true;
      for (int k = 0; k < v.rank; k++) fits = fits && (k == dim || o->extent[k] == v.extent[k]);
      if (fits && draft_chance(d, 40)) y = *o;
    }
    if (value_elements(&v) + value_elements(&y) > MOST_ELEMENTS) break;
    r.extent[dim] += y.extent[dim];
    Value z = draft_lay_as(d, &y, x.cut);
    draft_define(d, r, "cat([%s, %s], %d)", x.name, z.name, dim);
    break;
  }
  case 6:
    if (v.rank < 2) break;
    draft_define(d, r, "%s(%s, %d)", draft_chance(d, 50) ? "tril" : "triu", x.name,
                 draft_below(d, 4) - 2);
    break;
  case 7: {
    if (n < 2) break;
    int k = 1 + draft_below(d, n - 1);
    Value a = r, b = r;
    a.extent[dim] = k;
    b.extent[dim] = n - k;
    draft_define(d, a, "split(%s, [%d, %d], %d)[0]", x.name, k, n - k, dim);
    draft_define(d, b, "split(%s, [%d, %d], %d)[1]", x.name, k, n - k, dim);
    break;
  }
  default:
    if (value_elements(&v) * 2 > MOST_ELEMENTS) break;
    r.extent[dim] *= 2;
    draft_define(d, r, "cat([%s, %s * 0.5], %d)", x.name, x.name, dim);
    break;
  }
}

void random_index(Draft *d) {
  Value none = {0};
  int kind = draft_below(d, 6);
  if (kind <= 1) { /* embedding: the ids there are, or new ones */
    Value table = draft_pick(d, 2, 2), ids = none;
    for (int i = d->first_local; i < d->npool; i++)
      if (d->pool[i].bound && d->pool[i].bound <= table.extent[0] && d->pool[i].rank < MAX_RANK &&
          value_elements(&d->pool[i]) * table.extent[1] <= MOST_ELEMENTS && draft_chance(d, 50))
        ids = d->pool[i];
    if (!ids.name) {
      int extent[2] = {2 + draft_below(d, 5), 1 + draft_below(d, 4)};
      ids = draft_ids(d, 1 + draft_below(d, 2), extent, table.extent[0]);
    }
    Cut ci[MAX_RANK] = {{0}}, ct[MAX_RANK] = {{0}};
    int axis[MAX_AXES], n = draft_shuffled_axes(d, axis);
    Value r = ids;
    r.bound = 0;
    r.known = true;
    r.partial = 0;
    for (int i = 0; i < n; i++) {
      int where = draft_below(d, ids.rank + 3);
      Cut *c = where < ids.rank ? &ci[where] : where < ids.rank + 2 ? &ct[where - ids.rank] : NULL;
      if (!c) continue;
      c->axis[c->n++] = axis[i];
      if (where == ids.rank) r.partial |= 1u << axis[i];
    }
    Value a = draft_lay_as(d, &ids, ci), b = draft_lay_as(d, &table, ct);
    memcpy(r.cut, ci, sizeof ci);
    r.extent[r.rank] = table.extent[1];
    r.cut[r.rank++] = ct[1];
    draft_define(d, r, "embedding(%s, %s)", a.name, b.name);
    return;
  }
  Value v = draft_pick(d, 1, MAX_RANK);
  int dim = draft_below(d, v.rank);
  Value x = draft_lay(d, &v, 1u << dim, false), r = x;
  Cut cut[MAX_RANK] = {{0}};
  if (kind == 2) {
    int n = 1 + draft_below(d, 6);
    if (value_elements(&v) / v.extent[dim] * n > MOST_ELEMENTS) return;
    Value ids = draft_ids(d, 1, &n, v.extent[dim]);
    ids = draft_lay_as(d, &ids, cut);
    r.extent[dim] = n;
    draft_define(d, r, "index_select(%s, %d, %s)", x.name, dim, ids.name);
  } else if (kind == 3 || kind == 4) {
    int extent[MAX_RANK];
    memcpy(extent, v.extent, sizeof extent);
    extent[dim] = 1 + draft_below(d, v.extent[dim] + 1);
    Value ids = draft_ids(d, v.rank, extent, v.extent[dim]);
    ids = draft_lay_as(d, &ids, x.cut);
    if (kind == 3) {
      r.extent[dim] = extent[dim];
      draft_define(d, r, "gather(%s, %d, %s)", x.name, dim, ids.name);
    } else {
      Value source = draft_parameter(d, v.rank, extent);
      source = draft_lay_as(d, &source, x.cut);
      draft_define(d, r, "scatter_add(%s, %d, %s, %s)", x.name, dim, ids.name, source.name);
    }
  } else {
    for (int i = d->first_local; i < d->npool; i++) {
      Value ids = d->pool[i];
      if (!ids.bound || ids.bound > 8 || ids.rank == MAX_RANK || !draft_chance(d, 50)) continue;
      if (!d->fixed_mesh) d->at = ids.mesh;
      Value a = draft_lay(d, &ids, 0, false);
      r = a;
      r.bound = 0;
      r.extent[r.rank] = ids.bound;
      r.cut[r.rank++] = (Cut){0};
      draft_define(d, r, "one_hot(%s, %d, f32)", a.name, ids.bound);
      return;
    }
  }
}

void random_noise(Draft *d) {
  Value v = draft_pick(d, 1, MAX_RANK), x = draft_lay(d, &v, 0, false);
  int kind = draft_below(d, 4);
  if (d->options.descent != 0) kind = 4;
  switch (kind) {
  case 0:
    draft_define(d, x, "dropout(%s, 0.3)", x.name);
    break;
  case 1:
    draft_define(d, x, "%s * rand(f32%s%s)", x.name, draft_dims(d, &x),
                 d->fixed_mesh ? "" : draft_on(d, d->at));
    break;
  case 2:
    draft_define(d, x, "%s + 0.1 * randn(f32%s%s)", x.name, draft_dims(d, &x),
                 d->fixed_mesh ? "" : draft_on(d, d->at));
    break;
  case 3:
    draft_define(d, x, "%s * bernoulli(%s, 0.6)", x.name, x.name);
    break;
  default:
    draft_define(d, x, "%s * 1.1", x.name);
    break;
  }
}

void random_redistribute(Draft *d) {
  Value v = draft_pick(d, 0, MAX_RANK);
  Cut cut[MAX_RANK];
  draft_random_cuts(d, v.rank, 0, cut);
  Value x = draft_lay_as(d, &v, cut);
  if (x.name != v.name) draft_define(d, x, "%s", x.name);
}

void random_loss(Draft *d) {
  Value v = draft_pick(d, 2, 3);
  int classes = v.extent[v.rank - 1];
  Value x = draft_lay(d, &v, 0, false), labels = draft_ids(d, v.rank - 1, v.extent, classes);
  labels = draft_lay_as(d, &labels, x.cut);
  Value r = {.rank = 0};
  draft_define(d, r, "cross_entropy(%s, %s%s)", x.name, labels.name,
               draft_chance(d, 30) ? ", label_smoothing = 0.1" : "");
}
