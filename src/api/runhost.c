#include "api/runhost.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "engine/images.h"
#include "engine/interrupt.h"
#include "engine/preset.h"
#include "engine/runner.h"
#include "engine/sweep.h"
#include "store/lease.h"

int runhost_prepare(struct err *e)
{
	/* Who cancels twice, or cancels while the system stops, means the same: results come back. */
	return interrupt_setup_once(e);
}

static void set(struct setting *s, uint64_t v, const char *source)
{
	s->v = v;
	(void)snprintf(s->source, sizeof(s->source), "%s", source);
}

static int fill(struct request *q, const struct runhost_want *w, struct err *e)
{
	const char *words[] = {"sh", "-c", w->command};

	(void)snprintf(q->workspace, sizeof(q->workspace), "%s", w->workspace);
	(void)snprintf(q->workspace_why, sizeof(q->workspace_why), "a workspace root of airlockd");
	(void)snprintf(q->run_id, sizeof(q->run_id), "%s", w->run_id);
	q->provider = provider_find(w->local ? "local" : w->remote ? "ssh" : "native");
	if (!q->provider)
		return err_set(e, ERR_UNAVAILABLE, "this build has no native provider");
	(void)snprintf(q->env_name, sizeof(q->env_name), "%s", q->provider->name);
	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (strv_add(&q->argv, words[i]) < 0)
			return err_set(e, ERR_NOMEM, "run: out of memory");
	for (size_t i = 0; i < strv_len(w->vars); i++)
		if (strv_add(&q->vars, w->vars[i]) < 0)
			return err_set(e, ERR_NOMEM, "run: out of memory");
	for (size_t i = 0; i < strv_len(w->remote); i++)
		if (strv_add(&q->remote, w->remote[i]) < 0)
			return err_set(e, ERR_NOMEM, "run: out of memory");
	q->net = w->host_network || w->local || w->remote ? NET_HOST : NET_NONE;
	(void)snprintf(q->net_source, sizeof(q->net_source), "%s",
		       w->local	   ? "provider local has no other"
		       : w->remote ? "provider ssh has no other"
				   : "the environment");
	set(&q->timeout, w->timeout_ns, "the request");
	set(&q->memory, w->memory, "the environment");
	set(&q->pids, w->pids, "the environment");
	set(&q->cpu, w->cpu_milli, "the environment");
	q->review = w->review;
	q->strict = w->strict;
	q->by_tar = w->by_tar;
	if (w->take_sandbox)
		q->on_conflict = CONFLICT_TAKE_SANDBOX;
	if (w->git && w->git[0])
		q->git = strcmp(w->git, "none") == 0   ? GIT_NONE
			 : strcmp(w->git, "full") == 0 ? GIT_FULL
						       : GIT_SHALLOW;
	for (size_t i = 0; i < strv_len(w->exclude); i++)
		if (strv_add(&q->exclude, w->exclude[i]) < 0)
			return err_set(e, ERR_NOMEM, "run: out of memory");
	return 0;
}

/* Key and URL are among the variables of the environment: those of who runs the daemon are nobody else's. */
static int use_preset(struct request *q, const struct runhost_want *w, struct err *e)
{
	const struct preset_source source = {.vars = w->vars};
	_cleanup_preset_ struct preset a = {0};
	_cleanup_strv_ char **grants = NULL;
	int r = preset_load(w->preset, &a, e);

	return r < 0 ? r : preset_apply(&a, q, &source, &grants, e);
}

/* Never the host's programs instead. */
static int use_image(const struct state *st, const char *reference, struct request *q,
		     struct err *e)
{
	char digest[IMAGE_HEX + 1];
	int r = images_have(st, reference, digest, e);

	if (r < 0)
		return r;
	(void)snprintf(q->image_digest, sizeof(q->image_digest), "%s", reference);
	q->image = images_tree(st, digest);
	return q->image ? 0 : err_set(e, ERR_NOMEM, "run: out of memory");
}

int runhost_run(struct state *st, const struct runhost_want *w, struct runhost_result *ret,
		struct err *e)
{
	_cleanup_request_ struct request q;
	_cleanup_fd_ int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	struct run_ui ui = {.in = -1, .out = null, .err = null};
	struct run_outcome out;
	int r;

	request_init(&q);
	*ret = (struct runhost_result){.exit_status = -1};
	r = null < 0 ? err_sys(e, errno, "open /dev/null") : fill(&q, w, e);
	if (r == 0 && w->image && w->image[0])
		r = use_image(st, w->image, &q, e);
	if (r == 0 && w->preset && w->preset[0])
		r = use_preset(&q, w, e);
	if (r < 0)
		return r;
	/* The output of the command is in the run's log, and nowhere else. */
	runner_run(st, &q, &ui, &out);
	*ret = (struct runhost_result){
	    .exit_status = out.exit_status,
	    .ended = true,
	    .timed_out = out.command_ran && out.cmd.end == END_TIMEOUT,
	    /* One whose command had ended by itself is no cancelled run. */
	    .stopped = out.stop_signo != 0 &&
		       !(out.command_ran && out.cmd.end == END_EXITED && out.err.code == ERR_NONE),
	    .failed = out.err.code != ERR_NONE,
	    .kept = out.pending || out.lease_state == LEASE_RECOVERABLE,
	};
	(void)snprintf(ret->phase, sizeof(ret->phase), "%s", out.error_phase);
	if (ret->failed)
		(void)fprintf(stderr, "airlockd: run %s: %s: %s\n", w->run_id, out.error_phase,
			      out.err.text);
	run_outcome_done(&out);
	return 0;
}

static void to_log(void *arg, bool loud, const char *text)
{
	(void)arg;
	(void)loud;
	(void)fprintf(stderr, "airlockd: %s\n", text);
}

int runhost_sweep(struct state *st, struct err *e)
{
	const struct run_ui ui = {.note = to_log};
	int r = sweep_run(st, &ui, e);

	return r < 0 ? r : 0;
}

bool runhost_waits(struct state *st, const char *run_id)
{
	struct run_row run = {0};
	struct lease_row lease = {0};
	struct err e = ERR_INIT;
	int r = run_get(st->store, run_id, &run, &e);
	bool waits;

	if (r == 0)
		r = lease_get(st->store, run.lease_id, &lease, &e);
	/* What cannot be read may wait. */
	waits = r < 0 ? e.code != ERR_NOT_FOUND
		      : lease.state != LEASE_RELEASED && lease.state != LEASE_CLEANUP;
	lease_row_done(&lease);
	run_row_done(&run);
	return waits;
}

bool runhost_look(struct state *st, const char *run_id, struct runhost_result *ret)
{
	bool settled = true;

	struct run_row run = {0};
	struct lease_row lease = {0};

	*ret = (struct runhost_result){.exit_status = -1};
	if (run_get(st->store, run_id, &run, NULL) < 0)
		return true;
	ret->exit_status = run.exit_status;
	ret->ended = run.state == RUN_FINISHED;
	if (lease_get(st->store, run.lease_id, &lease, NULL) == 0) {
		ret->kept = lease.state == LEASE_RECOVERABLE;
		settled = !sweep_unsettled(&lease);
	}
	lease_row_done(&lease);
	run_row_done(&run);
	return settled;
}
