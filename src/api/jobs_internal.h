/* jobs_internal.h: private to jobs.c and jobs_adopt.c: the places that jobs take. */
#ifndef AIRLOCK_API_JOBS_INTERNAL_H
#define AIRLOCK_API_JOBS_INTERNAL_H

#include "api/jobs.h"
#include "base/buf.h"
#include "base/limits.h"

#define PLACES (API_JOBS_MAX + API_RUNS_MAX) /* the runs' places come last */
#define JOBS_ROOM 16

struct job {
	struct loop_watch watch; /* its standard output; first, so that a watch is its job */
	struct api *api;
	pid_t pid;
	int fd;	      /* -1: this place is free; adopted: a descriptor of the process itself */
	bool adopted; /* one that a daemon before this one started: only its place is ours */
	struct buf answer;
	int64_t deadline_ns;
	bool killed, makes;
	job_done done;
	void *arg;
	char who[UUID_LEN + 1];
	uint8_t room[JOBS_ROOM]; /* of a run on another machine: a digest of where; else zero */
};

/* One whose turn has not come. */
struct waiting {
	struct waiting *next;
	char *text; /* owned: its request */
	job_done done;
	void *arg;
	bool run, makes;
	int64_t ms; /* its time; 0: it has none of ours */
	char who[UUID_LEN + 1];
	char run_id[ID_LEN + 1], environment_id[UUID_LEN + 1]; /* of a run */
};

struct jobs {
	char *program;
	struct job v[PLACES];
	struct waiting *first; /* oldest first */
	size_t running, runs, waiting;
	size_t adopted; /* of those that run: not ours to wait for */
	size_t waiting_bytes;
};

/* Whether a place is one of the runs'. */
static inline bool jobs_is_run(const struct jobs *all, const struct job *j)
{
	return j - all->v >= API_JOBS_MAX;
}

/* jobs_adopt.c: what a job that was killed said of itself (jobs_note) goes with it. */
void jobs_forget(struct api *a, pid_t pid);
struct job *jobs_free_place(struct jobs *all, bool run);
/*
 * jobs_room.c: whether a run would go on at once, as far as the rows tell: what would only wait for others on its machine
 * (maxConcurrentRuns) takes no place from those that need not.
 */
bool jobs_has_room(struct api *a, const struct waiting *w);
/* Where runs of the environment go on; zero: here, or it is not known. */
void jobs_room_of(struct api *a, const char *environment_id, uint8_t ret[JOBS_ROOM]);

#endif
