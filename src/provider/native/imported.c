/*
 * Policy: of an imported image a sandbox sees everything but what Airlock makes itself (/dev, /proc, /sys, /run, /tmp,
 * /home, the files of /etc that say who and where one is). The image is read-only before the first of its names is used, so
 * nothing here can change it; its links are copied as links and mean what they mean inside, never here.
 */
#include "provider/native/setup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "os/mounts.h"

/* In the old root, sure to exist, and needed there no longer; image_stage covers it with the next mount. */
#define ASIDE "/usr"
#define PATH_BUF 512

/* Of these the names are taken one by one, beside those that are made here. An import counts them (sync/image_server.c). */
static const char *const opened[] = {"", "etc", "opt", "var"};

/* Empty when they are made here, unless the workspace lies in there; then the image's own is not seen. */
static const char *const replaced[] = {"srv",	    "mnt",     "media",	 "etc/ssl",
				       "var/cache", "var/lib", "var/log"};

static bool is_replaced(const char *path)
{
	for (size_t i = 0; i < ARRAY_LEN(replaced); i++)
		if (strcmp(replaced[i], path) == 0)
			return true;
	return false;
}

static int put_mount(int root, const char *path, bool dir, struct failure *f)
{
	char source[PATH_BUF + sizeof(ASIDE)];
	int r = image_point(root, path, dir);

	(void)snprintf(source, sizeof(source), ASIDE "/%s", path);
	if (r == 0)
		r = mounts_bind(source, path);
	return r < 0 ? fail(f, STEP_SYSTEM, -r, path) : 0;
}

/* One name of the image, of a directory that is taken name by name. */
static int put_name(int root, const char *path, int dir, const char *name, struct failure *f)
{
	struct stat st, have;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return fail(f, STEP_SYSTEM, errno, path);
	if (fstatat(root, path, &have, AT_SYMLINK_NOFOLLOW) == 0) {
		/* Made here: it stays, but for some as long as nothing was put into them. */
		if (!S_ISDIR(st.st_mode) || !is_replaced(path) ||
		    unlinkat(root, path, AT_REMOVEDIR) < 0)
			return 0;
	}
	if (S_ISLNK(st.st_mode))
		return image_link(root, path, dir, name, f);
	return put_mount(root, path, S_ISDIR(st.st_mode), f);
}

static int put_names(int root, const char *at, size_t *count, struct failure *f)
{
	char path[PATH_BUF];
	_cleanup_dir_ DIR *d = NULL;
	struct dirent *de;
	struct stat st;

	(void)snprintf(path, sizeof(path), ASIDE "/%s", at);
	/* Not a directory, or a link: the image has none of it. */
	if (lstat(path, &st) < 0 || !S_ISDIR(st.st_mode))
		return 0;
	d = opendir(path);
	if (!d)
		return fail(f, STEP_SYSTEM, errno, path);
	while ((de = readdir(d))) {
		if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0)
			continue;
		if (++*count > IMAGE_MOUNTS_MAX)
			return fail(f, STEP_SYSTEM, E2BIG, "image");
		if (snprintf(path, sizeof(path), "%s%s%s", at, at[0] ? "/" : "", de->d_name) >=
		    (int)sizeof(path))
			return fail(f, STEP_SYSTEM, ENAMETOOLONG, at);
		if (put_name(root, path, dirfd(d), de->d_name, f) < 0)
			return -1;
	}
	return 0;
}

int image_imported(const struct image *im, struct failure *f)
{
	size_t count = 0;
	int r = mounts_restrict(im->system, "",
				MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);

	if (r == 0)
		r = mounts_put(im->system, AT_FDCWD, ASIDE);
	if (r < 0)
		return fail(f, STEP_SYSTEM, -r, "image");
	for (size_t i = 0; i < ARRAY_LEN(opened); i++)
		if (put_names(im->root, opened[i], &count, f) < 0)
			return -1;
	return 0;
}
