/* prune: space in the state directory. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/str.h"
#include "cli/cli.h"
#include "engine/prune.h"

enum { P_HELP0 = 0, P_OLDER, P_DRY, P_YES, P_JSON };

const struct opt opts_prune[] = {
    {"older-than", 0, "TIME", "not used, or ended, for that time: 12h, 7d; default 30d; 0: any",
     P_OLDER},
    {"dry-run", 0, NULL, "say what would go, change nothing", P_DRY},
    {"yes", 0, NULL, "also runs that keep copies that may be the only ones", P_YES},
    {"json", 0, NULL, "one JSON object", P_JSON},
    {NULL, 0, NULL, NULL, 0},
};
static const struct opt *const t_prune[] = {opts_prune, opts_help, NULL};

struct words {
	int64_t older_ns;
	bool dry_run, yes, json, help;
};

static int set(void *arg, const struct opt *o, const char *value, struct err *e)
{
	struct words *w = arg;

	w->dry_run |= o->id == P_DRY;
	w->yes |= o->id == P_YES;
	w->json |= o->id == P_JSON;
	w->help |= o->id == P_HELP0;
	if (o->id == P_OLDER && str_to_duration(value, &w->older_ns) < 0)
		return err_set(e, ERR_USAGE,
			       "--older-than %.80s: not a time: give 90, 30s, 10m, 2h or 7d",
			       value);
	return 0;
}

static void line(const char *what, const struct prune_kind *k)
{
	char size[16];

	str_human_size(k->bytes, size, sizeof(size));
	(void)printf("%-36s  %6" PRIu64 "  %10s\n", what, k->count, size);
}

static void show(const struct prune_result *r)
{
	line("left-overs in the trash", &r->trash);
	line("copies of workspaces", &r->workspaces);
	line("roots that sandboxes share", &r->roots);
	line("runs that are over", &r->runs);
	for (size_t i = 0; i < r->kept_n; i++) {
		const struct prune_kept *k = &r->kept[i];
		char size[16];

		str_human_size(k->bytes, size, sizeof(size));
		if (k->waiting)
			(void)printf(
			    "run %s stays: results wait (%s): 'airlock apply' or 'airlock discard' it\n",
			    k->run, size);
		else
			(void)printf("run %s stays: %" PRIu64
				     " files (%s) that may be nowhere else; --yes drops them\n",
				     k->run, k->files, size);
	}
}

static json_t *kind_json(const struct prune_kind *k)
{
	return json_pack("{s:I,s:I,s:I}", "count", (json_int_t)k->count, "bytes",
			 (json_int_t)k->bytes, "in_use", (json_int_t)k->used);
}

static int show_json(const struct prune_result *r, const struct words *w)
{
	json_t *kept = json_array(), *o;
	char *text;

	for (size_t i = 0; i < r->kept_n; i++)
		(void)json_array_append_new(
		    kept,
		    json_pack("{s:s,s:s,s:I,s:I}", "run", r->kept[i].run, "why",
			      r->kept[i].waiting ? "results_wait" : "only_copies", "files",
			      (json_int_t)r->kept[i].files, "bytes", (json_int_t)r->kept[i].bytes));
	o = json_pack("{s:b,s:I,s:o,s:o,s:o,s:o,s:o,s:I}", "dry_run", w->dry_run, "older_than_s",
		      (json_int_t)(w->older_ns / NS_PER_S), "trash", kind_json(&r->trash),
		      "workspaces", kind_json(&r->workspaces), "roots", kind_json(&r->roots),
		      "runs", kind_json(&r->runs), "kept", kept, "failed", (json_int_t)r->failed);
	text = o ? json_dumps(o, JSON_INDENT(1)) : NULL;
	json_decref(o);
	if (text)
		(void)puts(text);
	free(text);
	return text ? 0 : -ENOMEM;
}

int cmd_prune(int argc, char **argv)
{
	_cleanup_prune_ struct prune_result res = {0};
	_cleanup_state_ struct state st = {0};
	struct words w = {.older_ns = PRUNE_OLDER_S * NS_PER_S};
	struct opt_parse p = {
	    .tables = t_prune, .verb = argv[0], .permute = true, .set = set, .arg = &w};
	struct err e = ERR_INIT;
	struct prune_opts o;
	int r = opt_parse(&p, argc - 1, argv + 1, &e);

	if (r == 0 && w.help) {
		strv_free(p.words);
		return cmd_help(2, (char *[]){(char *)(uintptr_t) "help", argv[0]});
	}
	if (r == 0 && strv_len(p.words))
		r = err_set(&e, ERR_USAGE, "prune takes no word %.80s", p.words[0]);
	strv_free(p.words);
	if (r == 0)
		r = state_open(&st, &e);
	if (r < 0)
		return cli_fail(&e);
	o = (struct prune_opts){
	    .before_ns = clock_real_ns() - w.older_ns, .dry_run = w.dry_run, .yes = w.yes};
	r = prune(&st, &o, &res, &e);
	if (w.json) {
		if (show_json(&res, &w) < 0)
			return cli_fail(&(struct err){.code = ERR_NOMEM, .text = "out of memory"});
	} else {
		show(&res);
	}
	if (w.dry_run)
		cli_say("dry run: nothing was changed");
	if (res.workspaces.used)
		cli_say("%" PRIu64 " copies of workspaces are in use and stay",
			res.workspaces.used);
	if (r < 0 && res.failed > 1)
		cli_say("%" PRIu64 " could not be removed; the first:", res.failed);
	return r < 0 ? cli_fail(&e) : 0;
}
