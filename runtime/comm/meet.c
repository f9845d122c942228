/* Meeting of separately started local ranks: see meet.h. */
#include "comm/meet.h"

#include "comm/errors.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { MEET_VERSION = 1, RETRY_MS = 20 };

/* What a rank says on arrival, and what rank 0 answers to each once all are there. */
typedef struct Hello {
  char magic[8]; /* "dtmhello" */
  uint32_t version;
  int32_t rank, world, pid;
  uint64_t job, plan_hash, arena_size;
  char host[64];
} Hello;

typedef struct Answer {
  char magic[8];  /* "dtmhello" */
  int32_t status; /* 0 and a descriptor comes along; else the code to end with (printed already) */
} Answer;

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void sleep_ms(int ms) {
  poll(NULL, 0, ms);
}

static uint64_t hash_text(const char *s) {
  uint64_t h = 1469598103934665603u; /* FNV-1a */
  for (; *s; s++) {
    h = (h ^ (unsigned char)*s) * 1099511628211u;
  }
  return h;
}

static socklen_t address_of(const Meeting *m, struct sockaddr_un *address) {
  *address = (struct sockaddr_un){.sun_family = AF_UNIX};
  int n = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "dtm-%u-%016llx",
                   (unsigned)getuid(), (unsigned long long)hash_text(m->job));
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static Hello hello_of(const Meeting *m) {
  Hello h = {.magic = "dtmhello",
             .version = MEET_VERSION,
             .rank = m->rank,
             .world = m->world,
             .pid = getpid(),
             .job = hash_text(m->job),
             .plan_hash = m->plan_hash,
             .arena_size = m->arena_size};
  gethostname(h.host, sizeof h.host - 1);
  return h;
}

/* Reads exactly n bytes before the time; false when the peer went away or time is up. */
static bool receive_all(int fd, void *data, size_t n, int64_t until) {
  for (size_t at = 0; at < n;) {
    int64_t left = until - now_ms();
    struct pollfd p = {fd, POLLIN, 0};
    if (left <= 0 || poll(&p, 1, (int)left) <= 0) {
      return false;
    }
    ssize_t got = recv(fd, (char *)data + at, n - at, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
      return false;
    }
    at += got > 0 ? (size_t)got : 0;
  }
  return true;
}

static bool send_answer(int socket_fd, int status, int fd) {
  Answer answer = {.magic = "dtmhello", .status = status};
  struct iovec data = {&answer, sizeof answer};
  union {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
  } control = {.bytes = {0}};
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
  if (status == 0) {
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof control.bytes;
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
  }
  return sendmsg(socket_fd, &message, MSG_NOSIGNAL) == (ssize_t)sizeof answer;
}

/* The answer and its descriptor; *status -1 when none came. */
static int receive_answer(int socket_fd, int64_t until, int *status) {
  Answer answer;
  struct iovec data = {&answer, sizeof answer};
  union {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
  } control;
  struct msghdr message = {.msg_iov = &data,
                           .msg_iovlen = 1,
                           .msg_control = control.bytes,
                           .msg_controllen = sizeof control.bytes};
  struct pollfd p = {socket_fd, POLLIN, 0};
  int64_t left = until - now_ms();
  *status = -1;
  if (left <= 0 || poll(&p, 1, (int)left) <= 0 ||
      recvmsg(socket_fd, &message, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof answer ||
      memcmp(answer.magic, "dtmhello", 8) != 0) {
    return -1;
  }
  struct cmsghdr *c = CMSG_FIRSTHDR(&message);
  int fd = -1;
  if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
    memcpy(&fd, CMSG_DATA(c), sizeof fd);
  }
  *status = answer.status == 0 && fd < 0 ? -1 : answer.status;
  return fd;
}

/* --- Rank 0 ------------------------------------------------------------------------------------
 */

static int listen_for(const Meeting *m, int64_t until) {
  struct sockaddr_un address;
  socklen_t length = address_of(m, &address);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  while (fd >= 0 && bind(fd, (struct sockaddr *)&address, length) != 0) {
    if (errno != EADDRINUSE || now_ms() >= until) {
      close(fd);
      return -1;
    }
    sleep_ms(RETRY_MS); /* the run before this one is just ending */
  }
  if (fd >= 0 && listen(fd, m->world) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

/* Checks one arrival; 0, or a code after a message. */
static int check_hello(const Meeting *m, const Hello *h, const int *sockets) {
  Hello mine = hello_of(m);
  if (h->world != m->world || h->rank < 1 || h->rank >= m->world) {
    return dtm_rt_fail(NULL, RT_LOST, "rank %d of %d wants to join a job of %d ranks", (int)h->rank,
                       (int)h->world, (int)m->world);
  }
  if (sockets[h->rank] >= 0) {
    return dtm_rt_fail(NULL, RT_LOST, "rank %d was started twice (process %d on %.63s)",
                       (int)h->rank, (int)h->pid, h->host);
  }
  if (h->plan_hash != m->plan_hash || h->arena_size != mine.arena_size) {
    return dtm_rt_fail(
        NULL, RT_LOST,
        "rank %d (process %d on %.63s) runs another program than rank 0: its plan is "
        "%016llx, not %016llx\n  start all ranks from the same file",
        (int)h->rank, (int)h->pid, h->host, (unsigned long long)h->plan_hash,
        (unsigned long long)m->plan_hash);
  }
  return 0;
}

static int report_missing(const Meeting *m, const int *sockets) {
  char list[256] = "";
  size_t n = 0;
  int32_t missing = 0;
  for (int32_t r = 1; r < m->world; r++) {
    if (sockets[r] < 0) {
      missing++;
      if (n < sizeof list) {
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%d", missing > 1 ? ", " : "", (int)r);
      }
    }
  }
  return dtm_rt_fail(NULL, RT_LOST,
                     "%d of %d ranks did not join within %g s: %s\n"
                     "  is every process of the job on this machine and running? (--deadline)",
                     (int)missing, (int)m->world, m->deadline, list);
}

static int gather(const Meeting *m, int listener, int *sockets, int64_t until) {
  for (int32_t joined = 1; joined < m->world;) {
    int64_t left = until - now_ms();
    struct pollfd p = {listener, POLLIN, 0};
    if (left <= 0 || poll(&p, 1, (int)left) <= 0) {
      if (now_ms() >= until) {
        return report_missing(m, sockets);
      }
      continue;
    }
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    struct ucred peer;
    socklen_t length = sizeof peer;
    Hello hello;
    int64_t patience = now_ms() + 2000;
    if (fd < 0) {
      continue;
    }
    /* Strangers are turned away: only this user's processes of this job may map the memory. */
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.uid != getuid() ||
        !receive_all(fd, &hello, sizeof hello, patience < until ? patience : until) ||
        memcmp(hello.magic, "dtmhello", 8) != 0 || hello.version != MEET_VERSION ||
        hello.job != hash_text(m->job)) {
      close(fd);
      continue;
    }
    hello.host[sizeof hello.host - 1] = 0;
    int error = check_hello(m, &hello, sockets);
    if (error) {
      send_answer(fd, error, -1);
      close(fd);
      return error;
    }
    sockets[hello.rank] = fd;
    joined++;
  }
  return 0;
}

static int meet_as_first(const Meeting *m, LocalSegment *segment, int64_t until) {
  LocalSetup setup = {m->world, m->arena_size, false};
  int error = dtm_local_create(&setup, segment);
  if (error) {
    return dtm_rt_fail(NULL, RT_DEVICE, "cannot reserve memory for %d ranks of %.2f GiB each: %s",
                       (int)m->world, (double)m->arena_size / (1 << 30), strerror(error));
  }
  int *sockets = malloc((size_t)m->world * sizeof *sockets);
  int listener = sockets ? listen_for(m, until) : -1;
  if (listener < 0) {
    error = dtm_rt_fail(NULL, RT_DEVICE, "cannot listen for the other ranks: %s%s", strerror(errno),
                        errno == EADDRINUSE ? "; another run has the same job name (--job)" : "");
  } else {
    for (int32_t r = 0; r < m->world; r++) {
      sockets[r] = -1;
    }
    error = gather(m, listener, sockets, until);
    for (int32_t r = 1; r < m->world; r++) {
      if (sockets[r] >= 0) {
        send_answer(sockets[r], error, segment->fd);
        close(sockets[r]);
      }
    }
    close(listener);
  }
  free(sockets);
  if (error) {
    munmap(segment->base, segment->size);
    if (segment->fd >= 0) {
      close(segment->fd);
    }
  }
  return error;
}

/* --- The others --------------------------------------------------------------------------------
 */

static int meet_as_other(const Meeting *m, LocalSegment *segment, int64_t until) {
  struct sockaddr_un address;
  socklen_t length = address_of(m, &address);
  int fd;
  for (;;) {
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
      return dtm_rt_fail(NULL, RT_DEVICE, "cannot create a socket: %s", strerror(errno));
    }
    if (connect(fd, (struct sockaddr *)&address, length) == 0) {
      break;
    }
    close(fd);
    if (now_ms() >= until) {
      return dtm_rt_fail(NULL, RT_LOST,
                         "rank %d found no rank 0 on this machine within %g s (--deadline)\n%s"
                         "  ranks on several machines need MPI: start them with mpirun",
                         (int)m->rank, m->deadline,
                         strstr(m->job, "/parent ")
                             ? "  nothing in the environment names the job (torchrun sets "
                               "MASTER_PORT), so that its ranks need one parent process\n"
                             : "");
    }
    sleep_ms(RETRY_MS);
  }
  Hello hello = hello_of(m);
  int status = -1, memory = -1;
  if (send(fd, &hello, sizeof hello, MSG_NOSIGNAL) == (ssize_t)sizeof hello) {
    /* Rank 0 may have begun to wait later than this rank, by as much again. */
    memory = receive_answer(fd, until + (int64_t)(m->deadline * 1e3), &status);
  }
  close(fd);
  if (status < 0) {
    return dtm_rt_fail(NULL, RT_LOST, "rank 0 went away while rank %d was joining", (int)m->rank);
  }
  if (status > 0) {
    return status; /* rank 0 has said why */
  }
  int error = dtm_local_map(memory, segment);
  return error
             ? dtm_rt_fail(NULL, RT_DEVICE, "cannot map the memory of the job: %s", strerror(error))
             : 0;
}

int dtm_local_meet(const Meeting *meeting, LocalSegment *segment) {
  int64_t until = now_ms() + (int64_t)(meeting->deadline * 1e3);
  return meeting->rank == 0 ? meet_as_first(meeting, segment, until)
                            : meet_as_other(meeting, segment, until);
}
