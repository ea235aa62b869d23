/*
 * Policy: a sandbox sees the host's programs and libraries read-only, a curated /etc without
 * secrets, the binds the user named, and nothing else of the host. Everything is copied from the mount
 * table by descriptor, first, and placed in a new tmpfs; the old root is then detached whole.
 * Not done here: hiding what a world-readable file below /usr tells.
 */
#include "provider/native/setup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "base/str.h"
#include "os/mounts.h"

#define RESOLV_MAX 65536

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

static const char *const dev_nodes[] = {"null", "zero", "full", "random", "urandom", "tty"};

void image_init(struct image *im)
{
	/* Not as a whole: what lies above the lengths is never touched, and pages cost. */
	im->ro_len = im->dev_len = im->links_len = 0;
	memset(im->layers, 0, sizeof(im->layers));
	im->lease = im->home = im->tmp = im->upper_ro = im->aside = -1;
	im->resolv = NULL;
}

void image_done(struct image *im)
{
	for (size_t i = 0; i < im->ro_len; i++) {
		free(im->ro[i].dst);
		cleanup_fd(&im->ro[i].fd);
	}
	for (size_t i = 0; i < im->dev_len; i++) {
		free(im->dev[i].dst);
		cleanup_fd(&im->dev[i].fd);
	}
	for (size_t i = 0; i < PLAN_LAYERS_MAX; i++)
		if (im->layers[i] > 0)
			cleanup_fd(&im->layers[i]);
	for (size_t i = 0; i < im->links_len; i++) {
		free(im->links[i].name);
		free(im->links[i].target);
	}
	free(im->resolv);
	cleanup_fd(&im->lease);
	cleanup_fd(&im->home);
	cleanup_fd(&im->tmp);
	cleanup_fd(&im->upper_ro);
	cleanup_fd(&im->aside);
	image_init(im);
}

int image_add(struct image *im, const char *dst, int fd, bool dir, struct failure *f)
{
	struct tree *t = &im->ro[im->ro_len];

	if (im->ro_len == TREES_MAX) {
		cleanup_fd(&fd);
		return fail(f, STEP_SYSTEM, E2BIG, dst);
	}
	*t = (struct tree){.dst = strdup(dst), .fd = fd, .dir = dir};
	im->ro_len++;
	return t->dst ? 0 : fail(f, STEP_SYSTEM, ENOMEM, dst);
}

static int add_link(struct image *im, const char *name, int dirfd, const char *at,
		    struct failure *f)
{
	char target[1024];
	ssize_t n = readlinkat(dirfd, at, target, sizeof(target) - 1);

	if (n < 0)
		return fail(f, STEP_SYSTEM, errno, name);
	target[n] = '\0';
	if (im->links_len == ARRAY_LEN(im->links))
		return fail(f, STEP_SYSTEM, E2BIG, name);
	im->links[im->links_len].name = strdup(name);
	im->links[im->links_len].target = strdup(target);
	im->links_len++;
	return 0;
}

/* A host path that may be absent: absent is fine, anything else is told. type: DT_*, or DT_UNKNOWN. */
static int add_optional(struct image *im, const char *host, const char *dst, unsigned char type,
			struct failure *f)
{
	int fd = mounts_clone(AT_FDCWD, host);
	struct stat st;

	if (fd == -ENOENT || fd == -ENOTDIR)
		return 0;
	if (fd < 0)
		return fail(f, STEP_SYSTEM, -fd, host);
	if (type == DT_UNKNOWN) {
		if (fstat(fd, &st) < 0) {
			(void)fail(f, STEP_SYSTEM, errno, host);
			cleanup_fd(&fd);
			return -1;
		}
		type = S_ISDIR(st.st_mode) ? DT_DIR : DT_REG;
	}
	return image_add(im, dst, fd, type == DT_DIR, f);
}

static int collect_tops(struct image *im, struct failure *f)
{
	char host[16];

	if (add_optional(im, "/usr", "usr", DT_DIR, f) < 0 ||
	    add_optional(im, "/nix/store", "nix/store", DT_DIR, f) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(tops); i++) {
		struct stat st;
		int r;

		(void)snprintf(host, sizeof(host), "/%s", tops[i]);
		if (lstat(host, &st) < 0)
			continue;
		r = S_ISLNK(st.st_mode) ? add_link(im, tops[i], AT_FDCWD, host, f)
					: add_optional(im, host, tops[i], DT_DIR, f);
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

static int collect_etc(struct image *im, struct failure *f)
{
	_cleanup_dir_ DIR *d = opendir("/etc");
	char host[300], dst[300];
	struct dirent *ent;

	if (!d)
		return fail(f, STEP_ETC, errno, "/etc");
	while ((ent = readdir(d))) {
		int r;

		if (!etc_wanted(ent->d_name))
			continue;
		(void)snprintf(host, sizeof(host), "/etc/%s", ent->d_name);
		r = ent->d_type == DT_LNK ? add_link(im, host + 1, dirfd(d), ent->d_name, f)
					  : add_optional(im, host, host + 1, ent->d_type, f);
		if (r < 0)
			return r;
	}
	for (size_t i = 0; i < ARRAY_LEN(etc_paths); i++) {
		(void)snprintf(host, sizeof(host), "/etc/%s", etc_paths[i]);
		(void)snprintf(dst, sizeof(dst), "etc/%s", etc_paths[i]);
		if (add_optional(im, host, dst, DT_UNKNOWN, f) < 0)
			return -1;
	}
	return 0;
}

static int collect_dev(struct image *im, struct failure *f)
{
	char host[32];

	for (size_t i = 0; i < ARRAY_LEN(dev_nodes); i++) {
		struct tree *t = &im->dev[im->dev_len];
		int fd;

		(void)snprintf(host, sizeof(host), "/dev/%s", dev_nodes[i]);
		fd = mounts_clone(AT_FDCWD, host);
		if (fd < 0)
			return fail(f, STEP_DEV, -fd, host);
		*t = (struct tree){.dst = strdup(host + 1), .fd = fd};
		im->dev_len++;
		if (!t->dst)
			return fail(f, STEP_DEV, ENOMEM, host);
	}
	return 0;
}

static int read_resolv(struct image *im, struct failure *f)
{
	_cleanup_fd_ int fd = open("/etc/resolv.conf", O_RDONLY | O_CLOEXEC);
	_cleanup_buf_ struct buf b = BUF_INIT(RESOLV_MAX);
	ssize_t n = 0;

	if (fd < 0)
		return 0;
	for (char *to; (to = buf_room(&b, 4096)) && (n = read(fd, to, 4096)) > 0;)
		buf_add(&b, (size_t)n);
	if (n < 0 || b.err)
		return fail(f, STEP_ETC, n < 0 ? errno : -b.err, "/etc/resolv.conf");
	im->resolv = strdup(buf_text(&b));
	return im->resolv ? 0 : fail(f, STEP_ETC, ENOMEM, "/etc/resolv.conf");
}

int image_collect(struct image *im, const struct plan *p, struct failure *f)
{
	if (collect_tops(im, f) < 0 || collect_etc(im, f) < 0 || collect_dev(im, f) < 0)
		return -1;
	return p->net == NET_HOST ? read_resolv(im, f) : 0;
}
