/*
 * Policy: the root that a sandbox gets is a tmpfs, read-only once filled, or a kept one that was read-only from the first
 * (skeleton.h); writable are the workspace, the home, /tmp and /dev/shm, all nosuid and nodev. /proc is the sandbox's own, with what tells of the
 * host masked. Order matters and is commented where it does.
 */
#include "provider/native/setup.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "os/mounts.h"
#include "provider/native/names.h"

/* The root holds directories, links and small files only. */
static const char *const root_options[] = {"mode", "0755", "size", "4m", NULL};
/* Half the memory would be the default; browsers and POSIX semaphores need far less. */
static const char shm_options[] = "mode=1777,size=256m";
/* newinstance is implied; no gid=5, as that group has no id inside. */
static const char pts_options[] = "mode=0600,ptmxmode=0666";

/*
 * Readable by anyone and about the host, not the sandbox: the keys of the host user, and what a
 * kernel bug would turn into more.
 */
static const char *const proc_masked[] = {
    "proc/keys", "proc/key-users", "proc/kcore", "proc/sysrq-trigger", "proc/timer_list",
};
static const char *const proc_ro[] = {"proc/sys", "proc/irq", "proc/bus", "proc/fs"};

/*
 * An imported image has what links it likes, and a mount point is made below the old root still: one that a link leads
 * to would be made on the host.
 */
static int no_links(int root, const char *dst)
{
	char path[4096];
	size_t n = strlen(dst);
	struct stat st;

	if (n >= sizeof(path))
		return -ENAMETOOLONG;
	memcpy(path, dst, n + 1);
	for (size_t i = 1; i <= n; i++) {
		if (path[i] != '/' && path[i])
			continue;
		path[i] = '\0';
		if (fstatat(root, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return errno == ENOENT ? 0 : -errno;
		if (S_ISLNK(st.st_mode))
			return -ELOOP;
		path[i] = i < n ? '/' : '\0';
	}
	return 0;
}

static int place_ro(const struct image *im, int root, struct failure *f)
{
	for (size_t i = 0; i < im->ro_len; i++) {
		const struct tree *t = &im->ro[i];
		int r = im->system >= 0 ? no_links(root, t->dst) : 0;

		if (r == 0)
			r = image_point(root, t->dst, t->dir);

		if (r == 0)
			r = mounts_put(t->fd, root, t->dst);
		if (r < 0)
			return fail(f, STEP_SYSTEM, -r, t->dst);
	}
	return 0;
}

static int place_dev(struct failure *f)
{
	int r;

	if (image_dev(f) < 0)
		return -1;
	r = mounts_fs("devpts", "dev/pts", MS_NOSUID | MS_NOEXEC, pts_options);
	if (r < 0)
		return fail(f, STEP_DEV, -r, "dev/pts");
	r = mounts_fs("tmpfs", "dev/shm", MS_NOSUID | MS_NODEV | MS_NOEXEC, shm_options);
	return r < 0 ? fail(f, STEP_DEV, -r, "dev/shm") : 0;
}

static int place_proc(int root, struct failure *f)
{
	int r = mounts_fs("proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);

	if (r < 0)
		return fail(f, STEP_PROC, -r, "proc");
	for (size_t i = 0; i < ARRAY_LEN(proc_ro); i++) {
		r = mounts_bind(proc_ro[i], proc_ro[i]);
		if (r == 0)
			r = mounts_restrict(root, proc_ro[i], MOUNT_ATTR_RDONLY);
		if (r < 0 && r != -ENOENT)
			return fail(f, STEP_PROC, -r, proc_ro[i]);
	}
	for (size_t i = 0; i < ARRAY_LEN(proc_masked); i++) {
		r = mounts_bind("dev/null", proc_masked[i]);
		/* Not every kernel has all of them; dev/null is there. */
		if (r < 0 && r != -ENOENT)
			return fail(f, STEP_PROC, -r, proc_masked[i]);
	}
	return 0;
}

static int place_writable(const struct image *im, int root, struct failure *f)
{
	const struct {
		int fd;
		const char *dst;
	} w[] = {{im->home, "home/agent"}, {im->tmp, "tmp"}};

	for (size_t i = 0; i < ARRAY_LEN(w); i++) {
		int r = mounts_restrict(w[i].fd, "", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);

		if (r == 0)
			r = mounts_put(w[i].fd, root, w[i].dst);
		if (r < 0)
			return fail(f, STEP_STORAGE, -r, w[i].dst);
	}
	return 0;
}

/* The old root lands on top of the new one's "/"; beside.c detaches it with everything below it. */
static int pivot(struct image *im, struct failure *f)
{
	int root = im->root;
	struct stat st;

	if (fchdir(root) < 0)
		return fail(f, STEP_PIVOT, errno, "fchdir");
	if (syscall(SYS_pivot_root, ".", ".") < 0)
		return fail(f, STEP_PIVOT, errno, "pivot_root");
	/* For image_prove: the descriptor's number may be another's by then. */
	if (fstat(root, &st) < 0)
		return fail(f, STEP_PIVOT, errno, "fstat");
	im->root_dev = st.st_dev;
	im->root_ino = st.st_ino;
	return 0;
}

int image_prove(const struct image *im, struct failure *f)
{
	struct stat there;

	if (chdir("/") < 0)
		return fail(f, STEP_PIVOT, errno, "chdir");
	/*
	 * Safe because: proved, not assumed. A walk up from a mount and down again sees whatever still lies
	 * over the root; it must find the root itself.
	 */
	if (stat("/proc/..", &there) < 0)
		return fail(f, STEP_PIVOT, errno, "/proc/..");
	if (there.st_dev != im->root_dev || there.st_ino != im->root_ino)
		return fail(f, STEP_PIVOT, EXDEV, "the old root is still there");
	return 0;
}

int image_base(struct image *im, const struct plan *p, const struct skeleton *kept,
	       struct failure *f)
{
	int root = skeleton_tree(kept), r;
	bool made = root >= 0;

	if (!made)
		root = mounts_new("tmpfs", root_options, MOUNT_ATTR_NOSUID);
	if (root < 0)
		return fail(f, STEP_ROOT, -root, "tmpfs");
	im->root = root;
	/* Over "/", the one directory that is sure to exist: paths from "/" still see the old root. */
	r = mounts_put(root, AT_FDCWD, "/");
	if (r < 0)
		return fail(f, STEP_ROOT, -r, "/");
	/* Relative paths see the new one. */
	if (fchdir(root) < 0)
		return fail(f, STEP_ROOT, errno, "/");
	(void)umask(022);
	if (!made && names_make(root, p, f) < 0)
		return -1;
	return p->image ? 0 : image_system(root, f);
}

int image_build(struct image *im, const struct plan *p, struct failure *f)
{
	int root = im->root, r;

	if (im->system >= 0 && image_imported(im, f) < 0)
		return -1;
	if (place_ro(im, root, f) < 0)
		return -1;
	/*
	 * Safe because: one recursive call makes everything so far read-only, before anything writable is
	 * there; no list of mounts to forget one in.
	 */
	r = mounts_restrict(root, "", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	if (r < 0)
		return fail(f, STEP_ROOT, -r, "read-only");
	if (place_dev(f) < 0 || place_proc(root, f) < 0 || image_stage(im, p, f) < 0 ||
	    image_workspace(im, p, f) < 0 || place_writable(im, root, f) < 0)
		return -1;
	r = mounts_restrict(im->upper_ro, "",
			    MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
				MOUNT_ATTR_NOEXEC);
	if (r < 0)
		return fail(f, STEP_STORAGE, -r, "upper");
	return pivot(im, f);
}
