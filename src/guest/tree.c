#include "guest/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"

/* Far above any sandbox's process limit; more is cut off and caught by the next pass. */
#define PROCS_MAX 65536
#define PASSES_MAX 64

enum side { UNKNOWN, INSIDE, OUTSIDE };

struct proc {
	pid_t pid, ppid;
	uint8_t side;
	bool alive;
};

struct procs {
	struct proc *v;
	size_t n, cap;
};

void pids_done(struct pids *p)
{
	free(p->v);
	*p = (struct pids){0};
}

static int compare_pids(const void *a, const void *b)
{
	pid_t x = *(const pid_t *)a, y = *(const pid_t *)b;

	return (x > y) - (x < y);
}

void pids_sort(struct pids *p)
{
	if (p->n)
		qsort(p->v, p->n, sizeof(*p->v), compare_pids);
}

static bool has(const struct pids *p, pid_t pid)
{
	return p && p->n && bsearch(&pid, p->v, p->n, sizeof(pid), compare_pids);
}

/* Decimal digits up to the first other byte; -1 if there is none or the number is too long. */
static pid_t digits(const char *s, const char **end)
{
	long v = 0;
	const char *p = s;

	for (; *p >= '0' && *p <= '9' && p - s < 9; p++)
		v = v * 10 + (*p - '0');
	*end = p;
	return p == s ? -1 : (pid_t)v;
}

/* One line of /proc/PID/stat: "pid (comm) S ppid ..."; comm may hold any byte, ')' too. */
static bool read_stat(int proc, const char *name, struct proc *ret)
{
	char path[32], line[512];
	_cleanup_fd_ int fd = -1;
	const char *p, *end;
	ssize_t n;

	(void)snprintf(path, sizeof(path), "%s/stat", name);
	fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, line, sizeof(line) - 1);
	if (n <= 0)
		return false;
	line[n] = '\0';
	p = strrchr(line, ')');
	if (!p || p[1] != ' ' || !p[2] || p[3] != ' ')
		return false;
	ret->alive = p[2] != 'Z' && p[2] != 'X' && p[2] != 'x';
	ret->ppid = digits(p + 4, &end);
	return ret->ppid >= 0;
}

static int add(struct procs *l, struct proc p)
{
	if (l->n == PROCS_MAX)
		return 0;
	if (l->n == l->cap) {
		size_t cap = l->cap ? l->cap * 2 : 64;
		struct proc *v = realloc(l->v, cap * sizeof(*v));

		if (!v)
			return -ENOMEM;
		l->v = v;
		l->cap = cap;
	}
	l->v[l->n++] = p;
	return 0;
}

struct dent {
	uint64_t ino;
	int64_t off;
	uint16_t reclen;
	uint8_t type;
	char name[];
};

/* Plain getdents64: opendir would allocate 32 KiB in each holder. */
static int scan(int proc, struct procs *l)
{
	_Alignas(struct dent) char buf[4096];
	const char *end;
	long n;

	while ((n = syscall(SYS_getdents64, proc, buf, sizeof(buf))) > 0)
		for (long at = 0; at < n;) {
			struct dent *d = (struct dent *)(void *)(buf + at);
			struct proc p = {.pid = digits(d->name, &end)};

			at += d->reclen;
			if (p.pid <= 0 || *end || !read_stat(proc, d->name, &p))
				continue;
			if (add(l, p) < 0)
				return -ENOMEM;
		}
	return n < 0 ? -errno : 0;
}

static int compare_procs(const void *a, const void *b)
{
	return compare_pids(&((const struct proc *)a)->pid, &((const struct proc *)b)->pid);
}

static struct proc *find(const struct procs *l, pid_t pid)
{
	struct proc key = {.pid = pid};

	return l->n ? bsearch(&key, l->v, l->n, sizeof(key), compare_procs) : NULL;
}

/* Climbs from p to the first process whose side is known; then marks the way with that. */
static void judge(const struct procs *l, struct proc *p)
{
	struct proc *q = p, *top;
	uint8_t side;
	size_t steps = 0;

	/* Entries are read one after the other, so stale parents could form a ring: count steps. */
	while (q && q->side == UNKNOWN && steps++ <= l->n)
		q = find(l, q->ppid);
	side = q && q->side != UNKNOWN ? q->side : OUTSIDE;
	for (top = q, q = p; q && q != top && q->side == UNKNOWN; q = find(l, q->ppid))
		q->side = side;
}

int tree_living(pid_t root, const struct pids *except, struct pids *ret)
{
	_cleanup_fd_ int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct procs l = {0};
	size_t n = 0;
	int r;

	*ret = (struct pids){0};
	if (proc < 0)
		return -errno;
	r = scan(proc, &l);
	if (r == 0 && l.n) {
		qsort(l.v, l.n, sizeof(*l.v), compare_procs);
		ret->v = calloc(l.n, sizeof(*ret->v));
		if (!ret->v)
			r = -ENOMEM;
	}
	for (size_t i = 0; r == 0 && i < l.n; i++)
		l.v[i].side = l.v[i].pid == root			    ? INSIDE
			      : has(except, l.v[i].pid) || l.v[i].ppid == 0 ? OUTSIDE
									    : UNKNOWN;
	for (size_t i = 0; r == 0 && i < l.n; i++) {
		judge(&l, &l.v[i]);
		if (l.v[i].side == INSIDE && l.v[i].alive && l.v[i].pid != root)
			ret->v[n++] = l.v[i].pid;
	}
	ret->n = n;
	free(l.v);
	return r;
}

/* Passes until one finds nobody who was not signalled before. */
static int signal_all(pid_t root, const struct pids *except, int signo, size_t *ret_n)
{
	_cleanup_pids_ struct pids done = {0};
	bool fresh = true;
	int r;

	for (int pass = 0; fresh && pass < PASSES_MAX; pass++) {
		struct pids now;

		r = tree_living(root, except, &now);
		if (r < 0)
			return r;
		fresh = false;
		for (size_t i = 0; i < now.n; i++) {
			if (has(&done, now.v[i]))
				continue;
			fresh = true;
			if (kill(now.v[i], signo) == 0)
				(*ret_n)++;
		}
		pids_done(&done);
		done = now;
	}
	return 0;
}

int tree_signal(pid_t root, const struct pids *except, int signo, size_t *ret_n)
{
	size_t n = 0, stopped = 0;
	int r;

	if (signo == SIGKILL) {
		r = signal_all(root, except, SIGSTOP, &stopped);
		if (r < 0)
			return r;
	}
	r = signal_all(root, except, signo, &n);
	/* A stopped process would keep TERM pending for ever. */
	if (r == 0 && signo == SIGTERM)
		r = signal_all(root, except, SIGCONT, &stopped);
	if (ret_n)
		*ret_n = n;
	return r;
}
