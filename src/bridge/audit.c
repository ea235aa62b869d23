#include "bridge/audit.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "wire/json.h"

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
	if (a->count > 1)
		(void)buf_putf(out, ",\"count\":%" PRIu64, a->count);
	return buf_putf(out,
			",\"bytes_in\":%" PRIu64 ",\"bytes_out\":%" PRIu64 ",\"ms\":%" PRId64
			".%03" PRId64 "}\n",
			a->bytes_in, a->bytes_out, us / 1000, us % 1000);
}

int audit_open(struct audit *a, int fd, struct err *e)
{
	struct stat st;

	*a = (struct audit){.fd = fd, .tokens = {AUDIT_BURST, AUDIT_BURST}};
	a->tokens_ns = clock_mono_ns();
	buf_init(&a->pending, AUDIT_PENDING_MAX);
	if (fd < 0)
		return 0;
	if (fstat(fd, &st) == 0)
		a->size = (uint64_t)st.st_size;
	a->sum = calloc(AUDIT_SUMS, sizeof(*a->sum));
	/* Now, so that a helper at its memory limit still writes its last lines. */
	if (!a->sum || !buf_room(&a->pending, AUDIT_BUFFER + AUDIT_LINE_MAX)) {
		audit_close(a);
		return err_set(e, ERR_NOMEM, "audit: out of memory");
	}
	return 0;
}

/*
 * To the end of the file. What a full disk cut short is ended by a line end before the next lines. Returns how many of the
 * bytes are in the file.
 */
static size_t write_all(struct audit *a, const char *p, size_t n)
{
	size_t done = 0;

	while (done < n) {
		bool end = a->torn;
		ssize_t w = write(a->fd, end ? "\n" : p + done, end ? 1 : n - done);

		if (w < 0 && errno == EINTR)
			continue;
		if (w <= 0)
			break;
		a->size += (size_t)w;
		a->torn = false;
		if (end)
			continue;
		done += (size_t)w;
		a->torn = done < n && p[done - 1] != '\n';
	}
	return done;
}

static void write_pending(struct audit *a)
{
	size_t n;

	if (a->pending.len == 0)
		return;
	n = write_all(a, a->pending.data, a->pending.len);
	a->stuck = n < a->pending.len;
	if (!a->stuck) {
		buf_reset(&a->pending);
		return;
	}
	/* The line that was cut in two is written again, whole, when there is room. */
	while (n && a->pending.data[n - 1] != '\n')
		n--;
	buf_drop(&a->pending, n);
}

static void put_line(struct audit *a, const struct audit_entry *entry)
{
	_cleanup_buf_ struct buf line = BUF_INIT(AUDIT_LINE_MAX);

	if (audit_format(&line, entry) < 0 || buf_put(&a->pending, line.data, line.len) < 0) {
		a->lost += entry->count > 1 ? entry->count : 1;
		return;
	}
	if (!entry->forwarded)
		a->refused += line.len;
}

/* Counts. ---------------------------------------------------------------------------------- */

static bool same(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

static bool alike(const struct audit_sum *s, const struct audit_entry *e, const char *route)
{
	return s->e.status == e->status && s->e.forwarded == e->forwarded &&
	       same(s->e.rule, e->rule) && same(s->e.method, e->method) &&
	       same(s->e.route_id, route);
}

static void own_texts(struct audit_sum *s)
{
	s->e.route_id = s->e.route_id ? s->route : NULL;
	s->e.method = s->e.method ? s->method : NULL;
	s->e.target = NULL;
}

/* Where this request is counted. The last place is for whatever has none of its own. */
static struct audit_sum *place(struct audit *a, const struct audit_entry *e)
{
	char route[AUDIT_TEXT_MAX];
	struct audit_sum *s;

	(void)snprintf(route, sizeof(route), "%s", e->route_id ? e->route_id : "");
	for (size_t i = 0; i < a->sums; i++)
		if (alike(&a->sum[i], e, e->route_id ? route : NULL))
			return &a->sum[i];
	if (a->sums == AUDIT_SUMS)
		return &a->sum[AUDIT_SUMS - 1];
	s = &a->sum[a->sums++];
	s->e = *e;
	s->e.count = s->e.bytes_in = s->e.bytes_out = 0;
	s->e.duration_ns = 0;
	memcpy(s->route, route, sizeof(route));
	(void)snprintf(s->method, sizeof(s->method), "%s", e->method ? e->method : "");
	own_texts(s);
	if (a->sums == AUDIT_SUMS) {
		s->e.route_id = s->e.method = NULL;
		s->e.rule = "several";
		s->e.status = 0;
	}
	if (a->sums == 1)
		a->sums_ns = clock_mono_ns();
	return s;
}

static void count(struct audit *a, const struct audit_entry *e)
{
	struct audit_sum *s = place(a, e);

	s->e.forwarded = s->e.forwarded || e->forwarded;
	s->e.count += e->count > 1 ? e->count : 1;
	s->e.bytes_in += e->bytes_in;
	s->e.bytes_out += e->bytes_out;
	s->e.duration_ns += e->duration_ns;
}

static uint64_t room_for(const struct audit *a, bool forwarded)
{
	uint64_t used = a->size + a->pending.len, max = AUDIT_FILE_MAX - AUDIT_CLOSE_ROOM;
	uint64_t kept;

	if (used >= max)
		return 0;
	if (forwarded)
		return max - used;
	kept = a->refused < AUDIT_REFUSED_MAX ? AUDIT_REFUSED_MAX - a->refused : 0;
	return kept < max - used ? kept : max - used;
}

/* Those for which there is room, or all of them. */
static void put_sums(struct audit *a, bool all)
{
	size_t left = 0;

	for (size_t i = 0; i < a->sums; i++) {
		struct audit_sum *s = &a->sum[i];

		if (all || room_for(a, s->e.forwarded) >= AUDIT_LINE_MAX) {
			s->e.duration_ns /= (int64_t)s->e.count;
			put_line(a, &s->e);
			continue;
		}
		if (left != i) {
			a->sum[left] = *s;
			own_texts(&a->sum[left]);
		}
		left++;
	}
	a->sums = left;
	a->sums_ns = clock_mono_ns();
}

/* Whether it gets a line of its own. */
static bool spend(struct audit *a, const struct audit_entry *e)
{
	uint64_t all = e->forwarded ? AUDIT_FILE_MAX - AUDIT_REFUSED_MAX : AUDIT_REFUSED_MAX;
	int64_t now = clock_mono_ns();
	double more = (double)(now - a->tokens_ns) / (double)NS_PER_S * AUDIT_RATE;

	a->tokens_ns = now;
	for (size_t i = 0; i < ARRAY_LEN(a->tokens); i++)
		if ((a->tokens[i] += more) > AUDIT_BURST)
			a->tokens[i] = AUDIT_BURST;
	if (a->tokens[e->forwarded] < 1 || room_for(a, e->forwarded) < all / 2 || a->stuck)
		return false;
	a->tokens[e->forwarded]--;
	return true;
}

/* ------------------------------------------------------------------------------------------ */

bool audit_ready(const struct audit *a)
{
	return a->fd < 0 || (!a->stuck && room_for(a, true) > 0);
}

void audit_add(struct audit *a, const struct audit_entry *entry)
{
	if (a->fd < 0)
		return;
	if (!spend(a, entry)) {
		count(a, entry);
		return;
	}
	put_line(a, entry);
	if (a->pending.len >= AUDIT_BUFFER)
		write_pending(a);
}

bool audit_flush(struct audit *a)
{
	if (a->fd < 0)
		return false;
	/* One that failed is tried again first: whether the disk has room now says only a write. */
	if (a->sums && !a->stuck && clock_mono_ns() - a->sums_ns >= AUDIT_SUM_MS * NS_PER_MS)
		put_sums(a, false);
	write_pending(a);
	return a->sums || a->stuck;
}

void audit_close(struct audit *a)
{
	if (a->fd >= 0 && a->sum) {
		write_pending(a);
		if (!a->stuck)
			put_sums(a, true);
		write_pending(a);
		for (size_t i = 0; i < a->pending.len; i++)
			a->lost += a->pending.data[i] == '\n';
		for (size_t i = 0; i < a->sums; i++)
			a->lost += a->sum[i].e.count;
	}
	cleanup_fd(&a->fd);
	free(a->sum);
	a->sum = NULL;
	a->sums = 0;
	buf_done(&a->pending);
}
