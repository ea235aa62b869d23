#include "engine/unpacks.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/path.h"

static const char kind[] = "unpacks";

static int discard(struct state *st, const char *id, struct err *e)
{
	_cleanup_free_ char *trash = NULL;
	int r = state_discard(st, kind, id, &trash, e);

	return r == 0 && trash ? state_remove_tree(trash, e) : r;
}

int64_t unpacks_last_put(int dir)
{
	static const char *const parts[] = {".", "trash", "conflicts"};
	int64_t last = 0;
	struct stat s;

	for (size_t i = 0; i < ARRAY_LEN(parts); i++)
		if (fstatat(dir, parts[i], &s, AT_SYMLINK_NOFOLLOW) == 0 && s.st_mtim.tv_sec > last)
			last = s.st_mtim.tv_sec;
	return last;
}

static bool is_old(int dir)
{
	int64_t last = unpacks_last_put(dir);

	return last && last < clock_real_ns() / NS_PER_S - UNPACKS_KEEP_S;
}

/* Not while a recovery holds it (sync/unpack_place.h); looked at once more, for one may have been there just now. */
static void remove_one(struct state *st, int top, const char *id)
{
	_cleanup_fd_ int fd = openat(top, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd >= 0 && is_old(fd) && flock(fd, LOCK_EX | LOCK_NB) == 0 && is_old(fd))
		(void)discard(st, id, NULL);
}

/* Best effort: what cannot go now goes the next time. */
static void remove_old(struct state *st)
{
	_cleanup_free_ char *top = path_join(st->dir, kind);
	_cleanup_dir_ DIR *d = top ? opendir(top) : NULL;
	struct dirent *de;

	while (d && (de = readdir(d)))
		if (strlen(de->d_name) == ID_LEN && id_is_prefix(de->d_name))
			remove_one(st, dirfd(d), de->d_name);
}

int unpacks_open(struct state *st, struct unpacks_place *ret, struct err *e)
{
	int r;

	*ret = (struct unpacks_place){0};
	remove_old(st);
	r = id_new(ret->id);
	if (r < 0)
		return err_sys(e, -r, "make a name");
	r = state_mkdir(st, kind, ret->id, e);
	if (r < 0)
		return r;
	ret->dir = state_path(st, kind, ret->id, NULL);
	return ret->dir ? 0 : err_set(e, ERR_NOMEM, "out of memory");
}

static bool keeps_something(int dir)
{
	static const char *const names[] = {"conflicts", "trash", "rejected.tar"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (faccessat(dir, names[i], F_OK, AT_SYMLINK_NOFOLLOW) == 0)
			return true;
	return false;
}

int unpacks_close(struct state *st, struct unpacks_place *p, const char *record, struct err *e)
{
	_cleanup_fd_ int dir = open(p->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = -1;
	_cleanup_file_ FILE *f = NULL;

	if (dir < 0)
		return err_sys(e, errno, "open %s", p->dir);
	if (!p->awaited && !keeps_something(dir))
		return discard(st, p->id, e);
	fd =
	    openat(dir, "record.json", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	f = fd < 0 ? NULL : fdopen(fd, "w");
	if (!f)
		return err_sys(e, errno, "write %s/record.json", p->dir);
	(void)TAKE_FD(fd);
	return fputs(record, f) < 0 || fflush(f) != 0
		   ? err_sys(e, errno, "write %s/record.json", p->dir)
		   : 0;
}

void unpacks_done(struct unpacks_place *p)
{
	free(p->dir);
	p->dir = NULL;
}
