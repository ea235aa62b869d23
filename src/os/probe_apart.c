/*
 * Trials in a program of their own, and what that program does.
 *
 * Policy: a trial's child must be dumpable to write its id map, so whoever has the same user may read its memory. It
 * must be no copy of a process that holds credentials: airlock-try is started with an empty environment, no
 * descriptor of ours but the pipe of its answer, and arguments that are paths and numbers.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "os/probe.h"
#include "os/process.h"
#include "os/self.h"

#define NUMBER_TEXT 24
#define START_MS 2000 /* beside the trial: program start, and children of it that are slow to die */

enum arg { A_PROGRAM, A_LAYER, A_STATE, A_OWN, A_INSIDE, A_HOST, A_TIMEOUT, ARGS };

static bool is_text(const char *s, size_t n)
{
	return memchr(s, '\0', n) != NULL;
}

/* The other program is of the same build; one that is not must not lead us astray all the same. */
static bool is_result(const struct probe_result *r, enum layer l)
{
	return r->layer == l && (unsigned)r->state <= PROBE_SKIPPED &&
	       (unsigned)r->cause < CAUSE_COUNT && is_text(r->step, sizeof(r->step)) &&
	       is_text(r->object, sizeof(r->object)) && is_text(r->detail, sizeof(r->detail));
}

int probe_apart(const struct probe_env *env, enum layer l, struct probe_result *r)
{
	char layer[NUMBER_TEXT], inside[NUMBER_TEXT], host[NUMBER_TEXT], timeout[NUMBER_TEXT];
	_cleanup_free_ char *program = NULL;
	_cleanup_buf_ struct buf out = BUF_INIT(sizeof(*r));
	const char *const envp[] = {NULL};
	int ms = env->timeout_ms > 0 ? env->timeout_ms : PROBE_LAYER_TIMEOUT_MS, status = 0, k;
	struct process_opts o = PROCESS_OPTS_INIT;

	k = self_helper("airlock-try", &program, NULL);
	if (k < 0)
		return k;
	(void)snprintf(layer, sizeof(layer), "%d", (int)l);
	(void)snprintf(inside, sizeof(inside), "%u", env->id_inside);
	(void)snprintf(host, sizeof(host), "%u", env->id_host);
	(void)snprintf(timeout, sizeof(timeout), "%d", ms);
	const char *const argv[ARGS + 1] = {
	    program, layer, env->state_dir, env->own_programs ? env->own_programs : "",
	    inside,  host,  timeout};

	o.argv = argv;
	o.envp = envp;
	o.out = &out;
	o.timeout_ms = ms + START_MS;
	k = process_run(&o, &status, NULL, NULL);
	if (k < 0)
		return k;
	if (status != 0 || out.len != sizeof(*r))
		return -EPROTO;
	memcpy(r, out.data, sizeof(*r));
	return is_result(r, l) ? 0 : -EPROTO;
}

int probe_serve(int argc, char **argv)
{
	struct probe_env env = {0};
	struct probe_result r;
	uint64_t n[ARGS] = {0};

	if (argc != ARGS) {
		(void)fprintf(stderr, "airlock-try is started by airlock to find out why a sandbox "
				      "could not be made: see 'airlock doctor'\n");
		return 2;
	}
	for (int i = A_LAYER; i < ARGS; i++)
		if (i != A_STATE && i != A_OWN && str_to_u64(argv[i], UINT32_MAX, &n[i]) < 0)
			return 2;
	if (n[A_LAYER] >= LAYER_COUNT || n[A_TIMEOUT] > PROBE_LAYER_TIMEOUT_MS * 12)
		return 2;
	env.state_dir = argv[A_STATE];
	env.own_programs = *argv[A_OWN] ? argv[A_OWN] : NULL;
	env.id_inside = (uid_t)n[A_INSIDE];
	env.id_host = (uid_t)n[A_HOST];
	env.timeout_ms = (int)n[A_TIMEOUT];
	env.version = AIRLOCK_VERSION;
	probe_layer(&env, (enum layer)n[A_LAYER], &r);
	return write(STDOUT_FILENO, &r, sizeof(r)) == (ssize_t)sizeof(r) ? 0 : 1;
}
