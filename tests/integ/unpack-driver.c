/*
 * unpack-driver: the engine's part around door 1, for tests in Python.
 *
 *   unpack-driver run --root R --run-dir D [--manifest M] [--layer L]... [--strict] [--dry-run]
 *                     [--review] [--apply] [--full] [--take] [--total N] [--lock-wait MS]
 *                     [--skip-prefix P] [--pause FIFO] [--no-recover] [--keep-trash] [--tell-left]
 *                     [--state S]   stream on standard input
 *   unpack-driver recover R [S]
 *
 * Prints one line of JSON. --pause: when the list of new paths is there, opens FIFO for reading
 * (so a test can act on the host between staging and publishing) and goes on at its end.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "sync/unpack.h"

struct hooks {
	const char *skip, *pause;
};

static int filter(void *arg, char *const *paths, size_t n, bool *skip, struct err *e)
{
	const struct hooks *h = arg;
	char c;

	(void)e;
	for (size_t i = 0; h->skip && i < n; i++)
		skip[i] = str_starts(paths[i], h->skip);
	if (h->pause) {
		_cleanup_fd_ int fd = open(h->pause, O_RDONLY | O_CLOEXEC);

		while (read(fd, &c, 1) > 0)
			;
	}
	return 0;
}

static void print_text(const char *key, const char *s)
{
	(void)printf("\"%s\":\"", key);
	for (; *s; s++) {
		if (*s == '"' || *s == '\\')
			(void)putchar('\\');
		if ((unsigned char)*s >= 0x20 && (unsigned char)*s < 0x7f)
			(void)putchar(*s);
	}
	(void)printf("\",");
}

static int report(int r, const struct unpack_report *rep, const struct err *e)
{
	struct rusage ru;

	(void)getrusage(RUSAGE_CHILDREN, &ru);
	(void)printf("{\"ret\":%d,", r);
	print_text("code", err_name(e->code));
	print_text("text", e->text);
	print_text("rule", rep->rule);
	(void)printf(
	    "\"rejected\":%s,\"mass_delete\":%s,\"bytes\":%llu,\"maxrss_kib\":%ld,\"counts\":{",
	    rep->rejected ? "true" : "false", rep->mass_delete ? "true" : "false",
	    (unsigned long long)rep->bytes_written, ru.ru_maxrss);
	for (int a = 0; a < UA_ACTION_COUNT; a++)
		(void)printf("%s\"%s\":%llu", a ? "," : "",
			     unpack_action_name((enum unpack_action)a),
			     (unsigned long long)rep->counts[a]);
	(void)printf("}}\n");
	return r < 0 ? 1 : 0;
}

static int usage(void)
{
	(void)fprintf(stderr, "usage: unpack-driver run|recover ...\n");
	return 2;
}

int main(int argc, char **argv)
{
	struct hooks h = {0};
	struct unpack_opts o = {.stream_fd = STDIN_FILENO, .filter = filter, .filter_arg = &h};
	struct unpack_report rep = {0};
	struct err e = ERR_INIT, left;
	uint64_t n;
	int r;

	if ((argc == 3 || argc == 4) && str_eq(argv[1], "recover")) {
		r = unpack_recover(argv[2], argv[3], &left, &e);
		if (r >= 0 && left.code != ERR_NONE)
			e = left;
		return report(r, &rep, &e);
	}
	if (argc < 2 || !str_eq(argv[1], "run"))
		return usage();
	for (int i = 2; i < argc; i++) {
		const char *a = argv[i], *v = i + 1 < argc ? argv[i + 1] : "";

		if (str_eq(a, "--strict"))
			o.strict = true;
		else if (str_eq(a, "--dry-run"))
			o.dry_run = true;
		else if (str_eq(a, "--review"))
			o.review = true;
		else if (str_eq(a, "--apply"))
			o.apply = true;
		else if (str_eq(a, "--no-recover"))
			o.no_recover = true;
		else if (str_eq(a, "--keep-trash"))
			o.keep_trash = true;
		else if (str_eq(a, "--tell-left"))
			o.tell_left = true;
		else if (str_eq(a, "--full"))
			o.full_tree = true;
		else if (str_eq(a, "--take"))
			o.on_conflict = CONFLICT_TAKE_SANDBOX;
		else if (++i >= argc)
			return usage();
		else if (str_eq(a, "--root"))
			o.root = v;
		else if (str_eq(a, "--run-dir"))
			o.run_dir = v;
		else if (str_eq(a, "--state"))
			o.state_dir = v;
		else if (str_eq(a, "--manifest"))
			o.manifest_path = v;
		else if (str_eq(a, "--skip-prefix"))
			h.skip = v;
		else if (str_eq(a, "--pause"))
			h.pause = v;
		else if (str_eq(a, "--layer") && strv_add((char ***)(uintptr_t)&o.layers, v) == 0)
			continue;
		else if (str_eq(a, "--total") && str_to_u64(v, UINT64_MAX, &n) == 0)
			o.total_max = n;
		else if (str_eq(a, "--lock-wait") && str_to_u64(v, UINT32_MAX, &n) == 0)
			o.lock_wait_ms = (uint32_t)n;
		else if (str_eq(a, "--slow") && str_to_u64(v, UINT32_MAX, &n) == 0)
			o.slow_ms = (uint32_t)n;
		else
			return usage();
	}
	if (!o.root || !o.run_dir)
		return usage();
	r = unpack_run(&o, &rep, &e);
	r = report(r, &rep, &e);
	unpack_report_done(&rep);
	return r;
}
