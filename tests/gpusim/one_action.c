/* See one_action.h. */
#include "gpusim/one_action.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/cuda_program.h"
#include "plan/image.h"
#include "runtime/abi/blocks.h"

enum { MAX_TENSORS = 8, FAR = 256 };

typedef struct Tensor {
  uint32_t type;
  uint64_t offset;
  int64_t count;
  size_t bytes;
  bool written;
  void *input, *cpu, *gpu;
} Tensor;

struct OneAction {
  Arena arena;
  ImageWriter w;
  Mesh mesh;
  AbiAction action;
  RtComm comm;
  RtCommOps ops;
  Image image;
  AbiStep step;
  int64_t *syms, *args;
  Tensor t[MAX_TENSORS];
  uint32_t ntensors;
  uint64_t end;
  uint32_t misalign;
  CudaFault fault;
  bool cpu_failed;
};

bool one_action_possible(const char **reason) {
  static Arena arena;
  if (!getenv("GPUSIM")) *reason = "GPUSIM does not name the simulator";
  return getenv("GPUSIM") && nvrtc_open(&arena, reason);
}

/* --- building -----------------------------------------------------------------------------------
 */

static int keep_quiet(RtComm *c, int code, const char *message) {
  (void)c;
  (void)message;
  return code;
}

static int say(RtComm *c, int code, const char *message) {
  (void)c;
  fprintf(stderr, "%s\n", message);
  return code;
}

static void publish(RtComm *c) {
  (void)c;
}

static int agree(RtComm *c, uint32_t flags, uint32_t *all) {
  (void)c;
  *all = flags;
  return 0;
}

static int broadcast(RtComm *c, void *data, size_t n, int32_t root) {
  (void)c, (void)data, (void)n, (void)root;
  return 0;
}

static int barrier(RtComm *c, const int32_t *group, int32_t ngroup) {
  (void)c, (void)group, (void)ngroup;
  return 0;
}

static int look(RtComm *c, bool moved, double *silent) {
  (void)c, (void)moved;
  *silent = 0;
  return 0;
}

OneAction *one_action_new(uint32_t kind, uint32_t code, int32_t rank, int32_t ranks) {
  OneAction *o = calloc(1, sizeof *o);
  if (!o) abort();
  arena_init(&o->arena);
  image_init(&o->w, &o->arena);
  o->mesh = (Mesh){.name = "world", .naxes = 1, .axis = {"r"}, .size = {ranks}, .nranks = ranks};
  o->action = (AbiAction){.kind = kind,
                          .code = code,
                          .mesh = image_mesh(&o->w, &o->mesh),
                          .name = image_string(&o->w, "action")};
  o->ops = (RtCommOps){.name = "one",
                       .publish = publish,
                       .fail = say,
                       .agree = agree,
                       .broadcast_host = broadcast,
                       .barrier = barrier,
                       .look = look};
  o->comm = (RtComm){.ops = &o->ops, .rank = rank, .world = 1, .local_world = 1, .threads = 1};
  o->end = 1024;
  return o;
}

void one_action_free(OneAction *o) {
  for (uint32_t i = 0; i < o->ntensors; i++) {
    free(o->t[i].input);
    free(o->t[i].cpu);
    free(o->t[i].gpu);
  }
  free(o->syms);
  free(o->args);
  arena_free(&o->arena);
  free(o);
}

static int64_t block_count(const OneAction *o, const AbiType *type) {
  int64_t offset[ABI_MAX_DIMS], extent[ABI_MAX_DIMS], coord[ABI_MAX_AXES] = {o->comm.rank};
  int64_t n = 1;
  abi_block(type, &o->w.mesh.data[1], coord, offset, extent);
  for (uint32_t d = 0; d < type->rank; d++) n *= extent[d];
  return n;
}

uint32_t one_action_tensor(OneAction *o, uint32_t dtype, uint32_t rank, const int64_t *shape,
                           int shard, bool written) {
  AbiType type = {.dtype = dtype, .rank = rank, .mesh = 1};
  memcpy(type.shape, shape, rank * sizeof *shape);
  if (shard >= 0) type.at[0] = (AbiPlace){.kind = ABI_SHARD, .dim = (uint8_t)shard};
  Tensor *t = &o->t[o->ntensors];
  t->type = o->w.type.len;
  VEC_PUSH(&o->arena, &o->w.type, type);
  t->written = written;
  t->count = block_count(o, &type);
  t->bytes = (size_t)t->count * abi_dtype_bytes(dtype);
  t->offset = (o->end + FAR - 1) / FAR * FAR + o->misalign * abi_dtype_bytes(dtype);
  o->misalign = 0;
  o->end = t->offset + t->bytes + FAR;
  t->input = calloc(1, t->bytes + 1);
  t->cpu = calloc(1, t->bytes + 1);
  t->gpu = calloc(1, t->bytes + 1);
  return o->ntensors++;
}

void one_action_share(OneAction *o, uint32_t with) {
  o->t[o->ntensors - 1].offset = o->t[with].offset;
}

void one_action_misalign(OneAction *o, uint32_t elements) {
  o->misalign = elements;
}

uint32_t one_action_sym(OneAction *o, int64_t value) {
  VEC_PUSH(&o->arena, &o->w.sym, ((RtSym){.op = RT_SYM_CONST, .imm = value}));
  return o->w.sym.len - 1;
}

void one_action_arg(OneAction *o, int64_t value) {
  uint32_t sym = one_action_sym(o, value);
  VEC_PUSH(&o->arena, &o->w.arg, sym);
  o->action.nargs++;
}

void one_action_matmul(OneAction *o, const AbiMatmul *m) {
  VEC_PUSH(&o->arena, &o->w.matmul, *m);
}

void *one_action_input(OneAction *o, uint32_t tensor, int64_t *count) {
  *count = o->t[tensor].count;
  return o->t[tensor].input;
}

uint32_t one_action_dtype(const OneAction *o, uint32_t tensor) {
  return o->w.type.data[o->t[tensor].type].dtype;
}

/* --- running ------------------------------------------------------------------------------------
 */

static void finish_image(OneAction *o) {
  for (uint32_t i = 0; i < o->ntensors; i++) {
    AbiBuffer b = {.offset = o->t[i].offset, .type = o->t[i].type, .written = o->t[i].written};
    VEC_PUSH(&o->arena, &o->w.buffer, b);
  }
  o->action.nbuffers = o->ntensors;
  VEC_PUSH(&o->arena, &o->w.action, o->action);
  for (int i = 0; i < ABI_PROGRAM_COUNT; i++)
    VEC_PUSH(&o->arena, &o->w.program, ((AbiProgram){.microbatches = 1}));
  AbiHeader h = {.world = 1, .arena_size = o->end, .persistent_size = ABI_STEP_BYTES};
  const unsigned char *image = image_finish(&o->w, &h);
  const char *wrong = abi_image_open(image, h.size, &o->image);
  if (wrong) {
    fprintf(stderr, "%s\n", wrong);
    abort();
  }
  o->syms = calloc(o->image.sym_count, sizeof *o->syms);
  o->args = calloc(o->image.arg_count + 1, sizeof *o->args);
  for (uint64_t i = 0; i < o->image.sym_count; i++) o->syms[i] = o->image.sym[i].imm;
  for (uint64_t i = 0; i < o->image.arg_count; i++) o->args[i] = o->syms[o->image.arg[i]];
}

static int prepare_on(RtDevice *d) {
  int status = d->ops->prepare(d, 0);
  return status ? status : d->ops->ready(d);
}

static int run_on(RtDevice *d) {
  int status = d->ops->set_step(d);
  return status ? status : d->ops->run(d, 0, NULL);
}

/* Everything lies in one piece, as the arena has it. */
static bool run_cpu(OneAction *o, const RtDevice *found) {
  RtDevice *d = NULL;
  unsigned char *memory = aligned_alloc(FAR, (o->end + FAR - 1) / FAR * FAR);
  if (!memory) return false;
  memset(memory, 0, o->end);
  for (uint32_t i = 0; i < o->ntensors; i++)
    if (!o->t[i].written) memcpy(memory + o->t[i].offset, o->t[i].input, o->t[i].bytes);
  o->comm.arena = memory;
  o->comm.arena_size = o->end;
  o->ops.fail = keep_quiet;
  int status = dtm_cpu_open(found, &(RtCode){0}, &d);
  if (!status) status = prepare_on(d);
  if (!status) status = run_on(d);
  o->cpu_failed = status != 0;
  o->ops.fail = say;
  for (uint32_t i = 0; i < o->ntensors; i++)
    memcpy(o->t[i].cpu, memory + o->t[i].offset, o->t[i].bytes);
  if (d) d->ops->close(d);
  free(memory);
  return d != NULL;
}

/* The code of this action's instances. */
static const CudaProgram *compile(OneAction *o) {
  CudaOptions options = {.target = {.arch = {{.number = 80}}, .narchs = 1}};
  const char *error = NULL, *dtmc = getenv("DTMC");
  const char *slash = dtmc ? strrchr(dtmc, '/') : NULL;
  if (!slash) return NULL;
  options.library = arena_printf(&o->arena, "%.*s/../lib/dtm", (int)(slash - dtmc), dtmc);
  CudaProgram *p = cuda_program(&o->arena, NULL, 0, (const unsigned char *)o->image.header,
                                o->image.header->size, &options, &error);
  if (p && cuda_program_compile(&o->arena, p, &options, &error)) return p;
  fprintf(stderr, "%s\n", error);
  return NULL;
}

static int write_inputs(OneAction *o) {
  const RtMirror *mirror = o->comm.mirror;
  int status = 0;
  for (uint32_t i = 0; i < o->ntensors && !status; i++)
    if (!o->t[i].written)
      status = mirror->flush(mirror->context, o->t[i].offset, o->t[i].bytes, o->t[i].input);
  return status;
}

/* Not by the device's own way, on which a fault is an error. */
static int read_back(OneAction *o, CudaDevice *d) {
  CUresult error = d->cu->stream_sync(d->compute);
  if (!error) error = d->cu->to_host(&o->fault, d->fault, sizeof o->fault);
  for (uint32_t i = 0; i < o->ntensors && !error; i++)
    if (o->t[i].bytes)
      error = d->cu->to_host(o->t[i].gpu, d->arena + o->t[i].offset, o->t[i].bytes);
  return (int)error;
}

static bool run_gpu(OneAction *o, const RtDevice *found) {
  RtDevice *d = NULL;
  const CudaProgram *p = compile(o);
  if (!p) return false;
  setenv("DTM_CUDA_DRIVER", getenv("GPUSIM"), 1);
  setenv("DTM_CUBLASLT", getenv("GPUSIM"), 1);
  const RtCode code = {.cuda = p->blob, .cuda_size = p->blob_size};
  int status = dtm_cuda_open(found, &code, &d);
  if (!status) status = prepare_on(d);
  if (!status) status = write_inputs(o);
  if (!status) status = run_on(d);
  if (!status) status = read_back(o, dtm_cuda_of(d));
  if (d) d->ops->close(d);
  return status == 0;
}

bool one_action_run(OneAction *o) {
  finish_image(o);
  const RtDevice found = {.image = &o->image,
                          .comm = &o->comm,
                          .syms = o->syms,
                          .arg_ints = o->args,
                          .skip = (const unsigned char *)"",
                          .step = &o->step};
  return run_cpu(o, &found) && run_gpu(o, &found);
}

const void *one_action_cpu(const OneAction *o, uint32_t tensor) {
  return o->t[tensor].cpu;
}

const void *one_action_gpu(const OneAction *o, uint32_t tensor) {
  return o->t[tensor].gpu;
}

const CudaFault *one_action_fault(const OneAction *o) {
  return &o->fault;
}

bool one_action_cpu_failed(const OneAction *o) {
  return o->cpu_failed;
}
