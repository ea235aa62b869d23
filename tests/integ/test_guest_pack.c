/* The packer of the real airlock-guest, read back by our own reader and by GNU tar (S1-01, RT-06). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/str.h"
#include "guest_box.h"
#include "wire/tar.h"
#include "scratch.h"

static enum box_mode mode;

struct layer {
	char dir[40];
	int fd;
};

static void sh(const char *dir, const char *script)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (chdir(dir) == 0)
			(void)execl("/bin/sh", "sh", "-ec", script, (char *)NULL);
		_exit(126);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (status)
		fail_msg("script failed: %s", script);
}

static void layer_make(struct layer *l, const char *script)
{
	(void)snprintf(l->dir, sizeof(l->dir), "/tmp/guest-pack-XXXXXX");
	assert_non_null(scratch_dir(l->dir));
	l->fd = open(l->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(l->fd >= 0);
	sh(l->dir, script);
}

static void layer_done(struct layer *l)
{
	char cmd[128];

	(void)close(l->fd);
	(void)snprintf(cmd, sizeof(cmd), "chmod -R u+rwx %s; rm -rf %s", l->dir, l->dir);
	sh("/", cmd);
}

static char letter(const struct tar_member *m)
{
	static const char ops[] = {
	    [TAR_OP_DELETE] = 'X', [TAR_OP_OPAQUE] = 'O', [TAR_OP_UNREADABLE] = 'U'};
	static const char types[] = {[TAR_FILE] = 'f',
				     [TAR_DIR] = 'd',
				     [TAR_SYMLINK] = 'l',
				     [TAR_HARDLINK] = 'h',
				     [TAR_SPECIAL] = 's'};

	return m->op ? ops[m->op] : types[m->type];
}

/*
 * "f 644 3 name\n" a member. Content is compared with the file below `dir`, unless NULL. The path
 * order is checked on the way: parents first, names rising.
 */
static void listing(const struct buf *s, const char *dir, struct buf *ret)
{
	const uint8_t *p = (const uint8_t *)s->data;
	size_t n = s->len;
	struct tar_reader *r;
	struct tar_out o;
	_cleanup_fd_ int fd = -1;
	struct err e = ERR_INIT;
	int ev;

	assert_int_equal(tar_reader_new(NULL, &r), 0);
	while ((ev = tar_reader_next(r, &p, &n, &o, &e)) != TAR_END && ev != TAR_NEED) {
		char path[4400], disk[65536];

		if (ev < 0)
			fail_msg("rule %s at %llu: %s", o.rule, (unsigned long long)o.offset,
				 e.text);
		if (ev == TAR_DATA && fd >= 0) {
			for (size_t at = 0; at < o.data.n;) {
				size_t k =
				    o.data.n - at < sizeof(disk) ? o.data.n - at : sizeof(disk);

				assert_int_equal(pread(fd, disk, k, (off_t)(o.data_offset + at)),
						 k);
				assert_memory_equal(disk, o.data.p + at, k);
				at += k;
			}
		}
		if (ev != TAR_MEMBER)
			continue;
		(void)buf_putf(ret, "%c %o %llu %.*s", letter(&o.member), o.member.mode,
			       (unsigned long long)o.member.size, (int)o.member.path.n,
			       o.member.path.p);
		if (o.member.type == TAR_SYMLINK)
			(void)buf_putf(ret, " -> %.*s", (int)o.member.target.n, o.member.target.p);
		(void)buf_putc(ret, '\n');
		cleanup_fd(&fd);
		if (dir && o.member.type == TAR_FILE && !o.member.op) {
			(void)snprintf(path, sizeof(path), "%s/%.*s", dir, (int)o.member.path.n,
				       o.member.path.p);
			fd = open(path, O_RDONLY | O_CLOEXEC);
			assert_true(fd >= 0);
		}
	}
	assert_int_equal(ev, TAR_END);
	assert_int_equal(tar_reader_finish(r, &o, &e), 0);
	assert_int_equal(n, 0);
	assert_int_equal(ret->err, 0);
	tar_reader_free(r);
}

static struct box_cmd *pack_all(struct box *b, const struct layer *l)
{
	struct box_cmd *c;

	box_start(b, mode, l->fd);
	c = box_pack(b);
	box_finish(b, c);
	assert_int_equal(c->pack.error, 0);
	return c;
}

static void expect_listing(const struct layer *l, const char *want, uint64_t unreadable,
			   uint64_t left)
{
	_cleanup_buf_ struct buf got = BUF_INIT(16u << 20);
	struct box b;
	struct box_cmd *c = pack_all(&b, l);
	size_t lines = 0;

	listing(&c->got_out, l->dir, &got);
	assert_string_equal(buf_text(&got), want);
	for (const char *p = want; *p; p++)
		lines += *p == '\n';
	assert_int_equal(c->pack.members, lines);
	assert_int_equal(c->pack.unreadable, unreadable);
	assert_int_equal(c->pack.left_out, left);
	assert_int_equal(c->pack.shrunk, 0);
	assert_int_equal(box_stop(&b), 0);
}

static void every_kind_of_entry(void **state)
{
	struct layer l;

	(void)state;
	layer_make(
	    &l,
	    "umask 022; printf abc >file; : >empty; chmod 4751 file; mkdir -p d/e; chmod 700 d/e;"
	    "ln -s ../../etc/passwd d/link; ln file hard; mkfifo pipe; printf x >'a b%c';"
	    "head -c 65536 /dev/urandom >s65536; head -c 65537 /dev/urandom >s65537;"
	    "head -c 3000001 /dev/urandom >big; mkdir .git d/.git .airlock-staging;"
	    "mkdir .git/hooks .git/info .git/refs; : >.git/hooks/a.sample; printf h >.git/hooks/pre-push;"
	    "ln -s pre-push .git/hooks/post-commit; : >.git/info/exclude; printf 1 >.git/info/attributes;"
	    "printf y >.git/config; printf z >d/.git/config; ln -s x d-link; printf 1 >d.txt");
	expect_listing(&l,
		       "f 600 0 .git/config\nf 600 0 .git/hooks/post-commit\n"
		       "f 600 0 .git/hooks/pre-push\nf 600 0 .git/info/attributes\n"
		       "f 644 1 a b%c\nf 644 3000001 big\n"
		       "d 755 0 d\nd 755 0 d/.git\nf 644 1 d/.git/config\nd 700 0 d/e\n"
		       "l 777 0 d/link -> ../../etc/passwd\nl 777 0 d-link -> x\nf 644 1 d.txt\n"
		       "f 644 0 empty\nf 4751 3 file\nf 4751 3 hard\ns 644 0 pipe\n"
		       "f 644 65536 s65536\nf 644 65537 s65537\n",
		       0, 2);
	layer_done(&l);
}

static void marks_of_the_overlay(void **state)
{
	struct layer l;
	char path[64];

	(void)state;
	layer_make(&l, "mkdir o p; printf 1 >o/new; : >p/gone; : >p/stays");
	(void)snprintf(path, sizeof(path), "%s/deleted", l.dir);
	if (mknod(path, S_IFCHR, makedev(0, 0)) < 0) {
		layer_done(&l);
		skip();
		return;
	}
	(void)snprintf(path, sizeof(path), "%s/o", l.dir);
	assert_int_equal(setxattr(path, "user.overlay.opaque", "y", 1, 0), 0);
	(void)snprintf(path, sizeof(path), "%s/p/gone", l.dir);
	assert_int_equal(setxattr(path, "user.overlay.whiteout", "", 0, 0), 0);
	(void)snprintf(path, sizeof(path), "%s/tty", l.dir);
	assert_int_equal(mknod(path, S_IFCHR | 0600, makedev(5, 0)), 0);
	expect_listing(
	    &l,
	    "X 600 0 deleted\nO 755 0 o\nf 644 1 o/new\nd 755 0 p\nX 600 0 p/gone\nf 644 0 p/stays\n"
	    "s 600 0 tty\n",
	    0, 0);
	layer_done(&l);
}

/* B-02: an overlay as the kernel makes it: removed, replaced, renamed, changed. */
static void a_real_overlay(void **state)
{
	struct layer l;

	(void)state;
	if (getuid()) {
		skip();
		return;
	}
	layer_make(
	    &l,
	    "mkdir low up work m low/dir low/old; printf 1 >low/keep; printf 1 >low/rm; printf 1 >low/mv;"
	    "printf 1 >low/dir/inner; printf 1 >low/old/x;"
	    "unshare -m sh -ec 'mount -t overlay overlay -o lowerdir=low,upperdir=up,workdir=work,userxattr m;"
	    "cd m; rm rm; mv mv moved; rm -r dir; mkdir dir; printf 2 >dir/other; rm -r old; printf 22 >keep'");
	(void)close(l.fd);
	l.fd = -1;
	{
		struct layer up = {.fd = -1};

		(void)snprintf(up.dir, sizeof(up.dir), "%.32s/up", l.dir);
		up.fd = open(up.dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
		assert_true(up.fd >= 0);
		expect_listing(
		    &up,
		    "O 755 0 dir\nf 644 1 dir/other\nf 644 2 keep\nf 644 1 moved\nX 600 0 mv\nX 600 0 old\n"
		    "X 600 0 rm\n",
		    0, 0);
		(void)close(up.fd);
	}
	layer_done(&l);
}

/* S1-04: what cannot be read is unknown, never absent. */
static void unreadable_is_said(void **state)
{
	struct layer l;

	(void)state;
	layer_make(&l,
		   "umask 022; printf 1 >a; printf 1 >b; mkdir c; printf 1 >c/d; chmod 000 b c");
	if (getuid() == 0) {
		box_uid = 64310;
		box_nproc = 1000;
		sh(l.dir, "chown -R 64310 .");
	}
	/* Our own end of the comparison is root's or the owner's: only a is opened. */
	expect_listing(&l, "f 644 1 a\nU 600 0 b\nU 600 0 c\n", 2, 0);
	box_uid = 0;
	layer_done(&l);
}

/* A path that the host would call hostile for its depth must not spoil the rest. */
static void too_deep_is_unreadable(void **state)
{
	_cleanup_buf_ struct buf got = BUF_INIT(16u << 20);
	struct layer l;
	struct box b;
	struct box_cmd *c;
	size_t lines = 0;

	(void)state;
	layer_make(
	    &l,
	    "printf 1 >z; i=0; while [ $i -lt 140 ]; do mkdir d; cd d; i=$((i+1)); done; printf 1 >f");
	c = pack_all(&b, &l);
	listing(&c->got_out, NULL, &got);
	for (const char *p = buf_text(&got); *p; p++)
		lines += *p == '\n';
	assert_int_equal(lines, PATH_DEPTH_MAX + 1);
	assert_int_equal(c->pack.unreadable, 1);
	assert_non_null(strstr(buf_text(&got), "\nU 600 0 d/d/"));
	assert_non_null(strstr(buf_text(&got), "\nf 644 1 z\n"));
	assert_int_equal(box_stop(&b), 0);
	layer_done(&l);
}

/* As above for length: 30 segments of 200 bytes. */
static void too_long_is_unreadable(void **state)
{
	_cleanup_buf_ struct buf got = BUF_INIT(16u << 20);
	struct layer l;
	struct box b;
	struct box_cmd *c;
	char name[201];
	int at;

	(void)state;
	memset(name, 'n', 200);
	name[200] = '\0';
	layer_make(&l, "printf 1 >z");
	at = dup(l.fd);
	for (int i = 0; i < 30; i++) {
		int next;

		assert_int_equal(mkdirat(at, name, 0755), 0);
		next = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(next >= 0);
		(void)close(at);
		at = next;
	}
	(void)close(at);
	c = pack_all(&b, &l);
	listing(&c->got_out, NULL, &got);
	assert_int_equal(c->pack.unreadable, 1);
	assert_non_null(strstr(buf_text(&got), "\nf 644 1 z\n"));
	assert_int_equal(box_stop(&b), 0);
	layer_done(&l);
}

/* What becomes of a file while it is read. E14: the stream stays whole, and what its last word about the file brings was once in it. */
#define BIG 8000000

static void cut(int fd, unsigned turn)
{
	if (!turn)
		assert_int_equal(ftruncate(fd, 4096), 0);
}

static void put_new(int fd, size_t n)
{
	_cleanup_free_ char *text = malloc(n);

	assert_non_null(text);
	memset(text, 'n', n);
	assert_int_equal(pwrite(fd, text, n, 0), n);
}

/* Cut and filled again: as long as before, and the stamps may be of the same tick. */
static void refill(int fd, unsigned turn)
{
	if (turn)
		return;
	assert_int_equal(ftruncate(fd, 0), 0);
	put_new(fd, BIG);
}

static void overwrite(int fd, unsigned turn)
{
	if (!turn)
		put_new(fd, BIG);
}

static void append(int fd, unsigned turn)
{
	(void)turn;
	assert_int_equal(pwrite(fd, "more\n", 5, lseek(fd, 0, SEEK_END)), 5);
}

static void never_still(int fd, unsigned turn)
{
	assert_int_equal(pwrite(fd, &turn, sizeof(turn), 0), sizeof(turn));
}

static void a_file_that_changes_while_it_is_read_E14(void **state)
{
	static const struct {
		void (*change)(int fd, unsigned turn);
		const char *stream;
		bool fresh; /* the last of it is all new bytes */
		unsigned shrunk;
	} cases[] = {
	    {cut, "f 644 8000000 big\nf 644 4096 big\nf 644 1 next\n", false, 1},
	    {refill, "f 644 8000000 big\nf 644 8000000 big\nf 644 1 next\n", true, 0},
	    {overwrite, "f 644 8000000 big\nf 644 8000000 big\nf 644 1 next\n", true, 0},
	    {append, "f 644 8000000 big\nf 644 1 next\n", false, 0},
	    {never_still,
	     "f 644 8000000 big\nf 644 8000000 big\nf 644 8000000 big\nU 600 0 big\nf 644 1 next\n",
	     false, 0},
	};
	_cleanup_free_ char *fresh = malloc(BIG);

	(void)state;
	assert_non_null(fresh);
	memset(fresh, 'n', BIG);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		_cleanup_buf_ struct buf got = BUF_INIT(1 << 20);
		_cleanup_fd_ int fd = -1;
		struct layer l;
		struct box b;
		struct box_cmd *c;

		layer_make(&l, "head -c 8000000 /dev/urandom >big; printf 1 >next");
		fd = openat(l.fd, "big", O_RDWR | O_CLOEXEC);
		assert_true(fd >= 0);
		box_start(&b, mode, l.fd);
		c = box_pack(&b);
		/* The first bytes are out, so the size is announced; the pipe holds far less than the file. */
		while (c->got_out.len < 1024)
			assert_true(box_turn(&b, clock_mono_ns() + 10 * NS_PER_S));
		for (unsigned turn = 0; !c->packed; turn++) {
			cases[i].change(fd, turn);
			assert_true(box_turn(&b, clock_mono_ns() + 60 * NS_PER_S));
		}
		box_finish(&b, c);
		assert_int_equal(c->pack.error, 0);
		assert_int_equal(c->pack.shrunk, cases[i].shrunk);
		listing(&c->got_out, NULL, &got);
		assert_string_equal(buf_text(&got), cases[i].stream);
		assert_int_equal(memmem(c->got_out.data, c->got_out.len, fresh, BIG) != NULL,
				 cases[i].fresh);
		assert_int_equal(box_stop(&b), 0);
		layer_done(&l);
	}
}

/* Files, links, FIFOs and directories change their kind all the time: every stream is still whole. */
static void a_changing_tree_gives_a_whole_stream(void **state)
{
	struct layer l;
	struct box b;
	pid_t pid;

	(void)state;
	layer_make(&l, "for i in 1 2 3 4 5 6 7 8; do mkdir d$i; printf 12345 >d$i/f; done");
	/* The program that the shell runs when it is killed is waited for too: it would still write. */
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0);
	pid = fork();
	assert_true(pid >= 0);
	(void)setpgid(pid, pid);
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (chdir(l.dir) == 0)
			(void)execl(
			    "/bin/sh", "sh", "-c",
			    "while :; do for i in 1 2 3 4 5 6 7 8; do rm -rf d$i; mkfifo d$i; rm -f d$i; ln -s /etc d$i;"
			    "rm d$i; printf 123 >d$i; rm d$i; mkdir -p d$i/x; printf 1 >d$i/f; done; done 2>/dev/null",
			    (char *)NULL);
		_exit(126);
	}
	box_start(&b, mode, l.fd);
	for (int i = 0; i < 40; i++) {
		_cleanup_buf_ struct buf got = BUF_INIT(1 << 20);
		struct box_cmd *c = box_pack(&b);

		box_finish(&b, c);
		assert_int_equal(c->pack.error, 0);
		listing(&c->got_out, NULL, &got);
		assert_null(strstr(buf_text(&got), "passwd"));
	}
	assert_int_equal(kill(-pid, SIGKILL), 0);
	while (waitpid(-pid, NULL, 0) > 0)
		;
	assert_int_equal(errno, ECHILD);
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0), 0);
	assert_int_equal(box_stop(&b), 0);
	layer_done(&l);
}

static void refusals_and_broken_pipes(void **state)
{
	struct layer l;
	struct box b;
	struct box_cmd *c, *second;

	(void)state;
	layer_make(&l, "head -c 8000000 /dev/zero >big");
	box_start(&b, mode, -1);
	c = box_pack(&b);
	box_finish(&b, c);
	assert_int_equal(c->pack.error, EBADF);
	assert_int_equal(box_stop(&b), 0);
	box_start(&b, mode, l.fd);
	c = box_pack(&b);
	c->hold_out = true;
	second = box_pack(&b);
	box_finish(&b, second);
	assert_int_equal(second->pack.error, EBUSY);
	box_signal(&b, c, SIGKILL);
	box_finish(&b, c);
	assert_int_equal(c->pack.error, ECANCELED);
	c = box_pack(&b);
	c->hold_out = true;
	cleanup_fd(&c->out);
	box_finish(&b, c);
	assert_int_equal(c->pack.error, EPIPE);
	/* A reader that never reads does not hold up the end. */
	c = box_pack(&b);
	c->hold_out = true;
	assert_int_equal(box_stop(&b), 0);
	layer_done(&l);
}

/* More names than one pass holds; GNU tar unpacks it to the same tree. */
static void a_large_directory_and_gnu_tar(void **state)
{
	struct layer l, out;
	struct box b;
	struct box_cmd *c;
	char path[96], cmd[160];
	int fd;

	(void)state;
	layer_make(
	    &l,
	    "mkdir many deep; cd many; i=10000; while [ $i -lt 30000 ]; do : >name-that-is-rather-long-$i; "
	    "i=$((i+1)); done; printf x >name-that-is-rather-long-20000; cd ../deep; mkdir -p a/b/c; "
	    "printf 1 >a/b/c/f; ln -s f a/b/c/l; head -c 100000 /dev/urandom >r");
	layer_make(&out, "mkdir x");
	c = pack_all(&b, &l);
	assert_int_equal(c->pack.members, 20000 + 8);
	(void)snprintf(path, sizeof(path), "%s/stream.tar", out.dir);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	for (size_t at = 0; at < c->got_out.len;) {
		ssize_t n = write(fd, c->got_out.data + at, c->got_out.len - at);

		assert_true(n > 0);
		at += (size_t)n;
	}
	(void)close(fd);
	(void)snprintf(cmd, sizeof(cmd), "tar -C x -xf stream.tar; diff -r --no-dereference %s x",
		       l.dir);
	sh(out.dir, cmd);
	assert_int_equal(box_stop(&b), 0);
	layer_done(&l);
	layer_done(&out);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_kind_of_entry),
	    cmocka_unit_test(marks_of_the_overlay),
	    cmocka_unit_test(a_real_overlay),
	    cmocka_unit_test(unreadable_is_said),
	    cmocka_unit_test(too_deep_is_unreadable),
	    cmocka_unit_test(too_long_is_unreadable),
	    cmocka_unit_test(a_file_that_changes_while_it_is_read_E14),
	    cmocka_unit_test(a_changing_tree_gives_a_whole_stream),
	    cmocka_unit_test(refusals_and_broken_pipes),
	    cmocka_unit_test(a_large_directory_and_gnu_tar),
	};

	(void)signal(SIGPIPE, SIG_IGN);
	mode = argc > 1 && strcmp(argv[1], "pid1") == 0 ? BOX_PID1 : BOX_PLAIN;
	if (argc > 2)
		cmocka_set_test_filter(argv[2]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
