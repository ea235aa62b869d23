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

/* How many requests these whole lines tell of. */
static uint64_t requests_in(const char *p, size_t n)
{
	static const char count[] = ",\"count\":";
	uint64_t all = 0;

	for (size_t at = 0; at < n;) {
		const char *lf = memchr(p + at, '\n', n - at);
		size_t len = lf ? (size_t)(lf - p) - at : n - at;
		const char *c = memmem(p + at, len, count, sizeof(count) - 1);
		uint64_t k = 0;

		for (c = c ? c + sizeof(count) - 1 : p + at + len;
		     c < p + at + len && *c >= '0' && *c <= '9'; c++)
			k = k * 10 + (uint64_t)(*c - '0');
		all += k > 1 ? k : 1;
		at += len + 1;
	}
	return all;
}

/* In this order for whoever finds the memory after a kill: what the text says is there before its length says so. */
static void set_text(struct audit *a, size_t len)
{
	__atomic_store_n(&a->m->text_len, len, __ATOMIC_RELEASE);
}

static void write_pending(struct audit *a)
{
	struct audit_memory *m = a->m;
	size_t n;

	if (m->text_len == 0)
		return;
	n = write_all(a, m->text, m->text_len);
	a->stuck = n < m->text_len;
	if (!a->stuck) {
		set_text(a, 0);
		return;
	}
	/* The line that was cut in two is written again, whole, when there is room. */
	while (n && m->text[n - 1] != '\n')
		n--;
	memmove(m->text, m->text + n, m->text_len - n);
	set_text(a, m->text_len - n);
}

static void put_line(struct audit *a, const struct audit_entry *entry)
{
	_cleanup_buf_ struct buf line = BUF_INIT(AUDIT_LINE_MAX);
	struct audit_memory *m = a->m;

	if (audit_format(&line, entry) < 0 || line.len > sizeof(m->text) - m->text_len) {
		a->lost += entry->count > 1 ? entry->count : 1;
		return;
	}
	memcpy(m->text + m->text_len, line.data, line.len);
	set_text(a, m->text_len + line.len);
	if (!entry->forwarded)
		m->refused += line.len;
}

/* Counts. ---------------------------------------------------------------------------------- */

static const char *word(const char *s)
{
	return *s ? s : NULL;
}

static void put_word(char *to, size_t n, const char *s)
{
	(void)snprintf(to, n, "%s", s ? s : "");
}

/* Cut texts are alike if what is left of them is. */
static bool same(const char *kept, size_t n, const char *s)
{
	return strncmp(kept, s ? s : "", n - 1) == 0;
}

static bool alike(const struct audit_sum *s, const struct audit_entry *e)
{
	return s->status == e->status && s->forwarded == e->forwarded &&
	       same(s->rule, sizeof(s->rule), e->rule) &&
	       same(s->method, sizeof(s->method), e->method) &&
	       same(s->route, sizeof(s->route), e->route_id) &&
	       same(s->target, sizeof(s->target), e->target);
}

/* Where this request is counted. The last place is for whatever has none of its own. */
static struct audit_sum *place(struct audit *a, const struct audit_entry *e)
{
	struct audit_memory *m = a->m;
	struct audit_sum *s;

	for (size_t i = 0; i < m->sums; i++)
		if (alike(&m->sum[i], e))
			return &m->sum[i];
	/* The names that a sandbox thinks of must leave room for the other kinds. */
	if (e->target && m->sums >= AUDIT_TARGETS) {
		struct audit_entry any = *e;

		any.target = NULL;
		return place(a, &any);
	}
	if (m->sums == AUDIT_SUMS)
		return &m->sum[AUDIT_SUMS - 1];
	s = &m->sum[m->sums];
	*s = (struct audit_sum){
	    .real_ns = e->real_ns, .status = e->status, .forwarded = e->forwarded};
	if (m->sums == AUDIT_SUMS - 1) {
		put_word(s->rule, sizeof(s->rule), "several");
		s->status = 0;
	} else {
		put_word(s->rule, sizeof(s->rule), e->rule);
		put_word(s->method, sizeof(s->method), e->method);
		put_word(s->route, sizeof(s->route), e->route_id);
		put_word(s->target, sizeof(s->target), e->target);
	}
	if (m->sums == 0)
		a->sums_ns = clock_mono_ns();
	__atomic_store_n(&m->sums, m->sums + 1, __ATOMIC_RELEASE);
	return s;
}

static void count(struct audit *a, const struct audit_entry *e)
{
	struct audit_sum *s = place(a, e);

	s->forwarded = s->forwarded || e->forwarded;
	s->count += e->count > 1 ? e->count : 1;
	s->bytes_in += e->bytes_in;
	s->bytes_out += e->bytes_out;
	s->duration_ns += e->duration_ns;
}

static struct audit_entry entry_of(const struct audit *a, const struct audit_sum *s)
{
	return (struct audit_entry){.real_ns = s->real_ns,
				    .run = a->m->run,
				    .upstream = a->m->upstream,
				    .transport = a->m->transport,
				    .route_id = word(s->route),
				    .target = word(s->target),
				    .method = word(s->method),
				    .rule = s->rule,
				    .status = s->status,
				    .bytes_in = s->bytes_in,
				    .bytes_out = s->bytes_out,
				    .duration_ns = s->duration_ns / (int64_t)s->count,
				    .forwarded = s->forwarded,
				    .count = s->count};
}

static uint64_t room_for(const struct audit *a, bool forwarded)
{
	uint64_t used = a->size + a->m->text_len, max = AUDIT_FILE_MAX - AUDIT_CLOSE_ROOM;
	uint64_t kept, refused = a->m->refused;

	if (used >= max)
		return 0;
	if (forwarded)
		return max - used;
	kept = refused < AUDIT_REFUSED_MAX ? AUDIT_REFUSED_MAX - refused : 0;
	return kept < max - used ? kept : max - used;
}

/* Those for which there is room, or all of them. */
static void put_sums(struct audit *a, bool all)
{
	struct audit_memory *m = a->m;
	size_t left = 0;

	for (size_t i = 0; i < m->sums; i++) {
		if (m->sum[i].count == 0)
			continue;
		if (all || room_for(a, m->sum[i].forwarded) >= AUDIT_LINE_MAX) {
			const struct audit_entry e = entry_of(a, &m->sum[i]);

			put_line(a, &e);
			m->sum[i].count = 0;
			continue;
		}
		if (left != i)
			m->sum[left] = m->sum[i];
		left++;
	}
	m->sums = left;
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

/* What a process before this one left. ----------------------------------------------------- */

#define END_TEXT(t) ((t)[sizeof(t) - 1] = '\0')

static void land(struct audit *a, struct audit_flight *f)
{
	const struct audit_entry e = {.real_ns = f->real_ns,
				      .run = a->m->run,
				      .upstream = a->m->upstream,
				      .transport = a->m->transport,
				      .route_id = word(f->route),
				      .method = word(f->method),
				      .rule = AUDIT_KILLED,
				      .forwarded = true};

	put_line(a, &e);
	a->m->told++;
	f->out = 0;
	if (a->m->text_len >= AUDIT_BUFFER)
		write_pending(a);
}

static void adopt(struct audit *a)
{
	struct audit_memory *m = a->m;

	END_TEXT(m->run);
	END_TEXT(m->upstream);
	END_TEXT(m->transport);
	if (m->text_len > sizeof(m->text))
		m->text_len = sizeof(m->text);
	if (m->sums > AUDIT_SUMS)
		m->sums = AUDIT_SUMS;
	for (size_t i = 0; i < m->sums; i++) {
		END_TEXT(m->sum[i].route);
		END_TEXT(m->sum[i].target);
		END_TEXT(m->sum[i].method);
		END_TEXT(m->sum[i].rule);
		m->sum[i].forwarded = m->sum[i].forwarded != 0;
		/* As a divisor it is signed. */
		m->sum[i].count &= INT64_MAX;
	}
	a->sums_ns = clock_mono_ns();
	/* Perhaps it was ended within a write. */
	a->torn = m->text_len > 0;
	write_pending(a);
	if (m->flights > AUDIT_FLIGHTS)
		m->flights = AUDIT_FLIGHTS;
	for (size_t i = 0; i < m->flights; i++) {
		END_TEXT(m->flight[i].route);
		END_TEXT(m->flight[i].method);
		if (m->flight[i].out)
			land(a, &m->flight[i]);
	}
}

/* ------------------------------------------------------------------------------------------ */

int audit_open_in(struct audit *a, int fd, struct audit_memory *m, struct err *e)
{
	struct stat st;

	*a = (struct audit){.fd = fd, .tokens = {AUDIT_BURST, AUDIT_BURST}, .m = m};
	a->tokens_ns = clock_mono_ns();
	if (fd < 0)
		return 0;
	if (fstat(fd, &st) == 0)
		a->size = (uint64_t)st.st_size;
	/* Now, so that a helper at its memory limit still writes its last lines. */
	if (!m)
		a->m = a->own = calloc(1, sizeof(*a->m));
	a->free = calloc(AUDIT_FLIGHTS, sizeof(*a->free));
	if (!a->m || !a->free) {
		cleanup_fd(&a->fd);
		audit_close(a);
		return err_set(e, ERR_NOMEM, "audit: out of memory");
	}
	for (unsigned i = 0; i < AUDIT_FLIGHTS; i++)
		a->free[i] = (uint16_t)(AUDIT_FLIGHTS - 1 - i);
	a->free_len = AUDIT_FLIGHTS;
	if (m)
		adopt(a);
	return 0;
}

int audit_open(struct audit *a, int fd, struct err *e)
{
	return audit_open_in(a, fd, NULL, e);
}

bool audit_ready(const struct audit *a)
{
	return a->fd < 0 || (!a->stuck && room_for(a, true) > 0);
}

static void take_names(struct audit_memory *m, const struct audit_entry *e)
{
	if (*m->run || *m->upstream)
		return;
	put_word(m->transport, sizeof(m->transport), e->transport);
	put_word(m->run, sizeof(m->run), e->run);
	put_word(m->upstream, sizeof(m->upstream), e->upstream);
}

bool audit_begin(struct audit *a, const struct audit_entry *entry, unsigned *ret_flight)
{
	struct audit_flight *f;

	*ret_flight = 0;
	if (a->fd < 0)
		return true;
	if (!audit_ready(a) || a->free_len == 0)
		return false;
	take_names(a->m, entry);
	*ret_flight = a->free[--a->free_len] + 1u;
	f = &a->m->flight[*ret_flight - 1];
	if (a->m->flights < *ret_flight)
		a->m->flights = *ret_flight;
	f->real_ns = entry->real_ns;
	put_word(f->route, sizeof(f->route), entry->route_id);
	put_word(f->method, sizeof(f->method), entry->method);
	__atomic_store_n(&f->out, 1, __ATOMIC_RELEASE);
	return true;
}

void audit_add(struct audit *a, const struct audit_entry *entry)
{
	if (a->fd < 0)
		return;
	take_names(a->m, entry);
	if (spend(a, entry))
		put_line(a, entry);
	else
		count(a, entry);
	a->m->told += entry->count > 1 ? entry->count : 1;
	if (entry->flight) {
		__atomic_store_n(&a->m->flight[entry->flight - 1].out, 0, __ATOMIC_RELEASE);
		a->free[a->free_len++] = (uint16_t)(entry->flight - 1);
	}
	if (a->m->text_len >= AUDIT_BUFFER)
		write_pending(a);
}

bool audit_flush(struct audit *a)
{
	if (a->fd < 0)
		return false;
	/* One that failed is tried again first: whether the disk has room now says only a write. */
	if (a->m->sums && !a->stuck && clock_mono_ns() - a->sums_ns >= AUDIT_SUM_MS * NS_PER_MS)
		put_sums(a, false);
	write_pending(a);
	return a->m->sums || a->stuck;
}

void audit_close(struct audit *a)
{
	struct audit_memory *m = a->m;

	if (a->fd >= 0 && m) {
		write_pending(a);
		if (!a->stuck)
			put_sums(a, true);
		write_pending(a);
		a->lost += requests_in(m->text, m->text_len);
		for (size_t i = 0; i < m->sums; i++)
			a->lost += m->sum[i].count;
		m->text_len = m->sums = 0;
	}
	cleanup_fd(&a->fd);
	free(a->own);
	free(a->free);
	a->m = a->own = NULL;
	a->free = NULL;
}
