/* heap.c under other names: the test's own memory stays the C library's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

void *heap_malloc(size_t n);
void *heap_calloc(size_t n, size_t size);
void *heap_realloc(void *p, size_t n);
void heap_free(void *p);
#undef malloc
#undef calloc
#undef realloc
#undef free
#define malloc heap_malloc
#define calloc heap_calloc
#define realloc heap_realloc
#define free heap_free
#include "base/heap.c"
#undef malloc
#undef calloc
#undef realloc
#undef free

#define SLOTS 300

static void blocks_keep_their_bytes(void **state)
{
	static unsigned char *v[SLOTS];
	static size_t len[SLOTS];
	uint64_t seed = 88172645463325252u;

	(void)state;
	for (int i = 0; i < 60000; i++) {
		size_t k, n;

		seed ^= seed << 13;
		seed ^= seed >> 7;
		seed ^= seed << 17;
		k = seed % SLOTS;
		n = (seed >> 20) % ((seed >> 40) % 50 ? 700 : 200000);
		for (size_t b = 0; b<len[k]; b += len[k]> 64 ? 61 : 1)
			assert_int_equal(v[k][b], (unsigned char)(k + b));
		if (v[k] && i % 3 == 0) {
			v[k] = heap_realloc(v[k], n);
			for (size_t b = 0; b < len[k] && b<n; b += len[k]> 64 ? 61 : 1)
				assert_int_equal(v[k][b], (unsigned char)(k + b));
		} else {
			heap_free(v[k]);
			v[k] = i % 2 ? heap_malloc(n) : heap_calloc(1, n);
			for (size_t b = 0; i % 2 == 0 && b < n; b++)
				assert_int_equal(v[k][b], 0);
		}
		assert_non_null(v[k]);
		assert_int_equal((uintptr_t)v[k] % 16, 0);
		len[k] = n;
		for (size_t b = 0; b < n; b++)
			v[k][b] = (unsigned char)(k + b);
	}
	for (size_t k = 0; k < SLOTS; k++)
		heap_free(v[k]);
}

/* The first test: nothing has been given yet. */
static void small_ones_lie_beside_the_variables(void **state)
{
	char *small = heap_malloc(100), *large = heap_malloc(5000), *p = small;

	(void)state;
	assert_true(small >= beside && small < beside + NEAR_SIZE);
	assert_true(large >= first && large < first + HEAP_SIZE);
	/* When there is no room there, they lie where all others do. */
	for (int i = 0; i < NEAR_SIZE / 100; i++)
		p = heap_malloc(100);
	assert_true(p > large && p < first + HEAP_SIZE);
	heap_free(small);
	heap_free(large);
}

/* What comes and goes for ever stays small. */
static void freed_blocks_are_used_again(void **state)
{
	char *was = near.room, *was_far = far.room;

	(void)state;
	for (int i = 0; i < 100000; i++) {
		void *a = heap_malloc(100), *b = heap_malloc(5000);

		if (i == 0)
			was = near.room, was_far = far.room;
		heap_free(a);
		heap_free(b);
	}
	assert_ptr_equal(near.room, was);
	assert_ptr_equal(far.room, was_far);
}

static void too_much_is_refused(void **state)
{
	char *p = heap_malloc(10);

	(void)state;
	memcpy(p, "unchanged", 10);
	assert_null(heap_malloc(SIZE_MAX));
	assert_null(heap_malloc(PTRDIFF_MAX));
	assert_null(heap_calloc(SIZE_MAX / 2, 3));
	assert_null(heap_realloc(p, SIZE_MAX - 8));
	assert_string_equal(p, "unchanged");
	heap_free(p);
	heap_free(NULL);
}

static int signal_of(void (*misuse)(void))
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		const struct rlimit none = {0, 0};

		(void)setrlimit(RLIMIT_CORE, &none);
		(void)signal(SIGILL, SIG_DFL);
		(void)signal(SIGTRAP, SIG_DFL);
		misuse();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void twice(void)
{
	char *p = heap_malloc(40);

	heap_free(p);
	heap_free(p);
}

static void never_given(void)
{
	static _Alignas(16) char own[64];

	heap_free(own + 32);
}

static void overrun(void)
{
	char *a, *b = heap_malloc(16);

	do {
		a = b;
		b = heap_malloc(16);
	} while (b != a + BLOCK_MIN);
	memset(a, 'x', 17);
	heap_free(b);
}

static void misuse_ends_the_program(void **state)
{
	(void)state;
	assert_int_not_equal(signal_of(twice), 0);
	assert_int_not_equal(signal_of(never_given), 0);
	assert_int_not_equal(signal_of(overrun), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(small_ones_lie_beside_the_variables),
	    cmocka_unit_test(blocks_keep_their_bytes),
	    cmocka_unit_test(freed_blocks_are_used_again),
	    cmocka_unit_test(too_much_is_refused),
	    cmocka_unit_test(misuse_ends_the_program),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
