/* See private_folder.h. */
#include "driver/private_folder.h"

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const int ending[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
enum { NENDING = sizeof ending / sizeof *ending };

static int remove_one(const char *path, const struct stat *s, int kind, struct FTW *at) {
  (void)s, (void)kind, (void)at;
  remove(path); /* what cannot be removed stays, and so does its folder */
  return 0;
}

static void remove_folder(const char *folder) {
  enum { OPEN_FOLDERS = 8 };
  nftw(folder, remove_one, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS);
}

/* Waits until no process is left that came of the worker. *end: a signal that came, 0 = none. */
static int guard(pid_t worker, const sigset_t *signals, int *end) {
  int code = EXIT_ERRORS, status;
  bool alive = true;
  for (;;) {
    pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid < 0 && errno == ECHILD) return code;
    if (pid == worker) {
      alive = false;
      if (WIFEXITED(status))
        code = WEXITSTATUS(status);
      else if (!*end)
        fprintf(stderr, "dtmc: verifying was ended by signal %d, %s\n", WTERMSIG(status),
                strsignal(WTERMSIG(status)));
    }
    if (pid > 0) continue;
    int got = sigwaitinfo(signals, NULL);
    if (got <= 0 || got == SIGCHLD) continue;
    *end = got;
    if (alive) kill(worker, SIGTERM);
  }
}

static int start(Session *s, int (*work)(Session *s, const char *folder), const char *folder,
                 const sigset_t *signals, const sigset_t *before, int *end) {
  pid_t self = getpid(), worker = fork();
  if (worker < 0) fprintf(stderr, "dtmc: cannot start a process: %s\n", strerror(errno));
  if (worker != 0) return worker < 0 ? EXIT_ERRORS : guard(worker, signals, end);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != self) _exit(EXIT_ERRORS); /* it died before we asked to be told */
  sigprocmask(SIG_SETMASK, before, NULL);
  int code = work(s, folder);
  if (fflush(stdout) == 0 && !ferror(stdout)) _exit(code);
  fprintf(stderr, "dtmc: cannot write standard output\n");
  _exit(EXIT_ERRORS);
}

int private_folder_run(Session *s, int (*work)(Session *s, const char *folder)) {
  const char *where = getenv("TMPDIR");
  char *folder = arena_printf(&s->arena, "%s/dtmc-verify.XXXXXX", where && *where ? where : "/tmp");
  sigset_t signals, before;
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  for (int i = 0; i < NENDING; i++) sigaddset(&signals, ending[i]);
  sigprocmask(SIG_BLOCK, &signals, &before);
  int code = EXIT_ERRORS, end = 0;
  if (mkdtemp(folder)) {
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* what a worker that dies leaves behind is waited for too */
    code = start(s, work, folder, &signals, &before, &end);
    remove_folder(folder);
  } else {
    fprintf(stderr, "dtmc: cannot make a folder %s: %s; TMPDIR names another place\n", folder,
            strerror(errno));
  }
  if (end) {
    signal(end, SIG_DFL);
    raise(end);
  }
  sigprocmask(SIG_SETMASK, &before, NULL);
  return code;
}
