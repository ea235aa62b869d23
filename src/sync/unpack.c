/*
 * The engine's side of door 1. It opens, starts airlock-unpack, answers and collects; it parses no
 * byte of the sandbox's stream and writes nothing below the workspace.
 */
#include "sync/unpack.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/path.h"
#include "base/str.h"
#include "os/chan.h"
#include "os/helper.h"
#include "sync/unpack_key.h"
#include "sync/unpack_place.h"
#include "sync/unpack_proto.h"
#include "sync/unpack_record.h"

#define TICK_MS 100
#define IGNORED_MAX 1000
#define SKIP_BATCH (1 << 20)
#define SETUP_BYTES (2 * PATH_MEMBER_MAX + PATH_SEGMENT_MAX + 1024)

struct client {
	const struct unpack_opts *o;
	struct unpack_report *rep;
	struct helper helper;
	struct chan ch;
	bool done, carried, published, repaired, died, repaired_own;
	char name[ID_LEN + 1]; /* of its staging directory */
	char *root;	       /* owned: real path */
	uint64_t root_ino;
	int root_fd, run_fd, manifest_fd;
	char **fresh; /* owned: new paths */
	size_t fresh_len, fresh_cap;
	size_t changes_cap;
	/* rep->changes[from..to): what is expected only; prepared: so many changes are in the record already */
	size_t from, to, prepared;
	bool expecting;
};

static void client_init(struct client *c, const struct unpack_opts *o, struct unpack_report *rep)
{
	*c = (struct client){.o = o, .rep = rep, .root_fd = -1, .run_fd = -1, .manifest_fd = -1};
	chan_init(&c->ch, -1, false);
}

static void client_done(struct client *c)
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

/*
 * A symlinked workspace is resolved once, here; from then on the descriptor is what counts. What it
 * holds must be the directory that was copied in: a link or a new directory may be in its place.
 */
static int open_root(struct client *c, const char *root, struct err *e)
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

/* What proves later that the journal is ours, and of this workspace. */
static int sign(const struct client *c, const char *state_dir, struct unpack_setup *s,
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

static int send_setup(struct client *c, const struct unpack_setup *s, const int *fds, size_t n,
		      struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(SETUP_BYTES);
	int r = unpack_put_setup(&b, s);

	return r < 0 ? err_set(e, ERR_NOMEM, "out of memory")
		     : chan_send(&c->ch, UF_SETUP, b.data, b.len, fds, n, INT64_MAX, e);
}

static int send_layers(struct client *c, struct err *e)
{
	int r = 0;

	for (size_t i = 0; c->o->layers && c->o->layers[i] && r == 0; i++) {
		_cleanup_fd_ int fd = open(c->o->layers[i], O_PATH | O_DIRECTORY | O_CLOEXEC);

		if (fd < 0)
			return err_sys(e, errno, "open base layer %s", c->o->layers[i]);
		r = chan_send(&c->ch, UF_LAYERS, NULL, 0, &fd, 1, INT64_MAX, e);
	}
	return r;
}

/* What a publish that was cut after its commit left is true by now: the workspace was repaired before. */
static int open_manifest(const struct unpack_opts *o)
{
	int fd = -1;

	if (o->baseline_fd > 0) {
		(void)renameat(o->baseline_fd, "manifest.next", o->baseline_fd, "manifest");
		fd = openat(o->baseline_fd, "manifest", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	}
	return fd >= 0 ? fd : open(o->manifest_path, O_RDONLY | O_CLOEXEC);
}

/* There is no asking without setting; this process has one thread. */
static uint32_t user_umask(void)
{
	mode_t m = umask(077);

	(void)umask(m);
	return m;
}

/* 0 without one. */
static int open_run_dir(struct client *c, const char *dir, struct err *e)
{
	if (!dir)
		return 0;
	c->run_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return c->run_fd < 0 ? err_sys(e, errno, "open run directory %s", dir) : 0;
}

static int set_up(struct client *c, struct err *e)
{
	const struct unpack_opts *o = c->o;
	struct unpack_setup s = {
	    .mode = o->apply	? UM_APPLY
		    : o->review ? UM_REVIEW
				: UM_STREAM,
	    .strict = o->strict,
	    .dry_run = o->dry_run,
	    .take_sandbox = o->on_conflict == CONFLICT_TAKE_SANDBOX,
	    .full_tree = o->full_tree,
	    .without_landlock = o->without_landlock,
	    .has_manifest = o->manifest_path != NULL,
	    .keep_trash = o->keep_trash,
	    .take_all = !o->filter,
	    .total_max = o->total_max ? o->total_max : OUT_BYTES_DEFAULT,
	    .member_max = o->member_max,
	    .members_max = o->members_max,
	    .slow_ms = o->slow_ms ? o->slow_ms : STREAM_SLOW_MS,
	    .lock_wait_ms = o->lock_wait_ms ? o->lock_wait_ms : LOCK_WAIT_MS,
	    .umask = user_umask(),
	};
	_cleanup_fd_ int null = -1;
	int fds[FRAME_FDS_MAX], r = id_new(s.run);

	if (r < 0)
		return err_sys(e, -r, "make a name");
	if (o->only && (!path_is_member(o->only, strlen(o->only)) || strchr(o->only, '/')))
		return err_set(e, ERR_INVALID, "%.300s is not the name of a file", o->only);
	memcpy(c->name, s.run, sizeof(c->name));
	(void)snprintf(s.only, sizeof(s.only), "%s", o->only ? o->only : "");
	(void)snprintf(s.place, sizeof(s.place), "%s", o->run_dir);
	r = open_run_dir(c, o->run_dir, e);
	if (r == 0)
		r = sign(c, o->state_dir, &s, e);
	if (r < 0)
		return r;
	null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (o->manifest_path)
		c->manifest_fd = open_manifest(o);
	if (null < 0 || (o->manifest_path && c->manifest_fd < 0))
		return err_sys(e, errno, "open manifest %s",
			       o->manifest_path ? o->manifest_path : "/dev/null");
	fds[0] = c->root_fd;
	fds[1] = c->run_fd;
	fds[2] = o->manifest_path ? c->manifest_fd : null;
	fds[3] = o->apply ? null : o->stream_fd;
	r = send_setup(c, &s, fds, 4, e);
	if (r == 0)
		r = send_layers(c, e);
	if (r == 0 && o->baseline_fd > 0)
		r = chan_send(&c->ch, UF_BASELINE, NULL, 0, &o->baseline_fd, 1, INT64_MAX, e);
	return r == 0 ? chan_send(&c->ch, UF_START, NULL, 0, NULL, 0, INT64_MAX, e) : r;
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

/* What was expected did not come as it was told, or nobody knows whether it did. */
static void forget(struct client *c)
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
		forget(c);
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

static int recover(const struct unpack_opts *o, const char *run_dir, struct unpack_report *left,
		   struct err *e);
static int repair_one(const struct unpack_opts *o, const char *name, int run_fd,
		      struct unpack_report *ret, struct err *e);
static void say_left(const char *root, const struct unpack_report *left, struct err *ret);

/* Serves the helper until its last frame. */
static int converse(struct client *c, struct err *e)
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

/* What a helper that ended without a last word leaves to say. */
static int died(struct client *c, struct err *e)
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

/* The last frame is there; the process only has to be collected. */
static void ended_well(struct client *c)
{
	int status;

	chan_done(&c->ch);
	if (process_wait(&c->helper.proc, &c->helper.popts, &status, NULL) == 0)
		c->helper.started = false;
}

/* The helper sees the end of the channel and tidies up after itself; one that does not is ended. */
static void let_go(struct client *c)
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

static bool staging_left(const struct client *c)
{
	return faccessat(c->root_fd, ".git/airlock-staging", F_OK, AT_SYMLINK_NOFOLLOW) == 0 ||
	       faccessat(c->root_fd, ".airlock-staging", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* What is in both is the same change, told by the helper that died and by the one that went on. */
static void merge_told(struct unpack_report *rep)
{
	uint64_t ignored = rep->counts[UA_IGNORE];
	size_t n = 0;

	record_sort(rep);
	memset(rep->counts, 0, sizeof(rep->counts));
	for (size_t i = 0; i < rep->changes_len; i++) {
		struct unpack_change *c = &rep->changes[i];

		if (n && rep->changes[n - 1].action == c->action &&
		    str_eq(rep->changes[n - 1].path, c->path)) {
			free(c->path);
			free(c->detail);
			continue;
		}
		rep->counts[c->action]++;
		rep->changes[n++] = *c;
	}
	rep->changes_len = n;
	rep->counts[UA_IGNORE] = ignored;
}

/* The report is that of the repair, and what had been told before it. */
static int take_repaired(struct client *c, struct unpack_report *own)
{
	struct unpack_report *rep = c->rep;
	struct unpack_change *all =
	    reallocarray(rep->changes, rep->changes_len + own->changes_len + 1, sizeof(*all));

	if (!all)
		return -ENOMEM;
	rep->changes = all;
	for (size_t i = 0; i < own->changes_len; i++) {
		rep->changes[rep->changes_len++] = own->changes[i];
		own->changes[i].path = own->changes[i].detail = NULL;
	}
	rep->bytes_written = own->bytes_written;
	rep->mass_delete = own->mass_delete;
	merge_told(rep);
	return 0;
}

/* The publish of c, whose helper is gone, is finished or undone. */
static int recover_after(struct client *c, int r, struct err *e)
{
	struct unpack_report own = {0};
	struct err why = ERR_INIT;
	int k;

	if (c->o->no_recover || !c->name[0] || !staging_left(c)) {
		if (c->died)
			unpack_explain(e, c->published);
		return r;
	}
	k = repair_one(c->o, c->name, c->run_fd, &own, &why);
	if (k > 0 && take_repaired(c, &own) == 0)
		c->repaired_own = true;
	if (c->repaired_own)
		r = err_wrap(e, r, "(what it had begun to publish was finished: %s)",
			     own.counts[UA_CONFLICT] || own.counts[UA_FAIL] || own.counts[UA_REFUSE]
				 ? "all of it is there but for what is named"
				 : "all of it is there");
	else if (c->died && k >= 0) /* else the repair's own failure says what to do */
		unpack_explain(e, c->published && k != 0);
	if (k < 0)
		r = err_wrap(e, r, "(and what it left in %s could not be repaired: %s)", c->root,
			     why.text);
	why = ERR_INIT;
	if (k > 0)
		say_left(c->root, c->rep, &why);
	if (k > 0 && c->rep->counts[UA_NOT_TRASHED] && why.code != ERR_NONE)
		r = err_wrap(e, r, "(%.700s)", why.text);
	unpack_report_done(&own);
	return r;
}

/*
 * All was carried out and told when the helper of c ended early: the publish is a success, and only its staging place
 * must go. What cannot go now, the next run in the workspace removes.
 */
static void sweep_after(struct client *c)
{
	struct unpack_report own = {0};
	uint64_t bytes = c->rep->bytes_written;
	bool mass = c->rep->mass_delete;
	struct err why = ERR_INIT;

	if (c->o->no_recover || !staging_left(c))
		return;
	if (repair_one(c->o, c->name, c->run_fd, &own, &why) > 0)
		(void)take_repaired(c, &own);
	c->rep->bytes_written = bytes;
	c->rep->mass_delete = mass;
	unpack_report_done(&own);
}

/* What an earlier publish left is finished first. */
static int recover_before(struct client *c, struct err *e)
{
	struct unpack_report left = {0};
	int r = recover(c->o, c->o->keep_trash ? c->o->run_dir : NULL, &left, e);

	c->rep->repaired = r > 0;
	if (c->o->tell_left) {
		c->changes_cap = left.changes_len;
		c->rep->changes = TAKE_PTR(left.changes);
		c->rep->changes_len = left.changes_len;
		for (size_t i = 0; i < left.changes_len; i++)
			c->rep->counts[c->rep->changes[i].action]++;
		left.changes_len = 0;
	}
	unpack_report_done(&left);
	return r < 0 ? -EIO : 0;
}

/* r: what is known of why. What the whole run comes to. */
static int ended_early(struct client *c, int r, struct err *e)
{
	let_go(c);
	if (c->carried) {
		sweep_after(c);
		*e = ERR_INIT;
		return 0;
	}
	forget(c);
	return recover_after(c, r, e);
}

/* The record of what happened. 0 or -EIO. */
static int keep_record(struct client *c, struct err *e)
{
	int r;

	if (c->run_fd >= 0 && c->prepared && c->prepared == c->rep->changes_len) {
		r = record_keep(c->run_fd, e);
		return r < 0 ? -EIO : 0;
	}
	record_sort(c->rep);
	r = c->run_fd < 0 ? 0 : record_write(c->run_fd, c->rep, c->o->apply, e);
	return r < 0 ? -EIO : 0;
}

int unpack_run(const struct unpack_opts *o, struct unpack_report *ret, struct err *e)
{
	struct client c;
	struct err own = ERR_INIT;
	int r;

	if (!e)
		e = &own;
	*ret = (struct unpack_report){0};
	client_init(&c, o, ret);
	r = open_root(&c, o->root, e);
	if (r == 0 && staging_left(&c))
		r = recover_before(&c, e);
	if (r == 0)
		r = helper_start(&c.helper, "airlock-unpack", &c.ch, e);
	if (r == 0) {
		r = set_up(&c, e);
		/* A send that fails because the helper ended: its last words are still to be read. */
		if (r == 0 || r == -EPIPE)
			r = converse(&c, e);
		if (r == -EPIPE || r == -ECONNRESET)
			r = died(&c, e);
		else if (c.done)
			ended_well(&c);
		if (r < 0 && !c.done)
			r = ended_early(&c, r, e);
		else if (r < 0)
			forget(&c);
	}
	if ((r == 0 || r == -EBADMSG || c.repaired_own) && keep_record(&c, e) < 0)
		r = -EIO;
	client_done(&c);
	return r;
}

/* Of one kind in what repairs say: how many, and the first. */
static size_t left_of(const struct unpack_report *left, enum unpack_action a,
		      const struct unpack_change **ret)
{
	size_t n = 0;

	for (size_t i = 0; i < left->changes_len; i++)
		if (left->changes[i].action == a && n++ == 0)
			*ret = &left->changes[i];
	return n;
}

static void say_one(const char *root, enum unpack_action a, const struct unpack_change *c,
		    bool more, struct buf *b)
{
	const char *others = more ? " and of others" : "", *detail = c->detail ? c->detail : "";

	if (a == UA_NOT_TRASHED)
		(void)buf_putf(b,
			       "the old version of %.300s%s could not be moved to the trash of its "
			       "run; it lies below %.300s (%.300s); see to that, then 'airlock "
			       "recover %.300s'",
			       c->path, others, root, detail, root);
	else if (a == UA_REFUSE)
		(void)buf_putf(
		    b,
		    "%.300s/%.300s%s: %.300s; if another state directory (XDG_STATE_HOME), "
		    "user or version of Airlock made it, run 'airlock recover' there, else "
		    "look at it and remove it",
		    root, c->path, more ? " and others" : "", detail);
	else if (a == UA_CONFLICT)
		(void)buf_putf(
		    b,
		    "the version that the sandbox made of %.300s%s was not published, for "
		    "it changed here meanwhile; it lies in %.300s",
		    c->path, others, detail);
	else
		(void)buf_putf(b, "%.300s%s could not be written: %.300s", c->path,
			       more ? " and others" : "", detail);
}

/* What repairs left to see to, in words; once for all of a kind. */
static void say_left(const char *root, const struct unpack_report *left, struct err *ret)
{
	static const enum unpack_action kinds[] = {UA_NOT_TRASHED, UA_REFUSE, UA_CONFLICT, UA_FAIL};
	_cleanup_buf_ struct buf b = BUF_INIT(64 << 10);
	const struct unpack_change *c = NULL;

	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		size_t n = left_of(left, kinds[i], &c);

		if (n && b.len)
			(void)buf_puts(&b, "; ");
		if (n)
			say_one(root, kinds[i], c, n > 1, &b);
	}
	if (b.len)
		(void)err_set(ret, ERR_IO, "%s", buf_text(&b));
}

/* Was it said by name already that this staging place keeps something? */
static bool told_of(const struct unpack_report *left, const struct unpack_change *c)
{
	size_t n = strlen(c->path);

	for (size_t i = 0; i < left->changes_len; i++) {
		const struct unpack_change *o = &left->changes[i];

		if (o->action == UA_NOT_TRASHED && c->action == UA_NOT_TRASHED && o->detail &&
		    strncmp(o->detail, c->path, n) == 0 && o->detail[n] == '/')
			return true;
	}
	return false;
}

/* What is kept in the run directory of a repair, in full: nobody knows which one it was. */
static int name_place(struct unpack_change *c, int run_fd)
{
	_cleanup_free_ char *full = NULL;
	char link[64], dir[PATH_MEMBER_MAX + 1];
	ssize_t n;

	if (c->action != UA_CONFLICT || run_fd < 0 || !c->detail ||
	    !str_starts(c->detail, "conflicts/"))
		return 0;
	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", run_fd);
	n = readlink(link, dir, sizeof(dir) - 1);
	if (n <= 0) /* no /proc: as the run knows it */
		return 0;
	dir[n] = '\0';
	full = path_join(dir, c->detail);
	if (!full)
		return -ENOMEM;
	free(c->detail);
	c->detail = TAKE_PTR(full);
	return 0;
}

static bool is_left(enum unpack_action a)
{
	return a == UA_NOT_TRASHED || a == UA_CONFLICT || a == UA_FAIL || a == UA_REFUSE;
}

/* Moves what rep says that somebody must see to over to left. */
static int take_left(struct unpack_report *left, struct unpack_report *rep, int run_fd,
		     struct err *e)
{
	struct unpack_change *more;
	size_t n = left->changes_len;

	if (!rep->changes_len)
		return 0;
	more = reallocarray(left->changes, n + rep->changes_len, sizeof(*more));
	if (!more)
		return err_set(e, ERR_NOMEM, "out of memory");
	left->changes = more;
	for (size_t i = 0; i < rep->changes_len; i++) {
		struct unpack_change *c = &rep->changes[i];

		if (!is_left(c->action) || told_of(left, c))
			continue;
		if (name_place(c, run_fd) < 0)
			return err_set(e, ERR_NOMEM, "out of memory");
		more[left->changes_len++] = *c;
		c->path = c->detail = NULL;
	}
	return 0;
}

/* One helper that repairs: the staging directory `name`, or all; run_fd (borrowed) -1: no place to keep things. */
static int repair_one(const struct unpack_opts *o, const char *name, int run_fd,
		      struct unpack_report *ret, struct err *e)
{
	struct unpack_setup s = {
	    .mode = UM_RECOVER,
	    .one = name != NULL,
	    .keep_trash = run_fd >= 0,
	    .lock_wait_ms = o->lock_wait_ms ? o->lock_wait_ms : LOCK_WAIT_MS,
	    .umask = user_umask(),
	};
	struct unpack_opts plain = {.root = o->root};
	struct client c;
	int fds[2], r;

	client_init(&c, &plain, ret);
	c.published = true; /* what a helper leaves that dies in the middle is never "unchanged" */
	r = open_root(&c, o->root, e);
	if (r == 0 && !staging_left(&c)) {
		client_done(&c);
		return 0;
	}
	if (r == 0 && name)
		(void)snprintf(s.run, sizeof(s.run), "%s", name);
	else if (r == 0 && (r = id_new(s.run)) < 0)
		r = err_sys(e, -r, "make a name");
	if (r == 0)
		r = sign(&c, o->state_dir, &s, e);
	if (r == 0)
		r = helper_start(&c.helper, "airlock-unpack", &c.ch, e);
	fds[0] = c.root_fd;
	fds[1] = run_fd;
	if (r == 0)
		r = send_setup(&c, &s, fds, run_fd >= 0 ? 2 : 1, e);
	if (r == 0)
		r = chan_send(&c.ch, UF_START, NULL, 0, NULL, 0, INT64_MAX, e);
	if (r == 0 || (r == -EPIPE && c.helper.started))
		r = converse(&c, e);
	if (r == -EPIPE) {
		r = died(&c, e);
		unpack_explain(e, c.published);
	}
	if (c.done)
		ended_well(&c);
	if (r == 0)
		r = c.repaired;
	client_done(&c);
	return r;
}

/* The same; what somebody must see to goes to left. */
static int repair(const struct unpack_opts *o, const char *name, int run_fd,
		  struct unpack_report *left, struct err *e)
{
	struct unpack_report rep = {0};
	int r = repair_one(o, name, run_fd, &rep, e);
	int k = take_left(left, &rep, run_fd, r < 0 ? NULL : e);

	unpack_report_done(&rep);
	return r < 0 ? r : k < 0 ? k : r;
}

/* Those whose run is known each into its directory; then the others. */
static int recover_known(const struct unpack_opts *o, struct unpack_report *left, struct err *e)
{
	_cleanup_fd_ int root = open(o->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char **names = NULL;
	uint8_t key[JOURNAL_KEY];
	int done = 0, r;
	struct stat st;

	if (root < 0 || fstat(root, &st) < 0)
		return err_sys(e, errno, "open workspace %s", o->root);
	if (unpack_places(root, &names) < 0)
		return err_set(e, ERR_NOMEM, "out of memory");
	r = names ? unpack_key_load(o->state_dir, st.st_ino, key, e) : 0;
	for (size_t i = 0; r >= 0 && names && names[i]; i++) {
		_cleanup_fd_ int lock = -1;
		_cleanup_fd_ int fd =
		    unpack_place_open(root, names[i], o->state_dir, key, o->run_dir, &lock);

		/* Without its directory it would be carried out all the same, and then nothing kept. */
		if (fd < 0 && fd != -ENOENT)
			r = err_sys(
			    e, -fd,
			    "find where the publish that was cut in %s keeps what is replaced",
			    o->root);
		else
			r = fd < 0 ? 0 : repair(o, names[i], fd, left, e);
		done |= r > 0;
	}
	strv_free(names);
	return r < 0 ? r : done;
}

static void drop_untrashed(struct unpack_report *left)
{
	size_t n = 0;

	for (size_t i = 0; i < left->changes_len; i++) {
		struct unpack_change *c = &left->changes[i];

		if (c->action == UA_NOT_TRASHED) {
			free(c->path);
			free(c->detail);
		} else {
			left->changes[n++] = *c;
		}
	}
	left->changes_len = n;
}

static int recover(const struct unpack_opts *o, const char *run_dir, struct unpack_report *left,
		   struct err *e)
{
	_cleanup_fd_ int fd = -1;
	int done = o->state_dir ? recover_known(o, left, e) : 0, r;

	if (done < 0)
		return done;
	if (run_dir)
		fd = open(run_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (run_dir && fd < 0)
		return err_sys(e, errno, "open run directory %s", run_dir);
	/* What has no trash yet is met once more, with a place this time. */
	if (fd >= 0)
		drop_untrashed(left);
	r = repair(o, NULL, fd, left, e);
	return r < 0 ? r : r > 0 || done;
}

int unpack_recover(const char *root, const char *state_dir, struct err *ret_left, struct err *e)
{
	return unpack_recover_into(root, state_dir, NULL, ret_left, e);
}

int unpack_recover_into(const char *root, const char *state_dir, const char *run_dir,
			struct err *ret_left, struct err *e)
{
	struct unpack_opts o = {.root = root, .state_dir = state_dir};
	_cleanup_free_ char *real = realpath(root, NULL);
	struct unpack_report left = {0};
	int r = recover(&o, run_dir, &left, e);

	if (ret_left) {
		*ret_left = ERR_INIT;
		say_left(real ? real : root, &left, ret_left);
	}
	unpack_report_done(&left);
	return r;
}

void unpack_report_done(struct unpack_report *r)
{
	for (size_t i = 0; i < r->changes_len; i++) {
		free(r->changes[i].path);
		free(r->changes[i].detail);
	}
	free(r->changes);
	free(r->rejected_path);
	*r = (struct unpack_report){0};
}

const char *unpack_action_name(enum unpack_action a)
{
	static const char *const names[UA_ACTION_COUNT] = {
	    [UA_ADD] = "add",	    [UA_CHANGE] = "change",
	    [UA_MODE] = "mode",	    [UA_DELETE] = "delete",
	    [UA_MERGE] = "merge",   [UA_CONFLICT] = "conflict",
	    [UA_REFUSE] = "refuse", [UA_IGNORE] = "ignore",
	    [UA_FAIL] = "fail",	    [UA_NOT_TRASHED] = "not_trashed",
	};

	return (unsigned)a < UA_ACTION_COUNT ? names[a] : "?";
}
