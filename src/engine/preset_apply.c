/* A preset applied to a run: program, model, network, variables, and the words around the command. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "engine/preset_internal.h"
#include "policy/envvars.h"
#include "policy/netrule.h"
#include "policy/origin.h"

static int put(char **to, const char *v, struct err *e)
{
	*to = v ? strdup(v) : NULL;
	return v && !*to ? err_set(e, ERR_NOMEM, "agent: out of memory") : 0;
}

static const char *lookup(const struct preset_source *source, const char *name)
{
	size_t n = strlen(name);

	if (!source)
		return getenv(name);
	for (char *const *v = source->vars; v && *v; v++)
		if (strncmp(*v, name, n) == 0 && (*v)[n] == '=')
			return *v + n + 1;
	return NULL;
}

/* The caller's own base URL moves the upstream, as it would move the CLI. */
static int model_url(const struct preset *a, const struct preset_source *source,
		     struct api_request *u, struct err *e)
{
	const char *given = a->url_env ? lookup(source, a->url_env) : NULL;
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

/* 1 and the key, 0 there is none among the variables. */
static int key_of_vars(const struct preset *a, const struct preset_source *source,
		       struct api_request *u, char ***grants, struct err *e)
{
	for (char *const *v = a->key_env; v && *v; v++) {
		const char *key = lookup(source, *v);

		if (!key || !*key)
			continue;
		if (strlen(key) > BRIDGE_CREDENTIAL_MAX || strpbrk(key, " \t\r\n"))
			return err_set(
			    e, ERR_INVALID,
			    "agent %s: the value of %s is not one word of at most %d bytes",
			    a->name, *v, BRIDGE_CREDENTIAL_MAX);
		if (preset_grant(grants, "model: key from the variable ", *v, "it stays outside") <
		    0)
			return err_set(e, ERR_NOMEM, "agent: out of memory");
		return put(&u->key, key, e) < 0 ? -ENOMEM : 1;
	}
	return 0;
}

static int model_key(const struct preset *a, const struct preset_source *source,
		     struct api_request *u, char ***grants, struct err *e)
{
	_cleanup_free_ char *file = NULL, *usual = NULL;
	const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
	int r = key_of_vars(a, source, u, grants, e);

	if (r)
		return r < 0 ? r : 0;
	if (source)
		return err_set(
		    e, ERR_NOT_FOUND,
		    "agent %s: the environment has no variable %s with the key for its model",
		    a->name, a->key_env ? a->key_env[0] : "(its preset names none)");
	file = a->key_file ? preset_expand(a->key_file) : NULL;
	if (!file && asprintf(&usual, "%s%s/airlock/keys/%s",
			      config ? config
			      : home ? home
				     : "",
			      config ? "" : "/.config", a->name) < 0)
		usual = NULL;
	if (!file)
		file = TAKE_PTR(usual);
	if (file && access(file, F_OK) == 0) {
		if (preset_grant(grants, "model: key from the file ", file, "it stays outside") < 0)
			return err_set(e, ERR_NOMEM, "agent: out of memory");
		return put(&u->key_file, file, e);
	}
	return err_set(
	    e, ERR_NOT_FOUND,
	    "agent %s: no key for its model: set %s, or write it to %s; --no-preset runs "
	    "the command as it is",
	    a->name, a->key_env ? a->key_env[0] : "its variable", file ? file : "a file");
}

static int add_model(const struct preset *a, struct request *q, const struct preset_source *source,
		     char ***grants, struct err *e)
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
		r = model_url(a, source, u, e);
	if (r == 0)
		r = put(&u->policy, a->policy, e);
	if (r == 0)
		r = put(&u->header, a->header, e);
	if (r == 0)
		r = model_key(a, source, u, grants, e);
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
		r = preset_grant(grants, "model: calls to ", u->url, u->policy);
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
		    preset_grant(grants, "network: ", *hosts, NULL) < 0)
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

/* The command becomes these words, and behind them its own but for the first. r: of what made them. */
static int take_words(struct request *q, char ***words, int r, struct err *e)
{
	for (size_t i = 1; r == 0 && i < strv_len(q->argv); i++)
		r = strv_add(words, q->argv[i]);
	if (r < 0)
		return err_set(e, ERR_NOMEM, "agent: out of memory");
	strv_free(q->argv);
	q->argv = TAKE_PTR(*words);
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
	return take_words(q, &v, r, e);
}

static int add_word(struct buf *b, const char *place)
{
	/* The home is the one there. */
	if (strncmp(place, "~/", 2) == 0)
		return buf_puts(b, " \"$HOME\"/") == 0 ? buf_put_sh(b, place + 2) : b->err;
	(void)buf_putc(b, ' ');
	return buf_put_sh(b, place);
}

/*
 * On another machine: the CLI is looked for there, in PATH and then where it usually lies. Its own settings there are that account's, so
 * nothing is prepared; and the preset's words, which let an agent do everything unasked, are for a sandbox: nothing isolates it there.
 */
static int wrap_remote(const struct preset *a, struct request *q, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT((size_t)64 << 10);
	_cleanup_strv_ char **v = NULL;
	int r;

	(void)buf_puts(&b, "p=$0; command -v \"$p\" >/dev/null 2>&1 || for f in");
	for (char *const *w = a->places; w && *w; w++)
		(void)add_word(&b, *w);
	(void)buf_puts(
	    &b, "; do if test -x \"$f\"; then p=$f; break; fi; done\n"
		"command -v \"$p\" >/dev/null 2>&1 || { echo \"airlock: agent $p is not on this "
		"machine, neither in PATH nor where it usually lies: install it "
		"here\" >&2; exit 127; }\nexec \"$p\" \"$@\"");
	r = b.err;
	if (r == 0 && (r = strv_add(&v, "sh")) == 0 && (r = strv_add(&v, "-c")) == 0 &&
	    (r = strv_add(&v, buf_text(&b))) == 0)
		r = strv_add(&v, a->program);
	return take_words(q, &v, r, e);
}

/* What the bridge stands for now is not told to the command as well. */
static void take_out(const struct preset *a, struct request *q)
{
	char *const *const lists[] = {a->key_env, a->token_env, (char *const[]){a->url_env, NULL}};
	size_t n = 0, len = strv_len(q->vars);

	for (size_t i = 0; i < len; i++) {
		bool taken = false;

		for (size_t k = 0; k < ARRAY_LEN(lists); k++)
			for (char *const *w = lists[k]; w && *w; w++)
				taken = taken || (strncmp(q->vars[i], *w, strlen(*w)) == 0 &&
						  q->vars[i][strlen(*w)] == '=');
		if (taken)
			free(q->vars[i]);
		else
			q->vars[n++] = q->vars[i];
	}
	if (q->vars)
		q->vars[n] = NULL;
}

/* The text finds the CLI as a function of its name: with the preset's words, and wherever the program lies. */
static int wrap_text(const struct preset *a, struct request *q, const char *inside, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT((size_t)1 << 20);
	/* As in wrap_remote: its own settings and questions hold there. */
	bool own = q->provider && q->provider->elsewhere;
	char *text;

	if (a->name[strspn(a->name, "abcdefghijklmnopqrstuvwxyz_0123456789")] ||
	    (a->name[0] >= '0' && a->name[0] <= '9'))
		return err_set(
		    e, ERR_UNAVAILABLE,
		    "agent %s: a run of the daemon needs a name that a shell function can have",
		    a->name);
	(void)buf_putf(&b, "%s%s%s() { ", a->prepare && !own ? a->prepare : "",
		       a->prepare && !own ? "\n" : "", a->name);
	/* Of the same name as the function: the program is meant. */
	if (!strchr(inside, '/'))
		(void)buf_puts(&b, "command ");
	(void)buf_put_sh(&b, inside);
	for (char *const *w = own ? NULL : a->args; w && *w; w++) {
		(void)buf_putc(&b, ' ');
		(void)buf_put_sh(&b, *w);
	}
	(void)buf_puts(&b, " \"$@\"; }\n");
	(void)buf_puts(&b, q->argv[2]);
	text = b.err ? NULL : strdup(buf_text(&b));
	if (!text)
		return err_set(e, ERR_NOMEM, "agent: out of memory");
	free(q->argv[2]);
	q->argv[2] = text;
	return 0;
}

static int add_install(const struct preset *a, struct request *q, char ***grants, struct err *e)
{
	int r = add_network(a->install_allow, q, grants, e);

	if (r == 0)
		r = preset_grant(grants, "not on this host; installed inside by: ", a->install,
				 NULL);
	if (r == 0)
		r = put(&q->install, a->install, e);
	return r;
}

/* An image has its own programs: one of this host may not even start there. */
static int add_program(const struct preset *a, struct request *q,
		       const struct preset_source *source, char **ret_inside, char ***grants,
		       struct err *e)
{
	_cleanup_free_ char *real = source && q->image ? NULL : preset_program(a);
	int r = 0;

	if (real)
		return preset_bind(q, real, ret_inside, grants, e);
	*ret_inside = strdup(a->program);
	if (!*ret_inside || strv_add(&q->clis, a->program) < 0)
		return -ENOMEM;
	if (a->install && !q->install && !source)
		r = add_install(a, q, grants, e);
	return r;
}

int preset_apply(const struct preset *a, struct request *q, const struct preset_source *source,
		 char ***grants, struct err *e)
{
	_cleanup_free_ char *inside = NULL;
	bool elsewhere = q->provider && q->provider->elsewhere;
	int r = preset_grant(grants, "preset ", a->name, a->file);

	if (r == 0 && source && a->allow && a->allow[0] && q->net != NET_HOST)
		return err_set(
		    e, ERR_UNAVAILABLE,
		    "agent %s: its preset wants the network (%s), which the environment does not give",
		    a->name, a->allow[0]);
	if (r == 0 && elsewhere)
		r = preset_grant(
		    grants,
		    "program: that of the other machine, with its own settings there: ", a->program,
		    NULL);
	if (r == 0 && elsewhere)
		r = put(&inside, a->program, e);
	else if (r == 0)
		r = add_program(a, q, source, &inside, grants, e);
	if (r == -ENOMEM)
		r = err_set(e, ERR_NOMEM, "agent: out of memory");
	if (r == 0)
		r = add_model(a, q, source, grants, e);
	if (r == 0 && source)
		take_out(a, q);
	if (r == 0)
		r = add_network(a->allow, q, grants, e);
	if (r == 0)
		r = add_variables(a, q, e);
	if (r < 0)
		return r;
	if (elsewhere && !source)
		return wrap_remote(a, q, e);
	return source ? wrap_text(a, q, inside, e) : wrap(a, q, inside, e);
}
