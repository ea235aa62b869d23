/*
 * Policy: who, where and how names are looked up is told by files made here. The host's passwd would
 * name its people; its nsswitch.conf asks services that are not inside and makes look-ups hang.
 */
#include "provider/native/setup.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"

#define ETC_FILE_MAX 131072
#define RESOLV_MAX 65536

static int put_file(int rootfd, const char *name, const struct buf *b, struct failure *f)
{
	_cleanup_fd_ int fd = -1;

	if (b->err)
		return fail(f, STEP_ETC, -b->err, name);
	fd = openat(rootfd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444);
	if (fd < 0)
		return fail(f, STEP_ETC, errno, name);
	if (b->len && write(fd, b->data, b->len) != (ssize_t)b->len)
		return fail(f, STEP_ETC, errno ? errno : EIO, name);
	/* Some file systems, NFS above all, tell of a full disk only here. */
	return close(TAKE_FD(fd)) < 0 ? fail(f, STEP_ETC, errno, name) : 0;
}

/* The host's resolver file, where the host's network is there as well. */
static int put_resolv(int rootfd, struct failure *f)
{
	_cleanup_fd_ int fd = open("/etc/resolv.conf", O_RDONLY | O_CLOEXEC);
	_cleanup_buf_ struct buf b = BUF_INIT(RESOLV_MAX);
	ssize_t n = 0;

	for (char *to; fd >= 0 && (to = buf_room(&b, 4096)) && (n = read(fd, to, 4096)) > 0;)
		buf_add(&b, (size_t)n);
	if (n < 0)
		return fail(f, STEP_ETC, errno, "/etc/resolv.conf");
	return put_file(rootfd, "etc/resolv.conf", &b, f);
}

int image_etc(int rootfd, const struct plan *p, struct failure *f)
{
	_cleanup_buf_ struct buf b = BUF_INIT(ETC_FILE_MAX);

	(void)buf_putf(&b,
		       "root:x:0:0:root:/root:/usr/sbin/nologin\n"
		       "agent:x:%u:%u:agent:" PLAN_HOME ":/bin/sh\n"
		       "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		       p->uid_inside, p->gid_inside);
	if (put_file(rootfd, "etc/passwd", &b, f) < 0)
		return -1;
	buf_reset(&b);
	(void)buf_putf(&b, "root:x:0:\ntty:x:5:\nagent:x:%u:\nnogroup:x:65534:\n", p->gid_inside);
	if (put_file(rootfd, "etc/group", &b, f) < 0)
		return -1;
	buf_reset(&b);
	(void)buf_putf(&b, "127.0.0.1 localhost %s\n::1 localhost ip6-localhost ip6-loopback\n",
		       p->hostname);
	if (put_file(rootfd, "etc/hosts", &b, f) < 0)
		return -1;
	buf_reset(&b);
	(void)buf_putf(&b, "%s\n", p->hostname);
	if (put_file(rootfd, "etc/hostname", &b, f) < 0)
		return -1;
	buf_reset(&b);
	(void)buf_puts(&b, "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n"
			   "networks: files\nprotocols: files\nservices: files\nethers: files\n"
			   "rpc: files\n");
	if (put_file(rootfd, "etc/nsswitch.conf", &b, f) < 0)
		return -1;
	if (p->net == NET_HOST)
		return put_resolv(rootfd, f);
	buf_reset(&b);
	(void)buf_puts(&b, "# no network: nothing to ask\n");
	return put_file(rootfd, "etc/resolv.conf", &b, f);
}
