/* job.c: what `airlockd --job` does: one request from standard input, one answer to standard output. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/changesets.h"
#include "api/jobs.h"
#include "api/leases.h"
#include "api/runs.h"
#include "api/sshenv.h"
#include "base/cleanup.h"
#include "os/files.h"

static const struct {
	const char *op;
	json_t *(*run)(struct job_ctx *x, const json_t *request);
} ops[] = {
    {"acquire", job_acquire},	      {"resume", job_resume},	    {"release", job_release},
    {"destroy", job_destroy},	      {"sweep", job_sweep},	    {"probe", job_probe},
    {"probe_draft", job_probe_draft}, {"probe_ssh", job_probe_ssh}, {"run", job_run},
    {"changes", job_changes},	      {"diff", job_diff},	    {"apply", job_apply},
    {"discard", job_discard},	      {"recover", job_recover},
};

static json_t *run(const json_t *request)
{
	const char *op = json_string_value(json_object_get(request, "op"));
	_cleanup_state_ struct state st = {0};
	struct job_ctx x = {.st = &st};
	_cleanup_free_ char *path = NULL, *note = NULL;
	struct err e = ERR_INIT;
	json_t *answer = NULL;
	int r = state_open(&st, &e);

	if (r == 0 && asprintf(&path, "%s/%s", st.dir, API_DB) < 0) {
		path = NULL;
		r = err_set(&e, ERR_NOMEM, "job: out of memory");
	}
	if (r == 0)
		r = db_open_server(path, &x.db, &e);
	if (r < 0)
		return job_failed(&e);
	if (op && strcmp(op, "run") != 0)
		note = jobs_note(&st);
	for (size_t i = 0; op && i < ARRAY_LEN(ops); i++)
		if (strcmp(ops[i].op, op) == 0)
			answer = ops[i].run(&x, request);
	db_close(x.db);
	if (note)
		(void)unlink(note);
	return answer;
}

/*
 * The daemon ends a job that has had its time; one whose daemon died first ends itself, a little later, with all that it started: else
 * its row would have an owner for ever.
 */
#define LATER_S 10

static void on_alarm(int signo)
{
	(void)signo;
	(void)kill(0, SIGKILL);
}

static void limit(const json_t *request)
{
	const char *op = json_string_value(json_object_get(request, "op"));
	const struct sigaction sa = {.sa_handler = on_alarm};
	int64_t ms = jobs_time(op);

	/* Alone in its group only when the daemon started it. */
	if (ms && getpgrp() == getpid() && sigaction(SIGALRM, &sa, NULL) == 0)
		(void)alarm((unsigned)(ms / 1000) + LATER_S);
}

bool job_alone(void)
{
	struct pollfd p = {.fd = STDOUT_FILENO};

	return poll(&p, 1, 0) > 0 && (p.revents & POLLERR);
}

int job_main(void)
{
	json_error_t je;
	json_t *request = json_loadf(stdin, 0, &je), *answer;
	int rc;

	/* Not for people: what is not a request of the daemon ends here. */
	if (!json_is_object(request) || sodium_init() < 0)
		return 2;
	files_raise();
	limit(request);
	answer = run(request);
	json_decref(request);
	rc = answer && json_dumpf(answer, stdout, JSON_COMPACT) == 0 && fflush(stdout) == 0 ? 0 : 1;
	json_decref(answer);
	return rc;
}
