/*
 * serve, access-map, company, user, agent, project, token: what an operator sets up for airlockd, on the host itself.
 *
 * These verbs work on the daemon's database directly: whoever may write the state directory is the operator. A new token is
 * printed once, alone on stdout; what is kept is its digest.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/api.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "cli/operator_internal.h"
#include "os/self.h"

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

const struct opt opts_serve[] = {
    {"listen", 0, "ADDRESS", "127.0.0.1:PORT, [::1]:PORT or unix:/PATH (127.0.0.1:3100)", 1},
    {"mode", 0, "MODE", "local_trusted (default) or authenticated", 2},
    {"tls-cert", 0, "FILE", "speak TLS with this chain of certificates (PEM)", 11},
    {"tls-key", 0, "FILE", "and this key", 12},
    {"public-url", 0, "URL", "origin under which browsers reach the daemon", 3},
    {"host", 0, "NAME", "further name that a Host header may have (repeatable)", 4},
    {"trust-user", 0, "USER", "further user who is the local board over TCP (repeatable)", 5},
    {"workspace-root", 0, "NAME=DIR", "below it workspaces of runs may lie (repeatable)", 8},
    {"local-runs", 0, NULL, "local environments may run commands here, without isolation", 10},
    {"no-recover", 0, NULL, "work that earlier runs left waits for who asks for it", 13},
    {"secrets-strict", 0, NULL, "credentials among envVars must be secret references", 6},
    {"cloud-managed", 0, NULL, "rows with a platform marker are the platform's", 7},
    {"managed-config", 0, "FILE", "document of the platform that manages this instance", 9},
    {NULL, 0, NULL, NULL, 0},
};
const struct opt opts_access_map[] = {
    {"json", 0, NULL, "as the daemon serves it", 1},
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
	struct operator_opts *v = arg;
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

static void place_done(struct operator_place *p)
{
	db_close(p->db);
	state_done(&p->st);
}

static int place_open(struct operator_place *p, struct err *e)
{
	_cleanup_free_ char *path = NULL;
	int r = state_open(&p->st, e);

	if (r == 0 && asprintf(&path, "%s/%s", p->st.dir, API_DB) < 0) {
		path = NULL;
		r = err_set(e, ERR_NOMEM, "state directory: out of memory");
	}
	return r < 0 ? r : db_open_server(path, &p->db, e);
}

int operator_need(const char *what, const char *value, struct err *e)
{
	return value ? 0 : err_set(e, ERR_USAGE, "this needs --%s", what);
}

int operator_run(const char *verb, const struct opt *table, const struct operator_command *commands,
		 int argc, char **argv)
{
	const struct opt *const tables[] = {table, opts_help, NULL};
	struct operator_opts o = {0};
	struct opt_parse p = {
	    .tables = tables, .verb = verb, .permute = true, .set = set, .arg = &o};
	struct operator_place at = {0};
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

/* --- serve -------------------------------------------------------------------------------- */

static int set_nothing(void *arg, const struct opt *o, const char *value, struct err *e)
{
	(void)value;
	(void)e;
	if (strcmp(o->name, "help") == 0)
		*(bool *)arg = true;
	return 0;
}

/* Becomes airlockd: no return but for a failure. */
static int become_daemon(char **argv, struct err *e)
{
	static char name[] = "airlockd";
	_cleanup_free_ char *path = NULL;
	int r = self_helper(name, &path, e);

	if (r < 0)
		return r;
	argv[0] = name;
	(void)execv(path, argv);
	return err_sys(e, errno, "start %s", path);
}

int cmd_serve(int argc, char **argv)
{
	static const struct opt *const tables[] = {opts_serve, opts_help, NULL};
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
		r = become_daemon(argv, &e);
	return r < 0 ? cli_fail(&e) : 0;
}

/* --- access-map --------------------------------------------------------------------------- */

struct map_opts {
	bool json, help;
};

static int set_map(void *arg, const struct opt *o, const char *value, struct err *e)
{
	struct map_opts *m = arg;

	(void)value;
	(void)e;
	if (strcmp(o->name, "help") == 0)
		m->help = true;
	else
		m->json = true;
	return 0;
}

/* The daemon's program prints it: the map is of that build, and this one has no route table. */
int cmd_access_map(int argc, char **argv)
{
	static const struct opt *const tables[] = {opts_access_map, opts_help, NULL};
	static char map[] = "--access-map", json[] = "--json";
	struct err e = ERR_INIT;
	struct map_opts m = {0};
	struct opt_parse p = {.tables = tables, .verb = "access-map", .set = set_map, .arg = &m};
	char *words[] = {NULL, map, NULL, NULL};
	int r = opt_parse(&p, argc - 1, argv + 1, &e);

	if (r == 0 && strv_len(p.words))
		r = err_set(&e, ERR_USAGE, "access-map takes options only, not the word %.80s",
			    p.words[0]);
	strv_free(p.words);
	if (r == 0 && m.help)
		return cmd_help(2, (char *[]){(char *)(uintptr_t) "help", argv[0]});
	words[2] = m.json ? json : NULL;
	if (r == 0)
		r = become_daemon(words, &e);
	return r < 0 ? cli_fail(&e) : 0;
}
