/*
 * api.h: the daemon as one value: state, databases, keys, mode, counters.
 *
 * One thread, one loop. A handler runs to its end between two turns of the loop, so it may not wait: what takes
 * longer than a look into the database is a job (jobs.h), a process of its own.
 */
#ifndef AIRLOCK_API_API_H
#define AIRLOCK_API_API_H

#include "api/call.h"
#include "api/credential.h"
#include "api/peer.h"
#include "api/seal.h"
#include "base/limits.h"
#include "engine/state.h"
#include "os/loop.h"
#include "store/store.h"

#define API_DB "server.db"

enum api_mode { MODE_LOCAL_TRUSTED, MODE_AUTHENTICATED };

/* Below which directories workspaces of runs may lie (runs.h): the operator's word, by options only. */
struct api_root {
	char company[UUID_LEN + 1]; /* "": every one */
	char name[64];
	const char *path;
};

struct api_config {
	struct api_root roots[API_ROOTS_MAX];
	size_t roots_len;
	enum api_mode mode;
	const char *public_url;	  /* scheme://host[:port] that browsers use, or NULL */
	const char *const *hosts; /* further names for Host in local_trusted; NULL-ended, or NULL */
	struct peer_users trusted; /* local_trusted, TCP: further users who are the local board */
	const char *tls_cert, *tls_key; /* paths (tls.h); NULL: no TLS */
	bool tcp;			/* listens on an address, so browsers can reach it */
	bool cloud_managed;		/* environments with a platform marker are the platform's */
	const char *managed_config;	/* path of the platform's document (managed.h), or NULL */
	bool local_runs;		/* environments of driver local run commands on this host */
	bool no_recover;		/* work that earlier runs left waits for who asks for it */
	bool secrets_strict;		/* credentials among envVars must be references */
};

struct api_counters {
	uint64_t requests, by_class[6], denied, unauthenticated, cut_off, jobs_started, jobs_failed,
	    leases_acquired, leases_released, sweeps, connections_seen;
	int64_t busy_ns; /* in handlers */
};

/* Failed proofs that were noted in the activity log: once a minute for each agent, and no more than these. */
#define API_NOTES 32
struct api_note {
	char agent_id[UUID_LEN + 1];
	int64_t at_ns; /* monotonic */
};

/* The last whole list of environments, for whoever asks for the same one before anything changes. */
struct api_list {
	bool there, admin;
	int64_t limit, offset, total;
	struct db_mark mark;
	struct buf text;
};

struct jobs;
struct recoverer;
struct api_server;

struct api {
	struct api_config cfg;
	struct state st; /* what the command line sees too */
	struct db *db;	 /* server.db */
	struct seal seal;
	char *master; /* owned; of run JWTs */
	char instance_id[64];
	struct route_table routes;
	const struct api_route **by_index; /* owned; parallel to routes.v */
	char *openapi;			   /* owned, made once */
	size_t openapi_len;
	char *access_map; /* owned, made once: outcomes of this build do not change while it runs */
	struct peer_judge judge;
	struct loop loop;
	struct jobs *jobs;
	struct recoverer *recoverer; /* owned; NULL: not yet */
	struct api_server *server;
	struct api_counters n;
	int64_t started_ns; /* monotonic */
	struct api_note notes[API_NOTES];
	struct api_list list; /* environments.c */
	bool ready, stopping;
	size_t
	    streams; /* events.c: who watches; then when the next look is due (monotonic), and what was there */
	struct call_stream *watching; /* all of them */
	size_t following;	      /* of them, those that no event wakes */
	int64_t events_look_ns, events_ping_ns, events_last;
	bool sweeping, swept; /* sweeper.c: a sweep runs; there was one */
	int64_t sweep_at_ns;  /* monotonic: when the next one is due */
};

/* Opens state, database and keys, makes what a first start needs, compiles the routes. */
int api_open(struct api *a, const struct api_config *cfg, struct err *e);
void api_done(struct api *a);
/* Heap path of a file in the state directory. */
char *api_path(const struct api *a, const char *leaf);
struct jwt_keys api_jwt_keys(const struct api *a);

/* routes.c: the one table; ends with a pattern of NULL. */
extern const struct api_route api_routes[];
/* dispatch.c: judges the body of an admitted call and lets its handler answer. 0, API_LATER or API_STREAM. */
int api_dispatch(struct api *a, struct call *c, const char *body, size_t body_len);
/* By the head alone, before a body is read: everything that call.h lists up to the guard. 0 go on, else answered. */
int api_admit(struct api *a, struct call *c, const char *target);
/* Actor, origin and guard of an admitted call, again: 0 and perhaps c->denied, 1 answered. */
int api_authorise(struct api *a, struct call *c);
/* authenticate.c: fills c->actor. 0, or 1: answered with the 401, 403 or 422. */
int api_authenticate(struct api *a, struct call *c);
/* openapi.c: the document as heap text. */
int openapi_build(char **ret, size_t *ret_len, struct err *e);

/* activity of the instance or (company_id) of one company; a failure is logged, never the call's. */
void api_activity(struct call *c, const char *company_id, const char *action, const char *type,
		  const char *id, json_t *details);
/* "user:ID", "agent:ID": for access events and logs. */
void actor_text(const struct actor *a, char *out, size_t n);

/* Handlers, by file. */
int h_health(struct call *c);
int h_ready(struct call *c);
int h_metrics(struct call *c);
int h_openapi(struct call *c);
int h_agent_access(struct call *c);
int h_whoami(struct call *c);
int h_session_open(struct call *c);
int h_session_close(struct call *c);
int h_companies(struct call *c);
int h_activity(struct call *c);
int h_events(struct call *c);
int h_env_list(struct call *c);
int h_env_get(struct call *c);
int h_env_create(struct call *c);
int h_env_update(struct call *c);
int h_env_delete(struct call *c);
int h_env_blast(struct call *c);
int h_env_secret_refs(struct call *c);
int h_env_leases(struct call *c);
int h_env_capabilities(struct call *c);
int h_workspace_roots(struct call *c);
int h_run_start(struct call *c);
int h_run_list(struct call *c);
int h_run_get(struct call *c);
int h_run_log(struct call *c);
int h_run_cancel(struct call *c);
int h_run_report(struct call *c);
int h_run_changes(struct call *c);
int h_run_diff(struct call *c);
int h_run_apply(struct call *c);
int h_run_discard(struct call *c);
int h_run_recover(struct call *c);
int h_lease_get(struct call *c);
int h_lease_acquire(struct call *c);
int h_lease_resume(struct call *c);
int h_lease_release(struct call *c);
int h_lease_destroy(struct call *c);
int h_env_probe(struct call *c);
int h_env_qualification(struct call *c);
int h_probe_config(struct call *c);
int h_settings_get(struct call *c);
int h_settings_update(struct call *c);
int h_agent_update(struct call *c);
int h_agent_get(struct call *c);
int h_project_update(struct call *c);
int h_project_get(struct call *c);
int h_image_state(struct call *c);
int h_image_session_open(struct call *c);
int h_image_session(struct call *c);
int h_image_template(struct call *c);
int h_secret_list(struct call *c);
int h_secret_create(struct call *c);
int h_secret_renew(struct call *c);
int h_secret_remove(struct call *c);

#endif
