#include "sync/unpack_place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "os/beneath.h"
#include "sync/unpack_key.h"
#include "sync/unpack_proto.h"

static const char *const stagings[] = {STAGING_GIT, STAGING_TOP};

int unpack_places(int root_fd, char ***ret_names)
{
	struct beneath root = {.root = root_fd};

	*ret_names = NULL;
	for (size_t i = 0; i < ARRAY_LEN(stagings); i++) {
		int fd = beneath_open(&root, stagings[i], O_RDONLY | O_DIRECTORY, 0);
		_cleanup_dir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);
		struct dirent *de;

		if (fd >= 0 && !d)
			(void)close(fd);
		while (d && (de = readdir(d)))
			if (strlen(de->d_name) == ID_LEN && id_is_prefix(de->d_name) &&
			    strv_add(ret_names, de->d_name) < 0) {
				strv_free(*ret_names);
				*ret_names = NULL;
				return -ENOMEM;
			}
	}
	return 0;
}

/* The path in the last record of a committed journal of ours. 1, 0 or negative errno. */
static int read_place(int journal, const uint8_t key[JOURNAL_KEY], struct intent *in)
{
	_cleanup_journal_cache_ struct journal_cache k = {.key = key};
	uint64_t end;
	int r = journal_committed(journal, key, &end);

	if (r > 0)
		r = journal_prev(journal, &k, &end, in);
	return r > 0 ? in->op == IN_HEADER && in->path_len : r == -EKEYREJECTED ? 0 : r;
}

/*
 * The journal in the staging directory `name`, or -ENOENT: none that is ours to read, as airlock-unpack sees it too.
 * What else lies in that place must not hold up every later run.
 */
static int open_journal(int root_fd, const char *name)
{
	char path[sizeof(STAGING_GIT) + ID_LEN + 16];
	struct beneath root = {.root = root_fd};
	int fd = -ENOENT;
	struct stat st;

	for (size_t i = 0; i < ARRAY_LEN(stagings) && fd == -ENOENT; i++) {
		(void)snprintf(path, sizeof(path), "%s/%s/journal", stagings[i], name);
		fd = beneath_open(&root, path, O_RDONLY | O_NONBLOCK, 0);
		if (fd == -ENOTDIR || fd == -ELOOP || fd == -EACCES)
			fd = -ENOENT;
		if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))) {
			(void)close(fd);
			fd = -ENOENT;
		}
	}
	return fd;
}

/* How much of the path of a place is the run, which is removed as a whole: runs/<id> of runs/<id>/maps/0. */
static size_t run_len(const char *path, const char *state_dir)
{
	const char *p = strchr(path + strlen(state_dir) + 1, '/');

	p = p ? strchr(p + 1, '/') : NULL;
	return p ? (size_t)(p - path) : strlen(path);
}

static int open_run(int place, const char *path, const char *state_dir)
{
	size_t n = run_len(path, state_dir);
	_cleanup_free_ char *top = NULL;
	int fd;

	/* One lock with the descriptor that airlock-unpack gets: it lasts until that ends, whoever dies first. */
	if (!path[n]) {
		fd = fcntl(place, F_DUPFD_CLOEXEC, 0);
		return fd < 0 ? -errno : fd;
	}
	top = strndup(path, n);
	if (!top)
		return -ENOMEM;
	fd = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* An apply has its own run locked already, by another descriptor. */
static bool is_own(int run, const char *own, const char *state_dir)
{
	_cleanup_free_ char *top = NULL;

	if (!own || !path_is_within(own, state_dir) || strlen(own) <= strlen(state_dir) + 1)
		return false;
	top = strndup(own, run_len(own, state_dir));
	return top && fd_has_name(run, AT_FDCWD, top, 0);
}

/*
 * Nobody removes the run while the lock is held. 0, or -ENOENT: somebody is at it, or was before us. Where the file
 * system has no locks there is none.
 */
static int hold(int place, const char *path, const char *state_dir, const char *own, int *ret_lock)
{
	int run = open_run(place, path, state_dir);

	if (run < 0)
		return run;
	*ret_lock = run;
	if (is_own(run, own, state_dir))
		return 0;
	if (flock(run, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK)
		return -ENOENT;
	return fd_has_name(place, AT_FDCWD, path, 0) ? 0 : -ENOENT;
}

int unpack_place_open(int root_fd, const char *name, const char *state_dir,
		      const uint8_t key[JOURNAL_KEY], const char *own_run, int *ret_lock)
{
	uint8_t own[JOURNAL_KEY];
	_cleanup_free_ struct intent *in = malloc(sizeof(*in));
	_cleanup_fd_ int journal = -1, place = -1;
	int r;

	*ret_lock = -1;
	if (!in)
		return -ENOMEM;
	journal = open_journal(root_fd, name);
	if (journal < 0)
		return journal;
	unpack_key_stage(key, name, own);
	r = read_place(journal, own, in);
	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	if (strlen(in->path) != in->path_len || !path_is_absolute_normal(in->path) ||
	    !path_is_within(in->path, state_dir) || in->path_len <= strlen(state_dir) + 1)
		return -ENOENT;
	/* Ours, by its signature; followed, because a user may have put runs/ on another disk. */
	place = open(in->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (place < 0)
		return errno == ENOTDIR || errno == ELOOP || errno == EACCES ? -ENOENT : -errno;
	r = hold(place, in->path, state_dir, own_run, ret_lock);
	if (r < 0) {
		cleanup_fd(ret_lock);
		return r;
	}
	return TAKE_FD(place);
}
