/*
 * mkhostile: writes the attack archives as files, for tests that drive the real programs.
 *
 *   mkhostile DIR          DIR/<case>.<verdict>.tar, e.g. A2-absolute.hostile.tar; and DIR/rules.txt,
 *                          one line a file: its name, a blank, the rule ("-" for accept)
 *   mkhostile --host DIR   makes in DIR the links that the member cases expect on the host
 *   mkhostile --list       the lines of rules.txt
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "cases.h"

static void file_name(char *out, size_t n, const struct hostile_case *c)
{
	(void)snprintf(out, n, "%s.%s.tar", c->name, hostile_verdict_name(c->verdict));
}

static int write_case(const char *dir, const struct hostile_case *c, FILE *list)
{
	_cleanup_buf_ struct buf b = BUF_INIT(HOSTILE_CASE_MAX);
	_cleanup_file_ FILE *f = NULL;
	char name[128], path[4096];

	file_name(name, sizeof(name), c);
	(void)fprintf(list, "%s %s\n", name, c->rule ? c->rule : "-");
	if (!dir)
		return 0;
	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	c->build(&b);
	f = fopen(path, "we");
	if (!f || fwrite(buf_text(&b), 1, b.len, f) != b.len || fflush(f)) {
		(void)fprintf(stderr, "mkhostile: %s: %s\n", path, strerror(errno));
		return -1;
	}
	return 0;
}

static int write_all(const char *dir, FILE *list)
{
	for (size_t i = 0; i < hostile_reader_cases_len; i++)
		if (write_case(dir, &hostile_reader_cases[i], list))
			return 1;
	for (size_t i = 0; i < hostile_member_cases_len; i++)
		if (write_case(dir, &hostile_member_cases[i], list))
			return 1;
	return fflush(list) ? 1 : 0;
}

static int make_host(const char *dir)
{
	char path[4096];

	for (size_t i = 0; i < hostile_host_len; i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", dir, hostile_host[i].path);
		if (symlink(hostile_host[i].target, path)) {
			(void)fprintf(stderr, "mkhostile: %s: %s\n", path, strerror(errno));
			return 1;
		}
	}
	return 0;
}

int main(int argc, char **argv)
{
	_cleanup_file_ FILE *list = NULL;
	char path[4096];

	if (argc == 3 && strcmp(argv[1], "--host") == 0)
		return make_host(argv[2]);
	if (argc == 2 && strcmp(argv[1], "--list") == 0)
		return write_all(NULL, stdout);
	if (argc != 2 || argv[1][0] == '-') {
		(void)fputs("usage: mkhostile DIR | --host DIR | --list\n", stderr);
		return 2;
	}
	(void)snprintf(path, sizeof(path), "%s/rules.txt", argv[1]);
	list = fopen(path, "we");
	if (!list) {
		(void)fprintf(stderr, "mkhostile: %s: %s\n", path, strerror(errno));
		return 1;
	}
	return write_all(argv[1], list);
}
