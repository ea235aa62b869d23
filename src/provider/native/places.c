/*
 * Policy: what a plan names on the host (storage, layers, guest, binds) is opened by the one process that has the
 * caller's rights to walk there, follows no link, and is held by descriptor from then on. As host root that is
 * launch, because the sandbox's user cannot walk into /root; the copies then travel to the child in one
 * message. As an ordinary user, or as root of a user namespace that does not own these
 * mounts, only the child may copy them.
 */
#include "provider/native/setup.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "os/mounts.h"
#include "wire/guest.h"

/* The kernel's limit for one message is 253. */
_Static_assert(PLACES_MAX <= 253, "all places fit in one message");

void places_init(struct places *w)
{
	w->len = 0;
}

void places_done(struct places *w)
{
	while (w->len)
		cleanup_fd(&w->fd[--w->len]);
}

static void add(struct places *w, int fd, bool dir)
{
	w->fd[w->len] = fd;
	w->dir[w->len++] = dir;
}

/* A path of the plan: no link in any part of it, or somebody swapped it after the check. */
static int add_exact(struct places *w, const char *path, enum step step, struct failure *f)
{
	_cleanup_fd_ int fd = mounts_open(AT_FDCWD, path);
	struct stat st;
	int tree;

	if (fd < 0)
		return fail(f, step, -fd, path);
	if (fstat(fd, &st) < 0)
		return fail(f, step, errno, path);
	if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
		return fail(f, step, ENOTSUP, path);
	tree = mounts_clone(fd, "");
	if (tree < 0)
		return fail(f, step, -tree, path);
	add(w, tree, S_ISDIR(st.st_mode));
	return 0;
}

static int add_below(struct places *w, int dir, const char *name, struct failure *f)
{
	_cleanup_fd_ int fd = mounts_open(dir, name);
	int tree = fd < 0 ? fd : mounts_clone(fd, "");

	if (tree < 0)
		return fail(f, STEP_STORAGE, -tree, name);
	add(w, tree, true);
	return 0;
}

int places_open(struct places *w, const struct plan *p, struct failure *f)
{
	_cleanup_fd_ int dir = mounts_open(AT_FDCWD, p->lease_dir);

	if (dir < 0)
		return fail(f, STEP_STORAGE, -dir, p->lease_dir);
	if (add_below(w, dir, ".", f) < 0 || add_below(w, dir, "home", f) < 0 ||
	    add_below(w, dir, "tmp", f) < 0 || add_below(w, dir, "upper", f) < 0)
		return -1;
	if (p->image && add_exact(w, p->image, STEP_SYSTEM, f) < 0)
		return -1;
	if (p->image && !w->dir[w->len - 1])
		return fail(f, STEP_SYSTEM, ENOTDIR, p->image);
	for (size_t i = 0; !(p->without & WITHOUT_OVERLAY) && i < p->layers_len; i++) {
		if (add_exact(w, p->layers[i], STEP_STORAGE, f) < 0)
			return -1;
		if (!w->dir[w->len - 1])
			return fail(f, STEP_STORAGE, ENOTDIR, p->layers[i]);
	}
	if (add_exact(w, p->guest, STEP_SYSTEM, f) < 0 ||
	    (p->gateway && add_exact(w, p->gateway, STEP_SYSTEM, f) < 0))
		return -1;
	for (size_t i = 0; i < p->binds_len; i++)
		if (add_exact(w, p->binds[i].src, STEP_BIND, f) < 0)
			return -1;
	return 0;
}

int places_take(struct image *im, struct places *w, const struct plan *p, struct failure *f)
{
	size_t n = 0, layers = p->without & WITHOUT_OVERLAY ? 0 : p->layers_len;

	if (w->len != 4 + (p->image ? 1 : 0) + layers + 1 + (p->gateway ? 1 : 0) + p->binds_len)
		return fail(f, STEP_STORAGE, EPROTO, "descriptors");
	im->lease = w->fd[n++];
	im->home = w->fd[n++];
	im->tmp = w->fd[n++];
	im->upper_ro = w->fd[n++];
	if (p->image)
		im->system = w->fd[n++];
	for (size_t i = 0; i < layers; i++)
		im->layers[i] = w->fd[n++];
	if (image_add(im, &GUEST_PATH[1], w->fd[n++], false, f) < 0)
		return -1;
	if (p->gateway && image_add(im, &GATEWAY_PATH[1], w->fd[n++], false, f) < 0)
		return -1;
	for (size_t i = 0; i < p->binds_len; i++, n++)
		if (image_add(im, p->binds[i].dst + 1, w->fd[n], w->dir[n], f) < 0)
			return -1;
	return 0;
}

union control {
	char buf[CMSG_SPACE(sizeof(int) * PLACES_MAX)];
	struct cmsghdr align;
};

int places_send(int sock, const struct places *w)
{
	union control u;
	struct iovec iov = {.iov_base = (void *)(uintptr_t)w->dir, .iov_len = w->len};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *h;

	m.msg_control = u.buf;
	m.msg_controllen = CMSG_SPACE(sizeof(int) * w->len);
	memset(u.buf, 0, m.msg_controllen);
	h = CMSG_FIRSTHDR(&m);
	if (!h)
		return -EINVAL; /* never: there is room; the compiler does not know */
	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_RIGHTS;
	h->cmsg_len = CMSG_LEN(sizeof(int) * w->len);
	memcpy(CMSG_DATA(h), w->fd, sizeof(int) * w->len);
	return sendmsg(sock, &m, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

int places_recv(int sock, struct places *w)
{
	union control u;
	struct iovec iov = {.iov_base = w->dir, .iov_len = sizeof(w->dir)};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *h;
	size_t len;
	ssize_t n;

	m.msg_control = u.buf;
	m.msg_controllen = sizeof(u.buf);
	n = recvmsg(sock, &m, MSG_CMSG_CLOEXEC);
	if (n <= 0)
		return n < 0 ? -errno : -EPIPE;
	h = CMSG_FIRSTHDR(&m);
	if (!h)
		return 0;
	len = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS || len != (size_t)n)
		return -EPROTO;
	memcpy(w->fd, CMSG_DATA(h), sizeof(int) * len);
	w->len = len;
	return 0;
}
