/*
 * Phase 2b of door 1: the journal is made durable, then carried out; and again after a kill.
 *
 * Policy: nothing in the host tree changes before the commit record is on disk, and with it everything
 * that it promises. The steps themselves and what they may do are in unpack_steps.c.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/path.h"
#include "sync/unpack_key.h"
#include "sync/unpack_steps.h"

#define WRITE_AND_WAIT \
	(SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER)

static int carry_all(struct unpack *u, uint64_t end, struct err *e)
{
	_cleanup_journal_cache_ struct journal_cache k = {.key = u->st.key};
	uint64_t pos = 0;
	struct intent in;
	int r, s;

	while ((r = journal_next(u->st.journal, &k, &pos, end, &in)) > 0) {
		s = in.op == IN_HEADER ? 0 : step_carry_out(u, &in, true, e);
		if (s < 0)
			return s;
	}
	while (r == 0 && (r = journal_prev(u->st.journal, &k, &pos, &in)) > 0) {
		s = in.op == IN_HEADER ? 0 : step_carry_out(u, &in, false, e);
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
		if (in->op == IN_TREE)
			return 1;
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

/* Starts and awaits the write-back of a tree's files. 1: they are too many for that, 0, errno. */
static int push_tree(struct unpack *u, const struct intent *in, uint64_t *n)
{
	char below[PATH_MEMBER_MAX + 2];
	size_t len = in->path_len + 1;
	struct change c;
	uint64_t i;
	int r;

	(void)snprintf(below, sizeof(below), "%s/", in->path);
	r = chlist_seek(u->list, below, len, &i);
	for (; r == 0 && i < chlist_count(u->list); i++) {
		_cleanup_fd_ int fd = -1;

		r = chlist_get(u->list, i, &c);
		if (r < 0 || c.path_len <= len || memcmp(c.path, below, len) != 0)
			break;
		if (!(c.flags & CH_TREE) || c.kind != MK_FILE || change_skipped(u, i))
			continue;
		if (++*n > PUSH_EACH_MAX)
			return 1;
		fd = tree_open_staged(u, c.path, c.path_len, in->path_len, O_RDWR);
		if (fd < 0)
			return fd;
		r = sync_file_range(fd, 0, 0, WRITE_AND_WAIT) < 0 ? -errno : 0;
	}
	return r;
}

/* One sync for all. What is to be told of many files is told meanwhile, for whoever reads it has work of its own. */
static int sync_all(struct unpack *u, uint64_t end, int *ret_told, struct err *e)
{
	if (!u->writer)
		return syncfs(u->st.dir) < 0 ? -errno : 0;
	writer_sync(u->writer, u->st.dir);
	*ret_told = tree_foretell(u, end, e);
	return writer_wait(u->writer, NULL);
}

/*
 * Contents, then the directories that lead to them. Modes are set when a file is put in its place. Where there is one
 * log (os/fslog.h) an fsync makes every earlier change of metadata durable as well, and its flush covers data that was
 * written before: waiting for the data and one fsync (the journal's) do for any number of files. Elsewhere each file
 * and directory gets its own.
 */
static int sync_contents(struct unpack *u, uint64_t end, struct err *e)
{
	_cleanup_journal_cache_ struct journal_cache k = {.key = u->st.key};
	bool shared = u->one_log, many = false;
	uint64_t pos = 0, n = 0;
	struct intent in;
	int fd = -1, told = 0, r;

	while (!many && (r = next_content(u, &k, &pos, end, &in, &fd)) > 0) {
		if (in.op == IN_TREE) {
			r = shared ? push_tree(u, &in, &n) : 1;
			many = r > 0;
			fd = -1;
		} else {
			many = ++n > (shared ? PUSH_EACH_MAX : SYNC_EACH_MAX);
		}
		if (r < 0)
			break;
		if (many)
			r = sync_all(u, end, &told, e);
		else if (in.op == IN_TREE)
			continue;
		else if (shared)
			r = sync_file_range(fd, 0, 0, WRITE_AND_WAIT) < 0 ? -errno : 0;
		else
			r = fsync(fd) < 0 ? -errno : 0;
		cleanup_fd(&fd);
		if (r < 0)
			break;
	}
	if (r == 0 && !shared && !many && (r = beneath_sync_dir(u->st.content)) == 0)
		r = beneath_sync_dir(u->st.dir);
	if (r == 0 && told < 0)
		return told;
	return r < 0 ? err_sys(e, -r, "make the staged files durable (nothing was changed)") : 0;
}

static void sync_dirs(struct unpack *u, uint64_t end)
{
	_cleanup_journal_cache_ struct journal_cache cache = {.key = u->st.key};
	char last[PATH_MEMBER_MAX + 1] = "/";
	uint64_t pos = 0, n = 0;
	struct intent in;

	/* The touch makes the journal's inode part of the newest transaction, which the fsync commits. */
	if (u->one_log && futimens(u->st.journal, NULL) == 0 && fsync(u->st.journal) == 0)
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
			(void)beneath_sync_dir(fd);
	}
	if (n > SYNC_EACH_MAX)
		(void)syncfs(u->root_fd);
}

/* Whoever finishes this after a kill must know where the old files go. */
static int add_place(const struct unpack *u, struct journal *j, struct err *e)
{
	struct intent in = {.op = IN_HEADER, .action = UA_ACTION_COUNT};
	int r;

	in.mode =
	    (u->s.keep_trash ? INTENT_KEEP_TRASH : 0) | (u->mass_delete ? INTENT_MASS_DELETE : 0);
	in.path_len = (uint32_t)strlen(u->s.place);
	memcpy(in.path, u->s.place, in.path_len + 1);
	r = journal_add(j, &in);
	return r < 0 ? err_sys(e, -r, "write the journal in %s", u->st.path) : 0;
}

static void recall_place(struct unpack *u, uint64_t end)
{
	_cleanup_journal_cache_ struct journal_cache k = {.key = u->st.key};
	struct intent in;

	if (journal_prev(u->st.journal, &k, &end, &in) <= 0 || in.op != IN_HEADER)
		return;
	u->s.keep_trash = in.mode & INTENT_KEEP_TRASH;
	u->mass_delete = in.mode & INTENT_MASS_DELETE;
}

/* A journal is good for this workspace only: this directory, on the same device or in the same place. */
static int add_workspace(const struct unpack *u, struct journal *j)
{
	struct intent in = {.op = IN_HEADER, .action = UA_ACTION_COUNT};

	in.new_ino = u->root_st.st_ino;
	in.id = u->root_st.st_dev;
	in.path_len = (uint32_t)strlen(u->s.root);
	memcpy(in.path, u->s.root, in.path_len + 1);
	return journal_add(j, &in);
}

/*
 * Device numbers change with the next boot, and a directory may be moved: one of the two must be as it was. The key
 * is that of the inode already.
 */
static bool is_workspace(const struct unpack *u)
{
	_cleanup_journal_cache_ struct journal_cache k = {.key = u->st.key};
	uint64_t pos = 0;
	struct intent in;

	return journal_next(u->st.journal, &k, &pos, UINT64_MAX, &in) > 0 && in.op == IN_HEADER &&
	       in.new_ino == u->root_st.st_ino &&
	       (in.id == u->root_st.st_dev ||
		(in.path_len && strlen(in.path) == in.path_len && !strcmp(in.path, u->s.root)));
}

int publish_journal(struct unpack *u, struct err *e)
{
	struct journal j;
	uint64_t end = 0;
	int r;

	journal_init(&j, u->st.journal, u->st.key);
	r = add_workspace(u, &j);
	r = r < 0 ? err_sys(e, -r, "write the journal in %s", u->st.path) : plan_paths(u, &j, e);
	if (r == 0 && j.count > 1)
		r = add_place(u, &j, e);
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
		trash_keep(u, false, end);
		if (u->untrashed)
			(void)trash_wait(u);
	}
	return r;
}

/* --- after a kill ------------------------------------------------------------------------- */

/* The steps of a committed journal, unless a publish that came to its end left it for its trash only. */
static int recover_steps(struct unpack *u, bool carried, uint64_t end, struct err *e)
{
	uint64_t before = u->untrashed;
	int r;

	recall_place(u, end);
	r = carried ? 0 : carry_all(u, end, e);
	if (r < 0)
		return r;
	if (!carried)
		sync_dirs(u, end);
	/* Once promised, it waits for somebody who names a place. */
	if (u->run_fd < 0 && carried) {
		(void)tell(u, UA_NOT_TRASHED, u->st.path, STEP_NO_RUN, STEP_NO_RUN_TEXT, NULL);
		u->untrashed++;
	} else {
		trash_keep(u, carried, end);
	}
	if (u->untrashed > before)
		(void)trash_wait(u);
	return !carried || u->untrashed == before;
}

/*
 * A journal in the way of a publish that nobody with our key wrote: planted by a checkout or a program, another
 * user's, of another state directory, an older version's. What it orders is not done, what it holds is not touched.
 */
static int tell_foreign(struct unpack *u)
{
	(void)tell(
	    u, UA_REFUSE, u->st.path, "foreign_journal",
	    "it orders changes, but was not written by this Airlock for this workspace with this state "
	    "directory: left alone, nothing of it was carried out",
	    NULL);
	stage_close(u, true);
	return 0;
}

/* A file or a link in its place is nobody's staging: who planted it must not hold up every later run. */
static bool is_absent(int error)
{
	return error == ENOENT || error == ENOTDIR || error == ELOOP;
}

/* A directory of the staging place, made where it must be there and is not. Descriptor or negative errno. */
static int open_part(int dir, const char *name, bool make)
{
	int fd;

	if (make && mkdirat(dir, name, 0700) < 0 && errno != EEXIST)
		return -errno;
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* One staging directory whose maker is dead. 1 carried out, 0 thrown away or left alone, errno. */
static int recover_one(struct unpack *u, struct err *e)
{
	struct stage *s = &u->st;
	uint64_t end, before = u->untrashed;
	bool carried = false, promised;
	struct stat st;
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
	    !st.st_nlink || !S_ISREG(st.st_mode)) {
		stage_close(u, true);
		return 0;
	}
	unpack_key_stage(u->s.key, path_base(s->path), s->key);
	r = journal_committed(s->journal, s->key, &end);
	if (r == -EKEYREJECTED || (r > 0 && !is_workspace(u)))
		return tell_foreign(u);
	if (r < 0) {
		r = err_sys(e, -r, "read the journal in %s", s->path);
		stage_close(u, true);
		return r;
	}
	promised = r > 0;
	s->content = open_part(s->dir, "c", false);
	if (s->content == -ENOENT) {
		s->content = open_part(s->dir, STAGED_KEPT, false);
		carried = s->content >= 0;
	}
	/*
	 * A sweep empties the journal before it removes anything. While that promises, an empty c/ or t/ that
	 * is missing was tidied away by somebody, and the other one may hold the only copy.
	 */
	if (s->content == -ENOENT)
		s->content = open_part(s->dir, "c", promised);
	s->trash = open_part(s->dir, "t", promised);
	/* Likewise what cannot be opened. Without a promise nothing was carried out or all was. */
	r = s->content < 0 ? s->content : s->trash < 0 ? s->trash : 0;
	if (r < 0 && (promised || !is_absent(-r))) {
		r = err_sys(e, -r, "open what is staged in %s (it stays there)", s->path);
		stage_close(u, true);
		return r;
	}
	r = promised ? recover_steps(u, carried, end, e) : 0;
	stage_close(u, r < 0 || u->untrashed > before);
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
		while (r >= 0 && (de = readdir(d))) {
			if (strlen(de->d_name) != ID_LEN || !id_is_prefix(de->d_name) ||
			    (u->s.one && strcmp(de->d_name, u->s.run) != 0))
				continue;
			(void)snprintf(u->st.path, sizeof(u->st.path), "%s/%s", places[i],
				       de->d_name);
			r = recover_one(u, e);
			*ret_n += r > 0;
		}
		(void)beneath_rmdir(&u->root, places[i]);
	}
	return r < 0 ? r : 0;
}
