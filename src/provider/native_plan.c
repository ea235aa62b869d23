#include "provider/native.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "os/mounts.h"
#include "os/self.h"
#include "wire/guest.h"

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
static int fill_forbidden(struct plan *p, const struct sandbox_spec *s, struct err *e)
{
	const char *h = getenv("HOME"), *config = getenv("XDG_CONFIG_HOME");
	const struct passwd *who = h && h[0] ? NULL : getpwuid(getuid());
	_cleanup_free_ char *home = NULL;
	int r = forbid_real(p, s->workspace, e);

	if (r == 0)
		r = forbid_real(p, getenv("XDG_RUNTIME_DIR"), e);
	if (r == 0)
		r = forbid_real(p, getenv("SSH_AUTH_SOCK"), e);
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(host_forbidden); i++)
		r = forbid_real(p, host_forbidden[i], e);
	if (who)
		h = who->pw_dir;
	home = h && h[0] ? realpath(h, NULL) : NULL;
	for (size_t i = 0; r == 0 && home && i < ARRAY_LEN(home_forbidden); i++)
		r = forbid_below(p, home, home_forbidden[i], e);
	if (r == 0 && config && config[0] == '/')
		r = forbid_below(p, config, "airlock", e);
	return r;
}

static int fill_binds(struct plan *p, const struct sandbox_spec *s, struct err *e)
{
	if (s->binds_len > PLAN_BINDS_MAX)
		return err_set(e, ERR_LIMIT, "%zu binds are over the limit of %d", s->binds_len,
			       PLAN_BINDS_MAX);
	for (size_t i = 0; i < s->binds_len; i++) {
		struct bind_ro *b = &p->binds[i];

		b->src = realpath(s->binds[i].src, NULL);
		if (!b->src)
			return err_sys(e, errno, "bind %s", s->binds[i].src);
		b->dst = strdup(s->binds[i].dst);
		p->binds_len = i + 1;
		if (!b->dst)
			return err_set(e, ERR_NOMEM, "out of memory");
	}
	return 0;
}

/* <state>/leases/<id>, or a storage directory that somebody placed by hand: its parent then. */
static char *state_dir_of(const char *lease_dir)
{
	char *up = path_normalize(lease_dir), *slash;

	if (!up)
		return NULL;
	slash = strrchr(up, '/');
	*(slash > up ? slash : up + 1) = '\0';
	slash = strrchr(up, '/');
	if (slash > up && strcmp(slash, "/leases") == 0)
		*slash = '\0';
	return up;
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

static int fill_ids(struct plan *p, struct err *e)
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

int native_plan(const struct sandbox_spec *s, struct plan *p, struct err *e)
{
	int r;

	*p = (struct plan){.net = s->net, .without = s->without, .keep = s->keep};
	p->memory_bytes = s->limits.memory_bytes;
	p->pids = s->limits.pids;
	p->cpu_milli = s->limits.cpu_milli;
	/* Later users of a kept one want some as well. */
	p->sockets = s->net != NET_NONE || !s->gateway ? 0
		     : s->keep			       ? PLAN_SOCKETS_MAX
						       : s->sockets;
	r = fill_ids(p, e);
	if (r < 0)
		return r;
	r = self_helper("airlock-guest", &p->guest, e);
	if (r == 0 && s->gateway)
		r = self_helper("airlock-gateway", &p->gateway, e);
	if (r < 0)
		return r;
	p->image = s->image ? realpath(s->image, NULL) : NULL;
	if (s->image && !p->image)
		return err_set(
		    e, ERR_NOT_FOUND,
		    "the system image %.300s is not there: import it again, or use another",
		    s->image);
	p->lease_dir = realpath(s->lease_dir, NULL);
	if (!p->lease_dir)
		return err_sys(e, errno, "sandbox storage %s", s->lease_dir);
	p->state_dir = state_dir_of(p->lease_dir);
	p->inside = strdup(s->inside);
	p->hostname = strdup(s->hostname ? s->hostname : "airlock");
	if (!p->state_dir || !p->inside || !p->hostname)
		return err_set(e, ERR_NOMEM, "out of memory");
	for (; s->layers && s->layers[p->layers_len]; p->layers_len++) {
		if (p->layers_len == PLAN_LAYERS_MAX)
			return err_set(e, ERR_LIMIT, "over %d workspace layers", PLAN_LAYERS_MAX);
		p->layers[p->layers_len] = realpath(s->layers[p->layers_len], NULL);
		if (!p->layers[p->layers_len])
			return err_sys(e, errno, "workspace layer %s", s->layers[p->layers_len]);
	}
	r = fill_forbidden(p, s, e);
	if (r == 0)
		r = fill_binds(p, s, e);
	return r < 0 ? r : plan_check(p, e);
}

static void say(struct sandbox *sb, const char *layer, const char *state, const char *detail)
{
	if (sb->isolation_len < ARRAY_LEN(sb->isolation))
		sb->isolation[sb->isolation_len++] = (struct isolation){layer, state, detail};
}

static void say_limit(struct sandbox *sb, const struct plan *p, const char *layer, bool asked,
		      bool in_force)
{
	if (!asked)
		return;
	if (in_force)
		say(sb, layer, "in force", "");
	else
		say(sb, layer, p->without & WITHOUT_CGROUP ? "switched off" : "not available",
		    "--without cgroup");
}

void native_isolation(struct sandbox *sb, const struct plan *p, uint32_t landlock, uint32_t limits)
{
	static const char on[] = "in force", off[] = "switched off";

	sb->isolation_len = 0;
	say(sb, "user namespace", on,
	    p->uid_host == SANDBOX_UID ? "one id, nobody's on the host" : "one id, yours");
	say(sb, "mount namespace", on,
	    p->image ? "private root, an imported system image, read-only"
		     : "private root, system image read-only");
	say(sb, "pid namespace", on, "");
	say(sb, "ipc namespace", on, "");
	say(sb, "uts namespace", on, "");
	say(sb, "cgroup namespace", on, "");
	if (p->net == NET_NONE)
		say(sb, "network namespace", on, "loopback only");
	else
		say(sb, "network namespace", off, "the host's network, all of it");
	if (p->without & WITHOUT_OVERLAY)
		say(sb, "overlay workspace", off, "a private copy instead");
	else
		say(sb, "overlay workspace", on, "");
	say(sb, "no new privileges", on, "");
	say(sb, "capabilities", on, "all dropped");
	if (p->without & WITHOUT_SECCOMP)
		say(sb, "seccomp", off, "--without seccomp");
	else
		say(sb, "seccomp", on, "allow-list");
	if (p->without & WITHOUT_LANDLOCK)
		say(sb, "landlock", off, "--without landlock");
	else if (landlock >= 6)
		say(sb, "landlock", on, "abstract sockets and signals stay inside");
	else
		say(sb, "landlock", "not available",
		    p->net == NET_NONE
			? "kernel before 6.12; the namespaces cover it"
			: "kernel before 6.12: abstract sockets of the host are in reach");
	say(sb, "process limit", on, "");
	say_limit(sb, p, "cgroup memory", p->memory_bytes, limits & GR_MEMORY);
	say_limit(sb, p, "cgroup cpu", p->cpu_milli, limits & GR_CPU);
}
