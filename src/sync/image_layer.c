/*
 * Policy: every name is resolved from the tree's descriptor and no link is followed on the way (os/beneath.h), so an archive
 * writes below the tree or nowhere. What makes no sense without owners and privileges does not come in: devices, FIFOs
 * and sockets are left out, set-id bits taken away, extended attributes (file capabilities) and owners never looked at; all
 * counted. Modes become "executable" or not.
 * A layer's own names are judged like any; one that goes through a link of a lower layer is refused, where other
 * tools would follow it inside of the image: what lands where must not hang on what is there.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/limits.h"
#include "base/str.h"
#include "sync/image_internal.h"
#include "wire/tar.h"

#define WHITEOUT ".wh."
#define OPAQUE ".wh..wh..opq"
#define MODE_DIR 0755
#define MODE_FILE 0644
#define MODE_EXECUTABLE 0755

struct layer {
	struct image_tree *t;
	enum layer_pass pass;
	int fd; /* owned: the file that is being written */
	uint64_t size;
	int64_t mtime_ns;
	char path[PATH_MEMBER_MAX + 1];
	struct err *e;
};

static int broken(struct layer *l, int r, const char *what)
{
	struct buf b = BUF_INIT(1024);

	(void)str_printable(&b, l->path, strnlen(l->path, 200));
	if (r == -ELOOP || r == -ENOTDIR)
		r = err_set(
		    l->e, ERR_HOSTILE,
		    "the archive has %s below something that is no directory there: refused",
		    buf_text(&b));
	else
		r = err_sys(l->e, -r, "%s %s", what, buf_text(&b));
	buf_done(&b);
	return r;
}

static int hostile(struct layer *l, const char *why)
{
	struct buf b = BUF_INIT(1024);
	int r;

	(void)str_printable(&b, l->path, strnlen(l->path, 200));
	r = err_set(l->e, ERR_HOSTILE, "the archive has %s: %s", buf_text(&b), why);
	buf_done(&b);
	return r;
}

/* Nothing has the name afterwards; a directory stays if one is to be there. */
static int make_room(struct layer *l, bool dir)
{
	struct stat st;
	int r = beneath_stat(&l->t->at, l->path, &st);

	if (r == -ENOENT)
		return 0;
	if (r == 0 && S_ISDIR(st.st_mode) && dir)
		return 1;
	if (r == 0)
		r = beneath_remove_tree(&l->t->at, l->path);
	return r < 0 ? broken(l, r, "replace") : 0;
}

static int put_dir(struct layer *l)
{
	int r = make_room(l, true);

	if (r != 0)
		return r < 0 ? r : 0;
	r = beneath_mkdirs(&l->t->at, l->path, MODE_DIR);
	return r < 0 ? broken(l, r, "make") : 0;
}

static int put_file(struct layer *l, const struct tar_member *m)
{
	int r = make_room(l, false);

	if (r == 0 && (r = beneath_mkparents(&l->t->at, l->path, MODE_DIR)) < 0)
		r = broken(l, r, "make the directories of");
	if (r < 0)
		return r;
	l->fd = beneath_create(&l->t->at, l->path, m->mode & 0111 ? MODE_EXECUTABLE : MODE_FILE);
	l->size = m->size;
	l->mtime_ns = m->mtime_ns;
	return l->fd < 0 ? broken(l, l->fd, "make") : 0;
}

static int end_file(struct layer *l)
{
	const struct timespec t[2] = {{.tv_nsec = UTIME_OMIT}, clock_timespec(l->mtime_ns)};

	if (l->fd < 0)
		return 0;
	/* Holes at the end. */
	if (ftruncate(l->fd, (off_t)l->size) < 0 || futimens(l->fd, t) < 0)
		return broken(l, -errno, "write");
	cleanup_fd(&l->fd);
	return 0;
}

static int put_data(struct layer *l, const struct tar_out *o)
{
	int r = l->fd < 0 ? 0 : fd_write_at(l->fd, o->data.p, o->data.n, o->data_offset);

	return r < 0 ? broken(l, r, "write") : 0;
}

static int put_symlink(struct layer *l, struct view target)
{
	_cleanup_free_ char *to = strndup(target.p, target.n);
	_cleanup_fd_ int dir = -1;
	const char *base;
	int r = make_room(l, false);

	if (r == 0 && (r = beneath_mkparents(&l->t->at, l->path, MODE_DIR)) < 0)
		r = broken(l, r, "make the directories of");
	if (r < 0)
		return r;
	dir = beneath_parent(&l->t->at, l->path, &base);
	if (dir < 0)
		return broken(l, dir, "make");
	if (!to)
		return err_set(l->e, ERR_NOMEM, "read the archive: out of memory");
	return symlinkat(to, dir, base) < 0 ? broken(l, -errno, "make") : 0;
}

/* To a file that is there already, of this archive or one below it. A copy of the name, never of what the name leads to. */
static int put_hardlink(struct layer *l, struct view target)
{
	_cleanup_free_ char *to = strndup(target.p, target.n);
	_cleanup_fd_ int from_dir = -1, dir = -1;
	const char *from_base, *base;
	struct stat st;
	int r;

	if (!to)
		return err_set(l->e, ERR_NOMEM, "read the archive: out of memory");
	if (strcmp(to, l->path) == 0)
		return hostile(l, "a hard link to itself");
	r = beneath_stat(&l->t->at, to, &st);
	if (r < 0 || !S_ISREG(st.st_mode))
		return hostile(l, "a hard link to what is no earlier regular file");
	/* It costs no space, but whoever reads the image reads it once more. */
	l->t->bytes += (uint64_t)st.st_size;
	if (l->t->bytes > IMAGE_BYTES_MAX)
		return image_too_large(l->e);
	r = make_room(l, false);
	if (r == 0 && (r = beneath_mkparents(&l->t->at, l->path, MODE_DIR)) < 0)
		r = broken(l, r, "make the directories of");
	if (r < 0)
		return r;
	/* What made room may have held the target. */
	from_dir = beneath_parent(&l->t->at, to, &from_base);
	dir = beneath_parent(&l->t->at, l->path, &base);
	if (from_dir < 0 || dir < 0)
		return broken(l, from_dir < 0 ? from_dir : dir, "link");
	return linkat(from_dir, from_base, dir, base, 0) < 0 ? broken(l, -errno, "link") : 0;
}

/* --- whiteouts ---------------------------------------------------------------------------- */

static int empty_dir(struct layer *l, const char *dir)
{
	struct stat st;
	int r = beneath_stat(&l->t->at, dir, &st);

	if (r == -ENOENT)
		return 0;
	if (r == 0 && !S_ISDIR(st.st_mode))
		return hostile(l, "an opaque mark below what is no directory");
	if (r == 0 && dir[0])
		r = beneath_remove_tree(&l->t->at, dir);
	if (r == 0 && dir[0])
		r = beneath_mkdirs(&l->t->at, dir, MODE_DIR);
	else if (r == 0)
		return hostile(l, "an opaque mark on the root");
	return r < 0 ? broken(l, r, "empty the directory of") : 0;
}

/* path is that of the mark. Returns 1 if it is none. */
static int whiteout(struct layer *l)
{
	char *slash = strrchr(l->path, '/'), *base = slash ? slash + 1 : l->path;
	char gone[PATH_MEMBER_MAX + 1];
	size_t n = (size_t)(base - l->path);
	int r;

	if (strncmp(base, WHITEOUT, sizeof(WHITEOUT) - 1) != 0)
		return 1;
	if (l->pass != LAYER_WHITEOUTS)
		return 0;
	memcpy(gone, l->path, n);
	if (strcmp(base, OPAQUE) == 0) {
		gone[n ? n - 1 : 0] = '\0';
		return empty_dir(l, gone);
	}
	base += sizeof(WHITEOUT) - 1;
	/* Other marks of the same prefix are bookkeeping of old drivers. */
	if (strncmp(base, WHITEOUT, sizeof(WHITEOUT) - 1) == 0)
		return 0;
	if (!*base || strcmp(base, ".") == 0 || strcmp(base, "..") == 0)
		return hostile(l, "a mark that takes away no name");
	(void)snprintf(gone + n, sizeof(gone) - n, "%s", base);
	r = beneath_remove_tree(&l->t->at, gone);
	return r < 0 ? broken(l, r, "take away the name of") : 0;
}

/* --- members ------------------------------------------------------------------------------ */

static int put_member(struct layer *l, const struct tar_member *m)
{
	int r = end_file(l);

	if (r < 0)
		return r;
	memcpy(l->path, m->path.p, m->path.n);
	l->path[m->path.n] = '\0';
	if (m->op != TAR_OP_NONE)
		return hostile(l, "a mark that only results of a sandbox have");
	if (!m->path.n)
		return 0;
	if (l->pass != LAYER_ALL) {
		r = whiteout(l);
		if (r <= 0 || l->pass == LAYER_WHITEOUTS)
			return r < 0 ? r : 0;
	}
	l->t->facts->privileged += m->type == TAR_FILE && (m->mode & 06000) != 0;
	switch (m->type) {
	case TAR_DIR:
		return put_dir(l);
	case TAR_FILE:
		return put_file(l, m);
	case TAR_SYMLINK:
		return put_symlink(l, m->target);
	case TAR_HARDLINK:
		return put_hardlink(l, m->target);
	default:
		l->t->facts->specials++;
		return 0;
	}
}

static int one_event(struct layer *l, int ev, const struct tar_out *o)
{
	switch (ev) {
	case TAR_MEMBER:
		l->t->members++;
		l->t->bytes += l->pass == LAYER_WHITEOUTS ? 0 : o->member.size;
		return put_member(l, &o->member);
	case TAR_DATA:
		return put_data(l, o);
	case TAR_MEMBER_END:
		return end_file(l);
	default:
		return 0;
	}
}

/* The reader's own words are about results of a sandbox. */
static int refused(struct layer *l, int r, const struct tar_out *o)
{
	if (r != -EBADMSG || !o->rule)
		return r;
	return err_set(l->e, ERR_HOSTILE, "the archive is refused at byte %llu, rule %s: %s",
		       (unsigned long long)o->offset, o->rule, tar_rule_text(o->rule));
}

/* What stands behind the end mark says whether the compressed bytes before it were whole. */
static int drain(struct image_stream *s, struct err *e)
{
	const uint8_t *p;
	size_t n, all = 0;
	int r;

	while ((r = image_stream_next(s, &p, &n, e)) == 0 && n) {
		all += n;
		if (all > STREAM_TAIL_MAX)
			return err_set(e, ERR_LIMIT,
				       "the archive goes on for over %u bytes behind its end",
				       STREAM_TAIL_MAX);
	}
	return r;
}

static int run(struct layer *l, struct image_stream *s, struct tar_reader *r)
{
	struct tar_out o = {0};
	const uint8_t *p;
	size_t n;
	int k, ev;

	while ((k = image_stream_next(s, &p, &n, l->e)) == 0 && n) {
		while ((ev = tar_reader_next(r, &p, &n, &o, l->e)) > TAR_NEED && ev != TAR_END) {
			k = one_event(l, ev, &o);
			if (k < 0)
				return k;
		}
		if (ev == TAR_END) {
			k = end_file(l);
			return k < 0 ? k : drain(s, l->e);
		}
		if (ev < 0)
			return refused(l, ev, &o);
	}
	if (k < 0)
		return k;
	ev = tar_reader_finish(r, &o, l->e);
	return ev < 0 ? refused(l, ev, &o) : 0;
}

int image_layer_apply(struct image_tree *t, int fd, enum layer_pass pass, struct err *e)
{
	/* What is left of the bounds of the whole import; 0 would mean the reader's own. */
	struct tar_limits lim = {
	    .members = IMAGE_MEMBERS_MAX > t->members ? IMAGE_MEMBERS_MAX - t->members : 1,
	    .total_size = IMAGE_BYTES_MAX > t->bytes ? IMAGE_BYTES_MAX - t->bytes : 1};
	struct layer *l = malloc(sizeof(*l));
	struct image_stream *s = NULL;
	struct tar_reader *r = NULL;
	int k = l && tar_reader_new(&lim, &r) == 0
		    ? image_stream_new(fd, &s, e)
		    : err_set(e, ERR_NOMEM, "read the archive: out of memory");

	if (l)
		*l = (struct layer){.t = t, .pass = pass, .fd = -1, .e = e};
	if (k == 0) {
		k = run(l, s, r);
		cleanup_fd(&l->fd);
	}
	tar_reader_free(r);
	image_stream_free(s);
	free(l);
	return k;
}
