/* config entries: declaration, -D, the printed list. See elab.h. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sema/elab.h"

void config_declare(Sema *s, SourceUnit *file, const Item *item) {
  for (uint32_t i = 0; i < item->as.config.len; i++) {
    const ConfigItem *entry = &item->as.config.data[i];
    Binding *b = env_declare(s, &file->env, entry->name, BIND_CONST, POISON, entry->name_span);
    if (b->config) continue; /* a second entry of this name: reported */
    b->expr = entry->value;
    b->config = entry;
    b->lazy = LAZY_WAITING;
    name_map_put(s->arena, &file->config, entry->name, b);
  }
}

static const ConfigOverride *find_override(Sema *s, const char *name) {
  for (uint32_t i = s->options->ndefines; i-- > 0;) /* the last one counts */
    if (strcmp(s->options->defines[i].name, name) == 0) return &s->options->defines[i];
  return NULL;
}

/* Text of -D as a value of the same kind as `like`. */
static bool read_value(Sema *s, const char *text, Val like, Val *out) {
  char digits[64], *end;
  size_t n = 0;
  for (const char *p = text; *p && n + 1 < sizeof digits; p++)
    if (*p != '_') digits[n++] = *p;
  digits[n] = 0;
  errno = 0;
  switch (like.kind) {
  case VAL_INT:
    *out = val_int(strtoll(digits, &end, 10));
    return *digits && !*end && !errno;
  case VAL_FLOAT:
    *out = val_float(strtod(digits, &end));
    return *digits && !*end && !errno && isfinite(out->as.f); /* as in a source */
  case VAL_BOOL:
    *out = val_bool(strcmp(text, "true") == 0);
    return out->as.b || strcmp(text, "false") == 0;
  case VAL_STRING: {
    size_t len = strlen(text);
    bool quoted = len >= 2 && text[0] == '"' && text[len - 1] == '"';
    *out = val_string(intern_n(s->names, text + quoted, len - 2 * (size_t)quoted));
    return true;
  }
  case VAL_DTYPE:
    *out = (Val){.kind = VAL_DTYPE, .as.dtype = dtype_by_name(text)};
    return out->as.dtype != DT_NONE;
  case VAL_AXIS:
    *out = (Val){.kind = VAL_AXIS, .as.s = intern(s->names, text)};
    return mesh_knows_axis(s, out->as.s);
  case VAL_UNSET:
  case VAL_POISON:
  case VAL_NONE:
  case VAL_MESH:
  case VAL_LAYOUT:
  case VAL_TYPE:
  case VAL_PLACE:
  case VAL_LIST:
  case VAL_TENSOR:
  case VAL_VAR:
  case VAL_FN:
  case VAL_METHOD:
  case VAL_MODULE:
  case VAL_INSTANCE:
  case VAL_FILE:
  case VAL_BUILTIN:
    break;
  }
  return false;
}

bool config_override(Sema *s, const ConfigItem *item, Val value, Val *out) {
  *out = value;
  if (value.kind != VAL_POISON && item->type) {
    SourceUnit *file = NULL;
    for (uint32_t i = 0; i < s->files.len; i++)
      if (s->files.data[i]->source == item->span.file) file = s->files.data[i];
    const char *what = arena_printf(s->arena, "config %s", item->name);
    *out = coerce_named(s, &file->env, item->type, value, item->value->span, what);
  }
  const ConfigOverride *over = find_override(s, item->name);
  if (!over || out->kind == VAL_POISON) return out->kind != VAL_POISON;
  Val given;
  if (read_value(s, over->value, *out, &given)) {
    *out = given;
    return true;
  }
  Diag *d = sema_error(s, DIAG_CONFIG_OPTION, item->name_span, "-D %s=%s does not fit", over->name,
                       over->value);
  diag_reason(s->sink, d, "%s is %s, %s unless set", item->name, val_kind_name(*out),
              val_print(s, *out));
  return true; /* what else is wrong shows with the value of the file */
}

static const char *type_word(Val v) {
  const char *name = val_kind_name(v);
  const char *space = strchr(name, ' ');
  return v.kind == VAL_DTYPE ? "dtype" : v.kind == VAL_AXIS ? "axis" : space ? space + 1 : name;
}

static void report_unknown(Sema *s, const ConfigOverride *over) {
  unsigned best = 3;
  const char *near = NULL;
  StrBuf all;
  strbuf_init(&all, s->arena);
  for (uint32_t f = 0; f < s->files.len; f++)
    for (uint32_t i = 0; i < s->files.data[f]->config.len; i++) {
      const char *name = s->files.data[f]->config.entries[i].key;
      strbuf_printf(&all, "%s%s", all.len ? ", " : "", name);
      unsigned d = edit_distance(over->name, name, best - 1);
      if (d >= best) continue;
      best = d;
      near = name;
    }
  Diag *d = sema_error(s, DIAG_CONFIG_OPTION, (Span){0}, "-D %s: no config entry has this name",
                       over->name);
  diag_reason(s->sink, d, "the entries are: %s", all.len ? all.text : "none");
  if (near)
    diag_help(s->sink, d, (Span){0}, NULL, NULL, "did you mean -D %s=%s?", near, over->value);
}

void config_finish(Sema *s) {
  for (uint32_t f = 0; f < s->files.len; f++) {
    SourceUnit *file = s->files.data[f];
    for (uint32_t i = 0; i < file->config.len; i++) {
      const char *name = file->config.entries[i].key;
      Binding *b = file->config.entries[i].value;
      Val v = binding_value(s, file, b, name);
      if (!s->options->config) continue;
      ConfigEntry entry = {.name = name,
                           .type = type_word(v),
                           .value = val_print(s, v),
                           .overridden = find_override(s, name) != NULL,
                           .span = b->span};
      VEC_PUSH(s->arena, s->options->config, entry);
    }
  }
  for (uint32_t i = 0; i < s->options->ndefines; i++) {
    const char *name = intern(s->names, s->options->defines[i].name);
    bool known = false;
    for (uint32_t f = 0; f < s->files.len; f++)
      known |= name_map_has(&s->files.data[f]->config, name);
    if (!known) report_unknown(s, &s->options->defines[i]);
  }
}

void sema_print_config(const ConfigList *config, StrBuf *out) {
  for (uint32_t i = 0; i < config->len; i++) {
    const ConfigEntry *e = &config->data[i];
    strbuf_printf(out, "%s: %s = %s%s\n", e->name, e->type, e->value,
                  e->overridden ? "    // -D" : "");
  }
}
