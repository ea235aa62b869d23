/* The bytes of each side of a change set that waits; see review.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "os/beneath.h"
#include "sync/pending.h"
#include "sync/review_internal.h"
#include "wire/layerfile.h"

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

/* What a layer has that is one file. b->size is no more than what out may hold. */
static bool read_part(int layer, const struct manifest_entry *b, struct buf *out)
{
	struct layerfile *l = NULL;
	uint64_t at = 0;
	char *room;

	if (layerfile_open(layer, &l, NULL) < 0)
		return false;
	room = layerfile_find(l, b, &at) ? buf_room(out, (size_t)b->size) : NULL;
	layerfile_free(l);
	if (!room || pread(layer, room, (size_t)b->size, (off_t)at) != (ssize_t)b->size)
		return false;
	buf_add(out, (size_t)b->size);
	return true;
}

/* Are these the bytes that were sent? */
static bool as_sent(int root, const struct manifest_entry *b, size_t max, struct buf *out,
		    uint64_t *ret_size)
{
	struct beneath at = {.root = root};
	_cleanup_fd_ int fd = -1;
	uint8_t hash[MANIFEST_HASH];
	struct stat st;

	buf_reset(out);
	if (root < 0 || fstat(root, &st) < 0)
		return false;
	if (S_ISREG(st.st_mode)) {
		if (!read_part(root, b, out))
			return false;
	} else {
		fd = beneath_open(&at, b->path, O_RDONLY | O_NONBLOCK, 0);
		if (fd < 0 || slurp(fd, max, out, ret_size) != 1 || out->len != b->size)
			return false;
	}
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
