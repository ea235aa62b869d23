#include "api/knownhosts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/blake2b.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "base/str.h"
#include "engine/leasespec.h"
#include "store/lease.h"

#define KNOWN "ssh-known"
#define UNUSED_S 86400 /* since its last use: a run that begins with it has its lease long before */
#define HASH_HEX 32

static void name_of(const char *text, char hex[HASH_HEX + 1])
{
	uint8_t sum[BLAKE2B_OUT];
	struct blake2b b;

	blake2b_init(&b);
	blake2b_update(&b, text, strlen(text));
	blake2b_final(&b, sum);
	str_hex(hex, sum, HASH_HEX / 2);
}

/* The directory, locked: what a use renews is not removed as too old. */
static int open_dir(const char *path, bool make, int how, struct err *e)
{
	_cleanup_fd_ int fd = -1;

	if (make && mkdir(path, 0700) < 0 && errno != EEXIST)
		return err_sys(e, errno, "create %s", path);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT && !make)
		return -ENOENT;
	if (fd < 0 || flock(fd, how) < 0)
		return err_sys(e, errno, "open %s", path);
	return TAKE_FD(fd);
}

int knownhosts_put(struct state *st, const char *text, char **ret, struct err *e)
{
	_cleanup_free_ char *dir = path_join(st->dir, KNOWN), *tmp = NULL;
	_cleanup_fd_ int lock = -1, fd = -1;
	char hex[HASH_HEX + 1];
	size_t n = strlen(text);

	name_of(text, hex);
	*ret = dir ? path_join(dir, hex) : NULL;
	if (!*ret || asprintf(&tmp, "%s.%d", *ret, (int)getpid()) < 0) {
		tmp = NULL;
		return err_set(e, ERR_NOMEM, "ssh: out of memory");
	}
	lock = open_dir(dir, true, LOCK_SH, e);
	if (lock < 0)
		return lock;
	fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, text, n) != (ssize_t)n || write(fd, "\n", 1) != 1 ||
	    rename(tmp, *ret) < 0) {
		int error = errno;

		(void)unlink(tmp);
		return err_sys(e, error, "write %s", *ret);
	}
	return 0;
}

/* --- those that are over ------------------------------------------------------------------ */

/* Names of files that leases speak of. */
static int used(struct state *st, const char *dir, char ***ret, struct err *e)
{
	struct lease_row *v = NULL;
	size_t n = 0, k = strlen(dir);
	int r = lease_list(st->store, &v, &n, e);

	for (size_t i = 0; r == 0 && i < n; i++) {
		_cleanup_leasespec_ struct lease_spec s = {0};

		if (strcmp(v[i].provider, "ssh") != 0)
			continue;
		r = leasespec_get(v[i].spec, &s, e);
		for (char *const *w = s.remote; r == 0 && w && *w; w++) {
			const char *path = *w + strlen("known-hosts=");

			if (str_starts(*w, "known-hosts=") && str_starts(path, dir) &&
			    path[k] == '/')
				r = strv_add(ret, path + k + 1);
		}
	}
	lease_list_free(v, n);
	return r;
}

/* With what a write that was killed has left beside it (HASH.PID). */
static bool over(int dir, const char *name, char *const *names)
{
	size_t n = strcspn(name, ".");
	struct stat st;

	if (n != HASH_HEX || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    time(NULL) - st.st_mtime < UNUSED_S)
		return false;
	for (; !name[n] && names && *names; names++)
		if (strcmp(*names, name) == 0)
			return false;
	return true;
}

int knownhosts_prune(struct state *st, struct err *e)
{
	_cleanup_free_ char *path = path_join(st->dir, KNOWN);
	_cleanup_strv_ char **names = NULL;
	_cleanup_dir_ DIR *d = NULL;
	_cleanup_fd_ int fd = -1;
	struct dirent *de;
	int n = 0;

	if (!path)
		return err_set(e, ERR_NOMEM, "ssh: out of memory");
	fd = open_dir(path, false, LOCK_EX, e);
	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	n = used(st, path, &names, e);
	if (n < 0)
		return n;
	d = opendir(path);
	if (!d)
		return err_sys(e, errno, "open %s", path);
	while ((de = readdir(d)))
		if (over(fd, de->d_name, names) && unlinkat(fd, de->d_name, 0) == 0)
			n++;
	return n;
}
