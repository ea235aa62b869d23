#include "provider/native/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/path.h"
#include "os/caps.h"
#include "os/landlock.h"
#include "os/mounts.h"
#include "os/seccomp.h"
#include "provider/native/beside.h"
#include "provider/native/twin.h"
#include "wire/guest.h"
#include "wire/remote_box.h"

/* The network namespace, where one is asked for, is made beside the rest (beside.h). */
#define SANDBOX_NAMESPACES \
	(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP)
#define BESIDE_STACK 131072 /* a guard of one page, which may be 64 KiB on arm64, leaves room */
#define CHILD_STACK 262144  /* only what is touched becomes memory */
#define STACKS (BESIDE_STACK + CHILD_STACK)
#define CHILD_GUARD 4096
#define CHILD_ARGS 64 /* room for a struct child, keeps the stack aligned */

static int write_proc(pid_t pid, const char *name, const char *text)
{
	char path[64];
	_cleanup_fd_ int fd = -1;

	(void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	return write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

/* One id each: whatever else owns files on the host is "nobody" inside and stays out of reach. */
static int write_maps(pid_t pid, const struct plan *p, struct failure *f)
{
	char map[64];
	int r = write_proc(pid, "setgroups", "deny");

	if (r < 0)
		return fail(f, STEP_IDMAP, -r, "setgroups");
	(void)snprintf(map, sizeof(map), "%u %u 1", p->uid_inside, p->uid_host);
	r = write_proc(pid, "uid_map", map);
	if (r < 0)
		return fail(f, STEP_IDMAP, -r, "uid_map");
	(void)snprintf(map, sizeof(map), "%u %u 1", p->gid_inside, p->gid_host);
	r = write_proc(pid, "gid_map", map);
	return r < 0 ? fail(f, STEP_IDMAP, -r, "gid_map") : 0;
}

/*
 * The child borrows this process's memory until it becomes the guest, as vfork would have it: to copy
 * a page at each first write costs more than its mounts. It has descriptors of its own.
 * Safe because: until then it runs only this program's code, and afterwards it has memory of its own.
 */
static pid_t clone_child(struct launch *l, const struct child *c)
{
	int flags = SANDBOX_NAMESPACES | CLONE_PIDFD | CLONE_VM | SIGCHLD;
	char *stack = mmap(NULL, STACKS, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
	struct child *mine;

	if (stack == MAP_FAILED || mprotect(stack, CHILD_GUARD, PROT_NONE) < 0 ||
	    mprotect(stack + BESIDE_STACK, CHILD_GUARD, PROT_NONE) < 0)
		return -1;
	/* Above its stack, where no frame of ours can come to lie. */
	mine = (struct child *)(void *)(stack + STACKS - CHILD_ARGS);
	*mine = *c;
	mine->stack_beside = stack + BESIDE_STACK;
	return clone(child_main, mine, flags, mine, &l->pidfd);
}

static void set_time_limit(int sync)
{
	struct timeval tv = {.tv_sec = START_TIMEOUT_MS / 1000};

	(void)setsockopt(sync, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
}

/* One message of the child's: a failure, or the sandbox's sockets. */
static ssize_t hear_child(struct launch *l, int sync, struct failure *f)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(l->socket))];
	} u;
	struct iovec iov = {.iov_base = f, .iov_len = sizeof(*f)};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = u.buf,
			   .msg_controllen = sizeof(u.buf)};
	ssize_t n = recvmsg(sync, &m, MSG_CMSG_CLOEXEC);
	struct cmsghdr *h = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;

	if (h && h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS && !l->sockets) {
		l->sockets = (unsigned)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(l->socket, CMSG_DATA(h), sizeof(int) * l->sockets);
	}
	return n;
}

/* Until the child has become the guest (end of stream) or says why not. */
static int await_exec(struct launch *l, int sync, struct failure *f)
{
	ssize_t n;

	do {
		n = hear_child(l, sync, f);
	} while (n == 1 || (n < 0 && errno == EINTR));
	if (n == 0) {
		*f = (struct failure){0};
		return 0;
	}
	if (n == sizeof(*f))
		return -1;
	return fail(f, STEP_EXEC, n < 0 && errno == EAGAIN ? ETIMEDOUT : EPROTO, "set-up");
}

static void end_child(struct launch *l)
{
	/* Safe because: a pidfd names this one child for ever, never a process that got its number. */
	(void)syscall(SYS_pidfd_send_signal, l->pidfd, SIGKILL, NULL, 0);
	/* As the broker reaps: waitid is what the lock-down leaves. */
	while (waitid(P_PIDFD, (id_t)l->pidfd, NULL, WEXITED) < 0 && errno == EINTR)
		;
	cleanup_fd(&l->pidfd);
}

/* Gives up what only the start needed. A failure must end the sandbox: fail closed. */
static int confine(struct err *e)
{
	int r;

	/* Its memory holds nothing secret, but a debugger attached to it could speak for the owner. */
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return err_sys(e, errno, "confine the monitor: dumpable");
	if (chdir("/") < 0)
		return err_sys(e, errno, "confine the monitor: chdir /");
	/*
	 * Safe because: to end the sandbox needs no capability. As the owner of the user namespace this
	 * process may signal everything in it, and as the owner of the cgroup directory remove that.
	 */
	r = caps_drop_all();
	if (r < 0)
		return err_sys(e, -r, "confine the monitor: capabilities");
	r = seccomp_install_monitor();
	return r < 0 ? err_sys(e, -r, "confine the monitor: seccomp") : 0;
}

/* Limits that were asked for are in force before the first instruction of foreign code, or no start. */
static int make_cgroup(struct launch *l, struct err *e)
{
	const struct plan *p = &l->plan;
	const struct cgroup_limits lim = {p->memory_bytes, p->pids, p->cpu_milli, l->twin};
	char name[80];

	if ((p->without & WITHOUT_CGROUP) || (!p->memory_bytes && !p->cpu_milli))
		return 0;
	(void)snprintf(name, sizeof(name), "%.60s", path_base(p->lease_dir));
	return cgroup_create(&l->cgroup, name, &lim, e);
}

/* airlock finds the words (step.h); these are for a reader of the log. */
static int failed(struct launch *l, struct err *e)
{
	return err_sys(e, l->failure.sys, "start sandbox: %s", l->failure.object);
}

/*
 * The storage is there: airlock says so, while the child is on its way. Nothing here may allocate or fail by
 * design (setup.h), so the buffer has room already and a frame is waited for, not tried.
 */
static int await_storage(struct launch *l, struct err *e)
{
	int64_t deadline = clock_mono_ns() + START_TIMEOUT_MS * NS_PER_MS;
	struct pollfd p = {.fd = l->owner.fd, .events = POLLIN};
	struct frame f;
	int r;

	if (l->owner.in.len - l->owner.used < FRAME_HEADER && poll(&p, 1, START_TIMEOUT_MS) == 0)
		return err_set(e, ERR_TIMEOUT, "airlock-launch: no storage within %d ms",
			       START_TIMEOUT_MS);
	r = chan_recv(&l->owner, deadline, &f, NULL, e);
	if (r < 0)
		return r;
	if (r == 0 || f.type != GM_STORAGE)
		return err_set(e, ERR_PROTOCOL, "airlock-launch: storage must follow the plan");
	return 0;
}

/* The child's first word: its ids are mapped. */
static int send_mapped(struct launch *l, int sync, struct err *e)
{
	char word = 0;

	if (send(sync, &word, 1, MSG_NOSIGNAL) == 1)
		return 0;
	(void)fail(&l->failure, STEP_IDMAP, errno, "set-up");
	return failed(l, e);
}

/* Its second, with what only this process may open; without it the child opens everything itself. */
static int send_places(struct launch *l, int sync, struct err *e)
{
	struct failure *f = &l->failure;
	struct places w;
	char alone = 0;
	int r;

	if (!l->opens)
		return send(sync, &alone, 1, MSG_NOSIGNAL) == 1 ? 0 : failed(l, e);
	places_init(&w);
	r = places_open(&w, &l->plan, f);
	if (r == 0) {
		r = places_send(sync, &w);
		if (r < 0)
			(void)fail(f, STEP_STORAGE, -r, "descriptors");
	}
	places_done(&w);
	return r < 0 ? failed(l, e) : 0;
}

static int run_child(struct launch *l, struct image *im, struct err *e)
{
	struct failure *f = &l->failure;
	_cleanup_fd_ int sync_in = -1, sock_in = -1, sync = -1;
	bool beside = beside_helps();
	int pair[2], r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, errno, "start sandbox: socket pair");
	sync = pair[0];
	sync_in = pair[1];
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, errno, "start sandbox: socket pair");
	chan_init(&l->guest, pair[0], false);
	sock_in = pair[1];
	/* These are not for later: what follows has no right to them, or may not allocate. */
	l->landlock = l->plan.without & WITHOUT_LANDLOCK ? 0 : landlock_abi();
	r = chan_reserve(&l->owner);
	if (r < 0)
		return err_sys(e, -r, "start sandbox");
	l->pid = clone_child(l, &(struct child){
				    .plan = &l->plan,
				    .image = im,
				    .kept = &l->kept,
				    .beside = beside,
				    .sync = sync_in,
				    .peer = sync,
				    .guest_sock = sock_in,
				    .opens = !l->opens && l->plan.uid_host != geteuid(),
				});
	if (l->pid < 0) {
		(void)fail(f, STEP_NAMESPACES, errno, "clone");
		return failed(l, e);
	}
	cleanup_fd(&sync_in);
	cleanup_fd(&sock_in);
	if (l->cgroup.in_force) {
		r = cgroup_add(&l->cgroup, l->pid, e);
		if (r < 0)
			return r;
	}
	set_time_limit(sync);
	if (write_maps(l->pid, &l->plan, f) < 0)
		return failed(l, e);
	r = send_mapped(l, sync, e);
	if (r == 0)
		r = await_storage(l, e);
	if (r == 0)
		r = send_places(l, sync, e);
	if (r < 0)
		return r;
	/* The child's second task waits for this processor, and the child for it; what is left here has time. */
	if (beside)
		(void)sched_yield();
	/*
	 * While the child builds: what is left to do here is to wait, to kill and to reap. Only this task gives up; of
	 * what the child shares, the memory, the one attribute that changes is "not dumpable". Until the child has become
	 * the guest nothing here allocates, and no call is expected to fail: errno is the child's.
	 */
	r = confine(e);
	if (r < 0)
		return r;
	return await_exec(l, sync, f) < 0 ? failed(l, e) : 0;
}

static bool setgroups_denied(void)
{
	_cleanup_fd_ int fd = open("/proc/self/setgroups", O_RDONLY | O_CLOEXEC);
	char word[8] = "";

	return fd >= 0 && read(fd, word, sizeof(word) - 1) > 0 && word[0] == 'd';
}

_Static_assert(sizeof(struct child) <= CHILD_ARGS, "room above the child's stack");

void launch_settle(struct launch *l)
{
	/* The descriptors are numbers of the child's table. What it has allocated goes with the process. */
	free(l->image);
	l->image = NULL;
	skeleton_settle(&l->kept);
}

int launch_start(struct launch *l, struct err *e)
{
	struct image *im = l->image = malloc(sizeof(*im));
	bool root = geteuid() == 0 && caps_have(CAP_SYS_ADMIN);
	int r;

	if (!im)
		return err_set(e, ERR_NOMEM, "start sandbox: out of memory");
	image_init(im);
	/*
	 * Supplementary groups (docker, sudo) would open files inside; only root may drop them. A
	 * user namespace may deny even that: its root is then no better off than an ordinary user.
	 */
	if (root && setgroups(0, NULL) < 0 && !setgroups_denied()) {
		return err_sys(e, EPERM, "start sandbox: drop supplementary groups");
	}
	r = make_cgroup(l, e);
	if (r < 0)
		return r;
	l->opens = root && mounts_allowed();
	if (!l->twin)
		skeleton_open(&l->kept, &l->plan, l->opens);
	r = run_child(l, im, e);
	if (r < 0) {
		if (l->pidfd >= 0)
			end_child(l);
		cgroup_remove(&l->cgroup);
	}
	return r;
}

static int read_plan(struct launch *l, bool twin, struct err *e)
{
	struct frame f;
	int r = chan_recv(&l->owner, clock_mono_ns() + START_TIMEOUT_MS * NS_PER_MS, &f, NULL, e);

	if (r == -EAGAIN)
		return err_set(e, ERR_TIMEOUT, "airlock-launch: no plan within %d ms",
			       START_TIMEOUT_MS);
	if (r < 0)
		return r;
	if (r == 0 || f.type != GM_PLAN)
		return err_set(e, ERR_PROTOCOL, "airlock-launch: the first frame must be a plan");
	if (twin)
		return twin_plan(f.payload, &l->plan, e);
	r = plan_get(f.payload, &l->plan, e);
	/* Checked by the sender as well; this is the process that acts on it. */
	return r < 0 ? r : plan_check(&l->plan, e);
}

static void tell_error(struct launch *l, const struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4096);
	uint8_t type = l->failure.step == STEP_NONE ? GM_ERROR : GM_STEP;

	if (type == GM_STEP) {
		(void)failure_put(&b, &l->failure);
	} else {
		(void)buf_u32(&b, e->code);
		(void)buf_str(&b, e->text);
	}
	(void)chan_send(&l->owner, type, b.data, b.len, NULL, 0, clock_mono_ns() + NS_PER_S, NULL);
}

static void ignore_terminal_signals(void)
{
	static const int ignored[] = {SIGINT,  SIGQUIT, SIGHUP,	 SIGPIPE,
				      SIGTSTP, SIGTTOU, SIGTTIN, SIGTERM};
	sigset_t none;

	/* Ctrl-C is for airlock, which decides what to do; a new session breaks no life line (FR-B171). */
	for (size_t i = 0; i < ARRAY_LEN(ignored); i++)
		(void)signal(ignored[i], SIG_IGN);
	(void)setsid();
	/*
	 * airlock starts us with all signals blocked, and one that went to its whole group (Ctrl-C, timeout(1))
	 * may be pending by now. It goes away only because it is ignored when the mask opens.
	 */
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	/* From here on TERM is meant for this process alone. */
	(void)signal(SIGTERM, SIG_DFL);
	/* An ignored SIGCHLD would be inherited and make the guest's status vanish. */
	(void)signal(SIGCHLD, SIG_DFL);
}

_Static_assert(LAUNCH_FD_HELD == LAUNCH_FD_LISTEN, "one or the other");

int launch_main(bool twin)
{
	struct launch l = {.twin = twin, .listen_fd = -1, .pidfd = -1, .cgroup = CGROUP_INIT};
	struct err e = ERR_INIT;
	int on = 0, last = LAUNCH_FD_OWNER, r;
	socklen_t n = sizeof(on);

	skeleton_init(&l.kept);
	chan_init(&l.owner, LAUNCH_FD_OWNER, true);
	chan_init(&l.guest, -1, false);
	if (getsockopt(LAUNCH_FD_OWNER, SOL_SOCKET, SO_DOMAIN, &on, &n) < 0 || on != AF_UNIX) {
		(void)fprintf(stderr,
			      "airlock-launch is started by airlock, with a socket as "
			      "descriptor %d; it has no options\n",
			      LAUNCH_FD_OWNER);
		return 2;
	}
	ignore_terminal_signals();
	if (!twin && getsockopt(LAUNCH_FD_LISTEN, SOL_SOCKET, SO_ACCEPTCONN, &on, &n) == 0 && on)
		l.listen_fd = LAUNCH_FD_LISTEN;
	/* Again, by this process: whoever connects then reads launch's pid as the peer's. */
	if (l.listen_fd >= 0)
		(void)listen(l.listen_fd, 16);
	if (twin || l.listen_fd >= 0)
		last = LAUNCH_FD_LISTEN;
	(void)syscall(SYS_close_range, last + 1, ~0U, 0);
	for (int fd = LAUNCH_FD_OWNER; fd <= last; fd++)
		(void)fcntl(fd, F_SETFD, FD_CLOEXEC);
	r = read_plan(&l, twin, &e);
	if (r == 0)
		r = launch_start(&l, &e);
	if (r == 0)
		r = broker_run(&l) >= 0 ? 0 : 1;
	if (e.code != ERR_NONE)
		tell_error(&l, &e);
	cgroup_remove(&l.cgroup);
	return r < 0 ? 1 : r;
}
