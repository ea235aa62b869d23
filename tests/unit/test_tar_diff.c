/*
 * Differential test of the tar codec: on honest archives our reader sees exactly what libarchive sees, whoever
 * wrote them (libarchive, GNU tar, busybox, our writer), in every format. Cases A1, A17, A19, D1, D3, D4; S1-04.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "wire/tar.h"
#include "scratch.h"

enum { ARCHIVE_MAX = 32 << 20, LIST_MAX = 8 << 20 };

/* FNV-1a over (offset, byte) of every byte that is not zero, so holes and zeros are the same. */
static uint64_t mix(uint64_t h, uint64_t at, const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (!p[i])
			continue;
		for (uint64_t v = at + i, k = 0; k < 8; k++, v >>= 8)
			h = (h ^ (v & 0xff)) * UINT64_C(1099511628211);
		h = (h ^ (unsigned char)p[i]) * UINT64_C(1099511628211);
	}
	return h;
}

static void line(struct buf *list, char type, struct view path, struct view target,
		 const uint64_t numbers[4])
{
	(void)buf_putf(list, "%c [", type);
	(void)buf_put(list, path.p, path.n);
	(void)buf_puts(list, "] [");
	(void)buf_put(list, target.p, target.n);
	(void)buf_putf(list, "] %04llo %llu %llu %016llx\n", (unsigned long long)numbers[0],
		       (unsigned long long)numbers[1], (unsigned long long)numbers[2],
		       (unsigned long long)numbers[3]);
}

static void list_ours(const struct buf *b, struct buf *list)
{
	const uint8_t *p = (const uint8_t *)b->data;
	size_t left = b->len, n = 0;
	struct tar_reader *r;
	struct tar_out out;
	struct err e = ERR_INIT;
	uint64_t hash = 0;
	int ev;

	assert_int_equal(tar_reader_new(NULL, &r), 0);
	while ((ev = tar_reader_next(r, &p, &n, &out, &e)) != TAR_END) {
		const struct tar_member *m = &out.member;

		if (ev < 0 || (ev == TAR_NEED && !left))
			fail_msg("our reader: %d %s", ev, e.text);
		if (ev == TAR_NEED) {
			n = left < 10000 ? left : 10000;
			left -= n;
		} else if (ev == TAR_MEMBER) {
			hash = 0;
		} else if (ev == TAR_DATA) {
			hash = mix(hash, out.data_offset, out.data.p, out.data.n);
		} else { /* a hard link's own numbers differ between writers and mean nothing */
			bool hard = m->type == TAR_HARDLINK;

			line(
			    list, "fdlhs" [m->type], m -> path, m -> target, (uint64_t[4]) {
				    hard ? 0 : m->mode, hard ? 0 : m->size,
					hard ? 0 : (uint64_t)m->mtime_ns, hash
			    });
		}
	}
	tar_reader_free(r);
}

/* "./a//b/" as libarchive may give it, to the form of a member path. */
static struct view clean(const char *p)
{
	size_t n;

	while (p[0] == '.' && p[1] == '/')
		p += 2;
	n = strlen(p);
	while (n > 0 && p[n - 1] == '/')
		n--;
	return n == 1 && p[0] == '.' ? (struct view){p, 0} : (struct view){p, n};
}

static void list_theirs(const struct buf *b, struct buf *list)
{
	struct archive *a = archive_read_new();
	struct archive_entry *x;
	int r;

	assert_int_equal(archive_read_support_format_tar(a), ARCHIVE_OK);
	assert_int_equal(archive_read_open_memory(a, b->data, b->len), ARCHIVE_OK);
	while ((r = archive_read_next_header(a, &x)) != ARCHIVE_EOF) {
		const char *hard = archive_entry_hardlink(x), *soft = archive_entry_symlink(x);
		uint64_t hash = 0, mtime = (uint64_t)archive_entry_mtime(x) * NS_PER_S +
					   (uint64_t)archive_entry_mtime_nsec(x);
		const void *p;
		size_t n;
		la_int64_t at;
		char type = hard				 ? 'h'
			    : soft				 ? 'l'
			    : S_ISDIR(archive_entry_filetype(x)) ? 'd'
			    : S_ISREG(archive_entry_filetype(x)) ? 'f'
								 : 's';

		if (r < ARCHIVE_WARN)
			fail_msg("libarchive: %s", archive_error_string(a));
		while (type == 'f' && (r = archive_read_data_block(a, &p, &n, &at)) == ARCHIVE_OK)
			hash = mix(hash, (uint64_t)at, p, n);
		assert_true(r != ARCHIVE_FATAL);
		line(list, type, clean(archive_entry_pathname(x)),
		     hard   ? clean(hard)
		     : soft ? (struct view){soft, strlen(soft)}
			    : (struct view){"", 0},
		     (uint64_t[4]){hard ? 0 : archive_entry_mode(x) & 07777,
				   type == 'f' ? (uint64_t)archive_entry_size(x) : 0,
				   hard ? 0 : mtime, hash});
	}
	assert_int_equal(archive_read_free(a), ARCHIVE_OK);
}

static void both_see_the_same(const char *what, const struct buf *b, size_t members)
{
	_cleanup_buf_ struct buf ours = BUF_INIT(LIST_MAX), theirs = BUF_INIT(LIST_MAX);
	const char *p, *q;
	size_t lines = 0;

	list_ours(b, &ours);
	list_theirs(b, &theirs);
	assert_int_equal(ours.err | theirs.err, 0);
	for (p = buf_text(&ours), q = buf_text(&theirs); *p && *p == *q; p++, q++)
		lines += *p == '\n';
	if (*p || *q)
		fail_msg("%s: line %zu differs:\n%.300s\n%.300s", what, lines + 1, p, q);
	if (members && lines < members)
		fail_msg("%s: %zu members instead of %zu", what, lines, members);
}

/* --- archives from libarchive and from our writer: a tree in memory --- */

struct node {
	char type; /* f d l h */
	char path[600], target[600];
	size_t size;
	int64_t mtime_ns;
	unsigned mode;
};
enum { NODES = 260 };

static uint32_t rnd(uint32_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 17;
	*s ^= *s << 5;
	return *s;
}

/* Names of length n without '/', of all bytes that a name may have. */
static size_t name(char *out, size_t n, uint32_t *s, bool odd)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyz0123456789-_";
	static const char strange[] = "\n\t \\\"'`$();*?[]&|<>~#%\xe9\xc3\xa9=,->";

	for (size_t i = 0; i < n; i++)
		out[i] = odd && rnd(s) % 3 == 0 ? strange[rnd(s) % (sizeof(strange) - 1)]
						: plain[rnd(s) % (sizeof(plain) - 1)];
	return n;
}

/* most: longest path; ns: times with fractions. */
static void make_tree(struct node *v, size_t most, bool ns, bool odd)
{
	static const char types[] = "ffffdlh";
	uint32_t s = 42;

	for (size_t i = 0; i < NODES; i++) {
		struct node *x = &v[i];
		size_t len = 0, want = 1 + rnd(&s) % most;

		*x = (struct node){.type = i == 0 ? 'f' : types[rnd(&s) % 7],
				   .mode = rnd(&s) % 01000,
				   .size = rnd(&s) % 3000};
		x->mtime_ns =
		    (int64_t)(rnd(&s) % 2000000000) * NS_PER_S + (ns ? rnd(&s) % 1000000000 : 0);
		while (len < want) {
			size_t k = 1 + rnd(&s) % 60;

			if (len)
				x->path[len++] = '/';
			len += name(x->path + len, k, &s, odd);
		}
		/* unique, so that a hard link's target is what it says */
		(void)snprintf(x->path + (len > most - 4 ? most - 4 : len), 5, ".%zu", i % 1000);
		if (x->type == 'l')
			(void)name(x->target, 1 + rnd(&s) % (most > 250 ? 400 : 99), &s, odd);
		for (size_t k = i; x->type == 'h' && !x->target[0]; k--)
			if (v[k].type == 'f')
				(void)snprintf(x->target, sizeof(x->target), "%s", v[k].path);
		if (x->type != 'f')
			x->size = 0;
	}
}

static void content(const struct node *x, char *out)
{
	for (size_t i = 0; i < x->size; i++)
		out[i] = (char)(x->mode + i * 7 + x->size);
}

static void write_ours(const struct node *v, struct buf *b)
{
	static const enum tar_type types[] = {
	    ['f'] = TAR_FILE, ['d'] = TAR_DIR, ['l'] = TAR_SYMLINK, ['h'] = TAR_HARDLINK};

	for (size_t i = 0; i < NODES; i++) {
		const struct node *x = &v[i];
		struct tar_member m = {.type = types[(unsigned char)x->type],
				       .mode = x->mode,
				       .size = x->size,
				       .mtime_ns = x->mtime_ns,
				       .path = {x->path, strlen(x->path)},
				       .target = {x->target, strlen(x->target)}};
		char data[3000];

		content(x, data);
		assert_int_equal(tar_put_header(b, &m), 0);
		assert_int_equal(buf_put(b, data, x->size), 0);
		assert_int_equal(tar_put_padding(b, x->size), 0);
	}
	assert_int_equal(tar_put_end(b), 0);
}

static void write_theirs(const char *format, const struct node *v, struct buf *b)
{
	static char out[ARCHIVE_MAX];
	struct archive *a = archive_write_new();
	size_t used = 0;

	assert_int_equal(archive_write_set_format_by_name(a, format), ARCHIVE_OK);
	assert_int_equal(archive_write_open_memory(a, out, sizeof(out), &used), ARCHIVE_OK);
	for (size_t i = 0; i < NODES; i++) {
		struct archive_entry *x = archive_entry_new();
		char data[3000];

		content(&v[i], data);
		archive_entry_set_pathname(x, v[i].path);
		archive_entry_set_perm(x, (mode_t)v[i].mode);
		archive_entry_set_filetype(x, v[i].type == 'd'	 ? AE_IFDIR
					      : v[i].type == 'l' ? AE_IFLNK
								 : AE_IFREG);
		if (v[i].type == 'h')
			archive_entry_set_hardlink(x, v[i].target);
		else if (v[i].type == 'l')
			archive_entry_set_symlink(x, v[i].target);
		archive_entry_set_size(x, (la_int64_t)v[i].size);
		archive_entry_set_mtime(x, v[i].mtime_ns / NS_PER_S,
					(long)(v[i].mtime_ns % NS_PER_S));
		if (archive_write_header(a, x) < ARCHIVE_WARN)
			fail_msg("%s: %s", format, archive_error_string(a));
		if (v[i].size)
			assert_int_equal(archive_write_data(a, data, v[i].size), v[i].size);
		archive_entry_free(x);
	}
	assert_int_equal(archive_write_close(a), ARCHIVE_OK);
	archive_write_free(a);
	assert_int_equal(buf_put(b, out, used), 0);
}

/* A1, D1, D3 */
static void libarchives_archives_are_read_as_it_reads_them(void **state)
{
	static const struct {
		const char *format;
		size_t most;
		bool ns, odd;
	} t[] = {{"v7tar", 90, false, true},   {"ustar", 90, false, true},
		 {"gnutar", 500, false, true}, {"pax", 500, true, false},
		 {"paxr", 500, true, false},   {"pax", 90, true, true}};
	static struct node v[NODES];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		_cleanup_buf_ struct buf b = BUF_INIT(ARCHIVE_MAX);

		make_tree(v, t[i].most, t[i].ns, t[i].odd);
		write_theirs(t[i].format, v, &b);
		both_see_the_same(t[i].format, &b, NODES);
	}
}

static void our_archives_are_read_by_libarchive(void **state)
{
	static struct node v[NODES];
	static const size_t most[] = {20, 99, 160, 254, 500};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(most); i++) {
		_cleanup_buf_ struct buf b = BUF_INIT(ARCHIVE_MAX);

		make_tree(v, most[i], i % 2, true);
		write_ours(v, &b);
		both_see_the_same("our writer", &b, NODES);
	}
}

/* --- archives from programs: a tree on disk --- */

static void put_file(int dir, const char *path, const char *p, size_t n, off_t at)
{
	int fd = openat(dir, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0640);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, p, n, at), n);
	close(fd);
}

static void make_disk_tree(int dir)
{
	static const char *const odd[] = {"-rf",	"--checkpoint-action=exec=sh x",
					  "new\nline",	"tab\t",
					  " both ",	"back\\slash",
					  "q\"'`$(id)", "x -> a",
					  "\xe9",	"a;b",
					  "*"};
	char name_[256], big[4096];

	assert_int_equal(mkdirat(dir, "d", 0755), 0);
	for (size_t i = 0; i < ARRAY_LEN(odd); i++)
		put_file(dir, odd[i], odd[i], strlen(odd[i]), 0);
	memset(name_, 'n', 250);
	name_[250] = '\0';
	put_file(dir, name_, "long", 4, 0);
	memset(big, 'b', sizeof(big));
	put_file(dir, "d/big", big, sizeof(big), 0);
	put_file(dir, "d/empty", "", 0, 0);
	assert_int_equal(linkat(dir, "d/big", dir, "d/hard", 0), 0);
	assert_int_equal(symlinkat("../somewhere/else", dir, "d/link"), 0);
	assert_int_equal(symlinkat(name_, dir, "long-target"), 0);
	assert_int_equal(mkfifoat(dir, "fifo", 0600), 0);
	for (off_t i = 0; i < 70; i++) /* more extents than one old GNU header block holds */
		put_file(dir, "sparse", "data", 4, i * 65536);
	put_file(dir, "hole", "x", 1, 5 << 20);
	assert_int_equal(mkdirat(dir, "d/closed", 0500), 0);
}

/* Output of argv in dir into b; false if there is no such program. */
static bool output(int dir, const char *const *argv, struct buf *b)
{
	int out = memfd_create("archive", MFD_CLOEXEC), status;
	ssize_t n;
	char *to;
	pid_t pid = fork();

	assert_true(out >= 0 && pid >= 0);
	if (pid == 0) {
		int null = open("/dev/null", O_RDWR | O_CLOEXEC);

		if (fchdir(dir) == 0 && dup2(out, 1) == 1 && dup2(null, 2) == 2)
			(void)execvp(argv[0], (char *const *)(uintptr_t)argv);
		_exit(127);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	while ((to = buf_room(b, 65536)) && (n = pread(out, to, 65536, (off_t)b->len)) > 0)
		buf_add(b, (size_t)n);
	close(out);
	return WEXITSTATUS(status) != 127;
}

/* A1, A17, A19, D3, D4: programs disagree about what a format can hold, never about what an archive says. */
static void archives_of_programs_are_read_as_libarchive_reads_them(void **state)
{
#define TAR "tar", "-cf", "-"
	static const struct {
		const char *argv[10];
		size_t members; /* at least */
	} t[] = {
	    {{TAR, "--format=v7", "."}, 15},
	    {{TAR, "--format=oldgnu", "."}, 20},
	    {{TAR, "--format=gnu", "."}, 20},
	    {{TAR, "--format=ustar", "."}, 20},
	    {{TAR, "--format=pax", "."}, 20},
	    {{TAR, "--format=gnu", "-S", "."}, 20},
	    {{TAR, "--format=oldgnu", "-S", "."}, 20},
	    /* a global header and a local one; both, and times, in each member */
	    {{TAR, "--format=pax", "--pax-option=comment=hi,globexthdr.name=g,gname:=x", "."}, 20},
	    {{TAR, "--format=pax", "--pax-option=exthdr.name=%d/x/%f,delete=ctime", "-S", "."}, 20},
	    {{TAR, "--format=pax", "-S", "--sparse-version=0.0", "."}, 20},
	    {{TAR, "--format=pax", "-S", "--sparse-version=0.1", "."}, 20},
	    {{TAR, "--format=pax", "-S", "--sparse-version=1.0", "."}, 20},
	    {{TAR, "--format=gnu", "-V", "label", "."}, 20},
	    {{"bsdtar", "-cf", "-", "--format=pax", "."}, 20},
	    {{"bsdtar", "-cf", "-", "--format=gnutar", "."}, 20},
	    {{"bsdtar", "-cf", "-", "--format=ustar", "."}, 15},
	    {{"bsdtar", "-cf", "-", "--format=v7tar", "."}, 15},
	    {{"bsdtar", "-cf", "-", "--read-sparse", "--format=pax", "."}, 20},
	    {{"busybox", "tar", "-cf", "-", "."}, 20},
	    {{"python3", "-c",
	      "import tarfile,sys\nt=tarfile.open(fileobj=sys.stdout.buffer,mode='w|')\nt.add('.')\nt.close()"},
	     20},
	    {{"python3", "-c",
	      "import tarfile,sys\nt=tarfile.open(fileobj=sys.stdout.buffer,mode='w|',format=tarfile.GNU_FORMAT)\n"
	      "t.add('.')\nt.close()"},
	     20},
	};
	char path[] = "/tmp/airlock-tar-XXXXXX";
	static const char *const remove[] = {"rm", "-rf", "--", NULL, NULL};
	const char *rm[ARRAY_LEN(remove)];
	_cleanup_buf_ struct buf none = BUF_INIT(1 << 20);
	_cleanup_fd_ int dir = -1;
	size_t tried = 0;

	(void)state;
	assert_non_null(scratch_dir(path));
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(dir >= 0);
	make_disk_tree(dir);
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		_cleanup_buf_ struct buf b = BUF_INIT(ARCHIVE_MAX);

		if (!output(dir, t[i].argv, &b)) {
			assert_string_not_equal(
			    t[i].argv[0],
			    "tar"); /* essential on Debian; the others may be missing */
			continue;
		}
		both_see_the_same(t[i].argv[3], &b, t[i].members);
		tried++;
	}
	assert_true(tried >= 10);
	memcpy(rm, remove, sizeof(rm));
	rm[3] = path;
	assert_true(output(dir, rm, &none));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(libarchives_archives_are_read_as_it_reads_them),
	    cmocka_unit_test(our_archives_are_read_by_libarchive),
	    cmocka_unit_test(archives_of_programs_are_read_as_libarchive_reads_them),
	};

	/* libarchive converts names; a byte locale makes it leave them alone. */
	(void)setlocale(LC_ALL, "C.UTF-8");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
