/*
 * bench_start [N [M]]: native sandboxes against bubblewrap and a plain shell, in one run.
 *
 * Rounds of one of each, interleaved, so that whatever else the machine does hits all alike. Prints
 * one JSON line: medians in ns, and the ratios that the goals are about:
 *   start  sandbox acquired until its first command (sh -c true) has finished / bwrap --unshare-all
 *   live   sh -c true in a running sandbox / sh -c true
 *   cpu    processor time of all processes of a start and its release, mean / that of bwrap; unlike the
 *          clock it says the same on a loaded machine
 *   alive  M (100) sandboxes at once: PSS of airlock-launch and the guest, mean, KiB
 * Must lie beside airlock-launch and airlock-guest (tests/integ/native-run does that).
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench_common.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/path.h"
#include "base/str.h"
#include "os/beneath.h"
#include "os/spread.h"
#include "provider/provider.h"

#define ALIVE 100
#define ROUNDS_DEFAULT 60
#define ROUNDS_MAX 2000

#define W(s) ((char *)(uintptr_t)(s))

struct bench {
	char dir[64];
	char *state, *base;
	char *layers[2];
};

static char *env[] = {W("PATH=/usr/bin:/bin"), W("HOME=/home/agent"), NULL};

static int64_t median(int64_t *v, size_t n)
{
	qsort(v, n, sizeof(*v), bench_compare);
	return v[n / 2];
}

static int64_t of_timeval(struct timeval t)
{
	return t.tv_sec * NS_PER_S + t.tv_usec * 1000;
}

/* Of this process and of all its children that have been waited for. */
static int64_t cpu_ns(void)
{
	struct rusage self, kids;

	if (getrusage(RUSAGE_SELF, &self) < 0 || getrusage(RUSAGE_CHILDREN, &kids) < 0)
		bench_die("getrusage", NULL);
	return of_timeval(self.ru_utime) + of_timeval(self.ru_stime) + of_timeval(kids.ru_utime) +
	       of_timeval(kids.ru_stime);
}

static char *make_dir(const char *parent, const char *name)
{
	char *p = path_join(parent, name);

	if (!p || (mkdir(p, 0755) < 0 && errno != EEXIST))
		bench_die(name, NULL);
	return p;
}

static void make_bench(struct bench *b)
{
	uid_t uid;
	gid_t gid;

	(void)snprintf(b->dir, sizeof(b->dir), "/tmp/airlock-bench-XXXXXX");
	if (!mkdtemp(b->dir))
		bench_die("temporary directory", NULL);
	provider_native.owner(&uid, &gid);
	b->state = make_dir(b->dir, "state");
	/* As engine/state.c does. */
	spread_below(b->state);
	b->base = make_dir(b->state, "base");
	if (uid != (uid_t)-1 && chown(b->base, uid, gid) < 0)
		bench_die("chown", NULL);
	b->layers[0] = b->base;
	if (spread_mkdir(b->state, "leases") < 0 || spread_mkdir(b->state, "roots") < 0 ||
	    spread_mkdir(b->state, "trash") < 0)
		bench_die("state directory", NULL);
}

static void drop_bench(const struct bench *b)
{
	_cleanup_fd_ int tmp = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct beneath root = {.root = tmp};

	if (tmp < 0 || beneath_remove_tree(&root, b->dir + strlen("/tmp/")) < 0)
		(void)fprintf(stderr, "bench_start: %s stays behind\n", b->dir);
}

static struct sandbox *acquire(struct bench *b, unsigned n)
{
	_cleanup_free_ char *leases = path_join(b->state, "leases"), *lease = NULL, *work = NULL;
	struct err e = ERR_INIT;
	struct sandbox *sb = NULL;
	char name[16];
	struct sandbox_spec s = {
	    .layers = b->layers,
	    .inside = "/workspace",
	    .hostname = "airlock",
	};

	(void)snprintf(name, sizeof(name), "%u", n);
	lease = make_dir(leases, name);
	work = path_join(b->dir, "work");
	s.lease_id = name;
	s.lease_dir = lease;
	s.workspace = work;
	if (provider_native.acquire(&s, &sb, &e) < 0)
		bench_die("acquire", &e);
	return sb;
}

static void release(struct sandbox *sb)
{
	struct err e = ERR_INIT;

	if (provider_native.release(sb, &e) < 0)
		bench_die("release", &e);
}

static int64_t time_spawn(char *const *argv)
{
	extern char **environ;
	int64_t t = clock_mono_ns();
	int status = 0;
	pid_t pid;

	if (posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ) != 0)
		bench_die(argv[0], NULL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	t = clock_mono_ns() - t;
	/* bwrap leaves its pid 1 to us: its time counts too. Launchers have sessions of their own. */
	while (waitpid(0, NULL, 0) > 0 || errno == EINTR)
		;
	return status == 0 ? t : -1;
}

/* Pss of smaps_rollup, KiB; 0 if gone. */
static uint64_t pss_of(const char *pid)
{
	char path[64], text[4096], *p;
	_cleanup_fd_ int fd = -1;
	uint64_t v = 0;
	ssize_t n;

	(void)snprintf(path, sizeof(path), "/proc/%s/smaps_rollup", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	p = strstr(text, "\nPss:");
	if (!p)
		return 0;
	p += strcspn(p, "0123456789");
	p[strspn(p, "0123456789")] = '\0';
	return str_to_u64(p, UINT64_MAX, &v) == 0 ? v : 0;
}

static uint64_t pss_of_sandbox(const struct sandbox *sb)
{
	char path[64], kids[256], pid[16];
	_cleanup_fd_ int fd = -1;
	ssize_t n;

	(void)snprintf(pid, sizeof(pid), "%d", (int)sb->monitor_pid);
	(void)snprintf(path, sizeof(path), "/proc/%s/task/%s/children", pid, pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? 0 : read(fd, kids, sizeof(kids) - 1);
	if (n <= 0)
		return pss_of(pid);
	kids[n] = '\0';
	kids[strcspn(kids, " ")] = '\0';
	return pss_of(pid) + pss_of(kids);
}

int main(int argc, char **argv)
{
	static char *bwrap[] = {
	    W("bwrap"),	     W("--unshare-all"), W("--ro-bind"), W("/"),
	    W("/"),	     W("--dev"),	 W("/dev"),	 W("--proc"),
	    W("/proc"),	     W("--tmpfs"),	 W("/tmp"),	 W("--die-with-parent"),
	    W("--cap-drop"), W("ALL"),		 W("--"),	 W("sh"),
	    W("-c"),	     W("true"),		 NULL,
	};
	static int64_t ours[ROUNDS_MAX], theirs[ROUNDS_MAX], live[ROUNDS_MAX], plain[ROUNDS_MAX],
	    end[ROUNDS_MAX], acq[ROUNDS_MAX];
	static struct sandbox *many[ALIVE];
	struct sandbox *steady;
	struct bench b = {0};
	uint64_t rounds = ROUNDS_DEFAULT, alive = ALIVE, pss = 0;
	int64_t m_ours, m_theirs, m_live, m_plain, cpu_ours = 0, cpu_theirs = 0;
	unsigned next = 0;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if ((argc > 1 && (str_to_u64(argv[1], ROUNDS_MAX, &rounds) < 0 || rounds < 1)) ||
	    (argc > 2 && str_to_u64(argv[2], ALIVE, &alive) < 0))
		bench_die("usage: bench_start [ROUNDS [ALIVE]]", NULL);
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	make_bench(&b);
	steady = acquire(&b, next++);
	bench_run_true(steady, "/workspace", env, null);
	for (size_t i = 0; i < rounds; i++) {
		struct sandbox *sb;
		int64_t t = clock_mono_ns(), cpu = cpu_ns();

		sb = acquire(&b, next++);
		acq[i] = clock_mono_ns() - t;
		bench_run_true(sb, "/workspace", env, null);
		ours[i] = clock_mono_ns() - t;
		t = clock_mono_ns();
		release(sb);
		end[i] = clock_mono_ns() - t;
		cpu_ours += cpu_ns() - cpu;
		cpu = cpu_ns();
		theirs[i] = time_spawn(bwrap);
		cpu_theirs += cpu_ns() - cpu;
		t = clock_mono_ns();
		bench_run_true(steady, "/workspace", env, null);
		live[i] = clock_mono_ns() - t;
		plain[i] = time_spawn(bench_true);
		if (theirs[i] < 0 || plain[i] < 0)
			bench_die("bwrap or sh failed", NULL);
	}
	release(steady);
	for (size_t i = 0; i < alive; i++) {
		many[i] = acquire(&b, next++);
		bench_run_true(many[i], "/workspace", env, null);
	}
	for (size_t i = 0; i < alive; i++)
		pss += pss_of_sandbox(many[i]);
	for (size_t i = 0; i < alive; i++)
		release(many[i]);
	drop_bench(&b);
	m_ours = median(ours, rounds);
	m_theirs = median(theirs, rounds);
	m_live = median(live, rounds);
	m_plain = median(plain, rounds);
	(void)printf("{\"rounds\":%" PRIu64 ",\"start_ns\":%" PRId64 ",\"acquire_ns\":%" PRId64
		     ",\"release_ns\":%" PRId64 ",\"bwrap_ns\":%" PRId64
		     ",\"start_ratio\":%.3f,\"live_ns\":%" PRId64 ",\"sh_ns\":%" PRId64
		     ",\"live_ratio\":%.3f,\"cpu_us\":%" PRIu64 ",\"bwrap_cpu_us\":%" PRIu64
		     ",\"cpu_ratio\":%.3f,\"alive\":%" PRIu64 ",\"pss_kib\":%" PRIu64 "}\n",
		     rounds, m_ours, median(acq, rounds), median(end, rounds), m_theirs,
		     (double)m_ours / (double)m_theirs, m_live, m_plain,
		     (double)m_live / (double)m_plain, (uint64_t)cpu_ours / 1000 / rounds,
		     (uint64_t)cpu_theirs / 1000 / rounds, (double)cpu_ours / (double)cpu_theirs,
		     alive, alive ? pss / alive : 0);
	return 0;
}
