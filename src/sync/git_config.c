/* What the user's and the repository's configuration say; read, never obeyed: the policy is in git.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "sync/git.h"

#define CONFIG_LIST_MAX (4 << 20)

int git_config_read(const struct git_repo *g, struct git_config *ret, struct err *e)
{
	const char *const words[] = {"config", "--list", "-z", NULL};
	const char *home = getenv("HOME"), *xdg = getenv("XDG_CONFIG_HOME");
	_cleanup_free_ char *h = NULL, *x = NULL;
	_cleanup_buf_ struct buf out = BUF_INIT(CONFIG_LIST_MAX);
	struct process_opts io = PROCESS_OPTS_INIT;
	const char *extra[6] = {"GIT_CONFIG_COUNT=0", "GIT_CONFIG_NOSYSTEM=0", NULL};
	struct git_repo as_user = *g;
	_cleanup_strv_ char **env = NULL;
	int r = 0;

	/* Reading alone: the user's own files count here (identity, ignore file), nothing runs. */
	for (size_t i = 0; g->env[i] && !r; i++)
		if (!str_starts(g->env[i], "GIT_CONFIG_GLOBAL="))
			r = strv_add(&env, g->env[i]);
	if (r < 0 || (home && asprintf(&h, "HOME=%s", home) < 0) ||
	    (xdg && *xdg && asprintf(&x, "XDG_CONFIG_HOME=%s", xdg) < 0))
		return err_sys(e, ENOMEM, "git config");
	as_user.env = env;
	extra[2] = h ? h : x;
	extra[3] = h ? x : NULL;
	io.out = &out;
	r = git_run(&as_user, words, extra, &io, e);
	if (r < 0)
		return r;
	ret->len = out.len;
	ret->data = buf_take(&out);
	return ret->data ? 0 : err_sys(e, ENOMEM, "git config");
}

int git_config_next(const struct git_config *c, size_t *pos, const char **key, size_t *key_n,
		    const char **value)
{
	const char *p = c->data + *pos, *nl;

	if (*pos >= c->len)
		return 0;
	*pos += strlen(p) + 1;
	nl = strchr(p, '\n');
	*key = p;
	*key_n = nl ? (size_t)(nl - p) : strlen(p);
	*value = nl ? nl + 1 : "true"; /* a key without '=' */
	return 1;
}

const char *git_config_get(const struct git_config *c, const char *key)
{
	const char *k, *v, *found = NULL;
	size_t pos = 0, n;

	while (git_config_next(c, &pos, &k, &n, &v))
		if (n == strlen(key) && memcmp(k, key, n) == 0)
			found = v;
	return found;
}

void git_config_done(struct git_config *c)
{
	free(c->data);
	*c = (struct git_config){0};
}
