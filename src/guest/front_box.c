#include "guest/front_box.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/limits.h"
#include "guest/fork.h"
#include "wire/guest.h"
#include "wire/remote_box.h"

#define FD_OWNER 3 /* as in provider/native/launch_fds.h */
#define FD_ASIDE 10
#define SEND_MS 10000

extern char **environ;

void front_box_init(struct front_box *b)
{
	*b = (struct front_box){0};
	chan_init(&b->ch, -1, true);
}

static int failed(char *what, int error, const char *step, const char *name)
{
	(void)snprintf(what, RM_WHAT_MAX + 1, "%s %.200s", step, name);
	return -error;
}

/* Where a descriptor leads, links resolved. NULL: nowhere that has a name. */
static char *path_of(int fd)
{
	char link[64], path[PATH_MAX];
	ssize_t n;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n <= 0 || path[0] != '/')
		return NULL;
	path[n] = '\0';
	return strdup(path);
}

static char *program(const char *dir, const char *kind, const char *hash)
{
	char *path = NULL;

	return asprintf(&path, "%s/%s-%s", dir, kind, hash) < 0 ? NULL : path;
}

/* What only this side knows. */
static int place(struct rm_box *m, const struct front_place *p, char **ret_launch)
{
	_cleanup_free_ char *dir = p->programs < 0 ? NULL : path_of(p->programs);
	char self[PATH_MAX];

	if (!dir || front_place_self(self, sizeof(self)) < 0)
		return -ENOENT;
	free(m->run);
	free(m->guest);
	m->run = path_of(p->run);
	m->guest = strdup(self);
	*ret_launch = program(dir, "launch", m->launch);
	if (m->gateway[0]) {
		free(m->gateway_path);
		m->gateway_path = program(dir, "gateway", m->gateway);
	}
	return m->run && m->guest && m->gateway_path && *ret_launch ? 0 : -ENOMEM;
}

/* Its streams are nobody's: what it has to say goes over the socket. */
static _Noreturn void run_launch(const char *path, int sock, int lock)
{
	char *const argv[] = {(char *)(uintptr_t)path, (char *)(uintptr_t)LAUNCH_WORD, NULL};
	int null = open("/dev/null", O_RDWR);
	int a = fcntl(sock, F_DUPFD, FD_ASIDE), b = fcntl(lock, F_DUPFD, FD_ASIDE);

	for (int fd = 0; fd < FD_OWNER && null >= 0; fd++)
		(void)dup2(null, fd);
	if (a < 0 || b < 0 || dup2(a, FD_OWNER) < 0 || dup2(b, LAUNCH_FD_HELD) < 0)
		_exit(126);
	fork_close((int[]){FD_OWNER, LAUNCH_FD_HELD}, 2);
	(void)execve(path, argv, environ);
	_exit(127);
}

int front_box_start(struct front_box *b, const struct front_place *p, struct view v, char *what)
{
	_cleanup_buf_ struct buf out = BUF_INIT(FRAME_MAX);
	_cleanup_free_ char *path = NULL;
	int64_t until = clock_mono_ns() + SEND_MS * NS_PER_MS;
	struct rm_box m = {0};
	int sv[2], r = rm_box_get(v, &m);

	if (r == 0) {
		r = place(&m, p, &path);
		r = r < 0 ? failed(what, -r, "find the place of", "the programs and the run")
			  : rm_box_put(&out, &m);
	}
	rm_box_done(&m);
	if (r < 0)
		return r;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) < 0)
		return failed(what, errno, "start", path);
	b->pid = fork();
	if (b->pid == 0)
		run_launch(path, sv[1], p->lock);
	(void)close(sv[1]);
	/* The guest's pidfd comes with READY, and is closed: whether the sandbox has ended the launcher says, and its own end. */
	chan_init(&b->ch, sv[0], true);
	if (b->pid < 0)
		return failed(what, errno, "start", path);
	r = chan_send(&b->ch, GM_PLAN, out.data, out.len, NULL, 0, until, NULL);
	/* It makes the storage itself. */
	if (r == 0)
		r = chan_send(&b->ch, GM_STORAGE, NULL, 0, NULL, 0, until, NULL);
	return r < 0 ? failed(what, -r, "start", path) : 0;
}

/* GM_STEP: u32 step, u32 errno, string object. GM_ERROR: u32 code, string text. */
static int explain(const struct frame *f, struct buf *out)
{
	struct rm_not_boxed m = {0};
	struct cursor c;
	int r;

	cursor_init(&c, f->payload.p, f->payload.n);
	m.step = f->type == GM_STEP ? cursor_u32(&c) : 0;
	m.error = cursor_u32(&c);
	m.text = cursor_strdup(&c, sizeof(((struct err *)0)->text));
	r = m.text && cursor_end(&c) ? rm_not_boxed_put(out, &m) : -EPROTO;
	free(m.text);
	return r;
}

bool front_box_answer(struct front_box *b, const struct frame *f, uint8_t *ret_type,
		      struct buf *out)
{
	struct cursor c;
	uint32_t landlock, limits;

	if (f->type == GM_STEP || f->type == GM_ERROR) {
		*ret_type = RM_NOT_BOXED;
		return explain(f, out) == 0;
	}
	cursor_init(&c, f->payload.p, f->payload.n);
	if (f->type != GM_READY || cursor_u32(&c) != GUEST_PROTOCOL)
		return false;
	landlock = cursor_u32(&c);
	limits = cursor_u32(&c);
	if (!cursor_end(&c))
		return false;
	*ret_type = RM_BOXED;
	(void)buf_u32(out, landlock);
	(void)buf_u32(out, limits);
	(void)buf_u32(out, geteuid() == 0);
	b->up = true;
	return out->err == 0;
}
