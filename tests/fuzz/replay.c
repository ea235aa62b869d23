/*
 * replay.c: runs a fuzz target over its seeds, over files, and over mutations of both.
 *
 *   replay [--mutations N] [FILE|DIR ...]    N for each input, from a fixed sequence (default 200)
 *   replay --write DIR                       the seeds as files, for libFuzzer
 *
 * The same inputs every time: a failure repeats. The name of the input is printed before an abort.
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "fuzz/fuzz.h"

static char current[4200];
static size_t inputs;

/* Async-signal-safe on purpose: it runs after the target has gone wrong. */
static void say_current(int signo)
{
	ssize_t r = write(2, current, strlen(current));

	(void)r;
	(void)signal(signo, SIG_DFL);
	(void)raise(signo);
}

static uint64_t next_random(uint64_t *s)
{
	/* xorshift64: any fixed sequence will do */
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return *s;
}

/* In place, and shorter at most. */
static size_t mutate(uint8_t *p, size_t n, uint64_t *s)
{
	static const uint8_t words[] = {0, 1, '/', '.', '%', '-', ' ', '\n', 0x7f, 0x80, 0xff};
	size_t edits = 1 + next_random(s) % 4;

	for (size_t i = 0; i < edits && n; i++) {
		size_t at = next_random(s) % n, other = next_random(s) % n;

		switch (next_random(s) % 5) {
		case 0:
			p[at] ^= (uint8_t)(1u << (next_random(s) % 8));
			break;
		case 1:
			p[at] = words[next_random(s) % sizeof(words)];
			break;
		case 2:
			n = at;
			break;
		case 3:
			memmove(p + at, p + other, n - (at > other ? at : other));
			break;
		default:
			p[at] = (uint8_t)next_random(s);
		}
	}
	return n;
}

static void run_one(const char *name, const uint8_t *p, size_t n, size_t mutations)
{
	uint64_t s = UINT64_C(0x9e3779b97f4a7c15) ^ n;

	(void)snprintf(current, sizeof(current), "input: %.4000s\n", name);
	inputs++;
	(void)LLVMFuzzerTestOneInput(p, n);
	for (size_t i = 0; i < mutations && n; i++) {
		/* An exact copy on the heap: a sanitizer sees one byte too far. */
		_cleanup_free_ uint8_t *copy = malloc(n);
		size_t len;

		MUST(copy);
		memcpy(copy, p, n);
		len = mutate(copy, n, &s);
		(void)snprintf(current, sizeof(current), "input: %.4000s, mutation %zu\n", name, i);
		(void)LLVMFuzzerTestOneInput(copy, len);
	}
}

static int run_path(const char *path, size_t mutations)
{
	_cleanup_dir_ DIR *d = NULL;
	_cleanup_file_ FILE *f = NULL;
	_cleanup_free_ uint8_t *p = NULL;
	struct dirent *de;
	struct stat st;

	if (stat(path, &st) < 0) {
		(void)fprintf(stderr, "replay: %s: %s\n", path, strerror(errno));
		return -1;
	}
	if (S_ISREG(st.st_mode)) {
		f = fopen(path, "re");
		p = malloc((size_t)st.st_size + 1);
		if (!f || !p || fread(p, 1, (size_t)st.st_size, f) != (size_t)st.st_size)
			return -1;
		run_one(path, p, (size_t)st.st_size, mutations);
		return 0;
	}
	d = opendir(path);
	while (d && (de = readdir(d))) {
		char sub[4096];

		if (de->d_name[0] == '.')
			continue;
		if (snprintf(sub, sizeof(sub), "%s/%s", path, de->d_name) >= (int)sizeof(sub) ||
		    run_path(sub, mutations) < 0)
			return -1;
	}
	return d ? 0 : -1;
}

static int write_seeds(const char *dir)
{
	for (size_t i = 0;; i++) {
		_cleanup_buf_ struct buf b = BUF_INIT(FUZZ_SEED_MAX);
		_cleanup_file_ FILE *f = NULL;
		char path[4096];

		if (!fuzz_seed(&b, i))
			return 0;
		(void)snprintf(path, sizeof(path), "%s/seed-%03zu", dir, i);
		f = fopen(path, "we");
		if (!f || fwrite(b.data, 1, b.len, f) != b.len) {
			(void)fprintf(stderr, "replay: %s: %s\n", path, strerror(errno));
			return -1;
		}
	}
}

int main(int argc, char **argv)
{
	size_t mutations = 200;
	int i = 1;

	(void)signal(SIGABRT, say_current);
	if (argc == 3 && strcmp(argv[1], "--write") == 0)
		return write_seeds(argv[2]) < 0;
	if (argc > 2 && strcmp(argv[1], "--mutations") == 0) {
		mutations = (size_t)strtoul(argv[2], NULL, 10);
		i = 3;
	}
	for (size_t k = 0;; k++) {
		_cleanup_buf_ struct buf b = BUF_INIT(FUZZ_SEED_MAX);
		char name[32];

		if (!fuzz_seed(&b, k))
			break;
		(void)snprintf(name, sizeof(name), "seed %zu", k);
		/* A large seed costs much a time: fewer mutations of it. */
		run_one(name, (const uint8_t *)b.data, b.len,
			b.len > 65536 ? mutations / 20 : mutations);
	}
	for (; i < argc; i++)
		if (run_path(argv[i], mutations) < 0)
			return 1;
	printf("ok - %zu inputs, %zu mutations of each\n", inputs, mutations);
	return inputs ? 0 : 1;
}
