/*
 * audit.h: what door 2 decided, one JSON line a decision.
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
 * Lines go to audit.jsonl in the run's directory. With the directory at hand it becomes audit.1.jsonl at AUDIT_FILE_MAX,
 * that one audit.2.jsonl, and so on; beyond AUDIT_FILES_MAX files the oldest goes. A confined helper has the one file
 * alone: it takes AUDIT_FILE_MAX * AUDIT_FILES_MAX bytes, and what comes later is counted as lost. Lines are gathered:
 * they are in the file after audit_flush, or when AUDIT_BUFFER bytes have come together.
 */
#ifndef AIRLOCK_BRIDGE_AUDIT_H
#define AIRLOCK_BRIDGE_AUDIT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define AUDIT_FILE "audit.jsonl"
#define AUDIT_BUFFER 32768 /* bytes */

struct audit_entry {
	int64_t real_ns;	    /* CLOCK_REALTIME of the verdict */
	const char *run, *upstream; /* id and name */
	const char *transport;	    /* "http2", "queue" */
	const char *route_id;	    /* NULL: none was reached */
	const char *target;	    /* of the network proxy: host[:port] in canonical form, else NULL */
	const char *method;	    /* NULL: none was understood */
	const char *rule;
	int status; /* as the sandbox saw it; 0: it had gone */
	uint64_t bytes_in, bytes_out;
	int64_t duration_ns;
};

struct audit {
	int dir; /* owned, or -1 */
	int fd;	 /* owned; -1: open at the next flush, or nothing is kept */
	uint64_t size;
	bool torn;	    /* the file ends within a line */
	struct buf pending; /* owned */
	uint64_t lost;	    /* lines that could not be kept */
};

/* Appends one line with its LF. 0, or as buf_put. */
int audit_format(struct buf *out, const struct audit_entry *a);

/*
 * Both descriptors are taken over, whatever happens. dir: of the run's directory, or -1; fd: the open file (O_APPEND), or
 * -1 to open it in dir. Both -1: nothing is kept and nothing is lost.
 */
int audit_open(struct audit *a, int dir, int fd, struct err *e);
/* Never fails: what cannot be kept is counted as lost. */
void audit_add(struct audit *a, const struct audit_entry *entry);
void audit_flush(struct audit *a);
/* Flushes and closes. */
void audit_close(struct audit *a);
/* Name of the i-th file, newest first, into out (at least 32 bytes). */
void audit_file_name(unsigned i, char *out, size_t n);

#endif
