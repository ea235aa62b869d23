/*
 * audit.h: what door 2 decided, one JSON line a decision; many alike share one when they come too fast.
 *
 *   {"time":"2026-11-29T15:07:41.123Z","run":ID,"upstream":NAME,"transport":"http2","route":ID|null,
 *    "method":M|null,"status":200,"rule":"allow","bytes_in":0,"bytes_out":512,"ms":1.234}
 *
 * Lines of the network proxy have upstream "net", transport "proxy", the rule of the allow-list as route, and "target":
 * the host and port that were asked for, in canonical form (policy/netrule.h).
 *
 * route is the policy's id, never a path, and method a word of the table: nothing that the sandbox chose and nothing
 * secret can stand in a line, no tokens, targets, header values or bodies. rule is "allow" or what refused or
 * failed (docs/bridge.md). bytes_in: request body; bytes_out: response body; ms: from the verdict to the end.
 *
 * A sandbox must not be able to hide what it did behind what it was refused. So:
 *   - Refused requests have AUDIT_REFUSED_MAX bytes of the file, the forwarded ones the rest.
 *   - Each kind has a rate (AUDIT_BURST lines at once, AUDIT_RATE a second). What comes faster is counted, by route, method,
 *     status, rule and target, and written as lines with "count":N every AUDIT_SUM_MS; their bytes are sums, their ms the mean.
 *     When the room gets short (half of it is used), everything is.
 *   - What there is no room for stays in those counts, which are written when the run ends: AUDIT_CLOSE_ROOM is kept for them.
 *   - audit_ready says whether one more forwarded request would find room. If not, or if the last write failed, none may be
 *     forwarded: there is no unaudited request.
 * Lines are gathered: they are in the file after audit_flush, or when AUDIT_BUFFER bytes have come together; a write that
 * failed is tried again with the next flush. Only what not even that keeps is counted as lost.
 *
 * What is not in the file yet lies in a struct audit_memory: lines, counts, and each request that went out and has not ended
 * (audit_begin). Where that memory is shared with another process, a kill of this one loses nothing: audit_open_in of
 * the same memory writes what it finds, a request that was under way as a line with the rule "bridge.killed". Killed in the
 * middle of a write, lines can be there twice; none is missing.
 */
#ifndef AIRLOCK_BRIDGE_AUDIT_H
#define AIRLOCK_BRIDGE_AUDIT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/limits.h"

#define AUDIT_FILE "audit.jsonl"
#define AUDIT_BUFFER 32768 /* bytes */
#define AUDIT_PENDING_MAX (512 << 10)
#define AUDIT_SUMS 64 /* kinds that are told apart; beyond them the rest is "several" */
#define AUDIT_SUM_MS 10000
#define AUDIT_TARGETS 32     /* of these; kinds that come later are not told apart by target */
#define AUDIT_TEXT_MAX 256   /* bytes of a route's id in a count */
#define AUDIT_TARGET_MAX 272 /* a name of DNS and a port */
#define AUDIT_WORD_MAX 48
#define AUDIT_FLIGHTS BRIDGE_PENDING_CEILING
#define AUDIT_KILLED "bridge.killed"

struct audit_entry {
	int64_t real_ns;	    /* CLOCK_REALTIME of the verdict */
	const char *run, *upstream; /* id and name */
	const char *transport;	    /* "http2", "queue" */
	const char *route_id;	    /* NULL: none was reached */
	const char *target; /* of the network proxy: host[:port] in canonical form, else NULL */
	const char *method; /* NULL: none was understood */
	const char *rule;
	int status; /* as the sandbox saw it; 0: it had gone */
	uint64_t bytes_in, bytes_out;
	int64_t duration_ns;
	bool forwarded;	 /* it was handed to the upstream's side */
	uint64_t count;	 /* 0 and 1: one request; else so many alike */
	unsigned flight; /* what audit_begin gave; 0: it had not begun */
};

/* Without pointers: another process may read these. An empty text is none. */
struct audit_sum {
	uint64_t count, bytes_in, bytes_out;
	int64_t real_ns, duration_ns;
	int32_t status;
	uint32_t forwarded; /* bool */
	char route[AUDIT_TEXT_MAX], target[AUDIT_TARGET_MAX], method[AUDIT_WORD_MAX],
	    rule[AUDIT_WORD_MAX];
};

struct audit_flight {
	uint64_t out; /* bool */
	int64_t real_ns;
	char route[AUDIT_TEXT_MAX], method[AUDIT_WORD_MAX];
};

/* Zeroed, it is empty. Large, and touched only where it is used. */
struct audit_memory {
	char run[BRIDGE_IDENTITY_MAX + 1], upstream[AUDIT_WORD_MAX], transport[AUDIT_WORD_MAX];
	uint64_t told;			  /* requests that were added, ever */
	uint64_t refused;		  /* bytes of the file that are lines of refused requests */
	uint64_t sums, flights, text_len; /* flights: places that were ever used */
	struct audit_sum sum[AUDIT_SUMS];
	struct audit_flight flight[AUDIT_FLIGHTS];
	char text[AUDIT_PENDING_MAX]; /* lines */
};

struct audit {
	int fd;	       /* owned; -1: nothing is kept, nothing is lost */
	uint64_t size; /* of the file */
	bool torn;     /* the file ends within a line */
	bool stuck;    /* the last write failed */
	uint64_t lost; /* requests whose line could not be kept */
	struct audit_memory *m;
	struct audit_memory *own; /* owned, or NULL: m is somebody else's */
	uint16_t *free;		  /* owned: places of m->flight, the lowest last */
	unsigned free_len;
	int64_t sums_ns;  /* the oldest count is that old (clock_mono_ns) */
	double tokens[2]; /* of refused, of forwarded */
	int64_t tokens_ns;
};

/* Appends one line with its LF. 0, or as buf_put. */
int audit_format(struct buf *out, const struct audit_entry *a);

/* fd (O_APPEND) is taken over, whatever happens; -1: nothing is kept. */
int audit_open(struct audit *a, int fd, struct err *e);
/* In m (borrowed; NULL: its own), with whatever another process left there; of that, no byte is believed. */
int audit_open_in(struct audit *a, int fd, struct audit_memory *m, struct err *e);
/*
 * Before a request is forwarded: from now on it is known even if this process ends here. *ret_flight goes into its entry.
 * False: it could not be recorded, and must not be forwarded.
 */
bool audit_begin(struct audit *a, const struct audit_entry *entry, unsigned *ret_flight);
/* Whether a request may be forwarded: its line will find room. Always, where nothing is kept. */
bool audit_ready(const struct audit *a);
/* Never fails. run, upstream, transport and rule must live as long as the audit. */
void audit_add(struct audit *a, const struct audit_entry *entry);
/* Writes what waits, and the counts if they are due. True: there is more to be written later. */
bool audit_flush(struct audit *a);
/* Writes everything and closes. */
void audit_close(struct audit *a);

#endif
