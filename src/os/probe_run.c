/* Runs trials in children, programs under a deadline, and all trials in order. */
#include "os/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/str.h"
#include "os/process.h"

#define CAPTURE_MAX 65536 /* bytes of a version text; a program that says more is stopped */
#define KILL_WAIT_MS \
	1000 /* a killed child in an uninterruptible wait is left to its fate after this */

struct trial {
	probe_fn fn;
	bool in_child;
	bool needs_userns;
	bool heavy; /* writes to disk or starts a program: not with quick */
};

static const struct trial trials[LAYER_COUNT] = {
    [LAYER_KERNEL] = {probe_kernel, true, false, false},
    [LAYER_USERNS] = {probe_userns, true, false, false},
    [LAYER_IDMAP] = {probe_idmap, true, true, false},
    [LAYER_MNTNS] = {probe_namespace, true, true, false},
    [LAYER_PIDNS] = {probe_namespace, true, true, false},
    [LAYER_IPCNS] = {probe_namespace, true, true, false},
    [LAYER_UTSNS] = {probe_namespace, true, true, false},
    [LAYER_NETNS] = {probe_namespace, true, true, false},
    [LAYER_CGROUPNS] = {probe_namespace, true, true, false},
    [LAYER_PROC] = {probe_proc, true, true, false},
    [LAYER_TMPFS] = {probe_tmpfs, true, true, false},
    [LAYER_DEVPTS] = {probe_devpts, true, true, false},
    [LAYER_ROBIND] = {probe_robind, true, true, false},
    [LAYER_PIVOT] = {probe_pivot, true, true, false},
    [LAYER_STATE] = {probe_state_dir, true, false, false},
    [LAYER_OVERLAY] = {probe_overlay, false, true, true},
    [LAYER_WHITEOUT] = {probe_overlay, false, true, true},
    [LAYER_NNP] = {probe_nnp, true, false, false},
    [LAYER_SECCOMP] = {probe_seccomp, true, false, false},
    [LAYER_LANDLOCK] = {probe_landlock, true, false, false},
    [LAYER_RLIMITS] = {probe_rlimits, true, false, false},
    [LAYER_CGROUP] = {probe_cgroup, false, false, true},
    [LAYER_HELPERS] = {probe_helpers, false, false, true},
    [LAYER_GUEST] = {probe_guest, false, false, true},
    [LAYER_GIT] = {probe_git, false, false, true},
    [LAYER_SSH] = {probe_ssh, false, false, true},
    [LAYER_NAMES] = {probe_names, true, false, false},
    [LAYER_CERTS] = {probe_certs, true, false, false},
};

void probe_missing(struct probe_result *r, enum cause c, int sys, const char *step,
		   const char *object)
{
	r->state = PROBE_MISSING;
	r->cause = c;
	r->sys = sys;
	(void)snprintf(r->step, sizeof(r->step), "%s", step ? step : "");
	if (object)
		(void)snprintf(r->object, sizeof(r->object), "%s", object);
	else if (sys)
		(void)snprintf(r->object, sizeof(r->object), "%s%s%s", step ? step : "",
			       step ? ": " : "", strerror(sys));
}

void probe_limited(struct probe_result *r, enum cause c, const char *object)
{
	r->state = PROBE_LIMITED;
	r->cause = c;
	(void)snprintf(r->object, sizeof(r->object), "%s", object ? object : "");
}

int64_t probe_sysctl(const char *path)
{
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	char text[32];
	uint64_t v;
	ssize_t n;

	if (fd < 0)
		return -1;
	n = read(fd, text, sizeof(text) - 1);
	if (n <= 0)
		return -1;
	text[n] = '\0';
	text[strcspn(text, "\n")] = '\0';
	return str_to_u64(text, INT64_MAX, &v) == 0 ? (int64_t)v : -1;
}

static int timeout_of(const struct probe_env *env)
{
	return env->timeout_ms > 0 ? env->timeout_ms : PROBE_LAYER_TIMEOUT_MS;
}

/* Waits for a child that is dead or killed; gives up on one that the kernel holds. */
static int reap(pid_t pid, int *status)
{
	int64_t deadline = clock_mono_ns() + KILL_WAIT_MS * NS_PER_MS;

	for (;;) {
		pid_t p = waitpid(pid, status, WNOHANG);

		if (p == pid)
			return 0;
		if (p < 0 && errno != EINTR)
			return -errno;
		if (clock_mono_ns() > deadline)
			return -ETIMEDOUT;
		(void)poll(NULL, 0, 1);
	}
}

/* Reads up to n bytes until end of file; -ETIMEDOUT at the deadline. Returns the count. */
static ssize_t read_until(int fd, void *p, size_t n, int64_t deadline)
{
	size_t got = 0;

	while (got < n) {
		struct pollfd pfd = {.fd = fd, .events = POLLIN};
		int k = poll(&pfd, 1, clock_poll_ms(deadline, clock_mono_ns()));
		ssize_t r;

		if (k == 0)
			return -ETIMEDOUT;
		if (k < 0 && errno != EINTR)
			return -errno;
		if (k < 0)
			continue;
		r = read(fd, (char *)p + got, n - got);
		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -errno;
		if (r == 0)
			break;
		got += (size_t)r;
	}
	return (ssize_t)got;
}

static void child_died(pid_t pid, struct probe_result *r)
{
	siginfo_t si = {0};
	char what[64];

	/* WNOWAIT keeps the number reserved until the whole group has been killed. */
	if (waitid(P_PID, (id_t)pid, &si, WEXITED | WNOWAIT) == 0 && si.si_code != CLD_EXITED)
		(void)snprintf(what, sizeof(what), "signal %d, %s", si.si_status,
			       strsignal(si.si_status));
	else
		(void)snprintf(what, sizeof(what), "ended without an answer");
	probe_missing(r, CAUSE_PROBE_DIED, 0, "trial", what);
}

void probe_in_child(const struct probe_env *env, probe_fn fn, struct probe_result *r)
{
	int timeout = timeout_of(env), status;
	_cleanup_fd_ int rd = -1;
	struct probe_result got;
	pid_t parent = getpid(), pid;
	int p[2];
	ssize_t n;

	if (pipe2(p, O_CLOEXEC) < 0) {
		probe_missing(r, CAUSE_UNKNOWN, errno, "pipe", NULL);
		return;
	}
	rd = p[0];
	(void)fflush(NULL);
	pid = fork();
	if (pid == 0) {
		/* A group of its own: whatever a trial leaves behind is killed with it. */
		(void)setpgid(0, 0);
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		/*
		 * An undumpable process cannot write its own id map. Safe because: who tries layers here (airlock
		 * doctor, a daemon's job for just that, airlock-try) has read no credential, so this copy of it has none.
		 */
		(void)prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
		fn(env, r);
		_exit(write(p[1], r, sizeof(*r)) == (ssize_t)sizeof(*r) ? 0 : 1);
	}
	(void)close(p[1]);
	if (pid < 0) {
		probe_missing(r, CAUSE_UNKNOWN, errno, "fork", NULL);
		return;
	}
	(void)setpgid(pid, pid);
	n = read_until(rd, &got, sizeof(got), clock_mono_ns() + timeout * NS_PER_MS);
	if (n == (ssize_t)sizeof(got)) {
		*r = got;
	} else if (n == -ETIMEDOUT) {
		char what[32];

		(void)snprintf(what, sizeof(what), "%d ms", timeout);
		probe_missing(r, CAUSE_PROBE_TIMEOUT, ETIMEDOUT, "trial", what);
	} else {
		child_died(pid, r);
	}
	(void)kill(-pid, SIGKILL);
	(void)kill(pid, SIGKILL);
	(void)reap(pid, &status);
}

int probe_capture(const struct probe_env *env, const char *program, const char *option, char *out,
		  size_t n)
{
	const char *path = getenv("PATH");
	_cleanup_buf_ struct buf var = BUF_INIT(ENV_VALUE_MAX), text = BUF_INIT(CAPTURE_MAX);
	const char *const argv[] = {program, option, NULL};
	const char *envp[] = {NULL, "LC_ALL=C", NULL};
	struct process_opts o = PROCESS_OPTS_INIT;
	char tail[PROCESS_TAIL_MAX + 1] = "";
	struct err e = ERR_INIT;
	int status = 0, r;

	(void)buf_putf(&var, "PATH=%s", path ? path : "/usr/bin:/bin");
	envp[0] = buf_text(&var);
	o.argv = argv;
	o.envp = envp;
	o.out = &text;
	o.timeout_ms = timeout_of(env);
	r = process_run(&o, &status, tail, &e);
	(void)snprintf(out, n, "%s", text.len ? buf_text(&text) : tail);
	out[strcspn(out, "\n")] = '\0';
	return r < 0 ? r : status;
}

void probe_layer(const struct probe_env *env, enum layer l, struct probe_result *r)
{
	const struct trial *t = &trials[l];

	*r = (struct probe_result){.layer = l, .state = PROBE_IN_FORCE, .cause = CAUSE_NONE};
	if (t->heavy && env->quick) {
		r->state = PROBE_SKIPPED;
		r->cause = CAUSE_NOT_TRIED;
	} else if (t->needs_userns && env->userns_missing) {
		r->state = PROBE_MISSING;
		r->cause = CAUSE_NEEDS_USERNS;
	} else if (t->in_child) {
		probe_in_child(env, t->fn, r);
	} else {
		t->fn(env, r);
	}
}

void probe_all(struct probe_env *env, struct probe_result r[LAYER_COUNT])
{
	for (enum layer l = 0; l < LAYER_COUNT; l++) {
		probe_layer(env, l, &r[l]);
		if (l == LAYER_USERNS)
			env->userns_missing = r[l].state == PROBE_MISSING;
	}
}

bool probe_allows_run(const struct probe_result *r)
{
	return r->state != PROBE_MISSING || layer_info(r->layer)->need == NEED_FEATURE;
}
