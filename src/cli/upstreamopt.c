/* The word of --upstream: NAME=URL,policy=P,credential-file=F[,header=H][,env=VAR[=/PATH]][,token-env=VAR]. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/runopts.h"
#include "policy/envvars.h"
#include "policy/origin.h"

static int usage(struct err *e, const char *word, const char *why)
{
	return err_set(e, ERR_USAGE,
		       "--upstream %.120s: %s; give NAME=URL,policy=P,credential-file=F[,header=H]"
		       "[,env=VAR[=/PATH]][,token-env=VAR]",
		       word, why);
}

static bool name_ok(const char *s)
{
	size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-");

	return n > 0 && n <= UPSTREAM_NAME_MAX && s[n] == '\0' && s[0] != '-';
}

static int put(char **to, const char *v, struct err *e)
{
	free(*to);
	*to = strdup(v);
	return *to ? 0 : err_set(e, ERR_NOMEM, "options: out of memory");
}

static int add(char ***to, const char *v, struct err *e)
{
	return strv_add(to, v) < 0 ? err_set(e, ERR_NOMEM, "options: out of memory") : 0;
}

static bool var_ok(const char *v, bool path)
{
	const char *eq = strchr(v, '=');
	_cleanup_free_ char *name = NULL;

	if (eq && (!path || eq[1] != '/'))
		return false;
	/* A name is judged with a value behind it. */
	if (asprintf(&name, "%.*s=", (int)strcspn(v, "="), v) < 0)
		return false;
	return *v && *v != '=' && envvars_name_ok(name);
}

/* From the host's environment, as one word of printable ASCII. */
static int key_from(struct api_request *a, const char *var, struct err *e)
{
	const char *v = getenv(var);

	if (!v || !*v)
		return err_set(e, ERR_USAGE, "--upstream %s: the variable %.80s is not set here",
			       a->name, var);
	for (const char *c = v; *c; c++)
		if (*c < 0x21 || *c > 0x7e)
			return err_set(e, ERR_USAGE,
				       "--upstream %s: the value of %.80s must be one word of "
				       "printable ASCII",
				       a->name, var);
	if (strlen(v) > BRIDGE_CREDENTIAL_MAX)
		return err_set(e, ERR_USAGE, "--upstream %s: the value of %.80s is longer than %d",
			       a->name, var, BRIDGE_CREDENTIAL_MAX);
	return put(&a->key, v, e);
}

static int take(struct api_request *a, const char *word, const char *part, struct err *e)
{
	if (str_starts(part, "policy="))
		return put(&a->policy, part + 7, e);
	if (str_starts(part, "credential-file="))
		return put(&a->key_file, part + 16, e);
	if (str_starts(part, "credential-env="))
		return key_from(a, part + 15, e);
	if (str_starts(part, "header="))
		return put(&a->header, part + 7, e);
	if (str_starts(part, "env=") && var_ok(part + 4, true))
		return add(&a->url_vars, part + 4, e);
	if (str_starts(part, "token-env=") && var_ok(part + 10, false))
		return add(&a->token_vars, part + 10, e);
	return usage(e, word, "a part is not known or has no usable value");
}

int runopts_upstream(struct request *q, const char *word, struct err *e)
{
	_cleanup_free_ char *copy = strdup(word);
	struct api_request *a;
	struct origin origin;
	char *at = copy, *part, *eq;
	int r;

	if (!copy)
		return err_set(e, ERR_NOMEM, "options: out of memory");
	if (q->upstreams_len == RUN_UPSTREAMS_MAX)
		return err_set(e, ERR_LIMIT, "--upstream: more than %d", RUN_UPSTREAMS_MAX);
	part = strsep(&at, ",");
	eq = strchr(part, '=');
	if (!eq)
		return usage(e, word, "NAME=URL comes first");
	*eq = '\0';
	if (!name_ok(part))
		return usage(e, word, "a name has up to 32 of a-z, 0-9 and '-'");
	for (size_t i = 0; i < q->upstreams_len; i++)
		if (strcmp(q->upstreams[i].name, part) == 0)
			return usage(e, word, "the name is there twice");
	r = origin_parse(eq + 1, &origin, e);
	if (r < 0)
		return err_wrap(e, r, "--upstream %s", part);
	a = &q->upstreams[q->upstreams_len++];
	r = put(&a->name, part, e);
	if (r == 0)
		r = put(&a->url, eq + 1, e);
	while (r == 0 && (part = strsep(&at, ",")) != NULL)
		r = take(a, word, part, e);
	if (r == 0 && !a->policy)
		r = usage(e, word, "policy= is missing");
	if (r == 0 && a->key && a->key_file)
		r = usage(e, word, "one credential is enough");
	return r;
}
