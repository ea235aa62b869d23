#include "bridge/lastword.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "os/confine.h"
#include "os/seccomp.h"

#define DATA_MAX (UINT64_C(8) << 20)
#define START_MS 20000
#define DRAIN_MAX \
	65536 /* bytes that a client had sent and nobody read: they would make the end a reset */

#define ANSWER(status, code, head, body)                                                   \
	"HTTP/1.1 " status "\r\ncontent-type: application/json\r\nx-airlock-bridge: " code \
	"\r\n" head "connection: close\r\n\r\n" body

/* As os/gate_answer.c says them; that a body ends with its connection is what every client can read. */
static const char *const answers[] = {
    [GATE_WORD_UNSENT] = ANSWER(
	"503 Service Unavailable", "bridge_unavailable", "",
	"{\"error\":\"the bridge ended; this request was not sent\",\"code\":\"bridge_unavailable\"}"),
    [GATE_WORD_SAFE] = ANSWER(
	"502 Bad Gateway", "bridge_lost", "",
	"{\"error\":\"the answer was lost; it may be asked for again\",\"code\":\"bridge_lost\"}"),
    [GATE_WORD_UNSAFE] =
	ANSWER("409 Conflict", "bridge_lost", "x-paperclip-bridge-outcome: indeterminate\r\n",
	       "{\"error\":\"it is not known whether this request had its effect\",\"code\":"
	       "\"bridge_lost\",\"outcome\":\"indeterminate\",\"retryable\":false}"),
};

static void say(int fd, const char *text)
{
	char rest[4096];
	size_t left = DRAIN_MAX;
	ssize_t n;

	while (left && (n = recv(fd, rest, sizeof(rest), MSG_DONTWAIT)) > 0)
		left -= (size_t)n < left ? (size_t)n : left;
	(void)send(fd, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL);
	(void)shutdown(fd, SHUT_WR);
}

static void say_all(const unsigned char *words)
{
	const struct linger cut = {.l_onoff = 1};

	for (int fd = 0; fd < LASTWORD_FDS; fd++) {
		unsigned char word = words[fd];

		if (word == GATE_WORD_CUT)
			(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &cut, sizeof(cut));
		else if (word > GATE_WORD_NONE && word < GATE_WORD_CUT)
			say(fd, answers[word]);
	}
}

static _Noreturn void wait_and_say(const struct lastword *l)
{
	struct pollfd p[] = {{.fd = l->self, .events = POLLIN}, {.fd = l->heard, .events = POLLIN}};

	while (poll(p, ARRAY_LEN(p), -1) < 0)
		if (errno != EINTR)
			_exit(1);
	/* It has told us that there is nothing, or it is gone without a word. */
	if (!p[1].revents)
		say_all(l->words);
	_exit(0);
}

static int confine(unsigned without)
{
	const struct confine_opts o = {.data_max = DATA_MAX,
				       .without = without | CONFINE_NO_SECCOMP};
	struct err e = ERR_INIT;
	int r = confine_self(&o, &e);

	/* Safe because: the filter only takes system calls away and cannot be removed. */
	return r < 0 || (without & CONFINE_NO_SECCOMP) ? r : seccomp_install_lastword();
}

static _Noreturn void second(const struct lastword *l, int ready, unsigned without)
{
	bool ok;

	/* Whoever kills the first with its group is not to take away what it leaves. */
	(void)setpgid(0, 0);
	(void)prctl(PR_SET_NAME, "airlock-lastwrd", 0, 0, 0);
	(void)signal(SIGTERM, SIG_IGN);
	ok = confine(without) == 0;
	(void)!write(ready, ok ? "s" : "f", 1);
	if (!ok)
		_exit(1);
	wait_and_say(l);
}

/* Its descriptors are ours: it closes nothing, and no end of a pipe would tell that it is gone. */
static bool began(int ready)
{
	struct pollfd p = {.fd = ready, .events = POLLIN};
	char c = 'f';

	return poll(&p, 1, START_MS) == 1 && read(ready, &c, 1) == 1 && c == 's';
}

int lastword_start(struct lastword *l, void (*forget)(void *arg), void *arg, unsigned without,
		   struct err *e)
{
	_cleanup_fd_ int ready_in = -1, ready_out = -1;
	int wake[2], ready[2];
	void *p;

	p = mmap(NULL, LASTWORD_FDS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return err_sys(e, errno, "airlock-bridge: map a page");
	l->words = p;
	if (pipe2(wake, O_CLOEXEC) < 0)
		return err_sys(e, errno, "airlock-bridge: make a pipe");
	l->heard = wake[0];
	l->wake = wake[1];
	/* No signal: ours would not pass between two domains of Landlock. */
	l->self = (int)syscall(SYS_pidfd_open, getpid(), 0);
	if (l->self < 0)
		return err_sys(e, errno, "airlock-bridge: pidfd_open");
	if (pipe2(ready, O_CLOEXEC) < 0)
		return err_sys(e, errno, "airlock-bridge: make a pipe");
	ready_in = ready[0];
	ready_out = ready[1];
	l->pid = (pid_t)syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
	if (l->pid < 0)
		return err_sys(
		    e, errno,
		    "airlock-bridge: start a second process (limit of processes: ulimit -u)");
	if (l->pid == 0) {
		forget(arg);
		second(l, ready[1], without);
	}
	return began(ready_in) ? 0
			       : err_set(e, ERR_UNAVAILABLE,
					 "airlock-bridge: its second process cannot be confined");
}

void lastword_end(struct lastword *l)
{
	int *const owned[] = {&l->heard, &l->wake, &l->self};

	if (!l->words)
		return;
	if (l->pid > 0) {
		(void)!write(l->wake, "e", 1);
		while (waitpid(l->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	for (size_t i = 0; i < ARRAY_LEN(owned); i++)
		if (*owned[i] >= 0)
			cleanup_fd(owned[i]);
	(void)munmap(l->words, LASTWORD_FDS);
	l->words = NULL;
}
