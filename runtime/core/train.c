/* The training loop: steps over batches, evaluation and saving on the way, a clean end on Ctrl-C.
 *
 * A step takes `accumulate` batches through forward and backward, then reduces gradients and
 * updates once. Batches that would not fill a step at the end of an epoch continue in the next.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/errors.h"
#include "core/launch.h"
#include "core/run.h"
#include "state/state.h"

typedef struct Training {
  Run *run;
  RtProgress at;
  int64_t samples, batches; /* per epoch */
  int64_t last;             /* step to stop after */
} Training;

static int plan_steps(Training *t) {
  const Run *r = t->run;
  const AbiProgram *p = run_program(r);
  t->samples = dtm_rt_data_samples(r->data);
  t->batches = 1;
  if (p->batch) {
    t->batches = p->drop_last ? t->samples / p->batch : (t->samples + p->batch - 1) / p->batch;
    if (t->batches == 0)
      return dtm_rt_fail(r->comm, RT_BAD_DATA,
                         "the training data has %lld samples, less than one batch of %lld",
                         (long long)t->samples, (long long)p->batch);
  }
  int64_t epochs = r->options->epochs > 0 ? r->options->epochs : 1;
  t->last = r->options->steps > 0 ? r->options->steps : t->batches * epochs / p->accumulate;
  if (t->last == 0) t->last = 1;
  return 0;
}

/* The samples of the batches of one step that are not padding, on average. */
static double mean_valid(const Training *t) {
  const Run *r = t->run;
  int64_t accumulate = run_program(r)->accumulate, batch = t->at.batch, sum = 0;
  for (int64_t micro = 0; micro < accumulate; micro++) {
    sum += dtm_rt_run_valid(r, t->samples, batch);
    if (++batch == t->batches) batch = 0;
  }
  return (double)sum / (double)accumulate;
}

/* Samples of a step, on average over an epoch: padding is none. */
static double samples_per_step(const Training *t) {
  const AbiProgram *p = run_program(t->run);
  int64_t full = t->batches * p->batch;
  double used = (double)(p->batch && t->samples < full ? t->samples : full);
  return used / (double)t->batches * (double)p->accumulate;
}

static int one_step(Training *t) {
  Run *r = t->run;
  const AbiProgram *p = run_program(r);
  AbiStep *s = dtm_rt_exec_step(r->exec);
  dtm_rt_run_clear(r);
  s->step = t->at.step;
  double mean = mean_valid(t);
  for (int64_t micro = 0; micro < p->accumulate; micro++) {
    r->epoch = t->at.epoch;
    r->batch = t->at.batch;
    r->valid = (double)dtm_rt_run_valid(r, t->samples, r->batch);
    r->share = r->valid / mean;
    int status = dtm_rt_run_batch(r);
    if (status) return status;
    if (++t->at.batch == t->batches) {
      t->at.batch = 0;
      t->at.epoch++;
    }
  }
  int status = dtm_rt_run_actions(r, p->looped, p->nactions - p->looped);
  t->at.step++;
  return status;
}

static void log_step(Training *t) {
  Run *r = t->run;
  RtField fields[8];
  size_t n = 0;
  double loss = NAN;
  for (uint32_t i = 0; i < r->image->output_count; i++) {
    const AbiOutput *o = &r->image->output[i];
    if (o->program != ABI_PROGRAM_TRAIN || r->sums[i].weight == 0) continue;
    double value = dtm_rt_run_value(r, i);
    bool metric = o->role == ABI_METRIC || o->role == ABI_METRIC_SUM;
    if (o->role == ABI_LOSS)
      loss = value;
    else if (metric && n < sizeof fields / sizeof *fields)
      fields[n++] = (RtField){abi_text(r->image, o->name), value};
  }
  dtm_rt_log_step(r->log, t->at.step, loss, fields, n);
}

/* Where a step is saved: "{step}" in --save is its number. To be freed; NULL after a failure. */
static char *saved_path(const Run *r, int64_t step) {
  static const char mark[] = "{step}";
  const char *given = r->options->save, *at = strstr(given, mark);
  size_t size = strlen(given) + 24;
  char *path = malloc(size);
  if (!path)
    dtm_rt_fail(r->comm, RT_DEVICE, "out of memory");
  else if (at)
    snprintf(path, size, "%.*s%lld%s", (int)(at - given), given, (long long)step,
             at + strlen(mark));
  else
    memcpy(path, given, strlen(given) + 1);
  return path;
}

static int save(Training *t) {
  Run *r = t->run;
  char *path = saved_path(r, t->at.step);
  int status = path ? dtm_rt_checkpoint_save(r->comm, r->image, path, &t->at) : RT_DEVICE;
  if (!status) dtm_rt_log_line(r->log, "saved %s at step %lld", path, (long long)t->at.step);
  free(path);
  return status;
}

/* Whether the last of the steps can be saved: no run is to find out at its end. */
static int probe_save(const Training *t) {
  char *path = saved_path(t->run, t->last);
  int status = path ? dtm_rt_checkpoint_probe(t->run->comm, path) : RT_DEVICE;
  free(path);
  return status;
}

/* Whether something that happens every `every` steps (0 = at the end) is due before the end. */
static bool due(const Training *t, int64_t every) {
  return every > 0 && t->at.step % every == 0 && t->at.step < t->last;
}

static int loop(Training *t) {
  Run *r = t->run;
  const RtOptions *o = r->options;
  bool stop = false;
  while (t->at.step < t->last && !stop) {
    int status = one_step(t);
    if (status) return status;
    log_step(t);
    if (!status && o->save && due(t, o->save_every)) status = save(t);
    bool evaluates =
        !o->no_eval && o->command != RT_RUN_TRAIN && r->image->program[ABI_PROGRAM_EVAL].present;
    if (!status && evaluates && due(t, o->eval_every)) status = dtm_rt_evaluate(r, t->at.step);
    if (!status) status = dtm_rt_stop_agreed(r->comm, &stop);
    if (status) return status;
  }
  dtm_rt_log_summary(r->log);
  if (stop)
    dtm_rt_log_line(r->log, "stopped at step %lld of %lld", (long long)t->at.step,
                    (long long)t->last);
  return o->save ? save(t) : 0;
}

/* Continues with the seed of the run that is resumed: its shuffling, its dropout. */
static int load_progress(Training *t) {
  Run *r = t->run;
  const char *path = r->options->resume;
  int status = dtm_rt_checkpoint_load(r->comm, r->image, path, &t->at);
  if (!status && r->options->seed_given && r->options->seed != t->at.seed)
    status =
        dtm_rt_fail(r->comm, RT_BAD_DATA,
                    "%s was trained with --seed %llu, not %llu; a resumed run keeps its seed", path,
                    (unsigned long long)t->at.seed, (unsigned long long)r->options->seed);
  r->seed = t->at.seed;
  return status;
}

/* The progress of a checkpoint must fit the data and the steps of this run. */
static int check_progress(const Training *t) {
  const Run *r = t->run;
  const char *path = r->options->resume;
  if (t->at.batch >= t->batches)
    return dtm_rt_fail(r->comm, RT_BAD_DATA,
                       "%s was saved after batch %lld of an epoch, but the data now has %lld\n"
                       "  --resume needs the data and the batch size that it was saved with",
                       path, (long long)t->at.batch, (long long)t->batches);
  if (t->at.step >= t->last)
    dtm_rt_warn(r->comm,
                "%s is at step %lld and training ends at step %lld: nothing is left to do"
                "; ask for more with --steps or --epochs",
                path, (long long)t->at.step, (long long)t->last);
  return 0;
}

int dtm_rt_train(Run *r) {
  Training t = {.run = r, .at = {.seed = r->seed}};
  RtData *data = NULL;
  int status = r->options->resume ? load_progress(&t) : 0;
  if (!status)
    status =
        dtm_rt_run_begin(r, ABI_PROGRAM_TRAIN, r->image->program[ABI_PROGRAM_TRAIN].shuffle, &data);
  if (!status) status = plan_steps(&t);
  if (!status && r->options->resume) status = check_progress(&t);
  if (!status && r->options->save) status = probe_save(&t);
  r->stop_nonfinite = r->options->check_finite;
  if (!status) {
    const RtLogSetup setup = {.rank = r->comm->rank,
                              .mode = r->options->log,
                              .quiet = r->options->quiet,
                              .no_curve = r->options->no_curve,
                              .log_every = r->options->log_every,
                              .total_steps = t.last,
                              .first_step = t.at.step + 1,
                              .items_per_step = samples_per_step(&t),
                              .items = "samples",
                              .out = stdout,
                              .err = stderr};
    dtm_rt_log_close(r->log);
    r->log = dtm_rt_log_open(&setup);
    status = r->log ? loop(&t) : dtm_rt_fail(r->comm, RT_DEVICE, "out of memory");
  }
  r->trained = t.at.step;
  dtm_rt_data_close(data);
  r->data = NULL;
  return status;
}
