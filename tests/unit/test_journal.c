/* S1-07: intents survive, a torn tail is noticed, nothing uncommitted is believed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "sync/journal.h"

#define N 5
#define COMMIT_MAX 192 /* bytes of a commit record, at most */

static const uint8_t key[JOURNAL_KEY] = {1, 2, 3}, other[JOURNAL_KEY] = {1, 2, 4};

static void make(struct intent *in, unsigned i)
{
	*in = (struct intent){
	    .op = (uint8_t)(i ? IN_PUT : IN_HEADER),
	    .action = 3,
	    .mode = 0640 + i,
	    .id = 100 + i,
	    .new_ino = 7 * i,
	    .size = UINT64_MAX - i,
	    .old = {
		.ino = i, .size = 5, .mtime_ns = -1, .ctime_ns = INT64_MAX, .hash = {1, [31] = 2}}};
	in->path_len =
	    (uint32_t)snprintf(in->path, sizeof(in->path), "%u/\xff%*s", i, (int)(i * 700), "x");
}

static int filled(bool commit, uint64_t *end)
{
	int fd = memfd_create("journal", MFD_CLOEXEC);
	struct journal j;
	struct intent in;

	assert_true(fd >= 0);
	journal_init(&j, fd, key);
	for (unsigned i = 0; i < N; i++) {
		make(&in, i);
		assert_int_equal(journal_add(&j, &in), 0);
	}
	assert_int_equal(journal_flush(&j, end), 0);
	if (commit)
		assert_int_equal(journal_commit(&j), 0);
	journal_done(&j);
	return fd;
}

static void same(const struct intent *in, unsigned i)
{
	struct intent want;

	make(&want, i);
	assert_int_equal(in->path_len, want.path_len);
	assert_memory_equal(in->path, want.path, want.path_len + 1);
	assert_true(in->op == want.op && in->action == want.action && in->mode == want.mode &&
		    in->id == want.id && in->new_ino == want.new_ino && in->size == want.size &&
		    in->old.ino == want.old.ino && in->old.mtime_ns == want.old.mtime_ns &&
		    in->old.ctime_ns == want.old.ctime_ns &&
		    memcmp(in->old.hash, want.old.hash, INTENT_HASH) == 0);
}

static void test_both_ways(void **state)
{
	uint64_t end, flushed, pos = 0;
	_cleanup_journal_cache_ struct journal_cache k = {.key = key};
	_cleanup_fd_ int fd = filled(true, &flushed);
	struct intent in;

	(void)state;
	assert_int_equal(journal_committed(fd, key, &end), 1);
	assert_int_equal(end, flushed);
	for (unsigned i = 0; i < N; i++) {
		assert_int_equal(journal_next(fd, &k, &pos, end, &in), 1);
		same(&in, i);
	}
	assert_int_equal(journal_next(fd, &k, &pos, end, &in), 0);
	for (unsigned i = N; i-- > 0;) {
		assert_int_equal(journal_prev(fd, &k, &pos, &in), 1);
		same(&in, i);
	}
	assert_int_equal(journal_prev(fd, &k, &pos, &in), 0);
}

/* Cut at every length: committed only when whole. */
static void test_torn_tail(void **state)
{
	uint64_t end, flushed;
	_cleanup_fd_ int fd = filled(true, &flushed);
	off_t size = lseek(fd, 0, SEEK_END);

	(void)state;
	for (off_t n = size - 1; n >= 0; n -= n > size - 200 ? 1 : 37) {
		assert_int_equal(ftruncate(fd, n), 0);
		assert_int_equal(journal_committed(fd, key, &end), 0);
	}
}

/* Any flipped byte makes it uncommitted, never a different intent. */
static void test_damage(void **state)
{
	uint64_t end, flushed;
	_cleanup_fd_ int fd = filled(true, &flushed);
	off_t size = lseek(fd, 0, SEEK_END);

	(void)state;
	for (off_t at = 0; at < size; at += 13) {
		uint8_t b, bad;

		assert_int_equal(pread(fd, &b, 1, at), 1);
		bad = b ^ 0x10;
		assert_int_equal(pwrite(fd, &bad, 1, at), 1);
		assert_int_not_equal(journal_committed(fd, key, &end), 1);
		assert_int_equal(pwrite(fd, &b, 1, at), 1);
	}
	assert_int_equal(journal_committed(fd, key, &end), 1);
}

static void test_uncommitted(void **state)
{
	uint64_t end, flushed;
	_cleanup_fd_ int fd = filled(false, &flushed);
	_cleanup_fd_ int empty = memfd_create("empty", MFD_CLOEXEC);

	(void)state;
	assert_int_equal(journal_committed(fd, key, &end), 0);
	assert_int_equal(journal_committed(empty, key, &end), 0);
}

static void add(struct journal *j, unsigned i)
{
	struct intent in;

	make(&in, i);
	assert_int_equal(journal_add(j, &in), 0);
}

static int copy_of(int fd, uint64_t n)
{
	int to = memfd_create("copy", MFD_CLOEXEC);
	char b[64 << 10];

	assert_true(to >= 0 && n <= sizeof(b) && pread(fd, b, n, 0) == (ssize_t)n &&
		    write(to, b, n) == (ssize_t)n);
	return to;
}

/* B-01: whole, and of another key: planted, moved here from another place, or another user's. */
static void test_B01_another_key(void **state)
{
	_cleanup_journal_cache_ struct journal_cache k = {.key = other};
	uint64_t end, flushed, pos = 0;
	_cleanup_fd_ int fd = filled(true, &flushed);
	struct intent in;

	(void)state;
	assert_int_equal(journal_committed(fd, other, &end), -EKEYREJECTED);
	assert_int_equal(journal_next(fd, &k, &pos, flushed, &in), -EBADMSG);
	assert_int_equal(journal_prev(fd, &k, &flushed, &in), -EBADMSG);
	assert_int_equal(journal_committed(fd, key, &end), 1);
}

/* B-01: records that are all ours, but in another order, or with the commit of another journal of this key. */
static void test_B01_spliced(void **state)
{
	uint64_t end, n;
	_cleanup_fd_ int fd = memfd_create("a", MFD_CLOEXEC), two = memfd_create("b", MFD_CLOEXEC);
	_cleanup_fd_ int cut = -1;
	char commit[COMMIT_MAX];
	struct journal a, b;
	ssize_t len;

	(void)state;
	journal_init(&a, fd, key);
	journal_init(&b, two, key);
	add(&a, 0), add(&a, 1), add(&b, 1), add(&b, 0);
	assert_int_equal(journal_flush(&b, &n), 0);
	cut = copy_of(two, n);
	assert_int_equal(journal_flush(&a, &n), 0);
	assert_true(journal_commit(&a) == 0 && journal_commit(&b) == 0);
	assert_int_equal(journal_committed(two, key, &end), 1);
	len = pread(fd, commit, sizeof(commit), (off_t)n);
	assert_true(len > 0 && pwrite(cut, commit, (size_t)len, (off_t)n) == len);
	assert_int_equal(journal_committed(cut, key, &end), -EKEYREJECTED);
	journal_done(&a);
	journal_done(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_both_ways),	    cmocka_unit_test(test_torn_tail),
	    cmocka_unit_test(test_damage),	    cmocka_unit_test(test_uncommitted),
	    cmocka_unit_test(test_B01_another_key), cmocka_unit_test(test_B01_spliced),
	};

	return sodium_init() < 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
