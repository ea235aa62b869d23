#include "wire/queue.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "wire/base64.h"

uint64_t queue_envelope_max(uint64_t body_max)
{
	return (body_max + 2) / 3 * 4 + QUEUE_TEXTS_MAX;
}

/* --- names -------------------------------------------------------------------------------- */

void queue_id_format(uint64_t seq, uint64_t random, char ret_id[QUEUE_ID_LEN + 1])
{
	(void)snprintf(ret_id, QUEUE_ID_LEN + 1, "%016" PRIx64 "-%016" PRIx64, seq, random);
}

bool queue_name_parse(const char *name, char ret_id[QUEUE_ID_LEN + 1], uint64_t *ret_seq)
{
	static const char digits[] = "0123456789abcdef";
	uint64_t seq = 0;

	for (size_t i = 0; i < QUEUE_ID_LEN; i++) {
		const char *d = name[i] ? strchr(digits, name[i]) : NULL;

		if (i == 16 ? name[i] != '-' : !d)
			return false;
		if (i < 16)
			seq = seq << 4 | (uint64_t)(d - digits);
	}
	if (strcmp(name + QUEUE_ID_LEN, QUEUE_SUFFIX) != 0)
		return false;
	memcpy(ret_id, name, QUEUE_ID_LEN);
	ret_id[QUEUE_ID_LEN] = '\0';
	*ret_seq = seq;
	return true;
}

int queue_window_take(struct queue_window *w, uint64_t seq)
{
	uint64_t bit;

	if (!w->any || seq > w->top) {
		uint64_t step = w->any ? seq - w->top : QUEUE_WINDOW, old = w->top;

		/* First, so that no old number looks new however far the rest comes. */
		*(volatile uint64_t *)&w->top = seq;
		*(volatile uint64_t *)&w->any = 1;
		__asm__ volatile("" ::: "memory");
		/* The places between the old top and the new one belong to numbers not seen yet. */
		if (step >= QUEUE_WINDOW)
			memset(w->bits, 0, sizeof(w->bits));
		else
			for (uint64_t s = old + 1; s != seq + 1; s++)
				w->bits[s % QUEUE_WINDOW / 64] &= ~(UINT64_C(1) << (s % 64));
	} else if (w->top - seq >= QUEUE_WINDOW) {
		return -ESTALE;
	}
	bit = UINT64_C(1) << (seq % 64);
	if (w->bits[seq % QUEUE_WINDOW / 64] & bit)
		return -EEXIST;
	w->bits[seq % QUEUE_WINDOW / 64] |= bit;
	return 0;
}

/* --- reading ------------------------------------------------------------------------------ */

enum member {
	M_VERSION = 1,
	M_ID = 2,
	M_AUTH = 4,
	M_METHOD = 8,
	M_PATH = 16,
	M_QUERY = 32,
	M_STATUS = 64,
	M_HEADERS = 128,
	M_ENCODING = 256,
	M_BODY = 512,
};
#define REQUEST_NEEDS (M_VERSION | M_ID | M_METHOD | M_PATH | M_HEADERS)
#define REQUEST_MAY (REQUEST_NEEDS | M_AUTH | M_QUERY | M_ENCODING | M_BODY)
#define RESPONSE_NEEDS (M_VERSION | M_ID | M_AUTH | M_STATUS | M_HEADERS)
#define RESPONSE_MAY (RESPONSE_NEEDS | M_ENCODING | M_BODY)

static const struct {
	const char *name;
	enum member bit;
} members[] = {
    {"version", M_VERSION}, {"id", M_ID},	    {"auth", M_AUTH},
    {"method", M_METHOD},   {"path", M_PATH},	    {"query", M_QUERY},
    {"status", M_STATUS},   {"headers", M_HEADERS}, {"bodyEncoding", M_ENCODING},
    {"body", M_BODY},
};

struct raw {
	struct json_text id, auth, method, path, query, encoding;
	struct json_text name[BRIDGE_HEADERS_MAX], value[BRIDGE_HEADERS_MAX];
	size_t headers;
	unsigned seen;
	size_t text; /* bytes of all texts but the body */
};

static bool same_text(const struct json_text *a, const struct json_text *b)
{
	return a->raw.n == b->raw.n && memcmp(a->raw.p, b->raw.p, a->raw.n) == 0;
}

static void read_header(struct json *j, struct raw *r, const struct json_text *key)
{
	if (r->headers == BRIDGE_HEADERS_MAX) {
		json_fail(j, "there are too many headers");
		return;
	}
	r->name[r->headers] = *key;
	json_text(j, &r->value[r->headers]);
	r->text += key->len + r->value[r->headers].len;
	r->headers++;
}

static void read_headers(struct json *j, struct raw *r)
{
	struct json_text key;

	json_enter(j);
	while (json_key(j, &key)) {
		size_t before = r->headers;

		/* No name of a header needs one, and "a\u0062" would be "ab" a second time. */
		if (key.len != key.raw.n)
			json_fail(j, "a header's name holds an escape");
		for (size_t i = 0; i < before; i++)
			if (same_text(&key, &r->name[i]))
				json_fail(j, "a header is there twice");
		if (!json_list(j)) {
			read_header(j, r, &key);
			continue;
		}
		do
			read_header(j, r, &key);
		while (json_more(j));
		/* One spelling for one header. */
		if (r->headers < before + 2)
			json_fail(j, "a list of one header");
	}
	json_resume(j);
}

static void read_text(struct json *j, struct raw *r, struct json_text *ret)
{
	json_text(j, ret);
	r->text += ret->len;
}

static void read_member(struct json *j, struct raw *r, struct queue_envelope *q, enum member m)
{
	switch (m) {
	case M_VERSION:
		if (json_number(j, 9) != 2)
			json_fail(j, "the version is not 2");
		break;
	case M_ID:
		read_text(j, r, &r->id);
		break;
	case M_AUTH:
		read_text(j, r, &r->auth);
		break;
	case M_METHOD:
		read_text(j, r, &r->method);
		break;
	case M_PATH:
		read_text(j, r, &r->path);
		break;
	case M_QUERY:
		read_text(j, r, &r->query);
		break;
	case M_STATUS:
		q->status = (int)json_number(j, 599);
		if (q->status < 100)
			json_fail(j, "the status is not 100 to 599");
		break;
	case M_HEADERS:
		read_headers(j, r);
		break;
	case M_ENCODING:
		json_text(j, &r->encoding);
		break;
	case M_BODY:
		json_text(j, &q->body);
		break;
	}
}

static void read_envelope(struct json *j, struct raw *r, struct queue_envelope *q, unsigned may,
			  unsigned needs)
{
	struct json_text key;

	json_enter(j);
	while (json_key(j, &key)) {
		unsigned bit = 0;

		for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++)
			if (json_is(&key, members[i].name))
				bit = members[i].bit;
		if (!(bit & may))
			json_fail(j, "there is an unknown member");
		else if (r->seen & bit)
			json_fail(j, "a member is there twice");
		else
			read_member(j, r, q, (enum member)bit);
		r->seen |= bit;
	}
	if (json_end(j) && (r->seen & needs) != needs)
		json_fail(j, "a member is missing");
}

static int judge_body(struct json *j, const struct raw *r, struct queue_envelope *q,
		      uint64_t body_max)
{
	q->base64 = (r->seen & M_ENCODING) && json_is(&r->encoding, "base64");
	if ((r->seen & M_ENCODING) && !q->base64 && !json_is(&r->encoding, "utf8"))
		json_fail(j, "the body has an unknown encoding");
	q->body_len = q->body.len;
	/* An escape inside base64 is a second spelling: its backslash is no sextet. */
	if (q->base64 && !base64_len(q->body.raw, &q->body_len))
		json_fail(j, "the body is not canonical base64");
	if (j->failed)
		return -EPROTO;
	if (q->body_len > body_max) {
		j->why = "the body is too long";
		return -E2BIG;
	}
	return 0;
}

static struct view keep(char **at, const struct json_text *t)
{
	struct view v = {*at, t->len};

	json_unescape(t, *at);
	*at += t->len;
	return v;
}

/* The texts, unescaped, side by side: path and query become one target. */
static int fill(const struct raw *r, struct queue_envelope *q, const char **why)
{
	char *at = buf_room(&q->text, r->text + 1);
	struct view path, query;

	if (!at)
		return q->text.err;
	q->id = keep(&at, &r->id);
	q->auth = keep(&at, &r->auth);
	q->method = keep(&at, &r->method);
	path = keep(&at, &r->path);
	query = keep(&at, &r->query);
	/* Where the query begins is said by the member, never by a byte of the path. */
	if (path.n && memchr(path.p, '?', path.n)) {
		*why = "the path holds a query";
		return -EPROTO;
	}
	q->target = (struct view){path.p, path.n + query.n};
	for (size_t i = 0; i < r->headers; i++) {
		q->headers[i].name = keep(&at, &r->name[i]);
		q->headers[i].value = keep(&at, &r->value[i]);
	}
	q->headers_len = r->headers;
	return 0;
}

static int parse(const void *p, size_t n, const char *id, uint64_t body_max,
		 struct queue_envelope *q, const char **why, bool request)
{
	struct raw r = {0};
	struct json j;
	int rc;

	memset(q, 0, sizeof(*q));
	buf_init(&q->text, QUEUE_TEXTS_MAX);
	*why = "the envelope is too long";
	if (n > queue_envelope_max(body_max))
		return -E2BIG;
	json_init(&j, p, n);
	read_envelope(&j, &r, q, request ? REQUEST_MAY : RESPONSE_MAY,
		      request ? REQUEST_NEEDS : RESPONSE_NEEDS);
	if (!j.failed && !json_is(&r.id, id))
		json_fail(&j, "the id is not that of the name");
	if (!j.failed && r.query.len && r.query.raw.p[0] != '?')
		json_fail(&j, "the query does not begin with '?'");
	rc = judge_body(&j, &r, q, body_max);
	*why = j.why;
	if (rc == 0 && r.text >= QUEUE_TEXTS_MAX) {
		*why = "the headers are too long";
		rc = -E2BIG;
	}
	return rc < 0 ? rc : fill(&r, q, why);
}

int queue_request_parse(const void *p, size_t n, const char *id, uint64_t body_max,
			struct queue_envelope *ret, const char **why)
{
	return parse(p, n, id, body_max, ret, why, true);
}

int queue_response_parse(const void *p, size_t n, const char *id, struct view auth,
			 uint64_t body_max, struct queue_envelope *ret, const char **why)
{
	int r = parse(p, n, id, body_max, ret, why, false);

	if (r == 0 && (ret->auth.n != auth.n || memcmp(ret->auth.p, auth.p, auth.n) != 0)) {
		*why = "the answer is not authenticated";
		r = -EPROTO;
	}
	return r;
}

void queue_envelope_done(struct queue_envelope *q)
{
	buf_done(&q->text);
}

int queue_body(const struct queue_envelope *q, struct buf *out)
{
	size_t n = (size_t)q->body_len;
	char *at = n ? buf_room(out, n) : NULL;

	if (n == 0)
		return 0;
	if (!at)
		return out->err;
	if (q->base64)
		base64_decode(q->body.raw, at, n);
	else
		json_unescape(&q->body, at);
	buf_add(out, n);
	return 0;
}

/* --- writing ------------------------------------------------------------------------------ */

static int put_member(struct buf *out, const char *name, struct view v)
{
	(void)buf_putf(out, ",\"%s\":", name);
	return json_put(out, v);
}

static bool named_before(const struct queue_message *m, size_t i)
{
	for (size_t k = 0; k < i; k++)
		if (m->headers[k].name.n == m->headers[i].name.n &&
		    memcmp(m->headers[k].name.p, m->headers[i].name.p, m->headers[i].name.n) == 0)
			return true;
	return false;
}

/* A header and its namesakes behind it. */
static int put_header(struct buf *out, const struct queue_message *m, size_t at)
{
	struct view name = m->headers[at].name;
	size_t n = 0;
	int r = json_put(out, name);

	for (size_t i = at; i < m->headers_len; i++)
		n += m->headers[i].name.n == name.n &&
		     memcmp(m->headers[i].name.p, name.p, name.n) == 0;
	(void)buf_puts(out, n > 1 ? ":[" : ":");
	for (size_t i = at, k = 0; r == 0 && i < m->headers_len; i++) {
		if (m->headers[i].name.n != name.n ||
		    memcmp(m->headers[i].name.p, name.p, name.n) != 0)
			continue;
		if (k++)
			(void)buf_putc(out, ',');
		r = json_put(out, m->headers[i].value);
	}
	return r < 0 || n < 2 ? r : buf_putc(out, ']');
}

static int put_rest(struct buf *out, const struct queue_message *m)
{
	int r = 0;
	size_t k = 0;

	(void)buf_puts(out, ",\"headers\":{");
	for (size_t i = 0; r == 0 && i < m->headers_len; i++) {
		if (named_before(m, i))
			continue;
		if (k++)
			(void)buf_putc(out, ',');
		r = put_header(out, m, i);
	}
	(void)buf_puts(out, "},\"bodyEncoding\":\"base64\",\"body\":\"");
	return r < 0 ? r : out->err;
}

static int put_begin(struct buf *out, const struct queue_message *m)
{
	(void)buf_puts(out, "{\"version\":2");
	return put_member(out, "auth", m->auth);
}

int queue_request_begin(struct buf *out, const struct queue_message *m)
{
	const char *mark = m->target.n ? memchr(m->target.p, '?', m->target.n) : NULL;
	struct view path = m->target, query = {"", 0};
	int r = put_begin(out, m);

	if (mark) {
		path.n = (size_t)(mark - path.p);
		query = (struct view){mark, m->target.n - path.n};
	}
	if (r == 0)
		r = put_member(out, "method", m->method);
	if (r == 0)
		r = put_member(out, "path", path);
	if (r == 0)
		r = put_member(out, "query", query);
	return r < 0 ? r : put_rest(out, m);
}

int queue_response_begin(struct buf *out, const struct queue_message *m)
{
	int r = put_begin(out, m);

	(void)buf_putf(out, ",\"status\":%d", m->status);
	return r < 0 ? r : put_rest(out, m);
}

int queue_body_put(struct buf *out, struct queue_body_put *p, struct view v)
{
	char group[3];
	size_t whole;
	int r = 0;

	if (p->n && p->n + v.n >= 3) {
		memcpy(group, p->left, p->n);
		memcpy(group + p->n, v.p, 3 - p->n);
		v.p += 3 - p->n;
		v.n -= 3 - p->n;
		p->n = 0;
		r = base64_put(out, (struct view){group, 3});
	}
	whole = p->n ? 0 : v.n - v.n % 3;
	if (r == 0 && whole)
		r = base64_put(out, (struct view){v.p, whole});
	for (size_t i = whole; i < v.n; i++)
		p->left[p->n++] = (unsigned char)v.p[i];
	return r;
}

int queue_end(struct buf *out, struct queue_body_put *p, const char *id)
{
	int r = base64_put(out, (struct view){(const char *)p->left, p->n});

	p->n = 0;
	return r < 0 ? r : buf_putf(out, "\",\"id\":\"%s\"}\n", id);
}

static int put_whole(struct buf *out, const struct queue_message *m, bool request)
{
	struct queue_body_put p = {.n = 0};
	int r = request ? queue_request_begin(out, m) : queue_response_begin(out, m);

	if (r == 0)
		r = queue_body_put(out, &p, m->body);
	return r < 0 ? r : queue_end(out, &p, m->id);
}

int queue_request_print(struct buf *out, const struct queue_message *m)
{
	return put_whole(out, m, true);
}

int queue_response_print(struct buf *out, const struct queue_message *m)
{
	return put_whole(out, m, false);
}

/* --- where it lies ------------------------------------------------------------------------ */

bool queue_fs_notifies(uint64_t f_type)
{
	/* Magic numbers of linux/magic.h and of the file systems' own headers. */
	static const uint64_t local[] = {
	    0xef53,	/* ext2, ext3, ext4 */
	    0x58465342, /* xfs */
	    0x9123683e, /* btrfs */
	    0x01021994, /* tmpfs */
	    0xf2f52010, /* f2fs */
	    0x2fc12fc1, /* zfs */
	    0xca451a4e, /* bcachefs */
	};

	for (size_t i = 0; i < sizeof(local) / sizeof(local[0]); i++)
		if (f_type == local[i])
			return true;
	return false;
}
