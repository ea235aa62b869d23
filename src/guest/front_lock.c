#include "guest/front_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "guest/tree.h"

#define LOOK_MS 20
#define BOOT_LEN 36
#define LINES_MAX 16384 /* bytes of it that are looked at */

struct who {
	int pid;
	unsigned long long start;
	char boot[BOOT_LEN + 1], node[FRONT_NODE_MAX + 1];
};

static ssize_t slurp(const char *path, char *to, size_t n)
{
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t k = fd < 0 ? -1 : read(fd, to, n - 1);

	to[k < 0 ? 0 : k] = '\0';
	return k;
}

/* 0: there is no such process, or it cannot be seen. */
static unsigned long long start_of(int pid)
{
	char path[32], line[512];
	unsigned long long start;
	const char *p;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	if (slurp(path, line, sizeof(line)) <= 0 || !(p = strrchr(line, ')')))
		return 0;
	return sscanf(
		   p + 1,
		   " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d "
		   "%llu",
		   &start) == 1
		   ? start
		   : 0;
}

static void know(struct who *w, pid_t pid)
{
	struct utsname u = {0};
	struct stat ns = {0};

	*w = (struct who){.pid = (int)pid, .start = start_of((int)pid)};
	(void)uname(&u);
	/* Two containers of one machine have its boot, perhaps its name, and numbers of their own. */
	(void)stat("/proc/self/ns/pid", &ns);
	if (slurp("/proc/sys/kernel/random/boot_id", w->boot, sizeof(w->boot)) < BOOT_LEN)
		(void)snprintf(w->boot, sizeof(w->boot), "-");
	(void)snprintf(w->node, sizeof(w->node), "%.64s:%llu", u.nodename[0] ? u.nodename : "-",
		       (unsigned long long)ns.st_ino);
	for (char *p = w->node; *p; p++)
		if (*p <= ' ')
			*p = '_';
}

static bool parse(const char *line, struct who *w)
{
	*w = (struct who){0};
	return sscanf(line, "%d %llu %36s %120s", &w->pid, &w->start, w->boot, w->node) == 4 &&
	       w->pid > 1 && w->start;
}

static void to_one(const struct who *w, int fd, int signo)
{
	if (fd < 0)
		(void)kill(w->pid, signo);
	else
		(void)syscall(SYS_pidfd_send_signal, fd, signo, NULL, 0);
}

/*
 * The descriptor is of the process whose start time is looked at afterwards, and of no other that gets its number. Its own command may have
 * stopped it: it is woken to end by itself, and killed with all that hangs below it, which nobody else would end.
 */
static void signal_one(const struct who *w, int signo)
{
	_cleanup_fd_ int fd = (int)syscall(SYS_pidfd_open, w->pid, 0);

	if (fd < 0 && errno != ENOSYS)
		return;
	if (start_of(w->pid) != w->start)
		return;
	if (signo == SIGKILL) {
		/* Stopped, it starts nobody and keeps its number. */
		to_one(w, fd, SIGSTOP);
		(void)tree_signal(w->pid, NULL, SIGKILL, NULL);
	}
	to_one(w, fd, signo);
	to_one(w, fd, SIGCONT);
}

/* Those of this machine get the signal; 0: nobody is to get one. One of another machine is named. */
static void look_at_holders(int lock, const struct who *self, int signo, char *node)
{
	char text[LINES_MAX + 1], *line = text, *end;
	ssize_t n = pread(lock, text, LINES_MAX, 0);
	struct who w;

	text[n < 0 ? 0 : n] = '\0';
	node[0] = '\0';
	for (; (end = strchr(line, '\n')); line = end + 1) {
		*end = '\0';
		if (!parse(line, &w))
			continue;
		if (strcmp(w.node, self->node) != 0)
			(void)snprintf(node, FRONT_NODE_MAX + 1, "%.*s", (int)strcspn(w.node, ":"),
				       w.node);
		else if (signo && w.pid != self->pid && strcmp(w.boot, self->boot) == 0)
			signal_one(&w, signo);
	}
}

static int sign(int lock, const struct who *w)
{
	char line[FRONT_NODE_MAX + BOOT_LEN + 64];
	int n = snprintf(line, sizeof(line), "%d %llu %s %s\n", w->pid, w->start, w->boot, w->node);

	return write(lock, line, (size_t)n) == n ? 0 : -EIO;
}

int front_lock_take(int lock, bool shared, int64_t wait_ms, char *node)
{
	const struct timespec nap = {.tv_nsec = LOOK_MS * NS_PER_MS};
	int64_t now = clock_mono_ns(), kill_at = now + wait_ms / 2 * NS_PER_MS;
	int64_t until = now + wait_ms * NS_PER_MS;
	bool asked = false, killed = false;
	struct who self;

	know(&self, getpid());
	node[0] = '\0';
	for (;;) {
		/* Alone first: then no line in it is anybody's. */
		if (flock(lock, LOCK_EX | LOCK_NB) == 0) {
			if (ftruncate(lock, 0) < 0)
				return -errno;
			/* flock lets go before it takes the other kind: somebody may have come between. */
			if (!shared || flock(lock, LOCK_SH | LOCK_NB) == 0)
				break;
		}
		if (errno != EWOULDBLOCK && errno != EINTR)
			return -errno;
		if (shared && flock(lock, LOCK_SH | LOCK_NB) == 0)
			break;
		now = clock_mono_ns();
		if (now > until)
			return -EBUSY;
		if (!asked || (!killed && now > kill_at)) {
			look_at_holders(lock, &self, shared ? 0 : (asked ? SIGKILL : SIGTERM),
					node);
			killed = asked;
			asked = true;
		}
		(void)nanosleep(&nap, NULL);
	}
	node[0] = '\0';
	return sign(lock, &self);
}

int front_lock_sign(int lock, pid_t pid)
{
	struct who w;

	know(&w, pid);
	return w.start ? sign(lock, &w) : -ESRCH;
}
