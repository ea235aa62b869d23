/* quarantine_inside.h: what the files of quarantine.h share. Not for other code. */
#ifndef AIRLOCK_SYNC_QUARANTINE_INSIDE_H
#define AIRLOCK_SYNC_QUARANTINE_INSIDE_H

#include "os/process.h"
#include "sync/quarantine.h"

struct quarantine {
	const struct git_repo *host;
	struct git_repo *git; /* owned */
	int run_fd, fd, tree_fd;
	char *dir;	  /* owned */
	char *alternates; /* owned: NAME=VALUE */
};

/* git in the quarantine, in BUNDLE_GIT_MEMORY unless io has a bound; of the second, a status is an error. */
int quarantine_try(const struct quarantine *q, const char *const *words, struct process_opts *io,
		   int *status, struct err *e);
int quarantine_git(const struct quarantine *q, const char *const *words, struct process_opts *io,
		   struct err *e);
/* quarantine_names.c: the names and links that the commits bring. -EBADMSG: not to be taken. */
int quarantine_names(const struct quarantine *q, const char *head, const char *base,
		     struct quarantine_seen *ret, struct err *e);

#endif
