/*
 * authenticate.c: which actor a request's credentials prove (api.md 1.1).
 *
 * Policy: a credential that is there decides; one that proves nothing is an error, never the implicit board. Order: bearer,
 * session cookie, none; none is the implicit board in local_trusted mode only, and only of who may be it (peer.h). What is compared of a token is its digest, in constant time. A run id in a header is
 * attribution only; a JWT's own run id must agree with it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/api.h"
#include "base/clock.h"
#include "base/str.h"
#include "store/tenant.h"

#define COOKIE "airlock_session="
#define NOTE_EVERY_NS (60 * NS_PER_S)

static int deny(struct call *c, const char *text)
{
	c->api->n.unauthenticated++;
	(void)reply_error(c, 401, text);
	return 1;
}

static int unverified(struct call *c)
{
	return deny(c, "Agent token did not verify; obtain fresh credentials and retry");
}

static int add_company(void *arg, const struct membership_row *m)
{
	struct actor *a = arg;

	if (a->companies_len == ACTOR_COMPANIES_MAX)
		return 0;
	/* Not part of each call: most actors have none or few, and zeroes for all of them would cost more than the look-up. */
	if (!a->companies)
		a->companies = malloc(ACTOR_COMPANIES_MAX * sizeof(*a->companies));
	if (!a->companies)
		return -ENOMEM;
	memcpy(a->companies[a->companies_len].id, m->company_id, UUID_LEN + 1);
	a->companies[a->companies_len++].viewer = strcmp(m->role, "viewer") == 0;
	return 0;
}

static int broken(struct call *c, const struct err *e)
{
	(void)reply_failed(c, e);
	return 1;
}

/* A row's owner of kind board. */
static int as_board(struct call *c, const struct token_row *t)
{
	struct actor *a = &c->actor;
	struct err e = ERR_INIT;
	struct user_row u = {0};

	if (user_find(c->api->db, t->user_id, &u, &e) < 0)
		return e.code == ERR_NOT_FOUND ? unverified(c) : broken(c, &e);
	a->type = ACTOR_BOARD;
	a->source = t->kind == TOKEN_SESSION ? SOURCE_SESSION : SOURCE_BOARD_KEY;
	a->admin = u.admin;
	memcpy(a->user_id, u.id, sizeof(a->user_id));
	return membership_each(c->api->db, u.id, add_company, a, &e) < 0 ? broken(c, &e) : 0;
}

/* A line of the activity log is a write, and every request of a broken agent could ask for one. */
static void note(struct call *c, const struct agent_row *row, const char *action, json_t *details)
{
	int64_t now = clock_mono_ns();
	struct api_note *old = c->api->notes;

	for (size_t i = 0; i < API_NOTES; i++) {
		struct api_note *n = &c->api->notes[i];

		if (strcmp(n->agent_id, row->id) == 0) {
			old = n;
			break;
		}
		if (n->at_ns < old->at_ns)
			old = n;
	}
	if (old->at_ns && now - old->at_ns < NOTE_EVERY_NS) {
		json_decref(details);
		return;
	}
	memcpy(old->agent_id, row->id, sizeof(old->agent_id));
	old->at_ns = now;
	api_activity(c, row->company_id, action, "agent", row->id, details);
}

static int check_agent(struct call *c, const char *agent_id, const char *company_id,
		       struct agent_row *row)
{
	struct actor *a = &c->actor;
	struct err e = ERR_INIT;
	int r = agent_get(c->api->db, agent_id, row, &e);

	if (r < 0)
		return broken(c, &e);
	if (r == 0 || (company_id && strcmp(row->company_id, company_id) != 0))
		return deny(
		    c,
		    "Agent record is missing or belongs to another company; obtain fresh credentials and retry");
	if (strcmp(row->status, "terminated") == 0)
		return deny(c, "Agent is terminated and cannot authenticate");
	if (strcmp(row->status, "pending_approval") == 0)
		return deny(c, "Agent is pending approval and cannot authenticate");
	a->type = ACTOR_AGENT;
	memcpy(a->agent_id, row->id, sizeof(a->agent_id));
	memcpy(a->company_id, row->company_id, sizeof(a->company_id));
	memcpy(a->on_behalf, row->user_id, sizeof(a->on_behalf));
	return 0;
}

static int as_agent(struct call *c, const struct token_row *t)
{
	struct agent_row row = {0};
	int r = check_agent(c, t->agent_id, NULL, &row);

	if (r)
		return r;
	c->actor.source = SOURCE_AGENT_KEY;
	if (!row.user_id[0]) {
		note(c, &row, "auth.agent_key_missing_responsible_user",
		     json_pack("{s:s}", "keyId", t->id));
		(void)reply_coded(c, 403, "RESPONSIBLE_USER_UNAVAILABLE",
				  "Responsible user is unavailable for this agent key", NULL);
		return 1;
	}
	return 0;
}

static int as_row(struct call *c, enum token_kind kind, const char *id, struct view token)
{
	int64_t now = clock_real_ns();
	struct token_row t = {0};
	struct err e = ERR_INIT;
	int r = token_get(c->api->db, id, &t, &e);

	if (r < 0)
		return broken(c, &e);
	if (r == 0 || t.kind != kind || !credential_matches(token, &t) || t.revoked_ns)
		return unverified(c);
	if (t.expires_ns && t.expires_ns < now)
		return deny(c, "Expired agent token; obtain fresh credentials and retry");
	memcpy(c->actor.token_id, t.id, sizeof(t.id));
	/* A write per request would cost more than the request. */
	if (now - t.used_ns > TOKEN_USED_EVERY_NS && token_used(c->api->db, t.id, now, &e) < 0)
		(void)fprintf(stderr, "airlockd: %s\n", e.text);
	return kind == TOKEN_AGENT_KEY ? as_agent(c, &t) : as_board(c, &t);
}

static int as_jwt(struct call *c, struct view token)
{
	struct jwt_keys keys = api_jwt_keys(c->api);
	struct agent_row row = {0};
	struct jwt_claims claims;
	int r;

	switch (jwt_verify(&keys, token, clock_real_ns() / NS_PER_S, &claims)) {
	case JWT_OK:
		break;
	case JWT_EXPIRED:
		return deny(c, "Expired agent token; obtain fresh credentials and retry");
	default:
		return unverified(c);
	}
	r = check_agent(c, claims.agent_id, claims.company_id, &row);
	if (r)
		return r;
	c->actor.source = SOURCE_AGENT_JWT;
	if (claims.responsible[0])
		memcpy(c->actor.on_behalf, claims.responsible, sizeof(c->actor.on_behalf));
	memcpy(c->actor.run_id, claims.run_id, sizeof(c->actor.run_id));
	if (c->head.run_id && c->head.run_id[0] && strcmp(c->head.run_id, claims.run_id) != 0) {
		note(c, &row, "auth.agent_jwt_run_header_mismatch",
		     json_pack("{s:s}", "claimRunId", claims.run_id));
		(void)reply_coded(c, 422, "agent_jwt_run_id_mismatch",
				  "X-Paperclip-Run-Id does not match signed agent JWT run_id",
				  json_pack("{s:s,s:s%}", "claimRunId", claims.run_id,
					    "headerRunId", c->head.run_id,
					    strnlen(c->head.run_id, ACTOR_RUN_MAX)));
		return 1;
	}
	return 0;
}

static int bearer(struct call *c, const char *text)
{
	enum token_kind kind;
	char id[ID_LEN + 1];
	struct view t;

	while (*text == ' ')
		text++;
	t = (struct view){text, strlen(text)};
	while (t.n && t.p[t.n - 1] == ' ')
		t.n--;
	if (!t.n)
		return deny(c, "Empty bearer token; provide valid agent credentials and retry");
	if (t.n > CREDENTIAL_MAX)
		return unverified(c);
	if (credential_parse(t, &kind, id))
		/* A session is a browser's cookie; as a bearer token it would escape the origin check. */
		return kind == TOKEN_SESSION ? unverified(c) : as_row(c, kind, id, t);
	return as_jwt(c, t);
}

/* The session's token in a Cookie header; empty when there is none. */
static struct view session_cookie(const char *text)
{
	while (text && *text) {
		size_t n;

		text += strspn(text, " ;");
		n = strcspn(text, ";");
		if (str_starts(text, COOKIE))
			return (struct view){text + strlen(COOKIE), n - strlen(COOKIE)};
		text += n;
	}
	return (struct view){NULL, 0};
}

int api_authenticate(struct api *a, struct call *c)
{
	struct view cookie = session_cookie(c->head.cookie);
	enum token_kind kind;
	char id[ID_LEN + 1];

	c->actor.type = ACTOR_NONE;
	c->actor.source = SOURCE_NONE;
	c->actor.companies_len = 0;
	c->actor.admin = false;
	if (c->head.authorization) {
		/* Other schemes prove nothing here, and must not become the implicit board. */
		if (strncasecmp(c->head.authorization, "Bearer", 6) != 0 ||
		    (c->head.authorization[6] != ' ' && c->head.authorization[6] != '\0'))
			return unverified(c);
		return bearer(c, c->head.authorization + 6);
	}
	if (cookie.n) {
		/* A cookie that does not hold any more is as good as none, where there must be a proof. */
		if (credential_parse(cookie, &kind, id) && kind == TOKEN_SESSION)
			return as_row(c, kind, id, cookie);
		return unverified(c);
	}
	if (a->cfg.mode != MODE_LOCAL_TRUSTED)
		return 0;
	if (!c->peer || !peer_trusted(&a->judge, c->peer))
		return deny(
		    c,
		    "Without a key only processes of the daemon's own user and of root are the local board "
		    "here, and no sandbox is: use a key, or start the daemon with --trust-user");
	c->actor.type = ACTOR_BOARD;
	c->actor.source = SOURCE_LOCAL;
	c->actor.admin = true;
	(void)snprintf(c->actor.user_id, sizeof(c->actor.user_id), "local-board");
	return 0;
}

void actor_text(const struct actor *a, char *out, size_t n)
{
	if (a->type == ACTOR_AGENT)
		(void)snprintf(out, n, "agent:%s", a->agent_id);
	else
		(void)snprintf(out, n, "user:%s", a->type == ACTOR_BOARD ? a->user_id : "none");
}
