#include "guest/give.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/limits.h"

#define DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

/*
 * The account is root, and what runs in its sandbox is not: the tree is that one's. Nothing runs yet, and no link is followed. After
 * all of it, and before the index takes its stamps.
 */
static int give(int dir, uid_t owner, unsigned depth)
{
	int copy = openat(dir, ".", DIR_FLAGS), r = 0;
	_cleanup_dir_ DIR *d = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *ent;
	struct stat own;

	if (!d) {
		r = -errno;
		cleanup_fd(&copy);
		return r;
	}
	if (depth > PATH_DEPTH_MAX)
		return -ELOOP;
	while (r == 0 && (ent = readdir(d))) {
		struct stat st;

		if (strcmp(ent->d_name, ".") == 0 || strcmp(ent->d_name, "..") == 0)
			continue;
		if (fstatat(dir, ent->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return -errno;
		if (S_ISDIR(st.st_mode)) {
			_cleanup_fd_ int fd = openat(dir, ent->d_name, DIR_FLAGS);

			r = fd < 0 ? -errno : give(fd, owner, depth + 1);
		} else if (st.st_uid != owner &&
			   fchownat(dir, ent->d_name, owner, owner, AT_SYMLINK_NOFOLLOW) < 0) {
			r = -errno;
		}
	}
	/* One that is the owner's already keeps its stamps. */
	if (r == 0 && fstat(dir, &own) < 0)
		return -errno;
	return r == 0 && own.st_uid != owner && fchown(dir, owner, owner) < 0 ? -errno : r;
}

int give_tree(int tree, uint32_t owner)
{
	return give(tree, owner, 0);
}
