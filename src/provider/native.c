/*
 * The native provider: sandboxes of this machine's kernel.
 *
 * Each sandbox is one airlock-launch process, which is trusted, and below it a guest, which is not. This
 * side speaks only to airlock-launch; the one descriptor it takes from there is the pidfd of the
 * guest, with which a release proves that every process has ended.
 */
#include "provider/native.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/path.h"
#include "base/str.h"
#include "os/files.h"
#include "os/chan.h"
#include "os/self.h"
#include "provider/native/launch_fds.h"
#include "provider/native/step.h"
#include "provider/native_storage.h"
#include "wire/guest.h"

#define FD_ASIDE 10
#define SEND_WAIT_MS 5000
#define END_WAIT_MS 4000   /* airlock-launch kills after 1.5 s by itself */
#define SWEEP_BUDGET 20000 /* entries removed from the trash by one destroy */

struct native {
	struct sandbox sb;
	struct chan ch;
	int guest_pidfd; /* -1 before READY */
	pid_t child;	 /* airlock-launch, if this process started it; 0: attached */
	uint32_t next_id, oom_seen, oom_new;
	bool ended;
};

static struct native *native_of(struct sandbox *sb)
{
	return (struct native *)sb;
}

static int64_t after(int64_t ms)
{
	return clock_mono_ns() + ms * NS_PER_MS;
}

static int validate(const struct sandbox_spec *s, struct err *e)
{
	struct plan p;
	int r = native_plan(s, &p, e);

	plan_done(&p);
	return r;
}

static void owner(uid_t *uid, gid_t *gid)
{
	*uid = geteuid() == 0 ? SANDBOX_UID : (uid_t)-1;
	*gid = geteuid() == 0 ? SANDBOX_UID : (gid_t)-1;
}

static void free_native(struct native *n)
{
	chan_done(&n->ch);
	cleanup_fd(&n->guest_pidfd);
	free(n);
}

static struct native *new_native(int fd)
{
	struct native *n = calloc(1, sizeof(*n));

	if (!n)
		return NULL;
	n->sb.ops = &provider_native;
	n->guest_pidfd = -1;
	n->next_id = 1;
	chan_init(&n->ch, fd, true);
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
	int r = chan_recv(&n->ch, after(START_TIMEOUT_MS + 2000), &f, fds, e);

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
	native_isolation(&n->sb, p, landlock, limits);
	return 0;
}

static void reap_launch(struct native *n, bool force)
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

static int start(const struct plan *p, struct native **ret, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(FRAME_MAX);
	_cleanup_fd_ int listener = -1, theirs = -1, moved = -1;
	struct native *n;
	int pair[2], r;

	r = files_check(e);
	if (r < 0)
		return r;
	r = plan_put(&b, p);
	if (r < 0)
		return err_sys(e, -r, "sandbox plan");
	if (p->keep) {
		r = make_listener(p->lease_dir, e);
		if (r < 0)
			return r;
		listener = fcntl(r, F_DUPFD_CLOEXEC, FD_ASIDE);
		(void)close(r);
	}
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, errno, "start sandbox: socket pair");
	n = new_native(pair[0]);
	theirs = pair[1];
	if (!n) {
		(void)close(pair[0]);
		return err_set(e, ERR_NOMEM, "start sandbox: out of memory");
	}
	moved = fcntl(theirs, F_DUPFD_CLOEXEC, FD_ASIDE);
	if (moved < 0 || (p->keep && listener < 0))
		r = err_sys(e, errno, "start sandbox: descriptors");
	else
		r = spawn_launch(moved, listener, &n->child, e);
	cleanup_fd(&theirs);
	cleanup_fd(&moved);
	if (r == 0)
		r = chan_send(&n->ch, GM_PLAN, b.data, b.len, NULL, 0, after(SEND_WAIT_MS), e);
	if (r == 0)
		r = await_ready(n, p, e);
	if (r < 0) {
		chan_done(&n->ch);
		reap_launch(n, r == -ETIMEDOUT);
		free_native(n);
		return r;
	}
	n->sb.monitor_pid = n->child;
	n->sb.monitor_start = start_time(n->child);
	*ret = n;
	return 0;
}

static int acquire(const struct sandbox_spec *s, struct sandbox **ret, struct err *e)
{
	struct native *n = NULL;
	struct plan p;
	uid_t uid;
	gid_t gid;
	int r = native_plan(s, &p, e);

	owner(&uid, &gid);
	if (r == 0)
		r = storage_make(p.lease_dir, uid, gid, e);
	if (r == 0 && (p.without & WITHOUT_OVERLAY))
		r = native_copy_layers(&p, e);
	if (r == 0)
		r = start(&p, &n, e);
	plan_done(&p);
	if (r == 0)
		*ret = &n->sb;
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

static int attach(const struct sandbox_spec *s, struct sandbox **ret, struct err *e)
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
	} else {
		r = fd;
	}
	plan_done(&p);
	if (r < 0 || !n) {
		if (n)
			free_native(n);
		return r;
	}
	/* The launcher has called listen itself: the credentials are its own. */
	(void)getsockopt(n->ch.fd, SOL_SOCKET, SO_PEERCRED, &cred, &len);
	n->sb.monitor_pid = cred.pid;
	n->sb.monitor_start = start_time(cred.pid);
	*ret = &n->sb;
	return 0;
}

static int event_fd(struct sandbox *sb)
{
	return native_of(sb)->ch.fd;
}

static int get_event(struct native *n, const struct frame *f, struct sandbox_event *ev)
{
	struct gm_exited x;
	struct gm_failed fl;
	struct gm_packed pk;
	struct cursor c;
	uint32_t kills;

	switch (f->type) {
	case GM_STARTED:
		cursor_init(&c, f->payload.p, f->payload.n);
		ev->type = SE_STARTED;
		ev->id = cursor_u32(&c);
		(void)cursor_u32(&c);
		return cursor_end(&c) ? 1 : -EPROTO;
	case GM_FAILED:
		if (gm_failed_get(f->payload, &fl) < 0)
			return -EPROTO;
		*ev = (struct sandbox_event){.type = SE_FAILED, .id = fl.id, .sys = (int)fl.error};
		(void)snprintf(ev->step, sizeof(ev->step), "%s", fl.step);
		return 1;
	case GM_EXITED:
		if (gm_exited_get(f->payload, &x) < 0)
			return -EPROTO;
		*ev = (struct sandbox_event){.type = SE_EXITED,
					     .id = x.id,
					     .code = (int)x.code,
					     .signo = (int)x.signo,
					     .leftovers = x.leftovers,
					     .oom_kills = n->oom_new,
					     .cpu_ns = x.cpu_ns,
					     .maxrss_kib = x.maxrss_kib};
		n->oom_new = 0;
		return 1;
	case GM_PACKED:
		if (gm_packed_get(f->payload, &pk) < 0)
			return -EPROTO;
		*ev = (struct sandbox_event){.type = SE_PACKED,
					     .id = pk.id,
					     .sys = (int)pk.error,
					     .members = pk.members,
					     .unreadable = pk.unreadable,
					     .left_out = pk.left_out};
		return 1;
	case GM_OOM:
		cursor_init(&c, f->payload.p, f->payload.n);
		kills = cursor_u32(&c);
		n->oom_new += kills - n->oom_seen;
		n->oom_seen = kills;
		return cursor_end(&c) ? 0 : -EPROTO;
	case GM_READY:
	case GM_PONG:
		return 0;
	case GM_ENDED:
		ev->type = SE_ENDED;
		n->ended = true;
		return 1;
	default:
		return -EPROTO;
	}
}

static int next_event(struct sandbox *sb, struct sandbox_event *ret, struct err *e)
{
	struct native *n = native_of(sb);
	struct frame f;
	int r;

	if (n->ended)
		return 0;
	for (;;) {
		*ret = (struct sandbox_event){0};
		r = chan_recv(&n->ch, 0, &f, NULL, e);
		if (r == -EAGAIN)
			return 0;
		if (r < 0)
			return r;
		if (r == 0) {
			/* airlock-launch was killed; its death took the sandbox with it. */
			n->ended = true;
			ret->type = SE_ENDED;
			return 1;
		}
		r = get_event(n, &f, ret);
		if (r == -EPROTO)
			return err_set(e, ERR_PROTOCOL, "airlock-launch sent a malformed event");
		if (r > 0)
			return 1;
	}
}

static int request(struct native *n, uint8_t type, const struct buf *b, const int *fds, size_t nfds,
		   struct err *e)
{
	if (b->err)
		return err_sys(e, -b->err, "request to the sandbox");
	return chan_send(&n->ch, type, b->data, b->len, fds, nfds, after(SEND_WAIT_MS), e);
}

static int exec(struct sandbox *sb, const struct exec_spec *x, uint32_t *ret_id, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(FRAME_MAX);
	struct native *n = native_of(sb);
	const int fds[3] = {x->in, x->out, x->err < 0 ? x->out : x->err};
	union {
		const char *c;
		char *p;
	} cwd = {.c = x->cwd};
	struct gm_exec m = {
	    .id = n->next_id,
	    .flags = x->tty ? GX_TTY : 0,
	    .rows = x->rows,
	    .cols = x->cols,
	    .cwd = cwd.p,
	    .argv = (char **)(uintptr_t)x->argv,
	    .env = (char **)(uintptr_t)x->env,
	};
	int r = gm_exec_put(&b, &m);

	if (r < 0)
		return err_sys(e, -r,
			       "command not started: at most %d words, %d variables NAME=VALUE, %d "
			       "bytes each and %d in all; cwd absolute",
			       ARGV_MAX, ENV_MAX, ENV_VALUE_MAX, FRAME_MAX);
	r = request(n, GM_EXEC, &b, fds, 3, e);
	if (r == 0)
		*ret_id = n->next_id++;
	return r;
}

static int signal_command(struct sandbox *sb, uint32_t id, int signo, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);

	if (gm_signal_put(&b, &(struct gm_signal){.id = id, .signo = (uint32_t)signo}) < 0)
		return err_set(e, ERR_INVALID, "signal %d does not exist", signo);
	return request(native_of(sb), GM_SIGNAL, &b, NULL, 0, e);
}

static int winsize(struct sandbox *sb, uint32_t id, unsigned rows, unsigned cols)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);
	int r = gm_winsize_put(&b, &(struct gm_winsize){.id = id, .rows = rows, .cols = cols});

	return r < 0 ? r : request(native_of(sb), GM_WINSIZE, &b, NULL, 0, NULL);
}

static int pack(struct sandbox *sb, int out_fd, uint32_t *ret_id, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);
	struct native *n = native_of(sb);
	int r;

	(void)buf_u32(&b, n->next_id);
	r = request(n, GM_PACK, &b, &out_fd, 1, e);
	if (r == 0)
		*ret_id = n->next_id++;
	return r;
}

/* Readable: pid 1 and with it every process of the sandbox has ended. */
static bool guest_ended(const struct native *n, int64_t deadline_ns)
{
	struct pollfd p = {.fd = n->guest_pidfd, .events = POLLIN};
	int r;

	do {
		r = poll(&p, 1, clock_poll_ms(deadline_ns, clock_mono_ns()));
	} while (r < 0 && errno == EINTR);
	return r > 0;
}

static void wait_end_of_launch(struct native *n, int64_t deadline_ns)
{
	struct frame f;

	while (chan_recv(&n->ch, deadline_ns, &f, NULL, NULL) > 0)
		if (f.type == GM_ENDED)
			return;
}

static int release(struct sandbox *sb, struct err *e)
{
	const struct buf none = BUF_INIT(1);
	struct native *n = native_of(sb);
	int64_t deadline = after(END_WAIT_MS);
	bool gone;

	if (!n->ended) {
		(void)request(n, GM_SHUTDOWN, &none, NULL, 0, NULL);
		wait_end_of_launch(n, deadline);
	}
	gone = guest_ended(n, clock_mono_ns());
	if (!gone) {
		/* launch hangs or was killed. As its parent, or as the sandbox's owner, we end it ourselves. */
		reap_launch(n, true);
		(void)syscall(SYS_pidfd_send_signal, n->guest_pidfd, SIGKILL, NULL, 0);
		gone = guest_ended(n, after(END_WAIT_MS));
	}
	chan_done(&n->ch);
	reap_launch(n, false);
	free_native(n);
	return gone
		   ? 0
		   : err_set(e, ERR_INTERNAL,
			     "a sandbox did not end within %d ms after KILL: a process of it hangs "
			     "in the kernel",
			     END_WAIT_MS);
}

static void detach(struct sandbox *sb)
{
	free_native(native_of(sb));
}

static int destroy_storage(const char *lease_dir, struct err *e)
{
	_cleanup_free_ char *trash = path_join(lease_dir, "../../trash");

	return storage_destroy(lease_dir, trash, SWEEP_BUDGET, e);
}

const struct provider_ops provider_native = {
    .name = "native",
    .isolates = true,
    .in_place = false,
    .statement = "Sandbox of this machine's kernel: own namespaces, system call filter, no "
		 "capabilities, read-only system, private home.",
    .validate = validate,
    .owner = owner,
    .acquire = acquire,
    .attach = attach,
    .event_fd = event_fd,
    .next_event = next_event,
    .exec = exec,
    .signal = signal_command,
    .winsize = winsize,
    .pack = pack,
    .release = release,
    .detach = detach,
    .destroy_storage = destroy_storage,
};
