#include "rig.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

#define CANARY "the outside is not to be touched\n"

static char top_path[64];

static int make(int top, const char *name)
{
	int fd;

	MUST(mkdirat(top, name, 0755) == 0);
	fd = openat(top, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	MUST(fd >= 0);
	return fd;
}

void rig_start(struct rig *g)
{
	int sv[2];
	int out;

	/* One for each input: libFuzzer ends without atexit. */
	(void)snprintf(top_path, sizeof(top_path), "%s/airlock-fuzz-XXXXXX",
		       access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	MUST(sodium_init() >= 0 && mkdtemp(top_path));
	(void)umask(0);
	memset(g, 0, sizeof(*g));
	g->top = open(top_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	MUST(g->top >= 0);
	g->ws = make(g->top, "ws");
	g->layer = make(g->top, "layer");
	out = make(g->top, "out");
	rig_file(out, "victim", CANARY, sizeof(CANARY) - 1, 0640);
	(void)close(out);
	MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) == 0);
	g->peer = sv[1];
	g->u = (struct unpack){
	    .root_fd = g->ws,
	    .run_fd = make(g->top, "run"),
	    .manifest_fd = -1,
	    .stream_fd = -1,
	    .lock_fd = -1,
	    .root = {.root = g->ws},
	    .layers = {g->layer},
	    .layers_len = 1,
	    .baseline = {.dir = -1, .contents = -1},
	    .st = {.dir = -1, .content = -1, .trash = -1, .journal = -1, .next_id = 1},
	};
	g->u.run = (struct beneath){.root = g->u.run_fd};
	memcpy(g->u.s.run, RIG_RUN, sizeof(RIG_RUN));
	MUST(fstat(g->ws, &g->u.root_st) == 0);
	chan_init(&g->u.ch, sv[0], false);
}

static void check_outside(int top)
{
	_cleanup_fd_ int out = openat(top, "out", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_dir_ DIR *d = NULL;
	struct seen s;
	unsigned n = 0;

	MUST(out >= 0);
	rig_look(out, "victim", &s);
	MUST(s.kind == 'f' && s.mode == 0640 && s.n == sizeof(CANARY) - 1 &&
	     !memcmp(s.text, CANARY, s.n));
	d = fdopendir(dup(out));
	MUST(d);
	while (readdir(d))
		n++;
	MUST(n == 3); /* itself, its parent, the canary */
}

void rig_end(struct rig *g)
{
	struct beneath b = {.root = g->top};
	unsigned n = 0;
	_cleanup_dir_ DIR *d = NULL;

	check_outside(g->top);
	chlist_free(g->u.list);
	manifest_free(g->u.m);
	free(g->u.skip);
	chan_done(&g->u.ch);
	(void)close(g->peer);
	(void)close(g->u.run_fd);
	(void)close(g->layer);
	(void)close(g->ws);
	for (const char *const *p = (const char *const[]){"ws", "out", "run", "layer", NULL}; *p;
	     p++)
		MUST(beneath_remove_tree(&b, *p) == 0);
	d = fdopendir(g->top);
	MUST(d);
	while (readdir(d))
		n++;
	MUST(n == 2); /* nothing else was made beside the root */
	MUST(rmdir(top_path) == 0);
}

static int parent(int dir, const char *path, const char **base)
{
	struct beneath b = {.root = dir};
	int fd = beneath_mkparents(&b, path, 0755);

	MUST(fd >= 0);
	fd = beneath_parent(&b, path, base);
	MUST(fd >= 0);
	return fd;
}

void rig_file(int dir, const char *path, const void *p, size_t n, mode_t mode)
{
	const char *base;
	_cleanup_fd_ int at = parent(dir, path, &base);
	_cleanup_fd_ int fd = openat(at, base, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	MUST(fd >= 0 && write(fd, p, n) == (ssize_t)n && fchmod(fd, mode) == 0);
}

void rig_link(int dir, const char *path, const char *target)
{
	const char *base;
	_cleanup_fd_ int at = parent(dir, path, &base);

	MUST(symlinkat(target, at, base) == 0);
}

void rig_dir(int dir, const char *path, mode_t mode)
{
	const char *base;
	_cleanup_fd_ int at = parent(dir, path, &base);

	MUST((mkdirat(at, base, 0700) == 0 || errno == EEXIST) && fchmodat(at, base, mode, 0) == 0);
}

void rig_look(int dir, const char *path, struct seen *ret)
{
	struct beneath b = {.root = dir};
	_cleanup_fd_ int at = -1, fd = -1;
	const char *base;
	struct stat st;
	ssize_t n = 0;

	*ret = (struct seen){.kind = '-'};
	at = beneath_parent(&b, path, &base);
	if (at < 0 || fstatat(at, base, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return;
	ret->mode = st.st_mode & 07777;
	ret->ino = st.st_ino;
	ret->mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
	if (S_ISDIR(st.st_mode)) {
		ret->kind = 'd';
	} else if (S_ISLNK(st.st_mode)) {
		ret->kind = 'l';
		n = readlinkat(at, base, ret->text, sizeof(ret->text));
	} else if (S_ISREG(st.st_mode)) {
		ret->kind = 'f';
		fd = openat(at, base, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		n = read(fd, ret->text, sizeof(ret->text));
	} else {
		ret->kind = 'o';
	}
	MUST(n >= 0);
	ret->n = (size_t)n;
}

bool rig_same(const struct seen *a, const struct seen *b, bool identity)
{
	if (a->kind != b->kind || a->n != b->n || memcmp(a->text, b->text, a->n) != 0)
		return false;
	if (a->kind != 'l' && a->mode != b->mode)
		return false;
	return !identity || a->kind == 'd' || (a->ino == b->ino && a->mtime_ns == b->mtime_ns);
}
