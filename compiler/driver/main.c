/* dtmc: parse the command line, run one command, turn a crash of ours into a message. */
#include <signal.h>
#include <unistd.h>

#include "driver/commands.h"
#include "runtime/abi/standard_files.h"

/* An internal error (a failed check that printed what it saw, or a crash) ends with its own code.
 */
static void on_internal_error(int sig) {
  static const char crashed[] = "dtmc: internal error: the compiler crashed\n";
  static const char remedy[] = "dtmc: this is a fault of the compiler, not of your program; please "
                               "report it with the source and the command line\n";
  ssize_t written = 0;
  if (sig != SIGABRT) written += write(STDERR_FILENO, crashed, sizeof crashed - 1);
  written += write(STDERR_FILENO, remedy, sizeof remedy - 1);
  (void)written; /* nothing is left to do when standard error is gone */
  _exit(EXIT_INTERNAL);
}

static int run(Session *s) {
  switch (s->options.command) {
  case CMD_COMPILE:
    return command_compile(s);
  case CMD_CHECK:
    return command_check(s);
  case CMD_VERIFY:
    return command_verify(s);
  case CMD_EXPLAIN:
    return command_explain(s);
  case CMD_FMT:
    return command_fmt(s);
  case CMD_NEW:
    return command_new(s);
  case CMD_LSP:
    return command_lsp(s);
  }
  return EXIT_USAGE;
}

/* What was printed must have arrived: a full disk is an error. */
static int close_output(int code) {
  bool failed = ferror(stdout) != 0;
  failed |= fflush(stdout) != 0;
  if (!failed || code != EXIT_OK) return code;
  fprintf(stderr, "dtmc: cannot write standard output\n");
  return EXIT_ERRORS;
}

int main(int argc, char **argv) {
  abi_hold_standard_files();
  signal(SIGABRT, on_internal_error);
  signal(SIGSEGV, on_internal_error);
  signal(SIGFPE, on_internal_error);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes: writing fails with EFBIG and says so */
  static Session s;
  arena_init(&s.arena);
  if (!options_parse(&s.options, &s.arena, argc, argv)) return EXIT_USAGE;
  if (option_given(&s.options, OPT_VERSION)) {
    puts("dtmc " DTM_VERSION);
    return close_output(EXIT_OK);
  }
  if (option_given(&s.options, OPT_HELP) || argc == 1) {
    options_help(argc == 1 ? stderr : stdout, s.options.command);
    return close_output(argc == 1 ? EXIT_USAGE : EXIT_OK);
  }
  if (!session_init(&s)) return EXIT_USAGE;
  int code = close_output(run(&s));
  arena_free(&s.arena);
  return code;
}
