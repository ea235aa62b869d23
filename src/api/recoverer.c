#include "api/recoverer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/jobs.h"
#include "api/runs.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "store/envrun.h"
#include "store/event.h"

#define TRIES 3 /* of one that somebody else is at */

struct one {
	char id[ID_LEN + 1];
	bool over;
	unsigned tries;
};

struct recoverer {
	int64_t
	    since_ns; /* what later runs leave is not looked for: somebody may be looking at why */
	size_t n, next;
	bool busy;
	struct one v[API_RECOVER_MAX]; /* also those that were tried */
};

static int collect(void *arg, const struct envrun_row *r)
{
	struct recoverer *x = arg;

	for (size_t i = 0; i < x->n; i++)
		if (strcmp(x->v[i].id, r->id) == 0)
			return 0;
	if (x->n < API_RECOVER_MAX && r->created_ns < x->since_ns) {
		x->v[x->n] = (struct one){0};
		memcpy(x->v[x->n++].id, r->id, sizeof(r->id));
	}
	return 0;
}

static void tell(struct api *a, const char *id, bool back, const char *why)
{
	struct envrun_row row;
	struct err e = ERR_INIT;

	if (back)
		(void)fprintf(stderr, "airlockd: the work of run %s was brought back\n", id);
	else
		(void)fprintf(
		    stderr,
		    "airlockd: the work of run %s stays where it is: %s; to try again: POST "
		    "/api/runs/%s/recover, or airlock recover %s\n",
		    id, why, id, id);
	if (envrun_get(a->db, id, &row, &e) > 0) {
		const struct event_row v = {.company_id = row.company_id,
					    .kind = "run",
					    .entity_id = id,
					    .environment_id =
						row.environment_id[0] ? row.environment_id : NULL,
					    .status = back ? "recovered" : "recover_failed"};

		if (event_add(a->db, &v, &e) < 0)
			(void)fprintf(stderr, "airlockd: %s\n", e.text);
	}
	envrun_row_done(&row);
}

static bool is_kept(struct api *a, const char *id)
{
	_cleanup_envrun_ struct envrun_row row = {0};

	return envrun_get(a->db, id, &row, NULL) <= 0 || row.kept;
}

static void next(struct api *a);

static void done(struct api *a, void *arg, json_t *answer)
{
	struct recoverer *x = a->recoverer;
	struct one *v = &x->v[x->next++];
	const char *why = json_string_value(json_object_get(answer, "error"));
	/* Or somebody at a shell was faster. */
	bool back = json_is_true(json_object_get(answer, "ok")) || !is_kept(a, v->id),
	     at_it = json_integer_value(json_object_get(answer, "code")) == ERR_CONFLICT;

	(void)arg;
	/* The daemon ends: the job goes on without it, and the next daemon sees what it did. */
	if (!answer && a->stopping)
		return;
	v->over = back || !at_it || ++v->tries == TRIES;
	if (v->over)
		tell(a, v->id, back, why ? why : "the job gave no answer");
	next(a);
}

/* 1 begun, 0 there is nothing to do for it. */
static int try_one(struct api *a, const char *id)
{
	const struct api_root *root;
	struct envrun_row row;
	struct err e = ERR_INIT;
	int r = envrun_get(a->db, id, &row, &e);

	if (r <= 0 || !row.kept) {
		envrun_row_done(&row);
		return 0;
	}
	root = runs_root(&a->cfg, row.company_id, row.root);
	if (!root)
		(void)err_set(&e, ERR_NOT_FOUND, "its workspace root is not given to this daemon");
	r = root ? jobs_start(a, "",
			      json_pack("{s:s,s:s,s:s,s:s}", "op", "recover", "runId", id, "root",
					root->path, "path", row.path),
			      done, NULL, &e)
		 : -1;
	envrun_row_done(&row);
	if (r < 0)
		tell(a, id, false, e.text);
	return r == 0;
}

static void next(struct api *a)
{
	struct recoverer *x = a->recoverer;

	for (; !a->stopping && x->next < x->n; x->next++) {
		struct one *v = &x->v[x->next];

		if (!v->over && try_one(a, v->id) > 0)
			return;
		v->over = true;
	}
	x->busy = false;
}

void recoverer_begin(struct api *a)
{
	const struct envrun_filter f = {.kept = true, .limit = API_RECOVER_MAX};
	struct err e = ERR_INIT;

	if (a->cfg.no_recover || a->stopping || (a->recoverer && a->recoverer->busy))
		return;
	if (!a->recoverer && (a->recoverer = calloc(1, sizeof(*a->recoverer))))
		a->recoverer->since_ns = clock_real_ns() - (clock_mono_ns() - a->started_ns);
	if (!a->recoverer || envrun_each(a->db, &f, collect, a->recoverer, &e) < 0) {
		(void)fprintf(stderr, "airlockd: work of earlier runs is not looked for: %s\n",
			      a->recoverer ? e.text : "out of memory");
		return;
	}
	a->recoverer->next = 0;
	a->recoverer->busy = true;
	next(a);
}

void recoverer_done(struct api *a)
{
	free(a->recoverer);
	a->recoverer = NULL;
}
