/* train, eval and infer as a whole; setting.c has their lines. See elab.h.
 *
 * Each block is a graph of its own. eval and infer see the models of train; a model that a block
 * builds again by the same lines has the same variables.
 */
#include <inttypes.h>
#include <string.h>

#include "sema/elab.h"

static uint32_t count_models(const StmtList *stmts) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < stmts->len; i++) {
    const Stmt *stmt = stmts->data[i];
    if (stmt->kind == STMT_SETTING && strcmp(stmt->as.setting.keyword, "model") == 0) n++;
    if (stmt->kind == STMT_IF)
      n += count_models(&stmt->as.if_.yes) + count_models(&stmt->as.if_.no);
    if (stmt->kind == STMT_FOR) n += 2 * count_models(&stmt->as.for_.body);
  }
  return n;
}

static const Stmt *setting_of(Sema *s, const RunBlock *block, const char *keyword) {
  return name_map_get(&block->seen, intern(s->names, keyword));
}

/* Settings that another one, or the lack of data, leaves without effect. */
static void refuse_ineffective(Sema *s, RunBlock *block) {
  static const char *const twice[][2] = {{"steps", "epochs"}, {"seed", "manual_seed"}};
  static const char *const of_data[] = {"epochs", "shuffle", "drop_last", "microbatches",
                                        "schedule"};
  for (size_t i = 0; i < sizeof twice / sizeof *twice; i++) {
    const Stmt *a = setting_of(s, block, twice[i][0]), *b = setting_of(s, block, twice[i][1]);
    if (!a || !b) continue;
    Diag *d =
        sema_error(s, DIAG_SETTING, b->span, "give %s or %s, not both", twice[i][0], twice[i][1]);
    diag_note(s->sink, d, a->span, "the other one");
  }
  for (size_t i = 0; i < sizeof of_data / sizeof *of_data && !block->out->data.len; i++) {
    const Stmt *stmt = setting_of(s, block, of_data[i]);
    if (stmt) sema_error(s, DIAG_SETTING, stmt->span, "%s has no effect without data", of_data[i]);
  }
}

/* On one mesh a batch in one part has one order: a named schedule says nothing. */
static void drop_idle_schedule(ProgramBlock *out) {
  RunSettings *set = &out->settings;
  if (!set->schedule || set->microbatches > 1 || strchr(set->schedule, '\n')) return;
  const Mesh *mesh = NULL;
  for (ValueId v = 1; v < out->graph->values.len; v++) {
    const TensorType *t = value_type(out->graph, v);
    if (mesh && t->mesh && t->mesh != mesh) return;
    if (t->mesh) mesh = t->mesh;
  }
  set->schedule = NULL;
}

/* Losses and metrics, over the true samples where the last batch may be short. */
static void hand_out(Sema *s, RunBlock *block) {
  const RunSettings *set = &block->out->settings;
  bool padded = !set->drop_last && block->out->data.len,
       cut = set->microbatches > 1 || set->schedule;
  for (uint32_t i = 0; i < block->reported.len; i++) {
    const Reported *r = &block->reported.data[i];
    bool is_loss = strcmp(r->role, "loss") == 0;
    const char *what = is_loss ? "the loss" : "a metric";
    ValueId v = r->value, out;
    if (strcmp(r->role, "print") == 0) {
      block_print(s, block, v, r->name, r->span);
      continue;
    }
    if (padded && !is_loss) {
      block_metric(s, block, r->name, v, r->span);
      continue;
    }
    if (padded || set->microbatches > 1) v = block_terms(s, block, v, what, r->span);
    if (!v) continue;
    if (padded && is_loss) name_value(s, val_tensor(v), "loss");
    /* what is handed out once per step is a mean over its batches: each counts by its samples */
    if (padded && cut) v = block_weighted_loss(s, block, v, r->span);
    if (is_loss) block->out->loss = v;
    if (v && block_whole(s, val_tensor(v), r->span, what, &out))
      emit_output(s, out, r->name, r->role, r->span);
    if (v && padded && !cut) block->out->loss = block_weighted_loss(s, block, v, r->span);
  }
}

static void finish_train(Sema *s, RunBlock *block) {
  ProgramBlock *out = block->out;
  refuse_ineffective(s, block);
  if (!s->sink->errors && out->settings.microbatches > 1) block_spread_random(s, block);
  drop_idle_schedule(out);
  if (!s->sink->errors) hand_out(s, block);
  if (block->optimizer) block_optimizer(s, block->env, block);
  if (s->sink->errors) return;
  if (!out->loss)
    sema_error(s, DIAG_TRAIN_NEEDS, block->span, "train needs a loss");
  else if (!block->optimizer)
    sema_error(s, DIAG_TRAIN_NEEDS, block->span, "train needs an optimizer");
  else if (!out->data.len && !out->settings.steps)
    sema_error(s, DIAG_TRAIN_NEEDS, block->span,
               "train without data needs `steps N`: nothing says how long an epoch is");
  if (!out->settings.steps && !out->settings.epochs) out->settings.epochs = 1;
}

static void keep_models(Sema *s, const Env *train) {
  for (uint32_t i = 0; i < train->names->len; i++) {
    Binding *b = train->names->entries[i].value;
    if (b->kind == BIND_MEMBER) name_map_put(s->arena, &s->models, train->names->entries[i].key, b);
  }
}

static void run_block(Sema *s, SourceUnit *file, const Item *item, BlockKind kind,
                      ProgramBlock *out) {
  /* between the file and the block: the models of train, which eval and infer may shadow */
  Env models = {.parent = &file->env, .names = &s->models, .file = file};
  Env env = env_child(s, &models);
  env.is_body = true;
  RunBlock block = {
      .kind = kind, .name = item->name, .out = out, .env = &env, .span = item->name_span};
  block.nmodels = count_models(&item->as.block);
  GraphCache cache = {0};
  State saved = s->at;
  s->at = (State){.mesh = s->world, .path = "", .block = (uint32_t)kind};
  s->at.training = kind == BLOCK_TRAIN;
  begin_graph(s, out->graph, &cache);
  s->block = &block;
  block_settings_first(s, &env, &block, &item->as.block);
  Body body = {.kind = BODY_BLOCK, .block = &block};
  exec_stmts(s, &env, &item->as.block, &body);
  if (kind == BLOCK_TRAIN) finish_train(s, &block);
  if (kind == BLOCK_EVAL && !s->sink->errors && !block.metrics.len && !block.seen.len)
    sema_error(s, DIAG_TRAIN_NEEDS, item->name_span, "eval needs a metric or a loss");
  s->block = NULL;
  s->at = saved;
  if (kind == BLOCK_TRAIN) keep_models(s, &env);
  if (s->sink->errors) return;
  ValueId *roots[] = {&out->loss, &out->optimizer.lr};
  sweep_graph(s, out->graph, roots, 2);
}

static RunSettings default_settings(const Sema *s) {
  return (RunSettings){.shuffle = true,
                       .drop_last = true,
                       .accumulate = 1,
                       .microbatches = 1,
                       .compute = dtype_map(s, DT_F32),
                       .reduce_dtype = dtype_map(s, DT_F32)};
}

void run_blocks(Sema *s, SourceUnit *main_file) {
  /* train first: eval and infer use the models it made */
  for (BlockKind kind = BLOCK_TRAIN; kind < BLOCK_COUNT; kind++) {
    const Item *found = NULL;
    for (uint32_t i = 0; i < main_file->ast->items.len; i++) {
      const Item *item = main_file->ast->items.data[i];
      if (item->kind != ITEM_BLOCK || strcmp(item->name, block_name(kind)) != 0) continue;
      if (found) {
        Diag *d =
            sema_error(s, DIAG_SETTING, item->name_span, "there are two %s blocks", item->name);
        diag_note(s->sink, d, found->name_span, "the first one");
        continue;
      }
      found = item;
    }
    if (!found) continue;
    ProgramBlock *out = &s->program->block[kind];
    program_graph(s->program, kind);
    out->settings = default_settings(s);
    run_block(s, main_file, found, kind, out);
  }
  apply_train_store(s);
  const ProgramBlock *train = &s->program->block[BLOCK_TRAIN];
  if (train->settings.eval_every && !s->program->block[BLOCK_EVAL].graph)
    sema_error(s, DIAG_TRAIN_NEEDS, train->optimizer.span,
               "train evaluates every %" PRId64 " steps, but there is no eval block",
               train->settings.eval_every);
}
