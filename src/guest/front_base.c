#include "guest/front_base.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/limits.h"
#include "base/str.h"
#include "guest/front_place.h"
#include "guest/land.h"
#include "guest/vouch.h"
#include "wire/rejoin.h"
#include "wire/remote_box.h"

#define DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
#define BASES_MAX 4
#define BASE_DAYS 14
#define GOING ".going-"

/*
 * A tree is removed under a name that nobody takes, and gets it by one rename: who starts now has all of it, and then it is not ours, or
 * does not see it. What cannot be removed (another account's, left by a container there) stays under that name and is in nobody's way. 0
 * when the name is free.
 */
static int retire(int at, const char *name, int bases)
{
	char id[ID_LEN + 1], to[sizeof(GOING) + ID_LEN];
	int r = id_new(id);

	if (r < 0)
		return r;
	(void)snprintf(to, sizeof(to), GOING "%s", id);
	if (renameat(at, name, bases, to) < 0)
		return errno == ENOENT ? 0 : -errno;
	(void)land_remove(bases, to);
	return 0;
}

/* What other removals left: one that was cut, or that now can be done. 0, or why the last one cannot. */
static int remove_going(int bases)
{
	int r = 0;
	int fd = openat(bases, ".", DIR_FLAGS);
	_cleanup_dir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *ent;

	while (d && (ent = readdir(d)))
		if (str_starts(ent->d_name, GOING)) {
			int k = land_remove(bases, ent->d_name);

			/* Another one that cleans up may have been faster. */
			r = k < 0 && k != -ENOENT ? k : r;
		}
	return r;
}

/* What is too old, or one too many. left: how many may stay. */
static void thin_bases(int bases, size_t left)
{
	(void)remove_going(bases);
	for (;;) {
		_cleanup_dir_ DIR *d = NULL;
		char oldest[NAME_MAX + 1] = "";
		int64_t when = INT64_MAX;
		struct dirent *ent;
		struct stat st;
		size_t n = 0;
		int fd = openat(bases, ".", DIR_FLAGS);

		d = fd < 0 ? NULL : fdopendir(fd);
		while (d && (ent = readdir(d))) {
			if (strcmp(ent->d_name, ".") == 0 || strcmp(ent->d_name, "..") == 0 ||
			    str_starts(ent->d_name, GOING) ||
			    fstatat(bases, ent->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
				continue;
			n++;
			if ((int64_t)st.st_mtim.tv_sec < when) {
				when = (int64_t)st.st_mtim.tv_sec;
				(void)snprintf(oldest, sizeof(oldest), "%s", ent->d_name);
			}
		}
		if (!oldest[0] ||
		    (n <= left && when >= clock_real_ns() / NS_PER_S - BASE_DAYS * 86400))
			return;
		if (retire(bases, oldest, bases) < 0)
			return;
	}
}

/*
 * The run's directory becomes the base of the next one: one rename, so a cut leaves it a run's or a base. False: it is still the run's.
 * An older one of that name goes first: what is in the way then is another run's, which has just put its own, and is as good.
 */
bool front_base_keep(int run, int runtime, int runs, const struct rm_open *m)
{
	static const char *const aside[] = {LAND_ASIDE, "from", REMOTE_BOX, REMOTE_JOIN};
	bool made;
	struct stat st;
	_cleanup_fd_ int bases = -1;

	if (!m->base[0] || fstatat(run, "workspace", &st, AT_SYMLINK_NOFOLLOW) < 0)
		return false;
	bases = front_place_own_dir(runtime, REMOTE_BASES, true, &made);
	if (bases < 0)
		return false;
	/* One that could not be cleaned (land.c) is no part of what the next run takes. */
	for (size_t i = 0; i < ARRAY_LEN(aside); i++)
		if (retire(run, aside[i], bases) < 0)
			return false;
	if (retire(bases, m->base, bases) < 0)
		return false;
	thin_bases(bases, BASES_MAX - 1);
	(void)unlinkat(run, "sent", 0);
	(void)futimens(run, NULL);
	return renameat(runs, m->lease, bases, m->base) == 0;
}

/* Where the machine started anew before it was on the disk, or somebody wrote another one, only the tree's bytes count. */
static bool index_counts(int from, const struct rm_index *index)
{
	struct rm_index is;

	return !land_lost(from) && vouch_sum(from, "base", is.sum) == 0 &&
	       memcmp(is.sum, index->sum, sizeof(is.sum)) == 0;
}

static void take_base(int run, int bases, const char *base, const struct rm_index *index)
{
	_cleanup_fd_ int from = -1;

	/* Whole, into the run's own directory: nobody else can have it from then on, and who removes one has renamed it before (retire). */
	if (renameat(bases, base, run, "from") < 0)
		return;
	from = openat(run, "from", DIR_FLAGS);
	if (from >= 0 && renameat(from, "workspace", run, "workspace") == 0 &&
	    index_counts(from, index))
		(void)renameat(from, "base", run, "base");
	(void)retire(run, "from", bases);
}

/* The directory of all bases, of a run; -1: there is none, or it is not ours alone. */
static int bases_of(int run)
{
	_cleanup_fd_ int bases = openat(run, "../../" REMOTE_BASES, DIR_FLAGS);
	struct stat st;

	if (bases < 0 || fstat(bases, &st) < 0 || st.st_uid != geteuid() || (st.st_mode & 0022))
		return -1;
	return TAKE_FD(bases);
}

void front_base_take(int run, const char *base, const struct rm_index *index)
{
	_cleanup_fd_ int bases = -1;
	struct stat st;

	/* A landing of this run that was cut has more of it than any other. */
	if (!base[0] || fstatat(run, "workspace", &st, AT_SYMLINK_NOFOLLOW) == 0)
		return;
	bases = bases_of(run);
	if (bases >= 0)
		take_base(run, bases, base, index);
}

void front_base_thin(int run)
{
	_cleanup_fd_ int bases = bases_of(run);

	if (bases >= 0)
		thin_bases(bases, BASES_MAX);
}

static size_t count(int bases)
{
	int fd = openat(bases, ".", DIR_FLAGS);
	_cleanup_dir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);
	size_t n = 0;

	while (d && readdir(d))
		n++;
	return n;
}

bool front_base_room(int runtime)
{
	bool made;
	_cleanup_fd_ int bases = front_place_own_dir(runtime, REMOTE_BASES, false, &made);
	size_t n = bases < 0 ? 0 : count(bases);

	if (n)
		thin_bases(bases, 0);
	return n && count(bases) < n;
}

int front_base_clean(int runtime)
{
	bool made;
	_cleanup_fd_ int bases = front_place_own_dir(runtime, REMOTE_BASES, false, &made);

	if (bases < 0)
		return 0;
	thin_bases(bases, 0);
	return remove_going(bases);
}
