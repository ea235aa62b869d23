#include "sync/unpack_record.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "policy/hostexec.h"
#include "wire/manifest.h"

#define FRESH "changes.jsonl.new"
#define FLUSH_AT (64 << 10)
#define LINE_MAX_BYTES (8 * PATH_MEMBER_MAX + (512 << 10))

/* Length of the UTF-8 sequence at p, 0 if it is none (overlong, surrogate, cut, above U+10FFFF). */
static size_t utf8_len(const unsigned char *p, size_t n)
{
	size_t k = p[0] < 0x80			 ? 1
		   : p[0] >= 0xc2 && p[0] < 0xe0 ? 2
		   : (p[0] & 0xf0) == 0xe0	 ? 3
		   : p[0] >= 0xf0 && p[0] < 0xf5 ? 4
						 : 0;

	if (k > n)
		return 0;
	for (size_t i = 1; i < k; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
	    (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
		return 0;
	return k;
}

static bool is_utf8(const char *s)
{
	const unsigned char *p = (const unsigned char *)s;
	size_t n = strlen(s), k;

	for (; n; p += k, n -= k)
		if (!(k = utf8_len(p, n)))
			return false;
	return true;
}

void record_put_string(struct buf *b, const char *s)
{
	(void)buf_putc(b, '"');
	for (; *s; s++) {
		const char *from = s;
		unsigned char c;

		while ((c = (unsigned char)*s) >= 0x20 && c != '"' && c != '\\' && c != 0x7f)
			s++;
		(void)buf_put(b, from, (size_t)(s - from));
		if (!c)
			break;
		if (c == '"' || c == '\\')
			(void)buf_putf(b, "\\%c", c);
		else
			(void)buf_putf(b, "\\u%04x", c);
	}
	(void)buf_putc(b, '"');
}

void record_put_bytes(struct buf *b, const char *key, const char *s)
{
	size_t n = strlen(s), room;
	char *to;

	if (is_utf8(s)) {
		(void)buf_putc(b, '"');
		(void)buf_puts(b, key);
		(void)buf_puts(b, "\":");
		record_put_string(b, s);
		return;
	}
	(void)buf_putf(b, "\"%s_b64\":\"", key);
	room = sodium_base64_ENCODED_LEN(n, sodium_base64_VARIANT_ORIGINAL);
	to = buf_room(b, room);
	if (to) {
		(void)sodium_bin2base64(to, room, (const unsigned char *)s, n,
					sodium_base64_VARIANT_ORIGINAL);
		buf_add(b, room - 1);
	}
	(void)buf_putc(b, '"');
}

void record_put(struct buf *b, const struct unpack_change *c, const char *saved)
{
	(void)buf_puts(b, "{\"action\":\"");
	(void)buf_puts(b, unpack_action_name(c->action));
	(void)buf_puts(b, "\",");
	record_put_bytes(b, "path", c->path);
	if (c->rule[0]) {
		(void)buf_puts(b, ",\"rule\":");
		record_put_string(b, c->rule);
	}
	if (c->detail) {
		(void)buf_putc(b, ',');
		record_put_bytes(b, "detail", c->detail);
	}
	if (saved) {
		(void)buf_putc(b, ',');
		record_put_bytes(b, "saved", saved);
	}
	if (c->host_exec)
		(void)buf_puts(b, ",\"host_exec\":true");
	(void)buf_puts(b, "}\n");
}

static int write_out(int fd, struct buf *b)
{
	size_t off = 0;

	while (!b->err && off < b->len) {
		ssize_t w = write(fd, b->data + off, b->len - off);

		if (w < 0 && errno != EINTR)
			return -errno;
		off += w > 0 ? (size_t)w : 0;
	}
	if (b->err)
		return b->err;
	buf_reset(b);
	return 0;
}

static int write_lines(int run_dir, const char *name, int flags, const struct unpack_report *r)
{
	_cleanup_buf_ struct buf b = BUF_INIT(FLUSH_AT + LINE_MAX_BYTES);
	_cleanup_fd_ int fd = openat(run_dir, name, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0600);
	int s = fd < 0 ? -errno : 0;

	for (size_t i = 0; i < r->changes_len && s == 0; i++) {
		record_put(&b, &r->changes[i], NULL);
		if (b.len >= FLUSH_AT || b.err)
			s = write_out(fd, &b);
	}
	return s == 0 ? write_out(fd, &b) : s;
}

static int not_written(int r, struct err *e)
{
	return r < 0
		   ? err_sys(e, -r, "write changes.jsonl of the run (the workspace itself is done)")
		   : 0;
}

int record_keep(int run_dir, struct err *e)
{
	return not_written(renameat(run_dir, FRESH, run_dir, "changes.jsonl") < 0 ? -errno : 0, e);
}

void record_drop(int run_dir)
{
	(void)unlinkat(run_dir, FRESH, 0);
}

int record_write(int run_dir, const struct unpack_report *r, bool apply, struct err *e)
{
	int s =
	    write_lines(run_dir, apply ? "applied.jsonl" : FRESH, apply ? O_APPEND : O_TRUNC, r);

	return s < 0 || apply ? not_written(s, e) : record_keep(run_dir, e);
}

static int by_path(const void *x, const void *y)
{
	const struct unpack_change *a = x, *b = y;
	int r = manifest_path_cmp(a->path, strlen(a->path), b->path, strlen(b->path));

	return r ? r : (int)a->action - (int)b->action;
}

static bool in_order(const struct unpack_report *r)
{
	size_t i = 1;

	while (i < r->changes_len && by_path(&r->changes[i - 1], &r->changes[i]) <= 0)
		i++;
	return i >= r->changes_len;
}

int record_prepare(int run_dir, const struct unpack_report *r)
{
	return in_order(r) && write_lines(run_dir, FRESH, O_TRUNC, r) == 0;
}

void record_sort(struct unpack_report *r)
{
	/* Most come in this order. */
	if (!in_order(r))
		qsort(r->changes, r->changes_len, sizeof(*r->changes), by_path);
}

bool record_host_exec(const struct unpack_change *c)
{
	switch (c->action) {
	case UA_ADD:
	case UA_CHANGE:
	case UA_MODE:
	case UA_MERGE:
	case UA_CONFLICT:
		return hostexec_flags(c->path, strlen(c->path)) != 0;
	default:
		return false;
	}
}
