/*
 * queue.h: envelopes of the file-queue transport, queue_v2. No I/O.
 *
 * A request is one file `requests/<id>.json` that the gateway publishes by rename; its answer is `responses/<id>.json`,
 * published by the host in the same way. An id is "<sequence>-<random>", 16 lower-case hex digits each; the
 * gateway's sequence only grows, which lets the host run each id at most once in bounded memory (struct queue_window).
 *
 * Request:  {"version":2,"id":ID,"auth":TOKEN,"method":M,"path":"/p","query":""|"?q","headers":{name:value},
 *            "bodyEncoding":"base64"|"utf8","body":TEXT}                                               LF
 * Response: {"version":2,"id":ID,"auth":TOKEN,"status":200,"headers":{},"bodyEncoding":"base64","body":TEXT}  LF
 *
 * The members come in any order. A header that came more than once has a list of two or more texts; its name
 * is written without escapes. bodyEncoding ("utf8"
 * unless given) and body (empty) may be left out, query ("") too, and auth of a request, which then has none (401);
 * nothing else, and nothing more: unknown members, members twice, other types, trailing bytes are errors. base64 is the
 * standard alphabet, padded and canonical. There are no times in it: the host trusts no clock of a sandbox.
 *
 * Policy: whole size, then syntax, then shape are judged here; the credential and the meaning by the guard, with
 * auth as the token and target as presented; only then is the body decoded (queue_body). Responses are read by
 * the gateway under the same rules: id and auth must be its own.
 */
#ifndef AIRLOCK_WIRE_QUEUE_H
#define AIRLOCK_WIRE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/limits.h"
#include "wire/header.h"
#include "wire/json.h"

#define QUEUE_ID_LEN 33
#define QUEUE_TEXTS_MAX 65536 /* bytes of an envelope, but for its body */
#define QUEUE_SUFFIX \
	".json" /* of names that are read; anything else in the directories is nobody's */

/* Bytes that an envelope with a body of body_max bytes may have: judge the file's size by it before reading. */
uint64_t queue_envelope_max(uint64_t body_max);

/* The id of a directory entry "<id>.json", or false: not an envelope, not to be opened. */
bool queue_name_parse(const char *name, char ret_id[QUEUE_ID_LEN + 1], uint64_t *ret_seq);
void queue_id_format(uint64_t seq, uint64_t random, char ret_id[QUEUE_ID_LEN + 1]);

struct queue_envelope {
	struct view id, auth;
	struct view method, target; /* request: path and query as one */
	int status;		    /* response: 100..599 */
	struct header headers[BRIDGE_HEADERS_MAX];
	size_t headers_len;
	uint64_t body_len; /* decoded */
	/* private */
	struct json_text body;
	bool base64;
	struct buf text; /* owned: what the views above point into */
};

/*
 * p..n: the whole file; id: what its name says. Views of the body point into p. 0; -EPROTO (400), -E2BIG (413): *why is a
 * static text; -ENOMEM. Call queue_envelope_done whatever the outcome.
 */
int queue_request_parse(const void *p, size_t n, const char *id, uint64_t body_max,
			struct queue_envelope *ret, const char **why);
/* -EPROTO also for a status outside 100..599 and an id or auth that is not the given one. */
int queue_response_parse(const void *p, size_t n, const char *id, struct view auth,
			 uint64_t body_max, struct queue_envelope *ret, const char **why);
void queue_envelope_done(struct queue_envelope *q);
/* Appends the decoded body; p of the parse must still be there. 0, or as buf_put. */
int queue_body(const struct queue_envelope *q, struct buf *out);

struct queue_message {
	const char *id;
	struct view auth, method, target; /* request */
	int status;			  /* response */
	const struct header *headers;
	size_t headers_len;
	struct view body;
};

/* Append an envelope. -EILSEQ: a text is not UTF-8 and cannot be carried (400). Else as buf_put. */
int queue_request_print(struct buf *out, const struct queue_message *m);
int queue_response_print(struct buf *out, const struct queue_message *m);

/*
 * The same in pieces, for bodies that are not in memory at once: all but id and body; the body, cut anywhere; the end, with
 * the id, which may be chosen as late as that.
 */
struct queue_body_put {
	unsigned char left[2]; /* bytes that make no whole group yet */
	unsigned n;
};
int queue_request_begin(struct buf *out, const struct queue_message *m);
int queue_response_begin(struct buf *out, const struct queue_message *m);
int queue_body_put(struct buf *out, struct queue_body_put *p, struct view piece);
int queue_end(struct buf *out, struct queue_body_put *p, const char *id);

/* Whether inotify tells all that others do in a directory there (f_type of statfs): not so across a network or a layer. */
bool queue_fs_notifies(uint64_t f_type);

/* Which sequences have run. Zero is a good start. */
struct queue_window {
	uint64_t top;
	uint64_t any; /* bool */
	uint64_t bits[QUEUE_WINDOW / 64];
};
/*
 * 0: this one may run, once. -EEXIST: it has run. -ESTALE: older than the window, so it may have run. The window may be
 * memory that outlives the process: one that is killed in the middle leaves numbers that count as run, never the reverse.
 */
int queue_window_take(struct queue_window *w, uint64_t seq);

#endif
