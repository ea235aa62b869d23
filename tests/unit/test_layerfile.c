/* Unit tests of src/wire/layerfile.c: a file is found by what it holds, and a damaged index is no index. */
#include "wire/layerfile.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"

#define FILES 3000
#define SIZE 7

static int fresh(void)
{
	int fd = memfd_create("layerfile", MFD_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

/* Their order is none that is sorted. */
static void set_hash(uint8_t hash[MANIFEST_HASH], size_t i)
{
	memset(hash, (int)(i * 37 % 251), MANIFEST_HASH);
	memcpy(hash + MANIFEST_HASH - sizeof(i), &i, sizeof(i));
}

static void make(int fd, size_t n)
{
	struct layerfile_entry *v = calloc(n + 1, sizeof(*v));

	assert_non_null(v);
	for (size_t i = 0; i < n; i++) {
		set_hash(v[i].hash, i);
		v[i].at = i * SIZE;
		v[i].size = SIZE;
	}
	assert_int_equal(layerfile_finish(fd, n * SIZE, v, n), 0);
	free(v);
}

static int find(const struct layerfile *l, size_t i, uint64_t size, uint64_t *ret_at)
{
	static struct manifest_entry m;

	m = (struct manifest_entry){.kind = 'f', .size = size};
	set_hash(m.hash, i);
	return layerfile_find(l, &m, ret_at);
}

static void every_file_is_found(void **state)
{
	static const size_t counts[] = {0, 1, 2, 1024, 1025, FILES};

	(void)state;
	for (size_t k = 0; k < ARRAY_LEN(counts); k++) {
		_cleanup_fd_ int fd = fresh();
		struct layerfile *l = NULL;
		uint64_t at = 0;

		make(fd, counts[k]);
		assert_int_equal(layerfile_open(fd, &l, NULL), 0);
		for (size_t i = 0; i < counts[k]; i++) {
			assert_int_equal(find(l, i, SIZE, &at), 1);
			assert_int_equal(at, i * SIZE);
		}
		assert_int_equal(find(l, counts[k], SIZE, &at), 0);
		/* The hash alone is not enough. */
		assert_int_equal(find(l, 0, SIZE + 1, &at), 0);
		layerfile_free(l);
	}
}

static void an_index_that_is_not_whole_is_refused(void **state)
{
	_cleanup_fd_ int fd = fresh();
	struct layerfile *l = NULL;
	struct err e = ERR_INIT;
	struct stat st;
	char byte;

	(void)state;
	assert_int_equal(layerfile_open(fd, &l, &e), -EPROTO);
	make(fd, 40);
	assert_int_equal(fstat(fd, &st), 0);
	for (off_t at = st.st_size - 32; at < st.st_size; at++) {
		assert_int_equal(pread(fd, &byte, 1, at), 1);
		byte ^= 1;
		assert_int_equal(pwrite(fd, &byte, 1, at), 1);
		assert_int_equal(layerfile_open(fd, &l, &e), -EPROTO);
		byte ^= 1;
		assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	}
	assert_int_equal(layerfile_open(fd, &l, &e), 0);
	layerfile_free(l);
	for (off_t n = st.st_size - 1; n >= 0; n -= 13) {
		assert_int_equal(ftruncate(fd, n), 0);
		assert_int_equal(layerfile_open(fd, &l, &e), -EPROTO);
	}
}

static void a_place_outside_the_file_is_none(void **state)
{
	_cleanup_fd_ int fd = fresh();
	struct layerfile_entry v[2] = {{.at = 5, .size = SIZE}, {.at = UINT64_MAX, .size = SIZE}};
	struct layerfile *l = NULL;
	uint64_t at = 0;

	(void)state;
	set_hash(v[0].hash, 0);
	set_hash(v[1].hash, 1);
	assert_int_equal(layerfile_finish(fd, SIZE, v, 2), 0);
	assert_int_equal(layerfile_open(fd, &l, NULL), 0);
	assert_int_equal(find(l, 0, SIZE, &at), 0);
	assert_int_equal(find(l, 1, SIZE, &at), 0);
	layerfile_free(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_file_is_found),
	    cmocka_unit_test(an_index_that_is_not_whole_is_refused),
	    cmocka_unit_test(a_place_outside_the_file_is_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
