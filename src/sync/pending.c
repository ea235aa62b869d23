#include "sync/pending.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/path.h"

#define FIXED offsetof(struct change, path)
#define MAGIC "airlock-pending 2\n"
#define MAGIC_LEN (sizeof(MAGIC) - 1)
#define FLUSH_AT (256 << 10)

static int flush(struct pending_writer *w)
{
	size_t off = 0;

	while (!w->out.err && off < w->out.len) {
		ssize_t k = write(w->fd, w->out.data + off, w->out.len - off);

		if (k < 0 && errno != EINTR)
			w->out.err = -errno;
		off += k > 0 ? (size_t)k : 0;
	}
	if (w->out.err)
		return w->out.err;
	buf_reset(&w->out);
	return 0;
}

void pending_begin(struct pending_writer *w, int fd)
{
	*w = (struct pending_writer){.fd = fd, .out = BUF_INIT(FLUSH_AT + sizeof(struct change))};
	(void)crypto_generichash_init(&w->hash, NULL, 0, MANIFEST_HASH);
	(void)buf_put(&w->out, MAGIC, MAGIC_LEN);
}

int pending_put(struct pending_writer *w, const struct change *c)
{
	size_t n = FIXED + c->path_len;

	(void)crypto_generichash_update(&w->hash, (const uint8_t *)c, n);
	(void)buf_put(&w->out, c, n);
	w->count++;
	return w->out.len >= FLUSH_AT ? flush(w) : w->out.err;
}

int pending_end(struct pending_writer *w)
{
	struct change last;
	int r;

	memset(&last, 0, FIXED);
	last.path_len = UINT32_MAX;
	last.seq = w->count;
	(void)crypto_generichash_final(&w->hash, last.hash, MANIFEST_HASH);
	(void)buf_put(&w->out, &last, FIXED);
	r = flush(w);
	buf_done(&w->out);
	return r == 0 && syncfs(w->fd) < 0 ? -errno : r;
}

static int fill(struct pending_reader *r, void *data, size_t n)
{
	char *to = data;

	while (n) {
		size_t k = r->have - r->at < n ? r->have - r->at : n;

		memcpy(to, r->buf + r->at, k);
		r->at += k;
		to += k;
		n -= k;
		if (n) {
			ssize_t got = pread(r->fd, r->buf, sizeof(r->buf), (off_t)r->pos);

			if (got == 0)
				return -EBADMSG;
			if (got < 0 && errno != EINTR)
				return -errno;
			r->at = 0;
			r->have = got > 0 ? (size_t)got : 0;
			r->pos += r->have;
		}
	}
	return 0;
}

int pending_next(struct pending_reader *r, struct change *c)
{
	int k = fill(r, c, FIXED);

	if (k < 0 || c->path_len == UINT32_MAX)
		return k;
	k = c->path_len > PATH_MEMBER_MAX ? -EBADMSG : fill(r, c->path, c->path_len);
	if (k < 0)
		return k;
	c->path[c->path_len] = '\0';
	if (c->kind > MK_UNKNOWN || c->kind == MK_OTHER || c->mode > 0777 ||
	    c->flags >= CH_ALONE << 1)
		return -EBADMSG;
	return strlen(c->path) == c->path_len &&
		       (c->path_len == 0 || path_is_member(c->path, c->path_len))
		   ? 1
		   : -EBADMSG;
}

static int start(struct pending_reader *r)
{
	char magic[MAGIC_LEN];
	int k;

	r->pos = r->at = r->have = 0;
	k = fill(r, magic, sizeof(magic));
	return k < 0 ? k : memcmp(magic, MAGIC, sizeof(magic)) ? -EBADMSG : 0;
}

int pending_open(struct pending_reader *r, int fd)
{
	crypto_generichash_state h;
	uint8_t sum[MANIFEST_HASH];
	uint64_t n = 0;
	struct change c;
	int k;

	r->fd = fd;
	k = start(r);
	(void)crypto_generichash_init(&h, NULL, 0, sizeof(sum));
	while (k == 0 && (k = pending_next(r, &c)) > 0) {
		(void)crypto_generichash_update(&h, (const uint8_t *)&c, FIXED + c.path_len);
		n++;
		k = 0;
		if (n > CHANGES_BYTES_MAX / FIXED)
			return -EBADMSG;
	}
	if (k < 0)
		return k;
	(void)crypto_generichash_final(&h, sum, sizeof(sum));
	if (c.seq != n || memcmp(sum, c.hash, sizeof(sum)) != 0)
		return -EBADMSG;
	return start(r);
}
