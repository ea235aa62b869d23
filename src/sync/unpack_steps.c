/*
 * Phase 2b of door 1, step by step: each says in the journal what it expects to find.
 *
 * Policy: what is there is compared right before the step and, where the kernel lets us swap, right
 * after it too: what a person saved in between is put back and counts as a conflict. No link is followed,
 * nothing outside the root is named, nothing is destroyed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/path.h"
#include "policy/member.h"
#include "sync/unpack_entry.h"
#include "sync/unpack_steps.h"

int step_parent(struct unpack *u, const char *path, const char **ret_base)
{
	int dir = beneath_parent(&u->root, path, ret_base);

	if (dir != -ENOENT)
		return dir;
	/* The host deleted the directory, the sandbox edited in it: the edit is kept. */
	dir = beneath_mkparents(&u->root, path, 0755 & ~u->s.umask);
	return dir < 0 ? dir : beneath_parent(&u->root, path, ret_base);
}

/*
 * File systems without RENAME_EXCHANGE: what is there gets a second name beside the staged one first, and what got it
 * is looked at. What a person saves in the moment between that and the rename is replaced: no call there prevents it.
 */
static int replace_plain(struct unpack *u, const struct intent *in, const char *name, int dir,
			 const char *base)
{
	char aside[STAGE_ASIDE];
	struct stat st;
	int r;

	stage_aside(in->id, aside);
	/* Safe because: the link is made in the private staging place, of the entry itself, and follows nothing. */
	r = linkat(dir, base, u->st.content, aside, 0) < 0 ? -errno : 0;
	if (r == -EPERM || r == -EOPNOTSUPP || r == -ENOSYS || r == -EMLINK)
		r = save_aside(u, dir, base, aside);
	if (r < 0)
		return r == -ENOENT ? RACED : r;
	if (fstatat(dir, base, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    !entry_expected(&st, &in->old, false))
		r = RACED;
	else
		r = renameat(u->st.content, name, dir, base) < 0 ? -errno : DONE;
	if (r != DONE)
		(void)unlinkat(u->st.content, aside, 0);
	return r;
}

/* A second name that a killed try left: the old version has its own yet, for the staged one is still here. */
static bool had_aside(struct unpack *u, const struct intent *in, int dir, const char *base)
{
	char aside[STAGE_ASIDE];
	bool same;

	stage_aside(in->id, aside);
	same = entry_same(u->st.content, aside, dir, base);
	(void)unlinkat(u->st.content, aside, 0);
	return same;
}

static int replace(struct unpack *u, const struct intent *in, const char *name, int dir,
		   const char *base)
{
	struct stat st;
	int r;

	if (fstatat(dir, base, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? RACED : -errno;
	/* Our own second name is what moved the ctime then. */
	r = had_aside(u, in, dir, base) && entry_expected(&st, &in->old, false)
		? 1
		: entry_untouched(dir, base, &st, &in->old);
	if (r <= 0)
		return r < 0 ? r : RACED;
	/* Safe because: both names are resolved from descriptors, neither is followed, the old one is kept. */
	if (renameat2(u->st.content, name, dir, base, RENAME_EXCHANGE) < 0) {
		return errno == EINVAL ? replace_plain(u, in, name, dir, base) : -errno;
	}
	/* What cannot be looked at goes back as well: what is reported as failed must not have happened. */
	if (fstatat(u->st.content, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		r = -errno;
		/* There and back is a new ctime: the next recovery would take it for an edit. It looks again instead. */
		if (u->s.mode != UM_RECOVER || !entry_passes(r))
			(void)renameat2(u->st.content, name, dir, base, RENAME_EXCHANGE);
		return r;
	}
	if (entry_expected(&st, &in->old, false))
		return DONE;
	return renameat2(u->st.content, name, dir, base, RENAME_EXCHANGE) < 0 ? -errno : RACED;
}

int step_chmod(int dir, const char *name, mode_t mode)
{
	if (fchmodat(dir, name, mode, 0) == 0 || errno == EPERM || errno == EOPNOTSUPP)
		return 0;
	return -errno;
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
		if (entry_expected(&st, &in->old, false))
			return NOTHING;
		dir = beneath_parent(&u->root, in->path, &base);
		r = dir < 0 ? dir : fstatat(dir, base, &st, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
		/* Not known to be there: what is staged may be the only copy, whatever its inode. It is kept and told. */
		if (r < 0 || st.st_ino != in->new_ino)
			return entry_passes(r) ? r : RACED;
		return renameat2(u->st.content, name, dir, base, RENAME_EXCHANGE) < 0 ? -errno
										      : RACED;
	}
	/* Most were made with their mode; and after a power cut it may not have come as far as the contents. */
	if (S_ISREG(st.st_mode) && (st.st_mode & 07777) != (in->mode & 0777)) {
		r = step_chmod(u->st.content, name, in->mode & 0777);
		if (r < 0)
			return r;
	}
	dir = step_parent(u, in->path, &base);
	if (dir == -ELOOP || dir == -ENOTDIR)
		return RACED;
	if (dir < 0)
		return dir;
	if (in->old.ino)
		return replace(u, in, name, dir, base);
	r = entry_rename_new(u->st.content, name, dir, base);
	return r == -EEXIST ? RACED : r;
}

int step_mkdir(struct unpack *u, const struct intent *in)
{
	_cleanup_fd_ int dir = -1;
	const char *base;
	struct stat st;

	dir = step_parent(u, in->path, &base);
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
int step_finish_dir(struct unpack *u, const struct intent *in)
{
	_cleanup_fd_ int fd = beneath_open(&u->root, in->path, O_RDONLY | O_DIRECTORY, 0);
	struct stat st;

	if (entry_passes(fd))
		return fd;
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
	if (!entry_expected(&st, &in->old, false))
		return RACED;
	if ((st.st_mode & 0777) == (in->mode & 0777))
		return NOTHING;
	/* Set-id and sticky bits of the host's own file stay: the sandbox decides about 0777 only. */
	if (fchmod(fd, (st.st_mode & 07000) | (in->mode & 0777)) == 0)
		return DONE;
	/* Of one's own file that means that the file system keeps no such mode. */
	return errno == EPERM && st.st_uid == geteuid() ? -EOPNOTSUPP : -errno;
}

/* What lies in the trash is what was to go; else it goes back, for a person put it there meanwhile. */
static int confirm(struct unpack *u, const struct intent *in, const char *name, int dir,
		   const char *base)
{
	struct stat st;
	int r, s;

	if (fstatat(u->st.trash, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		s = -errno;
	else
		s = entry_expected(&st, &in->old, false)
			? entry_inside(u->st.trash, name, &st, &in->old)
			: 0;
	if (s > 0)
		return DONE;
	if (s < 0 && u->s.mode == UM_RECOVER && entry_passes(s)) /* as in replace */
		return s;
	r = entry_rename_new(u->st.trash, name, dir, base);
	return s < 0 ? s : r < 0 ? r : RACED;
}

static int do_delete(struct unpack *u, const struct intent *in)
{
	_cleanup_fd_ int dir = -1;
	const char *base;
	struct stat st;
	char name[20];
	bool moved;
	int r;

	stage_name(in->id, name);
	moved = fstatat(u->st.trash, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
	if (!moved && entry_passes(-errno))
		return -errno;
	dir = beneath_parent(&u->root, in->path, &base);
	if (dir == -ENOENT || dir == -ELOOP || dir == -ENOTDIR ||
	    (dir < 0 && moved && !entry_passes(dir)))
		return NOTHING;
	if (dir < 0)
		return dir;
	if (fstatat(dir, base, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		if (errno != ENOENT)
			return moved && !entry_passes(-errno) ? NOTHING : -errno;
		/* A kill may have come between the move and the look at what was moved. */
		return moved && confirm(u, in, name, dir, base) == RACED ? RACED : NOTHING;
	}
	/* Killed between the second name in the trash and the end of the first. */
	if (moved && entry_same(dir, base, u->st.trash, name))
		return unlinkat(dir, base, 0) < 0 ? -errno : DONE;
	if (moved)
		return NOTHING;
	r = entry_untouched(dir, base, &st, &in->old);
	if (r <= 0)
		return r < 0 ? r : RACED;
	/* Safe because: it moves one name into the private trash on the same file system; nothing is destroyed. */
	r = save_rename(dir, base, u->st.trash, name);
	return r < 0 ? r : confirm(u, in, name, dir, base);
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

const char *step_fail_rule(int err)
{
	switch (err) {
	case EACCES:
	case EPERM:
	case EROFS:
		return "permission_denied";
	case EXDEV:
		return "other_filesystem";
	case EOPNOTSUPP:
		return "not_supported";
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

bool step_waits(const struct unpack *u, const char *path, int r, struct err *e)
{
	if (u->s.mode != UM_RECOVER || !entry_passes(r))
		return false;
	(void)err_sys(e, -r, "finish what a publish was to do with %.300s (it waits in %s)", path,
		      u->st.path);
	return true;
}

int step_lost(struct unpack *u, const char *path, int r, const char *detail, struct err *e)
{
	char why[PATH_MEMBER_MAX + 256];

	baseline_not_published(u, path, r == RACED);
	if (r == RACED)
		return tell(u, UA_CONFLICT, path, "changed_meanwhile", detail, e);
	(void)snprintf(why, sizeof(why), "%s%s%s", detail, *detail ? ": " : "", strerror(-r));
	return tell(u, UA_FAIL, path, step_fail_rule(-r), why, e);
}

int step_refuse(struct unpack *u, const char *path, const char *rule, struct err *e)
{
	u->untrashed++;
	baseline_not_published(u, path, false);
	return tell(u, UA_REFUSE, path, rule, u->st.path, e);
}

void step_where(const struct unpack *u, const char *name, char *out, size_t n)
{
	(void)snprintf(out, n, "%s/" STAGED_KEPT "/%s", u->st.path, name);
}

/* Reports a step that did not happen; the sandbox's version is kept beside the run. */
static int settle(struct unpack *u, const struct intent *in, int r, struct err *e)
{
	char detail[PATH_MEMBER_MAX + 128] = "";

	if (in->op == IN_PUT) {
		char name[20];
		struct stat st;
		bool there;
		int s;

		stage_name(in->id, name);
		there = fstatat(u->st.content, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
		if (u->run_fd < 0) {
			s = 0;
			if (there) {
				step_where(u, name, detail, sizeof(detail));
				u->untrashed++;
			}
		} else if (there && st.st_ino != in->new_ino) {
			/* The host's own, swapped out and not to be swapped back: its mode is that of all its names. */
			s = save_entry(u, "conflicts/host", u->st.content, name, in->path, detail,
				       sizeof(detail), e);
		} else {
			/* It has its final mode already, which may keep even its owner from reading. */
			s = there && S_ISREG(st.st_mode) ? step_chmod(u->st.content, name, 0600)
							 : 0;
			if (s < 0)
				return err_sys(e, -s, "open up the staged version of %s", in->path);
			s = save_staged(u, in->id, in->path, detail, sizeof(detail), e);
		}
		if (s < 0)
			return s;
	}
	return step_lost(u, in->path, r, detail, e);
}

/* A directory that a file replaces went as a whole: what was in it is named one by one. */
static int cleared(struct unpack *u, const struct intent *in, struct err *e)
{
	struct beneath trash = {.root = u->st.trash, .stepwise = u->root.stepwise};
	char name[20];

	stage_name(in->id, name);
	return tell_gone(u, &trash, name, in->path, e);
}

/*
 * Done before the kill that this recovers from. Its client reads one report, so the whole publish is in it; whether
 * a directory that is there was made by it nobody knows, but it was absent when that was planned.
 */
static int told_before(struct unpack *u, const struct intent *in, bool forward, const char *rule,
		       struct err *e)
{
	bool here = in->op == IN_DELETE || in->op == IN_RMDIR ? !forward : forward;
	struct stat st;

	if (u->s.mode != UM_RECOVER || !here || in->action >= UA_ACTION_COUNT)
		return 0;
	if (in->op == IN_RMDIR && beneath_stat(&u->root, in->path, &st) != -ENOENT)
		return 0;
	if (in->op == IN_PUT)
		u->bytes_written += in->size;
	return tell(u, in->action, in->path, rule, NULL, e);
}

/* One intent in the forward or the backward pass. */
int step_carry_out(struct unpack *u, const struct intent *in, bool forward, struct err *e)
{
	const char *rule = in->op == IN_MKDIR || in->op == IN_RMDIR ? "dir" : "";
	int r = NOTHING;

	/* No planner makes such an intent: whoever did must not write hooks, nor the next journal (B-01). */
	if (!path_is_member(in->path, in->path_len) || strlen(in->path) != in->path_len ||
	    member_name_rule(in->path, in->path_len))
		return err_set(e, ERR_PROTOCOL, "the journal in %s names an unusable path",
			       u->st.path);
	switch (in->op) {
	case IN_PUT:
		r = forward ? do_put(u, in) : NOTHING;
		break;
	case IN_MKDIR:
		if (!forward) {
			r = step_finish_dir(u,
					    in); /* stays private where the host refuses: no loss */
			return step_waits(u, in->path, r, e) ? r : 0;
		}
		r = step_mkdir(u, in);
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
	case IN_TREE:
		return forward ? tree_graft(u, in, e) : 0;
	default:
		break;
	}
	if (r == NOTHING)
		return told_before(u, in, forward, rule, e);
	if (step_waits(u, in->path, r, e))
		return r;
	if (r != DONE)
		return settle(u, in, r, e);
	if (in->op == IN_PUT)
		u->bytes_written += in->size;
	if (in->op == IN_CLEAR)
		return cleared(u, in, e);
	return in->action < UA_ACTION_COUNT ? tell(u, in->action, in->path, rule, NULL, e) : 0;
}
