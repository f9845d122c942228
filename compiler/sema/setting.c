/* The lines of train, eval and infer: a table of what may stand in which block, and what each does.
 * See elab.h.
 */
#include <inttypes.h>
#include <string.h>

#include "sema/elab.h"

enum { IN_TRAIN = 1 << BLOCK_TRAIN, IN_EVAL = 1 << BLOCK_EVAL, IN_INFER = 1 << BLOCK_INFER };
enum { IN_ALL = IN_TRAIN | IN_EVAL | IN_INFER };

typedef struct Line {
  Env *env;
  RunBlock *block;
  const Stmt *stmt;
  const Expr *expr; /* the leading value, or NULL */
} Line;

static Val line_value(Sema *s, const Line *line) {
  if (line->expr) return eval(s, line->env, line->expr);
  sema_error(s, DIAG_SETTING, line->stmt->span, "%s needs a value", line->stmt->as.setting.keyword);
  return POISON;
}

/* The value behind a word such as `every`; NULL when it is not there. */
static const Expr *part(const Stmt *stmt, const char *word) {
  for (uint32_t i = 0; i < stmt->as.setting.parts.len; i++) {
    const SettingPart *p = &stmt->as.setting.parts.data[i];
    if (p->word ? strcmp(p->word, word) == 0 : !*word) return p->value;
  }
  return NULL;
}

static bool positive(Sema *s, Val v, Span span, const char *what, int64_t least, int64_t *out) {
  if (v.kind == VAL_POISON) return false;
  int64_t n;
  if (!want_int(s, v, span, what, &n)) return false;
  if (n >= least) {
    *out = n;
    return true;
  }
  sema_error(s, DIAG_SETTING, span, "%s must be at least %" PRId64, what, least);
  return false;
}

static void line_int(Sema *s, const Line *line, int64_t least, int64_t *out) {
  Val v = line_value(s, line);
  if (line->expr) positive(s, v, line->expr->span, line->stmt->as.setting.keyword, least, out);
}

static void line_bool(Sema *s, const Line *line, bool *out) {
  Val v = line_value(s, line);
  if (v.kind != VAL_POISON) want_bool(s, v, line->expr->span, line->stmt->as.setting.keyword, out);
}

static void unsupported(Sema *s, const Line *line, const char *what) {
  sema_error(s, DIAG_UNSUPPORTED, line->stmt->span, "%s is not supported yet", what);
}

/* --- lines -------------------------------------------------------------------------------------
 */

static void line_steps(Sema *s, const Line *line) {
  line_int(s, line, 1, &line->block->out->settings.steps);
}
static void line_epochs(Sema *s, const Line *line) {
  line_int(s, line, 1, &line->block->out->settings.epochs);
}
static void line_shuffle(Sema *s, const Line *line) {
  line_bool(s, line, &line->block->out->settings.shuffle);
}
static void line_drop_last(Sema *s, const Line *line) {
  line_bool(s, line, &line->block->out->settings.drop_last);
}
static void line_accumulate(Sema *s, const Line *line) {
  line_int(s, line, 1, &line->block->out->settings.accumulate);
}
/* Each of them is an entry of every stage's list. */
enum { MOST_MICRO_BATCHES = 1 << 16 };

static void line_microbatches(Sema *s, const Line *line) {
  RunSettings *set = &line->block->out->settings;
  line_int(s, line, 1, &set->microbatches);
  if (set->microbatches > MOST_MICRO_BATCHES) {
    sema_error(s, DIAG_SETTING, line->expr->span, "microbatches must be at most %d",
               MOST_MICRO_BATCHES);
    set->microbatches = 1;
  }
  if (line->block->out->data.len)
    sema_error(
        s, DIAG_SETTING, line->stmt->span,
        "microbatches stands before the data, or by itself in the block: it says how many rows "
        "of a batch there are at once");
}

/* A name, or a table: for each stage the text of what it does. */
static void line_schedule(Sema *s, const Line *line) {
  RunSettings *set = &line->block->out->settings;
  Val v = line_value(s, line);
  if (v.kind == VAL_POISON) return;
  set->schedule_span = line->expr->span;
  if (v.kind != VAL_LIST) {
    static const char *const names[] = {"gpipe", "1f1b", "interleaved", "zero_bubble"};
    if (!want_string(s, v, line->expr->span, "the schedule", &set->schedule)) return;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
      if (strcmp(names[i], set->schedule) == 0) return;
    Diag *d = sema_error(s, DIAG_SCHEDULE, line->expr->span, "there is no schedule \"%s\"",
                         set->schedule);
    diag_help(s->sink, d, (Span){0}, NULL, NULL,
              "there are \"gpipe\", \"1f1b\", \"interleaved\" and \"zero_bubble\"; a table is a "
              "list with "
              "a text for each stage");
    return;
  }
  StrBuf table;
  strbuf_init(&table, s->arena);
  if (!v.as.list->len) {
    sema_error(s, DIAG_SCHEDULE, line->expr->span,
               "this table is empty: it has a text for each stage, such as \"F0 B0\"");
    return;
  }
  for (uint32_t i = 0; i < v.as.list->len; i++) {
    const char *row;
    if (!want_string(s, v.as.list->data[i], line->expr->span, "a stage of the schedule", &row))
      return;
    strbuf_printf(&table, "%s\n", row);
  }
  set->schedule = table.text;
}
static void line_budget(Sema *s, const Line *line) {
  unsupported(s, line, "a budget");
}

static void line_dtype(Sema *s, const Line *line, DType *out) {
  Val v = line_value(s, line);
  if (v.kind == VAL_POISON) return;
  if (v.kind != VAL_DTYPE || !dtype_is_float(v.as.dtype) || dtype_is_storage(v.as.dtype)) {
    sema_error(s, DIAG_SETTING, line->expr->span, "%s must be a float type such as f32",
               line->stmt->as.setting.keyword);
    return;
  }
  *out = dtype_map(s, v.as.dtype);
}
static void line_compute(Sema *s, const Line *line) {
  line_dtype(s, line, &line->block->out->settings.compute);
}
static void line_reduce_dtype(Sema *s, const Line *line) {
  line_dtype(s, line, &line->block->out->settings.reduce_dtype);
}

static void line_seed(Sema *s, const Line *line) {
  int64_t seed = 0;
  line_int(s, line, INT64_MIN, &seed);
  line->block->out->settings.seed = s->program->seed = (uint64_t)seed;
}

static void line_every(Sema *s, const Line *line, int64_t *out) {
  const Expr *every = part(line->stmt, "every");
  if (!every || (every->kind == EXPR_NAME && strcmp(every->as.s, "end") == 0)) return;
  positive(s, eval(s, line->env, every), every->span, "every", 1, out);
}
static void line_eval(Sema *s, const Line *line) {
  if (!part(line->stmt, "every") || line->expr)
    sema_error(s, DIAG_SETTING, line->stmt->span, "write `eval every 100` or `eval every end`");
  line_every(s, line, &line->block->out->settings.eval_every);
}
static void line_save(Sema *s, const Line *line) {
  Val v = line_value(s, line);
  const char **path = &line->block->out->settings.save;
  if (v.kind != VAL_POISON && want_string(s, v, line->expr->span, "save", path) && !**path)
    sema_error(s, DIAG_SETTING, line->expr->span, "save needs the name of a file");
  line_every(s, line, &line->block->out->settings.save_every);
}

static void line_clip(Sema *s, const Line *line) {
  double norm = 0;
  Val v = line_value(s, line);
  if (v.kind == VAL_POISON || !want_float(s, v, line->expr->span, "clip_grad_norm", &norm)) return;
  if (norm > 0)
    line->block->out->optimizer.clip_norm = norm;
  else
    sema_error(s, DIAG_SETTING, line->expr->span, "clip_grad_norm must be positive");
}

static bool needs_name(Sema *s, const Line *line) {
  if (line->stmt->as.setting.name) return true;
  const char *keyword = line->stmt->as.setting.keyword;
  sema_error(s, DIAG_SETTING, line->stmt->span, "%s needs a name: %s NAME = ...", keyword, keyword);
  return false;
}

static void line_model(Sema *s, const Line *line) {
  if (!needs_name(s, line)) return;
  State saved = s->at;
  s->at.naming = true;
  s->at.graph = NULL; /* nothing is computed here */
  /* one model: checkpoint names are those within it; several: each under its own name */
  const char *name = line->stmt->as.setting.name;
  s->at.path = line->block->nmodels > 1 ? name : "";
  if (line->block->nmodels == 1 && !s->program->model) s->program->model = name;
  Val v = line_value(s, line);
  s->at = saved;
  if (v.kind != VAL_POISON && v.kind != VAL_INSTANCE && v.kind != VAL_LIST) {
    sema_error(s, DIAG_SETTING, line->expr->span, "model needs a module instance, not %s",
               val_kind_name(v));
    v = POISON;
  }
  Binding *b =
      env_declare(s, line->block->env, name, BIND_MEMBER, v, line->stmt->as.setting.name_span);
  b->used = true;
}

static void line_optimizer(Sema *s, const Line *line) {
  (void)s;
  line->block->optimizer = line->stmt;
}

static void line_data(Sema *s, const Line *line) {
  if (needs_name(s, line)) block_data(s, line->env, line->block, line->stmt);
}

bool block_whole(Sema *s, Val v, Span span, const char *what, ValueId *out) {
  ValueId x;
  if (!as_tensor(s, v, span, what, &x)) return false;
  TensorType t = *value_type(s->at.graph, x);
  *out = x;
  if (!t.mesh) return true; /* made of constants: every rank has it */
  t.layout = (Layout){0};
  t.mesh = s->world;
  Val r = emit_redistribute(s, x, &t, span);
  if (r.kind == VAL_POISON) return false;
  *out = r.as.tensor;
  return true;
}

static bool scalar(Sema *s, Val v, Span span, const char *what, ValueId *out) {
  if (!as_tensor(s, v, span, what, out)) return false;
  const TensorType *t = value_type(s->at.graph, *out);
  if (t->rank == 0) return true;
  Diag *d = sema_error(s, DIAG_NOT_SCALAR, span, "%s must be a scalar", what);
  diag_label(s->sink, d, "this is %s", type_print(s->arena, t));
  diag_help(s->sink, d, (Span){0}, NULL, NULL, "reduce it with mean(...) or sum(...)");
  return false;
}

/* Train hands its numbers out when all settings are known. */
static void report(Sema *s, const Line *line, const char *name, const char *role, ValueId v) {
  Reported r = {.name = name, .role = role, .value = v, .span = line->expr->span};
  VEC_PUSH(s->arena, &line->block->reported, r);
}

static void line_loss(Sema *s, const Line *line) {
  ValueId loss;
  Val v = line_value(s, line);
  if (v.kind == VAL_POISON || !scalar(s, v, line->expr->span, "the loss", &loss)) return;
  const TensorType *t = value_type(s->at.graph, loss);
  if (!dtype_is_float(t->dtype)) {
    sema_error(s, DIAG_NOT_SCALAR, line->expr->span, "the loss must be a float, not %s",
               dtype_name(t->dtype));
    return;
  }
  name_value(s, val_tensor(loss), "loss");
  if (line->block->kind == BLOCK_EVAL) {
    block_metric(s, line->block, "loss", loss, line->expr->span);
    return;
  }
  line->block->out->loss = loss;
  report(s, line, "loss", "loss", loss);
}

static void line_metric(Sema *s, const Line *line) {
  if (!needs_name(s, line)) return;
  const char *name = line->stmt->as.setting.name;
  ValueId metric, out;
  Val v = line_value(s, line);
  if (name_map_put(s->arena, &line->block->metrics, name, (void *)line->stmt))
    sema_error(s, DIAG_REDECLARED, line->stmt->as.setting.name_span,
               "there are two metrics named %s", name);
  if (v.kind == VAL_POISON || !scalar(s, v, line->expr->span, "a metric", &metric)) return;
  name_value(s, val_tensor(metric), name);
  if (line->block->kind == BLOCK_EVAL)
    block_metric(s, line->block, name, metric, line->expr->span);
  else if (line->block->kind == BLOCK_TRAIN)
    report(s, line, name, "metric", metric);
  else if (block_whole(s, val_tensor(metric), line->expr->span, "a metric", &out))
    emit_output(s, out, name, "metric", line->expr->span);
}

static void print_value(Sema *s, RunBlock *block, Val v, Span span) {
  ValueId out;
  const char *name = source_text(s, span);
  if (v.kind == VAL_POISON) return;
  if (block->kind == BLOCK_TRAIN) {
    if (!as_tensor(s, v, span, "what is printed", &out)) return;
    Reported r = {.name = name, .role = "print", .value = out, .span = span};
    VEC_PUSH(s->arena, &block->reported, r);
  } else if (block_whole(s, v, span, "what is printed", &out)) {
    emit_output(s, out, name, "print", span);
  }
}
/* Bytes of a text, to be written as they come. */
static void print_text(Sema *s, RunBlock *block, Val v, Span span) {
  ValueId id, out;
  if (v.kind == VAL_POISON || !as_tensor(s, v, span, "what is printed", &id)) return;
  const TensorType *t = value_type(s->at.graph, id);
  if (!dtype_is_integer(t->dtype) || t->rank > 2) {
    Diag *d = sema_error(s, DIAG_VALUE_KIND, span,
                         "print_text takes bytes: integers, one or several for each row");
    diag_label(s->sink, d, "this is %s", type_print(s->arena, t));
    return;
  }
  if (block->prints_text)
    sema_error(s, DIAG_SETTING, span, "print_text stands twice in %s", block->name);
  block->prints_text = true;
  if (block_whole(s, v, span, "what is printed", &out))
    emit_output(s, out, source_text(s, span), "text", span);
}
static void line_print_text(Sema *s, const Line *line) {
  Val v = line_value(s, line);
  if (line->expr) print_text(s, line->block, v, line->expr->span);
}
static void line_print(Sema *s, const Line *line) {
  Val v = line_value(s, line);
  if (line->expr) print_value(s, line->block, v, line->expr->span);
}

/* --- the table ---------------------------------------------------------------------------------
 */

static const struct Setting {
  const char *keyword;
  void (*run)(Sema *s, const Line *line);
  unsigned blocks;
  bool once;
  bool named; /* NAME = value */
  bool every; /* `every N` may follow */
} settings[] = {
    {"data", line_data, IN_ALL, false, true, false},
    {"model", line_model, IN_ALL, false, true, false},
    {"loss", line_loss, IN_TRAIN | IN_EVAL, true, false, false},
    {"metric", line_metric, IN_ALL, false, true, false},
    {"print", line_print, IN_ALL, false, false, false},
    {"print_text", line_print_text, IN_INFER, false, false, false},
    {"optimizer", line_optimizer, IN_TRAIN, true, false, false},
    {"clip_grad_norm", line_clip, IN_TRAIN, true, false, false},
    {"steps", line_steps, IN_TRAIN | IN_INFER, true, false, false},
    {"epochs", line_epochs, IN_TRAIN, true, false, false},
    {"shuffle", line_shuffle, IN_TRAIN, true, false, false},
    {"drop_last", line_drop_last, IN_TRAIN, true, false, false},
    {"accumulate", line_accumulate, IN_TRAIN, true, false, false},
    {"microbatches", line_microbatches, IN_TRAIN, true, false, false},
    {"schedule", line_schedule, IN_TRAIN, true, false, false},
    {"compute", line_compute, IN_TRAIN, true, false, false},
    {"reduce_dtype", line_reduce_dtype, IN_TRAIN, true, false, false},
    {"seed", line_seed, IN_TRAIN, true, false, false},
    {"manual_seed", line_seed, IN_TRAIN, true, false, false},
    {"eval", line_eval, IN_TRAIN, true, false, true},
    {"save", line_save, IN_TRAIN, true, false, true},
    {"budget", line_budget, IN_TRAIN, false, false, false},
};

/* What a setting has no use for is an error: it would be ignored. */
static bool well_formed(Sema *s, const struct Setting *setting, const Stmt *stmt) {
  const char *keyword = setting->keyword;
  if (stmt->as.setting.name && !setting->named) {
    sema_error(s, DIAG_SETTING, stmt->as.setting.name_span, "%s takes no name", keyword);
    return false;
  }
  uint32_t every = 0;
  for (uint32_t i = 0; i < stmt->as.setting.parts.len; i++) {
    const SettingPart *p = &stmt->as.setting.parts.data[i];
    if (!p->word || setting->run == line_budget) continue;
    if (setting->every && strcmp(p->word, "every") == 0 && every++ == 0) continue;
    sema_error(s, DIAG_SETTING, p->value->span,
               every > 1 ? "`%s` stands twice behind %s" : "`%s` has no meaning behind %s", p->word,
               keyword);
    return false;
  }
  return true;
}

static void unknown_setting(Sema *s, const Stmt *stmt, const RunBlock *block) {
  const char *keyword = stmt->as.setting.keyword, *near = NULL;
  unsigned best = 3;
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
    unsigned d = edit_distance(keyword, settings[i].keyword, best - 1);
    if (d >= best) continue;
    best = d;
    near = settings[i].keyword;
  }
  Diag *d = sema_error(s, DIAG_SETTING, stmt->as.setting.keyword_span, "%s has no line %s",
                       block->name, keyword);
  if (near)
    diag_help(s->sink, d, stmt->as.setting.keyword_span, near, NULL, "did you mean %s?", near);
}

void block_setting(Sema *s, Env *env, RunBlock *block, const Stmt *stmt) {
  const char *keyword = stmt->as.setting.keyword;
  Line line = {.env = env, .block = block, .stmt = stmt, .expr = part(stmt, "")};
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
    const struct Setting *setting = &settings[i];
    if (strcmp(setting->keyword, keyword) != 0) continue;
    if (!(setting->blocks >> block->kind & 1)) {
      sema_error(s, DIAG_SETTING, stmt->as.setting.keyword_span, "%s does not belong into %s",
                 keyword, block->name);
      return;
    }
    const Stmt *before =
        setting->once ? name_map_put(s->arena, &block->seen, keyword, (void *)stmt) : NULL;
    if (before == stmt) return; /* it was its turn already */
    if (before) {
      Diag *d =
          sema_error(s, DIAG_SETTING, stmt->span, "%s stands twice in %s", keyword, block->name);
      diag_note(s->sink, d, before->span, "the first one");
      return;
    }
    if (well_formed(s, setting, stmt)) setting->run(s, &line);
    return;
  }
  unknown_setting(s, stmt, block);
}

void block_settings_first(Sema *s, Env *env, RunBlock *block, const StmtList *stmts) {
  for (uint32_t i = 0; i < stmts->len; i++) {
    const Stmt *stmt = stmts->data[i];
    if (stmt->kind == STMT_SETTING && strcmp(stmt->as.setting.keyword, "microbatches") == 0)
      block_setting(s, env, block, stmt);
  }
}

/* `print(x)` reads as a call. */
void block_expression(Sema *s, Env *env, RunBlock *block, const Stmt *stmt) {
  const Expr *e = stmt->as.expr;
  bool named_call = e->kind == EXPR_CALL && e->as.call.callee->kind == EXPR_NAME;
  const char *name = named_call ? e->as.call.callee->as.s : "";
  if (strcmp(name, "print") == 0) {
    for (uint32_t i = 0; i < e->as.call.args.len; i++) {
      const Expr *x = e->as.call.args.data[i].value;
      print_value(s, block, eval(s, env, x), x->span);
    }
    return;
  }
  if (strcmp(name, "print_text") == 0 && e->as.call.args.len == 1 && block->kind == BLOCK_INFER) {
    const Expr *x = e->as.call.args.data[0].value;
    print_text(s, block, eval(s, env, x), x->span);
    return;
  }
  if (strcmp(name, "manual_seed") == 0 && e->as.call.args.len == 1) {
    Line line = {.env = env, .block = block, .stmt = stmt, .expr = e->as.call.args.data[0].value};
    Val v = eval(s, env, line.expr);
    int64_t seed;
    if (v.kind != VAL_POISON && want_int(s, v, line.expr->span, "the seed", &seed))
      block->out->settings.seed = s->program->seed = (uint64_t)seed;
    return;
  }
  eval(s, env, e);
}
