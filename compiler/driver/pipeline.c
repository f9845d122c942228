/* The pipeline: a table of passes and the loop that runs, verifies, prints and stops.
 *
 * A pass takes the program from one stage to the next. Passes never call passes.
 */
#include "driver/pipeline.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "codegen/codegen.h"
#include "codegen/link.h"
#include "driver/fixes.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "place/expand.h"
#include "place/store.h"
#include "spmd/pipeline.h"
#include "spmd/spmd.h"
#include "syntax/ast.h"

/* A pass found the program in a state that earlier passes rule out. */
static _Noreturn void internal_error(const char *pass, const char *fault) {
  fprintf(stderr, "dtmc: internal error in pass %s: %s\n", pass, fault);
  abort();
}

static bool run_sema(Compilation *c) {
  Session *s = c->session;
  c->program = sema_run(&c->sema, &s->arena, &s->names, &s->sources, &s->sink);
  fixes_verify(s, &c->sema);
  return s->sink.errors == 0;
}

/* They rewrite what the user wrote, before anything is derived from it. */
static bool run_expand(Compilation *c) {
  if (!compute_run(c->program, &c->session->sink)) return false;
  expand_run(c->program);
  store_run(c->program);
  return true;
}

static bool run_autodiff(Compilation *c) {
  return autodiff_run(c->program, c->plans, &c->session->sink);
}

static bool run_spmd(Compilation *c) {
  const char *fault = spmd_run(c->program, c->plans);
  if (fault) internal_error("spmd", fault);
  return true;
}

static bool run_pipeline(Compilation *c) {
  return pipeline_cut(c->program, &c->session->sink);
}

static bool run_fuse(Compilation *c) {
  const Program *p = c->program;
  FuseOptions options = {.enabled = !option_given(&c->session->options, OPT_NO_FUSE),
                         .target = c->for_cuda ? &fuse_target_cuda : NULL};
  for (int b = 0; b < BLOCK_COUNT; b++)
    if (p->block[b].graph)
      c->fused[b] = fuse_run(&c->session->arena, p->block[b].graph, &c->kernels, &options);
  return true;
}

static bool run_plan(Compilation *c) {
  const Program *p = c->program;
  bool any = false;
  for (BlockKind b = BLOCK_TRAIN; b < BLOCK_COUNT; b++) any = any || p->block[b].graph;
  if (!any) {
    diag_emit(&c->session->sink, DIAG_NOTHING_TO_RUN, (Span){0},
              "%s has no train, eval or infer block", c->sema.main_path);
    return false;
  }
  char *absolute = realpath(c->sema.main_path, NULL); /* NULL when the file is gone by now */
  PlanOptions options = {
      .path = arena_strdup(&c->session->arena, absolute ? absolute : c->sema.main_path),
      .compiler = "dtmc " DTM_VERSION,
      .reuse = !option_given(&c->session->options, OPT_NO_REUSE),
      .ahead = !option_given(&c->session->options, OPT_NO_PREFETCH),
      .together = c->for_cuda};
  free(absolute);
  c->plan = plan_run(&c->session->arena, c->program, c->fused, c->kernels.kernels.len, &options);
  return true;
}

static bool fail_codegen(Compilation *c, const char *error) {
  diag_emit(&c->session->sink, DIAG_CODEGEN, (Span){0}, "%s", error);
  return false;
}

static bool emit_code(Compilation *c, CodegenOutput output, const CodegenImage *image,
                      CodegenResult *out) {
  const Options *o = &c->session->options;
  CodegenOptions options = {.march = option_value(o, OPT_MARCH, NULL),
                            .verify = option_given(o, OPT_VERIFY)};
  const char *error = NULL;
  if (codegen_emit(&c->session->arena, c->kernels.kernels.data,
                   c->for_cuda ? 0 : c->kernels.kernels.len, image, &options, output, out, &error))
    return true;
  return fail_codegen(c, error);
}

static bool run_cuda(Compilation *c) {
  if (!c->for_cuda) return true;
  const char *error = NULL;
  c->cuda = cuda_program(&c->session->arena, c->kernels.kernels.data, c->kernels.kernels.len,
                         c->plan->image, c->plan->image_size, &c->cuda_options, &error);
  if (!c->cuda) return fail_codegen(c, error);
  for (uint32_t i = 0; i < c->cuda->read.len; i++)
    VEC_PUSH(&c->session->arena, &c->session->kernels, c->cuda->read.data[i]);
  return true;
}

static bool run_ptx(Compilation *c) {
  const char *error = NULL;
  if (!c->for_cuda) return true;
  if (!cuda_program_compile(&c->session->arena, c->cuda, &c->cuda_options, &error))
    return fail_codegen(c, error);
  const char *unread = cuda_program_unread(&c->session->arena, c->cuda, &c->cuda_options);
  if (unread) {
    const char *name = strrchr(unread, '/') + 1;
    fprintf(stderr, "dtmc: warning: %s was changed, and is not read: edit %.*s.cu\n", unread,
            (int)strlen(name) - 4, name);
  }
  return true;
}

static bool run_codegen(Compilation *c) {
  CodegenImage image = {.data = c->plan->image, .size = c->plan->image_size};
  if (c->for_cuda) {
    image.cuda = c->cuda->blob;
    image.cuda_size = c->cuda->blob_size;
  }
  return emit_code(c, CODEGEN_OBJECT, &image, &c->objects);
}

static bool run_link(Compilation *c) {
  if (!session_may_write(c->session, c->output)) return false;
  LinkOptions options = {.output = c->output, .runtime_dir = c->session->library};
  const char *error = NULL;
  if (link_executable(&c->session->arena, &c->objects, &options, &error)) return true;
  diag_emit(&c->session->sink, DIAG_LINK, (Span){0}, "%s", error);
  return false;
}

/* Every source file that was read, as the parser sees it. */
static void print_ast(Compilation *c) {
  Session *s = c->session;
  for (uint32_t id = 1; id <= s->sources.files.len; id++)
    ast_print(NULL, ast_parse(&s->arena, &s->names, &s->sink, id), &c->emitted);
}

static void print_program(Compilation *c) {
  program_print(&c->emitted, c->program);
}

static void print_schedule(Compilation *c) {
  pipeline_print(&c->emitted, c->program, c->plan->stages);
}

static void print_pipeline(Compilation *c) {
  pipeline_draw(&c->emitted, c->program, c->plan->stages);
}

static void print_fused(Compilation *c) {
  for (int b = 0; b < BLOCK_COUNT; b++)
    if (c->fused[b]) fuse_print(&c->emitted, c->fused[b]);
}

static void print_kernels(Compilation *c) {
  for (uint32_t k = 0; k < c->kernels.kernels.len; k++)
    kernel_print(&c->emitted, c->kernels.kernels.data[k]);
}

static void print_plan(Compilation *c) {
  plan_print(&c->emitted, c->plan);
}

static void print_memory(Compilation *c) {
  plan_draw(&c->emitted, c->plan);
}

static void print_code(Compilation *c, CodegenOutput output) {
  CodegenResult text;
  if (emit_code(c, output, NULL, &text))
    strbuf_put_n(&c->emitted, text.piece[0].bytes, text.piece[0].size);
}
static void print_llvm(Compilation *c) {
  print_code(c, CODEGEN_LLVM);
}
static void print_asm(Compilation *c) {
  print_code(c, CODEGEN_ASM);
}

/* One behind the other; compile.c writes them to a folder when that is asked for. */
static void print_cuda(Compilation *c) {
  for (uint32_t i = 0; i < c->cuda->modules.len; i++) {
    const CudaModule *m = &c->cuda->modules.data[i];
    strbuf_printf(&c->emitted, "// %s.cu\n", m->name);
    strbuf_puts(&c->emitted, m->text);
    strbuf_putc(&c->emitted, '\n');
  }
}
static void print_ptx(Compilation *c) {
  for (uint32_t i = 0; i < c->cuda->modules.len; i++) {
    const CudaModule *m = &c->cuda->modules.data[i];
    strbuf_printf(&c->emitted, "// %s.ptx\n", m->name);
    strbuf_puts(&c->emitted, m->ptx);
    strbuf_putc(&c->emitted, '\n');
  }
}

static const char *verify_stage(Compilation *c, GraphStage stage, const char *pass) {
  return verify_program(&c->session->arena, c->program, stage, pass, infer_check);
}
static const char *verify_graph(Compilation *c) {
  return verify_stage(c, GRAPH_ELABORATED, "elaborate");
}
static const char *verify_explicit(Compilation *c) {
  return verify_stage(c, GRAPH_EXPLICIT, "expand");
}
static const char *verify_grad(Compilation *c) {
  return verify_stage(c, GRAPH_GRAD, "autodiff");
}
static const char *verify_local(Compilation *c) {
  return verify_stage(c, GRAPH_LOCAL, "spmd");
}

static const char *verify_fused(Compilation *c) {
  for (int b = 0; b < BLOCK_COUNT; b++) {
    const char *fault = c->fused[b] ? fuse_verify(&c->session->arena, c->fused[b]) : NULL;
    if (fault) return fault;
  }
  for (uint32_t k = 0; k < c->kernels.kernels.len; k++) {
    const char *fault = kernel_verify(&c->session->arena, c->kernels.kernels.data[k]);
    if (fault) return fault;
  }
  return NULL;
}

/* How much there is after a pass. */
typedef struct Amount {
  const char *what;
  uint32_t n;
} Amount;

static Amount count_nodes(const Compilation *c) {
  Amount a = {"nodes", 0};
  for (BlockKind b = 0; b < BLOCK_COUNT; b++)
    if (c->program->block[b].graph) a.n += c->program->block[b].graph->nodes.len - 1;
  return a;
}

static Amount count_groups(const Compilation *c) {
  Amount a = {"groups", 0};
  for (BlockKind b = 0; b < BLOCK_COUNT; b++)
    if (c->fused[b]) a.n += c->fused[b]->groups.len;
  return a;
}

static Amount count_kernels(const Compilation *c) {
  return (Amount){"kernels", c->kernels.kernels.len};
}

typedef struct Pass {
  const char *name;
  Amount (*count)(const Compilation *); /* for --time */
  Stage to;
  bool (*run)(Compilation *);           /* NULL: the stage is another view of what is there */
  const char *(*verify)(Compilation *); /* NULL or what is wrong with the result */
  void (*print)(Compilation *); /* NULL: the stage is printed by a later pass to it, if at all */
} Pass;

static const Pass passes[] = {
    {"elaborate", count_nodes, STAGE_GRAPH, run_sema, verify_graph, print_program},
    {"expand", count_nodes, STAGE_EXPLICIT, run_expand, verify_explicit, print_program},
    {"autodiff", count_nodes, STAGE_GRAD, run_autodiff, verify_grad, print_program},
    {"spmd", count_nodes, STAGE_LOCAL, run_spmd, verify_local, print_program},
    {"segments", count_nodes, STAGE_FUSED, run_pipeline, verify_local, NULL},
    {"fuse", count_groups, STAGE_FUSED, run_fuse, verify_fused, print_fused},
    {"kernels", count_kernels, STAGE_KERNEL, NULL, NULL, print_kernels},
    {"plan", count_groups, STAGE_PLAN, run_plan, NULL, print_plan},
    {"memory", count_groups, STAGE_MEMORY, NULL, NULL, print_memory},
    {"schedule", count_groups, STAGE_SCHEDULE, NULL, NULL, print_schedule},
    {"pipeline", count_groups, STAGE_PIPELINE, NULL, NULL, print_pipeline},
    {"llvm", count_kernels, STAGE_LLVM, NULL, NULL, print_llvm},
    {"asm", count_kernels, STAGE_ASM, NULL, NULL, print_asm},
    {"cuda", count_kernels, STAGE_CUDA, run_cuda, NULL, print_cuda},
    {"ptx", count_kernels, STAGE_PTX, run_ptx, NULL, print_ptx},
    {"codegen", count_kernels, STAGE_OBJECT, run_codegen, NULL, NULL},
    {"link", count_kernels, STAGE_EXECUTABLE, run_link, NULL, NULL},
};

static const char *const stage_names[STAGE_COUNT] = {[STAGE_SOURCE] = "source",
#define X(ID, name, what) [STAGE_##ID] = name,
                                                     STAGES(X)
#undef X
};

const char *stage_name(Stage stage) {
  return stage_names[stage];
}

Stage stage_by_name(const char *name) {
  for (int s = STAGE_AST; s < STAGE_COUNT; s++)
    if (strcmp(stage_names[s], name) == 0) return (Stage)s;
  return STAGE_SOURCE;
}

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

bool pipeline_run(Compilation *c, Stage last) {
  Session *s = c->session;
  bool verify = option_given(&s->options, OPT_VERIFY), timed = option_given(&s->options, OPT_TIME);
  for (size_t i = 0; i < sizeof passes / sizeof *passes && passes[i].to <= last; i++) {
    const Pass *p = &passes[i];
    double begin = seconds();
    bool ok = !p->run || p->run(c);
    if (timed && p->run && (c->for_cuda || (p->to != STAGE_CUDA && p->to != STAGE_PTX))) {
      double ms = 1e3 * (seconds() - begin);
      Amount amount = ok ? p->count(c) : (Amount){"", 0};
      fprintf(stderr, "%-10s %8.3f ms %8u %s\n", p->name, ms, amount.n, amount.what);
    }
    if (p->to == STAGE_GRAPH && c->emit[STAGE_AST]) print_ast(c);
    if (!ok || s->sink.errors) return false;
    const char *fault = verify && p->verify ? p->verify(c) : NULL;
    if (fault) internal_error(p->name, fault);
    if (c->emit[p->to] && p->print && !c->to_folder) p->print(c);
  }
  return s->sink.errors == 0;
}
