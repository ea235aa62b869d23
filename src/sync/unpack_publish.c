/*
 * Phase 2b of door 1: the journal is made durable, then carried out; and again after a kill.
 *
 * Policy: nothing in the host tree changes before the commit record is on disk. Every step says in
 * the journal what it expects to find; what is there is compared right before the step and, where
 * the kernel lets us swap, right after it too: what a person saved in between is put back and
 * counts as a conflict. No link is followed, nothing outside the root is named.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/path.h"
#include "sync/unpack_server.h"

#define EXT4_MAGIC 0xef53    /* statfs(2) */
#define XFS_MAGIC 0x58465342 /* statfs(2) */
#define WRITE_AND_WAIT \
	(SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER)

/* Outcomes of a step beside negative errno. */
enum {
	DONE = 0,
	NOTHING, /* it was done before, or there is nothing left to do it to */
	RACED,	 /* the host changed the path meanwhile: it stays as it is */
};

static bool as_expected(const struct stat *st, const struct intent_old *old, bool with_ctime)
{
	int64_t m = (int64_t)st->st_mtim.tv_sec * NS_PER_S + st->st_mtim.tv_nsec;
	int64_t c = (int64_t)st->st_ctim.tv_sec * NS_PER_S + st->st_ctim.tv_nsec;

	if (st->st_ino != old->ino)
		return false;
	if (S_ISDIR(st->st_mode)) /* its own times change with what is put into it */
		return true;
	return (uint64_t)st->st_size == old->size && m == old->mtime_ns &&
	       (!with_ctime || c == old->ctime_ns);
}

/* Right before a step. Where only the ctime moved since the plan, the bytes of the file decide. */
static bool untouched(int dir, const char *base, const struct stat *st,
		      const struct intent_old *old)
{
	static const uint8_t none[INTENT_HASH];
	_cleanup_fd_ int fd = -1;
	uint8_t hash[MANIFEST_HASH];
	struct stat now;
	uint64_t size;

	_Static_assert(MANIFEST_HASH == INTENT_HASH, "one kind of hash");
	if (as_expected(st, old, true))
		return true;
	if (!as_expected(st, old, false) || !memcmp(old->hash, none, sizeof(none)))
		return false;
	fd = openat(dir, base, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	return fd >= 0 && hash_fd(fd, hash, &size) == 0 && fstat(fd, &now) == 0 &&
	       as_expected(&now, old, false) && !memcmp(hash, old->hash, sizeof(hash));
}

/* Not replacing; for file systems without RENAME_NOREPLACE by a second name, which cannot replace either. */
static int rename_new(int from, const char *a, int to, const char *b)
{
	if (renameat2(from, a, to, b, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL)
		return -errno;
	if (linkat(from, a, to, b, 0) < 0)
		return -errno;
	return unlinkat(from, a, 0) < 0 ? -errno : 0;
}

static int parent_of(struct unpack *u, const char *path, const char **ret_base)
{
	int dir = beneath_parent(&u->root, path, ret_base);

	if (dir != -ENOENT)
		return dir;
	/* The host deleted the directory, the sandbox edited in it: the edit is kept. */
	dir = beneath_mkparents(&u->root, path, 0755 & ~u->s.umask);
	return dir < 0 ? dir : beneath_parent(&u->root, path, ret_base);
}

static int replace(struct unpack *u, const struct intent *in, const char *name, int dir,
		   const char *base)
{
	struct stat st;

	if (fstatat(dir, base, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? RACED : -errno;
	if (!untouched(dir, base, &st, &in->old))
		return RACED;
	/* Safe because: both names are resolved from descriptors, neither is followed, the old one is kept. */
	if (renameat2(u->st.content, name, dir, base, RENAME_EXCHANGE) < 0) {
		if (errno != EINVAL)
			return -errno;
		return renameat(u->st.content, name, dir, base) < 0 ? -errno : DONE;
	}
	if (fstatat(u->st.content, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (as_expected(&st, &in->old, false))
		return DONE;
	return renameat2(u->st.content, name, dir, base, RENAME_EXCHANGE) < 0 ? -errno : RACED;
}

static int do_put(struct unpack *u, const struct intent *in)
{
	_cleanup_fd_ int dir = -1;
	const char *base;
	struct stat st;
	char name[20];
	int r;

	stage_name(in->id, name);
	if (fstatat(u->st.content, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? NOTHING : -errno;
	if (st.st_ino != in->new_ino) {
		/* Swapped before a kill. If what came out is not what was expected, a person's save was swapped out. */
		if (as_expected(&st, &in->old, false))
			return NOTHING;
		dir = beneath_parent(&u->root, in->path, &base);
		if (dir < 0 || fstatat(dir, base, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    st.st_ino != in->new_ino)
			return NOTHING;
		return renameat2(u->st.content, name, dir, base, RENAME_EXCHANGE) < 0 ? -errno
										      : RACED;
	}
	/* Most were made with their mode; and after a power cut it may not have come as far as the contents. */
	if (S_ISREG(st.st_mode) && (st.st_mode & 07777) != (in->mode & 0777) &&
	    fchmodat(u->st.content, name, in->mode & 0777, 0) < 0)
		return -errno;
	dir = parent_of(u, in->path, &base);
	if (dir == -ELOOP || dir == -ENOTDIR)
		return RACED;
	if (dir < 0)
		return dir;
	if (in->old.ino)
		return replace(u, in, name, dir, base);
	r = rename_new(u->st.content, name, dir, base);
	return r == -EEXIST ? RACED : r;
}

static int do_mkdir(struct unpack *u, const struct intent *in)
{
	_cleanup_fd_ int dir = -1;
	const char *base;
	struct stat st;

	dir = parent_of(u, in->path, &base);
	if (dir == -ELOOP || dir == -ENOTDIR)
		return RACED;
	if (dir < 0)
		return dir;
	if (mkdirat(dir, base, 0700) == 0) {
		/* Safe because: the directory is new and empty, and not followed. */
		give_to(dir, base, u->root_st.st_uid, u->root_st.st_gid);
		return DONE;
	}
	if (errno != EEXIST)
		return -errno;
	if (fstatat(dir, base, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	return S_ISDIR(st.st_mode) ? NOTHING : RACED;
}

/* The mode that a new directory gets once everything is in it. */
static int finish_dir(struct unpack *u, const struct intent *in)
{
	_cleanup_fd_ int fd = beneath_open(&u->root, in->path, O_RDONLY | O_DIRECTORY, 0);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || (st.st_mode & 07777) != 0700 || in->mode == 0700)
		return NOTHING;
	return fchmod(fd, in->mode & 0777) < 0 ? -errno : DONE;
}

static int do_mode(struct unpack *u, const struct intent *in)
{
	_cleanup_fd_ int fd = beneath_open(&u->root, in->path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
	struct stat st;

	if (fd == -EACCES)
		fd = beneath_open(&u->root, in->path, O_WRONLY | O_NONBLOCK | O_NOCTTY, 0);
	if (fd == -ENOENT || fd == -ELOOP || fd == -ENOTDIR)
		return RACED;
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!as_expected(&st, &in->old, false))
		return RACED;
	if ((st.st_mode & 0777) == (in->mode & 0777))
		return NOTHING;
	/* Set-id and sticky bits of the host's own file stay: the sandbox decides about 0777 only. */
	return fchmod(fd, (st.st_mode & 07000) | (in->mode & 0777)) < 0 ? -errno : DONE;
}

static int do_delete(struct unpack *u, const struct intent *in)
{
	_cleanup_fd_ int dir = -1;
	const char *base;
	struct stat st;
	char name[20];
	int r;

	stage_name(in->id, name);
	if (fstatat(u->st.trash, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return NOTHING;
	dir = beneath_parent(&u->root, in->path, &base);
	if (dir == -ENOENT || dir == -ELOOP || dir == -ENOTDIR)
		return NOTHING;
	if (dir < 0)
		return dir;
	if (fstatat(dir, base, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? NOTHING : -errno;
	if (!untouched(dir, base, &st, &in->old))
		return RACED;
	/* Safe because: it moves one name into the private trash on the same file system; nothing is destroyed. */
	r = rename_new(dir, base, u->st.trash, name);
	if (r < 0)
		return r;
	if (fstatat(u->st.trash, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (as_expected(&st, &in->old, false))
		return DONE;
	r = rename_new(u->st.trash, name, dir, base);
	return r < 0 ? r : RACED;
}

static int do_rmdir(struct unpack *u, const struct intent *in)
{
	_cleanup_fd_ int dir = -1;
	const char *base;

	dir = beneath_parent(&u->root, in->path, &base);
	if (dir == -ENOENT || dir == -ELOOP || dir == -ENOTDIR)
		return NOTHING;
	if (dir < 0)
		return dir;
	if (unlinkat(dir, base, AT_REMOVEDIR) == 0)
		return DONE;
	/* What is left in it is the host's own, or was kept: then the directory stays as well. */
	return errno == ENOTEMPTY || errno == EEXIST || errno == ENOENT || errno == ENOTDIR
		   ? NOTHING
		   : -errno;
}

static const char *fail_rule(int err)
{
	switch (err) {
	case EACCES:
	case EPERM:
	case EROFS:
		return "permission_denied";
	case EXDEV:
		return "other_filesystem";
	case ENOSPC:
	case EDQUOT:
		return "no_space";
	case EBUSY:
	case ETXTBSY:
		return "busy";
	default:
		return "io_error";
	}
}

/* Reports a step that did not happen; the sandbox's version is kept beside the run. */
static int settle(struct unpack *u, const struct intent *in, int r, struct err *e)
{
	char detail[PATH_MEMBER_MAX + 128] = "";
	size_t n;

	if (in->op == IN_PUT) {
		char name[20];
		struct stat st;
		int s;

		/* It has its final mode already, which may keep even its owner from reading. */
		stage_name(in->id, name);
		if (fstatat(u->st.content, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    S_ISREG(st.st_mode) && fchmodat(u->st.content, name, 0600, 0) < 0)
			return err_sys(e, errno, "open up the staged version of %s", in->path);
		s = save_staged(u, in->id, in->path, detail, sizeof(detail), e);

		if (s < 0)
			return s;
	}
	baseline_not_published(u, in->path, r == RACED);
	if (r == RACED)
		return tell(u, UA_CONFLICT, in->path, "changed_meanwhile", detail, e);
	n = strlen(detail);
	(void)snprintf(detail + n, sizeof(detail) - n, "%s%s", n ? ": " : "", strerror(-r));
	return tell(u, UA_FAIL, in->path, fail_rule(-r), detail, e);
}

/* A directory that a file replaces went as a whole: what was in it is named one by one. */
static int cleared(struct unpack *u, const struct intent *in, struct err *e)
{
	struct beneath trash = {.root = u->st.trash, .stepwise = u->root.stepwise};
	char name[20];

	stage_name(in->id, name);
	return tell_gone(u, &trash, name, in->path, e);
}

/* One intent in the forward or the backward pass. */
static int carry_out(struct unpack *u, const struct intent *in, bool forward, struct err *e)
{
	const char *rule = in->op == IN_MKDIR || in->op == IN_RMDIR ? "dir" : "";
	int r = NOTHING;

	if (!path_is_member(in->path, in->path_len) || strlen(in->path) != in->path_len)
		return err_set(e, ERR_PROTOCOL, "the journal in %s names an unusable path",
			       u->st.path);
	switch (in->op) {
	case IN_PUT:
		r = forward ? do_put(u, in) : NOTHING;
		break;
	case IN_MKDIR:
		if (!forward) {
			(void)finish_dir(u, in); /* stays private where the host refuses: no loss */
			return 0;
		}
		r = do_mkdir(u, in);
		break;
	case IN_MODE:
		r = forward ? do_mode(u, in) : NOTHING;
		break;
	case IN_CLEAR:
		r = forward ? do_delete(u, in) : NOTHING;
		break;
	case IN_DELETE:
		r = forward ? NOTHING : do_delete(u, in);
		break;
	case IN_RMDIR:
		r = forward ? NOTHING : do_rmdir(u, in);
		break;
	default:
		break;
	}
	if (r == NOTHING)
		return 0;
	if (r != DONE)
		return settle(u, in, r, e);
	if (in->op == IN_PUT)
		u->bytes_written += in->size;
	if (in->op == IN_CLEAR)
		return cleared(u, in, e);
	return in->action < UA_ACTION_COUNT ? tell(u, in->action, in->path, rule, NULL, e) : 0;
}

static int carry_all(struct unpack *u, uint64_t end, struct err *e)
{
	_cleanup_journal_cache_ struct journal_cache k = {0};
	uint64_t pos = 0;
	struct intent in;
	int r, s;

	while ((r = journal_next(u->st.journal, &k, &pos, end, &in)) > 0) {
		s = in.op == IN_HEADER ? 0 : carry_out(u, &in, true, e);
		if (s < 0)
			return s;
	}
	while (r == 0 && (r = journal_prev(u->st.journal, &k, &pos, &in)) > 0) {
		s = in.op == IN_HEADER ? 0 : carry_out(u, &in, false, e);
		if (s < 0)
			return s;
		r = 0;
	}
	return r < 0 ? err_sys(e, -r, "read the journal in %s", u->st.path) : 0;
}

/* --- durability --------------------------------------------------------------------------- */

/* Opens the next staged file of the journal. 1, 0 at the end, errno. */
static int next_content(struct unpack *u, struct journal_cache *k, uint64_t *pos, uint64_t end,
			struct intent *in, int *ret_fd)
{
	char name[20];
	int r;

	while ((r = journal_next(u->st.journal, k, pos, end, in)) > 0) {
		if (in->op != IN_PUT)
			continue;
		stage_name(in->id, name);
		*ret_fd = openat(u->st.content, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
		if (*ret_fd >= 0)
			return 1;
		if (errno != ELOOP) /* a symlink: its directory's fsync carries it */
			return -errno;
	}
	return r;
}

/*
 * ext4 and XFS have one log: an fsync makes every earlier change of metadata durable as well, and
 * its flush covers data that was written before. There, waiting for the data and one fsync (the
 * journal's) do for any number of files. Elsewhere each file and directory gets its own.
 */
static bool one_log(const struct unpack *u)
{
	struct statfs f;

	return fstatfs(u->st.dir, &f) == 0 && (f.f_type == EXT4_MAGIC || f.f_type == XFS_MAGIC);
}

/* Contents, then the directories that lead to them. Modes are set when a file is put in its place. */
static int sync_contents(struct unpack *u, uint64_t end, struct err *e)
{
	_cleanup_journal_cache_ struct journal_cache k = {0};
	bool shared = one_log(u), many = false;
	uint64_t pos = 0, n = 0;
	struct intent in;
	int fd, r;

	while (!many && (r = next_content(u, &k, &pos, end, &in, &fd)) > 0) {
		many = ++n > (shared ? PUSH_EACH_MAX : SYNC_EACH_MAX);
		if (many)
			r = syncfs(fd) < 0 ? -errno : 0;
		else if (shared)
			r = sync_file_range(fd, 0, 0, WRITE_AND_WAIT) < 0 ? -errno : 0;
		else
			r = fsync(fd) < 0 ? -errno : 0;
		(void)close(fd);
		if (r < 0)
			break;
	}
	if (r == 0 && !shared && !many && (fsync(u->st.content) < 0 || fsync(u->st.dir) < 0))
		r = -errno;
	return r < 0 ? err_sys(e, -r, "make the staged files durable (nothing was changed)") : 0;
}

static void sync_dirs(struct unpack *u, uint64_t end)
{
	_cleanup_journal_cache_ struct journal_cache cache = {0};
	char last[PATH_MEMBER_MAX + 1] = "/";
	uint64_t pos = 0, n = 0;
	struct intent in;

	/* The touch makes the journal's inode part of the newest transaction, which the fsync commits. */
	if (one_log(u) && futimens(u->st.journal, NULL) == 0 && fsync(u->st.journal) == 0)
		return;
	while (journal_next(u->st.journal, &cache, &pos, end, &in) > 0 && n <= SYNC_EACH_MAX) {
		size_t k = in.op == IN_HEADER ? 0 : (size_t)(path_base(in.path) - in.path);
		_cleanup_fd_ int fd = -1;

		if (in.op == IN_HEADER || in.op == IN_MODE)
			continue;
		in.path[k ? k - 1 : 0] = '\0';
		if (!strcmp(in.path, last))
			continue;
		(void)snprintf(last, sizeof(last), "%s", in.path);
		fd = beneath_open(&u->root, in.path, O_RDONLY | O_DIRECTORY, 0);
		/* The journal stays until this is done; a failure here only costs a replay after power loss. */
		if (fd >= 0 && n++ < SYNC_EACH_MAX)
			(void)fsync(fd);
	}
	if (n > SYNC_EACH_MAX)
		(void)syncfs(u->root_fd);
}

/* What a put was swapped for, if it was: by now the staging place has nothing else under that number. */
static int keep_replaced(struct unpack *u, const struct intent *in)
{
	struct stat st;
	char name[20];

	stage_name(in->id, name);
	if (!in->old.ino || fstatat(u->st.content, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    st.st_ino != in->old.ino)
		return 0;
	return save_replaced(u, in->id, in->path);
}

/*
 * What was deleted goes to the run, where the file system allows a rename; a mass deletion always. With
 * keep_trash nobody else has the bytes: they go in any case, and what was replaced too. Where that
 * fails the staging place stays with everything in it, and a recovery tries again.
 */
static int keep_trash(struct unpack *u, uint64_t end, struct err *e)
{
	_cleanup_journal_cache_ struct journal_cache k = {0};
	bool copy = u->mass_delete || u->s.keep_trash;
	uint64_t pos = 0;
	struct intent in;

	while (journal_next(u->st.journal, &k, &pos, end, &in) > 0) {
		int r = 0;

		if (in.op == IN_DELETE || in.op == IN_CLEAR)
			r = save_trash(u, in.id, in.path, copy);
		else if (in.op == IN_PUT && u->s.keep_trash)
			r = keep_replaced(u, &in);
		if (r < 0 && r != -ENOENT && u->s.keep_trash)
			return err_sys(
			    e, -r,
			    "keep the old %s in the trash (all is published; what was deleted or "
			    "replaced lies in %s until 'airlock recover' can move it)",
			    in.path, u->st.path);
	}
	return 0;
}

int publish_journal(struct unpack *u, struct err *e)
{
	struct intent head = {.op = IN_HEADER, .action = UA_ACTION_COUNT};
	struct journal j;
	uint64_t end = 0;
	int r;

	journal_init(&j, u->st.journal);
	r = journal_add(&j, &head);
	r = r < 0 ? err_sys(e, -r, "write the journal in %s", u->st.path) : plan_paths(u, &j, e);
	if (r == 0 && j.count > 1 && (r = journal_flush(&j, &end)) < 0)
		(void)err_sys(e, -r, "write the journal in %s", u->st.path);
	if (r == 0)
		r = baseline_prepare(u, e);
	if (r < 0 || j.count <= 1) {
		journal_done(&j);
		if (r == 0)
			baseline_finish(u);
		return r;
	}
	r = sync_contents(u, end, e);
	if (r == 0 && (r = journal_commit(&j)) < 0)
		(void)err_sys(e, -r, "commit the journal in %s (nothing was changed)", u->st.path);
	journal_done(&j);
	if (r < 0)
		return r;
	u->publishing = true; /* from here on only a kill stops it, and a replay finishes it */
	baseline_committed(u);
	r = carry_all(u, end, e);
	if (r == 0) {
		sync_dirs(u, end);
		baseline_finish(u);
		r = keep_trash(u, end, e);
	}
	return r;
}

/* --- after a kill ------------------------------------------------------------------------- */

/* One staging directory whose maker is dead. 1 carried out, 0 thrown away or left alone, errno. */
static int recover_one(struct unpack *u, struct err *e)
{
	struct stage *s = &u->st;
	struct stat st;
	uint64_t end;
	int r;

	s->dir = beneath_open(&s->base, s->path, O_RDONLY | O_DIRECTORY, 0);
	if (s->dir < 0)
		return 0;
	s->journal = openat(s->dir, "journal", O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (s->journal < 0) {
		/* Made this instant, or emptied to the last file before: only an empty one may go. */
		(void)beneath_rmdir(&s->base, s->path);
		cleanup_fd(&s->dir);
		return 0;
	}
	if (flock(s->journal, LOCK_EX | LOCK_NB) < 0 || fstat(s->journal, &st) < 0 ||
	    !st.st_nlink) {
		stage_close(u, true);
		return 0;
	}
	s->content = openat(s->dir, "c", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	s->trash = openat(s->dir, "t", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	r = journal_committed(s->journal, &end);
	if (r > 0 && s->content >= 0 && s->trash >= 0) {
		r = carry_all(u, end, e);
		if (r == 0) {
			sync_dirs(u, end);
			r = u->run_fd >= 0 ? keep_trash(u, end, e) : 0;
			r = r < 0 ? r : 1;
		}
	} else if (r > 0) {
		r = 0; /* carried out; the kill came while it was being swept */
	}
	stage_close(u, r < 0);
	return r;
}

int publish_recover(struct unpack *u, uint64_t *ret_n, struct err *e)
{
	static const char *const places[] = {STAGING_GIT, STAGING_TOP};
	int r = 0;

	*ret_n = 0;
	u->st.base = u->root;
	for (size_t i = 0; i < ARRAY_LEN(places) && r >= 0; i++) {
		_cleanup_dir_ DIR *d = NULL;
		struct dirent *de;
		int fd = beneath_open(&u->root, places[i], O_RDONLY | O_DIRECTORY, 0);

		if (fd < 0)
			continue;
		d = fdopendir(fd);
		if (!d) {
			(void)close(fd);
			return err_set(e, ERR_NOMEM, "out of memory");
		}
		/* Losers of a replay are kept here if nobody gave a place for them. */
		if (u->run_fd < 0)
			u->run = (struct beneath){.root = dirfd(d), .stepwise = u->root.stepwise};
		while (r >= 0 && (de = readdir(d))) {
			if (strlen(de->d_name) != ID_LEN || !id_is_prefix(de->d_name))
				continue;
			(void)snprintf(u->st.path, sizeof(u->st.path), "%s/%s", places[i],
				       de->d_name);
			r = recover_one(u, e);
			*ret_n += r > 0;
		}
		if (u->run_fd < 0)
			u->run.root = -1;
		(void)beneath_rmdir(&u->root, places[i]);
	}
	return r < 0 ? r : 0;
}
