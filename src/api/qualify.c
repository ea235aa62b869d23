#include "api/qualify.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/environments.h"
#include "api/managed.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "policy/qualification.h"
#include "store/envlease.h"
#include "store/vault.h"
#include "wire/jsonmember.h"

/* Members that are the host's own business and no property of the target. */
static const char *const host_only[] = {"streamRunLogs", "runnerLifecycleMode",
					"runnerIdleTimeoutMs"};

/* SHA-256 of the canonical form: keys sorted, no white space. j is taken over. */
static int fingerprint(json_t *j, char ret[65])
{
	unsigned char sum[crypto_hash_sha256_BYTES];
	char *text = j ? json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS) : NULL;

	json_decref(j);
	ret[0] = '\0';
	if (!text)
		return -1;
	(void)crypto_hash_sha256(sum, (const unsigned char *)text, strlen(text));
	(void)sodium_bin2hex(ret, 65, sum, sizeof(sum));
	free(text);
	return 0;
}

static int config_print(const char *config, char ret[65])
{
	json_t *j = json_loads(config ? config : "{}", 0, NULL);

	for (size_t i = 0; i < ARRAY_LEN(host_only); i++)
		(void)json_object_del(j, host_only[i]);
	return fingerprint(j, ret);
}

/* Which version each reference stands for now; no value is ever unsealed here (PR-07). */
static int secret_print(struct db *db, const char *vars, char ret[65], struct err *e)
{
	json_t *j = json_loads(vars ? vars : "{}", 0, NULL), *all = json_object(), *v;
	const char *name;
	int r = 0;

	json_object_foreach(j, name, v)
	{
		const json_t *version = json_object_get(v, "version");
		struct secret_row s = {0};

		if (strcmp(json_member_text(v, "type"), "secret_ref") != 0)
			continue;
		r = secret_get(db, json_member_text(v, "secretId"), &s, e);
		if (r < 0)
			break;
		(void)json_object_set_new(
		    all, name,
		    json_pack("{s:s,s:I}", "secretId", json_member_text(v, "secretId"), "version",
			      r == 0			 ? (json_int_t)0
			      : json_is_integer(version) ? json_integer_value(version)
							 : (json_int_t)s.latest));
	}
	json_decref(j);
	if (r < 0) {
		json_decref(all);
		return r;
	}
	return fingerprint(all, ret) < 0 ? err_set(e, ERR_NOMEM, "probe: out of memory") : 0;
}

static void put_target(const char *config, char *out, size_t n)
{
	json_t *j = json_loads(config ? config : "{}", 0, NULL);

	(void)snprintf(out, n, "%s", json_member_text(j, "image"));
	json_decref(j);
}

/* --- a probe ------------------------------------------------------------------------------ */

static int fill(struct db *db, const struct environment_row *row, const char *company,
		struct qualify_ticket *t, struct err *e)
{
	memcpy(t->env_id, row->id, sizeof(t->env_id));
	(void)snprintf(t->company, sizeof(t->company), "%s", company);
	t->config = strdup(row->config ? row->config : "{}");
	put_target(row->config, t->target, sizeof(t->target));
	if (!t->config || config_print(row->config, t->config_print) < 0)
		return err_set(e, ERR_NOMEM, "probe: out of memory");
	return secret_print(db, row->env_vars, t->secret_print, e);
}

int qualify_begin(struct call *c, const struct environment_row *row, const char *company,
		  struct qualify_ticket *t)
{
	struct err e = ERR_INIT;
	bool ok = false;
	int r = binding_allows(c->api->db, row->id, company, &ok, &e);

	*t = (struct qualify_ticket){0};
	if (r == 0 && !ok) {
		(void)reply_coded(c, 403, "environment_company_mismatch",
				  "The environment's secrets belong to another company.", NULL);
		return 1;
	}
	if (r == 0)
		r = fill(c->api->db, row, company, t, &e);
	if (r == 0)
		return 0;
	qualify_done(t);
	return (void)reply_failed(c, &e), 1;
}

void qualify_done(struct qualify_ticket *t)
{
	free(t->config);
	t->config = NULL;
}

/* The row as it is now: driver, configuration, accounts, company. 1: all as they were. */
static int unchanged(struct api *a, const struct qualify_ticket *t, struct err *e)
{
	_cleanup_environment_ struct environment_row row = {0};
	char print[65];
	bool ok = false;
	int r = environment_get(a->db, t->env_id, &row, e);

	if (r <= 0)
		return r;
	if (strcmp(row.driver, "sandbox") != 0 || strcmp(row.status, "active") != 0 ||
	    !str_eq(row.config, t->config))
		return 0;
	r = secret_print(a->db, row.env_vars, print, e);
	if (r == 0)
		r = binding_allows(a->db, t->env_id, t->company, &ok, e);
	return r < 0 ? r : ok && strcmp(print, t->secret_print) == 0;
}

/* The lease's own row, read again: ended, with proof, exactly this one (PR-04). */
static int cleaned_up(struct api *a, const struct qualify_ticket *t, const json_t *measured,
		      struct err *e)
{
	_cleanup_envlease_ struct envlease_row l = {0};
	int r = envlease_get(a->db, json_member_text(measured, "leaseId"), &l, e);

	if (r <= 0)
		return r;
	return l.status == EL_RELEASED && strcmp(l.cleanup, "success") == 0 && l.released_ns &&
	       strcmp(l.environment_id, t->env_id) == 0 && strcmp(l.company_id, t->company) == 0 &&
	       strcmp(l.provider_lease_id, json_member_text(measured, "providerLeaseId")) == 0;
}

static json_t *record(const struct qualify_ticket *t, const json_t *measured)
{
	json_int_t now = (json_int_t)(clock_real_ns() / NS_PER_MS);

	return json_pack(
	    "{s:i,s:s,s:s,s:s,s:s,s:{s:s,s:s},s:s,s:s,s:n,s:O,s:I,s:{s:s,s:s,s:{s:s,s:I}}}",
	    "version", 1, "companyId", t->company, "environmentId", t->env_id, "driver", "sandbox",
	    "provider", "native", "target", "kind", "image_digest", "value", t->target,
	    "configFingerprint", t->config_print, "secretFingerprint", t->secret_print,
	    "customImage", "platform", json_object_get(measured, "platform"), "measuredAt", now,
	    "probe", "leaseId", json_member_text(measured, "leaseId"), "providerLeaseId",
	    json_member_text(measured, "providerLeaseId"), "cleanup", "state", "destroyed",
	    "confirmedAt", now);
}

static int record_now(struct api *a, const struct qualify_ticket *t, const json_t *measured,
		      struct err *e)
{
	_cleanup_free_ char *text = NULL;
	json_t *j;
	int r = unchanged(a, t, e);

	if (r > 0)
		r = cleaned_up(a, t, measured, e);
	if (r <= 0)
		return r;
	j = record(t, measured);
	text = j ? json_dumps(j, JSON_COMPACT) : NULL;
	json_decref(j);
	if (!text)
		return err_set(e, ERR_NOMEM, "probe: out of memory");
	return environment_set_proof(a->db, t->env_id, "sandbox", t->config, text, e);
}

int qualify_record(struct api *a, const struct qualify_ticket *t, const json_t *measured,
		   struct err *e)
{
	int r;

	/* The image that was hashed before the sandbox started is the one of the configuration. */
	if (!t->target[0] || !json_is_object(measured) ||
	    strcmp(json_member_text(measured, "target"), t->target) != 0)
		return 0;
	r = db_begin(a->db, e);
	if (r < 0)
		return r;
	r = record_now(a, t, measured, e);
	return r < 0 ? db_end(a->db, r, e) : db_end(a->db, 0, e) < 0 ? -EIO : r;
}

/* --- reading ------------------------------------------------------------------------------ */

static struct qualification_bound bound_of(const json_t *j)
{
	return (struct qualification_bound){
	    .company = json_member_text(j, "companyId"),
	    .environment = json_member_text(j, "environmentId"),
	    .driver = json_member_text(j, "driver"),
	    .provider = json_member_text(j, "provider"),
	    .target = json_member_text(json_object_get(j, "target"), "value"),
	    .config = json_member_text(j, "configFingerprint"),
	    .secrets = json_member_text(j, "secretFingerprint"),
	    .custom_image = "",
	};
}

/* Computed from rows alone: nothing is leased, provisioned or unsealed (PR-06). */
static enum qualification judge(struct call *c, const struct environment_row *row,
				const char *company, const json_t *proof, struct err *e)
{
	struct db *db = c->api->db;
	struct qualification_bound was = bound_of(proof);
	struct qualify_ticket t = {0};
	struct qualification_now now = {.archived = strcmp(row->status, "active") != 0};
	bool cleaned = json_member_text(json_object_get(json_object_get(proof, "probe"), "cleanup"),
					"state")[0] != '\0';
	enum qualification q = QUALIFICATION_COUNT;

	if (binding_allows(db, row->id, company, &now.company_allowed, e) == 0 &&
	    fill(db, row, company, &t, e) == 0) {
		now.bound = (struct qualification_bound){.company = t.company,
							 .environment = row->id,
							 .driver = row->driver,
							 .provider = "native",
							 .target = t.target,
							 .config = t.config_print,
							 .secrets = t.secret_print,
							 .custom_image = ""};
		now.platform_covers = managed_covers(c, row);
		q = qualification_judge(&now, proof ? &was : NULL, cleaned);
	}
	qualify_done(&t);
	return q;
}

int h_env_qualification(struct call *c)
{
	_cleanup_environment_ struct environment_row row = {0};
	char company[UUID_LEN + 1];
	struct err e = ERR_INIT;
	enum qualification q;
	json_t *proof, *answer;

	if (env_find(c, &row) || env_company(c, row.id, company))
		return 0;
	if (!company[0] || (!actor_is_admin(&c->actor) && !actor_in_company(&c->actor, company)))
		return reply_error(
		    c, company[0] ? 404 : 422,
		    company[0] ? "Company not found"
			       : "companyId query parameter is required for qualification.");
	proof = row.proof ? json_loads(row.proof, 0, NULL) : NULL;
	q = judge(c, &row, company, proof, &e);
	if (q == QUALIFICATION_COUNT) {
		json_decref(proof);
		return reply_failed(c, &e);
	}
	answer =
	    q == QUALIFIED ? json_pack("{s:s,s:s,s:O}", "state", "qualified", "by", "probe",
				       "platform", json_object_get(proof, "platform"))
	    : q == QUALIFIED_BY_PLATFORM
		? json_pack("{s:s,s:s}", "state", "qualified", "by", "platform_configuration")
		: json_pack("{s:s,s:s}", "state", "unqualified", "reason", qualification_word(q));
	json_decref(proof);
	return reply_json(c, 200, answer);
}
