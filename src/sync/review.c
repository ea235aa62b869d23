#include "sync/review_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "os/beneath.h"
#include "sync/pending.h"

void review_free(struct review *r)
{
	if (!r)
		return;
	chlist_free(r->list);
	chlist_free(r->all);
	manifest_free(r->m);
	free(r->above);
	free(r->clear);
	cleanup_fd(&r->run_fd);
	cleanup_fd(&r->root_fd);
	cleanup_fd(&r->manifest_fd);
	cleanup_fd(&r->list_fd);
	cleanup_fd(&r->content_fd);
	for (size_t i = 0; i < r->layers_len; i++)
		cleanup_fd(&r->layers[i]);
	free(r);
}

static int sent(const struct review *r, const char *path, size_t n, struct manifest_entry *b)
{
	return r->m ? manifest_find(r->m, path, n, b) : 0;
}

bool review_same_bytes(const struct change *c, const struct manifest_entry *b)
{
	uint8_t hash[MANIFEST_HASH];

	if (c->kind == MK_FILE)
		return b->kind == 'f' && b->size == c->size &&
		       !memcmp(b->hash, c->hash, sizeof(b->hash));
	if (c->kind != MK_LINK || b->kind != 'l')
		return false;
	(void)crypto_generichash(hash, sizeof(hash), (const uint8_t *)b->target, b->target_len,
				 NULL, 0);
	return !memcmp(hash, c->hash, sizeof(hash));
}

static bool same_as_sent(const struct change *c, const struct manifest_entry *b)
{
	if (c->kind == MK_DIR)
		return b->kind == 'd' && b->mode == c->mode;
	return review_same_bytes(c, b) && (c->kind == MK_LINK || b->mode == c->mode);
}

/* Is path, or a directory above it, one that could not be read in the sandbox? 1, 0, errno. */
static int unknown(struct review *r, const char *path, size_t n)
{
	int k = 0;

	for (size_t i = n; k == 0; i--) {
		if (i && i != n && path[i] != '/')
			continue;
		k = chlist_find(r->list, path, i, &r->other);
		if (k > 0)
			k = r->other.kind == MK_UNKNOWN;
		if (!i)
			break;
	}
	return k;
}

static bool covers(const struct change *c)
{
	return c->kind == MK_ABSENT || c->kind == MK_FILE || c->kind == MK_LINK ||
	       c->flags & CH_OPAQUE;
}

/* Is path in the list, or decided by a listed directory above it, but below the first `above` bytes? */
static int decided(struct review *r, const char *path, size_t n, size_t above)
{
	int k = chlist_find(r->list, path, n, &r->other);

	for (size_t i = n; i-- > above + 1 && k == 0;) {
		if (path[i] != '/')
			continue;
		k = chlist_find(r->list, path, i, &r->other);
		if (k > 0)
			k = covers(&r->other);
	}
	return k;
}

static int add(struct review *r, const struct change *c)
{
	r->dirs += c->kind == MK_DIR || (c->kind == MK_ABSENT && c->flags & CH_OPAQUE);
	return chlist_add(r->all, c);
}

static int gone(struct review *r, const struct manifest_entry *b)
{
	struct change *c = &r->c;

	*c = (struct change){.kind = MK_ABSENT, .path_len = (uint32_t)b->path_len};
	memcpy(c->path, b->path, b->path_len + 1);
	if (b->kind == 'd')
		c->flags = CH_OPAQUE; /* here: it was a directory */
	return add(r, c);
}

/* What was sent below directory `dir` and is not in the list: gone with it. */
static int gone_below(struct review *r, const char *dir, size_t n)
{
	size_t pos = 0;
	int k;

	if (!r->m)
		return 0;
	manifest_seek_below(r->m, dir, n, &pos);
	while ((k = manifest_next(r->m, &pos, &r->b)) > 0) {
		if (n &&
		    (r->b.path_len <= n || memcmp(r->b.path, dir, n) != 0 || r->b.path[n] != '/'))
			return 0;
		k = decided(r, r->b.path, r->b.path_len, n);
		if (k == 0) {
			k = unknown(r, r->b.path, r->b.path_len);
			if (k == 0)
				k = gone(r, &r->b);
			else
				k = k < 0 ? k : 0;
		}
		if (k < 0)
			return k;
	}
	return k;
}

/* One record of the list becomes its path and, where it speaks for a directory, those below. */
static int unfold(struct review *r, const struct change *c)
{
	int have = c->path_len && !(c->flags & CH_NEW) ? sent(r, c->path, c->path_len, &r->b) : 0;
	bool was_dir = have > 0 && r->b.kind == 'd';
	int k = 0;

	if (have < 0 || c->kind == MK_UNKNOWN)
		return have < 0 ? have : 0;
	if (c->kind == MK_ABSENT) {
		k = have ? unknown(r, c->path, c->path_len) : 1;
		if (k == 0)
			k = gone(r, &r->b);
	} else if (c->path_len && !(have && same_as_sent(c, &r->b))) {
		r->c = *c;
		r->c.flags &= (uint8_t)~CH_OPAQUE;
		r->turned = r->turned || (have && was_dir != (c->kind == MK_DIR));
		k = add(r, &r->c);
	}
	if (k < 0)
		return k;
	return c->flags & CH_OPAQUE || (was_dir && c->kind != MK_DIR && !(c->flags & CH_ALONE))
		   ? gone_below(r, c->path, c->path_len)
		   : 0;
}

static int load(struct review *r, struct err *e)
{
	_cleanup_free_ struct pending_reader *rd = malloc(sizeof(*rd));
	_cleanup_free_ struct change *c = malloc(sizeof(*c));
	int k = rd && c ? pending_open(rd, r->list_fd) : -ENOMEM;

	if (k == -EBADMSG)
		return err_set(e, ERR_INVALID, "pending/list of the run is damaged");
	while (k == 0 && (k = pending_next(rd, c)) > 0)
		k = chlist_add(r->list, c);
	if (k == 0)
		k = chlist_seal(r->list);
	for (uint64_t i = 0; k == 0 && i < chlist_count(r->list); i++) {
		k = chlist_get(r->list, i, c);
		if (k == 0)
			k = unfold(r, c);
	}
	if (k == 0)
		k = chlist_seal(r->all);
	return k < 0 ? err_sys(e, -k, "read pending/list of the run") : 0;
}

static int open_places(struct review *r, const struct review_place *p, struct err *e)
{
	if (p->root)
		r->root_fd = open(p->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (p->manifest_path) {
		r->manifest_fd = open(p->manifest_path, O_RDONLY | O_CLOEXEC);
		if (r->manifest_fd < 0)
			return err_sys(e, errno, "open the manifest %s", p->manifest_path);
		if (manifest_open(r->manifest_fd, &r->m, e) < 0)
			return -EPROTO;
	}
	for (size_t i = 0; p->layers && p->layers[i] && i < LAYERS_MAX; i++) {
		int fd = open(p->layers[i], O_RDONLY | O_CLOEXEC);

		if (fd >= 0)
			r->layers[r->layers_len++] = fd;
	}
	return 0;
}

static struct review *fresh(const struct review_place *p, struct err *e)
{
	struct review *r = calloc(1, sizeof(*r));

	if (!r || sodium_init() < 0) {
		free(r);
		(void)err_set(e, ERR_NOMEM, "out of memory");
		return NULL;
	}
	r->root_fd = r->manifest_fd = r->list_fd = r->content_fd = -1;
	r->run_fd = open(p->run_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (r->run_fd < 0 || chlist_new(r->run_fd, &r->list) < 0 ||
	    chlist_new(r->run_fd, &r->all) < 0) {
		(void)err_sys(e, r->run_fd < 0 ? errno : ENOMEM, "open %s", p->run_dir);
		review_free(r);
		return NULL;
	}
	return r;
}

int review_open(const struct review_place *p, struct review **ret, struct err *e)
{
	struct review *r = fresh(p, e);
	int k = 0;

	*ret = NULL;
	if (!r)
		return -EIO;
	r->list_fd = openat(r->run_fd, PENDING_LIST, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (r->list_fd < 0) {
		k = -errno;
		review_free(r);
		return k == -ENOENT ? k : err_sys(e, -k, "open %s/" PENDING_LIST, p->run_dir);
	}
	r->content_fd =
	    openat(r->run_fd, PENDING_CONTENT, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (r->content_fd < 0)
		k = err_sys(e, errno, "open %s/" PENDING_CONTENT, p->run_dir);
	if (k == 0)
		k = open_places(r, p, e);
	if (k == 0)
		k = load(r, e);
	if (k < 0) {
		review_free(r);
		return k == -ENOENT ? -EIO : k;
	}
	*ret = r;
	return 0;
}

int review_open_bare(const struct review_place *p, struct review **ret, struct err *e)
{
	struct review *r = fresh(p, e);
	struct err gone = ERR_INIT;

	*ret = r;
	if (!r)
		return -EIO;
	(void)open_places(r, p, &gone);
	if (chlist_seal(r->list) == 0 && chlist_seal(r->all) == 0)
		return 0;
	review_free(r);
	*ret = NULL;
	return err_set(e, ERR_NOMEM, "out of memory");
}

int review_sent(const struct review *r, const char *path, struct review_entry *en)
{
	size_t n = strlen(path);
	int k;

	if (!path_is_member(path, n))
		return -EINVAL;
	en->s = (struct change){.kind = MK_ABSENT, .path_len = (uint32_t)n};
	memcpy(en->s.path, path, n + 1);
	en->status = REVIEW_DONE;
	en->rule = "";
	en->old_kind = MK_ABSENT;
	k = sent(r, path, n, &en->b);
	if (k <= 0)
		en->b.kind = 0;
	else
		en->old_kind = en->b.kind == 'f' ? MK_FILE : en->b.kind == 'l' ? MK_LINK : MK_DIR;
	return k < 0 ? k : 0;
}

uint64_t review_count(const struct review *r, uint64_t *ret_dirs)
{
	if (ret_dirs)
		*ret_dirs = r->dirs;
	return chlist_count(r->all);
}

static int fill_entry(const struct review *r, struct review_entry *en)
{
	int k;

	en->status = REVIEW_CLEAN;
	en->rule = "";
	en->b.kind = 0;
	en->old_kind = MK_ABSENT;
	if (en->s.kind == MK_ABSENT)
		en->s.flags &= (uint8_t)~CH_OPAQUE;
	k = sent(r, en->s.path, en->s.path_len, &en->b);
	if (k <= 0) {
		en->b.kind = 0;
		return k;
	}
	en->old_kind = en->b.kind == 'f' ? MK_FILE : en->b.kind == 'l' ? MK_LINK : MK_DIR;
	return 0;
}

int review_get(const struct review *r, uint64_t i, struct review_entry *en)
{
	int k = chlist_get(r->all, i, &en->s);

	return k < 0 ? k : fill_entry(r, en);
}

int review_find(const struct review *r, const char *path, struct review_entry *en)
{
	int k = chlist_find(r->all, path, strlen(path), &en->s);

	return k <= 0 ? (k < 0 ? k : -ENOENT) : fill_entry(r, en);
}
