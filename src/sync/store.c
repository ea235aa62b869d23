#include "sync/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/path.h"
#include "base/str.h"

#define NEW_PREFIX ".new-"
#define STACK_FILE_MAX 4096
#define OPEN_TRIES 8
#define LOCK_LOOK_NS (20 * NS_PER_MS)
/*
 * Entries removed from the trash by one sync_in. Deleting many files and creating others right
 * after is slow on ext4, so old bases go a piece at a time.
 */
#define PURGE_MAX 4000

static int make_dirs(const char *path)
{
	_cleanup_free_ char *p = strdup(path);

	if (!p)
		return -ENOMEM;
	for (char *s = p + 1;; s++) {
		char c = *s;

		if (c && c != '/')
			continue;
		*s = '\0';
		if (mkdir(p, 0700) < 0 && errno != EEXIST)
			return -errno;
		*s = c;
		if (!c)
			return 0;
	}
}

static int sub_dir(int at, const char *name)
{
	if (mkdirat(at, name, 0700) < 0 && errno != EEXIST)
		return -errno;
	at = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return at < 0 ? -errno : at;
}

static int take_lock(struct store *s, const volatile int *cancel, struct err *e)
{
	const struct timespec look = {0, LOCK_LOOK_NS};
	int64_t until = clock_mono_ns() + LOCK_WAIT_MS * NS_PER_MS;

	while (flock(s->lock_fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return err_sys(e, errno, "cannot lock %s", s->path);
		if (cancel && *cancel)
			return err_set(e, ERR_CANCELLED, "sync in was stopped");
		if (clock_mono_ns() > until)
			return err_set(e, ERR_TIMEOUT,
				       "another run has been copying this workspace in for %d s "
				       "(lock %s/lock)",
				       LOCK_WAIT_MS / 1000, s->path);
		(void)nanosleep(&look, NULL);
	}
	return 0;
}

/* Removes a tree beneath at; stops when *budget is used up. True if it is gone. */
static bool remove_tree(int at, const char *name, unsigned *budget)
{
	_cleanup_dir_ DIR *d = NULL;
	struct dirent *de;
	int fd;
	bool all = true;

	if (!*budget)
		return false;
	--*budget;
	if (unlinkat(at, name, 0) == 0 || errno == ENOENT)
		return true;
	fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	d = fd < 0 ? NULL : fdopendir(fd);
	if (!d) {
		if (fd >= 0)
			(void)close(fd);
		return false;
	}
	while ((de = readdir(d))) {
		if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0)
			continue;
		all = remove_tree(dirfd(d), de->d_name, budget) && all;
		if (!*budget)
			return false;
	}
	return all && unlinkat(at, name, AT_REMOVEDIR) == 0;
}

void store_discard(struct store *s, int at_fd, const char *name)
{
	unsigned all = UINT32_MAX;

	(void)s;
	(void)remove_tree(at_fd, name, &all);
}

static void each_name(int at, void (*fn)(void *arg, int at, const char *name), void *arg)
{
	int fd = openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_dir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *de;

	while (d && (de = readdir(d)))
		if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
			fn(arg, at, de->d_name);
}

static void drop_new(void *arg, int at, const char *name)
{
	if (str_starts(name, NEW_PREFIX))
		store_discard(arg, at, name);
}

static int open_locked(const char *path, const volatile int *cancel, struct store *ret,
		       struct err *e)
{
	struct store s = {.fd = -1, .layers_fd = -1, .lock_fd = -1};
	_cleanup_fd_ int git_fd = -1, trash_fd = -1;
	int r = make_dirs(path);

	if (r < 0)
		return err_sys(e, -r, "cannot make the store %s", path);
	s.path = strdup(path);
	s.fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (!s.path || s.fd < 0)
		r = -errno;
	else
		s.lock_fd = openat(s.fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (!r && s.lock_fd < 0)
		r = -errno;
	if (!r && (s.layers_fd = sub_dir(s.fd, "layers")) < 0)
		r = s.layers_fd;
	if (!r && ((git_fd = sub_dir(s.fd, "git")) < 0 || (trash_fd = sub_dir(s.fd, "trash")) < 0))
		r = -EIO;
	if (r < 0)
		r = err_sys(e, -r, "cannot open the store %s", path);
	else
		r = take_lock(&s, cancel, e);
	if (r < 0) {
		store_close(&s);
		return r;
	}
	/* Ours alone now: whatever has a temporary name was left by one that was killed. */
	each_name(s.fd, drop_new, &s);
	each_name(s.layers_fd, drop_new, &s);
	each_name(git_fd, drop_new, &s);
	/* Its time is that of the last use: store_idle. */
	(void)futimens(s.lock_fd, NULL);
	*ret = s;
	return 0;
}

int store_open(const char *path, const volatile int *cancel, struct store *ret, struct err *e)
{
	/* Whoever waited for the lock of a store that was taken away holds that of one in the trash. */
	for (unsigned i = 0; i < OPEN_TRIES; i++) {
		struct err why = ERR_INIT;
		int r = open_locked(path, cancel, ret, &why);

		if (r == 0 && fd_has_name(ret->fd, AT_FDCWD, path, 0))
			return 0;
		if (r == 0)
			store_close(ret);
		if (r < 0 && (r != -ENOENT || i + 1 == OPEN_TRIES)) {
			if (e)
				*e = why;
			return r;
		}
	}
	return err_set(e, ERR_CONFLICT, "the store %s is taken away again and again", path);
}

void store_close(struct store *s)
{
	cleanup_fd(&s->layers_fd);
	cleanup_fd(&s->fd);
	cleanup_fd(&s->lock_fd);
	free(s->path);
	s->path = NULL;
}

static int read_small(int at, const char *name, char *out, size_t max)
{
	_cleanup_fd_ int fd = openat(at, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, out, max - 1);

	if (n < 0)
		return -errno;
	out[n] = '\0';
	return 0;
}

static void boot_id(char out[64])
{
	if (read_small(AT_FDCWD, "/proc/sys/kernel/random/boot_id", out, 64) < 0)
		out[0] = '\0';
	out[strcspn(out, "\n")] = '\0';
}

/* Fixed lines in fixed order: what does not read back exactly is not trusted. */
static bool parse_stack(char *text, struct store_stack *st)
{
	char now[64], boot[64] = "";
	unsigned long long owner, group, holds[4];
	int used = 0;
	char *p;

	*st = (struct store_stack){0};
	if (sscanf(text,
		   "airlock-stack 1\nboot %63[0-9a-f-]\nnumber %u\nowner %llu %llu\n"
		   "holds %llu %llu %llu %llu\n%n",
		   boot, &st->number, &owner, &group, &holds[0], &holds[1], &holds[2], &holds[3],
		   &used) != 8 ||
	    !used)
		return false;
	st->files = holds[0];
	st->dirs = holds[1];
	st->links = holds[2];
	st->bytes = holds[3];
	boot_id(now);
	if (strcmp(boot, now) != 0)
		return false;
	st->owner = (uid_t)owner;
	st->group = (gid_t)group;
	p = text + used;
	if (!str_starts(p, "seed "))
		return false;
	p += 5;
	used = (int)strcspn(p, "\n");
	if (used >= STORE_SEED_MAX || p[used] != '\n')
		return false;
	memcpy(st->seed, p, (size_t)used);
	p += used + 1;
	if (!str_starts(p, "layers"))
		return false;
	for (p += 6; *p == ' '; st->layers_n++) {
		if (st->layers_n == ARRAY_LEN(st->layers))
			return false;
		st->layers[st->layers_n] = (uint32_t)strtoul(p + 1, &p, 10);
	}
	return st->layers_n && strcmp(p, "\nend\n") == 0;
}

static bool layers_exist(struct store *s, const struct store_stack *st)
{
	char name[32];

	for (size_t i = 0; i < st->layers_n; i++) {
		(void)snprintf(name, sizeof(name), "%u", st->layers[i]);
		if (faccessat(s->layers_fd, name, F_OK, 0) < 0)
			return false;
	}
	(void)snprintf(name, sizeof(name), "manifest.%u", st->number);
	return faccessat(s->fd, name, F_OK, 0) == 0;
}

bool store_mountable(struct store *s, const struct store_stack *st)
{
	char name[32];
	struct stat is;

	for (size_t i = 0; i < st->layers_n; i++) {
		(void)snprintf(name, sizeof(name), "%u", st->layers[i]);
		if (fstatat(s->layers_fd, name, &is, AT_SYMLINK_NOFOLLOW) < 0 ||
		    !S_ISDIR(is.st_mode))
			return false;
	}
	return true;
}

int store_current(struct store *s, struct store_stack *ret, struct err *e)
{
	char text[STACK_FILE_MAX];
	int r = read_small(s->fd, "stack", text, sizeof(text));

	if (r < 0 && r != -ENOENT)
		return err_sys(e, -r, "%s/stack", s->path);
	if (r < 0 || !parse_stack(text, ret) || !layers_exist(s, ret)) {
		*ret = (struct store_stack){0};
		return 0;
	}
	return 1;
}

static void max_number(void *arg, int at, const char *name)
{
	uint32_t *max = arg;
	unsigned long v;
	char *end;

	(void)at;
	if (str_starts(name, "manifest.") || str_starts(name, "stack."))
		name = strchr(name, '.') + 1;
	v = strtoul(name, &end, 10);
	if (end != name && (!*end || strcmp(end, ".lock") == 0) && v > *max)
		*max = (uint32_t)v;
}

uint32_t store_next_number(struct store *s)
{
	uint32_t max = 0;

	each_name(s->layers_fd, max_number, &max);
	each_name(s->fd, max_number, &max);
	return max + 1;
}

static int new_name(char name[64], const char *label, struct err *e)
{
	char id[ID_LEN + 1];
	int r = id_new(id);

	if (r < 0)
		return err_sys(e, -r, "no random number");
	(void)snprintf(name, 64, NEW_PREFIX "%s-%s", label, id);
	return 0;
}

static int no_room(struct store *s, int errnum, struct err *e)
{
	if (errnum == ENOSPC || errnum == EDQUOT)
		return err_sys(e, errnum,
			       "the store %s is full; free space there or set XDG_STATE_HOME to a "
			       "larger disk",
			       s->path);
	return err_sys(e, errnum, "cannot write to the store %s", s->path);
}

int store_new_dir(struct store *s, int at_fd, const char *label, int *ret_fd, char name[64],
		  struct err *e)
{
	int r = new_name(name, label, e);

	if (r < 0)
		return r;
	*ret_fd = sub_dir(at_fd, name);
	return *ret_fd < 0 ? no_room(s, -*ret_fd, e) : 0;
}

int store_new_file(struct store *s, int at_fd, int *ret_fd, char name[64], struct err *e)
{
	int r = new_name(name, "file", e);

	if (r < 0)
		return r;
	*ret_fd = openat(at_fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	return *ret_fd < 0 ? no_room(s, errno, e) : 0;
}

static int write_stack(struct store *s, const char *text, size_t n, const char *as, struct err *e)
{
	_cleanup_fd_ int fd = -1;
	char name[64];
	int r = store_new_file(s, s->fd, &fd, name, e);

	if (r < 0)
		return r;
	if (write(fd, text, n) != (ssize_t)n || renameat(s->fd, name, s->fd, as) < 0) {
		r = no_room(s, errno ? errno : EIO, e);
		(void)unlinkat(s->fd, name, 0);
	}
	return r;
}

int store_commit(struct store *s, const struct store_stack *st, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(STACK_FILE_MAX - 1);
	char boot[64], name[32];
	int r;

	boot_id(boot);
	(void)buf_putf(&b, "airlock-stack 1\nboot %s\nnumber %u\nowner %llu %llu\n", boot,
		       st->number, (unsigned long long)st->owner, (unsigned long long)st->group);
	(void)buf_putf(&b, "holds %llu %llu %llu %llu\nseed %s\nlayers",
		       (unsigned long long)st->files, (unsigned long long)st->dirs,
		       (unsigned long long)st->links, (unsigned long long)st->bytes, st->seed);
	for (size_t i = 0; i < st->layers_n; i++)
		(void)buf_putf(&b, " %u", st->layers[i]);
	if (buf_puts(&b, "\nend\n") < 0)
		return err_sys(e, -b.err, "%s/stack", s->path);
	/* The numbered copy first: it protects the layers from store_collect of a later run. */
	(void)snprintf(name, sizeof(name), "stack.%u", st->number);
	r = write_stack(s, b.data, b.len, name, e);
	return r < 0 ? r : write_stack(s, b.data, b.len, "stack", e);
}

int store_hold(struct store *s, uint32_t number, int *ret_fd, struct err *e)
{
	_cleanup_fd_ int fd = -1;
	char name[32];

	(void)snprintf(name, sizeof(name), "%u.lock", number);
	fd = openat(s->layers_fd, name, O_RDONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return no_room(s, errno, e);
	/* Under the store's exclusive lock nobody else holds it exclusively. */
	if (flock(fd, LOCK_SH | LOCK_NB) < 0)
		return err_sys(e, errno, "cannot hold layer %u of %s", number, s->path);
	*ret_fd = TAKE_FD(fd);
	return 0;
}

struct collect {
	struct store *s;
	const struct store_stack *keep;
	uint32_t *used; /* owned; layers in use */
	size_t used_n;
	char (*seeds)[STORE_SEED_MAX]; /* owned */
	size_t seeds_n;
	bool failed; /* then nothing is dropped */
};

static void use(struct collect *c, const struct store_stack *st)
{
	uint32_t *u = realloc(c->used, (c->used_n + st->layers_n + 1) * sizeof(*u));
	void *x = realloc(c->seeds, (c->seeds_n + 1) * STORE_SEED_MAX);

	if (u)
		c->used = u;
	if (x)
		c->seeds = x;
	if (!u || !x) {
		c->failed = true;
		return;
	}
	memcpy(c->used + c->used_n, st->layers, st->layers_n * sizeof(*u));
	c->used_n += st->layers_n;
	memcpy(c->seeds[c->seeds_n++], st->seed, STORE_SEED_MAX);
}

struct pin_look {
	unsigned long number;
	bool found;
};

static void one_pin(void *arg, int at, const char *name)
{
	struct pin_look *l = arg;
	char *end;

	(void)at;
	l->found |= strtoul(name, &end, 10) == l->number && *end == '.';
}

/* A lease without a process (kept, or to be recovered) has a pin instead of a lock. */
static bool pinned(struct store *s, unsigned long number)
{
	_cleanup_fd_ int fd =
	    openat(s->fd, "pins", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct pin_look l = {.number = number};

	if (fd < 0)
		return errno != ENOENT;
	each_name(fd, one_pin, &l);
	return l.found;
}

static void one_generation(void *arg, int at, const char *name)
{
	struct collect *c = arg;
	struct store_stack st;
	char text[STACK_FILE_MAX], lock[32], manifest[32];
	_cleanup_fd_ int fd = -1;
	unsigned long number;

	if (!str_starts(name, "stack."))
		return;
	number = strtoul(name + 6, NULL, 10);
	(void)snprintf(lock, sizeof(lock), "%lu.lock", number);
	(void)snprintf(manifest, sizeof(manifest), "manifest.%lu", number);
	fd = openat(c->s->layers_fd, lock, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (number == c->keep->number || pinned(c->s, number) ||
	    (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0)) {
		/* Unreadable though in use: better keep everything than take a base away. */
		if (read_small(at, name, text, sizeof(text)) < 0 || !parse_stack(text, &st))
			c->failed = true;
		else
			use(c, &st);
		return;
	}
	(void)unlinkat(at, name, 0);
	(void)unlinkat(at, manifest, 0);
	(void)unlinkat(c->s->layers_fd, lock, 0);
}

static void to_trash(struct collect *c, int at, const char *name)
{
	char id[ID_LEN + 1], to[64];

	if (id_new(id) < 0)
		return;
	(void)snprintf(to, sizeof(to), "trash/%s", id);
	(void)renameat(at, name, c->s->fd, to);
}

static void one_layer(void *arg, int at, const char *name)
{
	struct collect *c = arg;
	char *end;
	unsigned long v = strtoul(name, &end, 10);

	if (*end)
		return;
	for (size_t i = 0; i < c->used_n; i++)
		if (c->used[i] == v)
			return;
	to_trash(c, at, name);
}

static void one_seed(void *arg, int at, const char *name)
{
	struct collect *c = arg;

	for (size_t i = 0; i < c->seeds_n; i++)
		if (strcmp(c->seeds[i], name) == 0)
			return;
	to_trash(c, at, name);
}

static void purge(void *arg, int at, const char *name)
{
	(void)remove_tree(at, name, arg);
}

void store_collect(struct store *s, const struct store_stack *keep)
{
	struct collect c = {.s = s, .keep = keep};
	unsigned budget = PURGE_MAX;
	_cleanup_fd_ int git_fd = openat(s->fd, "git", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_fd_ int trash_fd = openat(s->fd, "trash", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	each_name(s->fd, one_generation, &c);
	if (!c.failed) {
		each_name(s->layers_fd, one_layer, &c);
		if (git_fd >= 0)
			each_name(git_fd, one_seed, &c);
	}
	if (trash_fd >= 0)
		each_name(trash_fd, purge, &budget);
	free(c.used);
	free(c.seeds);
}

char *store_manifest_path(const struct store *s, uint32_t number)
{
	char *p = NULL;

	return asprintf(&p, "%s/manifest.%u", s->path, number) < 0 ? NULL : p;
}
