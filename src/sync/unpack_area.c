/*
 * The staging directory of one publish.
 *
 * Policy: on the workspace's file system, so that a rename is atomic; private (0700); inside .git
 * where that is a real directory, since nothing lists it there, else beside the files under a
 * name that no sandbox may use (member rules). The journal file is locked for as long as its
 * maker lives: recovery touches nothing whose lock is held. Beside the files it tells git, of whatever checkout the
 * workspace is a part, to look away.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "sync/pending.h"
#include "sync/unpack_key.h"
#include "sync/unpack_server.h"

#define TRIES 16
#define IGNORE_FILE ".gitignore"

void stage_name(uint64_t id, char out[20])
{
	(void)snprintf(out, 20, "%llx", (unsigned long long)id);
}

void stage_aside(uint64_t id, char out[STAGE_ASIDE])
{
	(void)snprintf(out, STAGE_ASIDE, "%llx-old", (unsigned long long)id);
}

/* Where the staging place of root is: .git only if it is a directory on the same file system. */
static const char *staging_place(const struct unpack *u)
{
	struct stat st;

	if (fstatat(u->root_fd, ".git", &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode) &&
	    st.st_dev == u->root_st.st_dev && faccessat(u->root_fd, ".git", W_OK, AT_EACCESS) == 0)
		return STAGING_GIT;
	return STAGING_TOP;
}

/* 0 when the directory and its locked journal are ours; -EAGAIN: recovery swept it away, try again. */
static int make_journal(struct stage *s)
{
	struct stat st;
	int r = beneath_mkdirs(&s->base, s->path, 0700);

	if (r < 0)
		return r == -ENOENT ? -EAGAIN : r;
	cleanup_fd(&s->dir);
	cleanup_fd(&s->journal);
	s->dir = beneath_open(&s->base, s->path, O_RDONLY | O_DIRECTORY, 0);
	if (s->dir < 0)
		return s->dir == -ENOENT ? -EAGAIN : s->dir;
	s->journal =
	    openat(s->dir, "journal", O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (s->journal < 0)
		return errno == ENOENT ? -EAGAIN : -errno;
	/* Recovery holds it for a moment where it looks into the new directory: waiting may be cut by a signal. */
	while (flock(s->journal, LOCK_EX) < 0)
		if (errno != EINTR)
			return -errno;
	if (fstat(s->journal, &st) < 0)
		return -errno;
	return st.st_nlink ? 0 : -EAGAIN;
}

static int open_sub(int dir, const char *name)
{
	int fd;

	if (mkdirat(dir, name, 0700) < 0)
		return -errno;
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* A checkout's .git is a file in linked worktrees, and above the workspace where that is a part of one. */
static void hide_from_git(const struct stage *s)
{
	_cleanup_fd_ int fd =
	    openat(s->dir, IGNORE_FILE, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd >= 0 && write(fd, "*\n", 2) != 2)
		errno = 0; /* then git shows it while it is there */
}

int stage_open(struct unpack *u, struct err *e)
{
	struct stage *s = &u->st;
	int r = -EAGAIN;

	s->base = u->s.mode == UM_REVIEW ? u->run : u->root;
	if (u->s.mode == UM_REVIEW)
		(void)snprintf(s->path, sizeof(s->path), PENDING_NEW);
	else
		(void)snprintf(s->path, sizeof(s->path), "%s/%s", staging_place(u), u->s.run);
	unpack_key_stage(u->s.key, u->s.run, s->key);
	for (int i = 0; i < TRIES && r == -EAGAIN; i++)
		r = make_journal(s);
	if (r == 0) {
		if (str_starts(s->path, STAGING_TOP))
			hide_from_git(s);
		s->content = open_sub(s->dir, "c");
		s->trash = s->content < 0 ? s->content : open_sub(s->dir, "t");
		r = s->trash < 0 ? s->trash : 0;
	}
	s->next_id = 1;
	u->fold_case = r == 0 && faccessat(s->dir, "JOURNAL", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
	/* A run that changed nothing may end well in a workspace that nobody can write. */
	if ((r == -EROFS || r == -EACCES || r == -EPERM) && s->dir < 0 && u->s.mode == UM_STREAM) {
		(void)err_sys(
		    &s->refused, -r,
		    "the workspace cannot be written (staging place %s, nothing was changed): make it "
		    "writable and bring the results back again",
		    s->path);
		return 0;
	}
	if (r < 0)
		return err_sys(e, -r, "make staging place %s", s->path);
	return 0;
}

int stage_ready(const struct unpack *u, struct err *e)
{
	if (u->st.dir >= 0 || u->st.refused.code == ERR_NONE)
		return 0;
	*e = u->st.refused;
	return -EACCES;
}

void stage_close(struct unpack *u, bool keep)
{
	struct stage *s = &u->st;
	char parent[sizeof(s->path)];

	cleanup_fd(&s->content);
	cleanup_fd(&s->trash);
	if (s->dir >= 0 && !keep) {
		/* The journal goes last: until then a kill leaves a place that recovery recognises. */
		struct beneath b = {.root = s->dir, .stepwise = s->base.stepwise};

		/* A sweep that is cut must not look like a publish that was cut: what it did may be edited by now. */
		if (s->journal >= 0 && ftruncate(s->journal, 0) < 0)
			errno = 0; /* then the order below is all there is */
		(void)beneath_remove_tree(&b, "c");
		(void)beneath_remove_tree(&b, STAGED_KEPT);
		(void)beneath_remove_tree(&b, "t");
		(void)unlinkat(s->dir, "pending", 0);
		(void)unlinkat(s->dir, IGNORE_FILE, 0);
		(void)unlinkat(s->dir, "journal", 0);
		(void)beneath_remove_tree(&s->base, s->path);
		(void)snprintf(parent, sizeof(parent), "%.*s",
			       (int)(strrchr(s->path, '/') ? strrchr(s->path, '/') - s->path : 0),
			       s->path);
		/* Fails while another run stages there, which is right. */
		if (parent[0] && s->base.root == u->root_fd)
			(void)unlinkat(s->base.root, parent, AT_REMOVEDIR);
	}
	cleanup_fd(&s->dir);
	cleanup_fd(&s->journal);
}

int stage_copy_counts(struct unpack *u, uint64_t size, struct err *e)
{
	char limit[24];

	if (size > u->s.total_max - u->taken) {
		str_human_size(u->s.total_max, limit, sizeof(limit));
		return err_set(
		    e, ERR_LIMIT,
		    "with the copies that hard links become the results are over %s, the limit of all "
		    "results together; delete or shrink some in the sandbox",
		    limit);
	}
	u->taken += size;
	return stage_space(u, size, e);
}

int stage_space(const struct unpack *u, uint64_t need, struct err *e)
{
	char miss[24], want[24], reserve[24];
	struct statfs f;
	uint64_t room, pending = writer_pending(u->writer);

	if (u->st.dir < 0) /* nothing is staged there */
		return 0;
	if (fstatfs(u->st.dir, &f) < 0)
		return err_sys(e, errno, "ask for free space");
	room = (uint64_t)f.f_bavail * (uint64_t)f.f_bsize;
	room -= room < pending ? room : pending;
	if (f.f_blocks == 0 || (need <= room && room - need >= DISK_RESERVE_BYTES))
		return 0;
	str_human_size(need + DISK_RESERVE_BYTES - room, miss, sizeof(miss));
	str_human_size(need, want, sizeof(want));
	str_human_size(DISK_RESERVE_BYTES, reserve, sizeof(reserve));
	return err_set(
	    e, ERR_NO_SPACE,
	    "%s missing on the workspace's file system: the next file needs %s and %s stay free; "
	    "free some space and bring the results back again (nothing was changed)",
	    miss, want, reserve);
}

int stage_create(struct unpack *u, const char *path, uint32_t mode, uint64_t *ret_id, struct err *e)
{
	char name[20];
	int fd = stage_ready(u, e);

	if (fd < 0)
		return fd;
	stage_name(u->st.next_id, name);
	fd = openat(u->st.content, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
		    mode & 0777);
	if (fd < 0)
		return err_sys(e, errno, "stage %s in %s", path, u->st.path);
	*ret_id = u->st.next_id++;
	return fd;
}
