/* `dtmc explain`: a diagnostic by its code, the placements of an operator, how a tensor is cut. */
#include <string.h>

#include "driver/commands.h"
#include "infer/infer.h"
#include "ops/ops.h"
#include "sema/sema.h"

static int list_diagnostics(Session *s) {
  StrBuf text;
  strbuf_init(&text, &s->arena);
  diag_list(&text);
  fputs(text.text, stdout);
  return EXIT_OK;
}

static int list_operators(void) {
  for (int op = OP_NONE + 1; op < OP_COUNT; op++)
    printf("%-22s %s\n", op_name((Op)op), op_info((Op)op)->doc);
  return EXIT_OK;
}

static int print_reference(Session *s) {
  fputs(infer_reference(&s->arena), stdout);
  return EXIT_OK;
}

static int explain_code(Session *s, const char *code) {
  DiagCode found = diag_by_code(code);
  if (found == DIAG_NONE) {
    fprintf(stderr, "dtmc: there is no diagnostic %s; see dtmc explain --list\n", code);
    return EXIT_USAGE;
  }
  StrBuf text;
  strbuf_init(&text, &s->arena);
  diag_explain(found, &text);
  fputs(text.text, stdout);
  return EXIT_OK;
}

static int explain_operator(Session *s, const char *name) {
  bool function = false;
  Op op = op_by_name(name);
  if (op == OP_NONE) op = sema_function(name, &function);
  const char *call = sema_call_text(&s->arena, &s->names, name);
  if (op != OP_NONE) {
    fputs(infer_explain(&s->arena, op, call), stdout);
    return EXIT_OK;
  }
  if (function) {
    printf("%s: a function of the language, made of operators or known to the compiler, without "
           "rows of its own\n\ncall: %s\n\nWhat a program makes of it: dtmc FILE.dtm "
           "--emit=graph\n",
           name, call);
    return EXIT_OK;
  }
  const char *nearest = NULL;
  unsigned best = 3;
  for (int other = OP_NONE + 1; other < OP_COUNT; other++) {
    unsigned d = edit_distance(name, op_name((Op)other), 2);
    if (d < best) best = d, nearest = op_name((Op)other);
  }
  fprintf(stderr, "dtmc: there is no operator %s%s%s%s; dtmc explain op --list lists them\n", name,
          nearest ? " (did you mean " : "", nearest ? nearest : "", nearest ? "?)" : "");
  return EXIT_USAGE;
}

/* Options that only `explain tensor` has a use for; false after a report. */
static bool only_about_tensors(const Session *s) {
  static const struct {
    OptionId id;
    const char *name;
  } options[] = {{OPT_OUTPUT, "--output"}, {OPT_DEFINE, "--define"},   {OPT_MESH, "--mesh"},
                 {OPT_RANKS, "--ranks"},   {OPT_INCLUDE, "--include"}, {OPT_FORMAT, "--format"}};
  for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
    if (!option_given(&s->options, options[i].id)) continue;
    fprintf(stderr, "dtmc: of what explain tells, option %s belongs to `explain tensor` only\n",
            options[i].name);
    return false;
  }
  return true;
}

int command_explain(Session *s) {
  const StringList *words = &s->options.operands;
  bool list = option_given(&s->options, OPT_LIST);
  const char *about = words->len ? words->data[0] : "";
  if (strcmp(about, "tensor") == 0) {
    if (words->len == (list ? 2 : 3))
      return explain_tensor(s, list ? NULL : words->data[1], words->data[words->len - 1]);
    fprintf(stderr, "dtmc: explain tensor takes a name and a program (dtmc explain tensor "
                    "fc1.weight FILE.dtm), or --list and a program\n");
    return EXIT_USAGE;
  }
  if (!only_about_tensors(s)) return EXIT_USAGE;
  bool about_op = strcmp(about, "op") == 0;
  if (list) return about_op ? list_operators() : list_diagnostics(s);
  if (about_op && words->len == 1) return print_reference(s);
  if (about_op && words->len == 2) return explain_operator(s, words->data[1]);
  if (!about_op && words->len == 1) return explain_code(s, words->data[0]);
  fprintf(stderr, "dtmc: explain takes a code (dtmc explain DTM2004), an operator (dtmc explain "
                  "op linear) or a tensor (dtmc explain tensor fc1.weight FILE.dtm)\n");
  return EXIT_USAGE;
}
