/* `dtmc FILE -o OUT`: the whole pipeline, or its stages as text with --emit. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "driver/commands.h"
#include "driver/pipeline.h"
#include "report/work.h"

/* Marks the stages of --emit; *last is the latest of them. */
static bool parse_emit(Compilation *c, const char *list, Stage *last) {
  Arena *arena = &c->session->arena;
  for (const char *p = list;;) {
    const char *comma = strchr(p, ',');
    const char *name = arena_strndup(arena, p, comma ? (size_t)(comma - p) : strlen(p));
    Stage stage = stage_by_name(name);
    if (stage == STAGE_SOURCE || stage >= STAGE_OBJECT) {
      fprintf(stderr, "dtmc: --emit does not know the stage '%s'; there are:", name);
      for (int s = STAGE_AST; s < STAGE_OBJECT; s++) fprintf(stderr, " %s", stage_name((Stage)s));
      fputc('\n', stderr);
      return false;
    }
    c->emit[stage] = true;
    if (stage > *last) *last = stage;
    if (!comma) return true;
    p = comma + 1;
  }
}

static void print_report(const Compilation *c) {
  StrBuf report;
  strbuf_init(&report, &c->session->arena);
  const char *form = option_value(&c->session->options, OPT_REPORT, "");
  (strcmp(form, "actions") == 0 ? work_print_actions
   : *form                      ? work_print_moves
                                : work_print)(&report, c->plan->image, &c->kernels);
  fwrite(report.text, 1, report.len, stdout);
}

/* Stages that belong to one target, and the folder that only some can go to. */
static bool check_emit(Compilation *c) {
  bool for_cuda = c->emit[STAGE_CUDA] || c->emit[STAGE_PTX];
  if (for_cuda && !c->for_cuda) {
    fprintf(stderr, "dtmc: --emit=%s needs --target=cuda\n", c->emit[STAGE_CUDA] ? "cuda" : "ptx");
    return false;
  }
  if (c->for_cuda && (c->emit[STAGE_LLVM] || c->emit[STAGE_ASM])) {
    fprintf(stderr,
            "dtmc: --emit=%s is of --target=cpu; the kernels of this target are cuda and "
            "ptx\n",
            c->emit[STAGE_LLVM] ? "llvm" : "asm");
    return false;
  }
  struct stat there;
  size_t n = c->output ? strlen(c->output) : 0;
  bool folder =
      n && (c->output[n - 1] == '/' || (stat(c->output, &there) == 0 && S_ISDIR(there.st_mode)));
  if (!folder) return true;
  for (int stage = STAGE_AST; stage < STAGE_OBJECT; stage++) {
    if (!c->emit[stage] || stage == STAGE_CUDA || stage == STAGE_PTX) continue;
    fprintf(stderr, "dtmc: only cuda and ptx go to a folder; name a file for --emit=%s, not %s\n",
            stage_name((Stage)stage), c->output);
    return false;
  }
  c->to_folder = true;
  return true;
}

/* NAME.cu and NAME.ptx of every module, and what they include. */
static bool write_folder(Compilation *c, const char *folder) {
  Session *s = c->session;
  if (mkdir(folder, 0777) && errno != EEXIST) {
    fprintf(stderr, "dtmc: cannot make the folder %s: %s\n", folder, strerror(errno));
    return false;
  }
  for (uint32_t i = 0; i < c->cuda->modules.len; i++) {
    const CudaModule *m = &c->cuda->modules.data[i];
    const char *path = arena_printf(&s->arena, "%s/%s", folder, m->name);
    if (c->emit[STAGE_CUDA] &&
        !session_write_file(s, arena_printf(&s->arena, "%s.cu", path), m->text, strlen(m->text)))
      return false;
    if (c->emit[STAGE_PTX] &&
        !session_write_file(s, arena_printf(&s->arena, "%s.ptx", path), m->ptx, strlen(m->ptx)))
      return false;
  }
  for (uint32_t i = 0; c->emit[STAGE_CUDA] && i < c->cuda->headers.len; i++) {
    const NvrtcHeader *h = &c->cuda->headers.data[i];
    if (!session_write_file(s, arena_printf(&s->arena, "%s/%s", folder, h->name), h->text,
                            strlen(h->text)))
      return false;
  }
  return true;
}

int command_compile(Session *s) {
  const Options *o = &s->options;
  const char *emit = option_value(o, OPT_EMIT, NULL);
  if (o->operands.len != 1) {
    if (o->operands.len)
      fprintf(stderr, "dtmc: compiles one program at a time: %s, and then there is '%s'\n",
              o->operands.data[0], o->operands.data[1]);
    else
      fprintf(stderr, "dtmc: no program given; see dtmc --help\n");
    return EXIT_USAGE;
  }
  Compilation c = {.session = s, .output = option_value(o, OPT_OUTPUT, NULL)};
  const char *form = option_value(o, OPT_REPORT, "");
  if (*form && strcmp(form, "actions") != 0 && strcmp(form, "moves") != 0) {
    fprintf(stderr, "dtmc: --report takes no '%s': --report, --report=actions or --report=moves\n",
            form);
    return EXIT_USAGE;
  }
  if (!compilation_target(&c)) return EXIT_USAGE;
  strbuf_init(&c.emitted, &s->arena);
  c.plans = session_plans(s);
  Stage last = STAGE_EXECUTABLE;
  if (option_given(o, OPT_PRINT_CONFIG))
    last = STAGE_GRAPH;
  else if (emit) {
    last = STAGE_AST;
    if (!parse_emit(&c, emit, &last) || !check_emit(&c)) return EXIT_USAGE;
    if (last == STAGE_AST) last = STAGE_GRAPH;
  } else if (!c.output && option_given(o, OPT_REPORT)) {
    last = STAGE_PLAN;
  } else if (!c.output) {
    fprintf(stderr, "dtmc: where should the executable go? dtmc %s -o FILE\n", o->operands.data[0]);
    return EXIT_USAGE;
  } else if (strcmp(c.output, "-") == 0) {
    fprintf(stderr, "dtmc: an executable cannot go to standard output; name a file (./- is one)\n");
    return EXIT_USAGE;
  }
  const char *to = !c.output ? "-" : c.to_folder ? folder_name(&s->arena, c.output) : c.output;
  if (!session_can_write(s, to, c.to_folder)) return EXIT_ERRORS;
  ConfigList config = {0};
  if (!session_sema_options(s, o->operands.data[0], option_value(o, OPT_MESH, NULL), &c.sema))
    return EXIT_USAGE;
  c.sema.config = &config;
  bool ok = pipeline_run(&c, last);
  if (option_given(o, OPT_PRINT_CONFIG)) {
    sema_print_config(&config, &c.emitted);
    if (c.program && c.program->world)
      strbuf_printf(&c.emitted, "%s\n", mesh_print(&s->arena, c.program->world));
  }
  int code = session_finish(s);
  if (!ok || code != EXIT_OK) {
    /* What was emitted before the fault helps to see it. */
    if (emit && c.emitted.len) fwrite(c.emitted.text, 1, c.emitted.len, stdout);
    return code == EXIT_OK ? EXIT_ERRORS : code;
  }
  if (c.to_folder) {
    if (!write_folder(&c, to)) return EXIT_ERRORS;
  } else if (c.emitted.len || emit) {
    if (!session_may_write(s, to) || !session_write_file(s, to, c.emitted.text, c.emitted.len))
      return EXIT_ERRORS;
  }
  if (option_given(o, OPT_REPORT) && c.plan) print_report(&c);
  if (option_given(o, OPT_DEPS) &&
      !session_write_deps(s, c.output ? c.output : o->operands.data[0]))
    return EXIT_ERRORS;
  return EXIT_OK;
}
