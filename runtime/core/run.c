/* Inputs and outputs of a run: see run.h. */
#include "core/run.h"

#include <math.h>
#include <string.h>

#include "comm/errors.h"
#include "core/print.h"
#include "runtime/abi/number.h"

int64_t dtm_rt_run_valid(const Run *r, int64_t samples, int64_t batch) {
  int64_t size = run_program(r)->batch, left = samples - batch * size;
  if (size == 0) return 1;
  return left < size ? left : size;
}

int dtm_rt_run_begin(Run *r, AbiProgramKind program, bool shuffle, RtData **data) {
  const RtDataSetup setup = {.comm = r->comm,
                             .image = r->image,
                             .program = program,
                             .paths = r->paths,
                             .shuffle = shuffle,
                             .seed = r->seed};
  r->program = program;
  r->data = NULL;
  int status = dtm_rt_data_open(&setup, data);
  r->data = *data;
  dtm_rt_run_clear(r);
  return status ? status : dtm_rt_parts_open(r);
}

static int read_input(void *context, uint32_t source, void *dst) {
  Run *r = context;
  const AbiSource *s = &r->image->source[source];
  if (strcmp(abi_text(r->image, s->reader), ABI_READER_SHARE) == 0) {
    abi_store(dst, r->image->type[s->type].dtype, 0, r->share);
    return 0;
  }
  /* the rows of a micro-batch are a batch of their own to the reader */
  int64_t part = r->batch * run_program(r)->microbatches + dtm_rt_exec_step(r->exec)->micro;
  return dtm_rt_data_read(r->data, source, r->epoch, part, dst);
}

static int take_output(void *context, uint32_t output, const AbiStep *step, const void *value) {
  Run *r = context;
  const AbiOutput *o = &r->image->output[output];
  const AbiType *type = &r->image->type[o->type];
  if (dtm_rt_parts_take(r, output, step->micro, value)) return 0;
  if (o->role == ABI_PRINT) {
    dtm_rt_print_tensor(r->log, abi_text(r->image, o->name), type, value);
    return 0;
  }
  if (o->role == ABI_TEXT)
    return dtm_rt_text_add(&r->text, r->log, type, value)
               ? 0
               : dtm_rt_fail(r->comm, RT_DEVICE, "out of memory");
  double v = abi_load(value, type->dtype, 0);
  if (o->role == ABI_LOSS && r->stop_nonfinite && !isfinite(v)) return RUN_NONFINITE;
  bool plain = o->role == ABI_METRIC_SUM ||
               o->role == ABI_METRIC_COUNT; /* masked and counted by the program */
  r->sums[output].value += plain ? v : v * (double)step->valid;
  r->sums[output].weight += (double)step->valid;
  return 0;
}

/* The count that divides the sum `output`; NULL when it is not divided. */
static const OutputSum *count_of(const Run *r, uint32_t output) {
  const AbiOutput *sum = &r->image->output[output];
  for (uint32_t i = 0; i < r->image->output_count; i++) {
    const AbiOutput *o = &r->image->output[i];
    if (o->role == ABI_METRIC_COUNT && o->program == sum->program &&
        strcmp(abi_text(r->image, o->name), abi_text(r->image, sum->name)) == 0)
      return &r->sums[i];
  }
  return NULL;
}

/* The loss was not finite. The optimizer has not run yet: the same actions give the same values. */
static int report_nonfinite(Run *r, const RtHooks *hooks) {
  const AbiProgram *p = run_program(r);
  uint32_t found = 0;
  r->stop_nonfinite = false;
  int64_t step = dtm_rt_exec_step(r->exec)->step;
  int status = p->nstages
                   ? dtm_rt_exec_find_nonfinite_stages(r->exec, p, hooks, &found)
                   : dtm_rt_exec_find_nonfinite(r->exec, p->actions, p->looped, hooks, &found);
  if (status) return status;
  r->comm->place = (RtPlace){0};
  if (!found)
    return dtm_rt_fail(r->comm, RT_BAD_DATA, "the loss is not finite at step %lld",
                       (long long)step + 1);
  const AbiAction *a = &r->image->action[found - 1];
  return dtm_rt_fail(
      r->comm, RT_BAD_DATA,
      "the loss is not finite at step %lld: the first value that is not finite is "
      "the result of `%s` at %s\n"
      "  try a smaller learning rate or gradient clipping, or look for labels that are no "
      "class; --allow-nan goes on",
      (long long)step + 1, abi_text(r->image, a->name),
      a->source ? abi_text(r->image, a->source) : "an unknown place");
}

static int finish(Run *r, int status, const RtHooks *hooks) {
  if (!status) r->comm->place = (RtPlace){0}; /* what fails between actions is none of them */
  return status == RUN_NONFINITE ? report_nonfinite(r, hooks) : status;
}

int dtm_rt_run_actions(Run *r, uint32_t first, uint32_t count) {
  const RtHooks hooks = {.context = r, .input = read_input, .output = take_output};
  AbiStep *s = dtm_rt_exec_step(r->exec);
  s->seed = r->seed;
  s->valid = (int64_t)r->valid;
  return finish(r, dtm_rt_exec_run(r->exec, run_program(r)->actions + first, count, &hooks),
                &hooks);
}

int dtm_rt_run_batch(Run *r) {
  const RtHooks hooks = {.context = r, .input = read_input, .output = take_output};
  const AbiProgram *p = run_program(r);
  if (!p->nstages) return dtm_rt_run_actions(r, 0, p->looped);
  AbiStep *s = dtm_rt_exec_step(r->exec);
  s->seed = r->seed;
  s->valid = (int64_t)r->valid;
  int status = finish(r, dtm_rt_exec_run_stages(r->exec, p, &hooks), &hooks);
  return status ? status : dtm_rt_parts_print(r);
}

void dtm_rt_run_clear(Run *r) {
  memset(r->sums, 0, sizeof *r->sums * (size_t)r->image->output_count);
}

double dtm_rt_run_value(const Run *r, uint32_t output) {
  const OutputSum *sum = &r->sums[output];
  if (r->image->output[output].role != ABI_METRIC_SUM) return sum->value / sum->weight;
  const OutputSum *count = count_of(r, output);
  return sum->value / (count ? count->value : 1);
}

void dtm_rt_run_metrics(Run *r, const char *split, int64_t step) {
  for (uint32_t i = 0; i < r->image->output_count; i++) {
    const AbiOutput *o = &r->image->output[i];
    if (o->program != (uint32_t)r->program || o->role == ABI_PRINT || o->role == ABI_METRIC_COUNT ||
        r->sums[i].weight == 0)
      continue;
    dtm_rt_log_metric(r->log, split, abi_text(r->image, o->name), dtm_rt_run_value(r, i), step);
  }
}
