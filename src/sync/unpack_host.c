/*
 * The host's side of a merge: what is at a path now, and is it what was sent in.
 *
 * Policy: every look goes through the root descriptor and follows no link. A path that is only
 * reachable through a link or a file is *blocked*: nothing is written there. "Unchanged" needs the
 * same inode, size and both times as when it was read for sync-in, else the same bytes.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/path.h"
#include "sync/unpack_server.h"
#include "wire/layerfile.h"

static int64_t ns(struct timespec t)
{
	return (int64_t)t.tv_sec * NS_PER_S + t.tv_nsec;
}

int host_look(struct unpack *u, const char *path, struct host *ret, struct err *e)
{
	int r = beneath_stat(&u->root, path, &ret->st);

	ret->side = (struct merge_side){.kind = MK_ABSENT};
	ret->blocked = NULL;
	if (r == -ENOENT)
		return 0;
	if (r == -ELOOP || r == -ENOTDIR) {
		ret->blocked = r == -ELOOP ? "parent_link" : "parent_not_dir";
		return 0;
	}
	if (r == -EACCES || r == -EPERM) {
		ret->blocked = "permission_denied";
		return 0;
	}
	if (r < 0)
		return err_sys(e, -r, "look at %s", path);
	ret->side.mode = ret->st.st_mode & 0777;
	switch (ret->st.st_mode & S_IFMT) {
	case S_IFREG:
		ret->side.kind = MK_FILE;
		break;
	case S_IFDIR:
		ret->side.kind = MK_DIR;
		break;
	case S_IFLNK:
		ret->side.kind = MK_LINK;
		ret->side.mode = 0;
		break;
	default:
		ret->side.kind = MK_OTHER;
	}
	return 0;
}

int hash_fd(int fd, uint8_t ret[MANIFEST_HASH], uint64_t *ret_size)
{
	crypto_generichash_state st;
	uint8_t buf[32 << 10];
	uint64_t size = 0;
	ssize_t n;

	(void)crypto_generichash_init(&st, NULL, 0, MANIFEST_HASH);
	while ((n = pread(fd, buf, sizeof(buf), (off_t)size)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		(void)crypto_generichash_update(&st, buf, (size_t)n);
		size += (uint64_t)n;
	}
	(void)crypto_generichash_final(&st, ret, MANIFEST_HASH);
	*ret_size = size;
	return 0;
}

int change_hash(struct change *c, int fd)
{
	uint64_t size;
	int r = 0;

	if (c->flags & CH_UNHASHED)
		r = hash_fd(fd, c->hash, &size);
	if (r == 0)
		c->flags &= (uint8_t)~CH_UNHASHED;
	return r;
}

/* Hash of the file that host_look saw. 1; 0: it changes under our eyes or cannot be read. */
static int hash_host(struct unpack *u, const char *path, const struct stat *seen,
		     uint8_t ret[MANIFEST_HASH])
{
	_cleanup_fd_ int fd = beneath_open(&u->root, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
	struct stat st;
	uint64_t size;

	if (fd < 0 || hash_fd(fd, ret, &size) < 0 || fstat(fd, &st) < 0)
		return 0;
	return st.st_ino == seen->st_ino && S_ISREG(st.st_mode) &&
	       size == (uint64_t)seen->st_size && ns(st.st_mtim) == ns(seen->st_mtim);
}

void host_old(struct unpack *u, const char *path, const struct host *h, struct intent_old *ret)
{
	*ret = (struct intent_old){0};
	if (h->side.kind == MK_ABSENT)
		return;
	ret->ino = h->st.st_ino;
	ret->size = (uint64_t)h->st.st_size;
	ret->mtime_ns = ns(h->st.st_mtim);
	ret->ctime_ns = ns(h->st.st_ctim);
	/* What this publish does to its other names will change the ctime: then the bytes decide. */
	if (S_ISREG(h->st.st_mode) && h->st.st_nlink > 1 && !hash_host(u, path, &h->st, ret->hash))
		memset(ret->hash, 0, sizeof(ret->hash));
}

static int hash_link(struct unpack *u, const char *path, uint8_t ret[MANIFEST_HASH], size_t *ret_n)
{
	char target[LINK_TARGET_MAX + 1];
	_cleanup_fd_ int dir = -1;
	const char *base;
	ssize_t n;

	dir = beneath_parent(&u->root, path, &base);
	if (dir < 0)
		return dir;
	n = readlinkat(dir, base, target, sizeof(target));
	if (n < 0)
		return -errno;
	(void)crypto_generichash(ret, MANIFEST_HASH, (const uint8_t *)target, (size_t)n, NULL, 0);
	*ret_n = (size_t)n;
	return 0;
}

/* As the host has it when nobody changed it there. */
static uint32_t base_mode(const struct manifest_entry *b)
{
	return b->sandbox ? b->host_mode : b->mode;
}

static bool same_identity(const struct stat *st, const struct manifest_entry *b)
{
	return !b->sandbox && st->st_ino == b->ino && (uint64_t)st->st_size == b->size &&
	       ns(st->st_mtim) == b->mtime_ns && ns(st->st_ctim) == b->ctime_ns;
}

static void base_link_hash(const struct manifest_entry *b, uint8_t ret[MANIFEST_HASH])
{
	(void)crypto_generichash(ret, MANIFEST_HASH, (const uint8_t *)b->target, b->target_len,
				 NULL, 0);
}

/* Content number of the host's file: 1 as B, 2 as S, 3 neither. c NULL: S plays no part. */
static unsigned host_number(struct unpack *u, const char *path, const struct host *h,
			    const struct manifest_entry *b, const struct change *c)
{
	uint64_t size = (uint64_t)h->st.st_size;
	uint8_t hash[MANIFEST_HASH], bl[MANIFEST_HASH];
	size_t n;

	if (h->side.kind == MK_LINK) {
		if (hash_link(u, path, hash, &n) < 0)
			return 3;
		if (b && b->kind == 'l') {
			base_link_hash(b, bl);
			if (!memcmp(bl, hash, MANIFEST_HASH))
				return 1;
		}
		return c && c->kind == MK_LINK && !memcmp(c->hash, hash, MANIFEST_HASH) ? 2 : 3;
	}
	if (b && b->kind == 'f' && same_identity(&h->st, b))
		return 1;
	if (!(b && b->kind == 'f' && b->size == size) &&
	    !(c && c->kind == MK_FILE && c->size == size))
		return 3;
	if (!hash_host(u, path, &h->st, hash))
		return 3;
	if (b && b->kind == 'f' && b->size == size && !memcmp(b->hash, hash, MANIFEST_HASH))
		return 1;
	return c && c->kind == MK_FILE && !memcmp(c->hash, hash, MANIFEST_HASH) ? 2 : 3;
}

int host_classify(struct unpack *u, const struct manifest_entry *b, const struct change *c,
		  struct merge_side *ret_b, struct merge_side *ret_s, struct host *h, struct err *e)
{
	uint8_t hash[MANIFEST_HASH];
	int r;

	*ret_b = (struct merge_side){.kind = MK_ABSENT};
	*ret_s = (struct merge_side){.kind = c->kind, .mode = c->mode, .content = 2};
	if (b) {
		ret_b->kind = b->kind == 'f' ? MK_FILE : b->kind == 'l' ? MK_LINK : MK_DIR;
		ret_b->mode = b->kind == 'l' ? 0 : base_mode(b);
		ret_b->content = 1;
		/* A mode that the sandbox left alone is the one that the host was left with. */
		if (b->sandbox && b->kind != 'l' && c->mode == b->mode)
			ret_s->mode = b->host_mode;
	}
	if (b && b->kind == 'f' && c->kind == MK_FILE && b->size == c->size &&
	    !memcmp(b->hash, c->hash, MANIFEST_HASH))
		ret_s->content = 1;
	if (b && b->kind == 'l' && c->kind == MK_LINK) {
		base_link_hash(b, hash);
		if (!memcmp(hash, c->hash, MANIFEST_HASH))
			ret_s->content = 1;
	}
	r = host_look(u, c->path, h, e);
	if (r < 0 || h->blocked)
		return r;
	if (h->side.kind == MK_FILE || h->side.kind == MK_LINK)
		h->side.content = host_number(u, c->path, h, b, c);
	return 0;
}

/* --- a whole host directory --------------------------------------------------------------- */

struct scan {
	struct unpack *u;
	struct manifest_entry b;
	struct host h;
	char path[PATH_MEMBER_MAX + 1];
	unsigned depth;
};

static int scan_dir(struct scan *s, struct err *e);

/* s->path is one entry. 1 as sent, 0 not, errno. */
static int scan_entry(struct scan *s, struct err *e)
{
	int r = manifest_find(s->u->m, s->path, strlen(s->path), &s->b);

	if (r <= 0)
		return r;
	r = host_look(s->u, s->path, &s->h, e);
	if (r < 0)
		return r;
	if (s->h.blocked)
		return 0;
	switch (s->h.side.kind) {
	case MK_DIR:
		return s->b.kind == 'd' ? scan_dir(s, e) : 0;
	case MK_FILE:
		if (s->b.kind != 'f' || base_mode(&s->b) != s->h.side.mode)
			return 0;
		break;
	case MK_LINK:
		if (s->b.kind != 'l')
			return 0;
		break;
	default:
		return 0;
	}
	return host_number(s->u, s->path, &s->h, &s->b, NULL) == 1;
}

static int scan_dir(struct scan *s, struct err *e)
{
	size_t len = strlen(s->path);
	_cleanup_dir_ DIR *d = NULL;
	struct dirent *de;
	int r = 1, fd;

	if (s->depth >= PATH_DEPTH_MAX)
		return 0;
	fd = beneath_open(&s->u->root, s->path, O_RDONLY | O_DIRECTORY, 0);
	if (fd < 0)
		return 0;
	d = fdopendir(fd);
	if (!d) {
		(void)close(fd);
		return err_set(e, ERR_NOMEM, "out of memory");
	}
	s->depth++;
	while (r > 0 && (errno = 0, de = readdir(d))) {
		size_t n = strlen(de->d_name);

		if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
			continue;
		if (len + 1 + n > PATH_MEMBER_MAX) {
			r = 0;
			break;
		}
		s->path[len] = '/';
		memcpy(s->path + len + 1, de->d_name, n + 1);
		r = scan_entry(s, e);
		s->path[len] = '\0';
	}
	if (r > 0 && !de && errno) /* what could not be read is not known to be as it was */
		r = 0;
	s->depth--;
	return r;
}

struct digest {
	uint8_t sum[INTENT_HASH];
	char path[PATH_MEMBER_MAX + 1]; /* below the directory */
	unsigned depth;
};

static int digest_dir(struct digest *d, int at, const char *name);

static int digest_entry(struct digest *d, int at, const char *name)
{
	struct {
		uint64_t mode, ino, size;
		int64_t mtime_ns;
	} id = {0};
	crypto_generichash_state h;
	uint8_t one[INTENT_HASH];
	struct stat st;

	if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	id.mode = st.st_mode;
	id.ino = st.st_ino;
	/* A directory's own size and times say no more than what is in it. */
	if (!S_ISDIR(st.st_mode)) {
		id.size = (uint64_t)st.st_size;
		id.mtime_ns = ns(st.st_mtim);
	}
	(void)crypto_generichash_init(&h, NULL, 0, sizeof(one));
	(void)crypto_generichash_update(&h, (const uint8_t *)&id, sizeof(id));
	(void)crypto_generichash_update(&h, (const uint8_t *)d->path, strlen(d->path));
	(void)crypto_generichash_final(&h, one, sizeof(one));
	/* In any order, since directories have none. */
	for (size_t i = 0; i < sizeof(one); i++)
		d->sum[i] ^= one[i];
	return S_ISDIR(st.st_mode) ? digest_dir(d, at, name) : 0;
}

static int digest_dir(struct digest *d, int at, const char *name)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), r = 0;
	_cleanup_dir_ DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	size_t len = strlen(d->path);
	struct dirent *de;

	if (!dir) {
		r = -errno;
		if (fd >= 0)
			(void)close(fd);
		return r;
	}
	if (d->depth++ >= PATH_DEPTH_MAX)
		return -ELOOP;
	while (r == 0 && (errno = 0, de = readdir(dir))) {
		size_t n = strlen(de->d_name);

		if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
			continue;
		if (len + 1 + n > PATH_MEMBER_MAX)
			return -ENAMETOOLONG;
		d->path[len] = '/';
		memcpy(d->path + len + 1, de->d_name, n + 1);
		r = digest_entry(d, dirfd(dir), de->d_name);
		d->path[len] = '\0';
	}
	d->depth--;
	return r < 0 ? r : -errno;
}

int host_dir_digest(int at, const char *name, uint8_t ret[INTENT_HASH])
{
	struct digest d = {.sum = {1}}; /* never all zeros, which means none */
	int r = digest_dir(&d, at, name);

	memcpy(ret, d.sum, sizeof(d.sum));
	return r;
}

int host_dir_clean(struct unpack *u, const char *path, struct err *e)
{
	struct scan s = {.u = u};

	if (!u->m)
		return 0;
	(void)snprintf(s.path, sizeof(s.path), "%s", path);
	return scan_dir(&s, e);
}

int tell_gone(struct unpack *u, struct beneath *in, const char *as, const char *path, struct err *e)
{
	char at[PATH_MEMBER_MAX + 32];
	struct manifest_entry b;
	size_t pos = 0, n = strlen(path);
	struct stat st;
	int r;

	if (!u->m)
		return 0;
	manifest_seek_below(u->m, path, n, &pos);
	while ((r = manifest_next(u->m, &pos, &b)) > 0) {
		if (b.path_len <= n || memcmp(b.path, path, n) != 0 || b.path[n] != '/')
			break;
		(void)snprintf(at, sizeof(at), "%s%s", as, b.path + n);
		if (beneath_stat(in, at, &st) < 0)
			continue;
		r = tell(u, UA_DELETE, b.path, b.kind == 'd' ? "dir" : "", NULL, e);
		if (r < 0)
			return r;
	}
	return r < 0
		   ? err_set(e, ERR_PROTOCOL, "the manifest of this run is damaged below %s", path)
		   : 0;
}

/* --- contents --------------------------------------------------------------------------- */

/* fd if it has the bytes that the manifest says of b, else closed and -ENOENT. */
static int proven(int fd, const struct manifest_entry *b)
{
	uint8_t hash[MANIFEST_HASH];
	uint64_t size = 0;

	if (fd < 0)
		return fd;
	if (hash_fd(fd, hash, &size) == 0 && size == b->size &&
	    !memcmp(hash, b->hash, MANIFEST_HASH))
		return fd;
	(void)close(fd);
	return -ENOENT;
}

/* The file of b below a root. */
static int open_proven(struct beneath *in, const struct manifest_entry *b)
{
	return proven(beneath_open(in, b->path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0), b);
}

/* Out of a layer that is one file. */
static int open_part(struct unpack *u, int layer, const struct manifest_entry *b)
{
	struct layerfile *l = NULL;
	uint64_t at = 0;
	int fd = -ENOENT;

	if (layerfile_open(layer, &l, NULL) == 0 && layerfile_find(l, b, &at))
		fd = proven(copy_part(u->run_fd, layer, at, b->size), b);
	layerfile_free(l);
	return fd;
}

int base_open(struct unpack *u, const struct manifest_entry *b)
{
	int kept = b->sandbox ? proven(baseline_content(u, b), b) : -ENOENT;

	/* The sandbox's own, of which a conflict left nothing to merge with. */
	if (kept >= 0 || (b->sandbox && b->content == 0))
		return kept;
	for (size_t i = 0; i < u->layers_len; i++) {
		struct beneath layer = {.root = u->layers[i], .stepwise = u->root.stepwise};
		struct stat st;
		int fd = fstat(u->layers[i], &st) == 0 && S_ISREG(st.st_mode)
			     ? open_part(u, u->layers[i], b)
			     : open_proven(&layer, b);

		if (fd >= 0)
			return fd;
	}
	/* A baseline without layers: what the host did not touch still has them. */
	return open_proven(&u->root, b);
}
