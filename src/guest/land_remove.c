/* A tree goes away; see land.h. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "guest/land.h"

#define DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

/* Levels that are walked down; deeper ones first move up, so that neither the stack nor descriptors run out. */
#define DOWN_MAX 64

struct removal {
	int top;	/* the tree's own directory: what is too deep moves there */
	unsigned moved; /* how many did: a number that makes their names new */
	bool again;	/* some did since it was last read through */
};

static int remove_at(struct removal *w, int dir, const char *name, unsigned depth);

static int empty_dir(struct removal *w, int fd, unsigned depth)
{
	_cleanup_dir_ DIR *d = fdopendir(fd);
	struct dirent *ent;
	int r = 0;

	if (!d) {
		r = -errno;
		(void)close(fd);
		return r;
	}
	if (depth == 1)
		w->top = dirfd(d);
	do {
		/* Only the top is read again: what moved went there. */
		if (depth == 1) {
			w->again = false;
			rewinddir(d);
		}
		while ((ent = readdir(d))) {
			int k = strcmp(ent->d_name, ".") != 0 && strcmp(ent->d_name, "..") != 0
				    ? remove_at(w, dirfd(d), ent->d_name, depth)
				    : 0;

			r = r < 0 ? r : k;
		}
	} while (depth == 1 && w->again);
	return r;
}

/* Its turn comes when the top is read again. */
static int move_up(struct removal *w, int dir, const char *name)
{
	char to[32];

	for (int i = 0; i < 1000; i++) {
		(void)snprintf(to, sizeof(to), ".airlock-deep-%u", w->moved++);
		/* To an entry that is there already only an empty directory's place could be lost. */
		if (renameat(dir, name, w->top, to) == 0) {
			w->again = true;
			return 0;
		}
		if (errno != EEXIST && errno != ENOTEMPTY && errno != ENOTDIR)
			break;
	}
	return -errno;
}

static int remove_at(struct removal *w, int dir, const char *name, unsigned depth)
{
	int fd, r;

	if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM && errno != EACCES)
		return -errno;
	if (unlinkat(dir, name, AT_REMOVEDIR) == 0)
		return 0;
	if (errno == ENOTDIR)
		return -EPERM;
	fd = openat(dir, name, DIR_FLAGS);
	if (fd < 0 && errno == EACCES && fchmodat(dir, name, 0700, 0) == 0)
		fd = openat(dir, name, DIR_FLAGS);
	if (fd < 0)
		return -errno;
	(void)fchmod(fd, 0700);
	if (depth > DOWN_MAX) {
		(void)close(fd);
		return move_up(w, dir, name);
	}
	r = empty_dir(w, fd, depth + 1);
	if (r == 0 && unlinkat(dir, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		r = -errno;
	return r;
}

int land_remove(int dir, const char *name)
{
	struct removal w = {.top = -1};

	return remove_at(&w, dir, name, 0);
}
