/*
 * Policy: a sandbox sees the host's programs and libraries read-only, a curated /etc without
 * secrets, the binds the user named, and nothing else of the host. The system's part is bound by name into a new
 * root, in which only this program has made anything (names.c); what the plan names comes by descriptor (places.c); the old
 * root is then detached whole.
 * Not done here: hiding what a world-readable file below /usr tells.
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
#include "os/mounts.h"
#include "provider/native/names.h"

void image_init(struct image *im)
{
	/* Not as a whole: what lies above the length is never touched, and pages cost. */
	im->ro_len = 0;
	memset(im->layers, 0, sizeof(im->layers));
	im->system = im->lease = im->home = im->tmp = im->upper_ro = im->aside = im->root = -1;
}

int image_add(struct image *im, const char *dst, int fd, bool dir, struct failure *f)
{
	struct tree *t = &im->ro[im->ro_len];

	if (im->ro_len == TREES_MAX) {
		cleanup_fd(&fd);
		return fail(f, STEP_SYSTEM, E2BIG, dst);
	}
	*t = (struct tree){.dst = dst, .fd = fd, .dir = dir};
	im->ro_len++;
	return 0;
}

static int bind_host(const char *host, enum step step, struct failure *f)
{
	int r = mounts_bind(host, host + 1);

	/* Gone since it was listed, or the other kind of thing by now: an empty name stays. */
	return r < 0 && r != -ENOENT && r != -ENOTDIR ? fail(f, step, -r, host) : 0;
}

/* What has a name here that is no link. */
static int bind_named(int root, const char *const *list, struct failure *f)
{
	for (; *list; list++) {
		struct stat st;

		if (fstatat(root, *list + 1, &st, AT_SYMLINK_NOFOLLOW) < 0 || S_ISLNK(st.st_mode))
			continue;
		if (bind_host(*list, STEP_SYSTEM, f) < 0)
			return -1;
	}
	return 0;
}

static int bind_etc(int root, struct failure *f)
{
	int fd = openat(root, "etc", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_dir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *ent;
	char host[300];

	if (!d) {
		cleanup_fd(&fd);
		return fail(f, STEP_ETC, errno, "/etc");
	}
	while ((ent = readdir(d))) {
		unsigned char type;

		if (!names_of_etc(ent->d_name))
			continue;
		type = names_type(dirfd(d), ent);
		if (type == DT_LNK || type == DT_UNKNOWN)
			continue;
		(void)snprintf(host, sizeof(host), "/etc/%s", ent->d_name);
		if (bind_host(host, STEP_ETC, f) < 0)
			return -1;
	}
	return 0;
}

int image_system(int root, struct failure *f)
{
	if (bind_named(root, names_paths, f) < 0 || bind_named(root, names_tops, f) < 0)
		return -1;
	return bind_etc(root, f);
}

int image_dev(struct failure *f)
{
	for (size_t i = 0; names_dev[i]; i++) {
		int r = mounts_bind(names_dev[i], names_dev[i] + 1);

		if (r < 0)
			return fail(f, STEP_DEV, -r, names_dev[i]);
	}
	return 0;
}
