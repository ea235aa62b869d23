#include "engine/preset.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/path.h"

#define PRESETS_MAX 256

/* Beside the program (build tree), or in share (installed); never from the workspace. */
static char *own_dir(void)
{
	static const char *const places[] = {"../share/airlock/agents", "agents"};
	char exe[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	if (n <= 0)
		return NULL;
	exe[n] = '\0';
	*(char *)(uintptr_t)path_base(exe) = '\0';
	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		_cleanup_free_ char *p = path_join(exe, places[i]);

		if (p && access(p, X_OK) == 0)
			return TAKE_PTR(p);
	}
	return NULL;
}

static char *user_dir(void)
{
	const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
	char *p = NULL;

	if (config && config[0] == '/')
		return path_join(config, "airlock/agents");
	if (home && asprintf(&p, "%s/.config/airlock/agents", home) < 0)
		p = NULL;
	return p;
}

static bool name_ok(const char *s)
{
	size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-_");

	return n > 0 && n <= 32 && s[n] == '\0';
}

/* --- reading ------------------------------------------------------------------------------ */

struct reader {
	const char *file;
	int r;
	struct err *e;
};

static void bad(struct reader *d, const char *member, const char *why)
{
	if (d->r == 0)
		d->r = err_set(d->e, ERR_INVALID, "preset %s: %s: %s", d->file, member, why);
}

static char *take_text(struct reader *d, const json_t *j, const char *member)
{
	const json_t *v = json_object_get(j, member);
	char *s = NULL;

	if (!v)
		return NULL;
	if (!json_is_string(v) || !*json_string_value(v))
		bad(d, member, "must be a text that is not empty");
	else if (!(s = strdup(json_string_value(v))))
		bad(d, member, "out of memory");
	return s;
}

static char **take_list(struct reader *d, const json_t *j, const char *member)
{
	const json_t *a = json_object_get(j, member), *v;
	char **list = NULL;
	size_t i;

	if (a && !json_is_array(a))
		bad(d, member, "must be an array of texts");
	json_array_foreach(a, i, v)
	{
		if (!json_is_string(v))
			bad(d, member, "must be an array of texts");
		else if (strv_add(&list, json_string_value(v)) < 0)
			bad(d, member, "out of memory");
	}
	return list;
}

static void known(struct reader *d, json_t *j, const char *const *names, size_t n)
{
	const char *key;
	json_t *v;

	json_object_foreach(j, key, v)
	{
		bool found = false;

		for (size_t i = 0; i < n; i++)
			found = found || strcmp(key, names[i]) == 0;
		if (!found)
			bad(d, key, "is not known");
	}
}

static void read_upstream(struct reader *d, json_t *j, struct preset *a)
{
	static const char *const names[] = {"url",    "policy",	 "url_env",   "path",
					    "header", "key_env", "token_env", "key_file"};

	if (!j)
		return;
	if (!json_is_object(j)) {
		bad(d, "upstream", "must be an object");
		return;
	}
	known(d, j, names, ARRAY_LEN(names));
	a->url = take_text(d, j, "url");
	a->policy = take_text(d, j, "policy");
	a->url_env = take_text(d, j, "url_env");
	a->path = take_text(d, j, "path");
	a->header = take_text(d, j, "header");
	a->key_file = take_text(d, j, "key_file");
	a->key_env = take_list(d, j, "key_env");
	a->token_env = take_list(d, j, "token_env");
	if (!a->url || !a->policy)
		bad(d, "upstream", "url and policy must be there");
}

static int read_preset(const char *file, const char *name, struct preset *a, struct err *e)
{
	static const char *const names[] = {"version", "name",		"program", "places",
					    "install", "install_allow", "allow",   "upstream",
					    "setenv",  "args",		"prepare", "state"};
	struct reader d = {.file = file, .e = e};
	json_error_t why;
	json_t *j = json_load_file(file, JSON_REJECT_DUPLICATES, &why);

	if (!j)
		return err_set(e, ERR_INVALID, "preset %s: line %d: %s", file, why.line, why.text);
	if (!json_is_object(j) || json_integer_value(json_object_get(j, "version")) != 1)
		bad(&d, "version", "must be 1");
	known(&d, j, names, ARRAY_LEN(names));
	a->file = strdup(file);
	a->name = take_text(&d, j, "name");
	a->program = take_text(&d, j, "program");
	a->install = take_text(&d, j, "install");
	a->prepare = take_text(&d, j, "prepare");
	a->places = take_list(&d, j, "places");
	a->install_allow = take_list(&d, j, "install_allow");
	a->allow = take_list(&d, j, "allow");
	a->setenv = take_list(&d, j, "setenv");
	a->args = take_list(&d, j, "args");
	a->state = take_list(&d, j, "state");
	read_upstream(&d, json_object_get(j, "upstream"), a);
	if (!a->name || strcmp(a->name, name) != 0)
		bad(&d, "name", "must be the file's");
	if (!a->program || strchr(a->program, '/'))
		bad(&d, "program", "must be the name of a program");
	json_decref(j);
	return d.r;
}

int preset_load(const char *name, struct preset *ret, struct err *e)
{
	_cleanup_free_ char *user = user_dir(), *own = own_dir();
	const char *const dirs[] = {user, own};
	int r = -ENOENT;

	*ret = (struct preset){0};
	for (size_t i = 0; name_ok(name) && i < ARRAY_LEN(dirs); i++) {
		_cleanup_free_ char *file = NULL;

		if (!dirs[i] || asprintf(&file, "%s/%s.json", dirs[i], name) < 0)
			continue;
		if (access(file, F_OK) < 0)
			continue;
		r = read_preset(file, name, ret, e);
		if (r < 0)
			preset_done(ret);
		return r;
	}
	return err_set(e, ERR_NOT_FOUND,
		       "there is no preset for an agent %.60s: 'airlock preset list' names them",
		       name);
}

void preset_done(struct preset *a)
{
	char **const texts[] = {&a->name,   &a->program,  &a->install, &a->prepare,
				&a->url,    &a->policy,	  &a->url_env, &a->path,
				&a->header, &a->key_file, &a->file};
	char ***const lists[] = {&a->places, &a->install_allow, &a->allow,   &a->args,
				 &a->setenv, &a->state,		&a->key_env, &a->token_env};

	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		free(*texts[i]);
	for (size_t i = 0; i < ARRAY_LEN(lists); i++)
		strv_free(*lists[i]);
	*a = (struct preset){0};
}

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

int preset_names(char ***ret, struct err *e)
{
	_cleanup_free_ char *user = user_dir(), *own = own_dir();
	const char *const dirs[] = {user, own};
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
		DIR *d = dirs[i] ? opendir(dirs[i]) : NULL;
		struct dirent *entry;

		while (d && (entry = readdir(d)) != NULL && n < PRESETS_MAX) {
			size_t len = strlen(entry->d_name);
			_cleanup_free_ char *name =
			    len > 5 ? strndup(entry->d_name, len - 5) : NULL;
			bool there = false;

			if (!name || strcmp(entry->d_name + len - 5, ".json") != 0 ||
			    !name_ok(name))
				continue;
			for (size_t k = 0; k < n; k++)
				there = there || strcmp((*ret)[k], name) == 0;
			if (!there && strv_add(ret, name) == 0)
				n++;
		}
		if (d)
			(void)closedir(d);
	}
	if (n)
		qsort(*ret, n, sizeof(**ret), compare);
	return n ? 0 : err_set(e, ERR_NOT_FOUND, "no presets of agents are installed");
}
