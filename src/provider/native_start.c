/*
 * The start of a native sandbox, and the way to one that runs.
 *
 * airlock-launch starts with the plan waiting in its socket, and makes the namespaces and the system's part of the
 * new root while this side makes the storage that the plan names: on two processors one half costs nothing
 * then. It acts on nothing before it has a plan that passed the check on both sides, and ends with all it has made
 * when this side closes the socket instead of saying that the storage is there.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/path.h"
#include "base/str.h"
#include "os/files.h"
#include "os/self.h"
#include "provider/native.h"
#include "provider/native/launch_fds.h"
#include "provider/native/step.h"
#include "provider/inforce.h"
#include "provider/native_storage.h"
#include "wire/guest.h"

#define FD_ASIDE 10
#define PLAN_WAITS 32768 /* bytes that surely find room in a socket that nobody reads yet */

void native_free(struct native *n)
{
	chan_done(&n->link.ch);
	cleanup_fd(&n->guest_pidfd);
	while (n->sockets)
		cleanup_fd(&n->socket[--n->sockets]);
	free(n);
}

static struct native *new_native(int fd)
{
	struct native *n = calloc(1, sizeof(*n));

	if (!n)
		return NULL;
	n->sb.ops = &provider_native;
	n->guest_pidfd = -1;
	guestlink_init(&n->link, fd, "airlock-launch");
	n->sb.inside = GUEST_WORKSPACE;
	return n;
}

/* Field 22 of /proc/PID/stat; the name in field 2 may hold spaces and parentheses. 0 if gone. */
static uint64_t start_time(pid_t pid)
{
	char path[64], text[1024], *p;
	_cleanup_fd_ int fd = -1;
	uint64_t v = 0;
	ssize_t k;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	k = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
	if (k <= 0)
		return 0;
	text[k] = '\0';
	p = strrchr(text, ')');
	for (int f = 2; p && f < 22; f++)
		p = strchr(p + 1, ' ');
	if (p)
		p[1 + strcspn(p + 1, " ")] = '\0';
	return p && str_to_u64(p + 1, UINT64_MAX, &v) == 0 ? v : 0;
}

/* Through a descriptor of the directory: lease paths may be longer than the 107 bytes of an address. */
static void socket_address(int dir, struct sockaddr_un *a)
{
	*a = (struct sockaddr_un){.sun_family = AF_UNIX};
	(void)snprintf(a->sun_path, sizeof(a->sun_path), "/proc/self/fd/%d/control.sock", dir);
}

static int make_listener(const char *lease_dir, struct err *e)
{
	_cleanup_fd_ int dir = open(lease_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	_cleanup_fd_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un a;

	if (dir < 0 || fd < 0)
		return err_sys(e, errno, "control socket in %s", lease_dir);
	if (unlinkat(dir, "control.sock", 0) < 0 && errno != ENOENT)
		return err_sys(e, errno, "control socket in %s", lease_dir);
	socket_address(dir, &a);
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 ||
	    fchmodat(dir, "control.sock", 0600, 0) < 0 || listen(fd, 16) < 0)
		return err_sys(e, errno, "control socket in %s", lease_dir);
	return TAKE_FD(fd);
}

/*
 * In the child of a vfork, which borrows our memory until exec: only async-signal-safe calls. posix_spawn
 * would do, but makes a hundred calls for the dispositions that airlock-launch sets by itself.
 */
static _Noreturn void become_launch(const char *path, int sock, int listener, int null)
{
	static char name[] = "airlock-launch";
	static char *argv[] = {name, NULL}, *env[] = {NULL};

	if (dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0 ||
	    dup2(sock, LAUNCH_FD_OWNER) < 0 ||
	    (listener >= 0 && dup2(listener, LAUNCH_FD_LISTEN) < 0))
		_exit(127);
	(void)execve(path, argv, env);
	_exit(127);
}

static int spawn_launch(int sock, int listener, pid_t *ret, struct err *e)
{
	_cleanup_free_ char *path = NULL;
	_cleanup_fd_ int null = -1, aside = -1;
	sigset_t all, old;
	pid_t pid;
	int r = self_helper("airlock-launch", &path, e);

	if (r < 0)
		return r;
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	aside = null < 0 ? -1 : fcntl(null, F_DUPFD_CLOEXEC, FD_ASIDE);
	if (aside < 0)
		return err_sys(e, errno, "start %s: /dev/null", path);
	/* No handler of ours may run in the child, on our memory; launch clears the mask itself. */
	(void)sigfillset(&all);
	(void)sigprocmask(SIG_SETMASK, &all, &old);
	pid = vfork();
	if (pid == 0)
		become_launch(path, sock, listener, aside);
	r = pid < 0 ? errno : 0;
	(void)sigprocmask(SIG_SETMASK, &old, NULL);
	if (r)
		return err_sys(e, r, "start %s", path);
	*ret = pid;
	return 0;
}

static int get_error(struct view v, struct err *e)
{
	_cleanup_free_ char *text = NULL;
	struct cursor c;
	uint32_t code;

	cursor_init(&c, v.p, v.n);
	code = cursor_u32(&c);
	text = cursor_strdup(&c, 4096);
	if (!text || code == ERR_NONE || code >= ERR_CODE_COUNT)
		return err_set(e, ERR_PROTOCOL, "airlock-launch sent a malformed error");
	return err_set(e, (enum err_code)code, "%s", text);
}

/* A start that failed: the layers below the step are tried here, with the rights of the person who asks. */
static int get_step(struct view v, const struct plan *p, struct err *e)
{
	struct failure f;

	if (failure_get(v, &f) < 0)
		return err_set(e, ERR_PROTOCOL, "airlock-launch sent a malformed error");
	return step_explain(&f, p, e);
}

/* The first frame of airlock-launch: ready, or why not. */
static int await_ready(struct native *n, const struct plan *p, struct err *e)
{
	int fds[FRAME_FDS_MAX];
	struct frame f;
	struct cursor c;
	uint32_t version, landlock, limits;
	int r = chan_recv(&n->link.ch, native_after(START_TIMEOUT_MS + 2000), &f, fds, e);

	if (r == -EAGAIN)
		return err_set(e, ERR_TIMEOUT, "the sandbox was not ready within %d ms",
			       START_TIMEOUT_MS);
	if (r < 0)
		return r;
	if (r == 0)
		return err_set(e, ERR_UNAVAILABLE,
			       "airlock-launch ended before the sandbox was ready; `airlock "
			       "doctor` tries each layer");
	n->guest_pidfd = TAKE_FD(fds[0]);
	for (size_t i = 1; i < ARRAY_LEN(fds); i++)
		cleanup_fd(&fds[i]);
	if (f.type == GM_ERROR)
		return get_error(f.payload, e);
	if (f.type == GM_STEP)
		return get_step(f.payload, p, e);
	if (f.type == GM_ENDED)
		return err_set(
		    e, ERR_UNAVAILABLE,
		    "the guest program ended before it was ready; `airlock doctor` tries "
		    "each layer");
	cursor_init(&c, f.payload.p, f.payload.n);
	version = cursor_u32(&c);
	landlock = cursor_u32(&c);
	limits = cursor_u32(&c);
	if (f.type != GM_READY || !cursor_end(&c) || n->guest_pidfd < 0 ||
	    version != GUEST_PROTOCOL)
		return err_set(e, ERR_PROTOCOL,
			       "airlock-launch speaks another version: install Airlock again");
	/* A launcher from before there were any does not know the question. */
	n->has_sockets = limits & GR_SOCKETS;
	inforce_fill(&n->sb, p, landlock, limits);
	return 0;
}

/* Before anything else is asked for: what comes back here is no event. Fewer than wanted is no error. */
static int take_sockets(struct native *n, unsigned want, struct err *e)
{
	int fds[FRAME_FDS_MAX];
	struct frame f;
	int r;

	for (unsigned i = 0; i < want && i < PLAN_SOCKETS_MAX; i++) {
		r = chan_send(&n->link.ch, GM_SOCKET, NULL, 0, NULL, 0,
			      native_after(GUESTLINK_SEND_MS), e);
		if (r == 0)
			r = chan_recv(&n->link.ch, native_after(GUESTLINK_SEND_MS), &f, fds, e);
		if (r < 0)
			return r;
		if (r > 0 && f.type == GM_SOCKET_IS && fds[0] >= 0)
			n->socket[n->sockets++] = TAKE_FD(fds[0]);
		for (size_t k = 0; r > 0 && k < ARRAY_LEN(fds); k++)
			cleanup_fd(&fds[k]);
		if (r == 0 || f.type != GM_SOCKET_IS)
			return err_set(e, ERR_UNAVAILABLE,
				       "the sandbox ended while its network was set up");
		if (n->sockets <= i)
			break;
	}
	return 0;
}

void native_reap(struct native *n, bool force)
{
	if (n->child <= 0)
		return;
	/* Safe because: it is our child and not yet waited for, so the number is still its own. */
	if (force)
		(void)kill(n->child, SIGKILL);
	while (waitpid(n->child, NULL, 0) < 0 && errno == EINTR)
		;
	n->child = 0;
}

static int send_plan(struct native *n, const struct buf *b, struct err *e)
{
	return chan_send(&n->link.ch, GM_PLAN, b->data, b->len, NULL, 0,
			 native_after(GUESTLINK_SEND_MS), e);
}

/*
 * airlock-launch, with our end of its socket in a new struct native; the caller's to end even on failure, if it is there.
 * The plan waits in the socket when it starts: beside other
 * work on the machine, a process that sleeps for its plan is woken late.
 */
static int start_launch(const struct sandbox_spec *s, const struct plan *p, struct native **ret,
			struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(FRAME_MAX);
	_cleanup_fd_ int listener = -1, theirs = -1;
	struct native *n;
	int pair[2], r = plan_put(&b, p);

	if (r < 0)
		return err_sys(e, -r, "sandbox plan");
	if (s->keep) {
		r = make_listener(s->lease_dir, e);
		if (r < 0)
			return r;
		listener = fcntl(r, F_DUPFD_CLOEXEC, FD_ASIDE);
		(void)close(r);
	}
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, errno, "start sandbox: socket pair");
	theirs = fcntl(pair[1], F_DUPFD_CLOEXEC, FD_ASIDE);
	(void)close(pair[1]);
	n = new_native(pair[0]);
	if (!n) {
		(void)close(pair[0]);
		return err_set(e, ERR_NOMEM, "start sandbox: out of memory");
	}
	if (theirs < 0 || (s->keep && listener < 0))
		r = err_sys(e, errno, "start sandbox: descriptors");
	else
		r = b.len > PLAN_WAITS ? 0 : send_plan(n, &b, e);
	if (r == 0)
		r = spawn_launch(theirs, listener, &n->child, e);
	if (r < 0) {
		native_free(n);
		return r;
	}
	*ret = n;
	return b.len > PLAN_WAITS ? send_plan(n, &b, e) : 0;
}

static int make_storage(const struct plan *p, struct err *e)
{
	uid_t uid;
	gid_t gid;
	int r;

	provider_native.owner(&uid, &gid);
	r = storage_make(p->lease_dir, uid, gid, e);
	if (r == 0 && (p->without & WITHOUT_OVERLAY))
		r = native_copy_layers(p, e);
	return r;
}

static int finish_start(struct native *n, const struct plan *p, struct err *e)
{
	int r = chan_send(&n->link.ch, GM_STORAGE, NULL, 0, NULL, 0,
			  native_after(GUESTLINK_SEND_MS), e);

	/* An end of stream here has a reason, which launch has told. */
	if (r < 0 && r != -EPIPE)
		return r;
	/* While it works. */
	n->sb.monitor_pid = n->child;
	n->sb.monitor_start = start_time(n->child);
	return await_ready(n, p, e);
}

int native_acquire(const struct sandbox_spec *s, struct sandbox **ret, struct err *e)
{
	/* A copy of the workspace may take longer than launch waits. */
	bool early = !s->keep && !(s->without & WITHOUT_OVERLAY);
	struct native *n = NULL;
	struct plan p = {0};
	int r = files_check(e);

	if (r == 0)
		r = native_plan(s, &p, e);
	if (r == 0 && early)
		r = start_launch(s, &p, &n, e);
	if (r == 0)
		r = make_storage(&p, e);
	if (r == 0 && !early)
		r = start_launch(s, &p, &n, e);
	if (r == 0)
		r = finish_start(n, &p, e);
	if (r == 0 && p.sockets)
		r = take_sockets(n, n->has_sockets ? s->sockets : 0, e);
	plan_done(&p);
	if (r == 0) {
		*ret = &n->sb;
	} else if (n) {
		chan_done(&n->link.ch);
		native_reap(n, r == -ETIMEDOUT);
		native_free(n);
	}
	return r;
}

static int connect_control(const char *lease_dir, struct err *e)
{
	_cleanup_fd_ int dir = open(lease_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	_cleanup_fd_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un a;

	if (fd < 0)
		return err_sys(e, errno, "connect to the sandbox in %s", lease_dir);
	if (dir >= 0) {
		socket_address(dir, &a);
		if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
			return TAKE_FD(fd);
	}
	if (errno == ENOENT || errno == ECONNREFUSED) {
		(void)err_set(e, ERR_NOT_FOUND, "no sandbox is running for %s", lease_dir);
		return -ENOENT;
	}
	return err_sys(e, errno, "connect to the sandbox in %s", lease_dir);
}

int native_attach(const struct sandbox_spec *s, struct sandbox **ret, struct err *e)
{
	struct ucred cred = {0};
	socklen_t len = sizeof(cred);
	struct native *n = NULL;
	struct plan p;
	int fd, r = native_plan(s, &p, e);

	fd = r < 0 ? r : connect_control(p.lease_dir, e);
	if (fd >= 0) {
		n = new_native(fd);
		if (!n)
			(void)close(fd);
		r = n ? await_ready(n, &p, e) : err_set(e, ERR_NOMEM, "out of memory");
		if (r == 0 && p.sockets)
			r = take_sockets(n, n->has_sockets ? s->sockets : 0, e);
	} else {
		r = fd;
	}
	plan_done(&p);
	if (r < 0 || !n) {
		if (n)
			native_free(n);
		return r;
	}
	/* The launcher has called listen itself: the credentials are its own. */
	(void)getsockopt(n->link.ch.fd, SOL_SOCKET, SO_PEERCRED, &cred, &len);
	n->sb.monitor_pid = cred.pid;
	n->sb.monitor_start = start_time(cred.pid);
	*ret = &n->sb;
	return 0;
}
