#include "engine/keepsake.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "store/run.h"

#define DEPTH_MAX 64 /* deeper counts as one file: descriptors are few */
#define BLOCK 512    /* of st_blocks, stat(2) */

static void walk(int at, const char *name, unsigned depth, struct keepsake *sum)
{
	_cleanup_dir_ DIR *d = NULL;
	struct dirent *de;
	struct stat st;
	int fd = -1;

	if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return;
	sum->bytes += (uint64_t)st.st_blocks * BLOCK;
	if (S_ISDIR(st.st_mode) && depth < DEPTH_MAX)
		fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	d = fd < 0 ? NULL : fdopendir(fd);
	if (!d) {
		cleanup_fd(&fd);
		sum->files++;
		return;
	}
	while ((de = readdir(d)))
		if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
			walk(dirfd(d), de->d_name, depth + 1, sum);
}

void keepsake_tree(const char *path, struct keepsake *sum)
{
	walk(AT_FDCWD, path, 0, sum);
}

static void add_places(const char *dir, struct keepsake *sum)
{
	static const char *const places[] = {"conflicts",      "trash",		"pending",
					     "commits.bundle", "others.bundle", "rejected.tar",
					     "commits.refused"};

	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		_cleanup_free_ char *p = path_join(dir, places[i]);
		struct keepsake here = {0};

		if (p)
			keepsake_tree(p, &here);
		sum->files += here.files;
		sum->bytes += here.files ? here.bytes : 0;
	}
}

void keepsake_add(const struct state *st, const char *run_id, struct keepsake *sum)
{
	_cleanup_free_ char *dir = state_path(st, "runs", run_id, NULL);
	_cleanup_free_ char *maps = state_path(st, "runs", run_id, "maps");
	_cleanup_dir_ DIR *d = maps ? opendir(maps) : NULL;
	struct dirent *de;

	if (dir)
		add_places(dir, sum);
	while (d && (de = readdir(d))) {
		_cleanup_free_ char *one =
		    de->d_name[0] == '.' ? NULL : path_join(maps, de->d_name);

		if (one)
			add_places(one, sum);
	}
}

void keepsake_of_lease(const struct state *st, const char *lease_id, struct keepsake *sum)
{
	struct run_row *v = NULL;
	size_t n = 0;

	if (run_list(st->store, true, lease_id, &v, &n, NULL) < 0)
		sum->files++; /* not known is not nothing */
	for (size_t i = 0; i < n; i++)
		keepsake_add(st, v[i].id, sum);
	run_list_free(v, n);
}
