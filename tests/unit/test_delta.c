/* The packer that compares a tree with its index (S1-01, S1-06; places without an overlay), read back by our reader. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/blake2b.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "guest/delta.h"
#include "wire/tar.h"
#include "scratch.h"

struct tree {
	char dir[40];
	int fd, index;
};

static void sh(const char *dir, const char *script)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		if (chdir(dir) == 0)
			(void)execl("/bin/sh", "sh", "-ec", script, (char *)NULL);
		_exit(126);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (status)
		fail_msg("script failed: %s", script);
}

/* What a tree holds, in path order: what the host knows of what it sent. */
struct seen {
	struct manifest_entry **v;
	size_t n;
};

static struct seen *walking;
static size_t walk_skip;

static void hash_file(const char *path, uint8_t out[32])
{
	crypto_generichash_state s;
	uint8_t buf[4096];
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	assert_true(fd >= 0);
	assert_int_equal(crypto_generichash_init(&s, NULL, 0, 32), 0);
	while ((n = read(fd, buf, sizeof(buf))) > 0)
		(void)crypto_generichash_update(&s, buf, (size_t)n);
	assert_int_equal(n, 0);
	(void)crypto_generichash_final(&s, out, 32);
}

static int see(const char *path, const struct stat *st, int type, struct FTW *f)
{
	struct manifest_entry *m;

	(void)type;
	(void)f;
	if (strlen(path) <= walk_skip)
		return 0;
	m = calloc(1, sizeof(*m));
	assert_non_null(m);
	m->path_len = strlen(path + walk_skip);
	memcpy(m->path, path + walk_skip, m->path_len + 1);
	m->mode = st->st_mode & 0777;
	m->kind = S_ISDIR(st->st_mode)	 ? 'd'
		  : S_ISLNK(st->st_mode) ? 'l'
		  : S_ISREG(st->st_mode) ? 'f'
					 : 's';
	if (m->kind == 'l')
		m->target_len = (size_t)readlink(path, m->target, sizeof(m->target) - 1);
	if (m->kind == 'f') {
		m->size = (uint64_t)st->st_size;
		hash_file(path, m->hash);
	}
	walking->v = realloc(walking->v, (walking->n + 1) * sizeof(*walking->v));
	assert_non_null(walking->v);
	walking->v[walking->n++] = m;
	return 0;
}

static int by_path(const void *a, const void *b)
{
	const struct manifest_entry *const *x = a, *const *y = b;

	return manifest_path_cmp((*x)->path, (*x)->path_len, (*y)->path, (*y)->path_len);
}

static void seen_take(struct seen *s, const struct tree *t)
{
	*s = (struct seen){0};
	walking = s;
	walk_skip = strlen(t->dir) + 1;
	assert_int_equal(nftw(t->dir, see, 20, FTW_PHYS), 0);
	if (s->n)
		qsort(s->v, s->n, sizeof(*s->v), by_path);
}

static void seen_done(struct seen *s)
{
	for (size_t i = 0; i < s->n; i++)
		free(s->v[i]);
	free(s->v);
}

/* The manifest as the host would have sent it. */
static struct manifest *manifest_of(const struct seen *s)
{
	_cleanup_fd_ int fd = memfd_create("sent", MFD_CLOEXEC);
	struct manifest_writer *w = calloc(1, sizeof(*w));
	struct manifest *m;
	struct err e = ERR_INIT;

	assert_true(fd >= 0 && w);
	assert_int_equal(manifest_writer_init(w, fd, &e), 0);
	for (size_t i = 0; i < s->n; i++)
		if (s->v[i]->kind != 's' && strncmp(s->v[i]->path, ".git", 4) != 0)
			assert_int_equal(manifest_writer_add(w, s->v[i], &e), 0);
	assert_int_equal(manifest_writer_finish(w, &e), 0);
	manifest_writer_done(w);
	free(w);
	assert_int_equal(manifest_open(fd, &m, &e), 0);
	return m;
}

static void tree_index(struct tree *t, const struct seen *s)
{
	char path[64];
	struct manifest *m = manifest_of(s);
	struct err e = ERR_INIT;

	(void)snprintf(path, sizeof(path), "%s.index", t->dir);
	t->index = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(t->index >= 0);
	assert_int_equal(unlink(path), 0);
	if (delta_index(t->fd, m, t->index, &e) < 0)
		fail_msg("%s", e.text);
	manifest_free(m);
}

static void tree_make(struct tree *t, const char *script)
{
	(void)snprintf(t->dir, sizeof(t->dir), "/tmp/delta-XXXXXX");
	assert_non_null(scratch_dir(t->dir));
	t->fd = open(t->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(t->fd >= 0);
	sh(t->dir, script);
	t->index = -1;
}

static int drop(const char *path, const struct stat *st, int type, struct FTW *f)
{
	(void)st;
	(void)type;
	(void)f;
	return remove(path);
}

static void remove_tree(const char *path)
{
	(void)nftw(path, drop, 20, FTW_PHYS | FTW_DEPTH);
}

static void tree_done(struct tree *t)
{
	(void)close(t->fd);
	cleanup_fd(&t->index);
	remove_tree(t->dir);
}

static char letter(const struct tar_member *m)
{
	static const char ops[] = {
	    [TAR_OP_DELETE] = 'X', [TAR_OP_OPAQUE] = 'O', [TAR_OP_UNREADABLE] = 'U'};
	static const char types[] = {
	    [TAR_FILE] = 'f', [TAR_DIR] = 'd', [TAR_SYMLINK] = 'l', [TAR_SPECIAL] = 's'};

	return m->op ? ops[m->op] : types[m->type];
}

/* "f 644 3 path\n" a member, "X path\n" a deletion. */
static void listing(int fd, struct buf *ret)
{
	struct stat st;
	const uint8_t *p, *map;
	size_t n;
	struct tar_reader *r;
	struct tar_out o;
	struct err e = ERR_INIT;
	int ev;

	assert_int_equal(fstat(fd, &st), 0);
	n = (size_t)st.st_size;
	map = p = mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0);
	assert_true(p != MAP_FAILED);
	assert_int_equal(tar_reader_new(NULL, &r), 0);
	while ((ev = tar_reader_next(r, &p, &n, &o, &e)) != TAR_END && ev != TAR_NEED) {
		if (ev < 0)
			fail_msg("rule %s: %s", o.rule, e.text);
		if (ev != TAR_MEMBER)
			continue;
		(void)buf_putc(ret, letter(&o.member));
		if (o.member.op != TAR_OP_DELETE && o.member.op != TAR_OP_UNREADABLE)
			(void)buf_putf(ret, " %o %llu", o.member.mode,
				       (unsigned long long)o.member.size);
		(void)buf_putf(ret, " %.*s\n", (int)o.member.path.n, o.member.path.p);
	}
	assert_int_equal(ev, TAR_END);
	assert_int_equal(tar_reader_finish(r, &o, &e), 0);
	tar_reader_free(r);
	(void)munmap((void *)(uintptr_t)map, (size_t)st.st_size);
}

static uid_t as_uid;

static int write_as(struct delta *d, int tree, int out)
{
	struct pack_result res = {0};
	int status;
	pid_t pid;

	if (!as_uid)
		return delta_write(d, tree, out, &res);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(setresuid(as_uid, as_uid, as_uid) < 0 ? 99
							    : -delta_write(d, tree, out, &res));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return -WEXITSTATUS(status);
}

static void differences(const struct tree *t, struct buf *ret)
{
	_cleanup_fd_ int out = memfd_create("out", MFD_CLOEXEC);
	struct delta *d;
	struct err e = ERR_INIT;

	assert_true(out >= 0);
	assert_int_equal(delta_open(t->index, &d, &e), 0);
	assert_int_equal(write_as(d, t->fd, out), 0);
	delta_free(d);
	listing(out, ret);
}

static void expect(const struct tree *t, const char *want)
{
	_cleanup_buf_ struct buf got = BUF_INIT(1 << 20);

	differences(t, &got);
	assert_string_equal(buf_text(&got), want);
}

static const struct {
	const char *what, *make, *change, *want;
} cases[] = {
    {"nothing changed", "mkdir -p a/b; printf 1 >a/b/c; ln -s c a/b/l", ":", ""},
    {"nothing in an empty tree", ":", ":", ""},
    {"other bytes of the same size, time set back",
     "printf abc >f; touch -d 2020-01-02T03:04:05.678 f; printf 1 >g",
     "printf xyz >f; touch -d 2020-01-02T03:04:05.678 f", "f 644 3 f\n"},
    {"the same, where the name has escapes",
     "printf abc >'a b'; touch -d 2020-01-02T03:04:05.678 'a b'; printf 1 >g",
     "printf xyz >'a b'; touch -d 2020-01-02T03:04:05.678 'a b'", "f 644 3 a b\n"},
    {"the same bytes again, another time", "printf abc >f", "printf abc >f; touch -d 2031-01-01 f",
     ""},
    {"replaced by a copy, time kept", "printf abc >f", "cp -p f g; mv g f", ""},
    {"replaced by other bytes, time kept", "printf abc >f; cp -p f o",
     "printf xbc >g; touch -r f g; mv g f", "f 644 3 f\n"},
    {"time from before 1970", "printf abc >f; touch -d 1960-01-01 f", ":", ""},
    {"grown, cut", "printf abc >f; printf abc >g", "printf d >>f; truncate -s 2 g",
     "f 644 4 f\nf 644 2 g\n"},
    {"became a hole of the same size", "head -c 1048576 /dev/urandom >f",
     "truncate -s 0 f; truncate -s 1048576 f", "f 644 1048576 f\n"},
    {"a hole became data", "truncate -s 300000 f", "printf x | dd of=f conv=notrunc status=none",
     "f 644 300000 f\n"},
    {"a hole became zeros", "truncate -s 300000 f",
     "head -c 300000 /dev/zero | dd of=f conv=notrunc status=none", ""},
    {"mode of a file, of a directory", "mkdir d; printf 1 >d/f; printf 2 >g",
     "chmod 755 g; chmod 700 d", "d 700 0 d\nf 755 1 g\n"},
    {"file to directory", "printf 1 >a; printf 2 >b", "rm a; mkdir a; printf 3 >a/x",
     "O 755 0 a\nf 644 1 a/x\n"},
    {"directory to file", "mkdir -p a/b; printf 1 >a/b/c; printf 2 >b", "rm -r a; printf 3 >a",
     "f 644 1 a\n"},
    {"file to link, link to file, other target", "printf 1 >a; ln -s x b; ln -s x c; ln -s x d",
     "rm a b; ln -s q a; printf 2 >b; ln -sfn y c", "l 777 0 a\nf 644 1 b\nl 777 0 c\n"},
    {"link to directory, directory to link", "ln -s x a; mkdir b; printf 1 >b/c",
     "rm a; mkdir a; rm -r b; ln -s a b", "O 755 0 a\nl 777 0 b\n"},
    {"file to FIFO", "printf 1 >a", "rm a; mkfifo a", "s 644 0 a\n"},
    {"deleted files, first and last and all",
     "mkdir d; for f in a b c d/a d/b; do printf 1 >$f; done", "rm a c d/a d/b",
     "X a\nX c\nX d/a\nX d/b\n"},
    {"deleted directory: one word for all of it",
     "mkdir -p d/e/f; printf 1 >d/e/f/g; printf 1 >d/h; printf 1 >z", "rm -r d", "X d\n"},
    {"deleted deep down", "mkdir -p d/e/f; printf 1 >d/e/f/g; printf 1 >d/e/h; printf 1 >z",
     "rm -r d/e/f", "X d/e/f\n"},
    {"everything deleted", "mkdir d; printf 1 >d/a; printf 1 >b", "rm -r d b", "X b\nX d\n"},
    {"new, nested", "mkdir a; printf 1 >a/b", "mkdir -p a/c/d e; printf 12 >a/c/d/f; ln -s x e/l",
     "d 755 0 a/c\nd 755 0 a/c/d\nf 644 2 a/c/d/f\nd 755 0 e\nl 777 0 e/l\n"},
    {"moved", "mkdir a b; printf 1 >a/f", "mv a/f b/g; mv b c",
     "X a/f\nX b\nd 755 0 c\nf 644 1 c/g\n"},
    /* Path order is not the order of a walk: '-' and '.' come before '/', '0' after it. */
    {"names around the slash",
     "mkdir a a.d; for f in a-b a.b a/x a/y a0 a.d/z; do printf 1 >$f; done",
     "rm a-b a/x a0; printf 22 >a.b; printf 22 >a/y; printf 1 >a/n; printf 1 >a!",
     "f 644 2 a.b\nX a/x\nf 644 2 a/y\nf 644 1 a/n\nf 644 1 a!\nX a-b\nX a0\n"},
    {"names with escapes",
     "mkdir 'a b'; printf 1 >'a b/%'; printf 1 >'a b/\xe9'; printf 1 >'a b/\n'",
     "rm 'a b/%'; printf 2 >'a b/\xe9'", "X a b/%\nf 644 1 a b/\xe9\n"},
    {"git's own, untouched and touched",
     "mkdir -p .git/hooks .git/info; printf 1 >.git/config; printf 1 >.git/hooks/pre-push; printf 1 >.git/HEAD",
     "printf 2 >.git/HEAD; printf 2 >.git/config; printf 1 >.git/hooks/post-merge",
     "f 600 0 .git/config\nf 600 0 .git/hooks/post-merge\n"},
    {"git's own, untouched", "mkdir -p .git/hooks; printf 1 >.git/config; printf 1 >.git/hooks/x",
     ":", ""},
    {"overlay's marks mean nothing here", "mkdir d; printf 1 >d/f; : >g",
     "setfattr -n user.overlay.whiteout -v y g; setfattr -n user.overlay.opaque -v y d; printf 2 >d/f",
     "f 644 1 d/f\n"},
};

static void lines_sort(char *text, struct buf *ret);

static void each_kind_of_change(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		_cleanup_buf_ struct buf got = BUF_INIT(1 << 20), a = BUF_INIT(1 << 20),
					 b = BUF_INIT(1 << 20);
		_cleanup_free_ char *want = strdup(cases[i].want);
		struct tree t;
		struct seen s;

		print_message("  %s\n", cases[i].what);
		(void)umask(022);
		tree_make(&t, cases[i].make);
		seen_take(&s, &t);
		tree_index(&t, &s);
		sh(t.dir, cases[i].change);
		differences(&t, &got);
		/* Deletions come between their neighbours; the order of a directory is tested below. */
		lines_sort(strdup(buf_text(&got)), &a);
		lines_sort(TAKE_PTR(want), &b);
		assert_string_equal(buf_text(&a), buf_text(&b));
		seen_done(&s);
		tree_done(&t);
	}
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Takes text. */
static void lines_sort(char *text, struct buf *ret)
{
	char *v[4096], *save = NULL;
	size_t n = 0;

	for (char *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
		assert_true(n < ARRAY_LEN(v));
		v[n++] = l;
	}
	if (n)
		qsort(v, n, sizeof(*v), by_text);
	for (size_t i = 0; i < n; i++)
		(void)buf_putf(ret, "%s\n", v[i]);
	(void)buf_putc(ret, '\0');
	free(text);
}

/* As a stream must be: a directory before what is in it. */
static void order_of_the_stream(void **state)
{
	struct tree t;
	struct seen s;

	(void)state;
	tree_make(&t, "mkdir -p d/e; printf 1 >d/e/f; printf 1 >b");
	seen_take(&s, &t);
	tree_index(&t, &s);
	sh(t.dir, "rm b; printf 2 >a; chmod 700 d/e; printf 22 >d/e/f; printf 1 >e");
	expect(&t, "f 644 1 a\nX b\nd 700 0 d/e\nf 644 2 d/e/f\nf 644 1 e\n");
	seen_done(&s);
	tree_done(&t);
}

/* The stamps of a file that is not older than the index prove nothing: its bytes are looked at. */
static void young_files_are_hashed(void **state)
{
	static const struct {
		int64_t file_s, file_ns,
		    index_ns; /* mtime; index: relative to the file's own ctime */
		bool hashed;
	} young[] = {
	    {1600000000, 5, 20 * NS_PER_MS, false},
	    {1600000000, 5, 1, false},
	    {1600000000, 5, 0, true},
	    {1600000000, 5, -1, true},
	    {1600000000, 0, 20 * NS_PER_MS, false},
	    {4000000000, 5, 20 * NS_PER_MS, true}, /* from the future */
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(young); i++) {
		struct timespec at[2] = {{.tv_nsec = UTIME_OMIT},
					 {young[i].file_s, young[i].file_ns}};
		struct tree t;
		struct seen s;
		struct stat st;
		int64_t ns;

		tree_make(&t, "printf abc >f");
		assert_int_equal(utimensat(t.fd, "f", at, 0), 0);
		seen_take(&s, &t);
		/* The index has f's stamps and the hash of other bytes, as after a change within one tick. */
		s.v[0]->hash[0] ^= 1;
		tree_index(&t, &s);
		assert_int_equal(fstatat(t.fd, "f", &st, 0), 0);
		ns = st.st_ctim.tv_sec * NS_PER_S + st.st_ctim.tv_nsec + young[i].index_ns;
		at[1] = (struct timespec){ns / NS_PER_S, ns % NS_PER_S};
		assert_int_equal(futimens(t.index, at), 0);
		expect(&t, young[i].hashed ? "f 644 3 f\n" : "");
		seen_done(&s);
		tree_done(&t);
	}
}

/* A file system of whole seconds: a second's change may hide behind the same stamp. */
static void whole_seconds_are_young_for_longer(void **state)
{
	struct timespec at[2] = {{.tv_nsec = UTIME_OMIT}, {0}};
	struct tree t;
	struct seen s;
	struct stat st;

	(void)state;
	tree_make(&t, "printf abc >f");
	assert_int_equal(fstatat(t.fd, "f", &st, 0), 0);
	at[1] = (struct timespec){st.st_ctim.tv_sec - 1, 0};
	assert_int_equal(utimensat(t.fd, "f", at, 0), 0);
	seen_take(&s, &t);
	s.v[0]->hash[0] ^= 1;
	tree_index(&t, &s);
	assert_int_equal(fstatat(t.fd, "f", &st, 0), 0);
	/* Younger than ctime, but within two seconds of an mtime without a fraction. */
	at[1] = (struct timespec){st.st_mtim.tv_sec + 2, 0};
	if (at[1].tv_sec <= st.st_ctim.tv_sec)
		at[1] = (struct timespec){st.st_ctim.tv_sec + 1, 0};
	assert_int_equal(futimens(t.index, at), 0);
	expect(&t, at[1].tv_sec <= st.st_mtim.tv_sec + 2 ? "f 644 3 f\n" : "");
	at[1].tv_sec += 5;
	assert_int_equal(futimens(t.index, at), 0);
	expect(&t, "");
	seen_done(&s);
	tree_done(&t);
}

/* What never arrived cannot have been deleted; what arrived otherwise is looked at. */
static void what_did_not_land_as_sent(void **state)
{
	struct tree t;
	struct seen s;

	(void)state;
	tree_make(&t, "mkdir d; printf 1 >d/a; printf 22 >b; printf 1 >c; ln -s x l");
	seen_take(&s, &t);
	sh(t.dir, "rm -r d l; printf 1 >b; rm c; mkdir c");
	tree_index(&t, &s);
	expect(&t, "f 644 1 b\nO 755 0 c\n");
	seen_done(&s);
	tree_done(&t);
}

/* Nothing below a directory that cannot be read is known, so nothing there is deleted. */
static void unreadable_is_not_deleted(void **state)
{
	struct tree t;
	struct seen s;

	(void)state;
	if (geteuid() != 0)
		skip(); /* the owner would lend itself the right; it takes another user */
	tree_make(
	    &t,
	    "mkdir -p d/e; printf 1 >d/e/f; printf 1 >d/g; printf 1 >y; printf 1 >z; chmod 755 .");
	seen_take(&s, &t);
	tree_index(&t, &s);
	sh(t.dir, "rm z d/g; chmod 000 d; printf 2 >y; chmod 600 y");
	as_uid = 65534;
	expect(&t, "U d\nU y\nX z\n");
	as_uid = 0;
	seen_done(&s);
	tree_done(&t);
}

/* An index from elsewhere: other stamps everywhere, so every byte is read, and nothing travels. */
static void foreign_stamps_cost_time_only(void **state)
{
	struct tree t;
	struct seen s;

	(void)state;
	tree_make(&t,
		  "mkdir d; for i in 1 2 3 4 5; do head -c 70000 /dev/urandom >d/$i; done; : >e");
	seen_take(&s, &t);
	tree_index(&t, &s);
	sh(t.dir, "for f in d/* e; do cp $f x; mv x $f; done; printf 2 >>d/3");
	expect(&t, "f 644 70001 d/3\n");
	seen_done(&s);
	tree_done(&t);
}

static void broken_index(void **state)
{
	static const char *const texts[] = {"", "airlock-manifest 1\n",
					    "airlock-manifest 1\nf 644 1\nend 1\n",
					    "airlock-manifest 1\nd 755 a/../b\nend 1\n",
					    "airlock-manifest 1\nd 755 a/b\nx 1\nend 2\n"};
	struct pack_result res = {0};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		_cleanup_fd_ int fd = memfd_create("index", MFD_CLOEXEC),
				 out = memfd_create("out", MFD_CLOEXEC);
		struct tree t;
		struct delta *d = NULL;
		struct err e = ERR_INIT;

		tree_make(&t, "mkdir a; printf 1 >a/b");
		assert_int_equal(write(fd, texts[i], strlen(texts[i])), strlen(texts[i]));
		if (delta_open(fd, &d, &e) == 0)
			assert_int_equal(delta_write(d, t.fd, out, &res), -EPROTO);
		else
			assert_true(i < 2);
		delta_free(d);
		tree_done(&t);
	}
}

/* Random trees and changes against a comparison of the two whole states. */

static uint32_t seed;

static uint32_t rnd(uint32_t n)
{
	seed = seed * 1664525u + 1013904223u;
	return (seed >> 8) % n;
}

static void random_path(char *out, size_t size)
{
	static const char *const names[] = {"a", "a-", "a.", "a0", "b", "a b", "\xe9", "a-b"};
	size_t n = 0, depth = 1 + rnd(3);

	out[0] = '\0';
	for (size_t i = 0; i < depth && n < size; i++)
		n += (size_t)snprintf(out + n, size - n, "%s%s", i ? "/" : "",
				      names[rnd(ARRAY_LEN(names))]);
}

static void random_change(const struct tree *t)
{
	char path[128], whole[200];

	random_path(path, sizeof(path));
	switch (rnd(7)) {
	case 0:
		(void)mkdirat(t->fd, path, 0755);
		break;
	case 1:
		if (symlinkat("x", t->fd, path) < 0)
			return; /* as for the others: what cannot be is no change */
		break;
	case 2:
		if (rnd(3))
			break;
		(void)snprintf(whole, sizeof(whole), "%s/%s", t->dir, path);
		remove_tree(whole);
		break;
	case 3:
		(void)unlinkat(t->fd, path, 0);
		break;
	case 4:
		if (fchmodat(t->fd, path, rnd(2) ? 0755 : 0700, 0) < 0)
			return;
		break;
	default: {
		_cleanup_fd_ int fd = openat(t->fd, path, O_WRONLY | O_CREAT | O_NOFOLLOW, 0644);

		if (fd >= 0 && write(fd, "123456789", 1 + rnd(9)) < 0)
			fail();
	}
	}
}

static bool same(const struct manifest_entry *a, const struct manifest_entry *b)
{
	return a->kind == b->kind && (a->kind == 'l' || a->mode == b->mode) && a->size == b->size &&
	       memcmp(a->hash, b->hash, sizeof(a->hash)) == 0 && a->target_len == b->target_len &&
	       memcmp(a->target, b->target, a->target_len) == 0;
}

static const struct manifest_entry *find(const struct seen *s, const char *path, size_t n)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->v[i]->path_len == n && memcmp(s->v[i]->path, path, n) == 0)
			return s->v[i];
	return NULL;
}

static void want_lines(const struct seen *old, const struct seen *now, struct buf *ret)
{
	for (size_t i = 0; i < now->n; i++) {
		const struct manifest_entry *m = now->v[i], *o = find(old, m->path, m->path_len);

		if (!o || !same(o, m))
			(void)buf_putf(ret, "%c %o %llu %s\n",
				       o && m->kind == 'd' && o->kind != 'd' ? 'O' : m->kind,
				       m->mode, (unsigned long long)m->size, m->path);
	}
	for (size_t i = 0; i < old->n; i++) {
		const struct manifest_entry *o = old->v[i], *up;
		const char *slash = strrchr(o->path, '/');

		if (find(now, o->path, o->path_len))
			continue;
		up = slash ? find(now, o->path, (size_t)(slash - o->path)) : NULL;
		if (!slash || (up && up->kind == 'd'))
			(void)buf_putf(ret, "X %s\n", o->path);
	}
}

static void random_trees_against_whole_states(void **state)
{
	(void)state;
	(void)umask(022);
	for (seed = 1; seed < 40u << 8; seed += 256) {
		uint32_t mine = seed;
		_cleanup_buf_ struct buf got = BUF_INIT(1 << 20), want = BUF_INIT(1 << 20),
					 a = BUF_INIT(1 << 20), b = BUF_INIT(1 << 20);
		struct tree t;
		struct seen old, now;

		tree_make(&t, ":");
		for (size_t i = 0; i < 120; i++)
			random_change(&t);
		seen_take(&old, &t);
		tree_index(&t, &old);
		for (size_t i = rnd(40); i-- > 0;)
			random_change(&t);
		seen_take(&now, &t);
		differences(&t, &got);
		want_lines(&old, &now, &want);
		lines_sort(strdup(buf_text(&got)), &a);
		lines_sort(strdup(buf_text(&want)), &b);
		if (strcmp(buf_text(&a), buf_text(&b)) != 0)
			fail_msg("seed %u:\n-- got\n%s-- want\n%s", mine, buf_text(&a),
				 buf_text(&b));
		seen_done(&old);
		seen_done(&now);
		tree_done(&t);
		seed = mine;
	}
}

static void blake2b_is_libsodiums(void **state)
{
	static uint8_t data[70000];
	uint8_t mine[32], its[32];

	(void)state;
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7 + i / 251);
	for (size_t n = 0; n < sizeof(data); n = n < 400 ? n + 1 : n * 3 / 2) {
		for (size_t piece = 1; piece < 400; piece += 127) {
			struct blake2b b;

			blake2b_init(&b);
			for (size_t at = 0; at < n; at += piece)
				blake2b_update(&b, data + at, n - at < piece ? n - at : piece);
			blake2b_final(&b, mine);
			(void)crypto_generichash(its, sizeof(its), data, n, NULL, 0);
			assert_memory_equal(mine, its, sizeof(its));
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(blake2b_is_libsodiums),
	    cmocka_unit_test(each_kind_of_change),
	    cmocka_unit_test(order_of_the_stream),
	    cmocka_unit_test(young_files_are_hashed),
	    cmocka_unit_test(whole_seconds_are_young_for_longer),
	    cmocka_unit_test(what_did_not_land_as_sent),
	    cmocka_unit_test(unreadable_is_not_deleted),
	    cmocka_unit_test(foreign_stamps_cost_time_only),
	    cmocka_unit_test(broken_index),
	    cmocka_unit_test(random_trees_against_whole_states),
	};

	if (sodium_init() < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
