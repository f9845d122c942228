/* Functions that are made of several operators. */
#include "random_draft.h"

static unsigned dims_from(const Value *v, int first) {
  return ((1u << v->rank) - 1) & ~((1u << first) - 1);
}

/* Channels whole; the groups are those of some divisor that leaves something to normalise. */
static void group_norm(Draft *d) {
  Value v = draft_pick(d, 2, MAX_RANK), x = draft_lay(d, &v, dims_from(&v, 1), false);
  int channels = x.extent[1], size = 1 + draft_below(d, channels), behind = 1;
  for (int i = 2; i < x.rank; i++) behind *= x.extent[i];
  while (channels % size) size++;
  if (size * behind < 2) return;
  const char *scale = "";
  if (draft_chance(d, 60)) {
    Cut none[MAX_RANK] = {{0}};
    Value w = draft_parameter(d, 1, &channels), b = draft_parameter(d, 1, &channels);
    w = draft_lay_as(d, &w, none);
    b = draft_lay_as(d, &b, none);
    scale = draft_chance(d, 50) ? draft_text(d, ", %s, %s", w.name, b.name)
                                : draft_text(d, ", bias = %s", b.name);
  }
  draft_define(d, x, "group_norm(%s, %d%s, eps = 0.01)", x.name, channels / size, scale);
}

static void diagonal(Draft *d) {
  Value v = draft_pick(d, 2, MAX_RANK);
  int a = draft_below(d, v.rank), b = (a + 1 + draft_below(d, v.rank - 1)) % v.rank;
  int offset = draft_below(d, 4) - 2, rows = v.extent[a], columns = v.extent[b];
  Value x = draft_lay(d, &v, 1u << a | 1u << b, true), r = x;
  if (offset < 0)
    rows += offset;
  else
    columns -= offset;
  if (rows < 1 || columns < 1) return;
  r.rank = 0;
  for (int i = 0; i < x.rank; i++) {
    if (i == a || i == b) continue;
    r.extent[r.rank] = x.extent[i];
    r.cut[r.rank++] = x.cut[i];
  }
  r.extent[r.rank] = rows < columns ? rows : columns;
  r.cut[r.rank++] = (Cut){0};
  draft_define(d, r, "diagonal(%s, %d, %d, %d)", x.name, offset, a,
               draft_chance(d, 50) ? b : b - v.rank);
}

/* Of a tensor that is whole, by ids from either end. */
static void take(Draft *d) {
  Value v = draft_pick(d, 1, MAX_RANK), x = draft_lay(d, &v, dims_from(&v, 0), false);
  int n = value_elements(&v), extent[2] = {1 + draft_below(d, 5), 1 + draft_below(d, 4)};
  Value ids = draft_ids(d, 1 + draft_below(d, 2), extent, n);
  ids = draft_lay(d, &ids, 0, false);
  Value r = ids;
  r.bound = 0;
  draft_define(d, r, "take(%s, %s%s)", x.name, ids.name,
               draft_chance(d, 50) ? draft_text(d, " - %d", draft_below(d, n + 1)) : "");
}

void random_composed(Draft *d) {
  switch (draft_below(d, 3)) {
  case 0:
    group_norm(d);
    break;
  case 1:
    diagonal(d);
    break;
  default:
    take(d);
    break;
  }
}
