/*
 * probe.c: probes, saved and draft (api.md 6).
 *
 * A failed probe is an answer like any other: 200, ok false. A saved probe of a sandbox allocates a fresh lease, looks inside
 * and ends it again, in a job; a draft touches no row and makes no lease. A saved probe of an environment with a system
 * image is recorded (qualify.h): the job hashes the image before it starts the sandbox, and what it measured counts once the
 * sandbox's end is proved. The host's own programs are mutable, and what is mutable never qualifies (PR-08).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/envconfig.h"
#include "api/environments.h"
#include "api/jobs.h"
#include "api/leases.h"
#include "api/place.h"
#include "api/qualify.h"
#include "api/sweeper.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/str.h"
#include "engine/images.h"
#include "os/probe.h"
#include "store/event.h"
#include "store/vault.h"

#define MEASURED "measured" /* in a job's answer: platform, target, lease */

struct probe_wait {
	struct call *call;
	char env_id[UUID_LEN + 1];   /* "": a draft */
	char lease_id[UUID_LEN + 1]; /* "": none */
	char driver[8];
	struct qualify_ticket ticket; /* saved, of a sandbox: what was probed */
	int64_t keys;		      /* draft: members of the configuration */
};

static void log_probe(struct call *c, const struct probe_wait *w, json_t *answer)
{
	bool ok = json_is_true(json_object_get(answer, "ok"));
	struct event_row v = {.kind = "probe",
			      .entity_id = w->env_id,
			      .environment_id = w->env_id,
			      .status = ok ? "ok" : "failed"};
	struct err e = ERR_INIT;
	/* Every company reads this: the words of an SSH probe name a user and a machine, which are configuration (CF-05). */
	json_t *summary = strcmp(w->driver, "ssh") == 0
			      ? json_string(ok ? "SSH probe passed." : "SSH probe failed.")
			      : json_incref(json_object_get(answer, "summary"));
	json_t *d = json_pack("{s:s,s:O,s:O}", "driver", w->driver, "ok",
			      json_object_get(answer, "ok"), "summary", summary);
	json_decref(summary);

	if (w->env_id[0]) {
		if (event_add(c->api->db, &v, &e) < 0)
			(void)fprintf(stderr, "airlockd: %s\n", e.text);
		api_activity(c, NULL, "environment.probed", "environment", w->env_id, d);
		return;
	}
	(void)json_object_set_new(d, "configTopLevelKeyCount", json_integer(w->keys));
	api_activity(c, NULL, "environment.probed_unsaved", "environment", "unsaved", d);
}

static int finish(struct call *c, const struct probe_wait *w, json_t *answer)
{
	log_probe(c, w, answer);
	return reply_json(c, 200, answer);
}

/* j: details, taken over. */
static json_t *result(bool ok, const char *driver, const char *summary, json_t *j)
{
	return json_pack("{s:b,s:s,s:s,s:o}", "ok", (int)ok, "driver", driver, "summary", summary,
			 "details", j);
}

/* The measure is the server's own and leaves the answer, whatever becomes of it. A probe that failed records nothing. */
static void keep_measure(struct api *a, const struct probe_wait *w, json_t *answer)
{
	json_t *measured = json_incref(json_object_get(answer, MEASURED));
	struct err e = ERR_INIT;

	(void)json_object_del(answer, MEASURED);
	if (measured && w->lease_id[0] && json_is_true(json_object_get(answer, "ok")) &&
	    qualify_record(a, &w->ticket, measured, &e) < 0)
		(void)fprintf(stderr, "airlockd: probe: %s\n", e.text);
	json_decref(measured);
}

static void probe_done(struct api *a, void *arg, json_t *answer)
{
	struct probe_wait *w = arg;
	struct call *c = w->call;

	if (!json_is_string(json_object_get(answer, "summary"))) {
		const char *why = json_string_value(json_object_get(answer, "error"));

		if (w->lease_id[0])
			lease_forsake(a, w->lease_id);
		sweeper_hurry(a);
		(void)fprintf(stderr, "airlockd: probe: %s\n",
			      why ? why : "the job gave no answer");
		answer = result(false, w->driver,
				strcmp(w->driver, "ssh") == 0
				    ? "SSH probe failed."
				    : "Sandbox environment probe failed for provider \"native\".",
				json_pack("{s:s,s:s}", "provider",
					  strcmp(w->driver, "ssh") == 0 ? "ssh" : "native", "error",
					  "the probe gave no answer; the daemon's log says why"));
	} else {
		json_incref(answer);
	}
	keep_measure(a, w, answer);
	(void)finish(c, w, answer);
	call_finish(c);
	qualify_done(&w->ticket);
	free(w);
}

/* Takes what's ticket. */
static int later(struct call *c, struct probe_wait *what, json_t *request)
{
	struct probe_wait *w = malloc(sizeof(*w));
	struct err e = ERR_INIT;

	if (!w) {
		json_decref(request);
		qualify_done(&what->ticket);
		return reply_error(c, 503, "Out of memory, try again");
	}
	*w = *what;
	w->call = c;
	if (jobs_start(c->api, c->actor.user_id, request, probe_done, w, &e) == 0)
		return API_LATER;
	free(w);
	qualify_done(&what->ticket);
	if (what->lease_id[0])
		lease_forsake(c->api, what->lease_id);
	return e.code == ERR_LIMIT
		   ? reply_error(c, 503, "Too many sandboxes are being made or ended, try again")
		   : reply_failed(c, &e);
}

static json_t *local_result(void)
{
	char host[256] = "", cwd[4096] = "";

	(void)gethostname(host, sizeof(host) - 1);
	if (!getcwd(cwd, sizeof(cwd)))
		cwd[0] = '\0';
	/* B-09: no sandbox, and it says so. */
	return result(
	    true, "local",
	    "Local environment is available on this Paperclip host. Nothing isolates it: commands run with "
	    "the daemon's own rights.",
	    json_pack("{s:s,s:s,s:b}", "hostname", host, "cwd", cwd, "isolated", 0));
}

/* In a job: it may wait for a machine. Without an environment it is a draft, with its own key or none. */
static int ask_ssh(struct call *c, struct probe_wait *w, json_t *config, const char *company,
		   const char *key)
{
	char actor[UUID_LEN + 8];
	json_t *request;

	actor_text(&c->actor, actor, sizeof(actor));
	request = json_pack("{s:s,s:O,s:s,s:s,s:s}", "op", "probe_ssh", "config", config,
			    "companyId", company, "environmentId", w->env_id, "actor", actor);
	if (!w->env_id[0])
		(void)json_object_set_new(request, "key", json_string(key ? key : ""));
	return later(c, w, request);
}

/* 1: answered. The key is this company's, and may be used by this environment. */
static int ssh_allowed(struct call *c, const struct environment_row *row, const char *company,
		       json_t *config)
{
	json_t *ref = json_object_get(config, "privateKeySecretRef");
	struct err e = ERR_INIT;
	bool ok = true;

	/* As of a sandbox (qualify.c): whoever has none of its secrets asks nothing of it. */
	if (company[0] && binding_allows(c->api->db, row->id, company, &ok, &e) < 0)
		return (void)reply_failed(c, &e), 1;
	if (!ok)
		return (void)reply_coded(c, 403, "environment_company_mismatch",
					 "The environment's secrets belong to another company.",
					 NULL),
		       1;
	if (!json_is_object(ref))
		return 0;
	if (!company[0])
		return (void)reply_error(
			   c, 422,
			   "Environment probe requires an explicit companyId to resolve secret-backed "
			   "config for this environment."),
		       1;
	return 0;
}

/* --- saved -------------------------------------------------------------------------------- */

static int probe_sandbox(struct call *c, const struct environment_row *row, const char *company)
{
	struct probe_wait w = {.driver = "sandbox"};
	struct lease_new n = {.company_id = company,
			      .environment_id = row->id,
			      .policy = "ephemeral",
			      .provider = "native",
			      .config = row->config,
			      .ttl_s = API_JOB_MS / 1000 * 2};
	_cleanup_envlease_ struct envlease_row l = {0};
	struct err e = ERR_INIT;

	memcpy(w.env_id, row->id, sizeof(w.env_id));
	if (strcmp(row->status, "active") != 0) {
		char text[API_NAME_MAX + 64];

		(void)snprintf(text, sizeof(text), "Environment \"%s\" is not active.", row->name);
		return finish(c, &w,
			      result(false, "sandbox",
				     "Sandbox environment probe failed for provider \"native\".",
				     json_pack("{s:s,s:s}", "provider", "native", "error", text)));
	}
	/* PR-02: whose it is, and what it is, before anything is made. */
	if (lease_capacity(c) || qualify_begin(c, row, company, &w.ticket))
		return 0;
	if (lease_begin(c->api, &n, &l, &e) < 0) {
		qualify_done(&w.ticket);
		return reply_failed(c, &e);
	}
	memcpy(w.lease_id, l.id, sizeof(w.lease_id));
	return later(c, &w, json_pack("{s:s,s:s}", "op", "probe", "leaseId", l.id));
}

int h_env_probe(struct call *c)
{
	_cleanup_environment_ struct environment_row row;
	struct probe_wait w = {.driver = ""};
	char company[UUID_LEN + 1];
	json_t *config;
	int r;

	/* PR-02: which company this is for is settled before anything is made. */
	if (env_find(c, &row) || env_company(c, row.id, company))
		return 0;
	memcpy(w.env_id, row.id, sizeof(w.env_id));
	(void)snprintf(w.driver, sizeof(w.driver), "%s", row.driver);
	if (strcmp(row.driver, "local") == 0)
		return finish(c, &w, local_result());
	if (strcmp(row.driver, "sandbox") == 0) {
		if (!company[0])
			return reply_error(
			    c, 422,
			    "companyId query parameter is required for environment customImage setup.");
		return probe_sandbox(c, &row, company);
	}
	config = json_loads(row.config, 0, NULL);
	r = ssh_allowed(c, &row, company, config) ? 0 : ask_ssh(c, &w, config, company, NULL);
	json_decref(config);
	return r;
}

/* --- draft -------------------------------------------------------------------------------- */

int h_probe_config(struct call *c)
{
	const char *driver = json_string_value(json_object_get(c->body, "driver"));
	json_t *given = json_object_get(c->body, "config"), *empty = json_object(), *config;
	struct probe_wait w = {.keys = (int64_t)json_object_size(given)};
	char *key = NULL;
	int r;

	(void)snprintf(w.driver, sizeof(w.driver), "%s", driver);
	config = envconfig_normalise(c, driver, given ? given : empty, CONFIG_PROBE, &key);
	json_decref(empty);
	if (!config) {
		seal_wipe(&key);
		return 0;
	}
	if (strcmp(driver, "local") == 0)
		r = finish(c, &w, local_result());
	else if (strcmp(driver, "ssh") == 0)
		r = ask_ssh(c, &w, config, "", key);
	else
		r = later(c, &w, json_pack("{s:s}", "op", "probe_draft"));
	json_decref(config);
	seal_wipe(&key);
	return r;
}

/* --- in jobs ------------------------------------------------------------------------------ */

static json_t *sandbox_failed(const char *why)
{
	return result(false, "sandbox", "Sandbox environment probe failed for provider \"native\".",
		      json_pack("{s:s,s:s}", "provider", "native", "error", why));
}

/* Why is for the log: it names paths of this host. */
static json_t *sandbox_broken(const struct envlease_row *l, const struct err *e)
{
	char text[128];

	(void)fprintf(stderr, "airlockd: probe, lease %s: %s\n", l->id, e->text);
	(void)snprintf(text, sizeof(text),
		       "the sandbox could not be used (%s); the daemon's log says why",
		       err_name(e->code));
	return sandbox_failed(text);
}

/* "glibc 2.36", "musl 1.2.5": half an answer is no measure (PR-08). */
static bool libc_parse(const char *text, char *name, size_t n, const char **ret_version)
{
	size_t k = strspn(text, "abcdefghijklmnopqrstuvwxyz");
	const char *v = text + k + 1;

	if (k == 0 || k >= n || text[k] != ' ' || !*v || strspn(v, "0123456789.") != strlen(v) ||
	    strlen(v) > 16)
		return false;
	(void)snprintf(name, n, "%.*s", (int)k, text);
	*ret_version = v;
	return true;
}

static void add_measure(json_t *answer, const struct envlease_row *l, const struct place_facts *f,
			const char *target)
{
	const char *version;
	char libc[16];

	if (!target[0] || !f->system[0] || !f->machine[0] ||
	    !libc_parse(f->libc, libc, sizeof(libc), &version))
		return;
	(void)json_object_set_new(
	    answer, MEASURED,
	    json_pack("{s:s,s:s,s:s,s:{s:s,s:s,s:s,s:s}}", "target", target, "leaseId", l->id,
		      "providerLeaseId", l->provider_lease_id, "platform", "os", f->system, "arch",
		      f->machine, "libc", libc, "libcVersion", version));
}

/* The image is what its name says, from the disk: else what runs in it says nothing of it. "": the host's programs. */
static int check_image(struct job_ctx *x, const struct envlease_row *l, char target[80],
		       struct err *e)
{
	json_t *config = lease_config(l);
	const char *image = json_string_value(json_object_get(config, "image"));
	char digest[IMAGE_HEX + 1];
	struct image_facts facts;
	int r = 0;

	(void)snprintf(target, 80, "%s", image ? image : "");
	json_decref(config);
	if (target[0])
		r = images_have(x->st, target, digest, e);
	if (r == 0 && target[0])
		r = images_verify(x->st, digest, &facts, e);
	return r;
}

/* Attached to the lease's sandbox: what is there. */
static json_t *look(struct job_ctx *x, const struct envlease_row *l, const char *target)
{
	json_t *answer;
	json_t *config = lease_config(l);
	_cleanup_place_ struct place p = {0};
	struct sandbox *sb = NULL;
	struct place_facts f;
	struct err e = ERR_INIT;
	char text[320];
	int r = place_open(&p, x->st, l, config, &e);

	json_decref(config);
	if (r == 0)
		r = place_attach(&p, &sb, &e);
	if (r == 0) {
		r = place_look(sb, &f, &e);
		provider_native.detach(sb);
	}
	if (r < 0)
		return sandbox_broken(l, &e);
	if (f.missing[0]) {
		(void)snprintf(text, sizeof(text), "the environment lacks what every run needs: %s",
			       f.missing);
		return sandbox_failed(text);
	}
	answer = result(true, "sandbox", "Connected to native sandbox environment.",
			json_pack("{s:s,s:s,s:s,s:s,s:{s:s,s:s,s:s,s:b}}", "provider", "native",
				  "providerLeaseId", l->provider_lease_id, "leaseId", l->id,
				  "leasePolicy", l->policy, "metadata", "os", f.system, "arch",
				  f.machine, "libc", f.libc, "imageMutable", target[0] == '\0'));
	add_measure(answer, l, &f, target);
	return answer;
}

json_t *job_probe(struct job_ctx *x, const json_t *request)
{
	static const struct lease_want want = {EL_ACTIVE, MOVED_ACQUIRED};
	_cleanup_envlease_ struct envlease_row l = {0};
	struct err e = ERR_INIT, down = ERR_INIT;
	char target[80] = "";
	json_t *answer;
	int r =
	    lease_take(x, json_string_value(json_object_get(request, "leaseId")), &want, &l, &e);

	if (r < 0)
		return job_failed(&e);
	r = check_image(x, &l, target, &e);
	if (r < 0) {
		answer = sandbox_broken(&l, &e);
		(void)lease_tear_down(x, &l, "acquire_rejected_teardown_succeeded", &down);
		return answer;
	}
	r = lease_make(x, &l, &e);
	if (r < 0)
		return sandbox_broken(&l, &e);
	answer = look(x, &l, target);
	/* What the release comes to never changes what was found; a failure waits for the sweep. */
	if (lease_own(x, &l, &down) == 0)
		lease_probe_end(x, &l, json_is_true(json_object_get(answer, "ok")));
	return answer;
}

/* The layers of a sandbox, tried without making one. */
json_t *job_probe_draft(struct job_ctx *x, const json_t *request)
{
	struct probe_result all[LAYER_COUNT];
	struct probe_env env = {.state_dir = x->st->dir, .version = AIRLOCK_VERSION, .quick = true};
	json_t *list = json_array();
	uid_t uid = (uid_t)-1;
	gid_t gid = (gid_t)-1;
	bool ok = true;

	(void)request;
	provider_native.owner(&uid, &gid);
	env.id_inside = uid == (uid_t)-1 ? getuid() : 1000;
	env.id_host = uid == (uid_t)-1 ? getuid() : uid;
	probe_all(&env, all);
	for (size_t i = 0; i < LAYER_COUNT; i++) {
		bool fine = probe_allows_run(&all[i]);

		ok = ok && fine;
		if (!fine || all[i].state == PROBE_LIMITED)
			(void)json_array_append_new(
			    list, json_pack("{s:s,s:s}", "severity", fine ? "warning" : "error",
					    "message", layer_info(all[i].layer)->name));
	}
	return result(ok, "sandbox",
		      ok ? "Sandbox provider \"native\" probe passed."
			 : "Sandbox provider \"native\" probe failed.",
		      json_pack("{s:s,s:n,s:o,s:n}", "provider", "native", "pluginKey",
				"diagnostics", list, "metadata"));
}
