/*
 * Policy: what a root consists of before anything is mounted on it: directories, links, places to mount on, the files of
 * etc.c. All of it goes below one directory, a tmpfs of this start's own or a kept one (skeleton.c), so nothing here knows
 * which, and nothing here mounts. Of the host's /etc only the names in the list are there at all.
 */
#include "provider/native/names.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "provider/native/setup.h"
#include "wire/guest.h"

/* Empty directories of the root; the first ones are mount points. */
static const char *const dirs[] = {
    ".airlock",	 "dev",	    "dev/pts", "dev/shm", "proc",     "home",  "home/agent",
    "tmp",	 "etc",	    "etc/ssl", "run",	  "run/lock", "var",   "var/lib",
    "var/cache", "var/log", "opt",     "srv",	  "mnt",      "media", "sys",
};

static const char *const links[][2] = {
    {"dev/ptmx", "pts/ptmx"},	       {"dev/fd", "/proc/self/fd"},
    {"dev/stdin", "/proc/self/fd/0"},  {"dev/stdout", "/proc/self/fd/1"},
    {"dev/stderr", "/proc/self/fd/2"}, {"dev/core", "/proc/kcore"},
    {"etc/mtab", "/proc/self/mounts"}, {"var/run", "/run"},
    {"var/lock", "/run/lock"},	       {"var/tmp", "/tmp"},
};

/* Links on hosts with merged /usr, directories on others; both kinds start (L1). */
const char *const names_tops[] = {"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", NULL};

/*
 * /etc by name: what programs need to find libraries, names, certificates, time and terminals.
 * A name that ends with '*' is a prefix. Not here, on purpose: shadow, sudoers, ssh, gitconfig,
 * environment, machine-id, krb5.keytab, NetworkManager, docker, kubernetes, anything with a password.
 */
static const char *const etc_names[] = {
    "alternatives", "bash.bashrc", "fonts",	 "ghc",	      "host.conf",   "inputrc",
    "java*",	    "ld-musl*",	   "ld.so.*",	 "localtime", "lsb-release", "magic",
    "maven",	    "mime.types",  "os-release", "perl",      "php*",	     "protocols",
    "python*",	    "services",	   "static",	 "terminfo",  "timezone",    "xml",
};

/* Whole, if there. Below /etc/ssl and /etc/pki lie private keys as well: only these. */
const char *const names_paths[] = {
    "/usr",
    "/nix/store",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/ssl/cert.pem",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/cert.pem",
    "/etc/pki/tls/openssl.cnf",
    "/etc/pki/ca-trust/extracted",
    "/etc/crypto-policies/back-ends",
    NULL,
};

const char *const names_dev[] = {
    "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", NULL,
};

static int make_point(int rootfd, const char *path, bool dir)
{
	int r = dir ? mkdirat(rootfd, path, 0755) : mknodat(rootfd, path, S_IFREG | 0444, 0);
	struct stat st;

	if (r == 0 || (dir && errno == EEXIST))
		return 0;
	if (dir || errno != EEXIST)
		return -errno;
	/* A file that is there will do, a link will not. */
	if (fstatat(rootfd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	return S_ISREG(st.st_mode) ? 0 : S_ISLNK(st.st_mode) ? -ELOOP : -EEXIST;
}

/* Not inlined: a page of stack that nearly no start needs. */
static __attribute__((noinline)) int make_parents(int rootfd, const char *dst)
{
	char path[4096];
	size_t n = strlen(dst);

	if (n >= sizeof(path))
		return -ENAMETOOLONG;
	memcpy(path, dst, n + 1);
	for (size_t i = 1; i < n; i++) {
		if (path[i] != '/')
			continue;
		path[i] = '\0';
		if (mkdirat(rootfd, path, 0755) < 0 && errno != EEXIST)
			return -errno;
		path[i] = '/';
	}
	return 0;
}

int image_point(int rootfd, const char *dst, bool dir)
{
	int r = make_point(rootfd, dst, dir);

	/* Most places have their parent already. */
	if (r != -ENOENT)
		return r;
	r = make_parents(rootfd, dst);
	return r < 0 ? r : make_point(rootfd, dst, dir);
}

int image_link(int root, const char *name, int dirfd, const char *at, struct failure *f)
{
	char target[LINK_TARGET_MAX + 1];
	ssize_t n = readlinkat(dirfd, at, target, sizeof(target));

	if (n < 0 || (size_t)n == sizeof(target))
		return fail(f, STEP_SYSTEM, n < 0 ? errno : ENAMETOOLONG, name);
	target[n] = '\0';
	return symlinkat(target, root, name) < 0 ? fail(f, STEP_SYSTEM, errno, name) : 0;
}

int names_kind(const char *host)
{
	struct stat st;

	if (stat(host, &st) < 0)
		return errno == ENOENT || errno == ENOTDIR ? NAMES_ABSENT : -errno;
	return S_ISDIR(st.st_mode) ? NAMES_DIR : NAMES_FILE;
}

/* A host path that may be absent: absent is fine, anything else is told. type: DT_*, or DT_UNKNOWN. */
static int name_optional(int root, const char *host, unsigned char type, struct failure *f)
{
	bool dir = type == DT_DIR;
	int r;

	if (type == DT_UNKNOWN) {
		r = names_kind(host);
		if (r < 0)
			return fail(f, STEP_SYSTEM, -r, host);
		if (r == NAMES_ABSENT)
			return 0;
		dir = r == NAMES_DIR;
	}
	r = image_point(root, host + 1, dir);
	return r < 0 ? fail(f, STEP_SYSTEM, -r, host) : 0;
}

static int name_tops(int root, struct failure *f)
{
	for (size_t i = 0; names_tops[i]; i++) {
		const char *host = names_tops[i];
		struct stat st;
		int r;

		if (lstat(host, &st) < 0)
			continue;
		r = S_ISLNK(st.st_mode) ? image_link(root, host + 1, AT_FDCWD, host, f)
					: name_optional(root, host, DT_DIR, f);
		if (r < 0)
			return r;
	}
	return 0;
}

bool names_of_etc(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(etc_names); i++) {
		const char *w = etc_names[i];
		size_t n = strlen(w);

		if (w[0] != name[0])
			continue;
		if (w[n - 1] == '*' ? strncmp(name, w, n - 1) == 0 : strcmp(name, w) == 0)
			return true;
	}
	return false;
}

unsigned char names_type(int dir, const struct dirent *ent)
{
	struct stat st;

	if (ent->d_type != DT_UNKNOWN)
		return ent->d_type;
	if (fstatat(dir, ent->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return DT_UNKNOWN;
	return S_ISLNK(st.st_mode) ? DT_LNK : S_ISDIR(st.st_mode) ? DT_DIR : DT_REG;
}

static int name_etc(int root, struct failure *f)
{
	_cleanup_dir_ DIR *d = opendir("/etc");
	struct dirent *ent;
	char host[300];

	if (!d)
		return fail(f, STEP_ETC, errno, "/etc");
	while ((ent = readdir(d))) {
		unsigned char type;
		int r;

		if (!names_of_etc(ent->d_name))
			continue;
		type = names_type(dirfd(d), ent);
		(void)snprintf(host, sizeof(host), "/etc/%s", ent->d_name);
		r = type == DT_LNK ? image_link(root, host + 1, dirfd(d), ent->d_name, f)
				   : name_optional(root, host, type, f);
		if (r < 0)
			return r;
	}
	return 0;
}

static int name_system(int root, struct failure *f)
{
	for (size_t i = 0; names_paths[i]; i++)
		if (name_optional(root, names_paths[i], DT_UNKNOWN, f) < 0)
			return -1;
	return name_tops(root, f) < 0 ? -1 : name_etc(root, f);
}

static int name_fixed(int root, struct failure *f)
{
	for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
		if (mkdirat(root, dirs[i], 0755) < 0)
			return fail(f, STEP_ROOT, errno, dirs[i]);
	for (size_t i = 0; i < ARRAY_LEN(links); i++)
		if (symlinkat(links[i][1], root, links[i][0]) < 0)
			return fail(f, STEP_ROOT, errno, links[i][0]);
	for (size_t i = 0; names_dev[i]; i++) {
		int r = image_point(root, names_dev[i] + 1, false);

		if (r < 0)
			return fail(f, STEP_DEV, -r, names_dev[i]);
	}
	return 0;
}

int names_make(int root, const struct plan *p, struct failure *f)
{
	int r = name_fixed(root, f);

	if (r < 0)
		return r;
	r = image_point(root, p->inside + 1, true);
	if (r < 0)
		return fail(f, STEP_ROOT, -r, p->inside);
	/* What an imported image has waits for its descriptor. */
	if (!p->image && name_system(root, f) < 0)
		return -1;
	return image_etc(root, p, f);
}

uint64_t names_bind_dirs(const struct plan *p)
{
	uint64_t found = 0;

	_Static_assert(PLAN_BINDS_MAX <= 64, "a bit for each");
	for (size_t i = 0; i < p->binds_len; i++)
		if (names_kind(p->binds[i].src) == NAMES_DIR)
			found |= UINT64_C(1) << i;
	return found;
}

int names_points(int root, const struct plan *p, uint64_t bind_dirs, struct failure *f)
{
	int r = image_point(root, &GUEST_PATH[1], false);

	if (r == 0 && p->gateway)
		r = image_point(root, &GATEWAY_PATH[1], false);
	for (size_t i = 0; r == 0 && i < p->binds_len; i++)
		r = image_point(root, p->binds[i].dst + 1, bind_dirs >> i & 1);
	return r < 0 ? fail(f, STEP_ROOT, -r, "mount points") : 0;
}
