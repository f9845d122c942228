/* Evaluation: every sample once, metrics over the true number of samples; and infer, which may take
 * several steps over a batch. */
#include "core/launch.h"
#include "core/run.h"

/* *stopped: the run was asked to stop, so batches are missing. */
static int all_batches(Run *r, int64_t step, const char *what, bool *stopped) {
  const AbiProgram *p = run_program(r);
  int64_t samples = dtm_rt_data_samples(r->data);
  int64_t batches = p->batch ? (samples + p->batch - 1) / p->batch : 1;
  AbiStep *s = dtm_rt_exec_step(r->exec);
  int64_t times = r->program == ABI_PROGRAM_INFER && p->steps > 0 ? p->steps : 1;
  r->epoch = 0;
  for (int64_t b = 0; b < batches; b++) {
    r->batch = b;
    r->valid = (double)dtm_rt_run_valid(r, samples, b);
    for (int64_t t = 0; t < times; t++) {
      int status = dtm_rt_stop_agreed(r->comm, stopped);
      if (!status && *stopped) dtm_rt_text_end(&r->text, r->log);
      if (status || *stopped) return status;
      s->step = step + t;
      status = dtm_rt_run_actions(r, 0, p->nactions);
      if (status) return status;
    }
    bool texts = dtm_rt_text_end(&r->text, r->log);
    if (!texts) dtm_rt_log_progress(r->log, what, b + 1, batches);
  }
  return 0;
}

/* Leaves the block that was running as it was. */
static int run_block(Run *r, AbiProgramKind program, int64_t step, const char *what,
                     const char *split) {
  Run before = *r;
  RtData *data = NULL;
  bool stopped = false;
  r->stop_nonfinite = false;
  int status = dtm_rt_run_begin(r, program, false, &data);
  if (!status) status = all_batches(r, step, what, &stopped);
  if (!status && !stopped) dtm_rt_run_metrics(r, split, step);
  if (!status && stopped) dtm_rt_log_line(r->log, "stopped while %s", what);
  dtm_rt_data_close(data);
  *r = before;
  return status;
}

int dtm_rt_evaluate(Run *r, int64_t step) {
  return run_block(r, ABI_PROGRAM_EVAL, step, "evaluating", "test");
}

int dtm_rt_infer(Run *r) {
  return run_block(r, ABI_PROGRAM_INFER, 0, "inferring", "infer");
}
