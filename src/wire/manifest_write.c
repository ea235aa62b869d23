/* The writing half of manifest.h. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/path.h"
#include "base/str.h"
#include "wire/manifest_internal.h"

#define FLUSH_AT (128 << 10)
/* Fixed fields of an 'f' line are below 200 bytes; path and target grow threefold at most. */
#define LINE_MAX_BYTES (256 + 3 * (PATH_MEMBER_MAX + LINK_TARGET_MAX))

static const char hex_upper[] = "0123456789ABCDEF";

static int flush(struct manifest_writer *w, struct err *e)
{
	size_t done = 0;

	while (done < w->out.len) {
		ssize_t n = write(w->fd, w->out.data + done, w->out.len - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_sys(e, errno, "manifest: cannot be written");
		done += (size_t)n;
	}
	buf_reset(&w->out);
	return 0;
}

int manifest_writer_init(struct manifest_writer *w, int fd, struct err *e)
{
	w->fd = fd;
	w->count = 0;
	w->last_len = 0;
	w->last[0] = '\0';
	buf_init(&w->out, FLUSH_AT + LINE_MAX_BYTES);
	if (buf_puts(&w->out, MANIFEST_FIRST_LINE) < 0)
		return err_sys(e, ENOMEM, "manifest");
	return 0;
}

static void encode(struct buf *b, const char *p, size_t n)
{
	char *to = buf_room(b, 3 * n);
	size_t k = 0;

	if (!to)
		return;
	for (size_t i = 0; i < n; i++) {
		uint8_t c = (uint8_t)p[i];

		if (manifest_plain(c)) {
			to[k++] = (char)c;
			continue;
		}
		to[k++] = '%';
		to[k++] = hex_upper[c >> 4];
		to[k++] = hex_upper[c & 15];
	}
	buf_add(b, k);
}

static void put_file(struct buf *b, const struct manifest_entry *m)
{
	char hex[2 * MANIFEST_HASH + 1];

	str_hex(hex, m->hash, MANIFEST_HASH);
	if (m->sandbox) {
		(void)buf_putf(b, "F %o %o %llu %lld %s %llu ", m->mode, m->host_mode,
			       (unsigned long long)m->size, (long long)m->mtime_ns, hex,
			       (unsigned long long)m->content);
		return;
	}
	(void)buf_putf(b, "f %o %llu %lld %s %u %llu %lld ", m->mode, (unsigned long long)m->size,
		       (long long)m->mtime_ns, hex, m->layer, (unsigned long long)m->ino,
		       (long long)m->ctime_ns);
}

static bool writable_entry(const struct manifest_entry *m)
{
	if (m->path_len > PATH_MEMBER_MAX || !path_is_member(m->path, m->path_len) ||
	    m->mode > 0777 || m->host_mode > 0777 || m->size > INT64_MAX ||
	    m->mtime_ns == INT64_MIN || m->ctime_ns == INT64_MIN)
		return false;
	if (m->kind == 'l')
		return m->target_len > 0 && m->target_len <= LINK_TARGET_MAX &&
		       !memchr(m->target, '\0', m->target_len);
	return m->kind == 'd' || m->kind == 'f';
}

int manifest_writer_add(struct manifest_writer *w, const struct manifest_entry *m, struct err *e)
{
	struct buf *b = &w->out;

	if (!writable_entry(m))
		return err_set(e, ERR_INVALID,
			       "manifest: entry cannot be written: kind %d, %zu "
			       "bytes of path (at most %d)",
			       m->kind, m->path_len, PATH_MEMBER_MAX);
	if (w->count && manifest_path_cmp(w->last, w->last_len, m->path, m->path_len) >= 0)
		return err_set(e, ERR_INVALID, "manifest: entries are out of order");
	if (m->kind == 'd' && m->sandbox) {
		(void)buf_putf(b, "D %o %o ", m->mode, m->host_mode);
	} else if (m->kind == 'd') {
		(void)buf_putf(b, "d %o ", m->mode);
	} else if (m->kind == 'f') {
		put_file(b, m);
	} else {
		(void)buf_puts(b, m->sandbox ? "L " : "l ");
		encode(b, m->target, m->target_len);
		(void)buf_putc(b, ' ');
	}
	encode(b, m->path, m->path_len);
	if (buf_putc(b, '\n') < 0)
		return err_sys(e, -b->err, "manifest");
	memcpy(w->last, m->path, m->path_len);
	w->last_len = m->path_len;
	w->count++;
	return b->len >= FLUSH_AT ? flush(w, e) : 0;
}

int manifest_writer_copy(struct manifest_writer *w, const struct manifest *m, size_t from,
			 size_t to, uint64_t entries, struct err *e)
{
	size_t passed = from;

	if (to > m->body_len)
		to = m->body_len;
	while (from < to) {
		size_t n = to - from < FLUSH_AT ? to - from : FLUSH_AT;
		int r;

		if (w->out.len + n > FLUSH_AT + LINE_MAX_BYTES && (r = flush(w, e)) < 0)
			return r;
		if (buf_put(&w->out, m->body + from, n) < 0)
			return err_sys(e, -w->out.err, "manifest");
		from += n;
		manifest_pass(m, &passed, from);
	}
	w->count += entries;
	return 0;
}

int manifest_writer_finish(struct manifest_writer *w, struct err *e)
{
	if (buf_putf(&w->out, "end %llu\n", (unsigned long long)w->count) < 0)
		return err_sys(e, -w->out.err, "manifest");
	return flush(w, e);
}

void manifest_writer_done(struct manifest_writer *w)
{
	buf_done(&w->out);
}
