#include "provider/ssh/acquire.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "os/proc.h"
#include "provider/ssh/again.h"
#include "provider/ssh/base.h"
#include "provider/ssh/box.h"
#include "provider/ssh/plain.h"
#include "provider/ssh/reach.h"
#include "provider/ssh/send.h"
#include "provider/ssh/session.h"
#include "provider/ssh/tool.h"
#include "provider/ssh/unreached.h"

#define RESUME_ALL_MS 45000 /* a cut of so long is got over */
#define RESUME_MS 1000

/* The workspace goes there. What the other side says about a failure is worth more than our broken pipe. */
static int land_once(struct ssh_session *x, const struct sandbox_spec *s, struct err *e)
{
	_cleanup_free_ char *base = ssh_base_name(s, x->sandbox);
	_cleanup_buf_ struct buf b = BUF_INIT(256);
	_cleanup_fd_ int rd = -1, wr = -1, want_rd = -1, want_wr = -1;
	struct rm_fault f = {0};
	struct rm_index index;
	struct err se = ERR_INIT;
	int p[2], q[2], r, k;

	if (pipe2(p, O_CLOEXEC) < 0)
		return err_sys(e, errno, "send the workspace: pipe");
	rd = p[0];
	wr = p[1];
	if (pipe2(q, O_CLOEXEC) < 0)
		return err_sys(e, errno, "send the workspace: pipe");
	want_rd = q[0];
	want_wr = q[1];
	if (fcntl(wr, F_SETFL, O_NONBLOCK) < 0 || fcntl(want_rd, F_SETFL, O_NONBLOCK) < 0)
		return err_sys(e, errno, "send the workspace: pipe");
	(void)buf_u32(&b, x->link.next_id++);
	(void)buf_str(&b, base ? base : "");
	ssh_base_index(s, x->sandbox, &index);
	(void)buf_put(&b, (const char *)index.sum, sizeof(index.sum));
	r = guestlink_request(&x->link, RM_LAND, &b, (int[]){rd, want_wr}, 2, e);
	if (r < 0)
		return r;
	cleanup_fd(&rd);
	cleanup_fd(&want_wr);
	k = ssh_send(s, wr, want_rd, &se);
	cleanup_fd(&wr);
	if (k < 0 && k != -EPIPE) {
		*e = se;
		return k;
	}
	r = session_await(x, RM_LANDED, s->cancel, e);
	if (r < 0 && x->link.ended)
		return -ECONNRESET;
	if (r == 0 && rm_landed_get(x->answer, &f, &index) < 0)
		return err_set(e, ERR_PROTOCOL, "%s: malformed answer", x->target.label);
	if (r == 0 && f.error == EAGAIN && str_starts(f.what, REMOTE_MADE_ROOM)) {
		(void)ssh_explain_fault(&x->target, &f, e);
		return -EAGAIN;
	}
	if (r == 0 && f.error)
		return ssh_explain_fault(&x->target, &f, e);
	if (r == 0 && k < 0)
		*e = se;
	if (r == 0 && k == 0)
		ssh_base_landed(s, &index);
	return r < 0 ? r : k;
}

/* A second time where trees of earlier runs were in the way, which are gone then. */
static int land(struct ssh_session *x, const struct sandbox_spec *s, struct err *e)
{
	struct err first = ERR_INIT;
	int r = land_once(x, s, &first);

	if (r == -EAGAIN)
		return land_once(x, s, e);
	if (r < 0 && e)
		*e = first;
	return r;
}

static int bring_up(struct ssh_session *x, const struct sandbox_spec *s, struct err *e)
{
	const struct buf none = BUF_INIT(1);
	struct cursor c;
	bool there;
	/* A kept lease has as many sessions as it has commands; any other one, the one that comes last. */
	int r = session_open_run(x, s,
				 x->in_place ? RO_IN_PLACE
					     : (s->keep ? RO_SHARED : 0) |
						   (s->resume || !s->manifest ? RO_RESUME : 0),
				 RM_OPENED, e);

	if (r < 0)
		return r;
	cursor_init(&c, x->answer.p, x->answer.n);
	there = cursor_u32(&c);
	/* To send the workspace again would look like a run that changed nothing. */
	if (!there && (s->resume || !s->manifest)) {
		x->absent = true;
		return err_set(
		    e, ERR_NOT_FOUND,
		    "the directory of this run is not on %s any more (%s): somebody removed it; 'airlock rm "
		    "--force' gives it up",
		    x->target.label, x->inside);
	}
	if (!there)
		r = land(x, s, e);
	if (r == 0)
		r = guestlink_request(&x->link, RM_START, &none, NULL, 0, e);
	if (r == 0)
		r = session_await(x, GM_READY, s->cancel, e);
	if (r == 0 && x->sandbox)
		r = ssh_box(x, s, e);
	else if (r == 0 && s->gateway)
		r = ssh_tool_gateway(x, s->cancel, e);
	return r < 0 ? r : ssh_again_keep(x, s, e);
}

static int begin(const struct sandbox_spec *s, struct ssh_session *x, struct sandbox **ret,
		 struct err *e)
{
	bool made;
	int r = reach_mark(s, &made, e);

	if (r >= 0) {
		reach_note(s->lease_dir, x->took_ns);
		r = bring_up(x, s, e);
	}
	if (r < 0) {
		/* Who forgets would look for it in a directory that is not there, for ever. */
		if (made && x->unmade)
			reach_unmark(s->lease_dir);
		/* A program missing here, or a file system not mounted there, is no proof of a loss. */
		r = r == -ENOENT && !x->absent ? -EHOSTUNREACH : r;
		session_end(x);
		return r;
	}
	x->sb.ops = x->sandbox	  ? &provider_ssh_sandbox
		    : x->in_place ? &provider_ssh_in_place
				  : &provider_ssh;
	x->sb.inside = x->sandbox ? s->inside : x->in_place ? x->target.path : x->inside;
	if (!x->sandbox) {
		x->sb.isolation[0] =
		    (struct isolation){"isolation", "not available",
				       "commands run as the account that ssh logs in to"};
		x->sb.isolation_len = 1;
	}
	x->sb.monitor_pid = x->helper.proc.pid;
	(void)proc_start(x->helper.proc.pid, &x->sb.monitor_start);
	*ret = &x->sb;
	return 0;
}

/* Where there is no guest: a machine that cannot have one, a wish, or a lease that began without. */
static int plain(const struct sandbox_spec *s, enum plain_why why, struct sandbox **ret,
		 struct err *e)
{
	bool made;
	int r = reach_mark(s, &made, e);

	if (r >= 0)
		r = ssh_plain_acquire(s, why, ret, e);
	return r;
}

static enum plain_why plain_because(enum ssh_refused why)
{
	return why == REFUSED_MACHINE  ? PLAIN_MACHINE
	       : why == REFUSED_NOEXEC ? PLAIN_NOEXEC
	       : why == REFUSED_ROOM   ? PLAIN_ROOM
	       : why == REFUSED_PLACE  ? PLAIN_PLACE
	       : why == REFUSED_TOOL   ? PLAIN_TOOL
				       : PLAIN_NO;
}

static int guest_of(const struct sandbox_spec *s, enum ssh_guest *ret, struct err *e)
{
	_cleanup_ssh_target_ struct ssh_target t = {0};
	int r = ssh_target_parse(s->remote, &t, e);

	*ret = t.guest;
	return r;
}

/* With a guest, or not at all: whatever the other machine has instead isolates nothing. */
static int connect_sandbox(const struct sandbox_spec *s, struct sandbox **ret, struct err *e)
{
	struct ssh_session *x = NULL;
	int r = session_start(s, false, &x, e);

	if (r < 0)
		return s->resume && r == -ENOENT ? -EHOSTUNREACH : r;
	x->sandbox = true;
	return begin(s, x, ret, e);
}

/* With a guest: it holds the directory for this run alone. */
int ssh_acquire_in_place(const struct sandbox_spec *s, struct sandbox **ret, struct err *e)
{
	struct ssh_session *x = NULL;
	int r = session_start(s, false, &x, e);

	if (r < 0)
		return unreached_remember(s, r, e);
	x->in_place = true;
	return unreached_remember(s, begin(s, x, ret, e), e);
}

/* What keeps the guest away is said with what then fails: either may be mended. */
static int fall_back(const struct sandbox_spec *s, enum ssh_refused refused, struct sandbox **ret,
		     struct err *e)
{
	const struct err first = *e;
	int r = plain(s, plain_because(refused), ret, e);

	return r < 0 && refused == REFUSED_TOOL ? err_wrap(e, r, "%s", first.text) : r;
}

/* A guest, or none where that is how it is. */
static int connect_to(const struct sandbox_spec *s, struct sandbox **ret, struct err *e)
{
	enum ssh_refused refused = REFUSED_NOT;
	struct ssh_session *x = NULL;
	enum ssh_guest guest;
	int r = guest_of(s, &guest, e);

	if (r < 0)
		return r;
	if (ssh_plain_is(s->lease_dir))
		return plain(s, guest == GUEST_NEVER ? PLAIN_ASKED : PLAIN_AGAIN, ret, e);
	if (guest == GUEST_NEVER)
		return plain(s, PLAIN_ASKED, ret, e);
	r = session_try(s, &x, &refused, e);
	if (r < 0 && guest == GUEST_AUTO && plain_because(refused) != PLAIN_NO)
		return fall_back(s, refused, ret, e);
	if (r < 0)
		return s->resume && r == -ENOENT ? -EHOSTUNREACH : r;
	return begin(s, x, ret, e);
}

/* True: that long has passed. */
static bool nap(const struct sandbox_spec *s, int64_t ms)
{
	const struct timespec look = {.tv_nsec = 50 * NS_PER_MS};
	int64_t until = clock_mono_ns() + ms * NS_PER_MS;

	while (clock_mono_ns() < until && !(s->cancel && *s->cancel))
		(void)nanosleep(&look, NULL);
	return !(s->cancel && *s->cancel);
}

/*
 * A connection that is cut while the workspace goes there is made again, and what has arrived is not sent again: the guest finds it in
 * the run's directory (guest/reuse.h). Later cuts are another matter: a command was running.
 */
static int acquire_by(int (*connect_by)(const struct sandbox_spec *, struct sandbox **,
					struct err *),
		      const struct sandbox_spec *s, struct sandbox **ret, struct err *e)
{
	int r = connect_by(s, ret, e);
	bool cut = r == -ECONNRESET;
	int64_t until = clock_mono_ns() + RESUME_ALL_MS * NS_PER_MS;

	for (int64_t ms = RESUME_MS;
	     cut && r < 0 && r != -ECANCELED && clock_mono_ns() < until && nap(s, ms); ms *= 2)
		r = connect_by(s, ret, e);
	return unreached_remember(s, r, e);
}

int ssh_acquire(const struct sandbox_spec *s, struct sandbox **ret, struct err *e)
{
	return acquire_by(connect_to, s, ret, e);
}

int ssh_acquire_sandbox(const struct sandbox_spec *s, struct sandbox **ret, struct err *e)
{
	return acquire_by(connect_sandbox, s, ret, e);
}

/*
 * What is kept is the directory there: no process of a command outlives it, so each command brings a session of its own. A machine that
 * cannot be reached, or found, has lost nothing: only the directory's absence is -ENOENT.
 */
int ssh_attach(const struct sandbox_spec *s, struct sandbox **ret, struct err *e)
{
	struct sandbox_spec again = *s;

	again.resume = true;
	return unreached_remember(s, connect_to(&again, ret, e), e);
}
