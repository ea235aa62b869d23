/*
 * Policy: pid 1 of a sandbox builds its own view of the world with capabilities that exist only
 * over its own new namespaces, gives them up one after another, and becomes the guest. Every step is
 * required; a failure ends the start. No step is retried with less.
 */
#include "provider/native/setup.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "os/caps.h"
#include "os/landlock.h"
#include "os/seccomp.h"
#include "provider/native/beside.h"
#include "wire/guest.h"

/*
 * Descriptors are moved here first, above every place that the guest expects one at. Low, because the second task
 * shares the table: to make a shared one larger than its first 64 waits for a grace period of the kernel.
 */
#define FD_ASIDE 10
_Static_assert(FD_ASIDE > GUEST_FD_UPPER, "moved out of the guest's places");

static _Noreturn void report(int sync, const struct failure *f)
{
	(void)send(sync, f, sizeof(*f), MSG_NOSIGNAL);
	_exit(1);
}

static int become_mapped(const struct plan *p, struct failure *f)
{
	/*
	 * Mapped ids only; a no-op for an ordinary user. Groups were dropped by launch where it may. The calls themselves: the
	 * library's make each thread of the process take part, and here is one task, and another's library state (beside.h).
	 */
	if (syscall(SYS_setresgid, p->gid_inside, p->gid_inside, p->gid_inside) < 0)
		return fail(f, STEP_IDS, errno, "setresgid");
	if (syscall(SYS_setresuid, p->uid_inside, p->uid_inside, p->uid_inside) < 0)
		return fail(f, STEP_IDS, errno, "setresuid");
	return 0;
}

/* Lowers, never raises: a host limit that is lower already stays. */
static int limit(int what, rlim_t value, const char *name, struct failure *f)
{
	struct rlimit r;

	if (getrlimit(what, &r) < 0)
		return fail(f, STEP_RLIMITS, errno, name);
	if (r.rlim_max == RLIM_INFINITY || r.rlim_max > value)
		r.rlim_max = value;
	r.rlim_cur = r.rlim_max;
	return setrlimit(what, &r) < 0 ? fail(f, STEP_RLIMITS, errno, name) : 0;
}

static int limits(const struct plan *p, struct failure *f)
{
	/* NPROC is counted in this user namespace alone, so it bounds the sandbox and not the user. */
	if (limit(RLIMIT_CORE, 0, "core", f) < 0 ||
	    limit(RLIMIT_NPROC, p->pids ? p->pids : PIDS_DEFAULT, "nproc", f) < 0)
		return -1;
	return limit(RLIMIT_NOFILE, NOFILE_DEFAULT, "nofile", f);
}

/* The guest's descriptors to their places, everything else gone at exec. */
static int arrange_fds(struct child *c, int *ret_sync, struct failure *f)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int sync = fcntl(c->sync, F_DUPFD_CLOEXEC, FD_ASIDE);
	int sock = fcntl(c->guest_sock, F_DUPFD_CLOEXEC, FD_ASIDE);
	int upper = fcntl(c->image->upper_ro, F_DUPFD_CLOEXEC, FD_ASIDE);

	if (null < 0 || sync < 0 || sock < 0 || upper < 0)
		return fail(f, STEP_EXEC, errno, "descriptors");
	for (int i = 0; i < 3; i++)
		if (dup2(null, i) < 0)
			return fail(f, STEP_EXEC, errno, "descriptors");
	if (dup2(sock, GUEST_FD_SOCKET) < 0 || dup2(upper, GUEST_FD_UPPER) < 0)
		return fail(f, STEP_EXEC, errno, "descriptors");
	/* Safe because: whatever descriptor launch had by mistake ends at exec as well. */
	if (syscall(SYS_close_range, GUEST_FD_UPPER + 1, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
		return fail(f, STEP_EXEC, errno, "close_range");
	*ret_sync = sync;
	return 0;
}

static int give_up(const struct plan *p, struct failure *f)
{
	int r;

	/* A key of the host user's session would otherwise come along. ENOSYS, EPERM: no keyrings. */
	(void)syscall(SYS_keyctl, 1 /* KEYCTL_JOIN_SESSION_KEYRING */, NULL, 0, 0, 0);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return fail(f, STEP_CAPS, errno, "no_new_privs");
	r = caps_drop_all();
	if (r < 0)
		return fail(f, STEP_CAPS, -r, "capabilities");
	if (!(p->without & WITHOUT_LANDLOCK)) {
		r = landlock_scope();
		if (r < 0)
			return fail(f, STEP_LANDLOCK, -r, "landlock_restrict_self");
	}
	/* After every change of credentials, each of which clears it: launch gone, sandbox gone (FR-B164). */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		return fail(f, STEP_CAPS, errno, "parent death signal");
	if (!(p->without & WITHOUT_SECCOMP)) {
		r = seccomp_install_guest();
		if (r < 0)
			return fail(f, STEP_SECCOMP, -r, "filter");
	}
	return 0;
}

/* launch may have died before the death signal was armed. */
static bool orphaned(int sync)
{
	char c;

	return recv(sync, &c, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* What needs no ids and no storage. */
static int prepare(const struct plan *p, struct failure *f)
{
	int r;

	if (sethostname(p->hostname, strlen(p->hostname)) < 0)
		return fail(f, STEP_HOSTNAME, errno, p->hostname);
	r = caps_drop_bounding();
	return r < 0 ? fail(f, STEP_CAPS, -r, "bounding set") : 0;
}

/* What needs ids, but no storage. */
static int build_base(const struct child *c, struct failure *f)
{
	/*
	 * launch has moved this process into the sandbox's group since: a namespace made now begins there, and
	 * /proc/self/cgroup does not tell where on the host that is.
	 */
	if ((c->plan->memory_bytes || c->plan->cpu_milli) && unshare(CLONE_NEWCGROUP) < 0)
		return fail(f, STEP_NAMESPACES, errno, "unshare");
	return become_mapped(c->plan, f) < 0 ? -1 : image_base(c->image, c->plan, c->kept, f);
}

/* The first word of launch: the id maps are written. */
static bool maps_written(int sync)
{
	ssize_t n;
	char word;

	do {
		n = recv(sync, &word, 1, 0);
	} while (n < 0 && errno == EINTR);
	return n == 1;
}

/*
 * While launch writes the maps and airlock makes the storage, everything that needs neither. A failure is told once
 * launch listens.
 */
static int build(struct child *c, struct failure *f)
{
	int early = prepare(c->plan, f);
	struct places w;

	if (!maps_written(c->sync))
		_exit(1);
	if (early == 0 && !c->opens)
		early = build_base(c, f);
	places_init(&w);
	if (places_recv(c->sync, &w) < 0)
		_exit(1);
	if (early < 0 || (w.len == 0 && places_open(&w, c->plan, f) < 0) ||
	    places_take(c->image, &w, c->plan, f) < 0)
		return -1;
	if (c->opens && build_base(c, f) < 0)
		return -1;
	return image_build(c->image, c->plan, f);
}

/*
 * With the second task at work: no step of the policy is left out, and none that the guest depends on is under way
 * still when it starts.
 */
static int become_sandbox(struct child *c, struct beside *b, int *sync, struct failure *f)
{
	if (build(c, f) < 0)
		return -1;
	beside_pivoted(b);
	/*
	 * From here on it waits for the second task, which may be ended by a hand from outside, and no more for launch. give_up
	 * arms this again.
	 */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		return fail(f, STEP_NAMESPACES, errno, "parent death signal");
	if (orphaned(c->sync))
		_exit(1);
	if (beside_enter_net(b, f) < 0 || beside_hand_over(b, c->sync, f) < 0 ||
	    limits(c->plan, f) < 0 || arrange_fds(c, sync, f) < 0 || give_up(c->plan, f) < 0)
		return -1;
	return beside_end(b, f) < 0 ? -1 : image_prove(c->image, f);
}

int child_main(void *arg)
{
	struct child *c = arg;
	static char name[] = "airlock-guest";
	char *argv[] = {name, NULL}, *env[] = {NULL};
	struct failure f = {0};
	struct beside b;
	int sync = c->sync, r;

	r = beside_start(&b, c->plan, c->beside, c->stack_beside, &f);
	/* Its own copy of launch's end would hide launch's death from it. */
	(void)close(c->peer);
	if (r < 0 || become_sandbox(c, &b, &sync, &f) < 0)
		report(sync, &f);
	if (orphaned(sync))
		_exit(1);
	(void)execve(GUEST_PATH, argv, env);
	(void)fail(&f, STEP_EXEC, errno, GUEST_PATH);
	report(sync, &f);
}
