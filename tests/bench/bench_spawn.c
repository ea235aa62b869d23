/*
 * bench_spawn N CMD ARG...: starts CMD N times, one after the other, and prints one JSON line with the
 * wall time of start to end: {"n":..,"median_ns":..,"min_ns":..,"p95_ns":..,"failed":..}.
 *
 * posix_spawn (vfork inside), so that the measuring program's own size does not count: every row of the
 * table is taken by the same program in the same way. stdout and stderr of CMD go to /dev/null.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#define RUNS_MAX 100000

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

/* Returns the wall time, or -1 when the command could not be started or did not exit with 0. */
static int64_t once(char **argv, const posix_spawn_file_actions_t *actions)
{
	extern char **environ;
	int64_t start = now_ns();
	int status = 0;
	pid_t pid;

	if (posix_spawnp(&pid, argv[0], actions, NULL, argv, environ) != 0)
		return -1;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -1;
	return status == 0 ? now_ns() - start : -1;
}

int main(int argc, char **argv)
{
	static int64_t took[RUNS_MAX];
	posix_spawn_file_actions_t actions;
	size_t n = 0, failed = 0;
	long runs;

	runs = argc > 2 ? strtol(argv[1], NULL, 10) : 0;
	if (runs < 1 || runs > RUNS_MAX) {
		fprintf(stderr, "usage: bench_spawn N CMD [ARG...]   (N from 1 to %d)\n", RUNS_MAX);
		return 2;
	}
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
	/* The first starts fill caches and do not count. */
	for (long i = 0; i < (runs < 20 ? 1 : 5); i++)
		(void)once(argv + 2, &actions);
	for (long i = 0; i < runs; i++) {
		int64_t t = once(argv + 2, &actions);

		if (t < 0)
			failed++;
		else
			took[n++] = t;
	}
	posix_spawn_file_actions_destroy(&actions);
	qsort(took, n, sizeof(took[0]), compare);
	printf("{\"n\":%zu,\"median_ns\":%" PRId64 ",\"min_ns\":%" PRId64 ",\"p95_ns\":%" PRId64
	       ",\"failed\":%zu}\n",
	       n, n ? took[n / 2] : 0, n ? took[0] : 0, n ? took[n * 95 / 100] : 0, failed);
	return n ? 0 : 1;
}
