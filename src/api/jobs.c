#include "api/jobs.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "api/jobs_internal.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "wire/jsonmember.h"

#define ANSWER_MAX (24 << 20) /* results of a run as 4 MiB of text, escaped; others are some KiB */
#define REQUEST_MAX (4 << 20) /* an environment with all that may be in it, escaped */
#define WAITING_MAX (8 << 20) /* bytes of the requests that wait */

int jobs_new(struct api *a, const char *program, struct err *e)
{
	struct jobs *j = calloc(1, sizeof(*j));

	if (!j || !(j->program = strdup(program))) {
		free(j);
		return err_set(e, ERR_NOMEM, "jobs: out of memory");
	}
	for (size_t i = 0; i < PLACES; i++)
		j->v[i].fd = -1;
	a->jobs = j;
	return 0;
}

void jobs_free(struct api *a)
{
	struct jobs *j = a->jobs;

	for (size_t i = 0; j && i < PLACES; i++) {
		if (j->v[i].fd < 0)
			continue;
		loop_del(&a->loop, &j->v[i].watch);
		(void)close(j->v[i].fd);
		j->v[i].fd = -1;
		buf_done(&j->v[i].answer);
		if (j->v[i].makes) {
			/* Gone before anybody is told, so that its row is at rest when that is judged. */
			(void)kill(-j->v[i].pid, SIGKILL);
			(void)waitpid(j->v[i].pid, NULL, 0);
		}
		if (!j->v[i].adopted)
			j->v[i].done(a, j->v[i].arg, NULL);
	}
	for (struct waiting *w; j && (w = j->first);) {
		j->first = w->next;
		w->done(a, w->arg, NULL);
		free(w->text);
		free(w);
	}
	if (j)
		free(j->program);
	free(j);
	a->jobs = NULL;
}

size_t jobs_running(const struct api *a)
{
	return a->jobs ? a->jobs->running : 0;
}

size_t jobs_awaited(const struct api *a)
{
	return a->jobs ? a->jobs->running - a->jobs->adopted : 0;
}

size_t jobs_runs(const struct api *a)
{
	return a->jobs ? a->jobs->runs : 0;
}

size_t jobs_waiting(const struct api *a)
{
	return a->jobs ? a->jobs->waiting : 0;
}

int64_t jobs_deadline(const struct api *a)
{
	int64_t at = INT64_MAX;

	for (size_t i = 0; a->jobs && i < PLACES; i++)
		if (a->jobs->v[i].fd >= 0 && !a->jobs->v[i].killed &&
		    a->jobs->v[i].deadline_ns < at)
			at = a->jobs->v[i].deadline_ns;
	return at;
}

void jobs_tick(struct api *a, int64_t now_ns)
{
	for (size_t i = 0; a->jobs && i < PLACES; i++) {
		struct job *j = &a->jobs->v[i];

		if (j->fd < 0 || j->killed || j->deadline_ns > now_ns)
			continue;
		(void)fprintf(stderr, "airlockd: job %d has had its time and is ended\n",
			      (int)j->pid);
		(void)kill(-j->pid, SIGKILL);
		j->killed = true;
	}
}

static size_t *counter_of(struct jobs *all, const struct job *j)
{
	return jobs_is_run(all, j) ? &all->runs : &all->running;
}

static void end(struct job *j)
{
	struct api *a = j->api;
	job_done done = j->done;
	void *arg = j->arg;
	json_t *answer = NULL;
	int status = -1;

	loop_del(&a->loop, &j->watch);
	(void)close(j->fd);
	j->fd = -1;
	*counter_of(a->jobs, j) -= 1;
	/* Its output is closed, so it is at its end; a job that is not is ended. */
	if (waitpid(j->pid, &status, WNOHANG) == 0) {
		struct timespec little = {.tv_nsec = NS_PER_MS};

		for (int i = 0; i < 200 && waitpid(j->pid, &status, WNOHANG) == 0; i++)
			(void)nanosleep(&little, NULL);
		if (status == -1) {
			(void)kill(-j->pid, SIGKILL);
			(void)waitpid(j->pid, &status, 0);
		}
	}
	if (!j->answer.err && j->answer.len && WIFEXITED(status) && WEXITSTATUS(status) == 0)
		answer = json_loadb(j->answer.data, j->answer.len, 0, NULL);
	if (!answer) {
		a->n.jobs_failed++;
		jobs_forget(a, j->pid);
	}
	buf_done(&j->answer);
	done(a, arg, answer);
	json_decref(answer);
	jobs_pump(a);
}

static void readable(struct loop_watch *w, uint32_t events)
{
	struct job *j = (struct job *)w;
	char piece[16384];
	ssize_t n = read(j->fd, piece, sizeof(piece));

	(void)events;
	if (n > 0)
		(void)buf_put(&j->answer, piece, (size_t)n);
	else if (n == 0 || (errno != EAGAIN && errno != EINTR))
		end(j);
}

static int spawn(struct jobs *all, int in, int out, pid_t *ret)
{
	char *const argv[] = {all->program, (char *)(uintptr_t) "--job", NULL};
	posix_spawn_file_actions_t fa;
	posix_spawnattr_t at;
	sigset_t none, all_set;
	int r;

	(void)sigemptyset(&none);
	(void)sigfillset(&all_set);
	(void)posix_spawn_file_actions_init(&fa);
	(void)posix_spawnattr_init(&at);
	(void)posix_spawn_file_actions_adddup2(&fa, in, 0);
	(void)posix_spawn_file_actions_adddup2(&fa, out, 1);
	(void)posix_spawnattr_setflags(&at, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
						POSIX_SPAWN_SETSIGDEF);
	(void)posix_spawnattr_setpgroup(&at, 0);
	(void)posix_spawnattr_setsigmask(&at, &none);
	(void)posix_spawnattr_setsigdefault(&at, &all_set);
	r = posix_spawn(ret, all->program, &fa, &at, argv, environ);
	(void)posix_spawn_file_actions_destroy(&fa);
	(void)posix_spawnattr_destroy(&at);
	return -r;
}

/* The whole request lies in a file without a name, so the daemon never waits for a job to read. */
static int start(struct jobs *all, struct job *j, const char *text, struct err *e)
{
	_cleanup_fd_ int in = memfd_create("job", MFD_CLOEXEC), out_r = -1, out_w = -1;
	size_t n = strlen(text);
	int p[2], r;

	if (pipe2(p, O_CLOEXEC) < 0)
		return err_sys(e, errno, "make a pipe");
	out_r = p[0];
	out_w = p[1];
	if (in < 0 || pwrite(in, text, n, 0) != (ssize_t)n || fcntl(out_r, F_SETFL, O_NONBLOCK) < 0)
		return err_sys(e, errno, "write a job's request");
	r = spawn(all, in, out_w, &j->pid);
	if (r < 0)
		return err_sys(e, -r, "start %s", all->program);
	j->fd = TAKE_FD(out_r);
	return 0;
}

/* Takes the text over; arg and done go into the place. */
static int begin(struct api *a, struct job *j, const struct waiting *w, struct err *e)
{
	int r;

	*j = (struct job){.api = a,
			  .fd = -1,
			  .answer = BUF_INIT(ANSWER_MAX),
			  .deadline_ns = w->ms ? clock_mono_ns() + w->ms * NS_PER_MS : INT64_MAX,
			  .makes = w->makes,
			  .done = w->done,
			  .arg = w->arg};
	memcpy(j->who, w->who, sizeof(j->who));
	jobs_room_of(a, w->environment_id, j->room);
	r = start(a->jobs, j, w->text, e);
	if (r < 0)
		return r;
	r = loop_add(&a->loop, &j->watch, j->fd, EPOLLIN, readable);
	if (r < 0) {
		/* It is asked to do what its caller is told was not begun. */
		(void)kill(-j->pid, SIGKILL);
		(void)waitpid(j->pid, NULL, 0);
		(void)close(j->fd);
		j->fd = -1;
		return err_sys(e, -r, "watch a job");
	}
	*counter_of(a->jobs, j) += 1;
	a->n.jobs_started++;
	return 0;
}

struct job *jobs_free_place(struct jobs *all, bool run)
{
	for (size_t i = run ? API_JOBS_MAX : 0; i < (run ? PLACES : API_JOBS_MAX); i++)
		if (all->v[i].fd < 0)
			return &all->v[i];
	return NULL;
}

static size_t running_of(const struct jobs *all, const char *who, bool run)
{
	size_t n = 0;

	for (size_t i = run ? API_JOBS_MAX : 0; i < (run ? PLACES : API_JOBS_MAX); i++)
		n += all->v[i].fd >= 0 && strcmp(all->v[i].who, who) == 0;
	return n;
}

/* Unlinks the one whose turn it is; NULL: none waits. */
static struct waiting *next_turn(struct api *a, bool run)
{
	struct jobs *all = a->jobs;
	struct waiting **best = NULL, *w;
	size_t fewest = SIZE_MAX;

	for (struct waiting **at = &all->first; *at; at = &(*at)->next) {
		size_t n = (*at)->run == run ? running_of(all, (*at)->who, run) : SIZE_MAX;

		if (n < fewest && jobs_has_room(a, *at)) {
			fewest = n;
			best = at;
		}
	}
	if (!best)
		return NULL;
	w = *best;
	*best = w->next;
	all->waiting--;
	all->waiting_bytes -= strlen(w->text);
	return w;
}

static void pump_kind(struct api *a, bool run)
{
	struct job *j;
	struct waiting *w;

	while (a->jobs && (j = jobs_free_place(a->jobs, run)) && (w = next_turn(a, run))) {
		struct err e = ERR_INIT;

		if (begin(a, j, w, &e) < 0) {
			(void)fprintf(stderr, "airlockd: %s\n", e.text);
			w->done(a, w->arg, NULL);
		}
		free(w->text);
		free(w);
	}
}

void jobs_pump(struct api *a)
{
	pump_kind(a, false);
	pump_kind(a, true);
}

/* --- start -------------------------------------------------------------------------------- */

static bool full(const struct jobs *all, const char *who, bool run)
{
	size_t most = run ? API_RUNS_WAITING_MAX : API_JOBS_WAITING_MAX, n = 0, own = 0;

	for (const struct waiting *w = all->first; w; w = w->next) {
		n += w->run == run;
		own += w->run == run && strcmp(w->who, who) == 0;
	}
	return n >= most || own >= most / 2;
}

bool jobs_full(const struct api *a, const char *who)
{
	return full(a->jobs, who, false);
}

bool jobs_runs_full(const struct api *a, const char *who)
{
	return !jobs_free_place(a->jobs, true) && full(a->jobs, who, true);
}

static bool among(const char *op, const char *const *ops)
{
	for (; op && *ops; ops++)
		if (strcmp(op, *ops) == 0)
			return true;
	return false;
}

/* Something new that its caller is told of. */
static bool makes(const char *op)
{
	static const char *const ops[] = {"acquire",	 "resume",    "probe",
					  "probe_draft", "probe_ssh", NULL};

	return among(op, ops);
}

int64_t jobs_time(const char *op)
{
	/* Those write into a workspace: as much as its results are. */
	static const char *const long_ones[] = {"apply", "recover", NULL};

	return op && strcmp(op, "run") == 0 ? 0 : among(op, long_ones) ? API_APPLY_MS : API_JOB_MS;
}

static void describe(struct waiting *w, const json_t *request)
{
	(void)snprintf(w->run_id, sizeof(w->run_id), "%s", json_member_text(request, "runId"));
	(void)snprintf(w->environment_id, sizeof(w->environment_id), "%s",
		       json_member_text(request, "environmentId"));
}

int jobs_start(struct api *a, const char *who, json_t *request, job_done done, void *arg,
	       struct err *e)
{
	const char *op = json_string_value(json_object_get(request, "op"));
	bool run = op && strcmp(op, "run") == 0;
	_cleanup_free_ char *text = request ? json_dumps(request, JSON_COMPACT) : NULL;
	struct waiting *w = calloc(1, sizeof(*w)), **at = &a->jobs->first;
	struct job *j;
	int r = 0;

	if (w && run)
		describe(w, request);
	json_decref(request);
	if (!text || !w) {
		free(w);
		return err_set(e, ERR_NOMEM, "jobs: out of memory");
	}
	w->done = done;
	w->arg = arg;
	(void)snprintf(w->who, sizeof(w->who), "%s", who);
	w->text = text;
	w->run = run;
	w->makes = makes(op);
	w->ms = jobs_time(op);
	if (run)
		jobs_pump(a); /* those before it */
	j = jobs_has_room(a, w) ? jobs_free_place(a->jobs, run) : NULL;
	if (strlen(text) > REQUEST_MAX) {
		r = err_set(e, ERR_INVALID, "a job's request has more than %d bytes", REQUEST_MAX);
	} else if (j) {
		r = begin(a, j, w, e);
	} else if (full(a->jobs, who, run) || a->jobs->waiting_bytes + strlen(text) > WAITING_MAX) {
		r = err_set(e, ERR_LIMIT,
			    "%d wait for their turn already, or half as many of one user",
			    run ? API_RUNS_WAITING_MAX : API_JOBS_WAITING_MAX);
	} else {
		while (*at)
			at = &(*at)->next;
		*at = w;
		a->jobs->waiting++;
		a->jobs->waiting_bytes += strlen(text);
		text = NULL;
		return 0;
	}
	free(w);
	return r;
}
