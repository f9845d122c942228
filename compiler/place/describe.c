/* Plans in words, and topologies from text. */
#include "place/place.h"

#include <stdlib.h>
#include <string.h>

const char *place_step_name(Op op) {
  if (op == OP_ALL_GATHER) return "all-gather";
  if (op == OP_ALL_TO_ALL) return "all-to-all";
  if (op == OP_EXCHANGE) return "exchange";
  if (op == OP_REDUCE_SCATTER) return "reduce-scatter";
  if (op == OP_ALL_REDUCE) return "all-reduce";
  if (op == OP_SEND_MESH) return "send";
  return NULL; /* local */
}

const char *place_describe(Arena *arena, const RedistributePlan *plan) {
  if (plan->error) return plan->error;
  StrBuf sb;
  strbuf_init(&sb, arena);
  for (uint32_t i = 0; i < plan->nsteps; i++) {
    const PlanStep *s = &plan->steps[i];
    const char *name = place_step_name(s->op);
    if (!name || (s->bytes_received == 0 && s->bytes_sent == 0)) continue;
    strbuf_printf(&sb, "%s%s %s", sb.len ? " + " : "", name, bytes_print(arena, s->bytes_received));
  }
  return sb.len ? sb.text : "none";
}

Topology topology_default(const Mesh *mesh) {
  Topology t = {0};
  (void)mesh; /* every axis is alike; beyond its axes, the link to another mesh */
  for (uint32_t a = 0; a < DTM_MAX_AXES; a++) {
    t.alpha[a] = 10e-6;
    t.beta[a] = 1 / 50e9;
  }
  return t;
}

/* "3us" under {s, ms, ...}: the value in the base unit; 0 when it is not a positive number with one
 * of the units. */
static double parse_quantity(const char *text, size_t n, const char *const *units,
                             const double *scale, size_t nunits) {
  char buffer[64], *end;
  if (n >= sizeof buffer) return 0;
  memcpy(buffer, text, n);
  buffer[n] = 0;
  double v = strtod(buffer, &end);
  if (end == buffer || !(v > 0 && v < 1e30)) return 0;
  for (size_t u = 0; u < nunits; u++)
    if (strcmp(end, units[u]) == 0) return v * scale[u];
  return 0;
}

static double parse_time(const char *text, size_t n) {
  static const char *const units[] = {"s", "ms", "us", "ns"};
  static const double scale[] = {1, 1e-3, 1e-6, 1e-9};
  return parse_quantity(text, n, units, scale, 4);
}

static double parse_rate(const char *text, size_t n) {
  static const char *const units[] = {"B/s", "KB/s", "MB/s", "GB/s", "TB/s"};
  static const double scale[] = {1, 1e3, 1e6, 1e9, 1e12};
  return parse_quantity(text, n, units, scale, 5);
}

/* The next word of a line; false at its end. */
static bool next_word(const char **at, const char *end, const char **word, size_t *n) {
  while (*at < end && strchr(" \t\r", **at)) (*at)++;
  *word = *at;
  while (*at < end && !strchr(" \t\r", **at)) (*at)++;
  *n = (size_t)(*at - *word);
  return *n > 0;
}

static bool names_axis(const Mesh *mesh, uint32_t axis, const char *word, size_t n) {
  if (n == 1 && *word == '*') return true;
  return strlen(mesh->axis[axis]) == n && memcmp(mesh->axis[axis], word, n) == 0;
}

/* The dims that lines named so far. */
typedef struct NamedDim {
  const char *name;
  int line;
} NamedDim;
typedef VEC(NamedDim) NamedDims;

/* NULL, or why a line may not be about this dim: each has one, and * comes before those it would
 * change. */
static const char *name_dim(Arena *arena, NamedDims *named, const char *name, int line) {
  for (uint32_t i = 0; i < named->len; i++)
    if (strcmp(named->data[i].name, name) == 0)
      return arena_printf(arena, "%s has a line already, line %d; write both values on one", name,
                          named->data[i].line);
  if (strcmp(name, "*") == 0 && named->len)
    return arena_printf(arena, "* would change what line %d says of %s; put it first",
                        named->data[0].line, named->data[0].name);
  VEC_PUSH(arena, named, (NamedDim){name, line});
  return NULL;
}

/* One line without its comment; NULL or what is wrong. */
static const char *parse_line(Arena *arena, const char *at, const char *end, int line,
                              const Mesh *mesh, NamedDims *named, Topology *out) {
  const char *axis, *word, *wrong;
  size_t naxis, n;
  if (!next_word(&at, end, &axis, &naxis)) return NULL;
  wrong = name_dim(arena, named, arena_strndup(arena, axis, naxis), line);
  if (wrong) return wrong;
  bool any = false, twice[2] = {false, false};
  while (next_word(&at, end, &word, &n)) {
    bool alpha = n > 6 && memcmp(word, "alpha=", 6) == 0;
    bool rate = n > 10 && memcmp(word, "bandwidth=", 10) == 0;
    double v = alpha ? parse_time(word + 6, n - 6) : rate ? parse_rate(word + 10, n - 10) : 0;
    if (v == 0)
      return arena_printf(arena,
                          "\"%.*s\" is not understood; write \"AXIS alpha=3us bandwidth=400GB/s\"",
                          (int)n, word);
    if (twice[rate])
      return arena_printf(arena, "mesh dim %.*s has two values of %s", (int)naxis, axis,
                          rate ? "bandwidth" : "alpha");
    twice[rate] = any = true;
    for (uint32_t a = 0; a < mesh->naxes; a++) {
      if (!names_axis(mesh, a, axis, naxis)) continue;
      if (alpha) out->alpha[a] = v;
      if (rate) out->beta[a] = 1 / v;
    }
  }
  return any ? NULL
             : arena_printf(arena, "mesh dim %.*s has neither alpha nor bandwidth", (int)naxis,
                            axis);
}

bool topology_parse(Arena *arena, const char *text, const Mesh *mesh, Topology *out,
                    const char **error) {
  NamedDims named = {0};
  *out = topology_default(mesh);
  for (int line = 1; *text; line++) {
    const char *end = text + strcspn(text, "\n");
    const char *stop = memchr(text, '#', (size_t)(end - text));
    const char *wrong = parse_line(arena, text, stop ? stop : end, line, mesh, &named, out);
    if (wrong) {
      *error = arena_printf(arena, "line %d: %s", line, wrong);
      return false;
    }
    text = *end ? end + 1 : end;
  }
  return true;
}
