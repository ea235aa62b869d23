/*
 * look.h: a short script run on another machine, for what it says: probes and the doctor, before any guest is there.
 *
 * A login of its own (no shared connection), so that its time is what a login takes. What comes back is foreign: bounded, read line by
 * line, and only lines with our nonce count; what a shell prints beside them is counted as noise. Nothing of the input is in a
 * command line, here or there.
 */
#ifndef AIRLOCK_PROVIDER_SSH_LOOK_H
#define AIRLOCK_PROVIDER_SSH_LOOK_H

#include "base/buf.h"
#include "base/err.h"
#include "provider/ssh/target.h"

struct ssh_look {
	const struct ssh_target *target; /* its key is a file */
	/* For /bin/sh; no single quote, backslash, exclamation mark or newline in it. `s WORD...` says a line. */
	const char *script;
	const char *input; /* lines that it reads */
	int timeout_ms;
	int64_t reach_ns;	    /* until it speaks (reach.h); 0: as long as all */
	const volatile int *cancel; /* may be NULL */
};

struct ssh_said {
	struct buf lines; /* "word rest\n" each, printable */
	int64_t login_ns; /* until our script spoke; 0: it did not */
	uint64_t noise;	  /* bytes beside ours */
	int status;	  /* of ssh: that of the script, or 255 */
	bool done;	  /* it came to its end */
	char shown[160];  /* the begin of the noise, printable */
	int64_t ahead_ns; /* their clock less ours, as far as the way there allows to tell */
	bool clock;
};

void ssh_said_done(struct ssh_said *s);
#define _cleanup_said_ __attribute__((cleanup(ssh_said_done)))
/* 0: it spoke (done says whether it also ended). Negative: it did not, e says what is to be done. */
int ssh_look(const struct ssh_look *o, struct ssh_said *ret, struct err *e);
/* The rest of the first line with this word, in a heap copy; NULL: none. */
char *ssh_said_get(const struct ssh_said *s, const char *word);

#endif
