/*
 * jobs.h: what takes longer than a look into the database: a process of its own.
 *
 * A job is this program again (`airlockd --job`): it reads one JSON object from its standard input, writes one to
 * its standard output, and ends. It writes the rows it is about itself, state before effect, so it may be killed at
 * any point, and so may the daemon: a job that ends or brings back something finishes without it, one that makes something for a
 * caller gives it up when nobody is there to be told, and what a dead one left is the sweep's.
 */
#ifndef AIRLOCK_API_JOBS_H
#define AIRLOCK_API_JOBS_H

#include <jansson.h>

#include "api/api.h"

int jobs_new(struct api *a, const char *program, struct err *e);
/*
 * What makes something for a caller is ended: it must not be there after the caller was told that it is not. The others write their
 * rows and end. Whoever waits is told that there is no answer.
 */
void jobs_free(struct api *a);
/* Runs are counted on their own, and do not hold up the end of the daemon: they go on without it. */
size_t jobs_running(const struct api *a);
size_t jobs_runs(const struct api *a);
/* Of those that run, without those of earlier daemons: nobody here waits for them. */
size_t jobs_awaited(const struct api *a);
size_t jobs_waiting(const struct api *a);
/* Gives the runs that daemons before this one started, and that still go on, the places that they take. */
void jobs_adopt(struct api *a);
/* The same for their other jobs; once, before the first one is started. */
void jobs_adopt_others(struct api *a);
/* In a job that is no run: says that it lives, until the file is removed. Heap path, or NULL. */
char *jobs_note(const struct state *st);
/* Whether one more of that actor would be refused. */
bool jobs_full(const struct api *a, const char *who);
bool jobs_runs_full(const struct api *a, const char *who);
/* Starts those whose turn has come: also for whoever changed what they wait for. */
void jobs_pump(struct api *a);
/* When the next one has had its time (monotonic); INT64_MAX. */
int64_t jobs_deadline(const struct api *a);
/* Ends those whose time is over. */
void jobs_tick(struct api *a, int64_t now_ns);
/*
 * Starts one, at once or when its turn comes: of those that wait, the oldest one of whoever has the fewest that run. So one
 * actor's many do not hold up another's few. request is taken over. done gets the answer (borrowed; NULL: the job failed),
 * once, from the loop. A request whose op is "run" takes a place among API_RUNS_MAX of its own and has no deadline here: its own
 * limits end it, and it waits until its environment's maxConcurrentRuns has room. who: a user's id, "" the daemon itself. ERR_LIMIT when jobs_full, ERR_INVALID for a request that is too large.
 */
typedef void (*job_done)(struct api *a, void *arg, json_t *answer);
int jobs_start(struct api *a, const char *who, json_t *request, job_done done, void *arg,
	       struct err *e);

/* The other side: what `airlockd --job` does. Exit status. */
int job_main(void);
/* In a job: whether nobody waits for its answer any more. */
bool job_alone(void);
/* How long an op may take, in milliseconds; 0: as long as its own limits say. */
int64_t jobs_time(const char *op);

#endif
