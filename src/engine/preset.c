#include "engine/preset.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "policy/envvars.h"
#include "policy/netrule.h"
#include "policy/origin.h"

#define DIR_INSIDE "/opt/airlock-agent"
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

/* --- finding ------------------------------------------------------------------------------ */

static char *program_at(const char *path)
{
	struct stat st;
	char *real = realpath(path, NULL);

	if (real && stat(real, &st) == 0 && S_ISREG(st.st_mode) && access(real, X_OK) == 0)
		return real;
	free(real);
	return NULL;
}

static char *on_path(const char *name)
{
	_cleanup_free_ char *dirs = strdup(getenv("PATH") ? getenv("PATH") : "/usr/bin:/bin");
	char *at = dirs, *dir;

	while (dirs && (dir = strsep(&at, ":")) != NULL) {
		/* A relative entry would let the workspace choose. */
		_cleanup_free_ char *p = dir[0] == '/' ? path_join(dir, name) : NULL;
		char *found = p ? program_at(p) : NULL;

		if (found)
			return found;
	}
	return NULL;
}

static char *expand(const char *place)
{
	const char *home = getenv("HOME");

	if (place[0] != '~')
		return strdup(place);
	return home ? path_join(home, place[1] == '/' ? place + 2 : place + 1) : NULL;
}

char *preset_program(const struct preset *a)
{
	char *found = on_path(a->program);

	for (char *const *p = a->places; !found && p && *p; p++) {
		_cleanup_free_ char *place = expand(*p);

		found = place ? program_at(place) : NULL;
	}
	return found;
}

static int grant(char ***grants, const char *fmt, const char *a, const char *b)
{
	_cleanup_buf_ struct buf line = BUF_INIT(8192);

	(void)buf_puts(&line, fmt);
	(void)str_printable(&line, a, strlen(a));
	if (b) {
		(void)buf_puts(&line, " (");
		(void)buf_puts(&line, b);
		(void)buf_puts(&line, ")");
	}
	return strv_add(grants, buf_text(&line));
}

static int bind(struct request *q, const char *src, const char *dst, char ***grants, struct err *e)
{
	struct bind_ro *b = &q->binds[q->binds_len];

	if (q->binds_len == ARRAY_LEN(q->binds))
		return err_set(e, ERR_LIMIT, "--bind-ro: more than %zu", ARRAY_LEN(q->binds));
	b->src = strdup(src);
	b->dst = strdup(dst);
	q->binds_len++;
	if (!b->src || !b->dst || grant(grants, "read-only inside: ", src, NULL) < 0)
		return err_set(e, ERR_NOMEM, "agent: out of memory");
	return 0;
}

static bool system_path(const char *p)
{
	return path_is_within(p, "/usr") && !path_is_within(p, "/usr/local/share");
}

/* The interpreter that "#!/usr/bin/env NAME" wants, or NULL. */
static char *interpreter(const char *program)
{
	_cleanup_fd_ int fd = open(program, O_RDONLY | O_CLOEXEC);
	char text[256];
	ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;
	static const char env[] = "#!/usr/bin/env ";
	char *name;

	if (n <= 0)
		return NULL;
	text[n] = '\0';
	text[strcspn(text, "\r\n")] = '\0';
	if (!str_starts(text, env))
		return NULL;
	name = text + sizeof(env) - 1;
	if (str_starts(name, "-S "))
		name += 3;
	name[strcspn(name, " ")] = '\0';
	return *name && !strchr(name, '/') ? strdup(name) : NULL;
}

static int bind_runtime(struct request *q, const char *program, char ***grants, struct err *e)
{
	_cleanup_free_ char *name = interpreter(program), *real = name ? on_path(name) : NULL;
	_cleanup_free_ char *dir = NULL;

	if (!name || (real && system_path(real)))
		return 0;
	if (!real)
		return err_set(e, ERR_NOT_FOUND, "%s runs by %s, which is not on PATH here",
			       program, name);
	dir = strndup(real, (size_t)(path_base(real) - real - 1));
	/* The directory's name gets it on PATH inside. */
	return dir ? bind(q, dir, DIR_INSIDE "/runtime/bin", grants, e)
		   : err_set(e, ERR_NOMEM, "agent: out of memory");
}

/* What the program needs beside itself: the outermost node_modules, or nothing. *ret_inside: its path in the sandbox. */
static int bind_program(struct request *q, const char *real, char **ret_inside, char ***grants,
			struct err *e)
{
	const char *modules = strstr(real, "/node_modules/"), *store = strstr(real, "/.pnpm/"),
		   *cut;
	_cleanup_free_ char *top = NULL, *dst = NULL;
	int r;

	if (system_path(real)) {
		*ret_inside = strdup(real);
		return *ret_inside ? 0 : err_set(e, ERR_NOMEM, "agent: out of memory");
	}
	/* A store of links: they lead from package to package within it. */
	cut = store ? store : modules ? modules + strlen("/node_modules") : path_base(real) - 1;
	if (store || modules) {
		top = strndup(real, (size_t)(cut - real));
		dst = strdup(store ? DIR_INSIDE "/store" : DIR_INSIDE "/node_modules");
		if (asprintf(ret_inside, "%s%s", dst ? dst : "", cut) < 0)
			*ret_inside = NULL;
	} else {
		top = strdup(real);
		if (asprintf(&dst, DIR_INSIDE "/bin/%s", path_base(real)) < 0)
			dst = NULL;
		*ret_inside = dst ? strdup(dst) : NULL;
	}
	if (!top || !dst || !*ret_inside)
		return err_set(e, ERR_NOMEM, "agent: out of memory");
	r = bind(q, top, dst, grants, e);
	return r < 0 ? r : bind_runtime(q, real, grants, e);
}

/* --- applying ----------------------------------------------------------------------------- */

static int put(char **to, const char *v, struct err *e)
{
	*to = v ? strdup(v) : NULL;
	return v && !*to ? err_set(e, ERR_NOMEM, "agent: out of memory") : 0;
}

/* The caller's own base URL moves the upstream, as it would move the CLI. */
static int model_url(const struct preset *a, struct api_request *u, struct err *e)
{
	const char *given = a->url_env ? getenv(a->url_env) : NULL;
	_cleanup_free_ char *text = strdup(given && *given ? given : a->url);
	size_t n = text ? strlen(text) : 0, k = a->path ? strlen(a->path) : 0;
	struct origin o;
	int r;

	if (!text)
		return err_set(e, ERR_NOMEM, "agent: out of memory");
	while (n && text[n - 1] == '/')
		text[--n] = '\0';
	if (k && n > k && strcmp(text + n - k, a->path) == 0)
		text[n - k] = '\0';
	r = origin_parse(text, &o, e);
	if (r < 0)
		return err_wrap(e, r, "agent %s: %s", a->name, given ? a->url_env : a->file);
	return put(&u->url, text, e);
}

static int model_key(const struct preset *a, struct api_request *u, char ***grants, struct err *e)
{
	_cleanup_free_ char *file = a->key_file ? expand(a->key_file) : NULL, *usual = NULL;
	const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");

	for (char *const *v = a->key_env; v && *v; v++) {
		const char *key = getenv(*v);

		if (!key || !*key)
			continue;
		if (strlen(key) > BRIDGE_CREDENTIAL_MAX || strpbrk(key, " \t\r\n"))
			return err_set(
			    e, ERR_INVALID,
			    "agent %s: the value of %s is not one word of at most %d bytes",
			    a->name, *v, BRIDGE_CREDENTIAL_MAX);
		if (grant(grants, "model: key from the variable ", *v, "it stays outside") < 0)
			return err_set(e, ERR_NOMEM, "agent: out of memory");
		return put(&u->key, key, e);
	}
	if (!file && asprintf(&usual, "%s%s/airlock/keys/%s",
			      config ? config
			      : home ? home
				     : "",
			      config ? "" : "/.config", a->name) < 0)
		usual = NULL;
	if (!file)
		file = TAKE_PTR(usual);
	if (file && access(file, F_OK) == 0) {
		if (grant(grants, "model: key from the file ", file, "it stays outside") < 0)
			return err_set(e, ERR_NOMEM, "agent: out of memory");
		return put(&u->key_file, file, e);
	}
	return err_set(
	    e, ERR_NOT_FOUND,
	    "agent %s: no key for its model: set %s, or write it to %s; --no-preset runs "
	    "the command as it is",
	    a->name, a->key_env ? a->key_env[0] : "its variable", file ? file : "a file");
}

static int add_model(const struct preset *a, struct request *q, char ***grants, struct err *e)
{
	struct api_request *u;
	_cleanup_free_ char *var = NULL;
	int r;

	for (size_t i = 0; i < q->upstreams_len; i++)
		if (strcmp(q->upstreams[i].name, "model") == 0)
			return 0; /* the person's own */
	if (!a->url)
		return 0;
	if (q->upstreams_len == RUN_UPSTREAMS_MAX)
		return err_set(e, ERR_LIMIT, "--upstream: more than %d", RUN_UPSTREAMS_MAX);
	u = &q->upstreams[q->upstreams_len++];
	r = put(&u->name, "model", e);
	if (r == 0)
		r = model_url(a, u, e);
	if (r == 0)
		r = put(&u->policy, a->policy, e);
	if (r == 0)
		r = put(&u->header, a->header, e);
	if (r == 0)
		r = model_key(a, u, grants, e);
	if (r < 0)
		return r;
	if (a->url_env &&
	    asprintf(&var, "%s%s%s", a->url_env, a->path ? "=" : "", a->path ? a->path : "") < 0)
		return err_set(e, ERR_NOMEM, "agent: out of memory");
	if (var && strv_add(&u->url_vars, var) < 0)
		r = -ENOMEM;
	for (char *const *v = a->token_env; r == 0 && v && *v; v++)
		r = strv_add(&u->token_vars, *v);
	if (r == 0)
		r = grant(grants, "model: calls to ", u->url, u->policy);
	return r < 0 ? err_set(e, ERR_NOMEM, "agent: out of memory") : 0;
}

static int add_network(char *const *hosts, struct request *q, char ***grants, struct err *e)
{
	for (; hosts && *hosts && q->net != NET_HOST; hosts++) {
		struct net_rule rule;
		int r = net_rule_parse(*hosts, &rule, e);

		if (r < 0)
			return r;
		if (strv_add(&q->net_allow, *hosts) < 0 ||
		    grant(grants, "network: ", *hosts, NULL) < 0)
			return err_set(e, ERR_NOMEM, "agent: out of memory");
	}
	return 0;
}

static int add_variables(const struct preset *a, struct request *q, struct err *e)
{
	for (char *const *v = a->setenv; v && *v; v++) {
		size_t n = strcspn(*v, "=");
		bool there = false;

		if (!envvars_name_ok(*v))
			return err_set(e, ERR_INVALID, "preset %s: setenv: %.60s", a->file, *v);
		for (char *const *w = q->vars; w && *w; w++)
			there = there || strncmp(*w, *v, n + 1) == 0;
		if (!there && envvars_set(&q->vars, *v) < 0)
			return err_set(e, ERR_NOMEM, "agent: out of memory");
	}
	return 0;
}

/* prepare runs first, in the same shell; then the program with the preset's words and the person's. */
static int wrap(const struct preset *a, struct request *q, const char *inside, struct err *e)
{
	_cleanup_strv_ char **v = NULL;
	_cleanup_free_ char *script = NULL;
	int r;

	/* Always as several words: one alone would be taken for shell text. */
	if (asprintf(&script, "%s%sexec \"$@\"", a->prepare ? a->prepare : "",
		     a->prepare ? "\n" : "") < 0)
		return err_set(e, ERR_NOMEM, "agent: out of memory");
	if ((r = strv_add(&v, "sh")) == 0 && (r = strv_add(&v, "-c")) == 0 &&
	    (r = strv_add(&v, script)) == 0)
		r = strv_add(&v, a->name);
	if (r == 0)
		r = strv_add(&v, inside);
	for (char *const *w = a->args; r == 0 && w && *w; w++)
		r = strv_add(&v, *w);
	for (size_t i = 1; r == 0 && i < strv_len(q->argv); i++)
		r = strv_add(&v, q->argv[i]);
	if (r < 0)
		return err_set(e, ERR_NOMEM, "agent: out of memory");
	strv_free(q->argv);
	q->argv = TAKE_PTR(v);
	return 0;
}

int preset_apply(const struct preset *a, struct request *q, char ***grants, struct err *e)
{
	_cleanup_free_ char *real = preset_program(a), *inside = NULL;
	int r = grant(grants, "preset ", a->name, a->file);

	if (r < 0)
		return err_set(e, ERR_NOMEM, "agent: out of memory");
	if (real) {
		r = bind_program(q, real, &inside, grants, e);
	} else if (!a->install || q->install) {
		inside = strdup(a->program);
		if (strv_add(&q->clis, a->program) < 0)
			r = -ENOMEM;
	} else {
		inside = strdup(a->program);
		r = add_network(a->install_allow, q, grants, e);
		if (r == 0 && (strv_add(&q->clis, a->program) < 0 ||
			       grant(grants, "not on this host; installed inside by: ", a->install,
				     NULL) < 0))
			r = -ENOMEM;
		if (r == 0)
			r = put(&q->install, a->install, e);
	}
	if (r == -ENOMEM || (r == 0 && !inside))
		r = err_set(e, ERR_NOMEM, "agent: out of memory");
	if (r == 0)
		r = add_model(a, q, grants, e);
	if (r == 0)
		r = add_network(a->allow, q, grants, e);
	if (r == 0)
		r = add_variables(a, q, e);
	return r < 0 ? r : wrap(a, q, inside, e);
}
