/*
 * Policy: part of door 1, on the side of the caller, unconfined. It parses the frames of its own helper, no byte of
 * the sandbox's stream, and writes nothing below the workspace. Before a publish begins it looks once more whether
 * the workspace is still in its place.
 */
#include "sync/unpack_client.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "sync/unpack_key.h"
#include "sync/unpack_record.h"

#define TICK_MS 100
#define IGNORED_MAX 1000
#define SKIP_BATCH (1 << 20)
#define SETUP_BYTES (2 * PATH_MEMBER_MAX + PATH_SEGMENT_MAX + 1024)

void client_init(struct client *c, const struct unpack_opts *o, struct unpack_report *rep)
{
	*c = (struct client){.o = o, .rep = rep, .root_fd = -1, .run_fd = -1, .manifest_fd = -1};
	chan_init(&c->ch, -1, false);
}

void client_done(struct client *c)
{
	chan_done(&c->ch);
	helper_kill(&c->helper);
	cleanup_fd(&c->root_fd);
	cleanup_fd(&c->run_fd);
	cleanup_fd(&c->manifest_fd);
	for (size_t i = 0; i < c->fresh_len; i++)
		free(c->fresh[i]);
	free(c->fresh);
	free(c->root);
}

static int moved(const struct client *c, struct err *e)
{
	return err_set(
	    e, ERR_CONFLICT,
	    "workspace %s is another directory than when the run began: nothing was published there; "
	    "put it back and bring the results back again",
	    c->o->root);
}

int client_open_root(struct client *c, const char *root, struct err *e)
{
	const struct unpack_opts *o = c->o;
	struct stat st;

	c->root = realpath(root, NULL);
	if (!c->root)
		return err_sys(e, errno, "open workspace %s", root);
	c->root_fd = open(c->root, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (c->root_fd < 0 || fstat(c->root_fd, &st) < 0)
		return err_sys(e, errno, "open workspace %s", c->root);
	if (o->root_ino && (st.st_ino != o->root_ino || (o->root_dev && st.st_dev != o->root_dev)))
		return moved(c, e);
	c->root_ino = st.st_ino;
	return 0;
}

int client_sign(const struct client *c, const char *state_dir, struct unpack_setup *s,
		struct err *e)
{
	if (strlen(c->root) > PATH_MEMBER_MAX)
		return err_set(e, ERR_LIMIT, "the path of workspace %.200s... is too long",
			       c->root);
	memcpy(s->root, c->root, strlen(c->root) + 1);
	return unpack_key_load(state_dir, c->root_ino, s->key, e);
}

static int root_in_place(const struct client *c, struct err *e)
{
	struct stat a, b;

	if (fstat(c->root_fd, &a) == 0 && lstat(c->root, &b) == 0 && a.st_dev == b.st_dev &&
	    a.st_ino == b.st_ino)
		return 0;
	return moved(c, e);
}

int client_send_setup(struct client *c, const struct unpack_setup *s, const int *fds, size_t n,
		      struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(SETUP_BYTES);
	int r = unpack_put_setup(&b, s);

	return r < 0 ? err_set(e, ERR_NOMEM, "out of memory")
		     : chan_send(&c->ch, UF_SETUP, b.data, b.len, fds, n, INT64_MAX, e);
}

/* There is no asking without setting; this process has one thread. */
uint32_t client_umask(void)
{
	mode_t m = umask(077);

	(void)umask(m);
	return m;
}

static char *text_of(struct view v)
{
	char *s = malloc(v.n + 1);

	if (s) {
		memcpy(s, v.n ? v.p : "", v.n);
		s[v.n] = '\0';
	}
	return s;
}

static int take_change(struct client *c, struct view v, struct err *e)
{
	struct unpack_report *rep = c->rep;
	struct unpack_change *ch;
	struct unpack_note n;

	if (unpack_get_note(v, &n) < 0)
		return err_set(e, ERR_PROTOCOL, "airlock-unpack sent a malformed change");
	rep->counts[n.action]++;
	if (n.action == UA_IGNORE && rep->counts[UA_IGNORE] > IGNORED_MAX)
		return 0;
	if (rep->changes_len == c->changes_cap) {
		size_t cap = c->changes_cap ? c->changes_cap * 2 : 64;
		struct unpack_change *more = reallocarray(rep->changes, cap, sizeof(*more));

		if (!more)
			return err_set(e, ERR_NOMEM, "out of memory");
		rep->changes = more;
		c->changes_cap = cap;
	}
	ch = &rep->changes[rep->changes_len];
	*ch = (struct unpack_change){.action = n.action, .path = text_of(n.path)};
	if (n.detail.n)
		ch->detail = text_of(n.detail);
	memcpy(ch->rule, n.rule.p, n.rule.n);
	if (!ch->path || (n.detail.n && !ch->detail)) {
		free(ch->path);
		free(ch->detail);
		return err_set(e, ERR_NOMEM, "out of memory");
	}
	ch->host_exec = record_host_exec(ch);
	rep->changes_len++;
	return 0;
}

static int take_expect(struct client *c, struct view v, struct err *e)
{
	if (v.n != 1)
		return err_set(e, ERR_PROTOCOL, "airlock-unpack sent a malformed frame");
	c->expecting = v.p[0];
	c->to = c->rep->changes_len;
	if (c->expecting)
		c->from = c->to;
	else if (!c->o->apply && c->run_fd >= 0 && record_prepare(c->run_fd, c->rep) > 0)
		c->prepared = c->to;
	return 0;
}

void client_forget(struct client *c)
{
	struct unpack_report *rep = c->rep;
	size_t to = c->expecting ? rep->changes_len : c->to;

	for (size_t i = c->from; i < to; i++) {
		rep->counts[rep->changes[i].action]--;
		free(rep->changes[i].path);
		free(rep->changes[i].detail);
	}
	if (to > c->from)
		memmove(rep->changes + c->from, rep->changes + to,
			(rep->changes_len - to) * sizeof(*rep->changes));
	rep->changes_len -= to - c->from;
	c->from = c->to = 0;
	c->expecting = false;
	if (c->prepared)
		record_drop(c->run_fd);
	c->prepared = 0;
}

static int take_new(struct client *c, struct view v, struct err *e)
{
	struct cursor cur;

	cursor_init(&cur, v.p, v.n);
	while (cur.left && !cur.failed) {
		char *p = cursor_strdup(&cur, PATH_MEMBER_MAX);

		if (!p)
			return err_set(e, ERR_PROTOCOL, "airlock-unpack sent a malformed path");
		if (c->fresh_len == c->fresh_cap) {
			size_t cap = c->fresh_cap ? c->fresh_cap * 2 : 64;
			char **more = reallocarray(c->fresh, cap, sizeof(*more));

			if (!more) {
				free(p);
				return err_set(e, ERR_NOMEM, "out of memory");
			}
			c->fresh = more;
			c->fresh_cap = cap;
		}
		c->fresh[c->fresh_len++] = p;
	}
	return 0;
}

static int answer_plan(struct client *c, struct err *e)
{
	_cleanup_free_ bool *skip = calloc(c->fresh_len + 1, sizeof(*skip));
	bool partial = false;
	uint8_t word;
	int r = 0;

	if (!skip)
		return err_set(e, ERR_NOMEM, "out of memory");
	if (c->o->complete)
		r = c->o->complete(c->o->complete_arg, &partial, e);
	word = partial;
	if (r == 0 && c->o->filter && c->fresh_len)
		r = c->o->filter(c->o->filter_arg, c->fresh, c->fresh_len, skip, e);
	for (size_t at = 0; at < c->fresh_len && r == 0; at += SKIP_BATCH) {
		size_t n = c->fresh_len - at < SKIP_BATCH ? c->fresh_len - at : SKIP_BATCH;

		r = chan_send(&c->ch, UF_SKIP, skip + at, n, NULL, 0, INT64_MAX, e);
	}
	return r == 0 ? chan_send(&c->ch, UF_GO, &word, 1, NULL, 0, INT64_MAX, e) : r;
}

/* Of CARRIED or DONE. */
static int take_sums(struct client *c, struct view v, struct err *e)
{
	struct unpack_done d;

	if (unpack_get_done(v, &d) < 0)
		return err_set(e, ERR_PROTOCOL, "airlock-unpack sent a malformed report");
	c->repaired = d.repaired;
	c->rep->bytes_written = d.bytes_written;
	c->rep->mass_delete = d.mass_delete;
	c->rep->rejected = d.rejected;
	memcpy(c->rep->rule, d.rule.p, d.rule.n);
	if (!d.rejected)
		return 0;
	(void)snprintf(c->rep->text, sizeof(c->rep->text), "%.*s", (int)d.text.n, d.text.p);
	if (d.path.n && !(c->rep->rejected_path = text_of(d.path)))
		return err_set(e, ERR_NOMEM, "out of memory");
	(void)err_set(
	    e, ERR_HOSTILE,
	    "the sandbox's results were rejected (%s): %.*s; the workspace is unchanged, the start of "
	    "the stream is kept in %s/rejected.tar",
	    c->rep->rule, (int)d.text.n, d.text.p, c->o->run_dir);
	return -EBADMSG;
}

static int take_frame(struct client *c, const struct frame *f, struct err *e)
{
	struct cursor cur;
	uint64_t members, bytes;
	int r;

	switch (f->type) {
	case UF_READY:
		return 0;
	case UF_PROGRESS:
		cursor_init(&cur, f->payload.p, f->payload.n);
		members = cursor_u64(&cur);
		bytes = cursor_u64(&cur);
		if (c->o->progress)
			c->o->progress(c->o->progress_arg, "sync out", members, 0, bytes);
		return 0;
	case UF_CHANGE:
		return take_change(c, f->payload, e);
	case UF_EXPECT:
		return take_expect(c, f->payload, e);
	case UF_UNTOLD:
		client_forget(c);
		return 0;
	case UF_NEW:
		return take_new(c, f->payload, e);
	case UF_PLAN:
		return answer_plan(c, e);
	case UF_LOCKED:
		r = root_in_place(c, e);
		c->published = true;
		return r < 0 ? r : chan_send(&c->ch, UF_PUBLISH, NULL, 0, NULL, 0, INT64_MAX, e);
	case UF_CARRIED:
		c->carried = true;
		return take_sums(c, f->payload, e);
	case UF_DONE:
		c->done = true;
		return take_sums(c, f->payload, e);
	case UF_ERROR:
		r = unpack_get_error(f->payload, e);
		c->done = true;
		return r < 0 ? r : -EIO;
	default:
		return err_set(e, ERR_PROTOCOL, "airlock-unpack sent an unknown frame %u", f->type);
	}
}

int client_converse(struct client *c, struct err *e)
{
	while (!c->done) {
		struct frame f;
		int r;

		/*
		 * Looked at on every turn: a sandbox with many members must not keep a person from stopping. A
		 * publish is short and is not cut: the journal would only finish it later.
		 */
		if (c->o && c->o->cancel && *c->o->cancel && !c->published)
			return err_set(e, ERR_CANCELLED,
				       "cancelled while results were brought back to %s: "
				       "nothing was published there",
				       c->root);
		if (c->o && c->o->tick)
			c->o->tick(c->o->tick_arg);
		r = chan_recv(&c->ch, clock_mono_ns() + TICK_MS * NS_PER_MS, &f, NULL, e);
		if (r == -EAGAIN)
			continue;
		if (r < 0)
			return r;
		if (r == 0)
			return -EPIPE;
		r = take_frame(c, &f, e);
		if (r < 0)
			return r;
	}
	return 0;
}

int client_died(struct client *c, struct err *e)
{
	struct err why = ERR_INIT;
	int status = 0, r = process_wait(&c->helper.proc, &c->helper.popts, &status, &why);

	c->died = true;
	c->helper.started = false;
	if (r < 0)
		return err_set(e, ERR_IO, "airlock-unpack ended early: %s", why.text);
	if (status > 128)
		return err_set(e, ERR_IO, "airlock-unpack was ended by signal %d%s", status - 128,
			       status - 128 == SIGSYS ? " (a system call outside its allow-list)"
						      : "");
	return err_set(e, ERR_IO, "airlock-unpack ended early with status %d: %s", status,
		       c->helper.proc.tail);
}

void client_ended_well(struct client *c)
{
	int status;

	chan_done(&c->ch);
	if (process_wait(&c->helper.proc, &c->helper.popts, &status, NULL) == 0)
		c->helper.started = false;
}

void client_let_go(struct client *c)
{
	int status;

	chan_done(&c->ch);
	if (!c->helper.started)
		return;
	c->helper.proc.deadline_ns = clock_mono_ns() + KILL_GRACE_MS * NS_PER_MS;
	if (process_wait(&c->helper.proc, &c->helper.popts, &status, NULL) < 0)
		process_kill(&c->helper.proc);
	c->helper.started = false;
}

bool client_staging_left(const struct client *c)
{
	return faccessat(c->root_fd, ".git/airlock-staging", F_OK, AT_SYMLINK_NOFOLLOW) == 0 ||
	       faccessat(c->root_fd, ".airlock-staging", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}
