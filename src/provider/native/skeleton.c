/*
 * Policy: what sandboxes share here is read-only to each of them, holds no byte that one of them made, and lies where no
 * bind may come near (plan_check). It is made with the sandbox user's ids and this program's own names (names.c); who may
 * write the state directory may do all that the caller may.
 */
#include "provider/native/skeleton.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/blake2b.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/path.h"
#include "base/str.h"
#include "os/mounts.h"
#include "provider/native/kept.h"
#include "provider/native/names.h"
#include "provider/native_storage.h"

#define KEY_MAX 131072
/* Some roots' worth: a start that adds one takes away more, and does not wait for a thousand. */
#define SWEEP_ENTRIES 500
#define SWEEP_NS (10 * NS_PER_MS)

/* Whatever appears, goes or changes its kind in them changes their times. */
static const char *const stamped[] = {"/", "/etc"};

void skeleton_init(struct skeleton *k)
{
	*k = (struct skeleton){.lock = -1, .tree = -1};
}

void skeleton_settle(struct skeleton *k)
{
	cleanup_fd(&k->tree);
	free(k->path);
	k->path = NULL;
}

static void put_time(struct buf *b, struct timespec t)
{
	(void)buf_u64(b, (uint64_t)t.tv_sec);
	(void)buf_u32(b, (uint32_t)t.tv_nsec);
}

/* Absent is a value too. */
static void put_stamp(struct buf *b, const char *path, time_t *latest)
{
	struct stat st;

	if (stat(path, &st) < 0)
		st = (struct stat){0};
	(void)buf_u64(b, st.st_dev);
	(void)buf_u64(b, st.st_ino);
	put_time(b, st.st_mtim);
	put_time(b, st.st_ctim);
	if (st.st_ctim.tv_sec > *latest)
		*latest = st.st_ctim.tv_sec;
}

/* What a link leads to is elsewhere, and no directory's time tells of it. */
static void put_kinds(struct buf *b)
{
	for (size_t i = 0; names_paths[i]; i++)
		(void)buf_u8(b, (uint8_t)names_kind(names_paths[i]));
}

static void put_boot(struct buf *b)
{
	_cleanup_fd_ int fd =
	    openat(AT_FDCWD, "/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	char id[64];
	ssize_t n = fd < 0 ? -1 : read(fd, id, sizeof(id));

	/* Without it nothing is kept. */
	if (n <= 0)
		b->err = -ENOENT;
	else
		(void)buf_bytes(b, id, (size_t)n);
}

/* Everything that names_make and names_points look at. latest: the youngest change of a stamped place, in seconds. */
static int key(const struct plan *p, char name[KEPT_NAME + 1], time_t *latest)
{
	_cleanup_buf_ struct buf b = BUF_INIT(KEY_MAX);
	uint8_t out[BLAKE2B_OUT];
	struct blake2b h;

	*latest = 0;
	put_boot(&b);
	/* A running program's file does not change. */
	put_stamp(&b, "/proc/self/exe", latest);
	*latest = 0;
	for (size_t i = 0; i < ARRAY_LEN(stamped); i++)
		put_stamp(&b, stamped[i], latest);
	put_kinds(&b);
	if (p->net == NET_HOST)
		put_stamp(&b, "/etc/resolv.conf", latest);
	(void)buf_u32(&b, p->net);
	(void)buf_u32(&b, p->uid_inside);
	(void)buf_u32(&b, p->gid_inside);
	(void)buf_u32(&b, p->uid_host);
	(void)buf_u32(&b, p->gid_host);
	(void)buf_str(&b, p->hostname);
	(void)buf_str(&b, p->inside);
	(void)buf_u8(&b, p->gateway != NULL);
	(void)buf_u64(&b, names_bind_dirs(p));
	for (size_t i = 0; i < p->binds_len; i++)
		(void)buf_str(&b, p->binds[i].dst);
	if (b.err)
		return b.err;
	blake2b_init(&h);
	blake2b_update(&h, b.data, b.len);
	blake2b_final(&h, out);
	str_hex(name, out, KEPT_NAME / 2);
	return 0;
}

/* As if the child made them: its user's files, whatever the caller's umask. */
static int make_names(int root, const struct plan *p)
{
	/* The caller opens them; its user may be the only one who can. */
	uint64_t bind_dirs = names_bind_dirs(p);
	bool other = p->uid_host != geteuid();
	mode_t mask = umask(022);
	struct failure f = {0};
	int r;

	if (other) {
		(void)setfsgid(p->gid_host);
		(void)setfsuid(p->uid_host);
	}
	r = names_make(root, p, &f);
	if (r == 0)
		r = names_points(root, p, bind_dirs, &f);
	if (other) {
		(void)setfsuid(geteuid());
		(void)setfsgid(getegid());
	}
	(void)umask(mask);
	return r;
}

/*
 * The bytes of root's files: they must not be lost where their names are not, on a disk that goes away and comes back without a boot. What
 * else there is are names, and the file system has them in order.
 */
static int sync_files(int root)
{
	int fd = openat(root, "etc", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_dir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *ent;

	if (!d) {
		cleanup_fd(&fd);
		return -ENOENT;
	}
	while ((ent = readdir(d))) {
		_cleanup_fd_ int file = -1;
		struct stat st;

		if (fstatat(fd, ent->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    !S_ISREG(st.st_mode) || st.st_size == 0)
			continue;
		file = openat(fd, ent->d_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		if (file < 0 || fsync(file) < 0)
			return -errno;
	}
	return 0;
}

static int make_in(int dir, const struct plan *p)
{
	_cleanup_fd_ int root = -1;
	int r;

	/* For as long as it is used: so nobody takes it for one whose maker was killed. */
	if (flock(dir, LOCK_SH | LOCK_NB) < 0)
		return -errno;
	if (mkdirat(dir, "root", 0755) < 0)
		return -errno;
	root = openat(dir, "root", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (root < 0 || fchmod(root, 0755) < 0)
		return -errno;
	if (p->uid_host != geteuid() && fchown(root, p->uid_host, p->gid_host) < 0)
		return -errno;
	r = make_names(root, p);
	return r < 0 ? r : sync_files(root);
}

/*
 * A change in the second in which the host was looked at could have been missed by the look and be in its stamp; and so could
 * one that came while the names were made. The root's descriptor, or negative.
 */
static int make(int roots, const char *name, const struct plan *p, time_t latest)
{
	char making[sizeof(KEPT_MAKING) + ID_LEN] = KEPT_MAKING, again[KEPT_NAME + 1];
	unsigned budget = UINT_MAX;
	_cleanup_fd_ int dir = -1;
	int r;

	if (time(NULL) - latest < 2 || id_new(making + strlen(KEPT_MAKING)) < 0 ||
	    mkdirat(roots, making, 0700) < 0)
		return -EAGAIN;
	dir = openat(roots, making, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	r = dir < 0 ? -errno : make_in(dir, p);
	if (r == 0)
		r = key(p, again, &latest);
	if (r == 0 && strcmp(name, again) != 0)
		r = -EAGAIN;
	if (r == 0 && renameat(roots, making, roots, name) == 0)
		return TAKE_FD(dir);
	(void)storage_remove(roots, making, &budget);
	/* One that was there first is no less good; a name that is not empty cannot be replaced. */
	return r == 0 ? kept_hold(roots, name) : r;
}

/* There are more only when one is made, so that is when old ones go, a few at a time. */
static void remove_old(int roots)
{
	struct kept_sweep s = {.unused_s = KEPT_UNUSED_S,
			       .entries = SWEEP_ENTRIES,
			       .until_ns = clock_mono_ns() + SWEEP_NS};

	(void)kept_sweep(roots, &s);
}

/* A root consists of links too, and they must lead somewhere. */
static bool follows_links(int roots)
{
	struct statvfs st;

	return fstatvfs(roots, &st) == 0 && !(st.f_flag & ST_NOSYMFOLLOW);
}

static int copy_tree(int at, const char *path)
{
	_cleanup_fd_ int fd = mounts_open(at, path);

	return fd < 0 ? fd : mounts_clone(fd, "");
}

void skeleton_open(struct skeleton *k, const struct plan *p, bool opens)
{
	/* Without the filter a sandbox could hold a lease on a file here, and make the others wait. */
	bool can = !p->image && !(p->without & WITHOUT_SECCOMP);
	_cleanup_free_ char *dir = can ? path_join(p->state_dir, KEPT_DIR) : NULL;
	_cleanup_fd_ int roots = dir ? mounts_open(AT_FDCWD, dir) : -1;
	char name[KEPT_NAME + 1];
	time_t latest;

	if (roots < 0 || !follows_links(roots) || key(p, name, &latest) < 0)
		return;
	k->lock = kept_hold(roots, name);
	if (k->lock == -ENOENT) {
		k->lock = make(roots, name, p, latest);
		remove_old(roots);
	}
	if (k->lock < 0) {
		k->lock = -1;
		return;
	}
	if (opens) {
		k->tree = copy_tree(k->lock, "root");
		return;
	}
	if (asprintf(&k->path, "%s/%s/root", dir, name) < 0)
		k->path = NULL;
}

int skeleton_tree(const struct skeleton *k)
{
	int tree = k->tree;

	/* Its own copy of the descriptor: the tables are two. */
	if (tree < 0 && k->path)
		tree = copy_tree(AT_FDCWD, k->path);
	if (tree < 0)
		return -1;
	if (mounts_restrict(tree, "", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV) <
	    0) {
		cleanup_fd(&tree);
		return -1;
	}
	return tree;
}
