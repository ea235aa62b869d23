/* audit: what the bridge of a run let through and what it refused. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "base/str.h"
#include "bridge/audit.h"
#include "cli/cli.h"
#include "cli/ui.h"
#include "engine/state.h"
#include "store/run.h"

const struct opt opts_audit[] = {
    {"json", 0, NULL, "the lines as they are kept, one JSON object each", 1},
    {NULL, 0, NULL, NULL, 0},
};
static const struct opt *const tables[] = {opts_audit, opts_help, NULL};

struct totals {
	uint64_t requests, refused;
};

static int set(void *arg, const struct opt *o, const char *value, struct err *e)
{
	(void)value;
	(void)e;
	((bool *)arg)[o->id] = true;
	return 0;
}

static const char *text(const json_t *j, const char *name)
{
	const char *s = json_string_value(json_object_get(j, name));

	return s ? s : "-";
}

static void print_line(const char *line, size_t len, struct totals *t)
{
	json_t *j = json_loadb(line, len, 0, NULL);
	uint64_t n = 1;
	char in[32], out[32];

	/* A line that a crash cut short is no reason to hide the others. */
	if (!json_is_object(j)) {
		json_decref(j);
		return;
	}
	if (json_integer_value(json_object_get(j, "count")) > 1)
		n = (uint64_t)json_integer_value(json_object_get(j, "count"));
	t->requests += n;
	t->refused += strcmp(text(j, "rule"), "allow") != 0 ? n : 0;
	str_human_size((uint64_t)json_integer_value(json_object_get(j, "bytes_in")), in,
		       sizeof(in));
	str_human_size((uint64_t)json_integer_value(json_object_get(j, "bytes_out")), out,
		       sizeof(out));
	(void)printf("%-24s  %3d  %-18s  %9.3f  %10s  %10s  %-10s  ", text(j, "time"),
		     (int)json_integer_value(json_object_get(j, "status")), text(j, "rule"),
		     json_number_value(json_object_get(j, "ms")), in, out, text(j, "upstream"));
	if (json_is_string(json_object_get(j, "target")))
		ui_print_name(text(j, "target"));
	else if (json_is_string(json_object_get(j, "route")))
		ui_print_name(text(j, "route"));
	else
		(void)printf("%s (no route)", text(j, "method"));
	/* They came faster than one line each. */
	if (n > 1)
		(void)printf("  x %" PRIu64, n);
	(void)putchar('\n');
	json_decref(j);
}

static int print_file(FILE *f, bool json, struct totals *t)
{
	_cleanup_free_ char *line = NULL;
	size_t cap = 0;
	ssize_t n;

	while ((n = getline(&line, &cap, f)) > 0) {
		if (!json)
			print_line(line, (size_t)n, t);
		else if (n > 1 && line[n - 1] == '\n')
			(void)fwrite(line, 1, (size_t)n, stdout);
	}
	return ferror(f) ? -errno : 0;
}

/* 1 if there was a file. */
static int print_all(const char *dir, bool json, struct totals *t, struct err *e)
{
	_cleanup_free_ char *path = path_join(dir, AUDIT_FILE);
	_cleanup_file_ FILE *f = NULL;
	int fd, r;

	if (!path)
		return err_set(e, ERR_NOMEM, "audit: out of memory");
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 && errno == ENOENT)
		return 0;
	f = fd >= 0 ? fdopen(fd, "r") : NULL;
	if (!f)
		return err_sys(e, errno, "audit file %s", path);
	r = print_file(f, json, t);
	return r < 0 ? err_sys(e, -r, "audit file %s", path) : 1;
}

static int audit(const char *word, bool json, struct err *e)
{
	_cleanup_state_ struct state st = {0};
	_cleanup_free_ char *dir = NULL;
	struct totals t = {0};
	struct run_row run = {0};
	int r = state_open(&st, e);

	if (r == 0)
		r = run_find(st.store, word, &run, e);
	if (r < 0)
		return r;
	dir = state_path(&st, "runs", run.id, NULL);
	if (!json)
		(void)printf("%-24s  %3s  %-18s  %9s  %10s  %10s  %-10s  %s\n", "TIME", "ST",
			     "RULE", "MS", "IN", "OUT", "UPSTREAM", "ROUTE");
	r = dir ? print_all(dir, json, &t, e) : err_set(e, ERR_NOMEM, "audit: out of memory");
	if (r >= 0 && !json)
		cli_say(r ? "run %s: %" PRIu64 " requests, %" PRIu64 " of them refused or failed"
			  : "run %s has no audit file: it had no bridge, or nothing was asked",
			run.id, t.requests, t.refused);
	run_row_done(&run);
	return r < 0 ? r : 0;
}

int cmd_audit(int argc, char **argv)
{
	bool on[2] = {false, false};
	struct opt_parse p = {
	    .tables = tables, .verb = "audit", .permute = true, .set = set, .arg = on};
	struct err e = ERR_INIT;
	int r = opt_parse(&p, argc - 1, argv + 1, &e);
	_cleanup_strv_ char **words = p.words;

	if (r == 0 && on[0])
		return cmd_help(2, (char *[]){(char *)(uintptr_t) "help", argv[0]});
	if (r == 0 && strv_len(words) != 1)
		r = err_set(&e, ERR_USAGE, "audit needs one run: 'airlock help audit'");
	if (r == 0)
		r = audit(words[0], on[1], &e);
	return r < 0 ? cli_fail(&e) : 0;
}
