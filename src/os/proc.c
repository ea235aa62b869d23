#include "os/proc.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"

/* /proc/PID/stat is one line; the name in parentheses is at most 64 bytes. */
#define STAT_MAX 1024
#define ENVIRON_MAX (1 << 20)

struct stat_line {
	char state;
	pid_t ppid;
	uint64_t start;
};

static ssize_t read_file(const char *path, char *to, size_t max)
{
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t n = 0;

	if (fd < 0)
		return -errno;
	while (n < max) {
		ssize_t k = read(fd, to + n, max - n);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		if (k == 0)
			break;
		n += (size_t)k;
	}
	return (ssize_t)n;
}

/* The name may hold spaces and parentheses: the fields begin after the last ')'. */
static int read_stat(pid_t pid, struct stat_line *ret)
{
	char path[64], line[STAT_MAX], *p;
	unsigned long long start = 0;
	int ppid = 0;
	ssize_t n;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	n = read_file(path, line, sizeof(line) - 1);
	/* /proc mounted with hidepid shows no undumpable process, not even to its own user. */
	if (n == -ENOENT || n == -EPERM || n == -EACCES)
		return kill(pid, 0) == 0 || errno == EPERM ? -EACCES : -ESRCH;
	if (n < 0)
		return (int)n;
	line[n] = '\0';
	p = strrchr(line, ')');
	if (!p || sscanf(p + 1,
			 " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d "
			 "%*d %*d %llu",
			 &ret->state, &ppid, &start) != 3)
		return -EPROTO;
	ret->ppid = ppid;
	ret->start = start;
	return 0;
}

static int boot_id(char out[BOOT_ID_LEN + 1])
{
	ssize_t n = read_file("/proc/sys/kernel/random/boot_id", out, BOOT_ID_LEN);

	if (n < 0)
		return (int)n;
	out[n] = '\0';
	return 0;
}

int proc_start(pid_t pid, uint64_t *ret_start)
{
	struct stat_line s;
	int r = read_stat(pid, &s);

	if (r < 0)
		return r;
	if (s.state == 'Z' || s.state == 'X')
		return -ESRCH;
	*ret_start = s.start;
	return 0;
}

int proc_self(struct proc_id *ret, struct err *e)
{
	int r;

	*ret = (struct proc_id){.pid = getpid()};
	r = proc_start(ret->pid, &ret->start);
	if (r < 0)
		return err_sys(e, -r, "read /proc/%d/stat: is /proc mounted?", (int)ret->pid);
	r = boot_id(ret->boot);
	if (r < 0)
		return err_sys(e, -r, "read /proc/sys/kernel/random/boot_id");
	return 0;
}

bool proc_alive(const struct proc_id *id)
{
	char now[BOOT_ID_LEN + 1];
	uint64_t start;
	int r;

	if (id->pid <= 0)
		return false;
	if (id->boot[0] && (boot_id(now) < 0 || strcmp(now, id->boot) != 0))
		return false;
	r = proc_start(id->pid, &start);
	if (r == 0)
		return start == id->start;
	/*
	 * Not to be seen: a number that some process has is taken for this one. To take the dead for living costs a person
	 * a look, the reverse costs work.
	 */
	return r == -EACCES;
}

/* A pidfd pins the process; the start time is checked after it is open. */
static int open_pidfd(const struct proc_id *id)
{
	int fd;

	if (id->pid <= 0)
		return -ESRCH;
	fd = (int)syscall(SYS_pidfd_open, id->pid, 0);
	if (fd < 0)
		return -errno;
	if (!proc_alive(id)) {
		(void)close(fd);
		return -ESRCH;
	}
	return fd;
}

int proc_signal(const struct proc_id *id, int signo)
{
	_cleanup_fd_ int fd = open_pidfd(id);

	if (fd < 0)
		return fd;
	/* Safe because: the descriptor names exactly the process whose start time was checked. */
	if (syscall(SYS_pidfd_send_signal, fd, signo, NULL, 0) < 0)
		return -errno;
	return 0;
}

int proc_wait_gone(const struct proc_id *id, int64_t deadline_ns)
{
	_cleanup_fd_ int fd = open_pidfd(id);
	struct pollfd p = {.fd = fd, .events = POLLIN};

	if (fd == -ESRCH)
		return 0;
	if (fd < 0)
		return fd;
	for (;;) {
		int r = poll(&p, 1, clock_poll_ms(deadline_ns, clock_mono_ns()));

		if (r > 0)
			return 0;
		if (r == 0)
			return -ETIMEDOUT;
		if (errno != EINTR)
			return -errno;
	}
}

struct link {
	pid_t pid, ppid;
	bool below;
};

static int all_links(struct link **ret, size_t *ret_n)
{
	_cleanup_dir_ DIR *d = opendir("/proc");
	_cleanup_free_ struct link *v = NULL;
	size_t n = 0, cap = 0;
	struct dirent *de;

	if (!d)
		return -errno;
	while ((de = readdir(d))) {
		struct stat_line s;
		uint64_t pid;

		if (!isdigit((unsigned char)de->d_name[0]) ||
		    str_to_u64(de->d_name, INT32_MAX, &pid) < 0 || read_stat((pid_t)pid, &s) < 0 ||
		    s.state == 'X')
			continue;
		if (n == cap) {
			size_t want = cap ? cap * 2 : 256;
			struct link *p = reallocarray(v, want, sizeof(*v));

			if (!p)
				return -ENOMEM;
			v = p;
			cap = want;
		}
		v[n++] = (struct link){(pid_t)pid, s.ppid, false};
	}
	*ret = TAKE_PTR(v);
	*ret_n = n;
	return 0;
}

int proc_descendants(pid_t root, pid_t **ret, size_t *ret_n)
{
	_cleanup_free_ struct link *v = NULL;
	_cleanup_free_ pid_t *out = NULL;
	size_t n = 0, found = 0;
	bool more = true;
	int r = all_links(&v, &n);

	if (r < 0)
		return r;
	out = calloc(n + 1, sizeof(*out));
	if (!out)
		return -ENOMEM;
	while (more) {
		more = false;
		for (size_t i = 0; i < n; i++) {
			bool parent = v[i].ppid == root;

			if (v[i].below)
				continue;
			for (size_t k = 0; k < found && !parent; k++)
				parent = out[k] == v[i].ppid;
			if (!parent)
				continue;
			v[i].below = true;
			out[found++] = v[i].pid;
			more = true;
		}
	}
	*ret = TAKE_PTR(out);
	*ret_n = found;
	return 0;
}

static bool has_word(const char *env, size_t n, const char *word)
{
	size_t len = strlen(word);

	for (size_t off = 0; off < n;) {
		size_t k = strnlen(env + off, n - off);

		if (k == len && memcmp(env + off, word, len) == 0)
			return true;
		off += k + 1;
	}
	return false;
}

int proc_signal_marked(const char *word, int signo)
{
	_cleanup_free_ struct link *v = NULL;
	_cleanup_free_ char *env = malloc(ENVIRON_MAX);
	size_t n = 0;
	int hit = 0, r = all_links(&v, &n);

	if (r < 0)
		return r;
	if (!env)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		struct proc_id id = {.pid = v[i].pid};
		char path[64];
		ssize_t k;

		if (v[i].pid == getpid() || proc_start(v[i].pid, &id.start) < 0)
			continue;
		(void)snprintf(path, sizeof(path), "/proc/%d/environ", (int)v[i].pid);
		k = read_file(path, env, ENVIRON_MAX);
		if (k > 0 && has_word(env, (size_t)k, word) && proc_signal(&id, signo) == 0)
			hit++;
	}
	return hit;
}
