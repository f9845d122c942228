/* What two runs of one program have in common: see agreement.h. */
#include "driver/agreement.h"

#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/abi/number.h"

/* A number or a text that a run logged. */
typedef struct Said {
  int64_t step;
  const char *what, *text; /* text: NULL where it is a number */
  bool printed;            /* a tensor in text, to six digits */
  double value;
} Said;

typedef VEC(Said) SaidList;

/* "NAME f32[2, 3] = [...": the place of the values of a printed tensor; NULL for other events, such
 * as what was saved. */
static const char *printed_values(const char *event) {
  const char *at = strstr(event, "] = ");
  return at ? at + strlen("] = ") : NULL;
}

/* A number, or one in quotes, as "nan" is written. False when it is neither. */
static bool get_number(const json_t *v, double *out) {
  char *end = "";
  const char *text = json_string_value(v);
  *out = text ? strtod(text, &end) : json_number_value(v);
  return text ? *text && !*end : json_is_number(v);
}

/* What an object of the log says; false when it is not one of those that programs write. */
static bool read_object(Agreement *a, const json_t *o, SaidList *out) {
  const char *split = json_string_value(json_object_get(o, "split"));
  const char *metric = json_string_value(json_object_get(o, "metric"));
  const char *event = json_string_value(json_object_get(o, "event"));
  const char *text = json_string_value(json_object_get(o, "text")), *key;
  Said s = {.step = json_integer_value(json_object_get(o, "step")), .text = event ? event : text};
  if (s.text) {
    const char *values = event ? printed_values(event) : NULL;
    s.printed = values != NULL;
    s.what = values ? arena_strndup(a->arena, event, (size_t)(values - 3 - event)) : "text";
    s.text = arena_strdup(a->arena, s.text);
    if (text || values) VEC_PUSH(a->arena, out, s);
    return true;
  }
  if (split && metric) {
    s.what = arena_printf(a->arena, "%s %s", split, metric);
    if (!get_number(json_object_get(o, "value"), &s.value)) return false;
    VEC_PUSH(a->arena, out, s);
    return true;
  }
  json_t *value;
  bool ok = json_is_object(o) && s.step > 0;
  json_object_foreach((json_t *)(uintptr_t)o, key, value) {
    if (strcmp(key, "step") == 0 || strcmp(key, "seconds") == 0) continue;
    s.what = arena_strdup(a->arena, key);
    ok = get_number(value, &s.value) && ok;
    VEC_PUSH(a->arena, out, s);
  }
  return ok;
}

/* What is printed while a step is under way comes before the line with its number. */
static void number_events(SaidList *said) {
  int64_t step = 0;
  for (uint32_t i = said->len; i-- > 0;) {
    Said *s = &said->data[i];
    if (s->text)
      s->step = step;
    else
      step = s->step;
  }
}

static bool read_log(Agreement *a, const char *text, SaidList *out) {
  bool ok = true;
  while (*text) {
    size_t n = strcspn(text, "\n");
    json_t *o = json_loadb(text, n, 0, NULL);
    ok = ok && o && read_object(a, o, out);
    json_decref(o);
    text += n + (text[n] != 0);
  }
  number_events(out);
  return ok;
}

static void differ(Agreement *a, Difference d) {
  VEC_PUSH(a->arena, &a->found, d);
}

/* Infinities are equal to themselves only, NaN to NaN. */
static double apart(double want, double got) {
  if (want == got || (isnan(want) && isnan(got))) return 0;
  double d = fabs(want - got);
  return isnan(d) ? INFINITY : d;
}

static void count_difference(Agreement *a, double difference, double scale) {
  if (difference > 0 && scale > 0) a->largest = fmax(a->largest, difference / scale);
}

static const char *number(Agreement *a, double v) {
  return arena_printf(a->arena, "%.17g", v);
}

/* The number at *at in a text, after which *at stands; false where there is none. */
static bool take_number(const char **at, double *out) {
  const char *p = *at;
  char *end;
  if (!isdigit((unsigned char)*p) && *p != '-' && strncmp(p, "nan", 3) && strncmp(p, "inf", 3))
    return false;
  *out = strtod(p, &end);
  *at = end;
  return end != p;
}

/* Whether this printed tensor is of integers, which are equal or not. */
static bool of_integers(const char *text, const char *values) {
  const char *type = values - strlen("] = ");
  while (type > text && *type != '[') type--;
  while (type > text && type[-1] != ' ') type--;
  return *type == 'i' || *type == 'u';
}

/* Floats are printed to six digits, of which the last may be rounded another way. What differs the
 * most is put into *d. */
static bool same_printed(Agreement *a, const char *want, const char *got, Difference *d) {
  const double digits = 1.01e-5;
  const char *w = printed_values(want), *g = printed_values(got), *at;
  double x, y, largest = 0;
  int nth = 0;
  if (!g || strncmp(want, got, (size_t)(w - want)) != 0) return false;
  if (of_integers(want, w)) return strcmp(w, g) == 0;
  for (at = w; *at;)
    if (!take_number(&at, &x))
      at++;
    else if (isfinite(x))
      largest = fmax(largest, fabs(x));
  while (*w && *g) {
    bool n = take_number(&w, &x), m = take_number(&g, &y);
    if (n != m) return false;
    if (!n && *w++ != *g++) return false;
    nth += n;
    double far = n ? apart(x, y) : 0;
    double bound = n && isfinite(x) ? a->tolerance.value * largest + digits * fabs(x) : 0;
    if (far <= bound || far <= d->by) continue;
    d->by = far;
    d->allowed = bound;
    d->element = arena_printf(a->arena, "number %d", nth);
    d->want = arena_printf(a->arena, "%.6g", x);
    d->got = arena_printf(a->arena, "%.6g", y);
  }
  return *w == *g && !*d->element;
}

static void compare_said(Agreement *a, const Said *want, const Said *got, double largest) {
  Difference d = {want->step, want->what, "", want->text, got->text, NAN, NAN};
  a->values++;
  if (want->text) {
    if (!got->text) d.got = number(a, got->value);
    bool printed = want->printed && got->text;
    if (printed && printed_values(got->text)) {
      d.want = printed_values(want->text);
      d.got = printed_values(got->text);
    }
    d.by = 0;
    if (printed ? !same_printed(a, want->text, got->text, &d) : strcmp(d.want, d.got) != 0)
      differ(a, d);
    return;
  }
  d.by = apart(want->value, got->value);
  d.allowed = a->tolerance.value * fabs(want->value) + a->tolerance.floor * largest;
  if (!isfinite(want->value)) d.allowed = 0;
  a->numbers++;
  count_difference(a, d.by, largest);
  if (d.by <= d.allowed) return;
  d.want = number(a, want->value);
  d.got = number(a, got->value);
  differ(a, d);
}

/* The largest of what has this name. */
static double largest_said(const SaidList *said, const char *what) {
  double largest = 0;
  for (uint32_t i = 0; i < said->len; i++)
    if (!said->data[i].text && strcmp(said->data[i].what, what) == 0 &&
        isfinite(said->data[i].value))
      largest = fmax(largest, fabs(said->data[i].value));
  return largest;
}

const char *agreement_logs(Agreement *a, const char *want, const char *got) {
  SaidList wanted = {0}, had = {0};
  if (!read_log(a, want, &wanted) || !read_log(a, got, &had))
    return "a line of a log is not as it should be";
  for (uint32_t i = 0; i < wanted.len || i < had.len; i++) {
    const Said *w = i < wanted.len ? &wanted.data[i] : NULL, *g = i < had.len ? &had.data[i] : NULL;
    if (w && g && w->step == g->step && strcmp(w->what, g->what) == 0) {
      compare_said(a, w, g, largest_said(&wanted, w->what));
      continue;
    }
    const Said *any = w ? w : g;
    differ(a, (Difference){any->step, any->what, "", w ? "logged" : "nothing",
                           !g   ? "nothing"
                           : !w ? "logged"
                                : arena_printf(a->arena, "%s", g->what),
                           NAN, NAN});
    break;
  }
  return NULL;
}

/* "[3, 2]" of the element with this number. */
static const char *element_name(Agreement *a, const SavedTensor *t, int64_t element) {
  StrBuf sb;
  int64_t index[ABI_MAX_DIMS];
  strbuf_init(&sb, a->arena);
  for (uint32_t d = t->shape.len; d-- > 0;) {
    if (d < ABI_MAX_DIMS) index[d] = element % t->shape.data[d];
    element /= t->shape.data[d];
  }
  strbuf_putc(&sb, '[');
  for (uint32_t d = 0; d < t->shape.len && d < ABI_MAX_DIMS; d++)
    strbuf_printf(&sb, "%s%lld", d ? ", " : "", (long long)index[d]);
  strbuf_putc(&sb, ']');
  return sb.text;
}

static const char *type_text(Agreement *a, const SavedTensor *t) {
  StrBuf sb;
  if (!t) return "none";
  strbuf_init(&sb, a->arena);
  strbuf_printf(&sb, "%s[", dtype_name(t->type));
  for (uint32_t d = 0; d < t->shape.len; d++)
    strbuf_printf(&sb, "%s%lld", d ? ", " : "", (long long)t->shape.data[d]);
  strbuf_putc(&sb, ']');
  return sb.text;
}

static double load(const SavedTensor *t, int64_t i) {
  return abi_load(t->data, (uint32_t)t->type, i);
}

/* What the name of a state ends in. */
static const char *suffix(const SavedTensor *t) {
  const char *dot = strrchr(t->name, '.');
  return t->optimizer && dot ? dot : "";
}

static bool is_squares(const SavedTensor *t) {
  return strcmp(suffix(t), ".v") == 0;
}

/* What rounding may do to a tensor; all that is of its kind says what is nothing but rounding. */
static double allowed_in(const Agreement *a, const SavedTensors *all, const SavedTensor *t) {
  double of_all = 0;
  for (uint32_t i = 0; i < all->len; i++) {
    const SavedTensor *o = &all->data[i];
    if (o->optimizer == t->optimizer && strcmp(suffix(o), suffix(t)) == 0)
      of_all = fmax(of_all, o->largest);
  }
  double allowed = (is_squares(t) ? 2 : 1) * a->tolerance.tensor * t->largest;
  return fmax(allowed, a->tolerance.floor * of_all);
}

/* The state that holds the gradient of a parameter after the first step; NULL where there is none.
 */
static const SavedTensor *gradient_of(Agreement *a, const SavedTensors *all, const SavedTensor *t) {
  if (t->optimizer) return NULL;
  const SavedTensor *m = tensors_find(all, arena_printf(a->arena, "%s.m", t->name), true);
  return m && m->count == t->count ? m : NULL;
}

/* AdamW takes a step of one length wherever the gradient is not 0, so a new value is as exact as
 * this element of the gradient is. */
static void compare_tensor(Agreement *a, const SavedTensors *all, const SavedTensor *want,
                           const SavedTensor *got, int64_t step) {
  double allowed = dtype_is_float(want->type) ? allowed_in(a, all, want) : 0;
  const SavedTensor *gradient = gradient_of(a, all, want);
  double of_gradient = gradient ? allowed_in(a, all, gradient) : 0;
  Difference worst = {.step = step, .what = want->name};
  int64_t at = -1;
  a->tensors++;
  for (int64_t i = 0; i < want->count; i++) {
    double w = load(want, i), by = apart(w, load(got, i)), may = allowed;
    if (of_gradient > 0) may += want->largest * of_gradient / fabs(load(gradient, i));
    if (by <= allowed || by > may) count_difference(a, by, want->largest);
    if (by <= may) continue;
    if (at >= 0 && by <= worst.by) continue;
    at = i;
    worst.by = by;
    worst.allowed = may;
  }
  if (at < 0) return;
  worst.element = element_name(a, want, at);
  worst.want = number(a, load(want, at));
  worst.got = number(a, load(got, at));
  differ(a, worst);
}

static void compare_kind(Agreement *a, const SavedTensors *want, const SavedTensors *got,
                         int64_t step, bool optimizer) {
  for (uint32_t i = 0; i < want->len; i++) {
    const SavedTensor *w = &want->data[i];
    if (w->optimizer != optimizer) continue;
    const SavedTensor *g = tensors_find(got, w->name, optimizer);
    const char *type = type_text(a, w), *other = type_text(a, g);
    if (g && strcmp(type, other) == 0)
      compare_tensor(a, want, w, g, step);
    else
      differ(a, (Difference){step, w->name, "", type, other, NAN, NAN});
  }
  for (uint32_t i = 0; i < got->len; i++) {
    const SavedTensor *g = &got->data[i];
    if (g->optimizer == optimizer && !tensors_find(want, g->name, optimizer))
      differ(a, (Difference){step, g->name, "", "none", type_text(a, g), NAN, NAN});
  }
}

void agreement_tensors(Agreement *a, const SavedTensors *want, const SavedTensors *got,
                       int64_t step) {
  compare_kind(a, want, got, step, true);
  compare_kind(a, want, got, step, false);
}

enum { COLUMNS = 7, MOST_ROWS = 20, WIDEST = 44 };

/* A row of the table; columns before `left` are aligned to the left. */
static void put_row(StrBuf *out, const char *const cell[COLUMNS], const size_t width[COLUMNS]) {
  size_t end = out->len;
  for (int c = 0; c < COLUMNS; c++) {
    strbuf_printf(out, "  %-*.*s", (int)width[c], WIDEST, cell[c]);
    if (*cell[c]) end = out->len - (strlen(cell[c]) < width[c] ? width[c] - strlen(cell[c]) : 0);
  }
  out->len = end;
  out->text[end] = 0;
  strbuf_putc(out, '\n');
}

void agreement_print(const Agreement *a, const char *mesh, StrBuf *out) {
  const char *cell[MOST_ROWS + 1][COLUMNS] = {
      {"step", "what", "element", "one rank", mesh, "difference", "allowed"}};
  size_t width[COLUMNS] = {0};
  uint32_t n = 0, more = 0;
  for (uint32_t i = 0; i < a->found.len; i++) {
    const Difference *d = &a->found.data[i];
    if (d->step != a->found.data[0].step) continue;
    if (n == MOST_ROWS) {
      more++;
      continue;
    }
    bool number = !isnan(d->by) && d->by > 0;
    const char *row[COLUMNS] = {d->step ? arena_printf(a->arena, "%lld", (long long)d->step) : "-",
                                d->what,
                                d->element,
                                d->want,
                                d->got,
                                number ? arena_printf(a->arena, "%.1e", d->by) : "",
                                number ? arena_printf(a->arena, "%.1e", d->allowed) : ""};
    memcpy(cell[++n], row, sizeof row);
  }
  for (uint32_t i = 0; i <= n; i++)
    for (int c = 0; c < COLUMNS; c++) {
      size_t length = strlen(cell[i][c]);
      if (length > WIDEST) length = WIDEST;
      if (length > width[c]) width[c] = length;
    }
  for (uint32_t i = 0; i <= n; i++) put_row(out, cell[i], width);
  if (more) strbuf_printf(out, "  and %u more\n", more);
}
