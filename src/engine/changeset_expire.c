/* Retention: copies of runs that were over long ago. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/path.h"
#include "engine/changeset.h"
#include "engine/runlock.h"
#include "engine/unpacks.h"

/* Once a day: the time of an empty file. */
static bool is_time(const struct state *st)
{
	_cleanup_free_ char *p = path_join(st->dir, "expired");
	_cleanup_fd_ int fd = p ? open(p, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600) : -1;
	struct stat sb;

	if (fd < 0 || fstat(fd, &sb) < 0)
		return false;
	if (sb.st_size && clock_real_ns() / NS_PER_S - sb.st_mtim.tv_sec < CHANGESET_EXPIRE_EACH_S)
		return false;
	return pwrite(fd, "1", 1, 0) == 1 && futimens(fd, NULL) == 0;
}

static void drop_copies(const struct state *st, const char *run, const char *dir, const char *name)
{
	_cleanup_free_ char *from = path_join(dir, name), *to = NULL;

	if (!from || asprintf(&to, "%s/trash/%s-%s", st->dir, name, run) < 0)
		return;
	if (rename(from, to) == 0)
		(void)state_remove_tree(to, NULL);
	else if (errno == EXDEV) /* runs/ on another disk */
		(void)state_remove_tree(from, NULL);
}

/* Of a run, or of a mapping of it. */
static void drop_place(const struct state *st, const char *run, const char *dir)
{
	_cleanup_fd_ int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int64_t last = fd < 0 ? 0 : unpacks_last_put(fd);

	if (!last || last > (clock_real_ns() - CHANGESET_KEEP_NS) / NS_PER_S)
		return;
	drop_copies(st, run, dir, "conflicts");
	drop_copies(st, run, dir, "trash");
}

/* Not while an apply, or a recovery (sync/unpack_place.h), holds the run. */
static void drop_all_copies(const struct state *st, const char *run)
{
	_cleanup_free_ char *dir = state_path(st, "runs", run, NULL);
	_cleanup_fd_ int fd = -1;

	if (!dir || runlock_try(dir, &fd) <= 0)
		return;
	drop_place(st, run, dir);
	for (size_t i = 1; i < CHANGESET_PARTS_MAX; i++) {
		_cleanup_free_ char *map = maps_run_dir(dir, i - 1);

		if (!map || access(map, F_OK) < 0)
			return;
		drop_place(st, run, map);
	}
}

void changeset_expire(struct state *st)
{
	int64_t end = clock_mono_ns() + CHANGESET_EXPIRE_NS;
	int64_t before = clock_real_ns() - CHANGESET_KEEP_NS;
	_cleanup_strv_ char **ids = NULL;

	if (!is_time(st) || run_ids_ended(st->store, before, &ids, NULL) < 0)
		return;
	for (size_t i = 0; ids && ids[i] && clock_mono_ns() < end; i++)
		drop_all_copies(st, ids[i]);
}
