#include "guest/land.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/limits.h"
#include "base/str.h"
#include "guest/delta.h"
#include "guest/give.h"
#include "guest/lanes.h"
#include "guest/reuse.h"
#include "wire/manifest.h"
#include "wire/tar.h"

#define CHUNK 65536
#define BOOT_LEN 36
#define UNFLUSHED "unflushed"
#define NEW_INDEX ".new-index"
#define DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

struct lander {
	int in, want, tree, file; /* file: being written; -1 */
	uint32_t owner;		  /* of all of it; 0 */
	int64_t at;		  /* of `file`: where what comes belongs */
	struct reuse reuse;
	struct lanes *lanes;	    /* for small files; NULL: none */
	bool in_lane;		    /* the present file is one of theirs */
	uint8_t part[RM_PARTS_MAX]; /* what the host said of each: 1, it goes on */
	struct tar_reader *tar;
	struct tar_out out;
	char path[PATH_MEMBER_MAX + 1];
	struct tar_member m; /* of `file`; its views are gone */
	char *
	    *shut; /* directories whose mode would have kept us out, set at the end: "MODE path" */
	uint8_t chunk[CHUNK];
};

static int full_read(int fd, void *to, size_t n)
{
	for (size_t got = 0; got < n;) {
		ssize_t k = read(fd, (char *)to + got, n - got);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return k < 0 ? -errno : -EPIPE;
		got += (size_t)k;
	}
	return 0;
}

/* The manifest, into a file of its own. */
static int take_manifest(struct lander *l, int fd)
{
	uint8_t head[8];
	struct cursor c;
	uint64_t left, at = 0;
	int r = full_read(l->in, head, sizeof(head));

	cursor_init(&c, head, sizeof(head));
	left = cursor_u64(&c);
	while (r == 0 && left) {
		size_t n = left < CHUNK ? (size_t)left : CHUNK;

		r = full_read(l->in, l->chunk, n);
		if (r == 0)
			r = fd_write_at(fd, l->chunk, n, at);
		at += n;
		left -= n;
	}
	return r;
}

/* Those whose mode denies their owner something wait until all is in them. */
static int set_dir_mode(struct lander *l, uint32_t mode)
{
	char word[PATH_MEMBER_MAX + 16];

	if ((mode & 0700) == 0700)
		return fchmodat(l->tree, l->path, mode, 0) < 0 ? -errno : 0;
	(void)snprintf(word, sizeof(word), "%03o %s", (unsigned)mode, l->path);
	return strv_add(&l->shut, word);
}

static int shut_dirs(struct lander *l)
{
	for (size_t i = strv_len(l->shut); i-- > 0;) {
		const char *w = l->shut[i];
		unsigned mode = (unsigned)((w[0] - '0') * 64 + (w[1] - '0') * 8 + (w[2] - '0'));

		if (fchmodat(l->tree, w + 4, mode, 0) < 0)
			return -errno;
	}
	return 0;
}

/* One of which the first bytes are there, and the rest comes. */
static bool goes_on(const struct lander *l, uint64_t *ret_have)
{
	for (size_t i = 0; i < l->reuse.want.parts; i++)
		if (l->part[i] && strcmp(l->reuse.part_path[i], l->path) == 0) {
			*ret_have = l->reuse.want.part[i].have;
			return true;
		}
	return false;
}

static int begin_file(struct lander *l)
{
	uint64_t have = 0;
	bool more = goes_on(l, &have);

	/* A part that is not gone on with is in the way. */
	if (!more && l->reuse.want.parts && unlinkat(l->tree, l->path, 0) < 0 && errno != ENOENT)
		return -errno;
	l->at = (int64_t)have;
	l->file = openat(l->tree, l->path,
			 O_WRONLY | (more ? 0 : O_CREAT | O_EXCL) | O_NOFOLLOW | O_CLOEXEC, 0600);
	return l->file < 0 ? -errno : 0;
}

static bool for_lane(const struct lander *l, const struct tar_member *m)
{
	return l->lanes && m->type == TAR_FILE && m->size <= LANES_FILE_MAX && !m->sparse;
}

static int begin_in_lane(struct lander *l, const struct tar_member *m)
{
	lanes_begin(l->lanes, &(struct lanes_file){.path = l->path,
						   .path_len = m->path.n,
						   .mode = m->mode & 0777,
						   .mtime_ns = m->mtime_ns,
						   .size = (size_t)m->size});
	l->in_lane = true;
	return 0;
}

static int begin_member(struct lander *l)
{
	const struct tar_member *m = &l->out.member;
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, clock_timespec(m->mtime_ns)};
	char target[LINK_TARGET_MAX + 1];

	if (m->path.n > PATH_MEMBER_MAX || m->target.n > LINK_TARGET_MAX || m->op != TAR_OP_NONE)
		return -EPROTO;
	memcpy(l->path, m->path.p, m->path.n);
	l->path[m->path.n] = '\0';
	if (for_lane(l, m))
		return begin_in_lane(l, m);
	switch (m->type) {
	case TAR_DIR:
		if (!l->path[0])
			return 0;
		if (mkdirat(l->tree, l->path, 0700) < 0 && (errno != EEXIST || !l->reuse.want.bits))
			return -errno;
		return set_dir_mode(l, m->mode & 0777);
	case TAR_SYMLINK:
		memcpy(target, m->target.p, m->target.n);
		target[m->target.n] = '\0';
		if (symlinkat(target, l->tree, l->path) < 0)
			return -errno;
		(void)utimensat(l->tree, l->path, times, AT_SYMLINK_NOFOLLOW);
		return 0;
	case TAR_FILE:
		l->m = *m;
		return begin_file(l);
	default:
		return -EPROTO;
	}
}

static int end_member(struct lander *l)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, clock_timespec(l->m.mtime_ns)};
	int r = 0;

	if (l->in_lane) {
		l->in_lane = false;
		lanes_end(l->lanes);
	}
	if (l->file < 0)
		return 0;
	if (l->m.sparse && ftruncate(l->file, (off_t)l->m.size) < 0)
		r = -errno;
	if (r == 0 && (fchmod(l->file, l->m.mode & 0777) < 0 || futimens(l->file, times) < 0))
		r = -errno;
	if (close(TAKE_FD(l->file)) < 0 && r == 0)
		r = -errno;
	return r;
}

static int data(struct lander *l)
{
	const struct tar_out *o = &l->out;

	if (!l->in_lane)
		return fd_write_at(l->file, o->data.p, o->data.n, l->at + o->data_offset);
	lanes_data(l->lanes, o->data.p, o->data.n);
	return 0;
}

/* 1: the end mark. 0: needs more. */
static int feed(struct lander *l, const uint8_t *p, size_t n, struct err *e)
{
	for (;;) {
		int ev = tar_reader_next(l->tar, &p, &n, &l->out, e), r = 0;

		switch (ev) {
		case TAR_NEED:
			return 0;
		case TAR_MEMBER:
			r = begin_member(l);
			break;
		case TAR_DATA:
			r = data(l);
			break;
		case TAR_MEMBER_END:
			r = end_member(l);
			break;
		case TAR_END:
			return 1;
		default:
			return ev;
		}
		if (r < 0)
			return err_sys(e, -r, "write %s", l->path);
	}
}

static int all_there(struct lander *l, struct err *e)
{
	const char *path = NULL;
	int r = l->lanes ? lanes_drain(l->lanes, &path) : 0;

	return r < 0 ? err_sys(e, -r, "write %s", path) : 0;
}

/* A default list of access rights has a say in the mode of what is made below it. */
static bool modes_are_exact(int tree)
{
	return fgetxattr(tree, "system.posix_acl_default", NULL, 0) < 0 &&
	       (errno == ENODATA || errno == EOPNOTSUPP);
}

static int read_tree(struct lander *l, struct err *e)
{
	int r = 0;

	while (r == 0 && !(l->lanes && lanes_failed(l->lanes))) {
		ssize_t k = read(l->in, l->chunk, sizeof(l->chunk));

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return err_sys(e, k < 0 ? errno : EPIPE, "the transfer was cut");
		r = feed(l, l->chunk, (size_t)k, e);
	}
	return r < 0 ? r : all_there(l, e);
}

static int take_tree(struct lander *l, struct err *e)
{
	mode_t mask = umask(0); /* modes are said in full */
	int r = read_tree(l, e);

	(void)umask(mask);
	if (r == 0)
		r = shut_dirs(l);
	return r < 0 ? err_wrap(e, r, "workspace") : 0;
}

/* Which start of the machine this is; 0 or negative errno. */
static int boot_id(char out[BOOT_LEN])
{
	_cleanup_fd_ int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

	return fd < 0 ? -errno : full_read(fd, out, BOOT_LEN);
}

static int mark_unflushed(int run)
{
	char boot[BOOT_LEN];
	_cleanup_fd_ int fd = -1;

	if (boot_id(boot) < 0)
		return 0;
	fd = openat(run, UNFLUSHED, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	return fd < 0 ? -errno : fd_write_at(fd, boot, BOOT_LEN, 0);
}

void land_flush(int run)
{
	if (syncfs(run) == 0)
		(void)unlinkat(run, UNFLUSHED, 0);
}

bool land_lost(int run)
{
	_cleanup_fd_ int fd = openat(run, UNFLUSHED, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	char then[BOOT_LEN], now[BOOT_LEN];

	if (fd < 0 || boot_id(now) < 0)
		return false;
	return full_read(fd, then, BOOT_LEN) < 0 || memcmp(then, now, BOOT_LEN) != 0;
}

/* It takes the index's place only when all has landed. */
static int put_index(int run, struct err *e)
{
	int r = mark_unflushed(run);

	if (r == 0 && renameat(run, NEW_INDEX, run, "index") < 0)
		r = -errno;
	return r < 0 ? err_sys(e, -r, "index of the workspace") : 0;
}

static int write_index(struct lander *l, int run, int sent, struct err *e)
{
	_cleanup_fd_ int fd =
	    openat(run, NEW_INDEX, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	struct manifest *m = NULL;
	int r = fd < 0 ? err_sys(e, errno, "index of the workspace") : manifest_open(sent, &m, e);

	if (r == 0)
		r = delta_index(l->tree, m, fd, e);
	manifest_free(m);
	return r < 0 ? r : put_index(run, e);
}

/* What the host is to send, in as many bytes as that takes. */
static int say_want(struct lander *l)
{
	const struct rm_want *w = &l->reuse.want;
	_cleanup_buf_ struct buf b = BUF_INIT(4096);
	size_t bytes = (size_t)(w->count / 8 + 1);
	int r;

	(void)buf_u8(&b, w->bits ? 1 : 0);
	if (!w->bits)
		return b.err ? b.err : fd_write(l->want, b.data, b.len);
	(void)buf_u64(&b, w->count);
	r = b.err ? b.err : fd_write(l->want, b.data, b.len);
	if (r == 0)
		r = fd_write(l->want, w->bits, bytes);
	buf_reset(&b);
	(void)rm_parts_put(&b, w);
	if (r == 0)
		r = b.err ? b.err : fd_write(l->want, b.data, b.len);
	return r == 0 ? full_read(l->in, l->part, w->parts) : r;
}

/* False: there is nothing to start from. */
static bool use_tree(struct lander *l, int run, const struct manifest *sent)
{
	_cleanup_fd_ int index = openat(run, "base", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	struct err e = ERR_INIT;

	l->tree = openat(run, "workspace", DIR_FLAGS);
	if (l->tree < 0)
		return false;
	if (reuse_tree(l->tree, index, l->owner, sent, &l->reuse, &e) == 0)
		return true;
	/* Made by another account, or made not to be changed: then as if it were not there. */
	cleanup_fd(&l->tree);
	reuse_done(&l->reuse);
	return false;
}

static int new_tree(struct lander *l, int run, struct err *e)
{
	int r = land_remove(run, "workspace");

	/* Somebody else's things are in it (a container's there, as a rule): no reason for this run, or any later one, to fail. */
	if (r < 0 && renameat(run, "workspace", run, LAND_ASIDE) == 0)
		r = 0;
	if (r < 0 || mkdirat(run, "workspace", 0755) < 0)
		return err_sys(e, r < 0 ? -r : errno, "create the workspace");
	l->tree = openat(run, "workspace", DIR_FLAGS);
	return l->tree < 0 ? err_sys(e, errno, "open the workspace") : 0;
}

static int into(struct lander *l, int run, int sent, struct err *e)
{
	/* Limited by the disk alone: the stream is the host's own. */
	const struct tar_limits none = {UINT32_MAX, MEMBER_SIZE_MAX, MEMBER_SIZE_MAX};
	struct manifest *m = NULL;
	bool same = false;
	int r = take_manifest(l, sent);

	if (r < 0)
		return err_sys(e, -r, "take the manifest");
	r = manifest_open(sent, &m, e);
	if (r == 0 && !use_tree(l, run, m))
		r = new_tree(l, run, e);
	manifest_free(m);
	if (r < 0)
		return r;
	/* It was true of what is being changed now; or it is still: then nobody walks through the tree again. */
	same = l->reuse.same && renameat(run, "base", run, NEW_INDEX) == 0;
	(void)unlinkat(run, "base", 0);
	r = say_want(l);
	if (r < 0)
		return err_sys(e, -r, "say what is there already");
	cleanup_fd(&l->want);
	r = tar_reader_new(&none, &l->tar);
	if (r < 0)
		return err_sys(e, -r, "take the workspace");
	/* Where a tree is made use of, little comes, and something may be in its way. */
	if (!l->reuse.want.bits)
		l->lanes = lanes_new(l->tree, modes_are_exact(l->tree));
	r = take_tree(l, e);
	if (r == 0 && l->owner) {
		int k = give_tree(l->tree, l->owner);

		/* A user namespace without that id: the launcher refuses, and says what helps. */
		if (k < 0 && k != -EINVAL)
			return err_sys(e, -k, "give the workspace to the sandbox's user");
	}
	if (r < 0)
		return r;
	return same ? put_index(run, e) : write_index(l, run, sent, e);
}

int land(int in, int want, int run, uint32_t owner, struct err *e)
{
	_cleanup_fd_ int sent =
	    openat(run, "sent", O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	struct lander *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return err_sys(e, ENOMEM, "take the workspace");
	l->in = in;
	l->want = want;
	l->owner = owner;
	l->tree = l->file = -1;
	r = sent < 0 ? err_sys(e, errno, "create the manifest") : into(l, run, sent, e);
	lanes_free(l->lanes);
	cleanup_fd(&l->want);
	reuse_done(&l->reuse);
	/* A part that fills a disk is no start for anybody. */
	if (r == -ENOSPC || r == -EDQUOT)
		(void)land_remove(run, "workspace");
	cleanup_fd(&l->file);
	cleanup_fd(&l->tree);
	tar_reader_free(l->tar);
	strv_free(l->shut);
	free(l);
	return r;
}
