/*
 * review_host.c: what an apply of a change set would do to each path of the host as it is now.
 *
 * Policy: the same decision as an apply (merge.h), with the same looks; nothing is written. What is said here is
 * a forecast for a person: the apply looks again.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/path.h"
#include "os/beneath.h"
#include "sync/merge3.h"
#include "sync/review_internal.h"

static int hash_host(struct review *r, const char *path, uint8_t ret[MANIFEST_HASH])
{
	struct beneath root = {.root = r->root_fd};
	_cleanup_fd_ int fd = beneath_open(&root, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
	crypto_generichash_state h;
	uint8_t part[32 << 10];
	ssize_t n;

	if (fd < 0)
		return fd;
	(void)crypto_generichash_init(&h, NULL, 0, MANIFEST_HASH);
	while ((n = read(fd, part, sizeof(part))) != 0) {
		if (n < 0 && errno != EINTR)
			return -errno;
		(void)crypto_generichash_update(&h, part, n > 0 ? (size_t)n : 0);
	}
	(void)crypto_generichash_final(&h, ret, MANIFEST_HASH);
	return 0;
}

static int64_t ns(struct timespec t)
{
	return (int64_t)t.tv_sec * NS_PER_S + t.tv_nsec;
}

/* Content number as in unpack_host.c: 1 as sent, 2 as in the sandbox, 3 neither. */
static int number(struct review *r, const struct review_entry *en, const struct stat *st,
		  unsigned *ret)
{
	const struct manifest_entry *b = &en->b;
	_cleanup_buf_ struct buf t = BUF_INIT(LINK_TARGET_MAX + 1);
	uint8_t hash[MANIFEST_HASH], bl[MANIFEST_HASH] = {0};
	uint64_t size = (uint64_t)st->st_size;
	int k;

	*ret = 3;
	if (S_ISLNK(st->st_mode)) {
		k = review_read(r, en, REVIEW_HOST, LINK_TARGET_MAX, &t, &size);
		if (k < 0)
			return k;
		(void)crypto_generichash(hash, sizeof(hash), (const uint8_t *)buf_text(&t), t.len,
					 NULL, 0);
		if (b->kind == 'l')
			(void)crypto_generichash(bl, sizeof(bl), (const uint8_t *)b->target,
						 b->target_len, NULL, 0);
		if (b->kind == 'l' && !memcmp(bl, hash, sizeof(hash)))
			*ret = 1;
		else if (en->s.kind == MK_LINK && !memcmp(en->s.hash, hash, sizeof(hash)))
			*ret = 2;
		return 0;
	}
	if (b->kind == 'f' && st->st_ino == b->ino && size == b->size &&
	    ns(st->st_mtim) == b->mtime_ns && ns(st->st_ctim) == b->ctime_ns) {
		*ret = 1;
		return 0;
	}
	if (!(b->kind == 'f' && b->size == size) && !(en->s.kind == MK_FILE && en->s.size == size))
		return 0;
	k = hash_host(r, en->s.path, hash);
	if (k < 0)
		return k;
	if (b->kind == 'f' && !memcmp(b->hash, hash, sizeof(hash)))
		*ret = 1;
	else if (en->s.kind == MK_FILE && !memcmp(en->s.hash, hash, sizeof(hash)))
		*ret = 2;
	return 0;
}

static int look_fail(struct review_entry *en, int k)
{
	en->status = k == -ELOOP || k == -ENOTDIR ? REVIEW_CONFLICT : REVIEW_FAIL;
	en->rule = k == -ELOOP	   ? "parent_link"
		   : k == -ENOTDIR ? "parent_not_dir"
		   : k == -EACCES  ? "permission_denied"
				   : "io_error";
	return 0;
}

/* Would the three texts merge? */
static int try_merge(struct review *r, struct review_entry *en)
{
	struct buf t[3];
	uint64_t size;
	int k = 1;

	for (int i = 0; i < 3; i++)
		buf_init(&t[i], MERGE_TEXT_MAX + (64 << 10) + 1);
	for (int i = 0; i < 3 && k == 1; i++)
		k = review_read(r, en,
				i == 0	 ? REVIEW_SENT
				: i == 1 ? REVIEW_HOST
					 : REVIEW_SANDBOX,
				MERGE_TEXT_MAX, &t[i], &size);
	if (k == 1)
		k = merge3((struct view){buf_text(&t[0]), t[0].len},
			   (struct view){buf_text(&t[1]), t[1].len},
			   (struct view){buf_text(&t[2]), t[2].len}, NULL, NULL) == MERGE3_CLEAN;
	for (int i = 0; i < 3; i++)
		buf_done(&t[i]);
	return k == 1;
}

static struct merge_side side_of(const struct stat *st)
{
	struct merge_side h = {.kind = S_ISREG(st->st_mode)   ? MK_FILE
				       : S_ISLNK(st->st_mode) ? MK_LINK
				       : S_ISDIR(st->st_mode) ? MK_DIR
							      : MK_OTHER};

	h.mode = h.kind == MK_LINK ? 0 : st->st_mode & 0777;
	return h;
}

/* --- directories that something else takes the place of, and the reverse --------------------- */

struct scan {
	struct review_entry en; /* of the entry that is looked at: only what was sent */
	char path[PATH_MEMBER_MAX + 1];
	unsigned depth;
};

static int scan_dir(struct review *r, struct scan *s);

/* s->path: 1 as it was sent, 0 not, errno. As an apply judges it (unpack_host.c). */
static int scan_entry(struct review *r, struct scan *s)
{
	struct beneath root = {.root = r->root_fd};
	struct merge_side h;
	unsigned content;
	struct stat st;
	int k = review_sent(r, s->path, &s->en);

	if (k < 0 || s->en.old_kind == MK_ABSENT || beneath_stat(&root, s->path, &st) < 0)
		return k < 0 && k != -EINVAL ? k : 0;
	h = side_of(&st);
	if (h.kind != s->en.old_kind || (h.kind == MK_FILE && h.mode != s->en.b.mode))
		return 0;
	if (h.kind == MK_DIR)
		return scan_dir(r, s);
	k = number(r, &s->en, &st, &content);
	return k < 0 ? k : content == 1;
}

static int scan_dir(struct review *r, struct scan *s)
{
	struct beneath root = {.root = r->root_fd};
	size_t len = strlen(s->path);
	_cleanup_dir_ DIR *d = NULL;
	struct dirent *de;
	int k = 1, fd;

	fd = s->depth >= PATH_DEPTH_MAX ? -1
					: beneath_open(&root, s->path, O_RDONLY | O_DIRECTORY, 0);
	d = fd < 0 ? NULL : fdopendir(fd);
	if (!d) {
		cleanup_fd(&fd);
		return 0;
	}
	s->depth++;
	while (k > 0 && (errno = 0, de = readdir(d))) {
		size_t n = strlen(de->d_name);

		if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
			continue;
		if (len + 1 + n > PATH_MEMBER_MAX)
			return 0;
		s->path[len] = '/';
		memcpy(s->path + len + 1, de->d_name, n + 1);
		k = scan_entry(r, s);
		s->path[len] = '\0';
	}
	if (k > 0 && !de && errno) /* what could not be read is not known to be as it was */
		k = 0;
	s->depth--;
	return k;
}

/* Is all in the host's directory as it was sent? 1, 0, errno. */
static int dir_as_sent(struct review *r, const char *path)
{
	_cleanup_free_ struct scan *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	(void)snprintf(s->path, sizeof(s->path), "%s", path);
	return scan_dir(r, s);
}

static int look_here(struct review *r, struct review_entry *en, int blocked);

/* How much of the path is known to have no such entry: up to a '/' or 0. */
static size_t clear_above(const char *clear, const char *path)
{
	size_t known = 0;

	for (size_t i = 0; clear; i++) {
		if (path[i] == '/' && (!clear[i] || clear[i] == '/'))
			known = i;
		if (!clear[i] || clear[i] != path[i])
			return known;
	}
	return 0;
}

/* Paths come in order, so the next one is below the same directories, or nearly. */
static int keep_clear(struct review *r, const char *path)
{
	const char *end = strrchr(path, '/');

	free(r->clear);
	r->clear = strndup(path, end ? (size_t)(end - path) : 0);
	return r->clear ? 0 : -ENOMEM;
}

/*
 * The entry above `path` that puts something else in the place of a directory, or a directory in the place of
 * something else; looked at. 1 r->above, 0 there is none, errno. What is below it has the same answer, so the last
 * one is kept: a directory of a million files is not looked through a million times. Nor is what is above it, when nothing is.
 */
static int above(struct review *r, const struct review_entry *en)
{
	_cleanup_free_ struct review_entry *a = NULL;
	const char *path = en->s.path;
	size_t known;
	int k = 0;

	if (!r->turned)
		return 0;
	if (r->above && !strncmp(path, r->above->s.path, r->above->s.path_len) &&
	    path[r->above->s.path_len] == '/')
		return 1;
	a = malloc(sizeof(*a));
	if (!a)
		return -ENOMEM;
	known = clear_above(r->clear, path);
	for (size_t n = known + 1; k == 0 && path[known] && path[n]; n++) {
		char up[PATH_MEMBER_MAX + 1];

		if (path[n] != '/')
			continue;
		(void)snprintf(up, sizeof(up), "%.*s", (int)n, path);
		k = review_find(r, up, a);
		if (k == -ENOENT)
			k = 0;
		else if (k == 0)
			k = a->s.kind != MK_ABSENT &&
			    (a->s.kind == MK_DIR) != (a->old_kind == MK_DIR) &&
			    a->old_kind != MK_ABSENT;
	}
	if (k == 0)
		return keep_clear(r, path);
	if (k < 0)
		return k;
	k = look_here(r, a, 0);
	if (k < 0)
		return k;
	free(r->above);
	r->above = TAKE_PTR(a);
	return 1;
}

/* --- one path ------------------------------------------------------------------------------- */

/* blocked: what took the parent's place on the host goes, so nothing is at this path then. */
static int look_here(struct review *r, struct review_entry *en, int blocked)
{
	struct beneath root = {.root = r->root_fd};
	struct merge_side b = {.kind = en->old_kind}, s = {.kind = en->s.kind, .mode = en->s.mode},
			  h = {.kind = MK_ABSENT};
	struct merge_verdict v;
	struct stat st;
	int k = blocked ? -ENOENT : beneath_stat(&root, en->s.path, &st);

	if (k < 0 && k != -ENOENT)
		return look_fail(en, k);
	if (k == 0)
		h = side_of(&st);
	if (en->b.kind) {
		b.mode = en->b.kind == 'l' ? 0 : en->b.mode;
		b.content = 1;
	}
	if (s.kind == MK_FILE || s.kind == MK_LINK)
		s.content = review_same_bytes(&en->s, &en->b) ? 1 : 2;
	if (h.kind == MK_FILE || h.kind == MK_LINK) {
		k = number(r, en, &st, &h.content);
		if (k < 0)
			return look_fail(en, k);
	}
	v = merge_decide(b, s, h, false);
	en->rule = v.rule ? v.rule : "";
	if (v.act == MA_DIR_TO_FILE) {
		k = dir_as_sent(r, en->s.path);
		if (k < 0)
			return k;
		if (k == 0) {
			v.act = MA_KEEP;
			en->rule = "dir_has_changes";
		}
	}
	switch (v.act) {
	case MA_NONE:
		en->status = REVIEW_DONE;
		break;
	case MA_TEXT:
		en->status = try_merge(r, en) ? REVIEW_MERGE : REVIEW_CONFLICT;
		break;
	case MA_KEEP:
	case MA_TAKE:
		en->status = REVIEW_CONFLICT;
		break;
	default:
		en->status = REVIEW_CLEAN;
		en->rule = "";
	}
	return 0;
}

int review_look(struct review *r, struct review_entry *en, struct err *e)
{
	bool whole;
	int k;

	(void)e;
	if (r->root_fd < 0)
		return look_fail(en, -ENOENT);
	k = above(r, en);
	if (k <= 0)
		return k < 0 ? k : look_here(r, en, 0);
	whole = r->above->status == REVIEW_CLEAN || r->above->status == REVIEW_DONE;
	if (r->above->s.kind == MK_DIR)
		return look_here(r, en, r->above->status == REVIEW_CLEAN);
	/* Below what becomes a file or a link: it goes with the directory, or all of that stays. */
	en->status = whole			       ? r->above->status
		     : r->above->status == REVIEW_FAIL ? REVIEW_FAIL
						       : REVIEW_CONFLICT;
	en->rule = r->above->rule;
	return 0;
}
