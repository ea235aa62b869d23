#include "sync/gitref.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"

#define ORDERS_MAX \
	4096 /* PIPE_BUF: fits into the pipe before anybody reads; names of refs are shorter */
#define ANSWERS_MAX 4096
#define PREPARED "prepare: ok\n"

struct talk {
	int to; /* owned: git's input; -1: the last word is said */
	struct buf answers;
};

static int say(int fd, const void *p, size_t n)
{
	ssize_t k;

	do {
		k = write(fd, p, n);
	} while (k < 0 && errno == EINTR);
	return k < 0 ? -errno : (size_t)k == n ? 0 : -EIO;
}

/* git has the lock and has compared: now, and only by us, it is made true. */
static int hear(void *arg, const char *p, size_t n)
{
	static const char last[] = "commit";
	struct talk *t = arg;
	int r = buf_put(&t->answers, p, n);

	if (r < 0 || t->to < 0 || !strstr(buf_text(&t->answers), PREPARED))
		return r;
	r = say(t->to, last, sizeof(last));
	cleanup_fd(&t->to);
	return r == -EPIPE ? 0 : r; /* it ended: its status says why */
}

static int put_word(struct buf *b, const char *s)
{
	return buf_put(b, s, strlen(s) + 1);
}

/* "update NAME" NUL new NUL old NUL: an old one that is empty is not compared. */
static int orders(struct buf *b, const struct git_repo *g, const char *name, const char *to,
		  const char *old)
{
	char none[65] = "";

	if (old && !old[0]) {
		memset(none, '0', g->sha256 ? 64 : 40);
		none[g->sha256 ? 64 : 40] = '\0';
		old = none;
	}
	(void)put_word(b, "start");
	(void)buf_puts(b, "update ");
	(void)put_word(b, name);
	(void)put_word(b, to);
	(void)put_word(b, old ? old : "");
	return put_word(b, "prepare");
}

int gitref_set(const struct git_repo *g, const char *name, const char *to, const char *old,
	       const char *message, const char *const *extra_env, struct err *e)
{
	const char *words[] = {"update-ref", "-m", message, "-z", "--stdin", NULL};
	_cleanup_buf_ struct buf b = BUF_INIT(ORDERS_MAX);
	struct talk t = {.to = -1, .answers = BUF_INIT(ANSWERS_MAX)};
	struct process_opts io = PROCESS_OPTS_INIT;
	_cleanup_fd_ int from = -1;
	int p[2], status = 0, r = orders(&b, g, name, to, old);

	if (r == 0 && pipe2(p, O_CLOEXEC) < 0)
		r = -errno;
	if (r < 0)
		return err_sys(e, -r, "set %.200s", name);
	from = p[0];
	t.to = p[1];
	io.in_fd = from;
	io.on_out = hear;
	io.on_out_arg = &t;
	r = say(t.to, b.data, b.len);
	if (r == 0)
		r = git_try(g, words, extra_env, &io, &status, e);
	else
		(void)err_sys(e, -r, "set %.200s", name);
	/* Without the last word git ends well too, but has set nothing. */
	if (r == 0)
		r = !status && t.to < 0;
	cleanup_fd(&t.to);
	buf_done(&t.answers);
	return r;
}
