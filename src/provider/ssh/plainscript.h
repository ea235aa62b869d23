/*
 * plainscript.h: what a shell on another machine runs where there is no guest.
 *
 * One command line for every login shell (ssh_plain_boot); the rest is a script that comes as one line of base64 over standard
 * input, so that neither words nor variables of a command are in anybody's process list. It ends its noise with the mark.
 */
#ifndef AIRLOCK_PROVIDER_SSH_PLAINSCRIPT_H
#define AIRLOCK_PROVIDER_SSH_PLAINSCRIPT_H

#include "base/buf.h"
#include "provider/provider.h"

/* Variable that the processes of a run are found by: "LEASE.SESSION.NUMBER." */
#define PLAIN_MARK "AIRLOCK_SSH_RUN"

/* For ssh's command. Static. */
const char *plain_boot(void);
/* Looks (look.h): opens or removes the directory of a run. Their input: root, lease, word. */
const char *plain_script_open(void);
const char *plain_script_remove(void);
/* Removes the trees for next runs (`room`, for each), and what has landed of the run. */
const char *plain_script_room(void);

struct plain_place {
	const char *run;  /* its directory there, absolute */
	const char *name; /* "LEASE.SESSION." */
	const char *nonce;
};

/* Appends the line: base64 and its end. 0 or -ENOMEM, -E2BIG. */
int plain_put_command(struct buf *b, const struct plain_place *p, unsigned number,
		      const struct exec_spec *x);
/* The script that stays as long as the session: it ends what is told, and everything when nobody is heard any more. */
int plain_put_watch(struct buf *b, const struct plain_place *p);
/* "\nairlock NONCE\n": what the noise ends with. Heap. */
char *plain_mark(const char *nonce);

#endif
