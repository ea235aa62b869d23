#include "bridge/audit.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "wire/json.h"

void audit_file_name(unsigned i, char *out, size_t n)
{
	if (i == 0)
		(void)snprintf(out, n, "%s", AUDIT_FILE);
	else
		(void)snprintf(out, n, "audit.%u.jsonl", i);
}

static int put_text(struct buf *b, const char *name, const char *s)
{
	(void)buf_putf(b, ",\"%s\":", name);
	if (!s)
		return buf_puts(b, "null");
	return json_put(b, (struct view){s, strlen(s)});
}

int audit_format(struct buf *out, const struct audit_entry *a)
{
	int64_t us = a->duration_ns > 0 ? a->duration_ns / 1000 : 0;
	char t[32];
	int r;

	clock_rfc3339(a->real_ns, t, sizeof(t));
	t[strcspn(t, "Z")] = '\0';
	(void)buf_putf(out, "{\"time\":\"%s.%03dZ\"", t, (int)(a->real_ns % NS_PER_S / NS_PER_MS));
	r = put_text(out, "run", a->run);
	if (r == 0)
		r = put_text(out, "upstream", a->upstream);
	if (r == 0)
		r = put_text(out, "transport", a->transport);
	if (r == 0)
		r = put_text(out, "route", a->route_id);
	if (r == 0 && a->target)
		r = put_text(out, "target", a->target);
	if (r == 0)
		r = put_text(out, "method", a->method);
	(void)buf_putf(out, ",\"status\":%d", a->status);
	if (r == 0)
		r = put_text(out, "rule", a->rule);
	if (r < 0)
		return r;
	return buf_putf(out,
			",\"bytes_in\":%" PRIu64 ",\"bytes_out\":%" PRIu64 ",\"ms\":%" PRId64
			".%03" PRId64 "}\n",
			a->bytes_in, a->bytes_out, us / 1000, us % 1000);
}

int audit_open(struct audit *a, int dir, int fd, struct err *e)
{
	struct stat st;

	*a = (struct audit){.dir = dir, .fd = fd};
	buf_init(&a->pending, AUDIT_BUFFER + AUDIT_LINE_MAX);
	if (fd >= 0 && fstat(fd, &st) == 0)
		a->size = (uint64_t)st.st_size;
	/* Now, so that a helper at its memory limit still writes its last lines. */
	if ((dir >= 0 || fd >= 0) && !buf_room(&a->pending, AUDIT_BUFFER + AUDIT_LINE_MAX)) {
		audit_close(a);
		return err_set(e, ERR_NOMEM, "audit: out of memory");
	}
	return 0;
}

static int open_file(struct audit *a)
{
	struct stat st;

	/* A link in the run's directory would be somebody's doing: not followed. */
	a->fd = openat(a->dir, AUDIT_FILE, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC,
		       0600);
	if (a->fd < 0)
		return -errno;
	if (fstat(a->fd, &st) < 0 || !S_ISREG(st.st_mode))
		return -EIO;
	a->size = (uint64_t)st.st_size;
	return 0;
}

static void rotate(struct audit *a)
{
	char from[32], to[32];

	cleanup_fd(&a->fd);
	for (unsigned i = AUDIT_FILES_MAX - 1; i > 0; i--) {
		audit_file_name(i - 1, from, sizeof(from));
		audit_file_name(i, to, sizeof(to));
		(void)renameat(a->dir, from, a->dir, to);
	}
}

/* To the end of the file. What a full disk cut short is ended by a line end before the next lines. */
static int write_all(struct audit *a, const char *p, size_t n)
{
	while (n) {
		bool end = a->torn;
		ssize_t w = write(a->fd, end ? "\n" : p, end ? 1 : n);

		if (w < 0 && errno == EINTR)
			continue;
		if (w <= 0)
			return w < 0 ? -errno : -EIO;
		a->size += (size_t)w;
		a->torn = false;
		if (end)
			continue;
		p += w;
		n -= (size_t)w;
		a->torn = n > 0 && p[-1] != '\n';
	}
	return 0;
}

static uint64_t lines(const struct buf *b)
{
	uint64_t n = 0;

	for (size_t i = 0; i < b->len; i++)
		n += b->data[i] == '\n';
	return n;
}

void audit_flush(struct audit *a)
{
	uint64_t max = a->dir >= 0 ? AUDIT_FILE_MAX : (uint64_t)AUDIT_FILE_MAX * AUDIT_FILES_MAX;
	int r = 0;

	if (a->pending.len == 0)
		return;
	if (a->fd < 0)
		r = open_file(a);
	if (r == 0 && a->size && a->size + a->pending.len > max) {
		if (a->dir >= 0) {
			rotate(a);
			r = open_file(a);
		} else {
			r = -EFBIG;
		}
	}
	if (r == 0)
		r = write_all(a, a->pending.data, a->pending.len);
	if (r < 0)
		a->lost += lines(&a->pending);
	buf_reset(&a->pending);
}

void audit_add(struct audit *a, const struct audit_entry *entry)
{
	_cleanup_buf_ struct buf line = BUF_INIT(AUDIT_LINE_MAX);

	if (a->dir < 0 && a->fd < 0)
		return;
	if (audit_format(&line, entry) < 0) {
		a->lost++;
		return;
	}
	(void)buf_put(&a->pending, line.data, line.len);
	if (a->pending.len >= AUDIT_BUFFER)
		audit_flush(a);
}

void audit_close(struct audit *a)
{
	audit_flush(a);
	cleanup_fd(&a->fd);
	cleanup_fd(&a->dir);
	buf_done(&a->pending);
}
