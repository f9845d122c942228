/* The command line of a built binary. */
#ifndef DTM_RT_OPTIONS_H
#define DTM_RT_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* What the compiled program tells about itself: help, defaults and checks come from here. */
typedef struct RtDataDecl {
  const char *name;   /* "tokens" */
  const char *path;   /* as written in the .dtm file */
  const char *reader; /* "npy" */
  const char *block;  /* "train", "eval", "infer" */
  bool made;          /* by the program itself, not read from a file */
} RtDataDecl;

typedef struct RtProgramInfo {
  const char *source; /* "samples/mlp.dtm" */
  const char *mesh;   /* "dp=2,tp=2"; "" when one rank */
  const char *chips;  /* "sm_90, compute_90": GPUs that there is code for; NULL: the processor */
  int32_t world;
  bool has_train, has_eval, has_infer;
  int64_t steps, epochs; /* as the train block says; steps 0 = by epochs */
  int64_t save_every, eval_every;
  uint64_t seed;
  const char *save; /* path or NULL */
  const RtDataDecl *data;
  size_t ndata;
} RtProgramInfo;

/* Of one rank; more only waste memory, and enough more take the machine down. */
enum { RT_MOST_THREADS = 4096 };

typedef enum RtCommand {
  RT_RUN_DEFAULT = 0, /* train, then eval, as far as the program has them; infer with neither */
  RT_RUN_TRAIN,       /* train only: the same as the default with --no-eval */
  RT_RUN_EVAL,
  RT_RUN_INFER
} RtCommand;

typedef enum RtLogMode { RT_LOG_AUTO = 0, RT_LOG_PLAIN, RT_LOG_BAR, RT_LOG_JSON } RtLogMode;
typedef enum RtTransport {
  RT_TRANSPORT_AUTO = 0,
  RT_TRANSPORT_LOCAL,
  RT_TRANSPORT_MPI
} RtTransport;

typedef struct RtDataPath {
  const char *name, *path;
} RtDataPath;

/* Values not given on the command line hold the program's defaults. */
typedef struct RtOptions {
  RtCommand command;
  int64_t steps; /* > 0: by steps; 0: by epochs */
  int64_t epochs;
  uint64_t seed;
  bool seed_given;                  /* on the command line */
  const char *load, *save, *resume; /* NULL = none */
  int64_t save_every, eval_every;   /* steps; 0 = at the end */
  RtDataPath *data;                 /* every data declaration of the program, in its order */
  size_t ndata;
  bool no_eval;
  bool check_finite; /* stop at the first loss that is not finite */
  RtLogMode log;
  int64_t log_every; /* plain lines: 0 = paced by time */
  bool quiet;        /* results and errors only */
  bool no_curve;
  const char *trace; /* Chrome trace file or NULL */
  int threads;       /* 0 = decide */
  double deadline;   /* seconds */
  RtTransport transport;
  int32_t rank, world; /* -1 = not given: ask the environment */
  const char *job;     /* rendezvous name or NULL */
} RtOptions;

/* Fills `o`. Returns -1 to go on, else what main returns: 0 after --help or --version (text on
 * `out`), 2 after a usage error (one message with the nearest valid spelling on `err`). Strings
 * point into argv. dtm_rt_options_free releases what was allocated. */
int dtm_rt_options_parse(RtOptions *o, const RtProgramInfo *program, int argc, char **argv,
                         FILE *out, FILE *err);
void dtm_rt_options_free(RtOptions *o);
/* The path of data declaration i: `--data name=path`, else as declared. */
const char *dtm_rt_options_data(const RtOptions *o, size_t i);

#endif
