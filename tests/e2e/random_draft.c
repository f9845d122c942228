/* Values of a random program: see random_draft.h. */
#include "random_draft.h"

#include <stdarg.h>
#include <string.h>

int draft_below(Draft *d, int n) {
  d->state ^= d->state << 13;
  d->state ^= d->state >> 7;
  d->state ^= d->state << 17;
  return (int)((d->state >> 33) % (uint64_t)n);
}

bool draft_chance(Draft *d, int percent) {
  return draft_below(d, 100) < percent;
}

__attribute__((format(printf, 2, 3))) const char *draft_text(Draft *d, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const char *s = arena_vprintf(d->arena, format, args);
  va_end(args);
  return s;
}

/* One of the words, which are separated by |. */
const char *draft_word(Draft *d, const char *words) {
  int n = 1;
  for (const char *c = words; *c; c++) n += *c == '|';
  for (n = draft_below(d, n); n > 0; n--) words = strchr(words, '|') + 1;
  return draft_text(d, "%.*s", (int)strcspn(words, "|"), words);
}

int value_elements(const Value *v) {
  int n = 1;
  for (int i = 0; i < v->rank; i++) n *= v->extent[i];
  return n;
}

/* --- layouts ------------------------------------------------------------------------------------
 */

static const char *axes_text(Draft *d, const Cut *c) {
  if (c->n == 0) return "";
  StrBuf s;
  strbuf_init(&s, d->arena);
  strbuf_puts(&s, c->n > 1 ? "@(" : "@");
  for (int i = 0; i < c->n; i++) strbuf_printf(&s, "%s%s", i ? ", " : "", d->axis_name[c->axis[i]]);
  if (c->n > 1) strbuf_puts(&s, ")");
  return s.text;
}

/* "[4@a, 5@(b, c)]" */
const char *draft_dims(Draft *d, const Value *v) {
  StrBuf s;
  strbuf_init(&s, d->arena);
  strbuf_puts(&s, "[");
  for (int i = 0; i < v->rank; i++) {
    const char *extent = i == 0 && v->rows ? "B" : draft_text(d, "%d", v->extent[i]);
    strbuf_printf(&s, "%s%s%s", i ? ", " : "", extent, axes_text(d, &v->cut[i]));
  }
  strbuf_puts(&s, "]");
  return s.text;
}

const char *draft_on(Draft *d, int mesh) {
  return mesh ? draft_text(d, " on %s", d->mesh[mesh].name) : "";
}

bool value_has_cuts(const Value *v, const Cut *cut) {
  for (int i = 0; i < v->rank; i++) {
    if (v->cut[i].n != cut[i].n) return false;
    for (int k = 0; k < cut[i].n; k++)
      if (v->cut[i].axis[k] != cut[i].axis[k]) return false;
  }
  return true;
}

/* The axes of the mesh at hand in a random order. */
int draft_shuffled_axes(Draft *d, int *axis) {
  int n = 0;
  for (int a = 0; a < MAX_AXES; a++)
    if (d->mesh[d->at].axes >> a & 1) axis[n++] = a;
  for (int i = n; i-- > 1;) {
    int k = draft_below(d, i + 1), keep = axis[i];
    axis[i] = axis[k];
    axis[k] = keep;
  }
  return n;
}

/* `whole`: dims that no axis may cut. */
void draft_random_cuts(Draft *d, int rank, unsigned whole, Cut *cut) {
  int axis[MAX_AXES], n = draft_shuffled_axes(d, axis);
  memset(cut, 0, sizeof(Cut) * MAX_RANK);
  for (int i = 0; i < n; i++) {
    if (rank == 0 || draft_chance(d, 40)) continue;
    int dim = draft_below(d, rank);
    if (!(whole >> dim & 1)) cut[dim].axis[cut[dim].n++] = axis[i];
  }
}

Value draft_lay_as(Draft *d, const Value *v, const Cut *cut) {
  d->used[v->id] = true;
  Value r = *v;
  memcpy(r.cut, cut, sizeof r.cut);
  r.mesh = d->at;
  if (v->mesh == d->at && (d->auto_now || d->raw_now)) return r;
  r.partial = 0;
  r.known = true;
  if (v->known && v->mesh == d->at && !v->partial && value_has_cuts(v, cut)) return r;
  r.name = draft_text(d, "%s.redistribute(%s%s)", v->name, draft_dims(d, &r),
                      v->mesh == d->at && !(d->mesh[d->at].axes >> AXIS_FLAT & 1)
                          ? ""
                          : draft_text(d, " on %s", d->mesh[d->at].name));
  return r;
}

/* v under some layout in which the dims `whole` are not cut; a pending sum may stay. */
Value draft_lay(Draft *d, const Value *v, unsigned whole, bool partial_too) {
  bool fits = v->known && v->mesh == d->at && (!v->partial || partial_too);
  for (int i = 0; i < v->rank; i++) fits = fits && !(whole >> i & 1 && v->cut[i].n);
  if (fits && draft_chance(d, 65)) {
    d->used[v->id] = true;
    return *v;
  }
  Cut cut[MAX_RANK];
  draft_random_cuts(d, v->rank, whole, cut);
  return draft_lay_as(d, v, cut);
}

/* --- values -------------------------------------------------------------------------------------
 */

/* let vN = expression, of the shape and layout of `like`. */
__attribute__((format(printf, 3, 4))) Value draft_define(Draft *d, Value like, const char *format,
                                                         ...) {
  va_list args;
  va_start(args, format);
  const char *e = arena_vprintf(d->arena, format, args);
  va_end(args);
  Value v = like;
  v.mesh = d->at;
  v.id = ++d->names;
  v.name = draft_text(d, "v%d", v.id);
  if (d->auto_now) {
    draft_random_cuts(d, v.rank, 0, v.cut);
    v.partial = 0;
    v.known = true;
    e = draft_text(d, "auto(out = %s) { return %s }", draft_dims(d, &v), e);
  } else if (d->raw_now) {
    v.known = false;
  }
  strbuf_printf(d->body, "    let %s = %s\n", v.name, e);
  if (d->npool < MAX_POOL) d->pool[d->npool++] = v;
  return v;
}

Value draft_parameter(Draft *d, int rank, const int *extent) {
  Value v = {.rank = rank, .known = true, .mesh = d->at, .id = ++d->names};
  v.name = draft_text(d, "w%d", v.id);
  memcpy(v.extent, extent, sizeof(int) * (size_t)rank);
  draft_random_cuts(d, rank, 0, v.cut);
  unsigned used = 0;
  for (int i = 0; i < rank; i++)
    for (int k = 0; k < v.cut[i].n; k++) used |= 1u << v.cut[i].axis[k];
  int axis[MAX_AXES], n = draft_shuffled_axes(d, axis);
  if (n && !(used >> axis[0] & 1) && draft_chance(d, 15)) {
    v.partial = 1u << axis[0];
  }
  strbuf_printf(d->params, "  param %s: f32%s%s%s = normal(std = 0.4)\n", v.name, draft_dims(d, &v),
                v.partial ? draft_text(d, " partial(%s)", d->axis_name[axis[0]]) : "",
                d->fixed_mesh ? "" : draft_on(d, d->at));
  if (d->npool < MAX_POOL) d->pool[d->npool++] = v;
  return v;
}

/* A float of a rank, from late in the program rather than from its start. */
Value draft_pick(Draft *d, int least, int most) {
  for (int tries = 0; tries < 20; tries++) {
    int n = d->npool - d->first_local, i = draft_below(d, n), k = draft_below(d, n);
    const Value *v = &d->pool[d->first_local + (i > k ? i : k)];
    if (!v->bound && v->rank >= least && v->rank <= most) {
      if (!d->fixed_mesh) d->at = draft_chance(d, 75) ? v->mesh : draft_below(d, d->nmeshes);
      return *v;
    }
  }
  int extent[MAX_RANK];
  for (int i = 0; i < MAX_RANK; i++) extent[i] = 2 + draft_below(d, 5);
  return draft_parameter(d, least, extent);
}

/* Ids below `bound` of this shape, from the numbers of their places. */
Value draft_ids(Draft *d, int rank, const int *extent, int bound) {
  Value v = {.rank = rank, .bound = bound, .mesh = 0};
  memcpy(v.extent, extent, sizeof(int) * (size_t)rank);
  v.name = draft_text(d, "((arange(i64[%d]) * %d + %d) %% %d)", value_elements(&v),
                      1 + draft_below(d, 5), draft_below(d, 4), bound);
  if (rank != 1) {
    Value whole = v;
    memset(whole.cut, 0, sizeof whole.cut);
    v.name = draft_text(d, "%s.reshape(%s)", v.name, draft_dims(d, &whole));
  }
  if (d->fixed_mesh) v.mesh = d->at;
  return v;
}

const char *draft_apply(Draft *d, const char *format, const char *operand) {
  const char *hole = strstr(format, "%s");
  return draft_text(d, "%.*s%s%s", (int)(hole - format), format, operand, hole + 2);
}
