/*
 * Policy: the workspace is a view of read-only layers with the lease's own layer on top; no inode
 * of it is shared with the host's workspace. Layers and storage are mounted aside while the overlay
 * is made, on a tmpfs in the old root: they go away with it. Each unmount costs a grace
 * period of the kernel (0.2 to 1 ms), and this way there is one for all.
 */
#include "provider/native/setup.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "os/mounts.h"

static int put_aside(int tree, int aside, const char *name, uint64_t attrs, struct failure *f)
{
	int r = mkdirat(aside, name, 0700) < 0 ? -errno : mounts_restrict(tree, "", attrs);

	if (r == 0)
		r = mounts_put(tree, aside, name);
	return r < 0 ? fail(f, STEP_OVERLAY, -r, name) : 0;
}

/* The current directory is `aside`. */
static int mount_overlay(const struct plan *p, struct failure *f)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4000);

	(void)buf_puts(&b, "lowerdir=");
	for (size_t i = 0; i < p->layers_len; i++)
		(void)buf_putf(&b, "%sl%zu", i ? ":" : "", i);
	if (p->layers_len == 0)
		(void)buf_puts(&b, "empty");
	/*
	 * userxattr: without privilege there are no trusted.* attributes. volatile: otherwise the
	 * end of each sandbox would sync the whole file system that holds the state directory.
	 */
	(void)buf_puts(&b, ",upperdir=s/upper,workdir=s/work,userxattr,volatile");
	if (b.err)
		return fail(f, STEP_OVERLAY, -b.err, "options");
	if (mount("overlay", "w", "overlay", MS_NOSUID | MS_NODEV, buf_text(&b)) < 0)
		return fail(f, STEP_OVERLAY, errno, p->lease_dir);
	return 0;
}

static int make_overlay(struct image *im, const struct plan *p, int aside, struct failure *f)
{
	char name[32];

	for (size_t i = 0; i < p->layers_len; i++) {
		(void)snprintf(name, sizeof(name), "l%zu", i);
		if (put_aside(im->layers[i], aside, name,
			      MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, f) < 0)
			return -1;
	}
	if (mkdirat(aside, "w", 0700) < 0 || mkdirat(aside, "empty", 0755) < 0 || fchdir(aside) < 0)
		return fail(f, STEP_OVERLAY, errno, "staging");
	return mount_overlay(p, f);
}

/* The provider has filled `upper` with a copy of the layers. */
static int bind_copy(int aside, struct failure *f)
{
	if (mkdirat(aside, "w", 0700) < 0 || fchdir(aside) < 0 ||
	    mount("s/upper", "w", NULL, MS_BIND, NULL) < 0)
		return fail(f, STEP_STORAGE, errno, "upper");
	return 0;
}

int image_stage(struct image *im, const struct plan *p, struct failure *f)
{
	/*
	 * In the old root, on a directory that is sure to exist and is no longer needed there: it goes when
	 * the old root goes. Never on "/": a mount that lies over the old root when that is
	 * detached takes the detaching upon itself, and the host's tree stays over "/".
	 */
	int r = mounts_fs("tmpfs", "/usr", MS_NOSUID, "mode=0700,size=64k");

	if (r < 0)
		return fail(f, STEP_ROOT, -r, "/usr");
	im->aside = open("/usr", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (im->aside < 0)
		return fail(f, STEP_ROOT, errno, "/usr");
	if (put_aside(im->lease, im->aside, "s", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, f) < 0)
		return -1;
	return p->without & WITHOUT_OVERLAY ? bind_copy(im->aside, f)
					    : make_overlay(im, p, im->aside, f);
}

int image_workspace(const struct image *im, const struct plan *p, struct failure *f)
{
	int r = mounts_move(im->aside, "w", im->root, p->inside + 1);

	return r < 0 ? fail(f, STEP_OVERLAY, -r, p->inside) : 0;
}
