/* preset: the presets for agent CLIs. */
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/cli.h"
#include "engine/preset.h"

static const struct opt *const tables[] = {opts_help, NULL};

static int set(void *arg, const struct opt *o, const char *value, struct err *e)
{
	(void)o;
	(void)value;
	(void)e;
	*(bool *)arg = true;
	return 0;
}

static void list_of(const char *what, char *const *v)
{
	for (; v && *v; v++)
		(void)printf("%-10s %s\n", what, *v);
}

static void text_of(const char *what, const char *v)
{
	if (v)
		(void)printf("%-10s %s\n", what, v);
}

static int show(const char *name, struct err *e)
{
	_cleanup_preset_ struct preset a = {0};
	_cleanup_free_ char *found = NULL;
	int r = preset_load(name, &a, e);

	if (r < 0)
		return r;
	found = preset_program(&a);
	text_of("file", a.file);
	(void)printf("%-10s %s: %s\n", "program", a.program, found ? found : "not on this host");
	text_of("install", a.install);
	list_of("  network", a.install_allow);
	if (a.url)
		(void)printf("%-10s %s%s, policy %s, told by %s\n", "model", a.url,
			     a.path ? a.path : "", a.policy, a.url_env ? a.url_env : "-");
	list_of("  key from", a.key_env);
	text_of("  key file", a.key_file);
	list_of("  token in", a.token_env);
	list_of("network", a.allow);
	list_of("setenv", a.setenv);
	list_of("argument", a.args);
	text_of("prepare", a.prepare);
	list_of("state", a.state);
	return 0;
}

static int list(struct err *e)
{
	_cleanup_strv_ char **names = NULL;
	int r = preset_names(&names, e);

	for (size_t i = 0; r == 0 && i < strv_len(names); i++) {
		_cleanup_preset_ struct preset a = {0};
		_cleanup_free_ char *found = NULL;
		struct err bad = ERR_INIT;

		if (preset_load(names[i], &a, &bad) < 0) {
			(void)printf("%-12s %s\n", names[i], bad.text);
			continue;
		}
		found = preset_program(&a);
		(void)printf("%-12s %s\n", a.name, found ? found : "not on this host");
	}
	return r;
}

int cmd_preset(int argc, char **argv)
{
	bool help = false;
	struct opt_parse p = {
	    .tables = tables, .verb = "preset", .permute = true, .set = set, .arg = &help};
	struct err e = ERR_INIT;
	int r = opt_parse(&p, argc - 1, argv + 1, &e);
	_cleanup_strv_ char **words = p.words;
	size_t n = strv_len(words);

	if (r == 0 && help)
		return cmd_help(2, (char *[]){(char *)(uintptr_t) "help", argv[0]});
	if (r == 0 && n == 2 && strcmp(words[0], "show") == 0)
		r = show(words[1], &e);
	else if (r == 0 && (n == 0 || (n == 1 && strcmp(words[0], "list") == 0)))
		r = list(&e);
	else if (r == 0)
		r = err_set(&e, ERR_USAGE, "preset: give 'list' or 'show NAME'");
	return r < 0 ? cli_fail(&e) : 0;
}
