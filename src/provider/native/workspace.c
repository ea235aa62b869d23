/*
 * Policy: the workspace is a view of read-only layers with the lease's own layer on top; no inode
 * of it is shared with the host's workspace. Layers and storage are mounted aside only while
 * the overlay is made; it keeps private copies of those mounts.
 */
#include "provider/native/setup.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "os/mounts.h"

#define AIDE ".airlock/s"

static int put_aside(int tree, const char *dst, uint64_t attrs, struct failure *f)
{
	int r = mounts_restrict(tree, "", attrs);

	if (r == 0)
		r = mounts_put(tree, AT_FDCWD, dst);
	return r < 0 ? fail(f, STEP_OVERLAY, -r, dst) : 0;
}

static int take_away(const char *dst, struct failure *f)
{
	return umount2(dst, MNT_DETACH | UMOUNT_NOFOLLOW) < 0 ? fail(f, STEP_OVERLAY, errno, dst)
							      : 0;
}

static int mount_overlay(const struct plan *p, struct failure *f)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4000);

	(void)buf_puts(&b, "lowerdir=");
	for (size_t i = 0; i < p->layers_len; i++)
		(void)buf_putf(&b, "%s.airlock/l%zu", i ? ":" : "", i);
	if (p->layers_len == 0)
		(void)buf_puts(&b, ".airlock/empty");
	/*
	 * userxattr: without privilege there are no trusted.* attributes. volatile: otherwise the
	 * end of each sandbox would sync the whole file system that holds the state directory.
	 */
	(void)buf_puts(&b, ",upperdir=" AIDE "/upper,workdir=" AIDE "/work,userxattr,volatile");
	if (b.err)
		return fail(f, STEP_OVERLAY, -b.err, "options");
	if (mount("overlay", p->inside + 1, "overlay", MS_NOSUID | MS_NODEV, buf_text(&b)) < 0)
		return fail(f, STEP_OVERLAY, errno, p->lease_dir);
	return 0;
}

int image_workspace(struct image *im, const struct plan *p, struct failure *f)
{
	char name[32];
	int r;

	if (p->without & WITHOUT_OVERLAY) {
		/* The provider has filled `upper` with a copy of the layers. */
		r = mounts_restrict(im->lease, "", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
		if (r == 0)
			r = mounts_put(im->lease, AT_FDCWD, AIDE);
		if (r < 0)
			return fail(f, STEP_STORAGE, -r, p->lease_dir);
		if (mount(AIDE "/upper", p->inside + 1, NULL, MS_BIND, NULL) < 0)
			return fail(f, STEP_STORAGE, errno, "upper");
		return take_away(AIDE, f);
	}
	for (size_t i = 0; i < p->layers_len; i++) {
		(void)snprintf(name, sizeof(name), ".airlock/l%zu", i);
		if (put_aside(im->layers[i], name,
			      MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, f) < 0)
			return -1;
	}
	if (put_aside(im->lease, AIDE, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, f) < 0 ||
	    mount_overlay(p, f) < 0 || take_away(AIDE, f) < 0)
		return -1;
	for (size_t i = 0; i < p->layers_len; i++) {
		(void)snprintf(name, sizeof(name), ".airlock/l%zu", i);
		if (take_away(name, f) < 0)
			return -1;
	}
	return 0;
}
