/*
 * Streams that are hostile by their size alone: A25 and E13, S1-09. Each runs in a process of its own, which
 * must end with the limit and with at most 64 MiB ever resident.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/limits.h"
#include "mk.h"
#include "policy/member.h"

enum { RESIDENT_MAX_KB = 64 << 10 };

struct stream {
	struct tar_reader *reader;
	struct members *members;
	const char *rule; /* that ended it */
	uint64_t fed;
};

static bool feed(struct stream *s, const struct buf *b)
{
	const uint8_t *p = (const uint8_t *)b->data;
	size_t n = b->len;
	struct tar_out out;
	const char *rule;
	int ev;

	s->fed += b->len;
	while ((ev = tar_reader_next(s->reader, &p, &n, &out, NULL)) != TAR_NEED) {
		if (ev < 0)
			s->rule = out.rule;
		else if (ev == TAR_MEMBER &&
			 members_judge(s->members, &out.member, &rule) == MEMBER_HOSTILE)
			s->rule = rule;
		if (s->rule)
			return false;
	}
	return true;
}

/* A25: three million empty members, each in a directory of its own. */
static void many_members(struct stream *s)
{
	struct buf b = BUF_INIT(4096);
	char name[32];

	(void)mk_head(&b, &(struct mk){MK_USTAR, '0', "d0000000/f0000000", NULL, 0, 0});
	for (int i = 0; i < 3000000; i++) {
		int n = snprintf(name, sizeof(name), "d%07d/f%07d", i / 2, i);

		mk_poke(&b, 0, 0, name, (size_t)n);
		if (!feed(s, &b))
			break;
	}
	buf_done(&b);
}

/* A25: two gigabytes of headers, none of them too big by itself. */
static void many_headers(struct stream *s)
{
	static char text[900 << 10];
	struct buf b = BUF_INIT(4 << 20);
	char name[32];

	memset(text, 'x', sizeof(text) - 1);
	for (int i = 0; i < 2300; i++) {
		(void)snprintf(name, sizeof(name), "f%d", i);
		buf_reset(&b);
		mk_pax1(&b, 'x', "comment", text);
		mk_file(&b, name, "");
		if (!feed(s, &b))
			break;
	}
	buf_done(&b);
}

/* E13: a file that never ends stops at its size, a stream that never ends at its total. */
static void endless_data(struct stream *s)
{
	static char mib[1 << 20];
	struct buf b = BUF_INIT(2 << 20);
	char name[32];

	for (int i = 0; i < 100000; i++) {
		(void)snprintf(name, sizeof(name), "f%d", i);
		buf_reset(&b);
		(void)mk_head(&b, &(struct mk){MK_USTAR, '0', name, NULL, sizeof(mib), 0});
		mk_data(&b, mib, sizeof(mib));
		if (!feed(s, &b))
			break;
	}
	buf_done(&b);
}

static long resident_kb(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	char line[256];
	long kb = -1;

	while (f && fgets(line, sizeof(line), f))
		if (strncmp(line, "VmHWM:", 6) == 0)
			kb = strtol(line + 6, NULL, 10);
	if (f)
		(void)fclose(f);
	return kb;
}

/* 0 good, else what was wrong. */
static int in_child(void (*make)(struct stream *s), uint64_t at_least, uint64_t at_most)
{
	struct member_opts o = {.key = "fixed key"};
	struct stream s = {0};
	bool sanitized = getenv("ASAN_OPTIONS") || getenv("UBSAN_OPTIONS");

	if (tar_reader_new(&(struct tar_limits){.total_size = UINT64_C(1) << 30}, &s.reader) ||
	    members_new(&o, &s.members))
		return 1;
	make(&s);
	(void)fprintf(stderr, "%s after %llu MiB, %ld KiB resident\n", s.rule ? s.rule : "no limit",
		      (unsigned long long)(s.fed >> 20), resident_kb());
	if (!s.rule || strcmp(s.rule, "limit") != 0)
		return 2;
	if (s.fed < at_least || s.fed > at_most)
		return 3;
	return !sanitized && resident_kb() > RESIDENT_MAX_KB ? 4 : 0;
}

static void run(void (*make)(struct stream *s), uint64_t at_least, uint64_t at_most)
{
	int status = 0;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0)
		_exit(in_child(make, at_least, at_most));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void a25_millions_of_members(void **state)
{
	(void)state;
	run(many_members, (uint64_t)MEMBERS_MAX * 512, (uint64_t)(MEMBERS_MAX + 1) * 512);
}

static void a25_gigabytes_of_headers(void **state)
{
	(void)state;
	run(many_headers, 50 << 20, 100 << 20);
}

static void e13_endless_stream(void **state)
{
	(void)state;
	run(endless_data, UINT64_C(1) << 30, (UINT64_C(1) << 30) + (4 << 20));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a25_millions_of_members),
	    cmocka_unit_test(a25_gigabytes_of_headers),
	    cmocka_unit_test(e13_endless_stream),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
