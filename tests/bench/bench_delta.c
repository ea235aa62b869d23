/*
 * bench_delta: the comparing packer (guest/delta.h) from the command line, for ./do bench delta and by hand.
 *
 * bench_delta index TREE MANIFEST INDEX    as right after TREE has landed
 * bench_delta pack TREE INDEX N            N times, the stream of the last to standard output
 * Prints one JSON line on standard error.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "guest/delta.h"

static int failed(const char *what, const struct err *e)
{
	(void)fprintf(stderr, "bench_delta: %s: %s\n", what, e->text);
	return 1;
}

/* Not getrusage: its maximum is inherited from whoever started us. */
static long peak_kib(void)
{
	_cleanup_file_ FILE *f = fopen("/proc/self/status", "re");
	char line[128];
	long kib = -1;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "VmHWM: %ld", &kib) == 1)
			break;
	return kib;
}

static int index_tree(char **argv)
{
	_cleanup_fd_ int tree = open(argv[0], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_fd_ int sent = open(argv[1], O_RDONLY | O_CLOEXEC);
	_cleanup_fd_ int out = open(argv[2], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	struct err e = ERR_INIT;
	struct manifest *m = NULL;
	int64_t from = clock_mono_ns();
	int r;

	if (tree < 0 || sent < 0 || out < 0) {
		perror("bench_delta");
		return 1;
	}
	r = manifest_open(sent, &m, &e);
	if (r == 0)
		r = delta_index(tree, m, out, &e);
	if (r < 0)
		return failed("index", &e);
	(void)fprintf(stderr, "{\"index_ns\":%lld,\"entries\":%llu,\"peak_kib\":%ld}\n",
		      (long long)(clock_mono_ns() - from), (unsigned long long)manifest_count(m),
		      peak_kib());
	manifest_free(m);
	return 0;
}

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return x < y ? -1 : x > y;
}

static int pack(char **argv)
{
	_cleanup_fd_ int tree = open(argv[0], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_fd_ int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	long rounds = strtol(argv[2], NULL, 10);
	int64_t took[1000];
	struct pack_result res = {0};

	if (tree < 0 || null < 0 || rounds < 1 || rounds > 1000) {
		(void)fprintf(stderr, "bench_delta: no such tree, or not 1 to 1000 rounds\n");
		return 1;
	}
	for (long i = 0; i < rounds; i++) {
		_cleanup_fd_ int index = open(argv[1], O_RDONLY | O_CLOEXEC);
		int64_t from = clock_mono_ns();
		struct err e = ERR_INIT;
		struct delta *d = NULL;
		int r;

		res = (struct pack_result){0};
		r = delta_open(index, &d, &e);
		if (r == 0)
			r = delta_write(d, tree, i + 1 == rounds ? STDOUT_FILENO : null, &res);
		delta_free(d);
		if (r < 0) {
			(void)fprintf(stderr, "bench_delta: %s\n",
				      e.text[0] ? e.text : strerror(-r));
			return 1;
		}
		took[i] = clock_mono_ns() - from;
	}
	qsort(took, (size_t)rounds, sizeof(*took), by_value);
	(void)fprintf(stderr, "{\"pack_ns\":%lld,\"members\":%llu,\"peak_kib\":%ld}\n",
		      (long long)took[rounds / 2], (unsigned long long)res.members, peak_kib());
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 5 && strcmp(argv[1], "index") == 0)
		return index_tree(argv + 2);
	if (argc == 5 && strcmp(argv[1], "pack") == 0)
		return pack(argv + 2);
	(void)fprintf(stderr,
		      "usage: bench_delta index TREE MANIFEST INDEX | pack TREE INDEX ROUNDS\n");
	return 2;
}
