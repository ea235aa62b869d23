/*
 * Overlay workspace on the file system of the state directory: mount, copy-up, deletion, replaced directory.
 * A directory is made below the state directory and removed again by this process, which outlives the
 * trial's child.
 */
#include "os/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "os/probe_fs.h"

#define TREE_DEPTH_MAX \
	16 /* of what a trial leaves behind; overlay's work directory is three deep */

/* Removes a tree that a trial made, entry by entry from descriptors: the sandbox id owned it for a while. */
static void remove_tree(int at, const char *name, unsigned depth)
{
	_cleanup_dir_ DIR *d = NULL;
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 && errno == EACCES) {
		/* Overlay makes work/work with mode 0. */
		if (fchmodat(at, name, 0700, 0) == 0)
			fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	}
	if (fd >= 0 && depth < TREE_DEPTH_MAX && (d = fdopendir(fd))) {
		for (struct dirent *de; (de = readdir(d));) {
			if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0)
				continue;
			if (unlinkat(fd, de->d_name, 0) < 0)
				remove_tree(fd, de->d_name, depth + 1);
		}
	} else if (fd >= 0) {
		(void)close(fd);
	}
	(void)unlinkat(at, name, AT_REMOVEDIR);
}

static int put_file(int dir, const char *name)
{
	_cleanup_fd_ int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	return fd < 0 || write(fd, "lower", 5) != 5 ? -errno : 0;
}

/* lower/{kept,gone,dir/old}, upper, work, merged: everything owned by the sandbox's user. */
static int make_layers(const struct probe_env *env, int top)
{
	static const char *const dirs[] = {"lower", "lower/dir", "upper", "work", "merged"};
	static const char *const files[] = {"lower/kept", "lower/gone", "lower/dir/old"};
	bool root = geteuid() == 0;

	for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
		if (mkdirat(top, dirs[i], 0700) < 0 ||
		    (root &&
		     fchownat(top, dirs[i], env->id_host, env->id_host, AT_SYMLINK_NOFOLLOW) < 0))
			return -errno;
	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		int r = put_file(top, files[i]);

		if (r < 0)
			return r;
		if (root &&
		    fchownat(top, files[i], env->id_host, env->id_host, AT_SYMLINK_NOFOLLOW) < 0)
			return -errno;
	}
	return root && fchown(top, env->id_host, env->id_host) < 0 ? -errno : 0;
}

static bool keeps_xattrs(const char *path)
{
	bool ok = setxattr(path, "user.airlock", "y", 1, 0) == 0;

	(void)removexattr(path, "user.airlock");
	return ok;
}

static void blame_overlay(struct probe_result *r, int err, const char *fs)
{
	if (probe_filtered_mount())
		probe_missing(r, CAUSE_SECCOMP_OUTER, err, "mount overlay", "mount");
	else if (err == ENODEV)
		probe_missing(r, CAUSE_FS_KERNEL, err, "mount overlay", "overlay");
	else if (err == EPERM)
		probe_missing(r, CAUSE_OVERLAY_OLD, err, "mount overlay", NULL);
	else
		probe_missing(r, CAUSE_OVERLAY_FS, err, "mount overlay", fs);
}

static int try_copy_up(struct probe_result *r)
{
	_cleanup_fd_ int fd = open("merged/kept", O_WRONLY | O_APPEND | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || write(fd, "+", 1) != 1 || stat("upper/kept", &st) < 0 || st.st_size != 6) {
		probe_missing(r, CAUSE_OVERLAY_COPYUP, errno, "first write", NULL);
		return -1;
	}
	return 0;
}

static void try_deletion(struct probe_result *r)
{
	struct stat st;
	char flag[4];

	if (unlink("merged/gone") < 0 || access("merged/gone", F_OK) == 0) {
		probe_missing(r, CAUSE_WHITEOUT, errno, "delete a file", NULL);
		return;
	}
	if (lstat("upper/gone", &st) < 0 || !S_ISCHR(st.st_mode) || st.st_rdev != makedev(0, 0)) {
		probe_missing(r, CAUSE_WHITEOUT, 0, "find the whiteout",
			      "no 0:0 device in the upper layer");
		return;
	}
	if (unlink("merged/dir/old") < 0 || rmdir("merged/dir") < 0 ||
	    mkdir("merged/dir", 0700) < 0 ||
	    getxattr("upper/dir", "user.overlay.opaque", flag, sizeof(flag)) != 1)
		probe_missing(r, CAUSE_WHITEOUT, errno, "replace a directory", NULL);
}

/* In the child; the current directory is the trial's, reached by descriptor: its parents may be closed to the
 * sandbox's user. */
static void try_overlay(const struct probe_env *env, struct probe_result *r)
{
	char fs[32];

	probe_fs_name(".", fs, sizeof(fs));
	if (probe_enter(env, CLONE_NEWNS, r) < 0)
		return;
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 && errno != EINVAL) {
		blame_overlay(r, errno, fs);
		return;
	}
	if (mount("overlay", "merged", "overlay", MS_NODEV | MS_NOSUID,
		  "lowerdir=lower,upperdir=upper,workdir=work,userxattr") < 0) {
		blame_overlay(r, errno, fs);
		return;
	}
	if (!keeps_xattrs("upper")) {
		probe_missing(r, CAUSE_OVERLAY_XATTR, ENOTSUP, "set user attribute", fs);
		return;
	}
	if (try_copy_up(r) < 0)
		return;
	if (r->layer == LAYER_WHITEOUT)
		try_deletion(r);
	else
		(void)snprintf(r->detail, sizeof(r->detail), "on %s", fs);
}

void probe_overlay(const struct probe_env *env, struct probe_result *r)
{
	_cleanup_fd_ int dir = -1, top = -1, back = -1;
	struct probe_room room;
	char name[64];
	int err;

	err = probe_state_open(env, true, &dir, &room);
	if (err < 0) {
		probe_missing(r, CAUSE_STATE_UNUSABLE, -err, "open", strerror(-err));
		return;
	}
	(void)snprintf(name, sizeof(name), ".doctor-%d", (int)getpid());
	if (mkdirat(dir, name, 0700) < 0 ||
	    (top = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0) {
		probe_missing(r, CAUSE_STATE_UNUSABLE, errno, "make a directory", strerror(errno));
		probe_state_close(&room);
		return;
	}
	back = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	err = make_layers(env, top);
	if (err < 0) {
		probe_missing(r, CAUSE_STATE_UNUSABLE, -err, "make layers", strerror(-err));
	} else if (back >= 0 && fchdir(top) == 0) {
		probe_in_child(env, try_overlay, r);
		if (fchdir(back) < 0)
			probe_missing(r, CAUSE_UNKNOWN, errno, "return to the current directory",
				      NULL);
	}
	remove_tree(dir, name, 0);
	probe_state_close(&room);
}
