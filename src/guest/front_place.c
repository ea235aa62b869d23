#include "guest/front_place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/limits.h"
#include "base/str.h"
#include "guest/front_base.h"
#include "guest/front_lock.h"
#include "guest/land.h"
#include "wire/rejoin.h"

#define DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
#define RUNTIME ".airlock-runtime"
#define RUNS "runs"
#define IN_PLACE "in-place"
#define NAP_MS 20
#define NAPS 100
#define TIDY_TRIES 20
#define DELETED \
	" (deleted)" /* the kernel's word, also where an equal file has been put in its place */

_Static_assert(sizeof(REMOTE_RUNS) == sizeof(RUNTIME "/" RUNS), "one name for one place");

static int failed(char *what, int error, const char *step, const char *name)
{
	(void)snprintf(what, RM_WHAT_MAX + 1, "%s %.200s", step, name);
	return -error;
}

int front_place_self(char *path, size_t size)
{
	ssize_t n = readlink("/proc/self/exe", path, size - 1), mark = (ssize_t)strlen(DELETED);

	if (n < 0)
		return -errno;
	if (n > mark && memcmp(path + n - mark, DELETED, (size_t)mark) == 0)
		n -= mark;
	path[n] = '\0';
	return 0;
}

/* Where this program lies, if that is a place of ours alone. */
static int own_programs(char *what)
{
	char path[PATH_MEMBER_MAX + 1];
	int r = front_place_self(path, sizeof(path)), fd;
	char *slash = r < 0 ? NULL : strrchr(path, '/');
	struct stat st;

	if (!slash)
		return failed(what, r < 0 ? -r : EINVAL, "find the directory of", "the guest");
	*slash = '\0';
	fd = open(path, DIR_FLAGS);
	if (fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid() && !(st.st_mode & 0077))
		return fd;
	cleanup_fd(&fd);
	return failed(what, EPERM, "use as a directory of programs", path);
}

/* True: who removes them was there first, and has done it or does not end. Where locks are not to be had, nobody removes any. */
static bool hold_programs(int programs)
{
	const struct timespec nap = {.tv_nsec = NAP_MS * NS_PER_MS};
	char self[PATH_MEMBER_MAX + 1];
	int r;

	for (int i = 0; (r = flock(programs, LOCK_SH | LOCK_NB)) < 0 && errno == EWOULDBLOCK; i++) {
		if (i == NAPS)
			return true;
		(void)nanosleep(&nap, NULL);
	}
	return r == 0 && front_place_self(self, sizeof(self)) == 0 && access(self, F_OK) < 0 &&
	       errno == ENOENT;
}

void front_place_init(struct front_place *p)
{
	char what[RM_WHAT_MAX + 1];

	*p = (struct front_place){
	    .run = -1, .lock = -1, .alone = -1, .pack = {.tree = -1, .index = -1}};
	p->programs = own_programs(what);
	if (p->programs < 0)
		p->programs = -1;
	else
		p->removed = hold_programs(p->programs);
}

int front_place_own_dir(int at, const char *name, bool make, bool *ret_made)
{
	_cleanup_fd_ int fd = -1;
	struct stat st;

	*ret_made = make && mkdirat(at, name, 0700) == 0;
	if (make && !*ret_made && errno != EEXIST)
		return -errno;
	fd = openat(at, name, DIR_FLAGS);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (st.st_uid != geteuid() || (st.st_mode & 0022))
		return -EPERM;
	return TAKE_FD(fd);
}

/* So that a checkout there does not show it. */
static void hide(int runtime)
{
	_cleanup_fd_ int fd = openat(runtime, ".gitignore",
				     O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd >= 0)
		(void)!write(fd, "*\n", 2);
}

/* The directory of all runs. Another run's end may take the empty one away meanwhile. */
static int runs_dir(int root, bool make, int *ret_runtime)
{
	int r = -ENOENT;

	for (int i = 0; i < TIDY_TRIES && r == -ENOENT; i++) {
		bool made;
		int fd = front_place_own_dir(root, RUNTIME, make, &made);

		if (fd < 0)
			return fd;
		if (made)
			hide(fd);
		r = front_place_own_dir(fd, RUNS, make, &made);
		if (r >= 0)
			*ret_runtime = fd;
		else
			(void)close(fd);
		if (!make)
			break;
	}
	return r;
}

/* flags as in struct rm_open. -ENOENT: it is not there, or was taken away before we had its lock. */
static int open_run(struct front_place *p, int runs, const char *lease, unsigned flags, char *what)
{
	char node[FRONT_NODE_MAX + 1];
	bool made;
	int r;

	p->run = front_place_own_dir(runs, lease, !(flags & (RO_REMOVE | RO_RESUME)), &made);
	if (p->run < 0)
		return failed(what, -p->run, "make the directory of run", lease);
	p->lock =
	    openat(p->run, "lock", O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (p->lock < 0)
		return failed(what, errno, "lock the directory of run", lease);
	r = front_lock_take(p->lock, flags & RO_SHARED, REMOTE_TAKE_MS, node);
	if (r == -EBUSY && node[0])
		return failed(what, -r, "end the session of this run that is going on on machine",
			      node);
	if (r == 0 && !fd_has_name(p->run, runs, lease, AT_SYMLINK_NOFOLLOW)) {
		cleanup_fd(&p->lock);
		cleanup_fd(&p->run);
		r = -ENOENT;
	}
	return r < 0 ? failed(what, -r, "lock the directory of run", lease) : 0;
}

/* The last one takes the directories along. */
static void tidy(int root, int runtime)
{
	if (unlinkat(runtime, REMOTE_BASES, AT_REMOVEDIR) < 0 && errno != ENOENT)
		return;
	if (unlinkat(runtime, RUNS, AT_REMOVEDIR) < 0)
		return;
	/* No run is there, so nobody holds it: who comes now begins with the directories. */
	(void)unlinkat(runtime, IN_PLACE, 0);
	(void)unlinkat(runtime, ".gitignore", 0);
	(void)unlinkat(root, RUNTIME, AT_REMOVEDIR);
}

static int remove_run(struct front_place *p, int root, const struct rm_open *m, char *what)
{
	_cleanup_fd_ int runtime = -1, runs = runs_dir(root, false, &runtime);
	int r;

	if (runs == -ENOENT)
		return 0;
	if (runs < 0)
		return failed(what, -runs, "open", REMOTE_RUNS);
	r = open_run(p, runs, m->lease, m->flags, what);
	if (r == -ENOENT)
		return 0;
	if (r == 0) {
		/* First: without it nobody takes what is left of a removal that was cut for work that deleted the rest. */
		if ((renameat(p->run, "index", p->run, "base") < 0 && errno != ENOENT) ||
		    fsync(p->run) < 0)
			return failed(what, errno, "remove the index of run", m->lease);
		/* Of a machine that may have lost files with its power only their bytes count. */
		if (land_lost(p->run))
			(void)unlinkat(p->run, "base", 0);
		r = front_base_keep(p->run, runtime, runs, m) ? 0 : land_remove(runs, m->lease);
		if (r < 0)
			(void)failed(what, -r, "remove the directory of run", m->lease);
	}
	if (r == 0)
		tidy(root, runtime);
	return r;
}

int front_place_landed(struct front_place *p)
{
	int index = openat(p->run, "index", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (index < 0)
		return -errno;
	if (land_lost(p->run)) {
		(void)close(index);
		return -EUCLEAN;
	}
	p->pack.tree = openat(p->run, "workspace", DIR_FLAGS);
	if (p->pack.tree < 0) {
		int r = -errno;

		(void)close(index);
		return r;
	}
	p->pack.index = index;
	return 0;
}

/* One after the other: two that work in one checkout would not know whose change is whose. */
static int take_alone(struct front_place *p, int runtime, const char *root, char *what)
{
	p->alone = openat(runtime, IN_PLACE, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (p->alone >= 0 && flock(p->alone, LOCK_EX | LOCK_NB) == 0)
		return 0;
	return failed(what, errno == EWOULDBLOCK ? EBUSY : errno, "work in place in", root);
}

int front_place_open(struct front_place *p, const struct rm_open *m, char *what)
{
	_cleanup_fd_ int root = open(m->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = -ENOENT;
	bool full = false;

	/* Not there is no proof of a removal: it may not be mounted, or this may be another machine. */
	if (root < 0)
		return failed(what, errno, REMOTE_OPEN_ROOT, m->root);
	if (m->flags & RO_REMOVE)
		return remove_run(p, root, m, what);
	if (p->removed)
		return failed(what, EAGAIN, REMOTE_NO_PROGRAMS, "the guest");
	p->owner = geteuid() == 0 ? m->owner : 0;
	/* Another run's end may take the directory of all runs away between the two steps. */
	for (int i = 0; i < TIDY_TRIES && r == -ENOENT; i++) {
		_cleanup_fd_ int runtime = -1;
		_cleanup_fd_ int runs = runs_dir(root, !(m->flags & RO_RESUME), &runtime);

		if (runs < 0 && (runs != -ENOENT || !(m->flags & RO_RESUME)))
			return failed(what, -runs, REMOTE_MAKE_RUNS, m->root);
		r = runs < 0 ? runs : open_run(p, runs, m->lease, m->flags, what);
		/* Once: what next runs start from is worth less than this one. */
		if (front_place_full(-r) && !full && front_base_room(runtime)) {
			full = true;
			cleanup_fd(&p->lock);
			cleanup_fd(&p->run);
			r = -ENOENT;
			continue;
		}
		if (r == -ENOENT && (m->flags & RO_RESUME))
			return 0;
		if (r == 0 && (m->flags & RO_IN_PLACE))
			return take_alone(p, runtime, m->root, what);
	}
	if (r == 0) {
		r = front_place_landed(p);
		r = r == -ENOENT ? 0 : r;
		if (r == -EUCLEAN)
			(void)failed(
			    what, -r,
			    "tell the run's work from a loss, since this machine started anew before the "
			    "workspace was on its disk; it stays as it is: run",
			    m->lease);
		else if (r < 0)
			(void)failed(what, -r, "open the workspace of run", m->lease);
	}
	return r;
}

bool front_place_full(int error)
{
	return error == ENOSPC || error == EDQUOT;
}

bool front_place_room(struct front_place *p)
{
	_cleanup_fd_ int runtime = openat(p->run, "../..", DIR_FLAGS);

	return runtime >= 0 && front_base_room(runtime);
}

int front_place_find(const char *root, const char *lease)
{
	_cleanup_fd_ int at = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC), runtime = -1,
			 runs = -1;
	bool made;

	if (at < 0)
		return -errno;
	runs = runs_dir(at, false, &runtime);
	return runs < 0 ? runs : front_place_own_dir(runs, lease, false, &made);
}

int front_place_join(int run, bool make)
{
	bool made;

	return front_place_own_dir(run, REMOTE_JOIN, make, &made);
}

static void remove_programs(int dir, struct rm_cleaned *c)
{
	_cleanup_dir_ DIR *d = fdopendir(dir);
	struct dirent *ent;

	if (!d)
		(void)close(dir);
	while (d && (ent = readdir(d))) {
		if (str_starts(ent->d_name, "guest-") || str_starts(ent->d_name, "gateway-") ||
		    str_starts(ent->d_name, "launch-"))
			c->programs += unlinkat(dirfd(d), ent->d_name, 0) == 0;
		else if (str_starts(ent->d_name, ".new-"))
			(void)unlinkat(dirfd(d), ent->d_name, 0);
	}
}

/* A session that has just ended may still be on its way out. Where locks are not to be had, nobody holds one. */
static bool in_use(int programs)
{
	const struct timespec nap = {.tv_nsec = NAP_MS * NS_PER_MS};

	for (int i = 0; flock(programs, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK; i++) {
		if (i == NAPS)
			return true;
		(void)nanosleep(&nap, NULL);
	}
	return false;
}

/*
 * A run without a guest holds no lock. Its directory is not older than its session, which renews the time of `alive` (plainscript.h);
 * one that stands in the future is as good as now.
 */
static bool plain_arrives(int run)
{
	static const char *const names[] = {".", REMOTE_PLAIN_ALIVE};
	struct stat st;

	if (fstatat(run, "lock", &st, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT)
		return false;
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (fstatat(run, names[i], &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    st.st_mtim.tv_sec > clock_real_ns() / NS_PER_S - REMOTE_PLAIN_ALIVE_S)
			return true;
	return false;
}

static void clean_run(int runs, const char *name, struct rm_cleaned *c)
{
	bool made;
	_cleanup_fd_ int run = front_place_own_dir(runs, name, false, &made), lock = -1;
	struct stat st;

	if (run < 0)
		return;
	/* Before a lock is made where there was none. */
	if (plain_arrives(run)) {
		c->busy++;
		return;
	}
	lock = openat(run, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (lock < 0 || flock(lock, LOCK_EX | LOCK_NB) < 0)
		c->busy++;
	/* Only absence is nothing: old kernels, containers and file systems have other answers (no faccessat for that). */
	else if (fstatat(run, "index", &st, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT)
		c->held++;
	/* Another one that cleans up was faster, and what has the name now began since. */
	else if (!fd_has_name(run, runs, name, AT_SYMLINK_NOFOLLOW))
		c->busy++;
	else
		c->runs += land_remove(runs, name) == 0;
}

int front_place_clean(struct front_place *p, const char *root, struct rm_cleaned *ret, char *what)
{
	_cleanup_fd_ int at = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC), runtime = -1;
	_cleanup_dir_ DIR *d = NULL;
	struct dirent *ent;
	int runs, stuck = 0;

	*ret = (struct rm_cleaned){0};
	if (at < 0 && errno != ENOENT)
		return failed(what, errno, "open", root);
	if (p->programs < 0)
		return own_programs(what);
	runs = at < 0 ? -ENOENT : runs_dir(at, false, &runtime);
	if (runs < 0 && runs != -ENOENT)
		return failed(what, -runs, "open", REMOTE_RUNS);
	d = runs < 0 ? NULL : fdopendir(runs);
	if (runs >= 0 && !d)
		(void)close(runs);
	if (runtime >= 0)
		stuck = front_base_clean(runtime);
	while (d && (ent = readdir(d)))
		if (strlen(ent->d_name) == ID_LEN && id_is_prefix(ent->d_name))
			clean_run(dirfd(d), ent->d_name, ret);
	if (runtime >= 0)
		tidy(at, runtime);
	/* Last: as long as something is left to do, the program for it is there. */
	if (!in_use(p->programs))
		remove_programs(TAKE_FD(p->programs), ret);
	else if (!ret->busy)
		ret->busy = 1;
	return stuck < 0 ? failed(what, -stuck, "remove all of the trees of earlier runs in",
				  RUNTIME "/" REMOTE_BASES)
			 : 0;
}
