/* The run log: RT-07 (whole and in order), FR-B139 (reading costs the new bytes), FR-B021 (what is missing is said). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <signal.h>
#include <unistd.h>

#include "wire/runlog.h"

static char path[64];

static int setup(void **state)
{
	(void)state;
	(void)snprintf(path, sizeof(path), "/tmp/airlock-runlog-%d", (int)getpid());
	(void)unlink(path);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	return unlink(path);
}

static void create(struct runlog *l, uint64_t limit)
{
	struct err e = ERR_INIT;

	if (runlog_create(l, path, limit, &e) < 0)
		fail_msg("%s", e.text);
}

static void expect(struct runlog_reader *r, enum runlog_stream s, const void *p, size_t n)
{
	struct runlog_record rec;
	struct err e = ERR_INIT;

	assert_int_equal(runlog_next(r, &rec, &e), 1);
	assert_int_equal(rec.stream, s);
	assert_int_equal(rec.n, n);
	if (n)
		assert_memory_equal(rec.p, p, n);
}

static void test_bytes_and_order(void **state)
{
	struct runlog l;
	struct runlog_reader r;
	struct runlog_record rec;
	struct err e = ERR_INIT;
	char all[256];

	(void)state;
	for (int i = 0; i < 256; i++)
		all[i] = (char)i;
	create(&l, 0);
	runlog_write(&l, RUNLOG_OUT, 11, all, sizeof(all));
	runlog_write(&l, RUNLOG_ERR, 12, "e", 1);
	runlog_write(&l, RUNLOG_OUT, 13, "\xff\xfe", 2);
	runlog_note(&l, 14, "note");
	runlog_end(&l, 15, 3);
	runlog_close(&l);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	runlog_reader_init(&r, fd, 0);
	expect(&r, RUNLOG_OUT, all, sizeof(all));
	expect(&r, RUNLOG_ERR, "e", 1);
	expect(&r, RUNLOG_OUT, "\xff\xfe", 2);
	expect(&r, RUNLOG_NOTE, "note", 4);
	expect(&r, RUNLOG_END, "\3\0\0\0", 4);
	assert_int_equal(runlog_next(&r, &rec, &e), 0);
	runlog_reader_done(&r);
	(void)close(fd);
}

static void test_read_while_written(void **state)
{
	struct runlog l;
	struct runlog_reader r;
	struct runlog_record rec;
	struct err e = ERR_INIT;

	(void)state;
	create(&l, 0);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	runlog_reader_init(&r, fd, 0);
	assert_int_equal(runlog_next(&r, &rec, &e), 0);
	for (int i = 0; i < 50; i++) {
		runlog_write(&l, RUNLOG_OUT, i, &i, sizeof(i));
		expect(&r, RUNLOG_OUT, &i, sizeof(i));
		assert_int_equal(runlog_next(&r, &rec, &e), 0);
	}
	/* FR-B139: an offset that was kept leads to the next record, in another reader. */
	uint64_t at = r.offset;
	runlog_reader_done(&r);
	runlog_write(&l, RUNLOG_ERR, 1, "new", 3);
	runlog_reader_init(&r, fd, at);
	expect(&r, RUNLOG_ERR, "new", 3);
	/* A file that became shorter is noticed. */
	assert_int_equal(ftruncate(l.fd, 20), 0);
	assert_int_equal(runlog_next(&r, &rec, &e), -ESTALE);
	runlog_reader_done(&r);
	runlog_close(&l);
	(void)close(fd);
}

/* Every length at which a crash can cut the file: whole records come, nothing else, no error. */
static void test_torn_tail_at_every_byte(void **state)
{
	struct runlog l;
	struct err e = ERR_INIT;
	struct stat st;

	(void)state;
	create(&l, 0);
	runlog_write(&l, RUNLOG_OUT, 1, "abcdef", 6);
	runlog_write(&l, RUNLOG_ERR, 2, "ghi", 3);
	assert_int_equal(fstat(l.fd, &st), 0);
	for (off_t cut = st.st_size; cut >= 0; cut--) {
		struct runlog_reader r;
		struct runlog_record rec;
		int n = 0, k;

		assert_int_equal(ftruncate(l.fd, cut), 0);
		runlog_reader_init(&r, l.fd, 0);
		while ((k = runlog_next(&r, &rec, &e)) > 0)
			n++;
		assert_int_equal(k, 0);
		assert_int_equal(n, cut == st.st_size ? 2 : (cut >= 8 + 16 + 6 ? 1 : 0));
		runlog_reader_done(&r);
	}
	runlog_close(&l);
}

static void test_append_after_a_crash(void **state)
{
	struct runlog l;
	struct runlog_reader r;
	struct err e = ERR_INIT;

	(void)state;
	create(&l, 0);
	runlog_write(&l, RUNLOG_OUT, 1, "abc", 3);
	assert_int_equal(pwrite(l.fd, "\1\0\0\0\377", 5, (off_t)l.end), 5);
	runlog_close(&l);
	assert_int_equal(runlog_append(&l, path, &e), 0);
	runlog_write(&l, RUNLOG_OUT, 2, "def", 3);
	runlog_reader_init(&r, l.fd, 0);
	expect(&r, RUNLOG_OUT, "abc", 3);
	expect(&r, RUNLOG_OUT, "def", 3);
	runlog_reader_done(&r);
	runlog_close(&l);
}

static void test_limit_and_marker(void **state)
{
	static const uint8_t missing[8] = {7};
	struct runlog l;
	struct runlog_reader r;

	(void)state;
	create(&l, 10);
	runlog_write(&l, RUNLOG_OUT, 1, "01234567", 8);
	runlog_write(&l, RUNLOG_OUT, 1, "89abc", 5);
	runlog_write(&l, RUNLOG_ERR, 1, "defg", 4);
	runlog_end(&l, 2, 0);
	assert_int_equal(l.dropped, 7);
	runlog_reader_init(&r, l.fd, 0);
	expect(&r, RUNLOG_OUT, "01234567", 8);
	expect(&r, RUNLOG_OUT, "89", 2);
	expect(&r, RUNLOG_DROPPED, missing, 8);
	expect(&r, RUNLOG_END, "\0\0\0\0", 4);
	runlog_reader_done(&r);
	runlog_close(&l);
}

/* No room in the middle of a record: it is cut off again, and what follows later is whole. */
static void test_no_space(void **state)
{
	static const uint8_t missing[8] = {100};
	struct rlimit old, lim;
	struct runlog l;
	struct runlog_reader r;
	char big[100] = "x";

	(void)state;
	create(&l, 0);
	runlog_write(&l, RUNLOG_OUT, 1, "abc", 3);
	(void)signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	lim = old;
	lim.rlim_cur = l.end + 30;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &lim), 0);
	runlog_write(&l, RUNLOG_OUT, 2, big, sizeof(big));
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_int_equal(l.dropped, 100);
	assert_true(l.error != 0);
	runlog_write(&l, RUNLOG_OUT, 3, "def", 3);
	runlog_reader_init(&r, l.fd, 0);
	expect(&r, RUNLOG_OUT, "abc", 3);
	expect(&r, RUNLOG_DROPPED, missing, 8);
	expect(&r, RUNLOG_OUT, "def", 3);
	runlog_reader_done(&r);
	runlog_close(&l);
}

static void test_garbage(void **state)
{
	struct runlog l;
	struct runlog_reader r;
	struct runlog_record rec;
	struct err e = ERR_INIT;

	(void)state;
	create(&l, 0);
	assert_int_equal(pwrite(l.fd, "\11\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0x", 17, 8), 17);
	runlog_reader_init(&r, l.fd, 0);
	assert_int_equal(runlog_next(&r, &rec, &e), -EPROTO);
	assert_int_equal(pwrite(l.fd, "NOTALOG!", 8, 0), 8);
	r.offset = 0;
	assert_int_equal(runlog_next(&r, &rec, &e), -EPROTO);
	runlog_reader_done(&r);
	runlog_close(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_bytes_and_order, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_read_while_written, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_torn_tail_at_every_byte, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_append_after_a_crash, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_limit_and_marker, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_no_space, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_garbage, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
