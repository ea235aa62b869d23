/* airlockd_options.c: the daemon's options; what they mean is said where they are used. */
#include "prog/airlockd_options.h"

#include <pwd.h>
#include <stdlib.h>
#include <string.h>

#include "api/managed.h"
#include "api/runs.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "policy/origin.h"

const char options_usage[] =
    "Usage: airlockd [options]\n\n"
    "Serves the API for operators of environments. Stops on SIGTERM, after the requests under way.\n\n"
    "  --listen ADDRESS     127.0.0.1:PORT, [::1]:PORT or unix:/PATH (default " DEFAULT_LISTEN
    ");\n"
    "                       not used when systemd hands over a socket\n"
    "  --mode MODE          local_trusted (default): the daemon's own user and root are the local\n"
    "                       board, over a unix socket whoever can connect;\n"
    "                       authenticated: every request needs a key, a session or a run token\n"
    "  --tls-cert FILE, --tls-key FILE\n"
    "                       speak TLS with this chain and key (PEM, read again on SIGHUP); with --mode\n"
    "                       authenticated --listen may then be any ADDRESS:PORT of this host\n"
    "  --public-url URL     origin under which browsers reach the daemon\n"
    "  --host NAME          further name that a Host header may have (local_trusted; repeatable)\n"
    "  --trust-user USER    name or number of a further user whose processes are the local board\n"
    "                       (local_trusted over TCP; repeatable)\n"
    "  --workspace-root NAME=/DIRECTORY\n"
    "                       directories below it may be workspaces of runs through the API, for every\n"
    "                       company, or with COMPANY-ID/NAME for one (repeatable); none: no such runs\n"
    "  --local-runs         environments of driver local may run commands through the API: on this host,\n"
    "                       as the daemon's own user, without isolation\n"
    "  --no-recover         work that earlier runs left waits for who asks for it; else a daemon that starts\n"
    "                       brings it back\n"
    "  --secrets-strict     credentials among envVars must be secret references\n"
    "  --cloud-managed      rows with a platform marker are the platform's\n"
    "  --managed-config FILE\n"
    "                       document of the platform, read whenever it matters: its rows need no\n"
    "                       recorded probe while this names their provider; with --cloud-managed\n"
    "  --access-map         print what agents may do, and what the tests of this build said of it, and end;\n"
    "                       with --json as JSON\n"
    "  --openapi            print the OpenAPI document and end\n"
    "  --help, --version\n";

static int set_mode(struct options *o, const char *v, struct err *e)
{
	if (strcmp(v, "local_trusted") == 0)
		o->cfg.mode = MODE_LOCAL_TRUSTED;
	else if (strcmp(v, "authenticated") == 0)
		o->cfg.mode = MODE_AUTHENTICATED;
	else
		return err_set(e, ERR_USAGE, "--mode is local_trusted or authenticated, not %.40s",
			       v);
	return 0;
}

static int set_public(struct options *o, const char *v, struct err *e)
{
	struct origin origin;
	int r = origin_parse(v, &origin, e);

	if (r < 0)
		return r;
	if (origin.scheme == ORIGIN_UNIX || v[strlen(v) - 1] == '/')
		return err_set(e, ERR_USAGE,
			       "--public-url is http(s)://NAME[:PORT] without a slash at its end");
	o->cfg.public_url = v;
	return 0;
}

static int add_host(struct options *o, const char *v, struct err *e)
{
	if (o->hosts_len == HOSTS_MAX)
		return err_set(e, ERR_USAGE, "--host comes at most %d times", HOSTS_MAX);
	o->hosts[o->hosts_len++] = v;
	return 0;
}

static int add_trusted(struct options *o, const char *v, struct err *e)
{
	struct peer_users *t = &o->cfg.trusted;
	const struct passwd *p = getpwnam(v);
	uint64_t uid = p ? p->pw_uid : 0;

	if (!p && str_to_u64(v, UINT32_MAX - 1, &uid) < 0)
		return err_set(e, ERR_USAGE, "--trust-user %.80s: there is no such user", v);
	if (t->n == PEER_USERS_MAX)
		return err_set(e, ERR_USAGE, "--trust-user comes at most %d times", PEER_USERS_MAX);
	t->uid[t->n++] = (uid_t)uid;
	return 0;
}

static int set_listen(struct options *o, const char *v, struct err *e)
{
	(void)e;
	o->listen = v;
	return 0;
}

static int add_root(struct options *o, const char *v, struct err *e)
{
	return runs_add_root(&o->cfg, v, e);
}

static int set_cert(struct options *o, const char *v, struct err *e)
{
	(void)e;
	o->cfg.tls_cert = v;
	return 0;
}

static int set_key(struct options *o, const char *v, struct err *e)
{
	(void)e;
	o->cfg.tls_key = v;
	return 0;
}

static int set_managed(struct options *o, const char *v, struct err *e)
{
	o->cfg.managed_config = v;
	o->cfg.cloud_managed = true;
	return managed_check(v, e);
}

static const struct {
	const char *name;
	int (*set)(struct options *o, const char *v, struct err *e);
} valued[] = {
    {"--listen", set_listen},
    {"--mode", set_mode},
    {"--public-url", set_public},
    {"--host", add_host},
    {"--trust-user", add_trusted},
    {"--workspace-root", add_root},
    {"--managed-config", set_managed},
    {"--tls-cert", set_cert},
    {"--tls-key", set_key},
};

/* The flag of that name, or NULL. */
static bool *flag_of(struct options *o, const char *a, size_t n)
{
	const struct {
		const char *name;
		bool *at;
	} flags[] = {
	    {"--secrets-strict", &o->cfg.secrets_strict},
	    {"--local-runs", &o->cfg.local_runs},
	    {"--no-recover", &o->cfg.no_recover},
	    {"--cloud-managed", &o->cfg.cloud_managed},
	    {"--openapi", &o->openapi},
	    {"--access-map", &o->access_map},
	    {"--json", &o->json},
	    {"--job", &o->job},
	    {"--help", &o->help},
	    {"-h", &o->help},
	};

	for (size_t i = 0; i < ARRAY_LEN(flags); i++)
		if (strlen(flags[i].name) == n && strncmp(a, flags[i].name, n) == 0)
			return flags[i].at;
	return NULL;
}

static int set_value(struct options *o, const char *a, size_t n, const char *v, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(valued); i++) {
		if (strlen(valued[i].name) != n || strncmp(a, valued[i].name, n) != 0)
			continue;
		return v ? valued[i].set(o, v, e)
			 : err_set(e, ERR_USAGE, "%s needs a value", valued[i].name);
	}
	return err_set(e, ERR_USAGE, "there is no option %.60s: 'airlockd --help' lists them", a);
}

int options_parse(struct options *o, int argc, char **argv, struct err *e)
{
	int r = 0;

	for (int i = 1; r == 0 && i < argc; i++) {
		const char *a = argv[i], *eq = strchr(a, '='), *v = eq ? eq + 1 : NULL;
		size_t n = eq ? (size_t)(eq - a) : strlen(a);
		bool *flag = flag_of(o, a, n);

		if (flag && v)
			return err_set(e, ERR_USAGE, "%.*s takes no value", (int)n, a);
		if (flag) {
			*flag = true;
			continue;
		}
		if (!v && i + 1 < argc)
			v = argv[++i];
		r = set_value(o, a, n, v, e);
	}
	return r;
}
