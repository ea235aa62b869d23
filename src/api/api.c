#include "api/api.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/access.h"
#include "api/recoverer.h"
#include "api/reseal.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/path.h"
#include "base/str.h"
#include "store/activity.h"

char *api_path(const struct api *a, const char *leaf)
{
	return path_join(a->st.dir, leaf);
}

struct jwt_keys api_jwt_keys(const struct api *a)
{
	return (struct jwt_keys){a->master, a->instance_id};
}

static int compile(struct api *a, struct err *e)
{
	struct route *added;
	size_t n = 0;
	int r = 0;

	while (api_routes[n].pattern)
		n++;
	a->by_index = calloc(n, sizeof(const struct api_route *));
	if (!a->by_index)
		return err_set(e, ERR_NOMEM, "routes: out of memory");
	for (size_t i = 0; r == 0 && i < n; i++)
		r = route_add(&a->routes, api_routes[i].id, api_routes[i].method,
			      api_routes[i].pattern, &added, e);
	if (r == 0)
		r = route_compile(&a->routes, e);
	for (size_t i = 0; r == 0 && i < a->routes.n; i++)
		for (size_t k = 0; k < n; k++)
			if (strcmp(a->routes.v[i].id, api_routes[k].id) == 0)
				a->by_index[i] = &api_routes[k];
	return r;
}

static int make_access_map(struct api *a, struct err *e)
{
	json_t *j = access_map(e);

	a->access_map = j ? json_dumps(j, JSON_COMPACT) : NULL;
	json_decref(j);
	return a->access_map ? 0 : err_set(e, ERR_NOMEM, "agent-access map: out of memory");
}

int api_open(struct api *a, const struct api_config *cfg, struct err *e)
{
	_cleanup_free_ char *db = NULL;
	int r;

	*a = (struct api){.cfg = *cfg, .loop.ep = -1, .started_ns = clock_mono_ns()};
	peer_judge_init(&a->judge, &cfg->trusted);
	a->list.text = BUF_INIT(API_LIST_KEPT);
	if (sodium_init() < 0)
		return err_set(e, ERR_INTERNAL, "libsodium does not start");
	/* Members of hostile objects must not be made to collide: a random seed, before the first object. */
	json_object_seed(0);
	r = state_open(&a->st, e);
	db = r == 0 ? api_path(a, API_DB) : NULL;
	if (r == 0)
		r = db ? db_open_server(db, &a->db, e)
		       : err_set(e, ERR_NOMEM, "state directory: out of memory");
	if (r == 0)
		r = seal_open(&a->seal, a->st.dir, e);
	if (r == 0)
		r = reseal_start(&a->seal, a->db, a->st.dir, e);
	if (r == 0)
		r = api_token_key(a->st.dir, a->db, &a->master, a->instance_id, e);
	if (r == 0)
		r = compile(a, e);
	if (r == 0)
		r = openapi_build(&a->openapi, &a->openapi_len, e);
	if (r == 0)
		r = make_access_map(a, e);
	if (r < 0)
		api_done(a);
	return r;
}

void api_done(struct api *a)
{
	recoverer_done(a);
	peer_judge_done(&a->judge);
	buf_done(&a->list.text);
	seal_done(&a->seal);
	seal_wipe(&a->master);
	route_table_done(&a->routes);
	free(a->by_index);
	free(a->openapi);
	free(a->access_map);
	db_close(a->db);
	state_done(&a->st);
	a->by_index = NULL;
	a->openapi = NULL;
	a->access_map = NULL;
	a->db = NULL;
}

void api_activity(struct call *c, const char *company_id, const char *action, const char *type,
		  const char *id, json_t *details)
{
	const struct actor *a = &c->actor;
	_cleanup_free_ char *text = details ? json_dumps(details, JSON_COMPACT) : NULL;
	struct activity_row row = {.actor_type = a->type == ACTOR_AGENT ? "agent" : "user",
				   .actor_id = a->type == ACTOR_AGENT ? a->agent_id : a->user_id,
				   .agent_id = a->type == ACTOR_AGENT ? a->agent_id : NULL,
				   .run_id = a->source == SOURCE_AGENT_JWT ? a->run_id : NULL,
				   .action = action,
				   .entity_type = type,
				   .entity_id = id,
				   .details = text ? text : "{}"};
	struct err e = ERR_INIT;

	json_decref(details);
	if (activity_add(c->api->db, company_id, &row, &e) < 0)
		(void)fprintf(stderr, "airlockd: %s\n", e.text);
}
