/*
 * Record: u32 n (whole record), fixed fields, path, 16 bytes keyed BLAKE2b of all that, u32 n again. The
 * trailing length lets a reader go backwards: directories are removed after what is in them. The commit
 * record's hash is a keyed BLAKE2b of the MACs before it, in their order.
 */
#include "sync/journal.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cursor.h"

#define SUM 16
#define FIXED (4 + 2 + 4 + 7 * 8 + 4 + INTENT_HASH + 4)
#define OVERHEAD (FIXED + SUM + 4)
#define RECORD_MAX (OVERHEAD + PATH_MEMBER_MAX)
#define FLUSH_AT (64 << 10)
#define CACHE_BYTES (64 << 10) /* many records; at least the largest one */

static void seal_init(crypto_generichash_state *s, const uint8_t key[JOURNAL_KEY])
{
	(void)crypto_generichash_init(s, key, JOURNAL_KEY, INTENT_HASH);
}

void journal_init(struct journal *j, int fd, const uint8_t key[JOURNAL_KEY])
{
	*j = (struct journal){.fd = fd, .key = key};
	seal_init(&j->seal, key);
	buf_init(&j->out, FLUSH_AT + RECORD_MAX);
}

void journal_done(struct journal *j)
{
	buf_done(&j->out);
}

static int flush(struct journal *j)
{
	size_t off = 0;

	while (off < j->out.len) {
		ssize_t k = write(j->fd, j->out.data + off, j->out.len - off);

		if (k > 0)
			off += (size_t)k;
		else if (k == 0 || errno != EINTR)
			return k == 0 ? -EIO : -errno;
	}
	j->written += j->out.len;
	buf_reset(&j->out);
	return 0;
}

static int append(struct journal *j, const struct intent *in)
{
	size_t start = j->out.len;
	uint32_t n = (uint32_t)(OVERHEAD + in->path_len);
	uint8_t sum[SUM];
	struct buf *b = &j->out;

	(void)buf_u32(b, n);
	(void)buf_u8(b, in->op);
	(void)buf_u8(b, in->action);
	(void)buf_u32(b, in->mode);
	(void)buf_u64(b, in->id);
	(void)buf_u64(b, in->new_ino);
	(void)buf_u64(b, in->size);
	(void)buf_u64(b, in->old.ino);
	(void)buf_u64(b, in->old.size);
	(void)buf_u64(b, (uint64_t)in->old.mtime_ns);
	(void)buf_u64(b, (uint64_t)in->old.ctime_ns);
	(void)buf_bytes(b, in->old.hash, INTENT_HASH);
	(void)buf_bytes(b, in->path, in->path_len);
	if (b->err)
		return b->err;
	(void)crypto_generichash(sum, sizeof(sum), (const uint8_t *)b->data + start, b->len - start,
				 j->key, JOURNAL_KEY);
	(void)crypto_generichash_update(&j->seal, sum, sizeof(sum));
	(void)buf_put(b, sum, sizeof(sum));
	(void)buf_u32(b, n);
	return b->err;
}

int journal_add(struct journal *j, const struct intent *in)
{
	int r = append(j, in);

	if (r == 0)
		j->count++;
	if (r == 0 && j->out.len >= FLUSH_AT)
		r = flush(j);
	return r;
}

int journal_flush(struct journal *j, uint64_t *ret_end)
{
	int r = flush(j);

	*ret_end = j->written;
	return r;
}

int journal_commit(struct journal *j)
{
	struct intent in = {.op = IN_COMMIT, .size = j->count};
	int r;

	(void)crypto_generichash_final(&j->seal, in.old.hash, INTENT_HASH);
	r = append(j, &in);
	if (r == 0)
		r = flush(j);
	if (r == 0 && fsync(j->fd) < 0)
		r = -errno;
	return r;
}

/* Fields only: whose they are is for the MAC to say. */
static int parse(const char *p, size_t n, struct intent *ret)
{
	struct cursor c;
	struct view path, hash;

	if (memcmp(p, p + n - 4, 4) != 0)
		return -EBADMSG;
	cursor_init(&c, p + 4, n - 4 - SUM - 4);
	ret->op = cursor_u8(&c);
	ret->action = cursor_u8(&c);
	ret->mode = cursor_u32(&c);
	ret->id = cursor_u64(&c);
	ret->new_ino = cursor_u64(&c);
	ret->size = cursor_u64(&c);
	ret->old.ino = cursor_u64(&c);
	ret->old.size = cursor_u64(&c);
	ret->old.mtime_ns = (int64_t)cursor_u64(&c);
	ret->old.ctime_ns = (int64_t)cursor_u64(&c);
	hash = cursor_bytes(&c, INTENT_HASH);
	path = cursor_bytes(&c, PATH_MEMBER_MAX);
	if (!cursor_end(&c) || hash.n != INTENT_HASH)
		return -EBADMSG;
	memcpy(ret->old.hash, hash.p, INTENT_HASH);
	memcpy(ret->path, path.n ? path.p : "", path.n);
	ret->path[path.n] = '\0';
	ret->path_len = (uint32_t)path.n;
	return 1;
}

static bool is_ours(const char *p, size_t n, const uint8_t key[JOURNAL_KEY])
{
	uint8_t sum[SUM];

	(void)crypto_generichash(sum, sizeof(sum), (const uint8_t *)p, n - SUM - 4, key,
				 JOURNAL_KEY);
	return sodium_memcmp(sum, p + n - SUM - 4, SUM) == 0;
}

static ssize_t pread_again(int fd, void *p, size_t n, uint64_t off)
{
	ssize_t k;

	do {
		k = pread(fd, p, n, (off_t)off);
	} while (k < 0 && errno == EINTR);
	return k < 0 ? -errno : k;
}

void journal_cache_done(struct journal_cache *k)
{
	free(k->buf);
	*k = (struct journal_cache){.key = k->key};
}

/* 1; 0: the file ends before; errno. */
static int read_at(int fd, struct journal_cache *c, uint64_t off, void *p, size_t n)
{
	ssize_t k;

	if (!c->buf)
		c->buf = malloc(CACHE_BYTES);
	if (!c->buf) { /* slower, no worse */
		k = pread_again(fd, p, n, off);
		return k < 0 ? (int)k : k == (ssize_t)n;
	}
	if (off < c->at || off + n > c->at + c->len) {
		/* A reader that goes backwards wants what lies before. */
		if (c->len && off < c->at)
			c->at = off + n > CACHE_BYTES ? off + n - CACHE_BYTES : 0;
		else
			c->at = off;
		k = pread_again(fd, c->buf, CACHE_BYTES, c->at);
		c->len = k < 0 ? 0 : (size_t)k;
		if (k < 0)
			return (int)k;
		if (off + n > c->at + c->len)
			return 0;
	}
	memcpy(p, c->buf + (off - c->at), n);
	return 1;
}

static int length_at(int fd, struct journal_cache *k, uint64_t off, uint32_t *ret)
{
	uint8_t b[4];
	struct cursor c;
	int r = read_at(fd, k, off, b, sizeof(b));

	if (r <= 0)
		return r;
	cursor_init(&c, b, sizeof(b));
	*ret = cursor_u32(&c);
	return *ret < OVERHEAD || *ret > RECORD_MAX ? -EBADMSG : 1;
}

static int record_at(int fd, struct journal_cache *k, uint64_t off, uint32_t n, struct intent *ret)
{
	char rec[RECORD_MAX];
	int r = read_at(fd, k, off, rec, n);

	if (r <= 0)
		return r < 0 ? r : -EBADMSG;
	return is_ours(rec, n, k->key) ? parse(rec, n, ret) : -EBADMSG;
}

int journal_next(int fd, struct journal_cache *k, uint64_t *pos, uint64_t end, struct intent *ret)
{
	uint32_t n;
	int r;

	if (*pos >= end)
		return 0;
	r = length_at(fd, k, *pos, &n);
	if (r > 0)
		r = record_at(fd, k, *pos, n, ret);
	if (r <= 0)
		return r == 0 ? -EBADMSG : r;
	*pos += n;
	return 1;
}

int journal_prev(int fd, struct journal_cache *k, uint64_t *pos, struct intent *ret)
{
	uint32_t n;
	int r;

	if (*pos == 0)
		return 0;
	r = *pos < OVERHEAD ? -EBADMSG : length_at(fd, k, *pos - 4, &n);
	if (r > 0 && n > *pos)
		r = -EBADMSG;
	if (r > 0)
		r = record_at(fd, k, *pos - n, n, ret);
	if (r <= 0)
		return r == 0 ? -EBADMSG : r;
	*pos -= n;
	return 1;
}

/* The record at *pos whoever wrote it: 1, *ret_ours whether that was us and its MAC into seal; 0: none, errno. */
static int look_at(int fd, struct journal_cache *k, uint64_t *pos, struct intent *ret,
		   crypto_generichash_state *seal, bool *ret_ours)
{
	char rec[RECORD_MAX];
	uint32_t n;
	int r = length_at(fd, k, *pos, &n);

	if (r > 0)
		r = read_at(fd, k, *pos, rec, n);
	if (r > 0)
		r = parse(rec, n, ret);
	if (r <= 0)
		return r == -EBADMSG ? 0 : r;
	*ret_ours = is_ours(rec, n, k->key);
	if (ret->op != IN_COMMIT)
		(void)crypto_generichash_update(seal, (uint8_t *)rec + n - SUM - 4, SUM);
	*pos += n;
	return 1;
}

int journal_committed(int fd, const uint8_t key[JOURNAL_KEY], uint64_t *ret_end)
{
	_cleanup_journal_cache_ struct journal_cache k = {.key = key};
	crypto_generichash_state seal;
	uint64_t pos = 0, count = 0;
	uint8_t sum[INTENT_HASH];
	bool all = true, ours;
	struct intent in;
	int r;

	seal_init(&seal, key);
	for (;; count++) {
		*ret_end = pos;
		r = look_at(fd, &k, &pos, &in, &seal, &ours);
		if (r <= 0)
			return r; /* torn tail: the fsync of the commit never finished */
		all &= ours;
		if (in.op == IN_COMMIT)
			break;
	}
	if (in.size != count)
		return 0;
	(void)crypto_generichash_final(&seal, sum, sizeof(sum));
	return all && sodium_memcmp(sum, in.old.hash, sizeof(sum)) == 0 ? 1 : -EKEYREJECTED;
}
