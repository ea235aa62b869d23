/*
 * A change set that waits for a decision: run_dir/pending/{list,c/}.
 *
 * Policy: pending/ was written by this program from judged members; it is read with the same
 * checks of shape as a journal, and what it holds goes through the same merge as a stream.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "sync/pending.h"
#include "sync/unpack_server.h"

/* The bytes of a member that kept those of the base, as a staged file of their own. */
static int stage_base(struct unpack *u, const char *path, size_t n, uint64_t *ret_id, struct err *e)
{
	_cleanup_free_ struct manifest_entry *b = malloc(sizeof(*b));
	_cleanup_fd_ int from = -1, out = -1;
	int r;

	if (!b)
		return err_set(e, ERR_NOMEM, "out of memory");
	from = u->m && manifest_find(u->m, path, n, b) > 0 ? base_open(u, b) : -1;
	if (from < 0)
		return 0;
	/* That the link becomes a file of its own is counted when it is planned. */
	r = stage_space(u, b->size, e);
	if (r < 0)
		return r;
	out = stage_create(u, path, 0600, ret_id, e);
	if (out < 0)
		return out;
	r = copy_fd(from, out);
	return r < 0 ? err_sys(e, -r, "stage a copy of %s", path) : 1;
}

/* The copy of a base that was made last: further links to it cost no room. */
struct copied {
	char path[LINK_TARGET_MAX + 1];
	uint64_t id;
};

static int link_content(struct unpack *u, uint64_t of, uint64_t *ret_id)
{
	char from[20], to[20];

	*ret_id = u->st.next_id++;
	stage_name(of, from);
	stage_name(*ret_id, to);
	return linkat(u->st.content, from, u->st.content, to, 0) < 0 ? -errno : 0;
}

/*
 * Each entry must stand for itself, for a part of them may be applied alone: a hard link gets the bytes
 * (by a link here: nothing in c/ is written again) of the member that it names. One without stays what it is
 * and is refused when it is planned.
 */
static int own_content(struct unpack *u, struct change *c, struct change *other,
		       struct copied *last, struct err *e)
{
	char target[LINK_TARGET_MAX + 1], from[20];
	uint64_t id = 0;
	ssize_t n;
	int r;

	if (!(c->flags & CH_HARDLINK))
		return 0;
	stage_name(c->id, from);
	n = readlinkat(u->st.content, from, target, sizeof(target) - 1);
	if (n < 0)
		return err_sys(e, errno, "read the target of hard link %s", c->path);
	target[n] = '\0';
	r = chlist_find(u->list, target, (size_t)n, other);
	if (r < 0)
		return err_sys(e, -r, "look up %s", target);
	if (r == 0 || other->kind != MK_FILE || other->flags & CH_HARDLINK)
		return 0;
	if (other->id) {
		r = link_content(u, other->id, &id);
	} else if (last->id && strcmp(last->path, target) == 0) {
		r = link_content(u, last->id, &id);
	} else {
		r = stage_base(u, target, (size_t)n, &id, e);
		if (r <= 0)
			return r;
		memcpy(last->path, target, (size_t)n + 1);
		last->id = id;
	}
	/* A file has only so many names; then another copy begins. */
	if (r == -EMLINK && !other->id)
		r = stage_base(u, target, (size_t)n, &last->id, e) > 0
			? link_content(u, last->id, &id)
			: -EMLINK;
	if (r < 0)
		return e && e->code != ERR_NONE
			   ? r
			   : err_sys(e, -r, "keep the content of hard link %s", c->path);
	c->id = id;
	c->flags &= (uint8_t)~CH_HARDLINK;
	c->size = other->size;
	memcpy(c->hash, other->hash, MANIFEST_HASH);
	return 0;
}

/* Entries that the filter dropped are left out. */
int pending_save(struct unpack *u, struct err *e)
{
	_cleanup_fd_ int fd =
	    openat(u->st.dir, "list", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	_cleanup_free_ struct change *c = malloc(2 * sizeof(*c));
	_cleanup_free_ struct copied *last = calloc(1, sizeof(*last));
	struct pending_writer w;
	int r = 0;

	if (!c || !last)
		return err_set(e, ERR_NOMEM, "out of memory");
	if (fd < 0)
		return err_sys(e, errno, "keep the change set in pending/");
	pending_begin(&w, fd);
	for (uint64_t i = 0; i < chlist_count(u->list) && r == 0; i++) {
		r = chlist_get(u->list, i, c);
		if (r < 0 || (u->skip && u->skip[i / 8] >> (i % 8) & 1))
			continue;
		if (u->partial) /* nothing that is missing is gone */
			c->flags &= (uint8_t)~CH_OPAQUE;
		if (u->partial && c->kind == MK_ABSENT)
			continue;
		r = own_content(u, c, c + 1, last, e);
		if (r < 0) {
			buf_done(&w.out);
			return r;
		}
		r = pending_put(&w, c);
	}
	if (r == 0)
		r = pending_end(&w);
	buf_done(&w.out);
	return r < 0 ? err_sys(e, -r, "keep the change set in pending/") : 0;
}

int pending_take(struct unpack *u, struct err *e)
{
	int dir = u->run.root;

	if (renameat2(dir, PENDING_NEW, dir, PENDING_DIR, RENAME_EXCHANGE) == 0) {
		/* What a sweep that is cut leaves, the next attempt removes. */
		(void)beneath_remove_tree(&u->run, PENDING_NEW);
		return 0;
	}
	/* None waits; or a file system that exchanges nothing. */
	if (errno != ENOENT && errno != EINVAL)
		return err_sys(e, errno, "keep the change set in pending/");
	(void)beneath_remove_tree(&u->run, PENDING_DIR);
	return renameat(dir, PENDING_NEW, dir, PENDING_DIR) < 0
		   ? err_sys(e, errno, "keep the change set in pending/")
		   : 0;
}

/* The bytes that were reviewed, and no others: -EBADMSG when they are not what the list says. */
static int copy_content(struct unpack *u, int from_dir, const struct change *c)
{
	char name[20], target[LINK_TARGET_MAX + 1];
	uint8_t sum[MANIFEST_HASH];
	uint64_t size;
	_cleanup_fd_ int in = -1, out = -1;
	struct stat st;
	ssize_t n;

	stage_name(c->id, name);
	n = readlinkat(from_dir, name, target, sizeof(target) - 1);
	if ((n >= 0) != (c->kind == MK_LINK || c->flags & CH_HARDLINK))
		return -EBADMSG;
	if (n >= 0) {
		target[n] = '\0';
		(void)crypto_generichash(sum, sizeof(sum), (const uint8_t *)target, (size_t)n, NULL,
					 0);
		if (c->kind == MK_LINK && memcmp(sum, c->hash, sizeof(sum)) != 0)
			return -EBADMSG;
		return symlinkat(target, u->st.content, name) < 0 ? -errno : 0;
	}
	in = openat(from_dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (in < 0 || fstat(in, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EBADMSG;
	out = openat(u->st.content, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (out < 0)
		return -errno;
	n = copy_fd(in, out);
	if (n == 0)
		n = hash_fd(out, sum, &size);
	/* Safe because: it is the copy that is judged, nobody else writes that. */
	if (n == 0 && (size != c->size || memcmp(sum, c->hash, sizeof(sum)) != 0))
		n = -EBADMSG;
	(void)futimens(out, (struct timespec[2]){{.tv_nsec = UTIME_OMIT}, st.st_mtim});
	return (int)n;
}

static int load_list(struct unpack *u, int fd, int from_dir, struct err *e)
{
	_cleanup_free_ struct pending_reader *rd = malloc(sizeof(*rd));
	struct change c;
	int r = rd ? pending_open(rd, fd) : -ENOMEM;

	if (r < 0)
		return err_set(e, r == -ENOMEM ? ERR_NOMEM : ERR_INVALID,
			       "pending/list of the run is damaged or no change set");
	while ((r = pending_next(rd, &c)) > 0) {
		if (c.kind == MK_UNKNOWN)
			u->unknown++;
		if (c.id >= u->st.next_id)
			u->st.next_id = c.id + 1;
		if (c.id && (r = stage_space(u, c.size, e)) < 0)
			return r;
		r = c.id ? copy_content(u, from_dir, &c) : 0;
		if (r == 0)
			r = chlist_add(u->list, &c);
		if (r == -EBADMSG)
			return err_set(e, ERR_INVALID,
				       "pending/ of the run is damaged: %s is not what was kept",
				       c.path);
		if ((r == -EPERM || r == -EOPNOTSUPP) &&
		    (c.kind == MK_LINK || c.flags & CH_HARDLINK))
			return err_set(
			    e, ERR_UNAVAILABLE,
			    "%s came as a link, and the file system of the workspace has none: "
			    "apply the other paths by name",
			    c.path);
		if (r < 0)
			return err_sys(e, -r, "stage %s from pending/", c.path);
	}
	if (r == 0)
		r = chlist_seal(u->list);
	return r < 0 ? err_sys(e, -r, "read pending/list of the run") : 0;
}

/* The selection of one apply, where the caller made one, else the whole set. */
int pending_load(struct unpack *u, struct err *e)
{
	_cleanup_fd_ int list = beneath_open(&u->run, PENDING_SELECT, O_RDONLY, 0);
	_cleanup_fd_ int dir = beneath_open(&u->run, PENDING_CONTENT, O_RDONLY | O_DIRECTORY, 0);

	if (list == -ENOENT)
		list = beneath_open(&u->run, PENDING_LIST, O_RDONLY, 0);
	if (list < 0 || dir < 0)
		return err_sys(e, list < 0 ? -list : -dir,
			       "open the change set pending/ of the run");
	return load_list(u, list, dir, e);
}
