/*
 * daemonrun_internal.h: shared by the files of a run that the daemon makes for this command; no one else's business.
 *
 * daemonask.c finds the environment, company and root there and asks for the run; daemonwatch.c shows its log and waits for its
 * end; daemonrun.c decides whose the run is and says what became of it.
 */
#ifndef AIRLOCK_CLI_DAEMONRUN_INTERNAL_H
#define AIRLOCK_CLI_DAEMONRUN_INTERNAL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/id.h"
#include "cli/daemon.h"
#include "cli/runopts_internal.h"

#define DAEMONRUN_LINE_MAX ((size_t)1 << 20) /* of the log's stream: a piece has 16 KiB */

/* One run that is watched. */
struct watch {
	const struct daemon *d;
	struct runopts *o;
	char id[ID_LEN + 1];
	struct daemon_stream s;
	struct buf line, data;	/* of the stream: the line that comes, the event so far */
	char event[16], at[64]; /* kind of the event; id of the last whole one */
	bool open, ended, cancelled, mute[2];
	bool crowded;	 /* the daemon has no stream for us now: the run is looked at instead */
	int64_t over_ns; /* since when the run is over, and its log not to be had; 0 */
	int64_t lost_ns; /* since when the daemon has been away; 0: it is not */
};

/* A string member; "" if there is none. */
const char *daemonrun_member(const json_t *j, const char *name);

/* daemonask.c */
/* Of the command line: what a run of the daemon has no place for. NULL: nothing. */
const char *daemonrun_beyond(const struct runopts *o);
/* The environment of that name: 1, 0 the daemon has none. */
int daemonrun_find_env(const struct daemon *d, const char *name, char id[UUID_LEN + 1],
		       struct err *e);
/* Asks for the run; w->id is its id then. */
int daemonrun_start(struct watch *w, const char *env, struct err *e);

/* daemonwatch.c: 1 and the run (owned) at its end; 2: nobody watches any more. */
int daemonrun_follow(struct watch *w, json_t **ret, struct err *e);

#endif
