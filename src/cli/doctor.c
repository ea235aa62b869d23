#include "cli/cli.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "base/str.h"
#include "cli/doctorssh.h"
#include "os/probe.h"
#include "os/self.h"
#include "provider/provider.h"

#define TEXT_MAX 4096

#define ID_INSIDE 1000 /* when root starts it; on the host it is what the provider's owner() says */

struct opts {
	bool json, quick, help, layers;
	char *place, **words; /* owned: another machine, its other words */
};

enum { D_QUICK = 1, D_JSON, D_SSH, D_KEY, D_KNOWN, D_CONFIG, D_JUMP, D_LAYERS, D_HELP = 0 };

const struct opt opts_doctor[] = {
    {"quick", 0, NULL, "write nothing to disk and start no other program", D_QUICK},
    {"json", 0, NULL, "one JSON object instead of the table", D_JSON},
    {"ssh", 0, "[USER@]HOST[:PORT]:/DIR",
     "look at another machine instead: what 'run --ssh' would find", D_SSH},
    {"ssh-key", 0, "FILE", "with --ssh: the one key to log in with (default: ssh's own)", D_KEY},
    {"ssh-known-hosts", 0, "FILE", "with --ssh: the host keys that count (default: ssh's own)",
     D_KNOWN},
    {"ssh-config", 0, "FILE", "with --ssh: configuration of ssh (default: ~/.ssh/config)",
     D_CONFIG},
    {"ssh-jump", 0, "[USER@]HOST[:PORT]", "with --ssh: the machine to go through", D_JUMP},
    {"remote-sandbox", 0, NULL,
     "with --ssh: also try the layers of a sandbox on that machine (run --remote-sandbox)",
     D_LAYERS},
    {NULL, 0, NULL, NULL, 0},
};

/* A word of provider/ssh/target.h; files are named as seen from here. */
static int add_word(struct opts *o, int id, const char *value, struct err *e)
{
	static const char *const names[] = {[D_KEY] = "key=",
					    [D_KNOWN] = "known-hosts=",
					    [D_CONFIG] = "config=",
					    [D_JUMP] = "jump="};
	_cleanup_free_ char *here = value[0] == '/' || id == D_JUMP ? strdup(value) : NULL,
			    *word = NULL;
	char cwd[PATH_MAX];

	if (!here && getcwd(cwd, sizeof(cwd)))
		here = path_join(cwd, value);
	if (!here || asprintf(&word, "%s%s", names[id], here) < 0)
		word = NULL;
	return word && strv_add(&o->words, word) == 0
		   ? 0
		   : err_set(e, ERR_NOMEM, "doctor: out of memory");
}

static int set(void *arg, const struct opt *o, const char *value, struct err *e)
{
	struct opts *opts = arg;

	if (o->id == D_SSH) {
		free(opts->place);
		opts->place = strdup(value);
		return opts->place ? 0 : err_set(e, ERR_NOMEM, "doctor: out of memory");
	}
	if (o->id == D_LAYERS) {
		opts->layers = true;
		return 0;
	}
	if (o->id > D_SSH)
		return add_word(opts, o->id, value, e);
	*(o->id == D_QUICK ? &opts->quick : o->id == D_JSON ? &opts->json : &opts->help) = true;
	return 0;
}

static int parse(int argc, char **argv, struct opts *o, struct err *e)
{
	static const struct opt *const tables[] = {opts_doctor, opts_help, NULL};
	struct opt_parse p = {
	    .tables = tables, .verb = "doctor", .permute = true, .set = set, .arg = o};
	int r = opt_parse(&p, argc - 1, argv + 1, e);

	if (r == 0 && strv_len(p.words) > 0)
		r = err_set(e, ERR_USAGE, "doctor takes no argument: %.80s", p.words[0]);
	strv_free(p.words);
	if (r == 0 && (o->words || o->layers) && !o->place)
		r = err_set(e, ERR_USAGE,
			    "--ssh-key, --remote-sandbox and the like belong to --ssh");
	return r;
}

/* Exit status. */
static int elsewhere(struct opts *o)
{
	_cleanup_strv_ char **words = NULL;
	struct err e = ERR_INIT;
	bool ok = false;
	int r = strv_add(&words, o->place);

	for (size_t i = 0; r == 0 && i < strv_len(o->words); i++)
		r = strv_add(&words, o->words[i]);
	if (r == 0)
		r = doctor_ssh(words, o->json, o->layers, &ok, &e);
	free(o->place);
	strv_free(o->words);
	return r < 0 ? cli_fail(&e) : ok ? 0 : 1;
}

/* $XDG_STATE_HOME/airlock, else ~/.local/state/airlock; a relative XDG_STATE_HOME is ignored, as its standard says. */
static char *state_dir(void)
{
	const char *xdg = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	_cleanup_free_ char *base = NULL;

	if (xdg && xdg[0] == '/')
		return path_join(xdg, "airlock");
	base = path_join(home && home[0] == '/' ? home : "/", ".local/state");
	return base ? path_join(base, "airlock") : NULL;
}

/* "{/usr/bin/airlock,/usr/libexec/airlock/airlock-launch}": whom a security profile has to allow; NULL if unknown. */
static char *own_programs(void)
{
	_cleanup_buf_ struct buf b = BUF_INIT((size_t)3 * PATH_MAX);
	_cleanup_free_ char *launch = NULL;
	char exe[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	if (n <= 0)
		return NULL;
	if (self_helper("airlock-launch", &launch, NULL) == 0)
		(void)buf_putf(&b, "{%.*s,%s}", (int)n, exe, launch);
	else
		(void)buf_put(&b, exe, (size_t)n);
	return buf_take(&b);
}

static const char *state_word(enum probe_state s)
{
	switch (s) {
	case PROBE_IN_FORCE:
		return "in force";
	case PROBE_LIMITED:
		return "limited";
	case PROBE_MISSING:
		return "missing";
	case PROBE_SKIPPED:
		return "not tried";
	}
	return "?";
}

static void texts(const struct probe_result *r, struct buf *why, struct buf *remedy)
{
	const struct cause_info *c = cause_info(r->cause);

	(void)cause_expand(why, c->why, r->object);
	(void)cause_expand(remedy, c->remedy, r->object);
}

static void print_row(const struct probe_result *r)
{
	_cleanup_buf_ struct buf why = BUF_INIT(TEXT_MAX), remedy = BUF_INIT(TEXT_MAX);
	const struct layer_info *l = layer_info(r->layer);
	bool told = r->state != PROBE_IN_FORCE;

	texts(r, &why, &remedy);
	(void)printf("%-23s %-10s %s\n", l->name, state_word(r->state),
		     told ? buf_text(&why) : r->detail);
	if (r->state == PROBE_MISSING && l->need == NEED_FEATURE)
		(void)printf("%-34s lost without it: %s\n", "", l->gives);
	if (told && remedy.len)
		(void)printf("%-34s remedy: %s\n", "", buf_text(&remedy));
}

/* "user namespace, overlay workspace (or: --without overlay)" */
static size_t list_blockers(const struct probe_result *r, struct buf *b)
{
	size_t n = 0;

	for (size_t i = 0; i < LAYER_COUNT; i++) {
		const struct layer_info *l = layer_info(r[i].layer);

		/* What only follows from another missing layer is not named twice. */
		if (probe_allows_run(&r[i]) || (r[i].cause == CAUSE_NEEDS_USERNS && n))
			continue;
		(void)buf_putf(b, "%s%s", n++ ? ", " : "", l->name);
		if (l->without)
			(void)buf_putf(b, " (or: --without %s)", l->without);
	}
	return n;
}

static void print_table(const struct probe_result *r, const struct opts *o)
{
	_cleanup_buf_ struct buf b = BUF_INIT(TEXT_MAX);
	size_t lacking;

	(void)printf("%-23s %-10s %s\n", "LAYER", "STATE", "WHY, REMEDY");
	for (size_t i = 0; i < LAYER_COUNT; i++)
		print_row(&r[i]);
	lacking = list_blockers(r, &b);
	if (lacking)
		(void)printf("\n`airlock run` does not work here. Missing: %s.\n", buf_text(&b));
	else
		(void)printf("\n`airlock run` works here%s.\n",
			     o->quick ? ", as far as a quick look can tell" : "");
}

static json_t *row_json(const struct probe_result *r)
{
	static const char *const needs[] = {[NEED_ALWAYS] = "always",
					    [NEED_UNNAMED] = "unless_without",
					    [NEED_FEATURE] = "feature"};
	_cleanup_buf_ struct buf why = BUF_INIT(TEXT_MAX), remedy = BUF_INIT(TEXT_MAX);
	const struct layer_info *l = layer_info(r->layer);

	texts(r, &why, &remedy);
	return json_pack("{s:s, s:s, s:s, s:s, s:s?, s:s, s:s, s:s, s:s, s:s, s:s, s:i}", "layer",
			 l->id, "name", l->name, "gives", l->gives, "need", needs[l->need],
			 "without", l->without, "state", state_word(r->state), "cause",
			 cause_info(r->cause)->id, "why", buf_text(&why), "remedy",
			 buf_text(&remedy), "detail", r->detail, "step", r->step, "errno", r->sys);
}

static int print_json(const struct probe_result *r, const struct opts *o, bool ok)
{
	json_t *rows = json_array(), *doc;
	char *text;
	int res = -ENOMEM;

	for (size_t i = 0; i < LAYER_COUNT; i++)
		(void)json_array_append_new(rows, row_json(&r[i]));
	doc = json_pack("{s:s, s:s, s:b, s:o}", "version", AIRLOCK_VERSION, "mode",
			o->quick ? "quick" : "full", "run_works", ok, "layers", rows);
	text = doc ? json_dumps(doc, JSON_INDENT(2)) : NULL;
	if (text)
		res = puts(text) < 0 ? -EIO : 0;
	free(text);
	json_decref(doc);
	return res;
}

int cmd_doctor(int argc, char **argv)
{
	struct probe_result results[LAYER_COUNT];
	_cleanup_free_ char *state = NULL, *programs = NULL;
	struct opts o = {false};
	uid_t uid = (uid_t)-1;
	gid_t gid = (gid_t)-1;
	struct err e = ERR_INIT;
	bool ok = true;

	if (parse(argc, argv, &o, &e) < 0)
		return cli_fail(&e);
	if (o.help)
		return cmd_help(2, (char *[]){(char *)(uintptr_t) "help", argv[0]});
	if (o.place)
		return elsewhere(&o);
	state = state_dir();
	if (!state) {
		(void)fputs("airlock: doctor: out of memory\n", stderr);
		return 125;
	}
	programs = own_programs();
	provider_native.owner(&uid, &gid);
	struct probe_env env = {.state_dir = state,
				.version = AIRLOCK_VERSION,
				.id_inside = ID_INSIDE,
				.id_host = uid,
				.quick = o.quick,
				.own_programs = programs};
	probe_all(&env, results);
	for (size_t i = 0; i < LAYER_COUNT; i++)
		ok &= probe_allows_run(&results[i]);
	if (!o.json)
		print_table(results, &o);
	/* A full pipe or disk must not look like a healthy host. */
	if ((o.json && print_json(results, &o, ok) < 0) || fflush(stdout) != 0 || ferror(stdout)) {
		(void)err_sys(&e, errno, "doctor: write the result to standard output");
		return cli_fail(&e);
	}
	return ok ? 0 : 1;
}
