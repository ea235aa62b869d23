/*
 * serve, company, user, agent, project, token: what an operator sets up for airlockd, on the host itself.
 *
 * These verbs work on the daemon's database directly: whoever may write the state directory is the operator. A new token is
 * printed once, alone on stdout; what is kept is its digest.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/adapters.h"
#include "api/api.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/ui.h"
#include "os/self.h"
#include "store/environment.h"
#include "store/tenant.h"

enum {
	O_COMPANY = 1,
	O_USER,
	O_AGENT,
	O_ADAPTER,
	O_ADMIN,
	O_ROLE,
	O_EXPIRES,
	O_LABEL,
	O_RUN,
	O_CONFIGURE,
	O_STATUS
};

struct opts {
	const char *company, *user, *agent, *adapter, *role, *label, *run, *status;
	int64_t expires_ns;
	bool admin, configure;
};

const struct opt opts_serve[] = {
    {"listen", 0, "ADDRESS", "127.0.0.1:PORT, [::1]:PORT or unix:/PATH (127.0.0.1:3100)", 1},
    {"mode", 0, "MODE", "local_trusted (default) or authenticated", 2},
    {"public-url", 0, "URL", "origin under which browsers reach the daemon", 3},
    {"host", 0, "NAME", "further name that a Host header may have (repeatable)", 4},
    {"trust-user", 0, "USER", "further user who is the local board over TCP (repeatable)", 5},
    {"secrets-strict", 0, NULL, "credentials among envVars must be secret references", 6},
    {"cloud-managed", 0, NULL, "rows with a platform marker are the platform's", 7},
    {NULL, 0, NULL, NULL, 0},
};
const struct opt opts_user[] = {
    {"admin", 0, NULL, "add: an instance administrator", O_ADMIN},
    {"company", 0, "NAME", "add, join, leave: which company", O_COMPANY},
    {"role", 0, "ROLE", "add, join: owner, member (default) or viewer", O_ROLE},
    {NULL, 0, NULL, NULL, 0},
};
const struct opt opts_agent[] = {
    {"company", 0, "NAME", "of which company", O_COMPANY},
    {"adapter", 0, "TYPE", "add: claude_local (default), codex_local, process, ...", O_ADAPTER},
    {"user", 0, "NAME", "add: the user it works for", O_USER},
    {"configure", 0, NULL, "add: it may configure other agents of its company", O_CONFIGURE},
    {"status", 0, "STATUS", "set: active, paused, pending_approval or terminated", O_STATUS},
    {NULL, 0, NULL, NULL, 0},
};
const struct opt opts_project[] = {
    {"company", 0, "NAME", "of which company", O_COMPANY},
    {NULL, 0, NULL, NULL, 0},
};
const struct opt opts_token[] = {
    {"user", 0, "NAME", "create: a board key of this user", O_USER},
    {"agent", 0, "NAME", "create, run: of this agent (name or id)", O_AGENT},
    {"company", 0, "NAME", "with --agent: of which company", O_COMPANY},
    {"expires", 0, "TIME", "create, run: good for so long (create: no end; run: 2d)", O_EXPIRES},
    {"label", 0, "TEXT", "create: what it is for", O_LABEL},
    {"run", 0, "ID", "run: the run that the token proves", O_RUN},
    {NULL, 0, NULL, NULL, 0},
};

static int set(void *arg, const struct opt *o, const char *value, struct err *e)
{
	struct opts *v = arg;
	const char **at = NULL;

	switch (o->id) {
	case O_COMPANY:
		at = &v->company;
		break;
	case O_USER:
		at = &v->user;
		break;
	case O_AGENT:
		at = &v->agent;
		break;
	case O_ADAPTER:
		at = &v->adapter;
		break;
	case O_ROLE:
		at = &v->role;
		break;
	case O_LABEL:
		at = &v->label;
		break;
	case O_RUN:
		at = &v->run;
		break;
	case O_STATUS:
		at = &v->status;
		break;
	case O_ADMIN:
		v->admin = true;
		break;
	case O_CONFIGURE:
		v->configure = true;
		break;
	case O_EXPIRES:
		if (str_to_duration(value, &v->expires_ns) < 0 || v->expires_ns <= 0)
			return err_set(e, ERR_USAGE,
				       "--expires wants a time such as 90d or 12h, not %.40s",
				       value);
		break;
	default:
		return err_set(e, ERR_INTERNAL, "option %s is not handled", o->name);
	}
	if (at)
		*at = value;
	return 0;
}

/* The daemon's database, opened; the state directory is made if there is none. */
struct place_of_state {
	struct state st;
	struct db *db;
};

static void place_done(struct place_of_state *p)
{
	db_close(p->db);
	state_done(&p->st);
}

static int place_open(struct place_of_state *p, struct err *e)
{
	_cleanup_free_ char *path = NULL;
	int r = state_open(&p->st, e);

	if (r == 0 && asprintf(&path, "%s/%s", p->st.dir, API_DB) < 0) {
		path = NULL;
		r = err_set(e, ERR_NOMEM, "state directory: out of memory");
	}
	return r < 0 ? r : db_open_server(path, &p->db, e);
}

struct command {
	const char *word;
	size_t names; /* words behind it */
	int (*run)(struct place_of_state *p, char **names, const struct opts *o, struct err *e);
};

static int need(const char *what, const char *value, struct err *e)
{
	return value ? 0 : err_set(e, ERR_USAGE, "this needs --%s", what);
}

/* Parses, finds the command, opens the database, runs it. */
static int operate(const char *verb, const struct opt *table, const struct command *commands,
		   int argc, char **argv)
{
	const struct opt *const tables[] = {table, opts_help, NULL};
	struct opts o = {0};
	struct opt_parse p = {
	    .tables = tables, .verb = verb, .permute = true, .set = set, .arg = &o};
	struct place_of_state at = {0};
	struct err e = ERR_INIT;
	size_t n;
	int r;

	if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0))
		return cmd_help(2, (char *[]){(char *)(uintptr_t) "help", argv[0]});
	r = opt_parse(&p, argc - 1, argv + 1, &e);
	n = strv_len(p.words);
	if (r == 0) {
		while (commands->word && (n == 0 || strcmp(commands->word, p.words[0]) != 0 ||
					  commands->names != n - 1))
			commands++;
		r = commands->word
			? place_open(&at, &e)
			: err_set(&e, ERR_USAGE, "'airlock help %s' says what it wants", verb);
	}
	if (r == 0)
		r = commands->run(&at, p.words + 1, &o, &e);
	place_done(&at);
	strv_free(p.words);
	return r < 0 ? cli_fail(&e) : 0;
}

/* --- companies ---------------------------------------------------------------------------- */

static int company_new(struct place_of_state *p, char **names, const struct opts *o, struct err *e)
{
	struct company_row c = {0};
	int r = tenant_check_name("company", names[0], e);

	(void)o;
	(void)snprintf(c.name, sizeof(c.name), "%s", names[0]);
	if (r == 0)
		r = company_add(p->db, &c, e);
	if (r == 0)
		r = environment_ensure_local(p->db, e);
	if (r == 0)
		(void)printf("%s\n", c.id);
	return r;
}

static int print_company(void *arg, const struct company_row *c)
{
	(void)arg;
	(void)printf("%s  ", c->id);
	ui_print_name(c->name);
	(void)putchar('\n');
	return 0;
}

static int company_ls(struct place_of_state *p, char **names, const struct opts *o, struct err *e)
{
	(void)names;
	(void)o;
	return company_each(p->db, print_company, NULL, e);
}

static int company_rm(struct place_of_state *p, char **names, const struct opts *o, struct err *e)
{
	struct company_row c;
	int r = company_find(p->db, names[0], &c, e);

	(void)o;
	if (r == 0)
		r = company_idle(p->db, c.id, e);
	return r < 0 ? r : company_remove(p->db, c.id, e);
}

int cmd_company(int argc, char **argv)
{
	static const struct command commands[] = {
	    {"add", 1, company_new}, {"list", 0, company_ls}, {"rm", 1, company_rm}, {0}};
	static const struct opt none[] = {{NULL, 0, NULL, NULL, 0}};

	return operate("company", none, commands, argc, argv);
}

/* --- users -------------------------------------------------------------------------------- */

static int check_role(const char *role, struct err *e)
{
	static const char *const roles[] = {"owner", "member", "viewer"};

	for (size_t i = 0; i < ARRAY_LEN(roles); i++)
		if (strcmp(roles[i], role) == 0)
			return 0;
	return err_set(e, ERR_USAGE, "--role is owner, member or viewer, not %.40s", role);
}

static int join(struct place_of_state *p, const char *user_id, const struct opts *o, struct err *e)
{
	const char *role = o->role ? o->role : "member";
	struct company_row c;
	int r = company_find(p->db, o->company, &c, e);

	if (r == 0)
		r = check_role(role, e);
	return r < 0 ? r : membership_put(p->db, c.id, user_id, role, e);
}

static int user_new(struct place_of_state *p, char **names, const struct opts *o, struct err *e)
{
	struct user_row u = {.admin = o->admin};
	int r = tenant_check_name("user", names[0], e);

	(void)snprintf(u.name, sizeof(u.name), "%s", names[0]);
	if (r == 0)
		r = db_begin(p->db, e);
	if (r < 0)
		return r;
	r = user_add(p->db, &u, e);
	if (r == 0 && o->company)
		r = join(p, u.id, o, e);
	r = db_end(p->db, r, e);
	if (r == 0)
		(void)printf("%s\n", u.id);
	return r;
}

static int print_user(void *arg, const struct user_row *u)
{
	(void)arg;
	(void)printf("%s  %-5s  ", u->id, u->admin ? "admin" : "-");
	ui_print_name(u->name);
	(void)putchar('\n');
	return 0;
}

static int user_ls(struct place_of_state *p, char **names, const struct opts *o, struct err *e)
{
	(void)names;
	(void)o;
	return user_each(p->db, print_user, NULL, e);
}

static int user_join(struct place_of_state *p, char **names, const struct opts *o, struct err *e)
{
	struct user_row u;
	int r = need("company", o->company, e);

	if (r == 0)
		r = user_find(p->db, names[0], &u, e);
	return r < 0 ? r : join(p, u.id, o, e);
}

static int user_leave(struct place_of_state *p, char **names, const struct opts *o, struct err *e)
{
	struct company_row c;
	struct user_row u;
	int r = need("company", o->company, e);

	if (r == 0)
		r = user_find(p->db, names[0], &u, e);
	if (r == 0)
		r = company_find(p->db, o->company, &c, e);
	return r < 0 ? r : membership_put(p->db, c.id, u.id, "", e);
}

static int promote(struct place_of_state *p, const char *name, bool admin, struct err *e)
{
	struct user_row u;
	int r = user_find(p->db, name, &u, e);

	return r < 0 ? r : user_set_admin(p->db, u.id, admin, e);
}

static int user_promote(struct place_of_state *p, char **names, const struct opts *o, struct err *e)
{
	(void)o;
	return promote(p, names[0], true, e);
}

static int user_demote(struct place_of_state *p, char **names, const struct opts *o, struct err *e)
{
	(void)o;
	return promote(p, names[0], false, e);
}

static int user_rm(struct place_of_state *p, char **names, const struct opts *o, struct err *e)
{
	struct user_row u;
	int r = user_find(p->db, names[0], &u, e);

	(void)o;
	return r < 0 ? r : user_remove(p->db, u.id, e);
}

int cmd_user(int argc, char **argv)
{
	static const struct command commands[] = {
	    {"add", 1, user_new},	  {"list", 0, user_ls},
	    {"join", 1, user_join},	  {"leave", 1, user_leave},
	    {"promote", 1, user_promote}, {"demote", 1, user_demote},
	    {"rm", 1, user_rm},		  {0}};

	return operate("user", opts_user, commands, argc, argv);
}

/* --- agents, projects --------------------------------------------------------------------- */

static int agent_new(struct place_of_state *p, char **names, const struct opts *o, struct err *e)
{
	struct agent_row a = {.status = "active", .configure = o->configure};
	const char *adapter = o->adapter ? o->adapter : "claude_local";
	struct company_row c;
	struct user_row u;
	int r = need("company", o->company, e);

	if (r == 0)
		r = tenant_check_name("agent", names[0], e);
	if (r == 0 && !adapter_known(adapter))
		r = err_set(e, ERR_INVALID, "the adapter %.40s is not known", adapter);
	if (r == 0)
		r = company_find(p->db, o->company, &c, e);
	if (r == 0 && o->user) {
		r = user_find(p->db, o->user, &u, e);
		if (r == 0)
			memcpy(a.user_id, u.id, sizeof(a.user_id));
	}
	if (r < 0)
		return r;
	memcpy(a.company_id, c.id, sizeof(a.company_id));
	(void)snprintf(a.name, sizeof(a.name), "%s", names[0]);
	(void)snprintf(a.adapter, sizeof(a.adapter), "%s", adapter);
	r = agent_add(p->db, &a, e);
	if (r == 0)
		(void)printf("%s\n", a.id);
	return r;
}

static int print_agent(void *arg, const struct agent_row *a)
{
	(void)arg;
	(void)printf("%s  %s  %-16s %-16s ", a->id, a->company_id, a->adapter, a->status);
	ui_print_name(a->name);
	(void)putchar('\n');
	return 0;
}

/* Id of --company, or NULL. */
static int company_id(struct place_of_state *p, const struct opts *o, struct company_row *c,
		      const char **ret, struct err *e)
{
	int r = o->company ? company_find(p->db, o->company, c, e) : 0;

	*ret = o->company ? c->id : NULL;
	return r;
}

static int agent_ls(struct place_of_state *p, char **names, const struct opts *o, struct err *e)
{
	struct company_row c;
	const char *id;
	int r = company_id(p, o, &c, &id, e);

	(void)names;
	return r < 0 ? r : agent_each(p->db, id, print_agent, NULL, e);
}

static int agent_set(struct place_of_state *p, char **names, const struct opts *o, struct err *e)
{
	static const char *const all[] = {"active", "paused", "pending_approval", "terminated"};
	struct agent_row a;
	struct company_row c;
	const char *id;
	bool known = false;
	int r = need("status", o->status, e);

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(all); i++)
		known = known || strcmp(all[i], o->status) == 0;
	if (r == 0 && !known)
		r = err_set(e, ERR_USAGE,
			    "--status is active, paused, pending_approval or terminated, not %.40s",
			    o->status);
	if (r == 0)
		r = company_id(p, o, &c, &id, e);
	if (r == 0)
		r = agent_find(p->db, id, names[0], &a, e);
	if (r < 0)
		return r;
	(void)snprintf(a.status, sizeof(a.status), "%s", o->status);
	return agent_save(p->db, &a, e);
}

int cmd_agent(int argc, char **argv)
{
	static const struct command commands[] = {
	    {"add", 1, agent_new}, {"list", 0, agent_ls}, {"set", 1, agent_set}, {0}};

	return operate("agent", opts_agent, commands, argc, argv);
}

static int project_new(struct place_of_state *p, char **names, const struct opts *o, struct err *e)
{
	struct project_row row = {0};
	struct company_row c;
	int r = need("company", o->company, e);

	if (r == 0)
		r = tenant_check_name("project", names[0], e);
	if (r == 0)
		r = company_find(p->db, o->company, &c, e);
	if (r < 0)
		return r;
	memcpy(row.company_id, c.id, sizeof(row.company_id));
	(void)snprintf(row.name, sizeof(row.name), "%s", names[0]);
	r = project_add(p->db, &row, e);
	if (r == 0)
		(void)printf("%s\n", row.id);
	return r;
}

static int print_project(void *arg, const struct project_row *row)
{
	(void)arg;
	(void)printf("%s  %s  ", row->id, row->company_id);
	ui_print_name(row->name);
	(void)putchar('\n');
	return 0;
}

static int project_ls(struct place_of_state *p, char **names, const struct opts *o, struct err *e)
{
	struct company_row c;
	const char *id;
	int r = company_id(p, o, &c, &id, e);

	(void)names;
	return r < 0 ? r : project_each(p->db, id, print_project, NULL, e);
}

int cmd_project(int argc, char **argv)
{
	static const struct command commands[] = {
	    {"add", 1, project_new}, {"list", 0, project_ls}, {0}};

	return operate("project", opts_project, commands, argc, argv);
}

/* --- tokens ------------------------------------------------------------------------------- */

static int token_new(struct place_of_state *p, char **names, const struct opts *o, struct err *e)
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
	r = company_id(p, o, &c, &id, e);
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
static int token_run(struct place_of_state *p, char **names, const struct opts *o, struct err *e)
{
	struct jwt_claims k = {.issued_s = clock_real_ns() / NS_PER_S};
	_cleanup_secret_ char *master = NULL;
	_cleanup_free_ char *text = NULL;
	char instance[64];
	struct company_row c;
	struct agent_row a;
	const char *id;
	int r = need("agent", o->agent, e);

	(void)names;
	if (r == 0)
		r = need("run", o->run, e);
	if (r == 0)
		r = company_id(p, o, &c, &id, e);
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

static int token_ls(struct place_of_state *p, char **names, const struct opts *o, struct err *e)
{
	(void)names;
	(void)o;
	return token_each(p->db, print_token, NULL, e);
}

static int token_rm(struct place_of_state *p, char **names, const struct opts *o, struct err *e)
{
	int r = token_revoke(p->db, names[0], e);

	(void)o;
	if (r == 0)
		return err_set(e, ERR_NOT_FOUND,
			       "there is no token %.40s that is still good: 'airlock token list'",
			       names[0]);
	return r < 0 ? r : 0;
}

static int reseal_one(void *arg, const char *id, int64_t version, const char *sealed, char **ret,
		      struct err *e)
{
	_cleanup_secret_ char *plain = NULL;
	int r = seal_get(arg, id, version, sealed, &plain, e);

	return r < 0 ? r : seal_put(arg, id, version, plain, ret, e);
}

static int token_rotate(struct place_of_state *p, char **names, const struct opts *o, struct err *e)
{
	struct secret_reseal how = {.cb = reseal_one};
	struct seal s = {0};
	int64_t n = 0;
	int r = seal_open(&s, p->st.dir, e);

	(void)names;
	(void)o;
	if (r == 0)
		r = seal_add_key(&s, p->st.dir, e);
	if (r == 0) {
		how.arg = &s;
		how.key_id = s.v[0].id;
		r = secret_reseal(p->db, &how, &n, e);
	}
	if (r == 0)
		r = seal_drop_old(&s, p->st.dir, e);
	if (r == 0)
		cli_say("%lld secrets are sealed with a new key; restart airlockd if it runs",
			(long long)n);
	seal_done(&s);
	return r;
}

int cmd_token(int argc, char **argv)
{
	static const struct command commands[] = {{"create", 0, token_new},
						  {"run", 0, token_run},
						  {"list", 0, token_ls},
						  {"revoke", 1, token_rm},
						  {"rotate-seal", 0, token_rotate},
						  {0}};

	return operate("token", opts_token, commands, argc, argv);
}

/* --- serve -------------------------------------------------------------------------------- */

static int set_nothing(void *arg, const struct opt *o, const char *value, struct err *e)
{
	(void)value;
	(void)e;
	if (strcmp(o->name, "help") == 0)
		*(bool *)arg = true;
	return 0;
}

int cmd_serve(int argc, char **argv)
{
	static const struct opt *const tables[] = {opts_serve, opts_help, NULL};
	static char name[] = "airlockd";
	_cleanup_free_ char *path = NULL;
	struct err e = ERR_INIT;
	bool help = false;
	struct opt_parse p = {.tables = tables, .verb = "serve", .set = set_nothing, .arg = &help};
	int r = opt_parse(&p, argc - 1, argv + 1, &e);

	if (r == 0 && strv_len(p.words))
		r = err_set(&e, ERR_USAGE, "serve takes options only, not the word %.80s",
			    p.words[0]);
	strv_free(p.words);
	if (r == 0 && help)
		return cmd_help(2, (char *[]){(char *)(uintptr_t) "help", argv[0]});
	if (r == 0)
		r = self_helper("airlockd", &path, &e);
	if (r < 0)
		return cli_fail(&e);
	argv[0] = name;
	(void)execv(path, argv);
	(void)err_sys(&e, errno, "start %s", path);
	return cli_fail(&e);
}
