/* `dtmc FILE -o OUT`: the whole pipeline, or its stages as text with --emit. */
#include <string.h>

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
  work_print(&report, c->plan->image, &c->kernels);
  fwrite(report.text, 1, report.len, stdout);
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
  const char *target = option_value(o, OPT_TARGET, "cpu");
  if (strcmp(target, "cpu") != 0) {
    fprintf(stderr, "dtmc: --target does not take '%s'; it takes cpu\n", target);
    return EXIT_USAGE;
  }
  Compilation c = {.session = s, .output = option_value(o, OPT_OUTPUT, NULL)};
  strbuf_init(&c.emitted, &s->arena);
  c.plans = session_plans(s);
  Stage last = STAGE_EXECUTABLE;
  if (option_given(o, OPT_PRINT_CONFIG))
    last = STAGE_GRAPH;
  else if (emit) {
    last = STAGE_AST;
    if (!parse_emit(&c, emit, &last)) return EXIT_USAGE;
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
  if (c.emitted.len || emit) {
    const char *to = c.output ? c.output : "-";
    if (!session_may_write(s, to) || !session_write_file(s, to, c.emitted.text, c.emitted.len))
      return EXIT_ERRORS;
  }
  if (option_given(o, OPT_REPORT) && c.plan) print_report(&c);
  if (option_given(o, OPT_DEPS) &&
      !session_write_deps(s, c.output ? c.output : o->operands.data[0]))
    return EXIT_ERRORS;
  return EXIT_OK;
}
