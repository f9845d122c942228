/* Arguments to parameters: one rule for operators, functions, modules, readers, optimizers. */
#include <string.h>

#include "sema/elab.h"

static int find_param(const ParamSpec *params, uint32_t nparams, const char *name) {
  for (uint32_t p = 0; p < nparams; p++)
    if (params[p].name == name || (params[p].also && params[p].also == name)) return (int)p;
  return -1;
}

static const char *param_list(Sema *s, const ParamSpec *params, uint32_t nparams) {
  StrBuf sb;
  strbuf_init(&sb, s->arena);
  for (uint32_t p = 0; p < nparams; p++)
    strbuf_printf(&sb, "%s%s%s", p ? ", " : "", params[p].name, params[p].required ? "" : "?");
  return nparams ? sb.text : "none";
}

static Diag *fault(Sema *s, const Call *call, Span span, const ParamSpec *params, uint32_t nparams,
                   const char *message) {
  Diag *d = sema_error(s, DIAG_ARGUMENTS, span, "%s", message);
  diag_reason(s->sink, d, "%s takes: %s", call->name, param_list(s, params, nparams));
  return d;
}

static void unknown_argument(Sema *s, const Call *call, const CallArg *arg, const ParamSpec *params,
                             uint32_t nparams) {
  Span place = arg->name_span.file ? arg->name_span : arg->span;
  Diag *d = fault(s, call, place, params, nparams,
                  arena_printf(s->arena, "%s has no parameter %s", call->name, arg->name));
  unsigned best = 3;
  const char *near = NULL;
  for (uint32_t p = 0; p < nparams; p++) {
    unsigned distance = edit_distance(arg->name, params[p].name, best - 1);
    if (distance >= best) continue;
    best = distance;
    near = params[p].name;
  }
  if (!near && strcmp(arg->name, "axis") == 0) near = "dim";
  if (near) diag_help(s->sink, d, place, near, NULL, "did you mean %s?", near);
}

bool bind_args(Sema *s, const Call *call, const ParamSpec *params, uint32_t nparams, Val *out,
               Span *spans, ArgRest *rest, ArgRest *extra) {
  bool ok = true;
  for (uint32_t p = 0; p < nparams; p++) {
    out[p] = (Val){0};
    spans[p] = call->span;
  }
  uint32_t position = 0;
  for (uint32_t i = 0; i < call->nargs; i++) {
    const CallArg *arg = &call->args[i];
    if (arg->value.kind == VAL_POISON) ok = false;
    int p;
    if (arg->name) {
      p = find_param(params, nparams, arg->name);
      if (p < 0 && rest && rest->len < SEMA_MAX_ARGS) {
        rest->data[rest->len++] = *arg;
        continue;
      }
      if (p < 0) {
        unknown_argument(s, call, arg, params, nparams);
        ok = false;
        continue;
      }
    } else {
      p = (int)position++;
      if ((uint32_t)p >= nparams) {
        if (extra && extra->len < SEMA_MAX_ARGS) {
          extra->data[extra->len++] = *arg;
          continue;
        }
        fault(s, call, arg->span, params, nparams,
              arena_printf(s->arena, "%s takes at most %u argument%s", call->name, nparams,
                           nparams == 1 ? "" : "s"));
        return false;
      }
    }
    if (out[p].kind != VAL_UNSET) {
      fault(s, call, arg->span, params, nparams,
            arena_printf(s->arena, "%s is given twice", params[p].name));
      ok = false;
      continue;
    }
    out[p] = arg->value;
    spans[p] = arg->span;
  }
  for (uint32_t p = 0; ok && p < nparams; p++) {
    if (!params[p].required || out[p].kind != VAL_UNSET) continue;
    fault(s, call, call->span, params, nparams,
          arena_printf(s->arena, "%s needs an argument for %s", call->name, params[p].name));
    ok = false;
  }
  return ok;
}

bool bind_declared(Sema *s, const Call *call, const ParamList *params, ArgRest *rest, Val **values,
                   Span **spans) {
  *values = NULL;
  if (params->len > SEMA_MAX_ARGS) {
    sema_error(s, DIAG_ARGUMENTS, call->span, "more than %d parameters", SEMA_MAX_ARGS);
    return false;
  }
  ParamSpec *specs = ARENA_ARRAY(s->arena, ParamSpec, params->len);
  *values = ARENA_ARRAY(s->arena, Val, params->len);
  *spans = ARENA_ARRAY(s->arena, Span, params->len);
  for (uint32_t p = 0; p < params->len; p++)
    specs[p] = (ParamSpec){.name = params->data[p].name, .required = !params->data[p].fallback};
  return bind_args(s, call, specs, params->len, *values, *spans, rest, NULL);
}

Val bound_value(Sema *s, Env *env, const ParamDecl *decl, Val given, Span *span) {
  if (given.kind != VAL_UNSET) return given;
  if (!decl->fallback) return POISON;
  *span = decl->fallback->span;
  Val v = eval(s, env, decl->fallback);
  return v.kind == VAL_UNSET ? POISON : v;
}

typedef struct WordSpecs {
  ParamSpec params[16];
  uint32_t n;
} WordSpecs;

/* A list is read once: `words` is a literal, which its address tells apart. */
static const WordSpecs *word_specs(Sema *s, const char *words) {
  WordSpecs *specs = name_map_get(&s->word_specs, words);
  if (specs) return specs;
  specs = ARENA_NEW(s->arena, WordSpecs);
  name_map_put(s->arena, &s->word_specs, words, specs);
  for (const char *w = words; *w && specs->n < 16;) {
    size_t len = strcspn(w, " ");
    bool optional = w[len - 1] == '?';
    size_t bar = strcspn(w, "|");
    size_t end = len - optional;
    ParamSpec *param = &specs->params[specs->n++];
    param->required = !optional;
    param->name = intern_n(s->names, w, bar < end ? bar : end);
    if (bar < end) param->also = intern_n(s->names, w + bar + 1, end - bar - 1);
    w += len + (w[len] == ' ');
  }
  return specs;
}

bool bind_words(Sema *s, const Call *call, const char *words, Val *out, Span *spans) {
  if (s->asked) {
    s->asked = words;
    return false;
  }
  const WordSpecs *specs = word_specs(s, words);
  return bind_args(s, call, specs->params, specs->n, out, spans, NULL, NULL);
}
