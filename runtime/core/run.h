/* Shared by the files of one run: what main opens and the loops use. */
#ifndef DTM_RT_RUN_H
#define DTM_RT_RUN_H

#include "core/exec.h"
#include "core/log.h"
#include "core/options.h"
#include "core/text.h"
#include "data/data.h"

/* Sums of one output over the batches of a step or of an evaluation. */
typedef struct OutputSum {
  double value;  /* sum of value * weight */
  double weight; /* valid samples */
} OutputSum;

typedef struct Run {
  const Image *image;
  const RtOptions *options;
  RtComm *comm;
  Exec *exec;
  RtLog *log;
  const char **paths; /* per data source */
  uint64_t seed;      /* of the run that is continued, else of the options */
  int64_t trained;    /* finished steps behind the parameters; 0: none, or not known */
  /* The block that runs now. */
  AbiProgramKind program;
  RtData *data;
  int64_t epoch, batch;  /* of the batch that the INPUT actions read */
  double valid;          /* its samples that are not padding */
  double share;          /* them over the mean of the batches accumulated in one step */
  OutputSum *sums;       /* per output of the image */
  unsigned char **parts; /* per output: of the micro-batches of one batch, or NULL (parts.c) */
  RtText text;           /* that infer writes */
  bool stop_nonfinite;   /* stop when the loss is not finite */
} Run;

/* What an output action returns when the loss is not finite; never a code to exit with. */
enum { RUN_NONFINITE = -1 };

static inline const AbiProgram *run_program(const Run *r) {
  return &r->image->program[r->program];
}
/* Samples of batch `batch` that are not padding, of `samples` in all; 1 without data. */
int64_t dtm_rt_run_valid(const Run *r, int64_t samples, int64_t batch);
/* Opens the sources of a program and makes it the current one. 0 or the code to exit with. */
int dtm_rt_run_begin(Run *r, AbiProgramKind program, bool shuffle, RtData **data);
/* Runs actions [first, first + count) of the current program (counted from its first). */
int dtm_rt_run_actions(Run *r, uint32_t first, uint32_t count);
/* What runs for one batch of the current program; in a pipeline for all of its micro-batches. */
int dtm_rt_run_batch(Run *r);
/* --- parts.c: prints whose parts come with the micro-batches --- */
/* Room for those of the current program; free(NULL) when there are none. 0 or the exit code. */
int dtm_rt_parts_open(Run *r);
void dtm_rt_parts_close(Run *r);
/* Whether the output is one; its part of the micro-batch is kept. */
bool dtm_rt_parts_take(Run *r, uint32_t output, int64_t micro, const void *value);
/* After all micro-batches of a batch, on all ranks: brings the parts to all, and prints. */
int dtm_rt_parts_print(Run *r);

/* Sets sums to zero. */
void dtm_rt_run_clear(Run *r);
/* What an output came to so far: a mean weighted by samples, or a sum over its count. */
double dtm_rt_run_value(const Run *r, uint32_t output);
/* Logs the metrics of the current program under this split name. */
void dtm_rt_run_metrics(Run *r, const char *split, int64_t step);

/* The blocks. */
int dtm_rt_train(Run *r);
/* `step`: for the log, 0 when it is not known. */
int dtm_rt_evaluate(Run *r, int64_t step);
int dtm_rt_infer(Run *r);

#endif
