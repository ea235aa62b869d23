/*
 * Policy of door 2 here: a stream whose other end does not know this run's nonce never gets a session, and the
 * bytes before it are bounded and dropped. Not done here: authentication of requests (the guard's).
 */
#include "bridge/ready.h"

#include <errno.h>
#include <jansson.h>
#include <nghttp2/nghttp2.h>
#include <sodium.h>
#include <string.h>

void ready_init(struct ready *r, const char *nonce)
{
	*r = (struct ready){.in = BUF_INIT(READY_SKIP_MAX + 65536)};
	(void)snprintf(r->nonce, sizeof(r->nonce), "%s", nonce);
}

void ready_done(struct ready *r)
{
	buf_done(&r->in);
	sodium_memzero(r->nonce, sizeof(r->nonce));
}

/* 1: the line; 0: no JSON, to be skipped; negative: JSON, but not the line. */
static int judge_line(const struct ready *r, const char *p, size_t n, struct err *e)
{
	json_t *j = json_loadb(p, n, JSON_REJECT_DUPLICATES, NULL);
	const char *brace = j ? NULL : memchr(p, '{', n);
	json_t *v, *t, *nonce;
	int k = 0;

	/* A terminal puts marks of its own before the line (bracketed paste). */
	if (brace && brace > p)
		j = json_loadb(brace, n - (size_t)(brace - p), JSON_REJECT_DUPLICATES, NULL);
	if (!j)
		return 0;
	v = json_object_get(j, "version");
	t = json_object_get(j, "type");
	nonce = json_object_get(j, "nonce");
	if (!json_is_object(j) || json_object_size(j) != 3 || !json_is_integer(v) ||
	    json_integer_value(v) != 2 || !json_is_string(t) ||
	    strcmp(json_string_value(t), "ready") != 0 || !json_is_string(nonce))
		k = err_set(e, ERR_PROTOCOL,
			    "the gateway's first line is not READY of version 2: it is another "
			    "program, or another version");
	else if (json_string_length(nonce) != strlen(r->nonce) ||
		 sodium_memcmp(json_string_value(nonce), r->nonce, strlen(r->nonce)) != 0)
		k = err_set(e, ERR_PROTOCOL,
			    "READY carries another nonce: it is not this run's gateway");
	json_decref(j);
	return k < 0 ? k : 1;
}

static int lines(struct ready *r, struct err *e)
{
	char *lf;

	while (!r->said && (lf = r->in.len ? memchr(r->in.data, '\n', r->in.len) : NULL)) {
		size_t n = (size_t)(lf - r->in.data);
		int k = judge_line(r, r->in.data, n, e);

		if (k < 0)
			return k;
		r->said = k > 0;
		r->seen += n + 1;
		if (r->seen > READY_SKIP_MAX)
			return err_set(e, ERR_LIMIT, "over %d bytes before READY", READY_SKIP_MAX);
		buf_drop(&r->in, n + 1);
	}
	return 0;
}

int ready_feed(struct ready *r, const void *p, size_t n, struct err *e)
{
	size_t have;
	int k = buf_put(&r->in, p, n);

	if (k < 0)
		return err_set(e, ERR_LIMIT, "over %d bytes before READY", READY_SKIP_MAX);
	k = lines(r, e);
	if (k < 0)
		return k;
	if (!r->said)
		return r->seen + r->in.len > READY_SKIP_MAX
			   ? err_set(e, ERR_LIMIT, "over %d bytes before READY", READY_SKIP_MAX)
			   : 0;
	if (r->alone)
		return 1;
	have = r->in.len < NGHTTP2_CLIENT_MAGIC_LEN ? r->in.len : NGHTTP2_CLIENT_MAGIC_LEN;
	if (have && memcmp(r->in.data, NGHTTP2_CLIENT_MAGIC, have) != 0)
		return err_set(e, ERR_PROTOCOL, "READY is not followed by HTTP/2");
	return have == NGHTTP2_CLIENT_MAGIC_LEN;
}
