/* What lies at a name; see unpack_entry.h. Part of door 1. */
#include "sync/unpack_entry.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "sync/unpack_steps.h"

bool entry_expected(const struct stat *st, const struct intent_old *old, bool with_ctime)
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

/* It says nothing of the path: the same step may well succeed when it is tried again. */
bool entry_passes(int r)
{
	return r == -EIO || r == -ENOMEM || r == -EMFILE || r == -ENFILE || r == -EINTR ||
	       r == -ENOSPC || r == -EDQUOT;
}

/* What a directory that goes holds is as it was when it was judged: 1, also of what is no such directory; 0, errno. */
int entry_inside(int dir, const char *base, const struct stat *st, const struct intent_old *old)
{
	static const uint8_t none[INTENT_HASH];
	uint8_t now[INTENT_HASH];
	int r;

	if (!S_ISDIR(st->st_mode) || !memcmp(old->hash, none, sizeof(none)))
		return 1;
	r = host_dir_digest(dir, base, now);
	if (r < 0)
		return entry_passes(r) ? r : 0;
	return !memcmp(now, old->hash, sizeof(now));
}

/* Right before a step: 1, 0, errno. Where only the ctime moved since the plan, the bytes of the file decide. */
int entry_untouched(int dir, const char *base, const struct stat *st, const struct intent_old *old)
{
	static const uint8_t none[INTENT_HASH];
	_cleanup_fd_ int fd = -1;
	uint8_t hash[MANIFEST_HASH];
	struct stat now;
	uint64_t size;
	int r;

	_Static_assert(MANIFEST_HASH == INTENT_HASH, "one kind of hash");
	if (entry_expected(st, old, true))
		return entry_inside(dir, base, st, old);
	if (!entry_expected(st, old, false) || !memcmp(old->hash, none, sizeof(none)))
		return 0;
	fd = openat(dir, base, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	r = fd < 0 ? -errno : hash_fd(fd, hash, &size);
	if (r == 0 && fstat(fd, &now) < 0)
		r = -errno;
	if (r < 0)
		return entry_passes(r) ? r : 0;
	return entry_expected(&now, old, false) && !memcmp(hash, old->hash, sizeof(hash));
}

/* Two names of one entry. */
bool entry_same(int from, const char *a, int to, const char *b)
{
	struct stat x, y;

	return fstatat(from, a, &x, AT_SYMLINK_NOFOLLOW) == 0 &&
	       fstatat(to, b, &y, AT_SYMLINK_NOFOLLOW) == 0 && x.st_ino == y.st_ino &&
	       x.st_dev == y.st_dev;
}

/* A directory has no second name, but its rename replaces nothing that holds anything: at worst an empty one. */
static int rename_dir(int from, const char *a, int to, const char *b)
{
	struct stat st;

	if (fstatat(to, b, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return -EEXIST;
	if (errno != ENOENT)
		return -errno;
	return renameat(from, a, to, b) < 0 ? -errno : 0;
}

/*
 * Not replacing; for file systems without RENAME_NOREPLACE (NFS, 9p, sshfs) by a second name, which cannot replace
 * either. A kill between the two leaves both names: then the first only has to go.
 */
int entry_rename_new(int from, const char *a, int to, const char *b)
{
	struct stat st;

	if (renameat2(from, a, to, b, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL)
		return -errno;
	if (fstatat(from, a, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (S_ISDIR(st.st_mode))
		return rename_dir(from, a, to, b);
	/* Safe because: what goes is one of two names of the same bytes. */
	if (linkat(from, a, to, b, 0) < 0 && (errno != EEXIST || !entry_same(from, a, to, b)))
		return -errno;
	return unlinkat(from, a, 0) < 0 ? -errno : 0;
}
