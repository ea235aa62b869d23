/*
 * workspace.c: which directories of this host may be the workspace of a run.
 *
 * Policy: a directory below a root that the operator named with an option, for every company or for one. The path from
 * the root is a member path (no "..", nothing absolute), resolved beneath the root's descriptor without following any link. The
 * root itself may be reached through links: it is the operator's. "/" is no root, and nothing that holds the state
 * directory, or lies in it, is a workspace: keys and databases are there.
 *
 * What it does not do: watch the directory afterwards. Who can rename directories below a root can put another one in the place
 * of the one that was judged; such a place is no root to give away.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/runs.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "os/beneath.h"

static bool name_ok(const char *p, size_t n)
{
	static const char ok[] =
	    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

	for (size_t i = 0; i < n; i++)
		if (!strchr(ok, p[i]))
			return false;
	return n > 0 && p[0] != '.';
}

int runs_add_root(struct api_config *cfg, const char *text, struct err *e)
{
	struct api_root r = {0};
	const char *eq = strchr(text, '='),
		   *slash = memchr(text, '/', eq ? (size_t)(eq - text) : 0),
		   *name = slash ? slash + 1 : text;
	size_t n = eq ? (size_t)(eq - name) : 0;

	if (!eq || eq[1] != '/' || strcmp(eq + 1, "/") == 0 || n >= sizeof(r.name) ||
	    !name_ok(name, n) || (slash && !uuid_parse(text, (size_t)(slash - text), r.company)))
		return err_set(
		    e, ERR_USAGE,
		    "--workspace-root %.80s: give NAME=/DIRECTORY or COMPANY-ID/NAME=/DIRECTORY; a name has "
		    "letters, digits, '.', '_' and '-'",
		    text);
	if (cfg->roots_len == API_ROOTS_MAX)
		return err_set(e, ERR_USAGE, "--workspace-root comes at most %d times",
			       API_ROOTS_MAX);
	memcpy(r.name, name, n);
	r.path = eq + 1;
	cfg->roots[cfg->roots_len++] = r;
	return 0;
}

const struct api_root *runs_root(const struct api_config *cfg, const char *company,
				 const char *name)
{
	const struct api_root *all = NULL;

	for (size_t i = 0; i < cfg->roots_len; i++) {
		const struct api_root *r = &cfg->roots[i];

		if (strcmp(r->name, name) != 0)
			continue;
		if (strcmp(r->company, company) == 0)
			return r;
		if (!r->company[0])
			all = r;
	}
	return all;
}

int runs_resolve(const char *root, const char *path, const char *state_dir, char **ret)
{
	_cleanup_fd_ int top = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC), fd = -1;
	struct beneath b = {.root = top};
	_cleanup_free_ char *state = realpath(state_dir, NULL);
	char link[40], real[PATH_MAX];
	ssize_t n;

	*ret = NULL;
	if (top < 0)
		return -errno;
	if (!state)
		return -ENOENT;
	fd = beneath_open(&b, path, O_PATH | O_DIRECTORY, 0);
	if (fd < 0)
		return fd;
	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, real, sizeof(real) - 1);
	if (n <= 0 || n >= (ssize_t)sizeof(real) - 1)
		return -ENAMETOOLONG;
	real[n] = '\0';
	if (strcmp(real, "/") == 0 || path_is_within(state, real) || path_is_within(real, state))
		return -EPERM;
	*ret = strdup(real);
	return *ret ? 0 : -ENOMEM;
}
