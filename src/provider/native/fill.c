/*
 * What of a plan is the machine's own, wherever it is drawn up: the places that must stay outside, and the ids. The native
 * provider asks for its own machine, airlock-launch for the one that it was sent to.
 */
#include "provider/native/fill.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "os/mounts.h"

/* Below the user's home: credentials, keys and sessions that no bind may carry in. */
static const char *const home_forbidden[] = {
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".netrc",
    ".git-credentials",
    ".config/git",
    ".config/airlock",
    ".config/gh",
    ".config/gcloud",
    ".config/containers",
    ".password-store",
    ".pypirc",
    ".npmrc",
    ".cargo/credentials.toml",
    ".local/share/keyrings",
    ".mozilla",
    ".config/google-chrome",
    ".config/chromium",
    ".vault-token",
    ".terraform.d",
};

/* Anywhere: secrets of the system, and places where engines keep sockets and images. */
static const char *const host_forbidden[] = {
    "/etc/shadow",	"/etc/gshadow",	       "/etc/ssl/private", "/etc/ssh",
    "/etc/sudoers.d",	"/etc/kubernetes",     "/var/lib/docker",  "/var/lib/containerd",
    "/var/lib/kubelet", "/var/lib/containers", "/var/spool/cron",
};

static int forbid(struct plan *p, const char *path, struct err *e)
{
	if (!path || !path_is_absolute_normal(path) || strcmp(path, "/") == 0)
		return 0;
	if (p->forbidden_len == PLAN_FORBIDDEN_MAX)
		return err_set(e, ERR_INTERNAL, "over %d forbidden places", PLAN_FORBIDDEN_MAX);
	p->forbidden[p->forbidden_len] = strdup(path);
	return p->forbidden[p->forbidden_len++] ? 0 : err_set(e, ERR_NOMEM, "out of memory");
}

/*
 * Where a place lies whose path, as given, leads through a link; NULL if it leads through none, or to nothing. Most places are
 * absent: one call tells, where realpath asks for each part of a path, before anything else of a start can begin.
 */
static char *elsewhere(const char *path)
{
	int fd = path_is_absolute_normal(path) ? mounts_open(AT_FDCWD, path) : -ELOOP;

	if (fd < 0)
		return fd == -ENOENT || fd == -ENOTDIR ? NULL : realpath(path, NULL);
	cleanup_fd(&fd);
	return NULL;
}

/* The path as given and, when it leads elsewhere, the place it leads to. */
static int forbid_real(struct plan *p, const char *path, struct err *e)
{
	_cleanup_free_ char *real = path ? elsewhere(path) : NULL;
	int r = forbid(p, path, e);

	if (r == 0 && real && strcmp(real, path) != 0)
		r = forbid(p, real, e);
	return r;
}

static int forbid_below(struct plan *p, const char *dir, const char *leaf, struct err *e)
{
	_cleanup_free_ char *path = path_join(dir, leaf);

	return path ? forbid_real(p, path, e) : err_set(e, ERR_NOMEM, "out of memory");
}

/* Each place also where its links lead: keys are often kept in a directory of their own, with a link in the usual place. */
int plan_forbid(struct plan *p, const char *workspace, const char *home_dir, struct err *e)
{
	const char *config = getenv("XDG_CONFIG_HOME");
	_cleanup_free_ char *home = home_dir && home_dir[0] ? realpath(home_dir, NULL) : NULL;
	int r = workspace ? forbid_real(p, workspace, e) : 0;

	if (r == 0)
		r = forbid_real(p, getenv("XDG_RUNTIME_DIR"), e);
	if (r == 0)
		r = forbid_real(p, getenv("SSH_AUTH_SOCK"), e);
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(host_forbidden); i++)
		r = forbid_real(p, host_forbidden[i], e);
	for (size_t i = 0; r == 0 && home && i < ARRAY_LEN(home_forbidden); i++)
		r = forbid_below(p, home, home_forbidden[i], e);
	if (r == 0 && config && config[0] == '/')
		r = forbid_below(p, config, "airlock", e);
	return r;
}

/* True if this user namespace has the id at all. The initial one has every id. */
static bool id_is_mapped(uint32_t id)
{
	_cleanup_file_ FILE *f = fopen("/proc/self/uid_map", "re");
	unsigned first, outside, count;

	while (f && fscanf(f, "%u %u %u", &first, &outside, &count) == 3)
		if (id >= first && id - first < count)
			return true;
	return false;
}

int plan_ids(struct plan *p, struct err *e)
{
	if (geteuid() != 0) {
		p->uid_inside = p->uid_host = geteuid();
		p->gid_inside = p->gid_host = getegid();
		return 0;
	}
	if (!id_is_mapped(SANDBOX_UID))
		return err_set(
		    e, ERR_UNAVAILABLE,
		    "sandboxes that root starts run as user %u, which this user namespace "
		    "does not have. Remedy: run Airlock as an ordinary user here, or outside "
		    "of this container",
		    SANDBOX_UID);
	p->uid_inside = p->gid_inside = SANDBOX_UID_INSIDE;
	p->uid_host = p->gid_host = SANDBOX_UID;
	return 0;
}
