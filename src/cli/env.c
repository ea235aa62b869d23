/* env: named environments, a name for a set of run options. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/runopts.h"
#include "cli/ui.h"
#include "provider/provider.h"
#include "store/env.h"
#include "wire/remote.h"

const struct opt opts_env[] = {
    {"force", 0, NULL, "create: replace one that exists", 1},
    {NULL, 0, NULL, NULL, 0},
};

static const struct opt *const run_tables[] = {opts_run, opts_exec, NULL};

/* What a stored word shows to a person: the value of a variable may be a secret. */
static void print_word(const char *word, bool after_setenv)
{
	const char *eq = strchr(word, '=');

	if (str_starts(word, "--setenv="))
		eq = strchr(word + 9, '=');
	else if (!after_setenv)
		eq = NULL;
	if (eq)
		(void)printf(" %.*s=...", (int)(eq - word), word);
	else {
		(void)putchar(' ');
		ui_print_name(word);
	}
}

static void print_env(const struct env_row *row)
{
	json_t *j = json_loads(row->options, 0, NULL), *w;
	bool value = false;
	size_t i;

	(void)printf("%-20s", row->name);
	json_array_foreach(j, i, w)
	{
		print_word(json_string_value(w), value);
		value = strcmp(json_string_value(w), "--setenv") == 0;
	}
	(void)putchar('\n');
	json_decref(j);
}

static int create(struct state *st, int argc, char **argv, struct err *e)
{
	_cleanup_runopts_ struct runopts o = {0};
	_cleanup_free_ char *text = NULL;
	json_t *a = json_array();
	bool force = false;
	const char *name = NULL;
	_cleanup_strv_ char **words = NULL;
	int r = 0;

	for (int i = 0; r == 0 && i < argc; i++) {
		if (strcmp(argv[i], "--force") == 0)
			force = true;
		else if (!name && argv[i][0] != '-')
			name = argv[i];
		else
			r = strv_add(&words, argv[i]);
	}
	if (!name)
		return err_set(e, ERR_USAGE,
			       "env create needs a name: airlock env create NAME [run options]");
	r = env_check_name(name, e);
	if (r == 0)
		r = runopts_parse(&o, NULL, run_tables, "env create", (int)strv_len(words), words,
				  e);
	if (r == 0 && o.env_name)
		r = err_set(e, ERR_USAGE, "--env cannot be part of a named environment");
	/* What no run could use is refused here, and not when somebody needs it. */
	if (r == 0 && o.ssh)
		r = runopts_remote(&o, e);
	if (r == 0 && o.req.argv)
		r = err_set(e, ERR_USAGE, "env create takes options only, not the word %.80s",
			    o.req.argv[0]);
	for (size_t i = 0; r == 0 && words && words[i]; i++)
		if (json_array_append_new(a, json_string(words[i])) < 0)
			r = err_set(e, ERR_INVALID,
				    "the word %zu is not UTF-8 and cannot be stored", i + 1);
	text = json_dumps(a, JSON_COMPACT);
	json_decref(a);
	if (r == 0 && !text)
		r = err_set(e, ERR_NOMEM, "env create: out of memory");
	return r < 0 ? r : env_put(st->store, name, text, force, e);
}

static const struct builtin {
	const char *name, *what, *more;
} builtins[] = {
    {"native", "sandbox on this host",
     "a copy of the workspace in a sandbox of this machine's kernel, network none; 'airlock doctor' tries its "
     "layers"},
    {"local", "no isolation: runs as you, in place",
     "the command works in the workspace itself with your rights and the host's network"},
};

static const struct builtin *find_builtin(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(builtins); i++)
		if (strcmp(builtins[i].name, name) == 0)
			return &builtins[i];
	return NULL;
}

static int list(struct state *st, struct err *e)
{
	struct env_row *v = NULL;
	size_t n = 0;
	int r = env_list(st->store, &v, &n, e);

	if (r < 0)
		return r;
	for (size_t i = 0; i < ARRAY_LEN(builtins); i++)
		(void)printf("%-20s (built in) %s\n", builtins[i].name, builtins[i].what);
	for (size_t i = 0; i < n; i++)
		print_env(&v[i]);
	env_list_free(v, n);
	return 0;
}

static int show(struct state *st, const char *name, struct err *e)
{
	const struct builtin *b = find_builtin(name);
	struct env_row row;
	int r;

	if (b) {
		(void)printf("%-20s (built in) %s\n%-20s --provider %s: %s\n", b->name, b->what, "",
			     b->name, b->more);
		return 0;
	}
	r = env_get(st->store, name, &row, e);

	if (r == 0)
		print_env(&row);
	env_row_done(&row);
	return r;
}

static int clean(struct state *st, int argc, char **argv, struct err *e)
{
	_cleanup_runopts_ struct runopts o = {0};
	_cleanup_free_ char *dir = state_path(st, "leases", "clean", NULL), *label = NULL;
	struct rm_cleaned n;
	int r = runopts_parse(&o, NULL, run_tables, "env clean", argc, argv, e);

	if (r == 0)
		r = runopts_remote(&o, e);
	if (r == 0 && (!o.req.remote || o.req.argv))
		r = err_set(
		    e, ERR_USAGE,
		    "env clean wants the machine and no other word: --ssh [USER@]HOST[:PORT]:/DIR");
	if (r == 0 && !dir)
		r = err_set(e, ERR_NOMEM, "env clean: out of memory");
	if (r == 0)
		r = ssh_clean(o.req.remote, dir, &n, &label, e);
	if (r < 0)
		return r;
	(void)printf("%s: %u programs and %u empty directories of runs removed\n",
		     label ? label : "", n.programs, n.runs);
	if (n.busy)
		(void)printf("%u runs are going on there: they stay%s\n", n.busy,
			     n.programs ? "" : ", and the programs with them");
	if (n.held)
		(void)printf(
		    "%u runs have their work there: 'airlock recover' brings it, 'airlock rm' removes it, on the "
		    "machine that began them\n",
		    n.held);
	return 0;
}

int cmd_env(int argc, char **argv)
{
	_cleanup_state_ struct state st = {0};
	const char *what = argc > 1 ? argv[1] : "list";
	struct err e = ERR_INIT;
	int r;

	if (strcmp(what, "--help") == 0 || strcmp(what, "-h") == 0)
		return cmd_help(2, (char *[]){(char *)(uintptr_t) "help", argv[0]});
	r = state_open(&st, &e);
	if (r < 0)
		return cli_fail(&e);
	if (strcmp(what, "create") == 0)
		r = create(&st, argc - 2, argv + 2, &e);
	else if (strcmp(what, "list") == 0 && argc <= 2)
		r = list(&st, &e);
	else if (strcmp(what, "show") == 0 && argc == 3)
		r = show(&st, argv[2], &e);
	else if (strcmp(what, "clean") == 0)
		r = clean(&st, argc - 2, argv + 2, &e);
	else if (strcmp(what, "rm") == 0 && argc == 3)
		r = find_builtin(argv[2])
			? err_set(
			      &e, ERR_INVALID,
			      "environment %s is built in and cannot be removed; 'airlock env create' "
			      "makes one with other options",
			      argv[2])
			: env_remove(st.store, argv[2], &e);
	else
		r = err_set(
		    &e, ERR_USAGE,
		    "env wants: create NAME [run options], list, show NAME, rm NAME or clean --ssh ...");
	return r < 0 ? cli_fail(&e) : 0;
}
