/* S1-09: the list of changes is sorted, the last of equal paths wins, memory does not grow with it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "sync/chlist.h"

static void put(struct chlist *l, uint64_t seq, const char *path)
{
	struct change c = {
	    .kind = MK_FILE, .seq = seq, .id = seq + 1, .path_len = (uint32_t)strlen(path)};

	memcpy(c.path, path, c.path_len + 1);
	assert_int_equal(chlist_add(l, &c), 0);
}

static void check_sorted(struct chlist *l, uint64_t n)
{
	struct change a = {0}, b;

	assert_int_equal(chlist_count(l), n);
	for (uint64_t i = 0; i < n; i++) {
		assert_int_equal(chlist_get(l, i, &b), 0);
		assert_int_equal(b.path[b.path_len], '\0');
		if (i)
			assert_true(manifest_path_cmp(a.path, a.path_len, b.path, b.path_len) < 0);
		a = b;
	}
}

static void test_small(void **state)
{
	static const char *const order[] = {"b", "a/x", "a", "a-b", "", "b", "a/x/y", "b"};
	_cleanup_fd_ int dir = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct chlist *l;
	struct change c;
	uint64_t at;

	(void)state;
	assert_int_equal(chlist_new(dir, &l), 0);
	for (size_t i = 0; i < ARRAY_LEN(order); i++)
		put(l, i, order[i]);
	assert_int_equal(chlist_seal(l), 0);
	check_sorted(l, 6);
	assert_int_equal(chlist_find(l, "b", 1, &c), 1);
	assert_int_equal(c.seq, 7);
	assert_int_equal(chlist_find(l, "", 0, &c), 1);
	assert_int_equal(chlist_find(l, "a/", 2, &c), 0);
	assert_int_equal(chlist_seek(l, "b", 1, &at), 0);
	assert_int_equal(chlist_get(l, at, &c), 0);
	assert_string_equal(c.path, "b");
	assert_int_equal(chlist_seek(l, "\xff", 1, &at), 0);
	assert_int_equal(at, chlist_count(l));
	chlist_free(l);
	assert_int_equal(chlist_new(dir, &l), 0);
	assert_int_equal(chlist_seal(l), 0);
	check_sorted(l, 0);
	assert_int_equal(chlist_find(l, "a", 1, &c), 0);
	chlist_free(l);
}

/* Many runs, long and short paths, duplicates across runs. */
static void test_spilled(void **state)
{
	_cleanup_fd_ int dir = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct rusage before, after;
	enum { N = 60000 };
	struct chlist *l;
	struct change c;
	char path[700];

	(void)state;
	(void)getrusage(RUSAGE_SELF, &before);
	assert_int_equal(chlist_new(dir, &l), 0);
	for (uint64_t i = 0; i < N; i++) {
		uint64_t k = i * 7919 % (N / 2); /* each twice */

		(void)snprintf(path, sizeof(path), "%llx/%0*llu", (unsigned long long)(k % 97),
			       k % 50 ? 5 : 600, (unsigned long long)k);
		put(l, i, path);
	}
	assert_int_equal(chlist_seal(l), 0);
	check_sorted(l, N / 2);
	for (uint64_t i = 0; i < N; i += 611) {
		uint64_t k = i * 7919 % (N / 2);

		(void)snprintf(path, sizeof(path), "%llx/%0*llu", (unsigned long long)(k % 97),
			       k % 50 ? 5 : 600, (unsigned long long)k);
		assert_int_equal(chlist_find(l, path, strlen(path), &c), 1);
		assert_true(c.seq >= N / 2); /* the second of the two */
	}
	(void)getrusage(RUSAGE_SELF, &after);
	/* KiB; the list itself has 9 MiB. valgrind keeps three bytes of its own for each of ours. */
	if (!getenv("UNDER_VALGRIND"))
		assert_true(after.ru_maxrss - before.ru_maxrss < 4096);
	chlist_free(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_small),
	    cmocka_unit_test(test_spilled),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
