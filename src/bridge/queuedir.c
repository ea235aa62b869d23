/*
 * Policy of door 2 here: of a directory that the sandbox writes, only plain files of one name and bounded size are opened,
 * never through a link (openat2: beneath, no symlinks), never waiting (a FIFO, a device, a socket is seen by its type and
 * removed), and read from the descriptor that was checked. What is claimed is out of requests/ before it is read, so it
 * cannot come up a second time. Not done here: what the bytes mean (wire/queue.h), who wrote them (guard.h).
 */
#include "bridge/queuedir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/cleanup.h"

#define NAME_LEN (QUEUE_ID_LEN + 16)

static void name_of(const char *id, char out[NAME_LEN])
{
	(void)snprintf(out, NAME_LEN, "%s" QUEUE_SUFFIX, id);
}

/* Never matches the pattern of a name that is read. */
static void draft_of(const char *id, char out[NAME_LEN])
{
	(void)snprintf(out, NAME_LEN, ".%s.tmp", id);
}

/* Opening. --------------------------------------------------------------------------------- */

static int folder(struct queuedir *d, const char *name, struct beneath *b, DIR **list,
		  struct err *e)
{
	struct beneath root = {.root = d->root};
	int fd;

	b->root = beneath_open(&root, name, O_RDONLY | O_DIRECTORY, 0);
	if (b->root < 0)
		return err_sys(e, -b->root, "queue: %s", name);
	fd = openat(b->root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	*list = fd < 0 ? NULL : fdopendir(fd);
	if (!*list) {
		int saved = errno;

		cleanup_fd(&fd);
		return err_sys(e, saved, "queue: %s", name);
	}
	return 0;
}

/* By descriptor: the name may be another directory's by now. */
static void watch(struct queuedir *d)
{
	struct statfs fs;
	char self[64];

	if (fstatfs(d->in.root, &fs) < 0 || !queue_fs_notifies((uint64_t)fs.f_type))
		return;
	d->notify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	(void)snprintf(self, sizeof(self), "/proc/self/fd/%d", d->in.root);
	if (d->notify >= 0 && inotify_add_watch(d->notify, self, IN_MOVED_TO | IN_ONLYDIR) < 0)
		cleanup_fd(&d->notify);
}

int queuedir_open(struct queuedir *d, int root, struct err *e)
{
	int r;

	*d = (struct queuedir){
	    .root = root, .in.root = -1, .out.root = -1, .claims.root = -1, .notify = -1};
	r = folder(d, QUEUE_REQUESTS, &d->in, &d->list_in, e);
	if (r == 0)
		r = folder(d, QUEUE_RESPONSES, &d->out, &d->list_out, e);
	if (r == 0)
		r = folder(d, QUEUE_CLAIMS, &d->claims, &d->list_claims, e);
	if (r == 0)
		watch(d);
	return r;
}

void queuedir_done(struct queuedir *d)
{
	DIR *lists[] = {d->list_in, d->list_out, d->list_claims};

	for (size_t i = 0; i < ARRAY_LEN(lists); i++)
		if (lists[i])
			(void)closedir(lists[i]);
	d->list_in = d->list_out = d->list_claims = NULL;
	cleanup_fd(&d->in.root);
	cleanup_fd(&d->out.root);
	cleanup_fd(&d->claims.root);
	cleanup_fd(&d->notify);
	cleanup_fd(&d->root);
}

/* Whatever it is. A directory that is not empty stays: it is nobody's request. */
static void away(int dir, const char *name)
{
	if (unlinkat(dir, name, 0) < 0 && (errno == EISDIR || errno == EPERM))
		(void)unlinkat(dir, name, AT_REMOVEDIR);
}

void queuedir_purge(struct queuedir *d)
{
	struct {
		DIR *list;
		int dir;
	} all[] = {
	    {d->list_in, d->in.root}, {d->list_out, d->out.root}, {d->list_claims, d->claims.root}};

	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		struct dirent *de;

		rewinddir(all[i].list);
		while ((de = readdir(all[i].list)))
			if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
				away(all[i].dir, de->d_name);
	}
}

bool queuedir_list(struct queuedir *d, bool claims, bool from_start, unsigned most,
		   void (*each)(void *arg, const char *id), void *arg)
{
	DIR *list = claims ? d->list_claims : d->list_in;
	char id[QUEUE_ID_LEN + 1];
	struct dirent *de;
	uint64_t seq;

	if (from_start)
		rewinddir(list);
	while (most--) {
		de = readdir(list);
		if (!de)
			return false;
		if (queue_name_parse(de->d_name, id, &seq))
			each(arg, id);
	}
	return true;
}

/* Requests. -------------------------------------------------------------------------------- */

/* By its type alone, before it is opened: opening some things does something. */
static int look(int dir, const char *name, struct stat *st)
{
	if (fstatat(dir, name, st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	return S_ISREG(st->st_mode) && st->st_nlink == 1 ? 0 : -EBADMSG;
}

uint64_t queuedir_size(const struct queuedir *d, const char *id, bool claimed)
{
	char name[NAME_LEN];
	struct stat st;

	name_of(id, name);
	return look(claimed ? d->claims.root : d->in.root, name, &st) == 0 ? (uint64_t)st.st_size
									   : 0;
}

static int move(struct queuedir *d, const char *name)
{
	if (renameat2(d->in.root, name, d->claims.root, name, RENAME_NOREPLACE) == 0)
		return 0;
	/* Some file systems cannot refuse to replace: between look and move only this process claims. */
	if (errno != EINVAL)
		return -errno;
	if (faccessat(d->claims.root, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return -EEXIST;
	return renameat(d->in.root, name, d->claims.root, name) < 0 ? -errno : 0;
}

/* What was checked is what was claimed: another file may have taken the name in between. */
static int claim(struct queuedir *d, const char *name, const struct stat *open)
{
	struct stat st;
	int r = move(d, name);

	if (r == -EEXIST)
		away(d->in.root, name);
	if (r < 0)
		return r;
	if (look(d->claims.root, name, &st) == 0 && st.st_ino == open->st_ino &&
	    st.st_dev == open->st_dev)
		return 0;
	away(d->claims.root, name);
	return -EBADMSG;
}

/* All of it, once, into room that is there: the size that was judged, and not a byte more or less. */
static int read_all(int fd, size_t size, struct buf *out)
{
	char *to = buf_room(out, size + 1);
	size_t at = 0;

	while (at <= size) {
		ssize_t n = read(fd, to + at, size + 1 - at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		at += (size_t)n;
	}
	if (at != size)
		return -EAGAIN;
	buf_add(out, size);
	return 0;
}

int queuedir_take(struct queuedir *d, const char *id, bool claimed, size_t max, struct buf *out)
{
	struct beneath *b = claimed ? &d->claims : &d->in;
	_cleanup_fd_ int fd = -1;
	char name[NAME_LEN];
	struct stat st;
	int r;

	name_of(id, name);
	r = look(b->root, name, &st);
	if (r == 0) {
		/* Should it be another thing by now: no wait for its other end, no terminal of ours. */
		fd = beneath_open(b, name, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
		r = fd == -ENOENT ? -ENOENT : fd < 0 ? -EBADMSG : 0;
	}
	if (r == 0 &&
	    (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_nlink != 1 || st.st_size < 0))
		r = -EBADMSG;
	if (r == -EBADMSG)
		away(b->root, name);
	/* While it can still be left where it lies. */
	if (r == 0 && (uint64_t)st.st_size <= max && !buf_room(out, (size_t)st.st_size + 1))
		r = -ENOMEM;
	if (r == 0 && !claimed)
		r = claim(d, name, &st);
	if (r < 0)
		return r;
	return (uint64_t)st.st_size > max ? -E2BIG : read_all(fd, (size_t)st.st_size, out);
}

void queuedir_release(struct queuedir *d, const char *id)
{
	char name[NAME_LEN];

	name_of(id, name);
	away(d->claims.root, name);
}

/* Answers. --------------------------------------------------------------------------------- */

int queuedir_answer(struct queuedir *d, const char *id)
{
	char draft[NAME_LEN];
	int fd = -EEXIST;

	draft_of(id, draft);
	for (int i = 0; i < 2 && fd == -EEXIST; i++) {
		fd = beneath_create(&d->out, draft, 0644);
		if (fd == -EEXIST)
			away(d->out.root, draft);
	}
	return fd;
}

int queuedir_publish(struct queuedir *d, const char *id)
{
	char draft[NAME_LEN], name[NAME_LEN];

	draft_of(id, draft);
	name_of(id, name);
	/* A link there is replaced, not followed. */
	if (renameat(d->out.root, draft, d->out.root, name) == 0)
		return 0;
	if (errno != EISDIR && errno != ENOTEMPTY && errno != EEXIST)
		return -errno;
	(void)unlinkat(d->out.root, name, AT_REMOVEDIR);
	return renameat(d->out.root, draft, d->out.root, name) < 0 ? -errno : 0;
}

void queuedir_drop(struct queuedir *d, const char *id)
{
	char draft[NAME_LEN];

	draft_of(id, draft);
	away(d->out.root, draft);
}

bool queuedir_answered(struct queuedir *d, const char *id)
{
	char name[NAME_LEN];
	struct stat st;

	name_of(id, name);
	return look(d->out.root, name, &st) == 0;
}

void queuedir_alive(struct queuedir *d, struct view text)
{
	struct beneath root = {.root = d->root};
	_cleanup_fd_ int fd = -1;

	away(d->root, "." QUEUE_ALIVE);
	fd = beneath_create(&root, "." QUEUE_ALIVE, 0644);
	if (fd < 0 || write(fd, text.p, text.n) != (ssize_t)text.n)
		return;
	(void)renameat(d->root, "." QUEUE_ALIVE, d->root, QUEUE_ALIVE);
}
