/*
 * Policy: a sandbox sees the host's programs and libraries read-only, a curated /etc without
 * secrets, the binds the user named, and nothing else of the host. The system's part is bound by name into a new
 * tmpfs, in which only this program has made anything; what the plan names comes by descriptor (places.c); the old root is then
 * detached whole.
 * Not done here: hiding what a world-readable file below /usr tells.
 */
#include "provider/native/setup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/path.h"
#include "os/mounts.h"

/* Links on hosts with merged /usr, directories on others; both kinds start (L1). */
static const char *const tops[] = {"bin", "sbin", "lib", "lib32", "lib64", "libx32"};

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

/* Below /etc/ssl and /etc/pki lie private keys as well: only these. */
static const char *const etc_paths[] = {
    "ssl/certs",
    "ssl/openssl.cnf",
    "ssl/cert.pem",
    "pki/tls/certs",
    "pki/tls/cert.pem",
    "pki/tls/openssl.cnf",
    "pki/ca-trust/extracted",
    "crypto-policies/back-ends",
};

static const char *const dev_nodes[] = {
    "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty",
};

void image_init(struct image *im)
{
	/* Not as a whole: what lies above the length is never touched, and pages cost. */
	im->ro_len = 0;
	memset(im->layers, 0, sizeof(im->layers));
	im->system = im->lease = im->home = im->tmp = im->upper_ro = im->aside = im->root = -1;
}

int image_add(struct image *im, const char *dst, int fd, bool dir, struct failure *f)
{
	struct tree *t = &im->ro[im->ro_len];

	if (im->ro_len == TREES_MAX) {
		cleanup_fd(&fd);
		return fail(f, STEP_SYSTEM, E2BIG, dst);
	}
	*t = (struct tree){.dst = dst, .fd = fd, .dir = dir};
	im->ro_len++;
	return 0;
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

/* A host path that may be absent: absent is fine, anything else is told. type: DT_*, or DT_UNKNOWN. */
static int put_optional(int root, const char *host, unsigned char type, struct failure *f)
{
	const char *dst = host + 1;
	struct stat st;
	int r;

	if (type == DT_UNKNOWN) {
		if (stat(host, &st) < 0)
			return errno == ENOENT || errno == ENOTDIR
				   ? 0
				   : fail(f, STEP_SYSTEM, errno, host);
		type = S_ISDIR(st.st_mode) ? DT_DIR : DT_REG;
	}
	r = image_point(root, dst, type == DT_DIR);
	if (r == 0)
		r = mounts_bind(host, dst);
	/* Gone since it was listed. */
	if (r == -ENOENT && unlinkat(root, dst, type == DT_DIR ? AT_REMOVEDIR : 0) == 0)
		return 0;
	return r < 0 ? fail(f, STEP_SYSTEM, -r, host) : 0;
}

static int put_tops(int root, struct failure *f)
{
	char host[16];

	if (put_optional(root, "/usr", DT_UNKNOWN, f) < 0 ||
	    put_optional(root, "/nix/store", DT_UNKNOWN, f) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(tops); i++) {
		struct stat st;
		int r;

		(void)snprintf(host, sizeof(host), "/%s", tops[i]);
		if (lstat(host, &st) < 0)
			continue;
		r = S_ISLNK(st.st_mode) ? image_link(root, tops[i], AT_FDCWD, host, f)
					: put_optional(root, host, DT_DIR, f);
		if (r < 0)
			return r;
	}
	return 0;
}

static bool etc_wanted(const char *name)
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

static int put_etc(int root, struct failure *f)
{
	_cleanup_dir_ DIR *d = opendir("/etc");
	struct dirent *ent;
	char host[300];

	if (!d)
		return fail(f, STEP_ETC, errno, "/etc");
	while ((ent = readdir(d))) {
		int r;

		if (!etc_wanted(ent->d_name))
			continue;
		(void)snprintf(host, sizeof(host), "/etc/%s", ent->d_name);
		r = ent->d_type == DT_LNK ? image_link(root, host + 1, dirfd(d), ent->d_name, f)
					  : put_optional(root, host, ent->d_type, f);
		if (r < 0)
			return r;
	}
	for (size_t i = 0; i < ARRAY_LEN(etc_paths); i++) {
		(void)snprintf(host, sizeof(host), "/etc/%s", etc_paths[i]);
		if (put_optional(root, host, DT_UNKNOWN, f) < 0)
			return -1;
	}
	return 0;
}

int image_system(int root, struct failure *f)
{
	return put_tops(root, f) < 0 ? -1 : put_etc(root, f);
}

int image_dev_points(int root, struct failure *f)
{
	for (size_t i = 0; i < ARRAY_LEN(dev_nodes); i++) {
		int r = image_point(root, dev_nodes[i] + 1, false);

		if (r < 0)
			return fail(f, STEP_DEV, -r, dev_nodes[i]);
	}
	return 0;
}

int image_dev(struct failure *f)
{
	for (size_t i = 0; i < ARRAY_LEN(dev_nodes); i++) {
		int r = mounts_bind(dev_nodes[i], dev_nodes[i] + 1);

		if (r < 0)
			return fail(f, STEP_DEV, -r, dev_nodes[i]);
	}
	return 0;
}
