/* Forking and watching ranks: see supervise.h.
 *
 * The supervisor holds no state of the training. It learns of a death from SIGCHLD, reports it with
 * the place the rank had published, tells the others through the control block, and kills what is
 * left after a grace time. Ranks die with it (PR_SET_PDEATHSIG), so nothing outlives the job.
 */
#include "core/supervise.h"

#include "comm/errors.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { GRACE_MS = 2000 }; /* for ranks to unwind after one failed */

typedef struct Watch {
  const LocalSegment *segment;
  int32_t world, alive;
  pid_t *pid; /* 0 = ended */
  int status;
  bool failed;
  int64_t kill_at; /* ms; 0 = not set */
  int64_t stop_at; /* ms: when we were first asked to stop; 0 = not */
} Watch;

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void signal_ranks(const Watch *w, int signal_number) {
  for (int32_t r = 0; r < w->world; r++) {
    if (w->pid[r]) {
      kill(w->pid[r], signal_number);
    }
  }
}

static void lost(Watch *w, int32_t rank, const char *what) {
  LocalView view;
  dtm_local_view(w->segment, rank, &view);
  char message[1024];
  snprintf(message, sizeof message, "rank %d %s\n  at step %lld, %s (%s)", (int)rank, what,
           (long long)view.step, view.operation, view.source);
  w->status = dtm_local_fail(w->segment, RT_LOST, message);
}

/* A rank ended: cleanly, with a code of its own, or by a signal. */
static void rank_ended(Watch *w, int32_t rank, int wait_status) {
  LocalView view;
  dtm_local_view(w->segment, rank, &view);
  w->pid[rank] = 0;
  w->alive--;
  int code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 0;
  if (WIFEXITED(wait_status) && (code == 0 || code > 128) && view.left) {
    w->status = w->failed ? w->status : code; /* 0, or 128 + signal after a stop on request */
    return;
  }
  if (!w->failed) {
    int reported = dtm_local_failed(w->segment);
    char what[200];
    w->failed = true;
    w->kill_at = now_ms() + GRACE_MS;
    if (reported) {
      w->status = reported;
    } else if (WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGPIPE) {
      /* Whoever read our output has seen enough (`| head`): not a failure to talk about. */
      w->status = dtm_local_fail(w->segment, 128 + SIGPIPE, NULL);
    } else if (WIFSIGNALED(wait_status)) {
      int number = WTERMSIG(wait_status);
      snprintf(what, sizeof what, "was killed by signal %d (%s)%s", number, strsignal(number),
               number == SIGKILL ? "; if nobody did it, the system ran out of memory" : "");
      lost(w, rank, what);
    } else {
      snprintf(what, sizeof what, "ended early with exit code %d", code);
      lost(w, rank, what);
      w->status = code ? code : w->status;
    }
  }
}

static void reap(Watch *w) {
  pid_t pid;
  int wait_status;
  while ((pid = waitpid(-1, &wait_status, WNOHANG)) > 0) {
    for (int32_t r = 0; r < w->world; r++) {
      if (w->pid[r] == pid) {
        rank_ended(w, r, wait_status);
      }
    }
  }
}

/* What was sent to this process alone is passed on; what was sent to the whole group reaches ranks
 * twice, which they see through. A Ctrl-C some time after the first request ends everything. */
static void pass_on(Watch *w, const siginfo_t *info) {
  if (info->si_signo == SIGINT && w->stop_at && now_ms() - w->stop_at > RT_SAME_REQUEST_MS) {
    w->failed = true;
    w->status = 128 + SIGINT;
    signal_ranks(w, SIGKILL);
    return;
  }
  w->stop_at = w->stop_at ? w->stop_at : now_ms();
  if (info->si_code != SI_KERNEL) {
    signal_ranks(w, info->si_signo);
  }
}

static void watch(Watch *w, const sigset_t *signals) {
  while (w->alive > 0) {
    struct timespec timeout = {0, 500 * 1000000L};
    siginfo_t info;
    int got = sigtimedwait(signals, &info, &timeout);
    if (got == SIGINT || got == SIGTERM || got == SIGHUP) {
      pass_on(w, &info);
    }
    reap(w);
    if (!w->failed && dtm_local_failed(w->segment)) {
      w->failed = true;
      w->status = dtm_local_failed(w->segment);
      w->kill_at = now_ms() + GRACE_MS;
    }
    if (w->kill_at && now_ms() >= w->kill_at) {
      signal_ranks(w, SIGCONT);
      signal_ranks(w, SIGKILL);
    }
  }
}

int32_t dtm_rt_supervise(const LocalSegment *segment, int32_t world, int *status) {
  Watch w = {.segment = segment, .world = world};
  w.pid = calloc((size_t)world, sizeof *w.pid);
  if (!w.pid) {
    *status = dtm_rt_fail(NULL, RT_DEVICE, "out of memory");
    return -1;
  }
  sigset_t signals, before;
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  struct sigaction hangup;
  if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN) {
    sigaddset(&signals, SIGHUP); /* nohup keeps it ignored */
  }
  sigprocmask(SIG_BLOCK, &signals, &before);
  fflush(NULL);
  pid_t supervisor = getpid();
  for (int32_t r = 0; r < world; r++) {
    pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != supervisor) {
        _exit(RT_LOST); /* it died before we asked to be told */
      }
      sigprocmask(SIG_SETMASK, &before, NULL);
      free(w.pid);
      return r;
    }
    if (pid < 0) {
      *status = dtm_rt_fail(NULL, RT_DEVICE, "cannot start rank %d of %d: %s", (int)r, (int)world,
                            strerror(errno));
      signal_ranks(&w, SIGKILL);
      while (wait(NULL) > 0) {
      }
      free(w.pid);
      return -1;
    }
    w.pid[r] = pid;
    w.alive++;
  }
  watch(&w, &signals);
  free(w.pid);
  *status = w.status;
  return -1;
}
