/*
 * bench_ssh DIR ROUNDS WORD...: a command over a live session of ssh (WORD...: as of sandbox_spec.remote), beside `sh -c true` here.
 *
 * Prints one JSON line: medians in ns of live (GM_EXEC of sh -c true to its last event) and sh (spawn of the same here), interleaved.
 * DIR is empty and on a disk. Must lie beside the programs (tests/integ/native-run does that).
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench_common.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/path.h"
#include "base/str.h"
#include "provider/provider.h"
#include "wire/manifest.h"

#define ROUNDS_MAX 2000
#define W(s) ((char *)(uintptr_t)(s))

static void empty_manifest(const char *path)
{
	static struct manifest_writer w;
	_cleanup_fd_ int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	struct err e = ERR_INIT;

	if (fd < 0 || manifest_writer_init(&w, fd, &e) < 0 || manifest_writer_finish(&w, &e) < 0)
		bench_die(path, fd < 0 ? NULL : &e);
	manifest_writer_done(&w);
}

static void spawn_true(void)
{
	extern char **environ;
	int status = 1;
	pid_t pid;

	if (posix_spawnp(&pid, bench_true[0], NULL, NULL, bench_true, environ) != 0)
		bench_die("sh", NULL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (status)
		bench_die("sh", NULL);
}

int main(int argc, char **argv)
{
	static char *none[] = {NULL};
	static int64_t live[ROUNDS_MAX], plain[ROUNDS_MAX];
	struct sandbox_spec s = {.lease_id = "bench", .hostname = "airlock", .net = NET_HOST};
	_cleanup_free_ char *manifest = NULL, *lease = NULL;
	struct sandbox *sb = NULL;
	struct err e = ERR_INIT;
	uint64_t rounds;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (argc < 4 || str_to_u64(argv[2], ROUNDS_MAX, &rounds) < 0 || rounds == 0)
		bench_die("usage: bench_ssh DIR ROUNDS WORD...", NULL);
	manifest = path_join(argv[1], "manifest");
	lease = path_join(argv[1], "lease");
	if (!manifest || !lease || mkdir(lease, 0700) < 0)
		bench_die(argv[1], NULL);
	empty_manifest(manifest);
	s.manifest = manifest;
	s.lease_dir = lease;
	s.workspace = argv[1];
	s.remote = argv + 3;
	if (provider_ssh.acquire(&s, &sb, &e) < 0)
		bench_die("acquire", &e);
	bench_run_true(sb, sb->inside, none, null);
	for (size_t i = 0; i < rounds; i++) {
		int64_t t = clock_mono_ns();

		bench_run_true(sb, sb->inside, none, null);
		live[i] = clock_mono_ns() - t;
		t = clock_mono_ns();
		spawn_true();
		plain[i] = clock_mono_ns() - t;
	}
	if (provider_ssh.release(sb, &e) < 0 || provider_ssh.forget(&s, false, &e) < 0)
		bench_die("release", &e);
	qsort(live, rounds, sizeof(*live), bench_compare);
	qsort(plain, rounds, sizeof(*plain), bench_compare);
	(void)printf("{\"rounds\":%" PRIu64 ",\"live_ns\":%" PRId64 ",\"sh_ns\":%" PRId64 "}\n",
		     rounds, live[rounds / 2], plain[rounds / 2]);
	return 0;
}
