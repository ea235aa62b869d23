#include "guest_box.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"

#define LIMIT_NS (60 * NS_PER_S) /* without a byte or an event */
#define OUT_MAX (64u << 20)

unsigned box_uid, box_nproc;

static void put_file(const char *path, const char *text)
{
	_cleanup_fd_ int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd >= 0)
		(void)!write(fd, text, strlen(text));
}

static void enter_namespaces(void)
{
	char map[64];
	uid_t uid = getuid();
	gid_t gid = getgid();

	if (unshare((uid ? CLONE_NEWUSER : 0) | CLONE_NEWPID | CLONE_NEWNS) < 0)
		_exit(99);
	if (uid) {
		put_file("/proc/self/setgroups", "deny");
		(void)snprintf(map, sizeof(map), "%u %u 1", uid, uid);
		put_file("/proc/self/uid_map", map);
		(void)snprintf(map, sizeof(map), "%u %u 1", gid, gid);
		put_file("/proc/self/gid_map", map);
	}
}

static _Noreturn void become_guest(enum box_mode mode, int sock, int upper)
{
	static char *const argv[] = {(char *)(uintptr_t) "airlock-guest", NULL};
	static char *const env[] = {NULL};
	int status;
	pid_t pid;

	/* The driver may die by assertion; nothing may stay. */
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (mode == BOX_PID1) {
		enter_namespaces();
		pid = fork();
		if (pid > 0) {
			(void)close(sock);
			while (waitpid(pid, &status, 0) < 0)
				;
			_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 98);
		}
		if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		    mount("proc", "/proc", "proc", 0, NULL) < 0)
			_exit(97);
	}
	/* dup2 of a descriptor to itself would leave close-on-exec set. */
	if (upper >= 0)
		upper = fcntl(upper, F_DUPFD, 10);
	sock = fcntl(sock, F_DUPFD, 10);
	(void)close(GUEST_FD_UPPER);
	if (dup2(sock, GUEST_FD_SOCKET) < 0 || (upper >= 0 && dup2(upper, GUEST_FD_UPPER) < 0))
		_exit(96);
	if (box_uid) {
		struct rlimit l = {box_nproc, box_nproc};

		if (setrlimit(RLIMIT_NPROC, &l) < 0 || setgid(box_uid) < 0 || setuid(box_uid) < 0)
			_exit(94);
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	}
	(void)execve(GUEST_PROGRAM, argv, env);
	_exit(95);
}

void box_start(struct box *b, enum box_mode mode, int upper)
{
	struct frame f;
	int sv[2];

	*b = (struct box){.cmds = calloc(BOX_CMDS, sizeof(*b->cmds))};
	assert_non_null(b->cmds);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
	b->pid = fork();
	assert_true(b->pid >= 0);
	if (b->pid == 0)
		become_guest(mode, sv[1], upper);
	(void)close(sv[1]);
	chan_init(&b->chan, sv[0], false);
	assert_int_equal(chan_recv(&b->chan, clock_mono_ns() + LIMIT_NS, &f, NULL, NULL), 1);
	assert_int_equal(f.type, GM_READY);
	assert_int_equal(f.payload.n, 4);
	assert_int_equal(f.payload.p[0], GUEST_PROTOCOL);
}

void box_send(struct box *b, uint8_t type, const struct buf *payload)
{
	assert_int_equal(chan_send(&b->chan, type, buf_text(payload), payload->len, NULL, 0,
				   clock_mono_ns() + LIMIT_NS, NULL),
			 0);
}

static struct box_cmd *new_cmd(struct box *b)
{
	struct box_cmd *c;

	assert_true(b->n < BOX_CMDS);
	c = &b->cmds[b->n++];
	*c = (struct box_cmd){.id = (uint32_t)b->n, .in = -1, .out = -1, .err = -1};
	buf_init(&c->got_out, OUT_MAX);
	buf_init(&c->got_err, OUT_MAX);
	return c;
}

/* ours: our end of a pipe; returns the command's end. */
static int pipe_for(int *ours, int mine)
{
	int p[2];

	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	*ours = p[mine];
	assert_int_equal(fcntl(*ours, F_SETFL, O_NONBLOCK), 0);
	return p[!mine];
}

struct box_cmd *box_exec(struct box *b, char *const *argv, char *const *env, const char *cwd,
			 const char *input, size_t input_len, unsigned flags)
{
	static char *const none[] = {NULL};
	_cleanup_buf_ struct buf p = BUF_INIT(FRAME_MAX);
	struct box_cmd *c = new_cmd(b);
	struct gm_exec x = {.id = c->id, .argv = (char **)(uintptr_t)argv};
	int fds[3];

	x.env = (char **)(uintptr_t)(env ? env : none);
	x.cwd = (char *)(uintptr_t)(cwd ? cwd : "/");
	if (flags & BOX_TTY) {
		x.flags = GX_TTY;
		x.rows = 24;
		x.cols = 80;
	}
	fds[0] = pipe_for(&c->in, 1);
	fds[1] = pipe_for(&c->out, 0);
	fds[2] = pipe_for(&c->err, 0);
	c->input = input;
	c->input_left = input_len;
	if (!input && !(flags & BOX_TTY))
		cleanup_fd(&c->in);
	assert_int_equal(gm_exec_put(&p, &x), 0);
	assert_int_equal(chan_send(&b->chan, GM_EXEC, p.data, p.len, fds,
				   flags & BOX_NO_STDERR ? 2 : 3, clock_mono_ns() + LIMIT_NS, NULL),
			 0);
	for (int i = 0; i < 3; i++)
		(void)close(fds[i]);
	return c;
}

static char *const sh_env[] = {(char *)(uintptr_t) "PATH=/usr/local/bin:/usr/bin:/bin", NULL};

struct box_cmd *box_sh(struct box *b, const char *script)
{
	char *argv[] = {(char *)(uintptr_t) "sh", (char *)(uintptr_t) "-c",
			(char *)(uintptr_t)script, NULL};

	return box_exec(b, argv, sh_env, NULL, NULL, 0, 0);
}

struct box_cmd *box_pack(struct box *b)
{
	_cleanup_buf_ struct buf p = BUF_INIT(16);
	struct box_cmd *c = new_cmd(b);
	int out = pipe_for(&c->out, 0);

	(void)buf_u32(&p, c->id);
	assert_int_equal(chan_send(&b->chan, GM_PACK, p.data, p.len, &out, 1,
				   clock_mono_ns() + LIMIT_NS, NULL),
			 0);
	(void)close(out);
	return c;
}

void box_signal(struct box *b, const struct box_cmd *c, int signo)
{
	_cleanup_buf_ struct buf p = BUF_INIT(16);

	assert_int_equal(gm_signal_put(&p, &(struct gm_signal){c->id, (uint32_t)signo}), 0);
	box_send(b, GM_SIGNAL, &p);
}

static struct box_cmd *by_id(struct box *b, uint32_t id)
{
	assert_true(id >= 1 && id <= b->n);
	return &b->cmds[id - 1];
}

/* The first field of every event but PONG is the id; nothing may follow an id's last event. */
static void on_event(struct box *b, const struct frame *f)
{
	struct box_cmd *c;
	struct cursor k;

	if (f->type == GM_PONG) {
		b->pongs++;
		return;
	}
	cursor_init(&k, f->payload.p, f->payload.n);
	c = by_id(b, cursor_u32(&k));
	if (c->exited || c->failed || c->packed)
		c->after_last = true;
	switch (f->type) {
	case GM_STARTED:
		c->started = true;
		c->pid = cursor_u32(&k);
		assert_true(cursor_end(&k));
		break;
	case GM_FAILED:
		c->failed = true;
		assert_int_equal(gm_failed_get(f->payload, &c->why), 0);
		break;
	case GM_EXITED:
		c->exited = true;
		assert_int_equal(gm_exited_get(f->payload, &c->exit), 0);
		break;
	case GM_PACKED:
		c->packed = true;
		assert_int_equal(gm_packed_get(f->payload, &c->pack), 0);
		break;
	default:
		fail_msg("event of type %u", f->type);
	}
}

static void take(int *fd, struct buf *to)
{
	char *at = buf_room(to, 65536);
	ssize_t n;

	assert_non_null(at);
	n = read(*fd, at, 65536);
	if (n > 0)
		buf_add(to, (size_t)n);
	else if (n == 0 || (errno != EAGAIN && errno != EINTR))
		cleanup_fd(fd);
}

static void give(struct box_cmd *c)
{
	ssize_t n = write(c->in, c->input, c->input_left);

	if (n >= 0) {
		c->input += n;
		c->input_left -= (size_t)n;
	} else if (errno == EPIPE) {
		c->input_broke = true;
		c->input_left = 0;
	}
	if (!c->input_left)
		cleanup_fd(&c->in);
}

static void serve_cmd(struct box_cmd *c, const struct pollfd *p)
{
	if (p[0].fd >= 0 && p[0].revents)
		give(c);
	if (p[1].fd >= 0 && p[1].revents)
		take(&c->out, &c->got_out);
	if (p[2].fd >= 0 && p[2].revents)
		take(&c->err, &c->got_err);
}

bool box_turn(struct box *b, int64_t deadline_ns)
{
	static struct pollfd p[1 + 3 * BOX_CMDS];
	int64_t now = clock_mono_ns();
	struct frame f;
	int r;

	if (now >= deadline_ns)
		return false;
	p[0] = (struct pollfd){.fd = b->eof ? -1 : b->chan.fd, .events = POLLIN};
	for (size_t i = 0; i < b->n; i++) {
		struct box_cmd *c = &b->cmds[i];

		p[1 + 3 * i] = (struct pollfd){.fd = c->input_left ? c->in : -1, .events = POLLOUT};
		p[2 + 3 * i] = (struct pollfd){.fd = c->hold_out ? -1 : c->out, .events = POLLIN};
		p[3 + 3 * i] = (struct pollfd){.fd = c->hold_out ? -1 : c->err, .events = POLLIN};
	}
	(void)poll(p, 1 + 3 * b->n, clock_poll_ms(deadline_ns, now));
	for (size_t i = 0; i < b->n; i++)
		serve_cmd(&b->cmds[i], p + 1 + 3 * i);
	while (!b->eof && (r = chan_recv(&b->chan, 0, &f, NULL, NULL)) != -EAGAIN) {
		b->eof = r <= 0;
		if (r == 1)
			on_event(b, &f);
	}
	return true;
}

void box_finish(struct box *b, struct box_cmd *c)
{
	int64_t end = clock_mono_ns() + LIMIT_NS;
	size_t seen = 0;

	while (!(c->exited || c->failed || c->packed) ||
	       (!c->hold_out && (c->out >= 0 || c->err >= 0))) {
		/* A slow machine packs for long: it must only not stand still. */
		if (c->got_out.len + c->got_err.len + c->started != seen) {
			seen = c->got_out.len + c->got_err.len + c->started;
			end = clock_mono_ns() + LIMIT_NS;
		}
		if (!box_turn(b, end))
			fail_msg(
			    "command %u does not end: started %d exited %d failed %d out %d err %d",
			    c->id, c->started, c->exited, c->failed, c->out, c->err);
	}
	assert_false(c->after_last);
}

struct box_cmd *box_run(struct box *b, const char *script)
{
	struct box_cmd *c = box_sh(b, script);

	box_finish(b, c);
	return c;
}

void box_expect(struct box *b, struct box_cmd *c, const char *text)
{
	int64_t end = clock_mono_ns() + LIMIT_NS;

	while (!strstr(buf_text(&c->got_out), text))
		if (!box_turn(b, end))
			fail_msg("no \"%s\" in \"%s\"", text, buf_text(&c->got_out));
}

int box_stop(struct box *b)
{
	int64_t end = clock_mono_ns() + LIMIT_NS;
	int status = -1;

	if (!b->eof)
		(void)chan_send(&b->chan, GM_SHUTDOWN, "", 0, NULL, 0, end, NULL);
	while (!b->eof && box_turn(b, end))
		;
	assert_true(b->eof);
	assert_int_equal(waitpid(b->pid, &status, 0), b->pid);
	for (size_t i = 0; i < b->n; i++) {
		struct box_cmd *c = &b->cmds[i];

		cleanup_fd(&c->in);
		cleanup_fd(&c->out);
		cleanup_fd(&c->err);
		buf_done(&c->got_out);
		buf_done(&c->got_err);
	}
	chan_done(&b->chan);
	free(b->cmds);
	return status;
}

bool box_alive(const char *word)
{
	_cleanup_dir_ DIR *d = opendir("/proc");
	struct dirent *e;

	assert_non_null(d);
	while ((e = readdir(d))) {
		char path[300], text[4096];
		_cleanup_fd_ int fd = -1;
		uint64_t pid;
		ssize_t n;

		if (str_to_u64(e->d_name, INT32_MAX, &pid) < 0)
			continue;
		(void)snprintf(path, sizeof(path), "/proc/%s/cmdline", e->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		n = fd < 0 ? 0 : read(fd, text, sizeof(text));
		/* A zombie has no command line. */
		if (n > 0 && memmem(text, (size_t)n, word, strlen(word)))
			return true;
	}
	return false;
}
