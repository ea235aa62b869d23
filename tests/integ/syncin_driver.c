/*
 * Drives sync_in() and sync_ignored() for test_syncin.py: one call a line of output in JSON.
 *
 *   syncin_driver in WORKSPACE STORE [--git P] [--include X] [--exclude X] [--owner N] [--cancel-after N]
 *   syncin_driver ignored WORKSPACE STORE [...]      paths on stdin, NUL-ended; prints 0 or 1 each
 *   syncin_driver manifest FILE                      one entry a line
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "sync/sync_in.h"
#include "wire/manifest.h"

static void hex(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		printf("%02x", (unsigned char)p[i]);
}

/* High-water mark of this program alone; ru_maxrss would count what it was before exec. */
static long high_water_kib(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	char line[256];
	long kib = -1;

	while (f && fgets(line, sizeof(line), f))
		if (strncmp(line, "VmHWM:", 6) == 0)
			kib = strtol(line + 6, NULL, 10);
	if (f)
		(void)fclose(f);
	return kib;
}

static int show(const struct sync_in_result *r, int64_t ns)
{
	printf("{\"reused\":%s,\"is_git\":%s,\"head\":\"%s\",\"branch\":\"%s\",",
	       r->reused ? "true" : "false", r->is_git ? "true" : "false", r->head,
	       r->branch ? r->branch : "");
	printf("\"files\":%llu,\"dirs\":%llu,\"links\":%llu,\"bytes\":%llu,\"copied_files\":%llu,"
	       "\"copied_bytes\":%llu,\"excluded\":%llu,\"ms\":%.2f,\"rss_kib\":%ld,",
	       (unsigned long long)r->files, (unsigned long long)r->dirs,
	       (unsigned long long)r->links, (unsigned long long)r->bytes,
	       (unsigned long long)r->copied_files, (unsigned long long)r->copied_bytes,
	       (unsigned long long)r->excluded, (double)ns / 1e6, high_water_kib());
	printf("\"manifest\":\"%s\",\"layers\":[", r->manifest_path);
	for (size_t i = 0; r->layers[i]; i++)
		printf("%s\"%s\"", i ? "," : "", r->layers[i]);
	printf("],\"notes\":[");
	for (size_t i = 0; i < r->notes_len; i++) {
		printf("%s[\"", i ? "," : "");
		hex(r->notes[i].path, strlen(r->notes[i].path));
		printf("\",\"%s\"]", r->notes[i].reason);
	}
	printf("]}\n");
	return 0;
}

static int list(const char *file)
{
	struct manifest_entry *m = calloc(1, sizeof(*m));
	int fd = open(file, O_RDONLY | O_CLOEXEC), r;
	struct manifest *all;
	struct err e = ERR_INIT;
	size_t pos = 0;

	if (!m || fd < 0 || manifest_open(fd, &all, &e) < 0) {
		fprintf(stderr, "%s\n", e.text);
		return 1;
	}
	while ((r = manifest_next(all, &pos, m)) == 1) {
		printf("%c %o %llu %u ", m->kind, m->mode, (unsigned long long)m->size, m->layer);
		hex((const char *)m->hash, MANIFEST_HASH);
		putchar(' ');
		hex(m->target, m->target_len);
		putchar(' ');
		hex(m->path, m->path_len);
		putchar('\n');
	}
	manifest_free(all);
	free(m);
	return r < 0;
}

static int ignored(const struct sync_in_opts *o)
{
	static char in[64 << 20];
	size_t n = fread(in, 1, sizeof(in) - 1, stdin), count = 0, i = 0;
	struct err e = ERR_INIT;
	char **paths = calloc(n + 1, sizeof(*paths));
	bool *skip = calloc(n + 1, sizeof(*skip));

	for (; i < n && paths; i += strlen(in + i) + 1)
		paths[count++] = in + i;
	if (!paths || !skip || sync_ignored(o, paths, count, skip, &e) < 0) {
		fprintf(stderr, "%s: %s\n", err_name(e.code), e.text);
		return 1;
	}
	for (i = 0; i < count; i++)
		putchar(skip[i] ? '1' : '0');
	putchar('\n');
	free(paths);
	free(skip);
	return 0;
}

static long entries_left = -1; /* of the copy, until the driver cancels */

static void options(int argc, char **argv, struct sync_in_opts *o, char ***ret_inc, char ***ret_exc)
{
	for (int i = 4; i + 1 < argc; i += 2) {
		const char *v = argv[i + 1];

		if (strcmp(argv[i], "--include") == 0)
			(void)strv_add(ret_inc, v);
		else if (strcmp(argv[i], "--exclude") == 0)
			(void)strv_add(ret_exc, v);
		else if (strcmp(argv[i], "--cancel-after") == 0)
			entries_left = strtol(v, NULL, 10);
		else if (strcmp(argv[i], "--one-file") == 0)
			o->one_file = strcmp(v, "yes") == 0;
		else if (strcmp(argv[i], "--owner") == 0)
			o->owner = o->group = (uid_t)strtoul(v, NULL, 10);
		else if (strcmp(argv[i], "--git") == 0)
			o->git = strcmp(v, "none") == 0	  ? GIT_NONE
				 : strcmp(v, "full") == 0 ? GIT_FULL
							  : GIT_SHALLOW;
	}
	o->include = *ret_inc;
	o->exclude = *ret_exc;
}

static void on_progress(void *arg, const char *phase, uint64_t done, uint64_t total, uint64_t bytes)
{
	volatile int *cancel = arg;

	(void)bytes;
	(void)total;
	if (entries_left >= 0 && strcmp(phase, "copy") == 0 && (long)done >= entries_left)
		*cancel = 1;
}

int main(int argc, char **argv)
{
	static volatile int cancel;
	struct sync_in_opts o = {.owner = (uid_t)-1, .group = (gid_t)-1};
	struct sync_in_result r;
	_cleanup_strv_ char **inc = NULL, **exc = NULL;
	struct err e = ERR_INIT;
	int64_t t0;
	int q;

	if (argc == 3 && strcmp(argv[1], "manifest") == 0)
		return list(argv[2]);
	if (argc < 4)
		return 2;
	o.workspace = argv[2];
	o.store = argv[3];
	options(argc, argv, &o, &inc, &exc);
	if (strcmp(argv[1], "ignored") == 0)
		return ignored(&o);
	o.progress = on_progress;
	o.progress_arg = (void *)(uintptr_t)&cancel;
	o.cancel = &cancel;
	t0 = clock_mono_ns();
	q = sync_in(&o, &r, &e);
	if (q < 0) {
		fprintf(stderr, "%s: %s\n", err_name(e.code), e.text);
		return 1;
	}
	q = show(&r, clock_mono_ns() - t0);
	sync_in_result_done(&r);
	return q;
}
