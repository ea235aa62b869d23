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
		int fd = open(p->layers[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);

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

/* --- contents ----------------------------------------------------------------------------- */

static int slurp(int fd, size_t max, struct buf *b, uint64_t *ret_size)
{
	struct stat st;
	ssize_t n;

	if (fstat(fd, &st) < 0)
		return -errno;
	*ret_size = (uint64_t)st.st_size;
	if (!S_ISREG(st.st_mode))
		return -ENOENT;
	while (*ret_size <= max) {
		char *room = buf_room(b, 64 << 10);

		if (!room)
			return b->err;
		n = read(fd, room, 64 << 10);
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0)
			return 1;
		buf_add(b, n > 0 ? (size_t)n : 0);
		if (b->len > max) /* it grows under our eyes */
			*ret_size = b->len;
	}
	buf_reset(b);
	return 0;
}

/* Are these the bytes that were sent? */
static bool as_sent(int root, const struct manifest_entry *b, size_t max, struct buf *out,
		    uint64_t *ret_size)
{
	struct beneath at = {.root = root};
	_cleanup_fd_ int fd = root < 0 ? -1 : beneath_open(&at, b->path, O_RDONLY | O_NONBLOCK, 0);
	uint8_t hash[MANIFEST_HASH];

	buf_reset(out);
	if (fd < 0 || slurp(fd, max, out, ret_size) != 1 || out->len != b->size)
		return 0;
	(void)crypto_generichash(hash, sizeof(hash), (const uint8_t *)buf_text(out), out->len, NULL,
				 0);
	return !memcmp(hash, b->hash, sizeof(hash));
}

/* The bytes that were sent, from the layer that still has them; a mapping has none, but the host may be unchanged. */
static int read_sent(struct review *r, const struct manifest_entry *b, size_t max, struct buf *out,
		     uint64_t *ret_size)
{
	*ret_size = b->size;
	if (b->kind == 'l')
		return buf_put(out, b->target, b->target_len) < 0 ? out->err : 1;
	if (b->kind != 'f')
		return -ENOENT;
	if (b->size > max)
		return 0;
	for (size_t i = 0; i <= r->layers_len; i++)
		if (as_sent(i < r->layers_len ? r->layers[i] : r->root_fd, b, max, out, ret_size))
			return 1;
	buf_reset(out);
	return -ENOENT;
}

static int read_target(int dir, const char *name, struct buf *out, uint64_t *ret_size)
{
	char target[LINK_TARGET_MAX + 1];
	ssize_t n = readlinkat(dir, name, target, sizeof(target));

	if (n < 0)
		return -errno;
	*ret_size = (uint64_t)n;
	return buf_put(out, target, (size_t)n) < 0 ? out->err : 1;
}

/* k as of slurp: what was kept must be what was judged, for that is what an apply would bring. */
static int as_kept(const struct change *c, struct buf *out, int k)
{
	uint8_t hash[MANIFEST_HASH];

	if (k != 1)
		return k;
	(void)crypto_generichash(hash, sizeof(hash), (const uint8_t *)buf_text(out), out->len, NULL,
				 0);
	if (out->len == c->size && !memcmp(hash, c->hash, sizeof(hash)))
		return 1;
	buf_reset(out);
	return -EBADMSG;
}

static int read_sandbox(struct review *r, const struct review_entry *en, size_t max,
			struct buf *out, uint64_t *ret_size)
{
	_cleanup_fd_ int fd = -1;
	char name[20];
	int k;

	if (en->s.kind != MK_FILE && en->s.kind != MK_LINK)
		return -ENOENT;
	if (!en->s.id) /* the bytes of the base, with another mode */
		return read_sent(r, &en->b, max, out, ret_size);
	(void)snprintf(name, sizeof(name), "%llx", (unsigned long long)en->s.id);
	if (en->s.kind == MK_LINK) {
		k = read_target(r->content_fd, name, out, ret_size);
		return as_kept(&en->s, out, k);
	}
	fd = openat(r->content_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	return fd < 0 ? -errno : as_kept(&en->s, out, slurp(fd, max, out, ret_size));
}

static int read_host(struct review *r, const struct review_entry *en, size_t max, struct buf *out,
		     uint64_t *ret_size)
{
	struct beneath root = {.root = r->root_fd};
	const char *base;
	_cleanup_fd_ int dir = -1, fd = -1;
	struct stat st;
	int k;

	if (r->root_fd < 0)
		return -ENOENT;
	dir = beneath_parent(&root, en->s.path, &base);
	if (dir < 0)
		return dir;
	k = beneath_stat(&root, en->s.path, &st);
	if (k == 0 && S_ISLNK(st.st_mode))
		return read_target(dir, base, out, ret_size);
	fd = k < 0 ? k : beneath_open(&root, en->s.path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
	return fd < 0 ? fd : slurp(fd, max, out, ret_size);
}

int review_read(struct review *r, const struct review_entry *en, enum review_side side, size_t max,
		struct buf *b, uint64_t *ret_size)
{
	*ret_size = 0;
	switch (side) {
	case REVIEW_SENT:
		return read_sent(r, &en->b, max, b, ret_size);
	case REVIEW_SANDBOX:
		return read_sandbox(r, en, max, b, ret_size);
	default:
		return read_host(r, en, max, b, ret_size);
	}
}

/* --- parts of the set --------------------------------------------------------------------- */

/* Directories that entries of a part need, as hashes: one too many does no harm. */
struct needed {
	uint64_t *v; /* owned; 0: free */
	size_t n, cap;
};

static uint64_t hash_path(const char *path, size_t n)
{
	uint64_t h = UINT64_C(14695981039346656037);

	for (size_t i = 0; i < n; i++)
		h = (h ^ (uint8_t)path[i]) * UINT64_C(1099511628211);
	return h ? h : 1;
}

static uint64_t *slot(struct needed *d, uint64_t h)
{
	size_t i = h & (d->cap - 1);

	while (d->v[i] && d->v[i] != h)
		i = (i + 1) & (d->cap - 1);
	return &d->v[i];
}

static int need(struct needed *d, uint64_t h)
{
	uint64_t *s;

	if (2 * d->n >= d->cap) {
		struct needed more = {.cap = d->cap ? d->cap * 2 : 256};

		more.v = calloc(more.cap, sizeof(*more.v));
		if (!more.v)
			return -ENOMEM;
		for (size_t i = 0; i < d->cap; i++)
			if (d->v[i])
				*slot(&more, d->v[i]) = d->v[i];
		more.n = d->n;
		free(d->v);
		*d = more;
	}
	s = slot(d, h);
	d->n += !*s;
	*s = h;
	return 0;
}

struct part {
	bool (*match)(void *arg, const char *path);
	void *arg;
	struct needed dirs;
	uint64_t taken;
};

static int collect_needed(struct review *r, struct part *p)
{
	int k = 0;

	for (uint64_t i = 0; k == 0 && i < chlist_count(r->all); i++) {
		k = chlist_get(r->all, i, &r->c);
		if (k < 0 || r->c.kind == MK_ABSENT || !p->match(p->arg, r->c.path))
			continue;
		for (size_t n = r->c.path_len; k == 0 && n-- > 0;)
			if (r->c.path[n] == '/')
				k = need(&p->dirs, hash_path(r->c.path, n));
	}
	return k;
}

/* A deletion below something that takes the whole directory's place is said by that already. */
static int said_above(struct review *r, const struct part *p, const struct change *c)
{
	int k = 0;

	for (size_t i = c->path_len; k == 0 && i-- > 0;) {
		if (c->path[i] != '/')
			continue;
		k = chlist_find(r->all, c->path, i, &r->other);
		if (k > 0)
			k = (r->other.kind == MK_FILE || r->other.kind == MK_LINK) &&
			    p->match(p->arg, r->other.path);
	}
	return k;
}

/* A directory that was one before is there without the change of its mode, which nobody asked for. */
static bool is_needed(struct review *r, struct part *p, const struct change *c)
{
	return c->kind == MK_DIR && p->dirs.n && *slot(&p->dirs, hash_path(c->path, c->path_len)) &&
	       !(r->m && manifest_find(r->m, c->path, c->path_len, &r->b) > 0 && r->b.kind == 'd');
}

static int put_part(struct review *r, struct part *p, struct pending_writer *w)
{
	int k = 0;

	for (uint64_t i = 0; k == 0 && i < chlist_count(r->list); i++) {
		k = chlist_get(r->list, i, &r->c);
		if (k == 0 && r->c.kind == MK_UNKNOWN) /* nothing below it is known to be gone */
			k = pending_put(w, &r->c);
	}
	for (uint64_t i = 0; k == 0 && i < chlist_count(r->all); i++) {
		bool taken;

		k = chlist_get(r->all, i, &r->c);
		if (k < 0)
			break;
		taken = p->match(p->arg, r->c.path);
		p->taken += taken;
		if (!taken && !is_needed(r, p, &r->c))
			continue;
		if (r->c.kind == MK_ABSENT && r->c.flags & CH_OPAQUE)
			r->c.flags |= CH_ALONE;
		r->c.flags &= (uint8_t)~CH_OPAQUE;
		k = r->c.kind == MK_ABSENT ? said_above(r, p, &r->c) : 0;
		if (k == 0)
			k = pending_put(w, &r->c);
		k = k > 0 ? 0 : k;
	}
	return k;
}

static int write_part(struct review *r, struct part *p, const char *name, struct err *e)
{
	struct pending_writer w;
	_cleanup_fd_ int fd = -1;
	int k = collect_needed(r, p), s;

	if (k == 0) {
		fd = openat(r->run_fd, PENDING_LIST ".new",
			    O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
		k = fd < 0 ? -errno : 0;
	}
	if (k == 0) {
		pending_begin(&w, fd);
		k = put_part(r, p, &w);
		s = pending_end(&w);
		k = k < 0 ? k : s;
	}
	if (k == 0 && renameat(r->run_fd, PENDING_LIST ".new", r->run_fd, name) < 0)
		k = -errno;
	free(p->dirs.v);
	return k < 0 ? err_sys(e, -k, "write %s of the run", name) : 0;
}

int review_select(struct review *r, bool (*match)(void *arg, const char *path), void *arg,
		  uint64_t *ret_n, struct err *e)
{
	struct part p = {.match = match, .arg = arg};
	int k = 0;

	if (!match && unlinkat(r->run_fd, PENDING_SELECT, 0) < 0 && errno != ENOENT)
		return err_sys(e, errno, "remove " PENDING_SELECT " of the run");
	if (match)
		k = write_part(r, &p, PENDING_SELECT, e);
	*ret_n = match ? p.taken : chlist_count(r->all);
	return k;
}

int review_keep(struct review *r, bool (*left)(void *arg, const char *path), void *arg,
		uint64_t *ret_n, struct err *e)
{
	struct part p = {.match = left, .arg = arg};
	int k = write_part(r, &p, PENDING_LIST, e);

	*ret_n = p.taken;
	return k;
}
