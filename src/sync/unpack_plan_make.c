/*
 * Contents that no member of the stream has as they are needed: copies for hard links and of the base, text merges.
 * Part of door 1.
 *
 * Policy: they are staged like what the stream brought, and a copy counts like a file. The sandbox's bytes are
 * data; the three texts of a merge are bounded.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "sync/merge3.h"
#include "sync/unpack_plan.h"

int plan_copy(struct plan *p, int from, uint64_t *ret_id, struct err *e)
{
	_cleanup_fd_ int out = -1;
	struct stat st;
	int r;

	if (fstat(from, &st) < 0)
		return err_sys(e, errno, "stage a copy for %s", p->c.path);
	r = stage_space(p->u, (uint64_t)st.st_size, e);
	if (r < 0)
		return r;
	out = stage_create(p->u, p->c.path, 0600, ret_id, e);
	if (out < 0)
		return out;
	r = copy_fd(from, out);
	if (r < 0)
		return err_sys(e, -r, "stage a copy for %s", p->c.path);
	(void)futimens(out, (struct timespec[2]){{.tv_nsec = UTIME_OMIT},
						 {.tv_sec = p->c.mtime_ns / 1000000000,
						  .tv_nsec = p->c.mtime_ns % 1000000000}});
	return 0;
}

/* The file of a tree, wherever it lies by now. */
static int open_in_tree(struct plan *p, const struct change *c)
{
	struct unpack *u = p->u;
	struct beneath content = {.root = u->st.content, .stepwise = u->root.stepwise};
	char at[PATH_MEMBER_MAX + 1];
	int fd = tree_open_staged(u, c->path, c->path_len, (size_t)c->id, O_RDONLY);
	uint64_t i;

	if (fd != -ENOENT)
		return fd;
	tree_path(c->path, c->path_len, (size_t)c->id, TREE_APART, at);
	fd = beneath_open(&content, at, O_RDONLY, 0);
	if (fd != -ENOENT || chlist_seek(u->list, c->path, c->path_len, &i) < 0)
		return fd;
	stage_name(p->ids + i, at);
	return beneath_open(&content, at, O_RDONLY, 0);
}

/* Not only this member is at fault: nothing of the stream comes in. */
static int count_copy(struct plan *p, uint64_t size, struct err *e)
{
	struct err why = ERR_INIT;
	int r = stage_copy_counts(p->u, size, &why);

	if (r < 0 && why.code == ERR_LIMIT)
		return plan_reject(p, "limit", why.text, e);
	if (r < 0)
		*e = why;
	return r;
}

int plan_hardlink(struct plan *p, struct err *e)
{
	struct unpack *u = p->u;
	char target[LINK_TARGET_MAX + 1], name[20];
	_cleanup_fd_ int from = -1;
	ssize_t n;
	int r;

	stage_name(p->c.id, name);
	n = readlinkat(u->st.content, name, target, sizeof(target) - 1);
	if (n < 0)
		return err_sys(e, errno, "read the target of hard link %s", p->c.path);
	target[n] = '\0';
	r = chlist_find(u->list, target, (size_t)n, &p->other);
	if (r < 0)
		return err_sys(e, -r, "look up %s", target);
	if (r == 0 || p->other.kind != MK_FILE || p->other.flags & CH_HARDLINK)
		return 1;
	r = count_copy(p, p->other.size, e);
	if (r < 0)
		return r;
	p->c.flags &= (uint8_t)~CH_HARDLINK;
	p->c.size = p->other.size;
	if (p->preview && !p->other.id && strcmp(p->copied, target) == 0)
		p->other.id = p->copied_id;
	if (p->preview && p->other.id) {
		p->c.id = p->other.id; /* only looked at */
		memcpy(p->c.hash, p->other.hash, MANIFEST_HASH);
		return 0;
	}
	if (p->other.flags & CH_TREE) {
		from = open_in_tree(p, &p->other);
	} else if (p->other.id) {
		stage_name(p->other.id, name);
		from = openat(u->st.content, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	} else if (u->m && manifest_find(u->m, target, (size_t)n, &p->below) > 0) {
		from = base_open(u, &p->below);
	}
	if (from < 0)
		return 1;
	r = change_hash(&p->other, from);
	if (r < 0)
		return err_sys(e, -r, "read the staged content of %s", p->other.path);
	memcpy(p->c.hash, p->other.hash, MANIFEST_HASH);
	r = plan_copy(p, from, &p->c.id, e);
	if (r == 0 && p->preview && !p->other.id) {
		(void)snprintf(p->copied, sizeof(p->copied), "%s", target);
		p->copied_id = p->c.id;
	}
	return r;
}

static int slurp(int fd, struct buf *b)
{
	ssize_t n;

	do {
		char *room = buf_room(b, 64 << 10);

		if (!room)
			return b->err;
		n = read(fd, room, 64 << 10);
		if (n > 0)
			buf_add(b, (size_t)n);
	} while (n > 0 || (n < 0 && errno == EINTR));
	return n < 0 ? -errno : 0;
}

static int write_piece(void *arg, const void *data, size_t n)
{
	const char *q = data;

	while (n) {
		ssize_t w = write(*(int *)arg, q, n);

		if (w < 0 && errno != EINTR)
			return -errno;
		q += w > 0 ? w : 0;
		n -= (size_t)(w > 0 ? w : 0);
	}
	return 0;
}

int plan_merge(struct plan *p, uint64_t *ret_id, struct err *e)
{
	struct unpack *u = p->u;
	struct buf t[3];
	struct stat st;
	char name[20];
	_cleanup_fd_ int base = -1, ours = -1, theirs = -1, out = -1;
	int r = 0;

	if (p->b.size > MERGE_TEXT_MAX || p->c.size > MERGE_TEXT_MAX ||
	    p->h.st.st_size > MERGE_TEXT_MAX)
		return 0;
	stage_name(p->c.id, name);
	base = base_open(u, &p->b);
	theirs = openat(u->st.content, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	ours = beneath_open(&u->root, p->c.path, O_RDONLY | O_NONBLOCK, 0);
	if (base < 0 || theirs < 0 || ours < 0 || fstat(ours, &st) < 0 ||
	    st.st_ino != p->h.st.st_ino || st.st_size != p->h.st.st_size)
		return 0;
	for (size_t i = 0; i < 3; i++)
		buf_init(&t[i], MERGE_TEXT_MAX + (64 << 10) + 1);
	r = slurp(base, &t[0]);
	r = r ? r : slurp(ours, &t[1]);
	r = r ? r : slurp(theirs, &t[2]);
	if (r == 0 && !p->preview) {
		out = stage_create(u, p->c.path, 0600, ret_id, e);
		r = out < 0 ? out : 0;
	}
	if (r == 0)
		r = merge3((struct view){t[0].data, t[0].len}, (struct view){t[1].data, t[1].len},
			   (struct view){t[2].data, t[2].len}, p->preview ? NULL : write_piece,
			   &out);
	for (size_t i = 0; i < 3; i++)
		buf_done(&t[i]);
	return r < 0 ? err_sys(e, -r, "merge %s", p->c.path) : r == MERGE3_CLEAN;
}
