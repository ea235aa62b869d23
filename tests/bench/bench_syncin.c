/*
 * bench_syncin DIR FILES RUNS [git]: sync_in() beside `cp -a` and the no-change pass of `rsync -a` over a
 * tree of FILES files of 2 KiB, 100 a directory. One JSON line:
 *   {"files":..,"first_ns":..,"cp_ns":..,"same_ns":..,"rsync_ns":..,"changed_ns":..}
 * first: an empty store. same: nothing changed. changed: 20 files changed. Each figure is the median of RUNS;
 * the programs take turns, so that all see the same load. With "git" the tree is a committed repository
 * and the policy is the default, shallow: the history is made beside the files.
 *
 * Everything is made below DIR and nothing is deleted: on ext4, making many files soon after deleting
 * many is ten times slower. The caller deletes DIR when all measures are done.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "os/process.h"
#include "sync/sync_in.h"

#define RUNS_MAX 100
#define PER_DIR 100
#define SIZE 2048
#define CHANGED 20

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static int64_t median(int64_t *v, size_t n)
{
	qsort(v, n, sizeof(*v), by_value);
	return v[n / 2];
}

static void die(const char *what)
{
	fprintf(stderr, "bench_syncin: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void put(const char *path, uint64_t seed)
{
	char data[SIZE];
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	for (size_t i = 0; i < SIZE; i++) {
		seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
		data[i] = (char)('a' + (seed >> 59));
	}
	if (fd < 0 || write(fd, data, SIZE) != SIZE || close(fd) < 0)
		die(path);
}

static void file_name(char out[512], const char *ws, long i)
{
	(void)snprintf(out, 512, "%s/d%03ld/sub/file-%05ld.c", ws, i / PER_DIR, i);
}

static void make_tree(const char *ws, long files)
{
	char p[512];

	if (mkdir(ws, 0755) < 0)
		die(ws);
	for (long i = 0; i < files; i++) {
		if (i % PER_DIR == 0) {
			(void)snprintf(p, sizeof(p), "%s/d%03ld", ws, i / PER_DIR);
			(void)mkdir(p, 0755);
			(void)snprintf(p, sizeof(p), "%s/d%03ld/sub", ws, i / PER_DIR);
			(void)mkdir(p, 0755);
		}
		file_name(p, ws, i);
		put(p, (uint64_t)i);
	}
}

static int64_t timed(const char *const *argv)
{
	static const char *const env[] = {"PATH=/usr/bin:/bin", "HOME=/nonexistent", NULL};
	struct process_opts o = PROCESS_OPTS_INIT;
	int64_t t0 = clock_mono_ns();
	char tail[PROCESS_TAIL_MAX + 1];
	int status = 0;

	o.argv = argv;
	o.envp = env;
	if (process_run(&o, &status, tail, NULL) < 0 || status) {
		fprintf(stderr, "bench_syncin: %s: %s\n", argv[0], tail);
		exit(1);
	}
	return clock_mono_ns() - t0;
}

static int64_t sync_once(const char *ws, const char *store, bool want_reused)
{
	struct sync_in_opts o = {
	    .workspace = ws, .store = store, .owner = (uid_t)-1, .group = (gid_t)-1};
	struct sync_in_result r;
	struct err e = ERR_INIT;
	int64_t t0 = clock_mono_ns(), took;

	if (sync_in(&o, &r, &e) < 0) {
		fprintf(stderr, "bench_syncin: %s\n", e.text);
		exit(1);
	}
	took = clock_mono_ns() - t0;
	if (r.reused != want_reused) {
		fprintf(stderr, "bench_syncin: reused is %d\n", r.reused);
		exit(1);
	}
	sync_in_result_done(&r);
	return took;
}

static void make_repo(const char *ws)
{
	const char *const init[] = {"git", "-C", ws, "init", "-q", NULL};
	/* "Big" files go straight into one pack, as a real checkout has it; loose ones would be as many files again. */
	const char *const add[] = {"git", "-C", ws,  "-c", "core.bigFileThreshold=1k",
				   "add", "-A", NULL};
	const char *const commit[] = {
	    "git", "-C",	ws,	  "-c", "user.name=b", "-c", "user.email=b@b",
	    "-c",  "gc.auto=0", "commit", "-q", "-m",	       "b",  NULL};

	(void)timed(init);
	(void)timed(add);
	(void)timed(commit);
}

int main(int argc, char **argv)
{
	static int64_t first[RUNS_MAX], cp[RUNS_MAX], same[RUNS_MAX], rsync[RUNS_MAX],
	    changed[RUNS_MAX];
	char base[256], ws[300], store[320], to[320], from[320], p[4096];
	long files = argc > 2 ? strtol(argv[2], NULL, 10) : 0,
	     runs = argc > 3 ? strtol(argv[3], NULL, 10) : 0;
	const char *const cp_argv[] = {"cp", "-a", ws, to, NULL};
	const char *const rsync_argv[] = {"rsync", "-a", from, to, NULL};

	if (files < CHANGED || runs < 1 || runs > RUNS_MAX || !realpath(argv[1], p) ||
	    strlen(p) > 200) {
		fprintf(stderr, "usage: bench_syncin DIR FILES RUNS [git]\n");
		return 2;
	}
	(void)snprintf(base, sizeof(base), "%.200s", p);
	(void)snprintf(ws, sizeof(ws), "%s/ws", base);
	(void)snprintf(from, sizeof(from), "%s/", ws);
	make_tree(ws, files);
	if (argc > 4 && strcmp(argv[4], "git") == 0)
		make_repo(ws);
	sync();
	/* Stamps of this very moment would be read again on the next pass, by design. */
	for (int64_t until = clock_mono_ns() + 50 * NS_PER_MS; clock_mono_ns() < until;)
		;
	for (long i = 0; i < runs; i++) {
		(void)snprintf(to, sizeof(to), "%s/cp%ld", base, i);
		(void)snprintf(store, sizeof(store), "%s/store%ld", base, i);
		cp[i] = timed(cp_argv);
		first[i] = sync_once(ws, store, false);
	}
	for (long i = 0; i < runs; i++) {
		rsync[i] = timed(rsync_argv);
		same[i] = sync_once(ws, store, true);
	}
	for (long i = 0; i < runs; i++) {
		for (long k = 0; k < CHANGED; k++) {
			file_name(p, ws, k * (files / CHANGED));
			put(p, (uint64_t)(i * 1000 + k));
		}
		changed[i] = sync_once(ws, store, false);
	}
	printf("{\"files\":%ld,\"first_ns\":%" PRId64 ",\"cp_ns\":%" PRId64 ",\"same_ns\":%" PRId64
	       ",\"rsync_ns\":%" PRId64 ",\"changed_ns\":%" PRId64 "}\n",
	       files, median(first, (size_t)runs), median(cp, (size_t)runs),
	       median(same, (size_t)runs), median(rsync, (size_t)runs),
	       median(changed, (size_t)runs));
	return 0;
}
