/*
 * Policy: part of door 1. What a journal orders is carried out by a helper that is confined like every other; here is
 * decided only which directory keeps what loses and what goes. A journal's word for that counts with its signature only
 * (unpack_place.h). What cannot be moved stays, and is told.
 */
#include "sync/unpack_repair.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "base/str.h"
#include "sync/unpack_client.h"
#include "sync/unpack_key.h"
#include "sync/unpack_place.h"

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

void repair_say_left(const char *root, const struct unpack_report *left, struct err *ret)
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

int repair_one(const struct unpack_opts *o, const char *name, int run_fd, struct unpack_report *ret,
	       struct err *e)
{
	struct unpack_setup s = {
	    .mode = UM_RECOVER,
	    .one = name != NULL,
	    .keep_trash = run_fd >= 0,
	    .lock_wait_ms = o->lock_wait_ms ? o->lock_wait_ms : LOCK_WAIT_MS,
	    .umask = client_umask(),
	};
	struct unpack_opts plain = {.root = o->root};
	struct client c;
	int fds[2], r;

	client_init(&c, &plain, ret);
	c.published = true; /* what a helper leaves that dies in the middle is never "unchanged" */
	r = client_open_root(&c, o->root, e);
	if (r == 0 && !client_staging_left(&c)) {
		client_done(&c);
		return 0;
	}
	if (r == 0 && name)
		(void)snprintf(s.run, sizeof(s.run), "%s", name);
	else if (r == 0 && (r = id_new(s.run)) < 0)
		r = err_sys(e, -r, "make a name");
	if (r == 0)
		r = client_sign(&c, o->state_dir, &s, e);
	if (r == 0)
		r = helper_start(&c.helper, "airlock-unpack", &c.ch, e);
	fds[0] = c.root_fd;
	fds[1] = run_fd;
	if (r == 0)
		r = client_send_setup(&c, &s, fds, run_fd >= 0 ? 2 : 1, e);
	if (r == 0)
		r = chan_send(&c.ch, UF_START, NULL, 0, NULL, 0, INT64_MAX, e);
	if (r == 0 || (r == -EPIPE && c.helper.started))
		r = client_converse(&c, e);
	if (r == -EPIPE) {
		r = client_died(&c, e);
		unpack_explain(e, c.published);
	}
	if (c.done)
		client_ended_well(&c);
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

int repair_all(const struct unpack_opts *o, const char *run_dir, struct unpack_report *left,
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
	int r = repair_all(&o, run_dir, &left, e);

	if (ret_left) {
		*ret_left = ERR_INIT;
		repair_say_left(real ? real : root, &left, ret_left);
	}
	unpack_report_done(&left);
	return r;
}
