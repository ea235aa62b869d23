/*
 * call.h: one request of the API, from its parsed head to its answer.
 *
 * Order of judgement, the same for every route. By its head alone, before a byte of a body is kept: target, host, size,
 * route, whether that takes a body, actor, origin, guard. Then the body: size of what it would become, JSON, schema. Only then
 * the handler, which is the first to look anything up, so nothing before it can tell what exists. One exception,
 * for api.md 1.3: whom the guard denies, but who is known, hears first what is wrong with a small body.
 */
#ifndef AIRLOCK_API_CALL_H
#define AIRLOCK_API_CALL_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/id.h"
#include "policy/actor.h"
#include "policy/route.h"
#include "policy/target.h"

struct api;
struct call;

/* What an answer that comes bit by bit is read from (events.h); begins what is behind it. */
struct call_stream {
	struct call_stream *next; /* of all */
	struct call *c;
	/* Puts more into out, or nothing as long as there is none; negative: the end. */
	int (*fill)(struct call_stream *s);
	/* Whether the actor, who was just proved again, may still have it; NULL: whom the route's guard lets may. */
	bool (*may)(const struct call_stream *s);
	void (*done)(struct call_stream *s); /* NULL, or what else than out is to be given back */
	struct buf out;
	size_t taken;	 /* of out */
	int64_t ping_ns; /* monotonic: when the actor is proved again, and a sign of life is due */
};
struct peer;

#define API_LATER 1  /* a handler's answer comes through call_finish */
#define API_STREAM 2 /* it comes bit by bit, from c->stream (events.h) */
#define API_QUERY_MAX 16

/* One member of a body. Absent is not null; null is allowed only with FIELD_NULL. */
enum field_type {
	FIELD_TEXT,
	FIELD_WORD,
	FIELD_UUID,
	FIELD_OBJECT,
	FIELD_ENV,
	FIELD_BOOL,
	FIELD_INT,
	FIELD_TEXTS /* an array of texts */
};
#define FIELD_REQUIRED 1u
#define FIELD_NULL 2u

struct field {
	const char *name;
	enum field_type type;
	unsigned flags;
	int64_t min,
	    max; /* FIELD_TEXT: bytes (max 0: API_TEXT_MAX); FIELD_INT: value; FIELD_TEXTS: how many */
	const char *const *words; /* FIELD_WORD: NULL-ended */
	const char *what;	  /* for the documents */
};

struct schema {
	const char *name;
	const struct field *fields; /* the last has no name */
};

struct api_route {
	unsigned method; /* METHOD_ bit */
	const char *pattern;
	enum guard guard;
	int (*handle)(struct call *c);
	const char *id, *summary;
	const struct schema *body; /* NULL: an empty object or no body */
	const char *answer;	   /* name of what comes back; see openapi.c */
	unsigned status;	   /* of success */
	const char *query;	   /* names, comma-separated; NULL: none */
	const char *requires;	   /* ids of the requirements it carries */
};

/* Foreign text: borrowed from the HTTP library for the life of the call; NULL when absent. */
struct call_head {
	const char *host, *origin, *referer, *authorization, *cookie, *content_type,
	    *content_encoding, *content_length, *transfer_encoding, *run_id, *forwarded_host,
	    *last_event;
	bool repeated;	/* one of those that decide came twice */
	bool malformed; /* a line of the head is no "Name: value" */
};

struct call_query {
	char *name, *value; /* owned */
};

struct call {
	struct api *api;
	enum method method;
	const struct api_route *route; /* NULL before dispatch */
	struct target target;
	struct call_head head;
	struct view param[4]; /* in the order of the pattern */
	struct call_query query[API_QUERY_MAX];
	size_t query_len;
	struct peer *peer; /* of the connection; NULL: unknown, and so nobody */
	uint64_t body_len; /* as declared */
	json_t *body;	   /* owned; an object, or NULL when there was none */
	struct actor actor;
	const char
	    *denied; /* static: what the guard says once the body was judged; NULL: nothing */
	int64_t admitted_ns; /* monotonic: when the actor was resolved */
	/* the answer */
	unsigned status;
	const char *type;	    /* static */
	char allow[96];		    /* header Allow, "" none */
	char cookie[200];	    /* header Set-Cookie, "" none */
	int64_t total;		    /* header X-Total-Count, -1 none */
	struct call_stream *stream; /* API_STREAM: api/server.c closes it */
	struct buf out;
	/* api/server.c */
	void *transport;
};

void call_done(struct call *c);
/* The answer of a handler that returned API_LATER is in c (server.c). */
void call_finish(struct call *c);
/* Value of a query member, or NULL. */
const char *call_query(const struct call *c, const char *name);
/* Path parameter i as a UUID; false: not one, answer the resource's 404. */
bool call_uuid(const struct call *c, size_t i, char out[UUID_LEN + 1]);
/* limit and offset of a list; false: answered 400. */
bool call_page(struct call *c, int64_t *ret_limit, int64_t *ret_offset);

/* Answers. All return 0, so that a handler can end with them. */
int reply_error(struct call *c, unsigned status, const char *text);
/* With a code; details (may be NULL) is taken over, code is repeated inside. */
int reply_coded(struct call *c, unsigned status, const char *code, const char *text,
		json_t *details);
/* A text made from a format; never from foreign text that was not judged. */
int reply_errorf(struct call *c, unsigned status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* j is taken over. */
int reply_json(struct call *c, unsigned status, json_t *j);
/* What is in c->out is the answer. */
int reply_out(struct call *c, unsigned status);
/* Our own failure: logged with its cause, answered without it. Conflicts of the database are 503. */
int reply_failed(struct call *c, const struct err *e);

/*
 * Judges a body against a schema: unknown members, types, sizes. 0, or the number of issues, which are then in
 * *ret_issues (owned array of {code, path, message}).
 */
size_t schema_check(const struct schema *s, json_t *body, json_t **ret_issues);
/*
 * What a text would cost if it were parsed, whatever is wrong with it: NULL, or the limit that it breaks as words
 * (API_JSON_DEPTH_MAX, API_JSON_VALUES_MAX). A body of 10 MiB of "0," would become hundreds of MiB.
 */
const char *json_too_much(const char *p, size_t n);

#endif
