/*
 * A cgroup with limits on memory, processes and CPU: makes one, sets the limit, moves a process in, removes
 * it.
 *
 * Looked for below the cgroup that this process is in (version 2, then version 1 hierarchies), and, for root
 * in version 1, below the top of the hierarchy, so that limits of the caller's own cgroup are not a surprise.
 */
#include "os/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"

#define REMOVE_TRIES \
	100 /* a millisecond each: a cgroup is busy until the kernel has buried its last process */

struct controller {
	const char *name, *v2_file, *v1_file, *value;
};

static const struct controller controllers[] = {
    {"memory", "memory.max", "memory.limit_in_bytes", "67108864"},
    {"pids", "pids.max", "pids.max", "64"},
    {"cpu", "cpu.max", "cpu.cfs_quota_us", "50000"},
};

static bool has_word(const char *list, const char *word)
{
	size_t n = strlen(word);

	for (const char *p = list; (p = strstr(p, word)); p += n)
		if ((p == list || strchr(", ", p[-1])) && (p[n] == '\0' || strchr(", \n", p[n])))
			return true;
	return false;
}

/* Path of this process's cgroup in the hierarchy of controller (NULL: version 2) from /proc/self/cgroup. */
static int own_path(const char *controller, char *out, size_t n)
{
	_cleanup_file_ FILE *f = fopen("/proc/self/cgroup", "re");
	char line[PATH_MAX + 128];

	while (f && fgets(line, sizeof(line), f)) {
		char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;

		if (!path)
			continue;
		*path++ = '\0';
		path[strcspn(path, "\n")] = '\0';
		if (controller ? has_word(list + 1, controller) : list[1] == '\0')
			return (size_t)snprintf(out, n, "%s", path) < n ? 0 : -ENAMETOOLONG;
	}
	return -ENOENT;
}

/* Mount point of the hierarchy, and which part of it is mounted there. */
static int mount_of(const char *controller, char *at, char *root)
{
	_cleanup_file_ FILE *f = fopen("/proc/self/mountinfo", "re");
	char line[3 * PATH_MAX], type[64], super[1024];

	while (f && fgets(line, sizeof(line), f)) {
		const char *tail = strstr(line, " - ");

		if (!tail || sscanf(line, "%*d %*d %*s %4095s %4095s", root, at) != 2 ||
		    sscanf(tail, " - %63s %*s %1023s", type, super) != 2)
			continue;
		if (controller ? str_eq(type, "cgroup") && has_word(super, controller)
			       : str_eq(type, "cgroup2"))
			return 0;
	}
	return -ENOENT;
}

/* Directory of the own cgroup in the file system; -ENOENT if the hierarchy is not mounted. */
static int own_dir(const char *controller, bool top, char *out, size_t n)
{
	char at[PATH_MAX], root[PATH_MAX], path[PATH_MAX];
	const char *below = path;
	int r = own_path(controller, path, sizeof(path));

	if (r == 0)
		r = mount_of(controller, at, root);
	if (r < 0)
		return r;
	/* In a container without a cgroup namespace only the container's part is mounted. */
	if (!str_eq(root, "/") && str_starts(path, root))
		below = path + strlen(root);
	if (top || str_eq(below, "/"))
		below = "";
	return (size_t)snprintf(out, n, "%s%s", at, below) < n ? 0 : -ENAMETOOLONG;
}

static int put(int dir, const char *name, const char *text)
{
	_cleanup_fd_ int fd = openat(dir, name, O_WRONLY | O_CLOEXEC);

	return fd < 0 || write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

static bool lists(int dir, const char *file, const char *word)
{
	_cleanup_fd_ int fd = openat(dir, file, O_RDONLY | O_CLOEXEC);
	char text[256];
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (n <= 0)
		return false;
	text[n] = '\0';
	return has_word(text, word);
}

/* Moves a process that waits to be killed into the cgroup. */
static int try_member(int group)
{
	pid_t self = getpid(), pid;
	char text[16];
	int r;

	pid = fork();
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() == self)
			(void)pause();
		_exit(0);
	}
	if (pid < 0)
		return -errno;
	(void)snprintf(text, sizeof(text), "%d", (int)pid);
	r = put(group, "cgroup.procs", text);
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
	return r;
}

static void remove_group(int dir, const char *name)
{
	for (int i = 0; i < REMOVE_TRIES && unlinkat(dir, name, AT_REMOVEDIR) < 0 && errno == EBUSY;
	     i++)
		(void)poll(NULL, 0, 1);
}

/*
 * Version 2: a child cgroup has a controller only if the parent hands it down, and a parent with processes in
 * it may not. The trial asks for it, and takes it back if it was not given before.
 */
static int try_v2(int dir, const struct controller *c, const char *name)
{
	char plus[24], minus[24];
	_cleanup_fd_ int group = -1;
	bool given = lists(dir, "cgroup.subtree_control", c->name);
	int r = 0;

	if (!lists(dir, "cgroup.controllers", c->name))
		return -ENOENT;
	(void)snprintf(plus, sizeof(plus), "+%s", c->name);
	(void)snprintf(minus, sizeof(minus), "-%s", c->name);
	if (mkdirat(dir, name, 0755) < 0)
		return -errno;
	group = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (!given)
		r = put(dir, "cgroup.subtree_control", plus);
	/* The launcher would first move itself down: with processes here the right to write is the proof. */
	if (r == -EBUSY && faccessat(dir, "cgroup.procs", W_OK, AT_EACCESS) == 0) {
		r = try_member(group);
	} else if (r == 0) {
		r = put(group, c->v2_file, c->value);
		if (r == 0)
			r = try_member(group);
		if (!given)
			(void)put(dir, "cgroup.subtree_control", minus);
		/* pids and cpu are given, but make this a threaded group, whose children take no process. */
		if (r == -EOPNOTSUPP && !given &&
		    faccessat(dir, "cgroup.procs", W_OK, AT_EACCESS) == 0)
			r = try_member(group);
	}
	remove_group(dir, name);
	return r;
}

static int try_v1(int dir, const struct controller *c, const char *name)
{
	_cleanup_fd_ int group = -1;
	int r;

	if (mkdirat(dir, name, 0755) < 0)
		return -errno;
	group = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = group < 0 ? -errno : put(group, c->v1_file, c->value);
	if (r == 0)
		r = try_member(group);
	remove_group(dir, name);
	return r;
}

/* 0 and the version that works, or the last refusal with its version and directory. */
static int try_controller(const struct controller *c, const char *name, char *where, size_t n,
			  int *ret_version)
{
	const struct {
		int version;
		bool top;
	} places[] = {{2, false}, {1, false}, {1, true}};
	int result = -ENOENT;

	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		char path[PATH_MAX];
		_cleanup_fd_ int dir = -1;
		int r = own_dir(places[i].version == 2 ? NULL : c->name, places[i].top, path,
				sizeof(path));

		if (r < 0)
			continue;
		dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		r = dir < 0		     ? -errno
		    : places[i].version == 2 ? try_v2(dir, c, name)
					     : try_v1(dir, c, name);
		if (r == 0) {
			*ret_version = places[i].version;
			return 0;
		}
		if (r != -ENOENT) {
			result = r;
			*ret_version = places[i].version;
			(void)snprintf(where, n, "%.200s", path);
		}
	}
	return result;
}

void probe_cgroup(const struct probe_env *env, struct probe_result *r)
{
	char name[48], where[PROBE_TEXT_MAX] = "", path[PATH_MAX], root[PATH_MAX],
		       lacking[PROBE_TEXT_MAX] = "";
	size_t have = 0, got = 0, lack = 0;
	int sys = 0, version = 0;

	(void)env;
	(void)snprintf(name, sizeof(name), "airlock-doctor-%d", (int)getpid());
	for (size_t i = 0; i < ARRAY_LEN(controllers); i++) {
		int err = try_controller(&controllers[i], name, where, sizeof(where), &version);

		if (err == 0) {
			got++;
			have += (size_t)snprintf(r->detail + have, sizeof(r->detail) - have,
						 "%s%s (v%d)", have ? ", " : "",
						 controllers[i].name, version);
		} else {
			sys = -err;
			lack += (size_t)snprintf(lacking + lack, sizeof(lacking) - lack, "%s%s",
						 lack ? ", " : "", controllers[i].name);
		}
	}
	if (got == ARRAY_LEN(controllers))
		return;
	if (got)
		probe_limited(r, CAUSE_CGROUP_CONTROLLERS, lacking);
	else if (where[0])
		probe_missing(r, version == 1 ? CAUSE_CGROUP_ROOT_ONLY : CAUSE_CGROUP_NOT_DELEGATED,
			      sys, "make a cgroup", where);
	else if (mount_of(NULL, path, root) == 0)
		probe_missing(r, CAUSE_CGROUP_CONTROLLERS, sys, "make a cgroup", lacking);
	else
		probe_missing(r, CAUSE_CGROUP_NONE, sys, "find a cgroup", NULL);
}
