/*
 * runlogs.c: the log of a run as an event stream, from its beginning or from where a watcher was, to its end.
 *
 * An event for each record of the log (wire/runlog.h), large ones in pieces. Its id is the place behind the record it is of, so
 * that one who comes back (Last-Event-ID, after=N) misses nothing and may get pieces of one record again. Output that is not
 * UTF-8 comes as base64, so every byte arrives. The actor is proved again every EVENTS_PING_MS.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/events.h"
#include "api/runs.h"
#include "api/view.h"
#include "base/cleanup.h"
#include "base/cursor.h"
#include "base/str.h"
#include "wire/json.h"
#include "wire/runlog.h"

#define PIECE 16384 /* of a record: bytes of one event */
#define TEXT_MAX (PIECE * 7)
#define MARK_LEN 32 /* of an id, in hexadecimal */

struct log_stream {
	struct call_stream base; /* first */
	char id[ID_LEN + 1];
	int fd;	       /* owned; -1: there is no log yet */
	uint64_t from; /* where the watcher begins */
	struct runlog_reader reader;
	struct runlog_record rec; /* in the reader's buffer: what is left of it */
	char company[UUID_LEN + 1];
	bool ended; /* what is in out is the last of it */
};

static const char *kind(enum runlog_stream s)
{
	static const char *const names[] = {[RUNLOG_OUT] = "stdout",
					    [RUNLOG_ERR] = "stderr",
					    [RUNLOG_NOTE] = "note",
					    [RUNLOG_DROPPED] = "dropped",
					    [RUNLOG_END] = "end"};

	return s < ARRAY_LEN(names) && names[s] ? names[s] : "note";
}

static bool is_text(const uint8_t *p, size_t n)
{
	json_t *j = json_stringn((const char *)p, n);

	json_decref(j);
	return j != NULL;
}

static void put_number(struct log_stream *s, const char *name)
{
	struct cursor c;
	uint64_t v;

	cursor_init(&c, s->rec.p, s->rec.n);
	v = s->rec.stream == RUNLOG_END ? cursor_u32(&c) : cursor_u64(&c);
	(void)buf_putf(&s->base.out, ",\"%s\":%" PRIu64, name, v);
	s->rec.n = 0;
}

static void put_bytes(struct log_stream *s)
{
	size_t n = s->rec.n < PIECE ? s->rec.n : PIECE;
	char coded[PIECE * 4 / 3 + 8];

	/* Not through a character, if that is all that is wrong with it. */
	for (size_t k = 0; k < 3 && n == PIECE && n < s->rec.n && (s->rec.p[n] & 0xc0) == 0x80; k++)
		n--;
	if (is_text(s->rec.p, n)) {
		(void)buf_puts(&s->base.out, ",\"text\":");
		(void)json_put(&s->base.out, (struct view){(const char *)s->rec.p, n});
	} else {
		(void)sodium_bin2base64(coded, sizeof(coded), s->rec.p, n,
					sodium_base64_VARIANT_ORIGINAL);
		(void)buf_putf(&s->base.out, ",\"base64\":\"%s\"", coded);
	}
	s->rec.p += n;
	s->rec.n -= n;
}

/*
 * That an id is one of ours. A place in the middle of a record, in bytes that the command chose, would show Airlock's own lines as
 * output; administrators may read those anyway.
 */
static void mark(const struct api *a, const char *run, uint64_t at, char out[MARK_LEN + 1])
{
	unsigned char sum[crypto_generichash_BYTES];
	char text[64];
	int n = snprintf(text, sizeof(text), "runlog:%s:%" PRIu64, run, at);

	(void)crypto_generichash(sum, sizeof(sum), (unsigned char *)text, (size_t)n,
				 (const unsigned char *)a->master,
				 strnlen(a->master, crypto_generichash_KEYBYTES_MAX));
	(void)sodium_bin2hex(out, MARK_LEN + 1, sum, MARK_LEN / 2);
}

/* One event of what is left of the record. */
static void put(struct log_stream *s)
{
	const struct call *c = s->base.c;
	char m[MARK_LEN + 1];

	(void)buf_putf(&s->base.out, "id: %" PRIu64, s->reader.offset);
	if (!actor_is_admin(&c->actor)) {
		mark(c->api, s->id, s->reader.offset, m);
		(void)buf_putf(&s->base.out, ".%s", m);
	}
	(void)buf_putf(&s->base.out, "\nevent: %s\ndata: ", kind(s->rec.stream));
	view_time(&s->base.out, "{\"at\":", s->rec.time_ns);
	if (s->rec.stream == RUNLOG_END)
		put_number(s, "exitStatus");
	else if (s->rec.stream == RUNLOG_DROPPED)
		put_number(s, "bytes");
	else
		put_bytes(s);
	(void)buf_puts(&s->base.out, "}\n\n");
}

static int open_log(struct log_stream *s)
{
	_cleanup_free_ char *path = state_path(&s->base.c->api->st, "runs", s->id, "log");

	if (s->fd < 0 && path) {
		s->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
		if (s->fd >= 0)
			runlog_reader_init(&s->reader, s->fd, s->from);
	}
	return s->fd;
}

/* Whether more may come: the run has no end yet. */
static bool goes_on(struct log_stream *s)
{
	_cleanup_envrun_ struct envrun_row r = {0};

	return envrun_get(s->base.c->api->db, s->id, &r, NULL) > 0 &&
	       (r.status == ER_QUEUED || r.status == ER_RUNNING);
}

/*
 * Airlock's own lines have paths of the host and errors with more of them: as with the report, they are for administrators. Others
 * see that there was one.
 */
static void mask_note(struct log_stream *s)
{
	static const uint8_t instead[] = "(a note of Airlock, for administrators)";

	if (s->rec.stream == RUNLOG_END || s->rec.stream == RUNLOG_DROPPED ||
	    s->rec.stream == RUNLOG_OUT || s->rec.stream == RUNLOG_ERR ||
	    actor_is_admin(&s->base.c->actor))
		return;
	s->rec.p = instead;
	s->rec.n = sizeof(instead) - 1;
}

static int next(struct log_stream *s)
{
	/* Asked before the look: what came in between is seen by it. */
	bool more = goes_on(s);
	int r;

	if (open_log(s) < 0)
		r = 0;
	else
		r = runlog_next(&s->reader, &s->rec, NULL);
	if (r > 0) {
		s->ended = s->rec.stream == RUNLOG_END;
		mask_note(s);
		put(s);
		return 0;
	}
	s->rec.n = 0;
	if (r < 0 || !more)
		s->ended = true;
	return r < 0 ? -1 : 0;
}

static int fill(struct call_stream *base)
{
	struct log_stream *s = (struct log_stream *)base;
	int r = 0;

	if (s->ended && !s->rec.n)
		return -1;
	if (s->rec.n)
		put(s);
	else
		r = next(s);
	if (r == 0 && s->ended && !base->out.len)
		return -1;
	return r;
}

/* A member of another company now is nobody to it, and the run is none of his. */
static bool may(const struct call_stream *base)
{
	const struct log_stream *s = (const struct log_stream *)base;
	const struct actor *a = &base->c->actor;

	return actor_is_admin(a) || actor_in_company(a, s->company);
}

static void done(struct call_stream *base)
{
	struct log_stream *s = (struct log_stream *)base;

	base->c->api->following--;
	if (s->fd >= 0)
		runlog_reader_done(&s->reader);
	cleanup_fd(&s->fd);
}

/* "N" or "N.MARK" */
static bool parse_after(const struct call *c, const char *run, const char *text, uint64_t *ret)
{
	char number[24], m[MARK_LEN + 1];
	size_t n = strcspn(text, ".");

	*ret = 0;
	if (n >= sizeof(number))
		return false;
	(void)snprintf(number, sizeof(number), "%.*s", (int)n, text);
	if (str_to_u64(number, INT64_MAX, ret) < 0)
		return false;
	if (actor_is_admin(&c->actor) || *ret == 0)
		return true;
	mark(c->api, run, *ret, m);
	return text[n] == '.' && strlen(text + n + 1) == MARK_LEN &&
	       sodium_memcmp(text + n + 1, m, MARK_LEN) == 0;
}

int h_run_log(struct call *c)
{
	const char *after = call_query(c, "after") ? call_query(c, "after") : c->head.last_event;
	_cleanup_envrun_ struct envrun_row r;
	struct log_stream *s;
	uint64_t from = 0;

	if (run_find_call(c, &r))
		return 0;
	if (after && after[0] && !parse_after(c, r.id, after, &from))
		return reply_error(c, 400, "after is the id of an event of this log");
	if (c->method == METHOD_HEAD)
		return reply_json(c, 200, json_object());
	if (!stream_admit(c))
		return 0;
	s = calloc(1, sizeof(*s));
	if (!s)
		return reply_error(c, 503, "Out of memory, try again");
	s->base.fill = fill;
	s->base.may = may;
	s->base.done = done;
	s->fd = -1;
	s->from = from;
	s->base.out = BUF_INIT(TEXT_MAX);
	memcpy(s->id, r.id, sizeof(s->id));
	memcpy(s->company, r.company_id, sizeof(s->company));
	(void)buf_puts(&s->base.out, "retry: 2000\n: watching\n\n");
	c->api->following++;
	return stream_begin(c, &s->base);
}
