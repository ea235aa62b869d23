#include "provider/ssh/again.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/path.h"
#include "base/str.h"
#include "provider/ssh/script.h"
#include "provider/ssh/unreached.h"
#include "wire/rejoin.h"

static int start(struct ssh_session *x, int in, int out, struct err *e)
{
	_cleanup_strv_ char **argv = NULL, **env = NULL;
	struct process_opts o = PROCESS_OPTS_INIT;
	int r = ssh_target_argv(&x->target, x->control, script_command(), &argv, e);

	if (r == 0)
		r = ssh_target_env(&env, e);
	if (r < 0)
		return r;
	o.argv = (const char *const *)argv;
	o.envp = (const char *const *)env;
	o.in_fd = in;
	o.out_fd = out;
	/* BatchMode is this ssh's alone: one that the configuration starts for a jump host would ask. */
	o.session = true;
	r = process_start(&x->ssh, &o, e);
	return r == -ENOENT ? err_set(e, ERR_UNAVAILABLE,
				      "there is no program ssh in PATH: install openssh-client")
			    : r;
}

int ssh_again_start(struct ssh_session *x, int *ret_in, int *ret_out, struct err *e)
{
	_cleanup_fd_ int in_rd = -1, in_wr = -1, out_rd = -1, out_wr = -1;
	int a[2], b[2], r;

	if (pipe2(a, O_CLOEXEC) < 0)
		return err_sys(e, errno, "start ssh: pipe");
	in_rd = a[0];
	in_wr = a[1];
	if (pipe2(b, O_CLOEXEC) < 0)
		return err_sys(e, errno, "start ssh: pipe");
	out_rd = b[0];
	out_wr = b[1];
	r = start(x, in_rd, out_wr, e);
	if (r < 0)
		return r;
	cleanup_fd(&x->out);
	x->out = fcntl(out_rd, F_DUPFD_CLOEXEC, 0);
	*ret_in = TAKE_FD(in_wr);
	*ret_out = TAKE_FD(out_rd);
	return 0;
}

static uint32_t grace_ms(const struct ssh_session *x)
{
	return x->target.grace_s * 1000;
}

int ssh_again_keep(struct ssh_session *x, const struct sandbox_spec *s, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(2 * PATH_MEMBER_MAX);
	_cleanup_free_ char *lease = strdup(s->lease_id);
	const struct rm_keep m = {.grace_ms = grace_ms(x), .root = x->target.path, .lease = lease};
	int r;

	x->lease_dir = strdup(s->lease_dir);
	if (x->lease_dir && !m.grace_ms)
		return 0;
	r = lease && x->lease_dir ? rm_keep_put(&b, &m) : -ENOMEM;
	return r < 0 ? err_sys(e, -r, "prepare %s for a cut", x->target.label)
		     : guestlink_request(&x->link, RM_KEEP, &b, NULL, 0, e);
}

/* A byte for each. */
static void count(const struct ssh_session *x)
{
	_cleanup_free_ char *path = path_join(x->lease_dir, SANDBOX_RECONNECTED);
	_cleanup_fd_ int fd =
	    path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600) : -1;

	if (fd >= 0)
		(void)!write(fd, "+", 1);
}

static void tell(struct ssh_session *x, const char *text)
{
	if (x->sb.note)
		x->sb.note(x->sb.note_arg, text);
}

/* A file system without sockets, say. The command runs all the same. */
static void on_not_held(struct ssh_session *x, struct view v)
{
	char text[600];
	struct cursor c;
	uint32_t error;

	cursor_init(&c, v.p, v.n);
	error = cursor_u32(&c);
	(void)snprintf(
	    text, sizeof(text),
	    "a cut of the connection will be the end of the command: no socket can be made below %.200s on %.100s (%s); another directory, or "
	    "--ssh-grace 0, which asks for none",
	    x->target.path, x->target.label, strerror((int)(error & 0xfff)));
	tell(x, text);
}

static void on_away(struct ssh_session *x, struct view v)
{
	_cleanup_buf_ struct buf said = BUF_INIT(1024);
	char text[800], grace[32];
	struct cursor c;
	struct view words;

	cursor_init(&c, v.p, v.n);
	(void)cursor_u32(&c);
	words = cursor_bytes(&c, FRAME_MAX);
	while (words.n && (words.p[words.n - 1] == '\n' || words.p[words.n - 1] == '\r'))
		words.n--;
	(void)str_printable(&said, words.n ? words.p : "", words.n < 200 ? words.n : 200);
	clock_human((int64_t)x->target.grace_s * NS_PER_S, grace, sizeof(grace));
	(void)snprintf(
	    text, sizeof(text),
	    "the connection to %.200s is cut%s%.300s%s: what runs goes on there, and it is tried to connect again for %s (--ssh-grace)",
	    x->target.label, said.len ? " (" : "", buf_text(&said), said.len ? ")" : "", grace);
	x->sb.away = true;
	x->away_ns = clock_mono_ns();
	unreached_note(x->lease_dir, text);
	unreached_goes_on(x->lease_dir, grace_ms(x));
	tell(x, text);
}

static void on_back(struct ssh_session *x)
{
	char text[400], after[32];

	x->sb.away = false;
	x->sb.reconnects++;
	unreached_clear(x->lease_dir, true);
	count(x);
	clock_human(clock_mono_ns() - x->away_ns, after, sizeof(after));
	(void)snprintf(text, sizeof(text),
		       "connected to %.200s again after %s: nothing of the command's is lost",
		       x->target.label, after);
	tell(x, text);
}

/* The one before is of no use any more, also if it does not know it. */
static void on_dial(struct ssh_session *x)
{
	_cleanup_fd_ int in = -1, out = -1;
	const struct buf none = BUF_INIT(1);
	struct err e = ERR_INIT;
	int r;

	process_kill_one(&x->ssh);
	x->ssh = (struct process){.pid = -1, .pidfd = -1, .in = -1, .out = -1, .err = -1};
	r = ssh_again_start(x, &in, &out, &e);
	/* Its end is noticed in any case: by the channel's. */
	(void)guestlink_request(&x->link, RM_DIALED, &none, (int[]){in, out, x->ssh.err},
				r < 0 ? 0 : RM_DIALED_FDS, &e);
	cleanup_fd(&x->ssh.err);
}

void ssh_again_over(struct ssh_session *x, uint32_t how)
{
	bool gone = how == LINK_GONE;

	if (!x->lease_dir)
		return;
	/* The machine is there, and nothing of the run is. */
	if (gone)
		unreached_clear(x->lease_dir, true);
	else
		unreached_note(x->lease_dir, x->sb.why);
	/* A cut that was waited out has set the time at its begin. */
	if (!gone && !x->sb.away)
		unreached_goes_on(x->lease_dir, 0);
}

void ssh_again_give_up(struct ssh_session *x)
{
	char text[400], grace[32];

	if (!x->sb.away || x->sb.why[0])
		return;
	clock_human((int64_t)x->target.grace_s * NS_PER_S, grace, sizeof(grace));
	(void)snprintf(
	    text, sizeof(text),
	    "the connection to %.200s was cut, and the run was stopped before there was one again; the guest there ends what it ran within %s "
	    "(--ssh-grace)",
	    x->target.label, grace);
	unreached_note(x->lease_dir, text);
}

int ssh_again_hear(struct ssh_session *x, const struct frame *f)
{
	switch (f->type) {
	case RM_HELD:
		on_not_held(x, f->payload);
		return 1;
	case RM_AWAY:
		on_away(x, f->payload);
		return 1;
	case RM_DIAL:
		on_dial(x);
		return 1;
	case RM_BACK:
		on_back(x);
		return 1;
	default:
		return 0;
	}
}
