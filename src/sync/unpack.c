/*
 * The engine's side of door 1. It opens, starts airlock-unpack, answers and collects; it parses no
 * byte of the sandbox's stream and writes nothing below the workspace.
 */
#include "sync/unpack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/id.h"
#include "base/path.h"
#include "base/str.h"
#include "sync/unpack_client.h"
#include "sync/unpack_record.h"
#include "sync/unpack_repair.h"

static int send_layers(struct client *c, struct err *e)
{
	int r = 0;

	for (size_t i = 0; c->o->layers && c->o->layers[i] && r == 0; i++) {
		_cleanup_fd_ int fd = open(c->o->layers[i], O_PATH | O_DIRECTORY | O_CLOEXEC);

		if (fd < 0 && errno == ENOTDIR) /* one file: it is read as it is */
			fd = open(c->o->layers[i], O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
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
	    .umask = client_umask(),
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
		r = client_sign(c, o->state_dir, &s, e);
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
	r = client_send_setup(c, &s, fds, 4, e);
	if (r == 0)
		r = send_layers(c, e);
	if (r == 0 && o->baseline_fd > 0)
		r = chan_send(&c->ch, UF_BASELINE, NULL, 0, &o->baseline_fd, 1, INT64_MAX, e);
	return r == 0 ? chan_send(&c->ch, UF_START, NULL, 0, NULL, 0, INT64_MAX, e) : r;
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

	if (c->o->no_recover || !c->name[0] || !client_staging_left(c)) {
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
		repair_say_left(c->root, c->rep, &why);
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

	if (c->o->no_recover || !client_staging_left(c))
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
	int r = repair_all(c->o, c->o->keep_trash ? c->o->run_dir : NULL, &left, e);

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
	client_let_go(c);
	if (c->carried) {
		sweep_after(c);
		*e = ERR_INIT;
		return 0;
	}
	client_forget(c);
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
	r = client_open_root(&c, o->root, e);
	if (r == 0 && client_staging_left(&c))
		r = recover_before(&c, e);
	if (r == 0)
		r = helper_start(&c.helper, "airlock-unpack", &c.ch, e);
	if (r == 0) {
		r = set_up(&c, e);
		/* A send that fails because the helper ended: its last words are still to be read. */
		if (r == 0 || r == -EPIPE)
			r = client_converse(&c, e);
		if (r == -EPIPE || r == -ECONNRESET)
			r = client_died(&c, e);
		else if (c.done)
			client_ended_well(&c);
		if (r < 0 && !c.done)
			r = ended_early(&c, r, e);
		else if (r < 0)
			client_forget(&c);
	}
	if ((r == 0 || r == -EBADMSG || c.repaired_own) && keep_record(&c, e) < 0)
		r = -EIO;
	client_done(&c);
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
