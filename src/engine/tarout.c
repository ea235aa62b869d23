#include "engine/tarout.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/str.h"
#include "engine/runenv.h"
#include "engine/ui.h"

#define HEAR_MAX 64 /* pieces at once: one that never stops talking is no reason to stay */

/*
 * For a machine that is not ours, whose tar may know no --exclude (busybox). Then names at the top are words, and more than the system
 * takes fail, which is told; nothing at all is an archive too. A pattern of the shell's hides that the directory cannot be read, and
 * then nothing would stand for everything deleted: ls says so, before and after.
 */
#define ANY_TAR                                                                                              \
	"x=--exclude=./.git; tar -cf - $x /dev/null >/dev/null 2>&1 && exec tar -C \"$0\" -cf - $x .; "      \
	"cd \"$0\" || exit 2; ls -a . >/dev/null || exit 2; set --; for x in * .[!.]* ..?*; do "             \
	"if test -e \"$x\" || test -L \"$x\"; then test \"$x\" = .git || set -- \"$@\" \"./$x\"; fi; done; " \
	"ls -a . >/dev/null || exit 2; "                                                                     \
	"test $# -gt 0 || exec head -c 10240 /dev/zero; exec tar -cf - \"$@\""

int tarout_start(struct tarout *t, struct sandbox *sb, int out_fd, struct err *e)
{
	/* The repository has a way of its own (sync/gitback.h); its members would all be refused. */
	const char *const argv[] = {"tar", "-C", sb->inside, "-cf", "-", "--exclude=./.git",
				    ".",   NULL};

	const char *const any[] = {"/bin/sh", "-c", ANY_TAR, sb->inside, NULL};

	return tarout_exec(t, sb, sb->ops->pack ? argv : any, -1, out_fd, e);
}

int tarout_exec(struct tarout *t, struct sandbox *sb, const char *const *argv, int in, int out,
		struct err *e)
{
	static const char *const env[] = {"PATH=" PATH_SYSTEM, "HOME=" INSIDE_HOME, "LC_ALL=C",
					  NULL};
	struct exec_spec x = {.argv = (char *const *)(uintptr_t)argv,
			      .env = (char *const *)(uintptr_t)env,
			      .cwd = "/",
			      .out = out};
	_cleanup_fd_ int null = open("/dev/null", O_RDONLY | O_CLOEXEC), err = -1;
	int p[2];

	/* Not blocking: one that says more than anybody reads is not held up by it here; elsewhere tarout_turn sees to that. */
	if (null < 0 || pipe2(p, O_CLOEXEC | O_NONBLOCK) < 0)
		return err_sys(e, errno, "create a pipe");
	t->sb = sb;
	t->said = p[0];
	err = p[1];
	x.in = in < 0 ? null : in;
	x.err = err;
	return sb->ops->exec(sb, &x, &t->id, e);
}

static int fail(struct tarout *t, int r)
{
	t->ended = true;
	t->fail = r;
	return r;
}

static void hear_said(struct tarout *t)
{
	char piece[TAROUT_SAID];
	ssize_t n;

	for (int i = 0; t->said >= 0 && i < HEAR_MAX; i++) {
		size_t drop;

		n = read(t->said, piece, sizeof(piece));
		if (n == 0)
			cleanup_fd(&t->said);
		if (n <= 0)
			return;
		drop = t->tail_len + (size_t)n > TAROUT_SAID ? t->tail_len + (size_t)n - TAROUT_SAID
							     : 0;
		memmove(t->tail, t->tail + drop, t->tail_len - drop);
		t->tail_len -= drop;
		memcpy(t->tail + t->tail_len, piece, (size_t)n);
		t->tail_len += (size_t)n;
	}
}

/* One event of the sandbox's, if there is one. */
static int hear_event(struct tarout *t)
{
	struct sandbox_event ev;
	int r = t->sb->ops->next_event(t->sb, &ev, &t->why);

	if (r < 0) {
		(void)fail(t, r);
	} else if (r > 0 && ev.type == SE_ENDED) {
		(void)fail(t, err_set(&t->why, ERR_UNAVAILABLE,
				      "the sandbox ended while tar was packing its results%s%s",
				      t->sb->why[0] ? ": " : "", t->sb->why));
	} else if (r > 0 && ev.id == t->id && ev.type == SE_FAILED) {
		(void)fail(t, err_sys(&t->why, ev.sys,
				      "start tar inside (%s); the environment must supply it",
				      ev.step));
	} else if (r > 0 && ev.id == t->id && ev.type == SE_EXITED) {
		t->ended = true;
		t->code = ev.code;
		t->signo = ev.signo;
	}
	return r;
}

void tarout_turn(struct tarout *t)
{
	hear_said(t);
	for (int i = 0; !t->ended && i < HEAR_MAX && hear_event(t) > 0; i++)
		continue;
}

int tarout_wait(struct tarout *t, struct err *e)
{
	int64_t deadline = clock_mono_ns() + START_TIMEOUT_MS * NS_PER_MS;

	while (!t->ended) {
		struct pollfd p[] = {{.fd = t->sb->ops->event_fd(t->sb), .events = POLLIN},
				     {.fd = t->said, .events = POLLIN}};
		int r = hear_event(t);

		hear_said(t);
		/* On every turn: other events do not put it off. */
		if (!t->ended && clock_mono_ns() > deadline)
			(void)fail(t, err_set(&t->why, ERR_TIMEOUT,
					      "tar inside did not end within %d s after its stream",
					      START_TIMEOUT_MS / 1000));
		p[1].fd = t->said;
		if (!t->ended && r == 0)
			(void)poll(p, 2, clock_poll_ms(deadline, clock_mono_ns()));
	}
	hear_said(t);
	if (t->fail < 0 && e)
		*e = t->why;
	return t->fail;
}

/* The last line that it printed, for a person. */
static void put_said(struct tarout *t, struct buf *b)
{
	size_t end = t->tail_len, at;

	while (end && t->tail[end - 1] == '\n')
		end--;
	for (at = end; at && t->tail[at - 1] != '\n';)
		at--;
	(void)str_printable(b, t->tail + at, end - at);
}

bool tarout_whole(struct tarout *t, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4 * TAROUT_SAID + 64);

	if (!t->code && !t->signo)
		return true;
	put_said(t, &b);
	(void)err_set(
	    e, ERR_UNAVAILABLE,
	    "tar inside could not pack everything (%s %d%s%.400s): no deletion is taken over",
	    t->signo ? "signal" : "status", t->signo ? t->signo : t->code, b.len ? ": " : "",
	    buf_text(&b));
	return false;
}

void tarout_done(struct tarout *t)
{
	cleanup_fd(&t->said);
}

int tarout_complete(void *arg, bool *ret_partial, struct err *e)
{
	struct tarout_end *b = arg;
	struct err why = ERR_INIT;
	int r = tarout_wait(&b->t, e);

	if (r < 0)
		return r;
	b->partial = *ret_partial = !tarout_whole(&b->t, &why);
	if (b->partial && b->ui->note)
		b->ui->note(b->ui->arg, true, why.text);
	return 0;
}
