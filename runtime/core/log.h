/* What a run prints: progress bar, plain or JSON lines, loss curve, metrics.
 *
 * Rank 0 logs; on other ranks every function does nothing, so callers need no `if`. In JSON mode
 * standard output carries one object per line and nothing else.
 */
#ifndef DTM_RT_LOG_H
#define DTM_RT_LOG_H

#include "core/options.h"

typedef struct RtLog RtLog;

/* A number beside the loss: learning rate, gradient norm, a printed scalar. */
typedef struct RtField {
  const char *name;
  double value;
} RtField;

typedef struct RtLogSetup {
  int32_t rank;
  RtLogMode mode; /* AUTO: bar when `out` is a terminal, else plain */
  bool quiet, no_curve;
  int64_t log_every;
  int64_t total_steps;   /* 0 = unknown */
  int64_t first_step;    /* after --resume; steps count from 1 */
  double items_per_step; /* samples (0 = do not show a rate of them) */
  const char *items;     /* "samples", "tokens" */
  FILE *out, *err;
} RtLogSetup;

RtLog *dtm_rt_log_open(const RtLogSetup *setup);
void dtm_rt_log_close(RtLog *log);

/* One finished training step (1-based) and its loss.
 * JSON: {"step":n,"loss":x,...}; a value that is not finite is printed as "nan", "inf", "-inf". */
void dtm_rt_log_step(RtLog *log, int64_t step, double loss, const RtField *fields, size_t nfields);
/* Progress of something that is not training: evaluation, saving. `done` of `total`. */
void dtm_rt_log_progress(RtLog *log, const char *what, int64_t done, int64_t total);
/* "test accuracy 0.8712", before the last step with " at step 100"; JSON
 * {"metric":"accuracy","split":"test","value":0.8712,"step":n}. Step 0 is one that is not known:
 * nothing is said of it. */
void dtm_rt_log_metric(RtLog *log, const char *split, const char *name, double value, int64_t step);
/* One line of text ("saved model.safetensors"); silent with --quiet; JSON {"event":"..."}. */
void dtm_rt_log_line(RtLog *log, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Bytes of a text as they come, where the log is for people. */
void dtm_rt_log_written(RtLog *log, const char *bytes, size_t n);
/* A text as a whole, in JSON {"text":"..."}, bytes that are no UTF-8 as U+FFFD. `written`: its
 * bytes were handed to the function above, so that only the end of its line is missing. */
void dtm_rt_log_text(RtLog *log, const char *text, bool written);
/* Ends the progress bar, prints the loss curve (plain and bar modes) and a line of totals. */
void dtm_rt_log_summary(RtLog *log);

/* Draws values[n] over steps as a chart `width` x `height` characters with axes: braille dots when
 * `unicode`, else ASCII. Values that are not finite leave gaps. */
void dtm_rt_curve_draw(FILE *out, const int64_t *steps, const double *values, size_t n, int width,
                       int height, bool unicode);

#endif
