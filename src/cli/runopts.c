#include "cli/runopts_internal.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/str.h"
#include "bridge/proxy_proto.h"
#include "cli/cli.h"
#include "policy/netrule.h"
#include "store/env.h"

static int bad(struct err *e, const struct opt *o, const char *v, const char *what)
{
	return err_set(e, ERR_USAGE, "--%s %.120s: %s", o->name, v, what);
}

static void source(const struct runopts *o, const struct opt *opt, char out[SOURCE_MAX])
{
	if (o->layer[0])
		(void)snprintf(out, SOURCE_MAX, "%s, --%s", o->layer, opt->name);
	else
		(void)snprintf(out, SOURCE_MAX, "option --%s", opt->name);
}

static int set_number(struct runopts *o, const struct opt *opt, const char *v, struct err *e)
{
	struct request *q = &o->req;
	struct setting *s = &q->pids;
	int64_t ns = 0;
	uint64_t n = 0;
	int r;

	switch (opt->id) {
	case O_TIMEOUT:
		s = &q->timeout;
		r = str_to_duration(v, &ns);
		n = (uint64_t)ns;
		if (r < 0)
			return bad(
			    e, opt, v,
			    "not a time: give 90, 1.5, 250ms, 30s, 10m, 2h or 1d; 0 for none");
		break;
	case O_MEMORY:
	case O_LOG_LIMIT:
		s = opt->id == O_MEMORY ? &q->memory : &q->log_limit;
		r = str_to_size(v, &n);
		if (r < 0 || (opt->id == O_MEMORY && n && n < (1 << 20)))
			return bad(
			    e, opt, v,
			    opt->id == O_MEMORY
				? "not a size: give 64M, 1.5G or bytes, at least 1M; 0 for none"
				: "not a size: give 64M, 1.5G or bytes; 0 keeps all");
		break;
	case O_CPUS:
		s = &q->cpu;
		/* A number of seconds has the same syntax as a number of CPUs; one is 10^9, the other 1000. */
		r = strpbrk(v, "smhd") ? -EINVAL : str_to_duration(v, &ns);
		n = (uint64_t)ns / 1000000;
		if (r < 0 || n < 10 || n > 1024 * 1000)
			return bad(e, opt, v, "not a number of CPUs: give 0.01 to 1024");
		break;
	default:
		r = str_to_u64(v, 4194304, &n);
		if (r < 0 || n < 4)
			return bad(
			    e, opt, v,
			    "not a number of processes: give 4 to 4194304 (there is always a limit)");
	}
	s->v = n;
	source(o, opt, s->source);
	return 0;
}

static int pick(struct err *e, const struct opt *o, const char *v, const char *const *words,
		size_t n)
{
	struct buf b = BUF_INIT(512);
	int r;

	for (size_t i = 0; i < n; i++)
		if (strcmp(v, words[i]) == 0)
			return (int)i;
	for (size_t i = 0; i < n; i++)
		(void)buf_putf(&b, "%s%s", i ? ", " : "", words[i]);
	r = err_set(e, ERR_USAGE, "--%s %.120s: give one of %s", o->name, v, buf_text(&b));
	buf_done(&b);
	return r;
}

static int set_choice(struct runopts *o, const struct opt *opt, const char *v, struct err *e)
{
	static const char *const shells[] = {"sh", "bash"};
	static const char *const gits[] = {"shallow", "none", "full"}, *const conflicts[] = {
									   "keep-host",
									   "take-sandbox"};
	static const char *const outs[] = {"changes", "tar"};
	static const char *const transports[] = {"http2", "queue", "direct"};
	static const char *const layers[] = {"cgroup", "landlock", "seccomp", "overlay"};
	int k;

	switch (opt->id) {
	case O_SHELL:
		k = pick(e, opt, v, shells, ARRAY_LEN(shells));
		o->req.bash = k == 1;
		return k < 0 ? k : 0;
	case O_GIT:
		k = pick(e, opt, v, gits, ARRAY_LEN(gits));
		o->req.git = k < 0 ? GIT_SHALLOW : (enum git_policy)k;
		return k < 0 ? k : 0;
	case O_SYNC_OUT:
		k = pick(e, opt, v, outs, ARRAY_LEN(outs));
		o->req.by_tar = k == 1;
		return k < 0 ? k : 0;
	case O_API_TRANSPORT:
		k = pick(e, opt, v, transports, ARRAY_LEN(transports));
		o->req.api.transport = k < 0 ? API_BEST : API_HTTP2 + (enum api_transport)k;
		return k < 0 ? k : 0;
	case O_CONFLICT:
		k = pick(e, opt, v, conflicts, ARRAY_LEN(conflicts));
		o->req.on_conflict = k == 1 ? CONFLICT_TAKE_SANDBOX : CONFLICT_KEEP_HOST;
		return k < 0 ? k : 0;
	default:
		k = pick(e, opt, v, layers, ARRAY_LEN(layers));
		if (k >= 0)
			o->req.without |= 1u << k;
		return k < 0 ? k : 0;
	}
}

int runopts_replace(char **to, const char *v, struct err *e)
{
	char *d = strdup(v);

	if (!d)
		return err_set(e, ERR_NOMEM, "options: out of memory");
	free(*to);
	*to = d;
	return 0;
}

int runopts_add(char ***to, const char *v, struct err *e)
{
	return strv_add(to, v) < 0 ? err_set(e, ERR_NOMEM, "options: out of memory") : 0;
}

/* What is less than a second is one: 0 has a meaning of its own. */
static int add_grace(struct runopts *o, const struct opt *opt, const char *v, struct err *e)
{
	char text[40];
	int64_t ns;

	if (str_to_duration(v, &ns) < 0 || ns > REMOTE_GRACE_MAX_S * NS_PER_S)
		return bad(e, opt, v, "give a time of at most one day, such as 30s or 5m; 0: none");
	(void)snprintf(text, sizeof(text), "grace=%lld",
		       (long long)((ns + NS_PER_S - 1) / NS_PER_S));
	return runopts_add(&o->ssh_words, text, e);
}

/* A word of provider/ssh/target.h; the last of a kind counts. Files are named as seen from here, now. */
static int set_remote(struct runopts *o, const struct opt *opt, const char *v, struct err *e)
{
	static const char *const kinds[] = {
	    "", "key=", "known-hosts=", "config=", "jump=", "guest=", "max-runs="};
	const char *kind = kinds[opt->id - O_SSH];
	_cleanup_free_ char *file = NULL, *text = NULL;

	if (opt->id == O_SSH)
		return runopts_replace(&o->ssh, v, e);
	if (opt->id == O_SSH_GRACE)
		return add_grace(o, opt, v, e);
	if (opt->id != O_SSH_JUMP && opt->id != O_SSH_GUEST && opt->id != O_SSH_MAX_RUNS) {
		file = realpath(v, NULL);
		if (!file)
			return err_sys(e, errno, "--%s %s", opt->name, v);
	}
	if (asprintf(&text, "%s%s", kind, file ? file : v) < 0) {
		text = NULL;
		return err_set(e, ERR_NOMEM, "options: out of memory");
	}
	return runopts_add(&o->ssh_words, text, e);
}

/* none and host are a new beginning; allow adds to an allow-list that is there. */
static int set_net(struct runopts *o, const struct opt *opt, const char *v, struct err *e)
{
	_cleanup_free_ char *list = NULL;
	char *at, *word;
	int r = 0;

	o->net_given = true;
	source(o, opt, o->req.net_source);
	o->req.net = strcmp(v, "host") == 0 ? NET_HOST : NET_NONE;
	if (strcmp(v, "host") == 0 || strcmp(v, "none") == 0) {
		strv_free(TAKE_PTR(o->req.net_allow));
		return 0;
	}
	if (!str_starts(v, "allow=") || !v[6])
		return bad(e, opt, v, "give none, host or allow=HOST[:PORT],...");
	list = strdup(v + 6);
	if (!list)
		return err_set(e, ERR_NOMEM, "options: out of memory");
	for (at = list; r == 0 && (word = strsep(&at, ",")) != NULL;) {
		struct net_rule rule;

		r = net_rule_parse(word, &rule, e);
		if (r == 0)
			r = runopts_add(&o->req.net_allow, word, e);
	}
	if (r == 0 && strv_len(o->req.net_allow) > PROXY_RULES_MAX)
		r = err_set(e, ERR_LIMIT, "--net allow: more than %d hosts", PROXY_RULES_MAX);
	return r;
}

static int add_pin(struct runopts *o, const char *v, struct err *e)
{
	struct net_pin pin;
	int r = net_pin_parse(v, &pin, e);

	if (r == 0 && strv_len(o->req.net_pins) == PROXY_RULES_MAX)
		r = err_set(e, ERR_LIMIT, "--resolve: more than %d", PROXY_RULES_MAX);
	return r < 0 ? r : runopts_add(&o->req.net_pins, v, e);
}

static void set_flag(struct runopts *o, int id)
{
	switch (id) {
	case O_NO_PRESET:
		o->no_preset = true;
		break;
	case O_REMOTE_SANDBOX:
		o->remote_sandbox = true;
		break;
	case O_IN_PLACE:
		o->in_place = true;
		break;
	case O_TTY:
		o->req.tty = true;
		break;
	case O_KEEP:
		o->req.keep = true;
		break;
	case O_STRICT:
		o->req.strict = true;
		break;
	case O_REVIEW:
		o->req.review = true;
		break;
	case O_QUIET:
		o->quiet = true;
		break;
	case O_HELP:
		o->help = true;
		break;
	case O_JSON:
		o->json = true;
		break;
	default:
		break;
	}
}

static int set(void *arg, const struct opt *opt, const char *v, struct err *e)
{
	struct runopts *o = arg;

	if (!o->layer[0] && runopts_add(&o->given, opt->name, e) < 0)
		return -ENOMEM;
	if (!v) {
		if (opt->id == O_SSH_COMPRESS)
			return runopts_add(&o->ssh_words, "compress=yes", e);
		if (opt->id == O_SSH_NO_BASE)
			return runopts_add(&o->ssh_words, "base=none", e);
		set_flag(o, opt->id);
		return 0;
	}
	if (!*v && opt->id != O_INSTALL)
		return err_set(e, ERR_USAGE, "--%s needs a value that is not empty", opt->name);
	switch (opt->id) {
	case O_WORKSPACE:
		return runopts_replace(&o->workspace, v, e);
	case O_ENV:
		if (o->layer[0])
			return err_set(e, ERR_INVALID,
				       "--env cannot be part of a named environment");
		return runopts_replace(&o->env_name, v, e);
	case O_PROVIDER:
		return runopts_replace(&o->provider, v, e);
	case O_IMAGE:
		return runopts_replace(&o->image, v, e);
	case O_SSH:
	case O_SSH_KEY:
	case O_SSH_HOSTS:
	case O_SSH_CONFIG:
	case O_SSH_JUMP:
	case O_SSH_GUEST:
	case O_SSH_MAX_RUNS:
	case O_SSH_GRACE:
		return set_remote(o, opt, v, e);
	case O_SETENV:
		return runopts_add(&o->vars, v, e);
	case O_ENV_FILE:
		return runopts_add(&o->env_files, v, e);
	case O_BIND:
		return runopts_add(&o->binds, v, e);
	case O_MAP:
		return runopts_add(&o->map_words, v, e);
	case O_INCLUDE:
		return runopts_add(&o->req.include, v, e);
	case O_EXCLUDE:
		return runopts_add(&o->req.exclude, v, e);
	case O_CLI:
		return runopts_add(&o->req.clis, v, e);
	case O_INSTALL:
		return runopts_replace(&o->req.install, v, e);
	case O_API:
		return runopts_replace(&o->req.api.url, v, e);
	case O_API_KEY_FILE:
		return runopts_replace(&o->req.api.key_file, v, e);
	case O_API_RUN_ID:
		return runopts_replace(&o->req.api.run_id, v, e);
	case O_POLICY:
		return runopts_replace(&o->req.api.policy, v, e);
	case O_AGENT:
		return runopts_replace(&o->agent, v, e);
	case O_UPSTREAM:
		return runopts_upstream(&o->req, v, e);
	case O_NET:
		return set_net(o, opt, v, e);
	case O_RESOLVE:
		return add_pin(o, v, e);
	case O_JSON:
		o->json = true;
		return runopts_replace(&o->json_file, v, e);
	case O_TIMEOUT:
	case O_MEMORY:
	case O_LOG_LIMIT:
	case O_CPUS:
	case O_PIDS:
		return set_number(o, opt, v, e);
	default:
		return set_choice(o, opt, v, e);
	}
}

/* A named environment's words are parsed first, as a layer of their own. */
static int apply_env(struct runopts *o, struct state *st, struct opt_parse *p, struct err *e)
{
	struct env_row row = {0};
	char **argv = NULL;
	json_t *j = NULL, *w;
	size_t i;
	int r;

	if (strcmp(o->env_name, "native") == 0 || strcmp(o->env_name, "local") == 0)
		return runopts_replace(&o->provider, o->env_name, e);
	r = env_get(st->store, o->env_name, &row, e);
	if (r < 0)
		return r;
	j = json_loads(row.options, 0, NULL);
	json_array_foreach(j, i, w)
	{
		r = runopts_add(&argv, json_string_value(w) ? json_string_value(w) : "", e);
		if (r < 0)
			break;
	}
	(void)snprintf(o->layer, sizeof(o->layer), "environment %s", o->env_name);
	if (r == 0)
		r = opt_parse(p, (int)strv_len(argv), argv, e);
	o->layer[0] = '\0';
	r = err_wrap(e, r, "environment %s", o->env_name);
	json_decref(j);
	strv_free(argv);
	env_row_done(&row);
	return r;
}

static int only_env(void *arg, const struct opt *opt, const char *v, struct err *e)
{
	struct runopts *o = arg;

	if (opt->id == O_HELP)
		o->help = true;
	if (opt->id == O_JSON) {
		o->json = true;
		return v ? runopts_replace(&o->json_file, v, e) : 0;
	}
	return opt->id == O_ENV ? runopts_replace(&o->env_name, v, e) : 0;
}

void runopts_follow_transport(struct request *q)
{
	for (size_t i = 0; i < q->upstreams_len; i++)
		q->upstreams[i].transport = q->api.transport;
}

int runopts_parse(struct runopts *o, struct state *st, const struct opt *const *tables,
		  const char *verb, int argc, char *const *argv, struct err *e)
{
	struct opt_parse p = {.tables = tables, .verb = verb, .set = only_env, .arg = o};
	int r;

	runopts_done(o);
	o->presets = strcmp(verb, "run") == 0;
	request_init(&o->req);
	/* Once for --env alone: its layer lies below the command line's. */
	r = opt_parse(&p, argc, argv, e);
	strv_free(TAKE_PTR(p.words));
	if (r < 0 || o->help)
		return r;
	p.set = set;
	if (o->env_name && st)
		r = apply_env(o, st, &p, e);
	if (r == 0 && p.words)
		r = err_set(e, ERR_INVALID, "environment %s holds words that are not options",
			    o->env_name);
	if (r == 0)
		r = opt_parse(&p, argc, argv, e);
	o->req.argv = TAKE_PTR(p.words);
	if (r == 0 && st && o->req.install && !o->req.clis)
		r = err_set(
		    e, ERR_USAGE,
		    "--install runs only when a --cli is missing, and no --cli was given: add --cli NAME");
	runopts_follow_transport(&o->req);
	if (r == 0 && st && !o->req.api.url &&
	    (o->req.api.key_file || o->req.api.run_id || o->req.api.policy))
		r = err_set(e, ERR_USAGE,
			    "--api-key-file, --api-run-id and --policy belong to --api URL");
	return r < 0 || !st ? r : runopts_resolve(o, st, e);
}

void runopts_done(struct runopts *o)
{
	request_done(&o->req);
	free(o->json_file);
	free(o->workspace);
	free(o->env_name);
	free(o->provider);
	free(o->image);
	free(o->ssh);
	strv_free(o->ssh_words);
	strv_free(o->env_files);
	strv_free(o->vars);
	strv_free(o->binds);
	strv_free(o->map_words);
	strv_free(o->grants);
	strv_free(o->given);
	free(o->agent);
	*o = (struct runopts){0};
}
