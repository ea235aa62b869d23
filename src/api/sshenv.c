#include "api/sshenv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/knownhosts.h"
#include "api/seal.h"
#include "api/secrets.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/path.h"
#include "base/str.h"
#include "engine/interrupt.h"
#include "engine/leasespec.h"
#include "engine/sweep.h"
#include "provider/ssh/look.h"
#include "store/environment.h"
#include "store/lease.h"
#include "wire/jsonmember.h"

#define READY_MS 30000
#define KEYS_MAX 32

static int no_memory(struct err *e)
{
	return err_set(e, ERR_NOMEM, "ssh: out of memory");
}

static int add_word(struct sshenv *s, const char *name, const char *value, struct err *e)
{
	_cleanup_free_ char *word = NULL;

	if (asprintf(&word, "%s%s", name, value) < 0)
		word = NULL;
	return word && strv_add(&s->words, word) == 0 ? 0 : no_memory(e);
}

char *sshenv_place(const json_t *c, struct err *e)
{
	_cleanup_free_ char *path = path_normalize(json_member_text(c, "remoteWorkspacePath"));
	char *word = NULL;
	const char *host = json_member_text(c, "host");
	bool six = strchr(host, ':') && host[0] != '[';
	json_int_t port = json_integer_value(json_object_get(c, "port"));

	if (!path) {
		(void)err_set(e, ERR_INVALID, "SSH remote workspace path must be absolute.");
		return NULL;
	}
	if (asprintf(&word, "%s@%s%s%s:%lld:%s", json_member_text(c, "username"), six ? "[" : "",
		     host, six ? "]" : "", port > 0 ? (long long)port : 22LL, path) < 0) {
		(void)no_memory(e);
		return NULL;
	}
	return word;
}

static int put_place(struct sshenv *s, const json_t *c, struct err *e)
{
	_cleanup_free_ char *word = sshenv_place(c, e);

	if (!word)
		return -EINVAL;
	return strv_add(&s->words, word) == 0 ? 0 : no_memory(e);
}

static int put_words(struct sshenv *s, struct state *st, const json_t *c, struct err *e)
{
	_cleanup_free_ char *known = NULL;
	json_int_t max = json_integer_value(json_object_get(c, "maxConcurrentRuns"));
	const json_t *grace = json_object_get(c, "connectionGraceSec");
	char digits[24];
	int r = put_place(s, c, e);

	if (r == 0)
		r = add_word(s, "config=", "/dev/null", e);
	if (r == 0 && max > 0) {
		(void)snprintf(digits, sizeof(digits), "%lld", (long long)max);
		r = add_word(s, "max-runs=", digits, e);
	}
	if (r == 0 && json_is_integer(grace)) {
		(void)snprintf(digits, sizeof(digits), "%lld", json_integer_value(grace));
		r = add_word(s, "grace=", digits, e);
	}
	if (r == 0 && json_is_false(json_object_get(c, "keepRemoteBase")))
		r = add_word(s, "base=none", "", e);
	if (r == 0 && json_is_false(json_object_get(c, "strictHostKeyChecking")))
		return add_word(s, "host-keys=any", "", e);
	if (r < 0 || !json_member_text(c, "knownHosts")[0])
		return r;
	r = knownhosts_put(st, json_member_text(c, "knownHosts"), &known, e);
	return r < 0 ? r : add_word(s, "known-hosts=", known, e);
}

/* The secret's value, opened now. */
static int open_secret(struct job_ctx *x, const struct sshenv_use *u, const json_t *ref, char **ret,
		       struct err *e)
{
	const struct secret_use use = {
	    .company_id = u->company_id,
	    .secret_id = json_member_text(ref, "secretId"),
	    .target_id = u->environment_id,
	    .path = "privateKeySecretRef",
	    .consumer = u->consumer,
	    .actor = u->actor,
	    .version = json_integer_value(json_object_get(ref, "version")), /* "latest": 0 */
	};
	const char *code = NULL;
	struct seal keys = {0};
	int r;

	if (!u->company_id[0])
		return err_set(e, ERR_INVALID,
			       "Runtime secret resolution requires a companyId context");
	if (!u->environment_id[0])
		return err_set(e, ERR_INVALID,
			       "Runtime secret resolution requires an environment id");
	r = seal_open(&keys, x->st->dir, e);
	if (r == 0)
		r = secret_resolve(x->db, &keys, &use, ret, &code, e);
	seal_done(&keys);
	return r;
}

/* The words name whose key it is, and the value travels beside them: so rows about this machine hold no key. */
static int put_key(struct sshenv *s, const char *name, const char *key, struct err *e)
{
	int r = ssh_identity_open(key, &s->key, e);

	if (r == 0)
		r = add_word(s, "secret=", name, e);
	if (r == 0 && asprintf(&s->identity, "%s=%s", name, s->key.path) < 0) {
		s->identity = NULL;
		r = no_memory(e);
	}
	s->identities[0] = s->identity;
	return r;
}

int sshenv_open(struct sshenv *s, struct job_ctx *x, const struct sshenv_use *u,
		const json_t *config, struct err *e)
{
	const json_t *ref = json_object_get(config, "privateKeySecretRef");
	_cleanup_secret_ char *opened = NULL;
	int r = put_words(s, x->st, config, e);

	/* A draft has its own key or none: references of it are not looked at. */
	if (r == 0 && u->key)
		return u->key[0] ? put_key(s, "draft", u->key, e) : 0;
	if (r == 0 && json_is_object(ref)) {
		r = open_secret(x, u, ref, &opened, e);
		if (r == 0)
			r = put_key(s, u->environment_id, opened, e);
	}
	return r;
}

void sshenv_done(struct sshenv *s)
{
	strv_free(s->words);
	free(s->identity);
	ssh_identity_done(&s->key);
	*s = SSHENV_INIT;
}

int sshenv_ready(const struct sshenv *s, struct sshenv_ready *ret, struct err *e)
{
	static const char script[] =
	    "read -r p; m=$(mkdir -p \"$p\" 2>&1) && cd \"$p\" && s cwd \"$(pwd)\" || "
	    "{ s fail \"$m\"; exit 1; }";
	_cleanup_ssh_target_ struct ssh_target t = {0};
	_cleanup_said_ struct ssh_said said = {0};
	_cleanup_free_ char *input = NULL, *fail = NULL;
	int r = ssh_target_parse(s->words, &t, e);

	*ret = (struct sshenv_ready){.code = -1};
	if (r == 0)
		r = ssh_target_identity(&t, s->identities, e);
	if (r == 0 && asprintf(&input, "%s\n", t.path) < 0) {
		input = NULL;
		r = no_memory(e);
	}
	if (r < 0)
		return r;
	r = ssh_look(&(struct ssh_look){.target = &t,
					.script = script,
					.input = input,
					.timeout_ms = READY_MS,
					.cancel = interrupt_first()},
		     &said, e);
	ret->code = said.status;
	if (r < 0)
		return r;
	ret->cwd = ssh_said_get(&said, "cwd");
	fail = ssh_said_get(&said, "fail");
	if (!ret->cwd || !said.done) {
		free(TAKE_PTR(ret->cwd));
		return err_set(e, ERR_UNAVAILABLE,
			       "the directory %s on %s cannot be made or entered%s%.300s", t.path,
			       t.label, fail ? ": " : "", fail ? fail : "");
	}
	return 0;
}

/* --- sweep -------------------------------------------------------------------------------- */

/* "secret=" of a lease's words: the environment. NULL: none. */
static const char *secret_of(char *const *words)
{
	for (; words && *words; words++)
		if (str_starts(*words, "secret="))
			return *words + strlen("secret=");
	return NULL;
}

static void open_one(struct sshenv_keys *k, struct job_ctx *x, const char *env_id,
		     const char *consumer)
{
	_cleanup_environment_ struct environment_row row = {0};
	struct sshenv *s = &k->v[k->n];
	struct secret_row secret = {0};
	struct err e = ERR_INIT;
	json_t *config = NULL;
	int r;

	for (size_t i = 0; i < k->n; i++)
		if (str_starts(k->v[i].identity, env_id))
			return;
	r = environment_get(x->db, env_id, &row, &e);
	if (r > 0) {
		config = json_loads(row.config, 0, NULL);
		r = secret_get(x->db,
			       json_member_text(json_object_get(config, "privateKeySecretRef"),
						"secretId"),
			       &secret, &e);
	}
	*s = SSHENV_INIT;
	if (r > 0) {
		const struct sshenv_use u = {secret.company_id, env_id, consumer, "system", NULL};

		r = sshenv_open(s, x, &u, config, &e);
		if (r == 0 && s->identity)
			k->words[k->n++] = s->identity;
		else
			sshenv_done(s);
	}
	if (r < 0)
		(void)fprintf(stderr, "airlockd: key of environment %s: %s\n", env_id, e.text);
	json_decref(config);
}

static bool room(struct sshenv_keys *k)
{
	*k = (struct sshenv_keys){.v = calloc(KEYS_MAX, sizeof(*k->v)),
				  .words = calloc(KEYS_MAX + 1, sizeof(*k->words))};
	return k->v && k->words;
}

static void open_of(struct sshenv_keys *k, struct job_ctx *x, const struct lease_row *l,
		    const char *consumer)
{
	_cleanup_leasespec_ struct lease_spec spec = {0};
	const char *env;

	if (strcmp(l->provider, "ssh") != 0 || leasespec_get(l->spec, &spec, NULL) < 0)
		return;
	env = secret_of(spec.remote);
	if (env)
		open_one(k, x, env, consumer);
}

void sshenv_keys_of(struct sshenv_keys *k, struct job_ctx *x, const struct lease_row *l)
{
	if (room(k))
		open_of(k, x, l, "recover");
	x->st->identities = k->words;
}

void sshenv_keys_open(struct sshenv_keys *k, struct job_ctx *x)
{
	struct lease_row *v = NULL;
	struct err e = ERR_INIT;
	size_t n = 0;

	if (!room(k) || lease_list(x->st->store, &v, &n, &e) < 0)
		return;
	for (size_t i = 0; i < n && k->n < KEYS_MAX; i++)
		if (sweep_needs_key(x->st, &v[i]))
			open_of(k, x, &v[i], "sweep");
	lease_list_free(v, n);
	x->st->identities = k->words;
}

void sshenv_keys_done(struct sshenv_keys *k)
{
	for (size_t i = 0; i < k->n; i++)
		sshenv_done(&k->v[i]);
	free(k->v);
	free(k->words);
	*k = (struct sshenv_keys){0};
}

/* --- probe, lease ------------------------------------------------------------------------- */

static json_t *details(const json_t *config)
{
	return json_pack("{s:O,s:O,s:O,s:O}", "host", json_object_get(config, "host"), "port",
			 json_object_get(config, "port"), "username",
			 json_object_get(config, "username"), "remoteWorkspacePath",
			 json_object_get(config, "remoteWorkspacePath"));
}

static json_t *answer(const json_t *config, const struct sshenv_ready *ready, const struct err *e)
{
	json_t *d = details(config);
	char text[512];

	(void)snprintf(text, sizeof(text),
		       e ? "SSH probe failed for %.*s@%.*s."
			 : "Connected to %.*s@%.*s and verified the remote workspace path.",
		       str_fit(json_member_text(config, "username"), 200),
		       json_member_text(config, "username"),
		       str_fit(json_member_text(config, "host"), 200),
		       json_member_text(config, "host"));
	if (e) {
		(void)json_object_set_new(d, "error",
					  json_string(e->text[0] ? e->text : "SSH probe failed."));
		(void)json_object_set_new(
		    d, "code", ready->code >= 0 ? json_integer(ready->code) : json_null());
	} else {
		(void)json_object_set_new(d, "remoteCwd", json_string(ready->cwd));
	}
	/* FR-B101: never silently. */
	if (json_is_false(json_object_get(config, "strictHostKeyChecking")))
		(void)json_object_set_new(
		    d, "warning",
		    json_string(
			"The host key is not checked: whoever answers at this address gets the workspace and what "
			"the run's variables hold."));
	return json_pack("{s:b,s:s,s:s,s:o}", "ok", e == NULL, "driver", "ssh", "summary", text,
			 "details", d);
}

json_t *job_probe_ssh(struct job_ctx *x, const json_t *request)
{
	const json_t *config = json_object_get(request, "config");
	const struct sshenv_use u = {
	    .company_id = json_member_text(request, "companyId"),
	    .environment_id = json_member_text(request, "environmentId"),
	    .consumer = "probe",
	    .actor = json_member_text(request, "actor"),
	    .key = json_string_value(json_object_get(request, "key")),
	};
	_cleanup_sshenv_ struct sshenv s = SSHENV_INIT;
	struct sshenv_ready ready = {.code = -1};
	struct err e = ERR_INIT;
	json_t *j;
	int r = sshenv_open(&s, x, &u, config, &e);

	if (r == 0)
		r = sshenv_ready(&s, &ready, &e);
	j = answer(config, &ready, r < 0 ? &e : NULL);
	free(ready.cwd);
	return j;
}

int sshenv_lease(struct job_ctx *x, struct envlease_row *l, struct err *e)
{
	json_t *m = json_loads(l->metadata ? l->metadata : "{}", 0, NULL),
	       *config = json_object_get(m, "config");
	char consumer[UUID_LEN + 8];
	const struct sshenv_use u = {l->company_id, l->environment_id, consumer, "system", NULL};
	_cleanup_sshenv_ struct sshenv s = SSHENV_INIT;
	struct sshenv_ready ready = {.code = -1};
	int r;

	(void)snprintf(consumer, sizeof(consumer), "lease:%s", l->id);
	r = sshenv_open(&s, x, &u, config, e);
	if (r == 0)
		r = sshenv_ready(&s, &ready, e);
	if (r == 0) {
		static const char *const names[] = {"host", "port", "username",
						    "remoteWorkspacePath"};

		for (size_t i = 0; i < ARRAY_LEN(names); i++)
			(void)json_object_set(m, names[i], json_object_get(config, names[i]));
		(void)json_object_set_new(m, "remoteCwd", json_string(ready.cwd));
		free(l->metadata);
		l->metadata = json_dumps(m, JSON_COMPACT);
		(void)snprintf(l->provider_lease_id, sizeof(l->provider_lease_id),
			       "ssh://%s@%s:%lld%s", json_member_text(config, "username"),
			       json_member_text(config, "host"),
			       (long long)json_integer_value(json_object_get(config, "port")),
			       ready.cwd);
		l->reason[0] = l->cleanup[0] = '\0';
		lease_begun(l);
		r = l->metadata ? lease_hand_over(x, l, e) : no_memory(e);
	}
	free(ready.cwd);
	json_decref(m);
	return r;
}
