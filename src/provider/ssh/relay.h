/*
 * relay.h: the bytes of one session of ssh that has no guest at its other end.
 *
 * A forked child between a command's descriptors and ssh's. It writes what the other side's shell must know first (in no command
 * line: base64 of a script, one line), then what the command's input brings; of what comes back it drops everything up to the mark,
 * which is what start files print, and passes the rest on byte for byte. It judges nothing and ends with the session, or with us.
 */
#ifndef AIRLOCK_PROVIDER_SSH_RELAY_H
#define AIRLOCK_PROVIDER_SSH_RELAY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

struct ssh_relay {
	const char *head; /* written first */
	size_t head_len;
	const char *mark;    /* a line of its own */
	int in, out, err;    /* the command's: borrowed */
	int to, from, other; /* to ssh's stdin; its stdout, stderr: borrowed */
	bool
	    alive; /* an empty line each REMOTE_SAY_MS, which tells the other side that we are there */
	/* Shared with the child: becomes true with the mark on standard output. */
	atomic_bool *seen;
};

/* The child, to be killed and waited for by the caller; or negative errno. */
pid_t ssh_relay_start(const struct ssh_relay *r, struct err *e);

#endif
