/* token: what proves a user, an agent or a run to the daemon; shown once, kept as a digest. */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "api/reseal.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/operator_internal.h"
#include "cli/ui.h"
#include "store/environment.h"

/* --- tokens ------------------------------------------------------------------------------- */

static int token_new(struct operator_place *p, char **names, const struct operator_opts *o,
		     struct err *e)
{
	struct token_row t = {0};
	char text[TOKEN_TEXT_MAX];
	struct company_row c;
	struct agent_row a;
	struct user_row u;
	const char *id;
	int r;

	(void)names;
	if (!o->user == !o->agent)
		return err_set(e, ERR_USAGE, "token create wants --user NAME or --agent NAME");
	r = operator_company(p, o, &c, &id, e);
	if (r == 0 && o->user) {
		r = user_find(p->db, o->user, &u, e);
		if (r == 0)
			memcpy(t.user_id, u.id, sizeof(t.user_id));
	} else if (r == 0) {
		r = agent_find(p->db, id, o->agent, &a, e);
		if (r == 0)
			memcpy(t.agent_id, a.id, sizeof(t.agent_id));
	}
	if (r == 0 && o->label)
		r = tenant_check_name("label", o->label, e);
	if (r < 0)
		return r;
	(void)snprintf(t.label, sizeof(t.label), "%s", o->label ? o->label : "");
	r = credential_new(o->user ? TOKEN_BOARD_KEY : TOKEN_AGENT_KEY, &t, text, e);
	t.expires_ns = o->expires_ns ? t.created_ns + o->expires_ns : 0;
	if (r == 0)
		r = token_add(p->db, &t, e);
	if (r == 0)
		(void)printf("%s\n", text);
	explicit_bzero(text, sizeof(text));
	return r;
}

/* A run's token proves its run until it ends; nothing of it is kept. */
static int token_run(struct operator_place *p, char **names, const struct operator_opts *o,
		     struct err *e)
{
	struct jwt_claims k = {.issued_s = clock_real_ns() / NS_PER_S};
	_cleanup_secret_ char *master = NULL;
	_cleanup_free_ char *text = NULL;
	char instance[64];
	struct company_row c;
	struct agent_row a;
	const char *id;
	int r = operator_need("agent", o->agent, e);

	(void)names;
	if (r == 0)
		r = operator_need("run", o->run, e);
	if (r == 0)
		r = operator_company(p, o, &c, &id, e);
	if (r == 0)
		r = agent_find(p->db, id, o->agent, &a, e);
	if (r == 0)
		r = api_token_key(p->st.dir, p->db, &master, instance, e);
	if (r == 0 && strlen(o->run) > ACTOR_RUN_MAX)
		r = err_set(e, ERR_INVALID, "a run's id has at most %d bytes", ACTOR_RUN_MAX);
	if (r < 0)
		return r;
	memcpy(k.agent_id, a.id, sizeof(k.agent_id));
	memcpy(k.company_id, a.company_id, sizeof(k.company_id));
	memcpy(k.responsible, a.user_id, sizeof(k.responsible));
	(void)snprintf(k.adapter, sizeof(k.adapter), "%s", a.adapter);
	(void)snprintf(k.run_id, sizeof(k.run_id), "%s", o->run);
	k.expires_s = k.issued_s + (o->expires_ns ? o->expires_ns / NS_PER_S : JWT_TTL_S);
	r = jwt_sign(&(struct jwt_keys){master, instance}, &k, &text, e);
	if (r == 0)
		(void)printf("%s\n", text);
	return r;
}

static void print_time(const char *what, int64_t ns)
{
	char when[32];

	if (!ns)
		return;
	clock_rfc3339(ns, when, sizeof(when));
	(void)printf("  %s %s", what, when);
}

static int print_token(void *arg, const struct token_row *t)
{
	(void)arg;
	(void)printf("%s  %-9s  %s", t->id, token_kind_name(t->kind),
		     t->user_id[0] ? t->user_id : t->agent_id);
	print_time("created", t->created_ns);
	print_time("expires", t->expires_ns);
	print_time("used", t->used_ns);
	print_time("revoked", t->revoked_ns);
	if (t->label[0]) {
		(void)fputs("  ", stdout);
		ui_print_name(t->label);
	}
	(void)putchar('\n');
	return 0;
}

static int token_ls(struct operator_place *p, char **names, const struct operator_opts *o,
		    struct err *e)
{
	(void)names;
	(void)o;
	return token_each(p->db, print_token, NULL, e);
}

static int token_rm(struct operator_place *p, char **names, const struct operator_opts *o,
		    struct err *e)
{
	int r = token_revoke(p->db, names[0], e);

	(void)o;
	if (r == 0)
		return err_set(e, ERR_NOT_FOUND,
			       "there is no token %.40s that is still good: 'airlock token list'",
			       names[0]);
	return r < 0 ? r : 0;
}

static int token_rotate(struct operator_place *p, char **names, const struct operator_opts *o,
			struct err *e)
{
	struct seal s = {0};
	int64_t n = 0;
	int r = reseal_may_rotate(p->db, p->st.dir, e);

	(void)names;
	(void)o;
	if (r == 0)
		r = seal_open(&s, p->st.dir, e);
	if (r == 0)
		r = reseal_rotate(&s, p->db, p->st.dir, &n, e);
	if (r == 0)
		cli_say("%lld secrets are sealed with a new key", (long long)n);
	seal_done(&s);
	return r;
}

int cmd_token(int argc, char **argv)
{
	static const struct operator_command commands[] = {{"create", 0, token_new},
							   {"run", 0, token_run},
							   {"list", 0, token_ls},
							   {"revoke", 1, token_rm},
							   {"rotate-seal", 0, token_rotate},
							   {0}};

	return operator_run("token", opts_token, commands, argc, argv);
}
