/* The main function of every compiled program: image, options, launch, then the blocks asked for.
 */
#include <stdlib.h>
#include <string.h>

#include "comm/errors.h"
#include "core/cpu.h"
#include "core/launch.h"
#include "core/run.h"
#include "runtime/abi/cuda.h"
#include "runtime/abi/digest.h"
#include "runtime/abi/standard_files.h"
#include "state/state.h"

/* What --help and the checks of the command line need to know. */
static RtProgramInfo describe(const Image *image, const char *chips, RtDataDecl *decls, char *mesh,
                              size_t room) {
  const AbiProgram *train = &image->program[ABI_PROGRAM_TRAIN];
  const AbiMesh *world = &image->mesh[image->header->world];
  size_t n = 0;
  for (uint32_t a = 0; a < world->naxes; a++)
    if (world->size[a] > 1 && n < room)
      n += (size_t)snprintf(mesh + n, room - n, "%s%s=%lld", n ? "," : "",
                            abi_text(image, world->axis[a]), (long long)world->size[a]);
  for (uint32_t i = 0; i < image->source_count; i++) {
    const AbiSource *s = &image->source[i];
    decls[i] = (RtDataDecl){abi_text(image, s->name), abi_text(image, s->path),
                            abi_text(image, s->reader), abi_program_name(s->program),
                            !strcmp(abi_text(image, s->reader), ABI_READER_VALID) ||
                                !strcmp(abi_text(image, s->reader), ABI_READER_SHARE)};
  }
  return (RtProgramInfo){.source = abi_text(image, image->header->path),
                         .mesh = mesh,
                         .chips = *chips ? chips : NULL,
                         .world = (int32_t)world->nranks,
                         .has_train = train->present,
                         .has_eval = image->program[ABI_PROGRAM_EVAL].present,
                         .has_infer = image->program[ABI_PROGRAM_INFER].present,
                         .steps = train->steps,
                         .epochs = train->epochs,
                         .save_every = train->save_every,
                         .eval_every = train->eval_every,
                         .seed = image->header->seed,
                         .save = train->save ? abi_text(image, train->save) : NULL,
                         .data = decls,
                         .ndata = image->source_count};
}

/* Paths of the program are relative to the folder of its source, those of --data to where the run
 * starts. */
static int find_paths(Run *r, const RtDataDecl *decls) {
  const char *source = abi_text(r->image, r->image->header->path), *slash = strrchr(source, '/');
  size_t folder = slash ? (size_t)(slash - source) + 1 : 0;
  r->paths = calloc(r->image->source_count + 1, sizeof *r->paths);
  if (!r->paths) return -1;
  for (uint32_t i = 0; i < r->image->source_count; i++) {
    const char *path = dtm_rt_options_data(r->options, i);
    bool is_path = strcmp(decls[i].reader, ABI_READER_PROMPT) != 0;
    if (is_path && path == decls[i].path && path[0] != '/') {
      char *whole = malloc(folder + strlen(path) + 1);
      if (!whole) return -1;
      memcpy(whole, source, folder);
      strcpy(whole + folder, path);
      path = whole;
    }
    r->paths[i] = path;
  }
  return 0;
}

static int initialise(Run *r) {
  const AbiProgram *init = &r->image->program[ABI_PROGRAM_INIT];
  r->program = ABI_PROGRAM_INIT;
  r->valid = 1;
  int status = dtm_rt_run_actions(r, 0, init->nactions);
  if (!status && r->options->load) status = dtm_rt_state_load(r->comm, r->image, r->options->load);
  return status;
}

static int run_blocks(Run *r) {
  const RtOptions *o = r->options;
  const AbiProgram *p = r->image->program;
  int status = initialise(r);
  RtProgress progress = {0};
  if (!status && o->resume && (o->command == RT_RUN_EVAL || o->command == RT_RUN_INFER))
    status = dtm_rt_checkpoint_load(r->comm, r->image, o->resume, &progress);
  r->trained = progress.step;
  if (!status && (o->command == RT_RUN_DEFAULT || o->command == RT_RUN_TRAIN) &&
      p[ABI_PROGRAM_TRAIN].present)
    status = dtm_rt_train(r);
  bool stop = false; /* Ctrl-C while training: saved, and that is all */
  if (!status) status = dtm_rt_stop_agreed(r->comm, &stop);
  if (!status && !stop && p[ABI_PROGRAM_EVAL].present &&
      (o->command == RT_RUN_EVAL || (o->command == RT_RUN_DEFAULT && !o->no_eval)))
    status = dtm_rt_evaluate(r, r->trained);
  if (!status && o->command == RT_RUN_INFER) status = dtm_rt_infer(r);
  return status;
}

static int run_rank(Run *r, RtTrace *trace) {
  const RtLogSetup setup = {.rank = r->comm->rank,
                            .mode = r->options->log,
                            .quiet = r->options->quiet,
                            .no_curve = r->options->no_curve,
                            .out = stdout,
                            .err = stderr};
  const RtCode code = {.open = dtm_open_device,
                       .kernels = dtm_kernels,
                       .cuda = dtm_cuda,
                       .cuda_size = dtm_cuda_size};
  r->log = dtm_rt_log_open(&setup);
  r->sums = calloc(r->image->output_count + 1, sizeof *r->sums);
  r->parts = calloc(r->image->output_count + 1, sizeof *r->parts);
  int status = !r->log || !r->sums || !r->parts
                   ? dtm_rt_fail(r->comm, RT_DEVICE, "out of memory")
                   : dtm_rt_exec_open(r->image, &code, r->comm, trace, &r->exec);
  char device[512];
  bool trains = r->image->program[ABI_PROGRAM_TRAIN].present &&
                (r->options->command == RT_RUN_DEFAULT || r->options->command == RT_RUN_TRAIN);
  if (!status && trains && dtm_rt_exec_describe(r->exec, device, sizeof device))
    dtm_rt_log_line(r->log, "%s", device);
  if (!status) status = run_blocks(r);
  if (!status) status = dtm_rt_exec_sync(r->exec);
  dtm_rt_exec_close(r->exec);
  dtm_rt_log_close(r->log);
  free(r->sums);
  dtm_rt_parts_close(r);
  r->comm->place = (RtPlace){0}; /* the step is over: what fails now is not its fault */
  if (!status && ferror(stdout))
    status = dtm_rt_fail(r->comm, RT_BAD_DATA,
                         "standard output could not be written (is its disk full?): the log is "
                         "incomplete");
  return status;
}

/* What dtmc put beside the code is not as it was: a copy that broke off, a disk. The code itself
 * cannot be looked at by itself. */
static int fail_damaged(const char *program, const char *wrong) {
  return dtm_rt_fail(NULL, RT_BAD_DATA, "%s is damaged (%s): compile it again", program, wrong);
}

/* NULL, or what is wrong with the plan. */
static const char *open_plan(Image *image) {
  const char *wrong = abi_image_open(dtm_image, dtm_image_size, image);
  if (wrong) return wrong;
  AbiHeader h = *image->header;
  uint64_t was = h.hash;
  h.hash = 0;
  uint64_t is =
      abi_digest(abi_digest(0, &h, sizeof h), dtm_image + sizeof h, dtm_image_size - sizeof h);
  return is == was ? NULL : "its plan is not what was compiled";
}

static const char *open_code(AbiCuda *cuda) {
  const char *wrong = abi_cuda_open(dtm_cuda, dtm_cuda_size, cuda);
  return wrong || cuda->header->digest == abi_cuda_digest(dtm_cuda)
             ? wrong
             : "the tables of its GPU code are not what was compiled";
}

int main(int argc, char **argv) {
  abi_hold_standard_files();
  Image image;
  const char *program = argc > 0 ? argv[0] : "this program";
  const char *wrong = open_plan(&image);
  if (wrong) return fail_damaged(program, wrong);
  AbiCuda cuda;
  char mesh[256] = "", chips[256] = "";
  wrong = dtm_cuda_size ? open_code(&cuda) : NULL;
  if (wrong) return fail_damaged(program, wrong);
  if (dtm_cuda_size) abi_cuda_list(&cuda, 0, chips, sizeof chips);
  RtDataDecl *decls = calloc(image.source_count + 1, sizeof *decls);
  if (!decls) return dtm_rt_fail(NULL, RT_DEVICE, "out of memory");
  RtProgramInfo info = describe(&image, chips, decls, mesh, sizeof mesh);
  RtOptions options;
  int status = dtm_rt_options_parse(&options, &info, argc, argv, stdout, stderr);
  if (status == RT_OK && (fflush(stdout) != 0 || ferror(stdout)))
    status = dtm_rt_fail(NULL, RT_BAD_DATA, "standard output could not be written");
  if (status >= 0) return status;
  wrong = dtm_cuda_size ? NULL : dtm_rt_cpu_lacks(dtm_cpu_features);
  if (wrong)
    return dtm_rt_fail(NULL, RT_DEVICE,
                       "this machine's processor lacks %s, which the program was compiled for; "
                       "compile it here, or with --march=x86-64-v2",
                       wrong);
  Run run = {.image = &image, .options = &options, .seed = options.seed};
  const RtLaunch launch = {.world = info.world,
                           .arena_size = dtm_cuda_size ? image.header->persistent_size
                                                       : image.header->arena_size,
                           .mirror = dtm_cuda_size > 0,
                           .plan_hash = image.header->hash,
                           .options = &options,
                           .argv = argv};
  status = dtm_rt_launch(&launch, &run.comm);
  if (run.comm) {
    RtTrace *trace;
    status = dtm_rt_trace_open(options.trace, run.comm, &trace);
    if (!status)
      status = find_paths(&run, decls) ? dtm_rt_fail(run.comm, RT_DEVICE, "out of memory")
                                       : run_rank(&run, trace);
    if (!status) status = dtm_rt_trace_close(trace, run.comm);
    status = dtm_rt_finish(run.comm, status);
  }
  dtm_rt_options_free(&options);
  free(decls);
  return status;
}
