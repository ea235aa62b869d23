/* unpack: any tar stream into a directory, through door 1. The stream is parsed by airlock-unpack only. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/id.h"
#include "base/limits.h"
#include "base/path.h"
#include "base/str.h"
#include "cli/cli.h"
#include "engine/interrupt.h"
#include "engine/unpacks.h"
#include "sync/unpack.h"
#include "sync/unpack_record.h"

#define LINE_MAX_BYTES (1 << 20)

enum id {
	O_INTO = 1,
	O_FILE,
	O_BASELINE,
	O_NO_DELETE,
	O_STRICT,
	O_CONFLICT,
	O_DRY_RUN,
	O_LIMITS,
	O_VERBOSE,
};

const struct opt opts_unpack[] = {
    {"into", 0, "DIR", "the directory that is written", O_INTO},
    {"file", 0, "PATH",
     "instead: the stream holds this one file, by its last name, and nothing else may come",
     O_FILE},
    {"baseline", 0, "FILE",
     "manifest of what was sent (airlock manifest): the stream is the whole tree, what is missing was deleted",
     O_BASELINE},
    {"no-delete", 0, NULL,
     "with --baseline: delete nothing, for a stream whose maker may not have read everything",
     O_NO_DELETE},
    {"strict", 0, NULL, "reject the whole stream for a member that would be refused", O_STRICT},
    {"on-conflict", 0, "keep-host|take-sandbox",
     "which version of a file that both sides changed takes the path (default keep-host)",
     O_CONFLICT},
    {"dry-run", 'n', NULL, "judge and report, write nothing below DIR", O_DRY_RUN},
    {"limits", 0, "LIMIT=N,...",
     "bytes=SIZE all files together (default 64G), file=SIZE one file, members=N (default 2000000)",
     O_LIMITS},
    {"verbose", 'v', NULL, "a line for every change, not only for what did not go through",
     O_VERBOSE},
    {NULL, 0, NULL, NULL, 0},
};

enum { EXIT_PARTIAL = 1, EXIT_REJECTED = 3, EXIT_FAILED = 4 };

struct job {
	const char *into, *file, *baseline; /* borrowed from argv */
	bool verbose, help, no_delete;
	struct unpack_opts o;
	char *root, *dir; /* owned: real path; directory part of --file */
	struct unpacks_place place;
	struct unpack_report rep;
};

static int set_limit(struct unpack_opts *o, const char *word, size_t n, struct err *e)
{
	_cleanup_free_ char *w = strndup(word, n);
	char *v = w ? strchr(w, '=') : NULL;
	uint64_t x = 0;
	int r;

	if (!w)
		return err_set(e, ERR_NOMEM, "options: out of memory");
	if (!v)
		return err_set(e, ERR_USAGE, "--limits %.80s: give NAME=VALUE", w);
	*v++ = '\0';
	if (strcmp(w, "members") == 0)
		r = str_to_u64(v, MEMBERS_MAX, &x);
	else
		r = str_to_size(v, &x);
	if (r < 0 || !x)
		return err_set(e, ERR_USAGE, "--limits %s=%.80s: give a %s", w, v,
			       strcmp(w, "members") == 0 ? "number from 1 to 2000000"
							 : "size such as 64M, 1.5G or bytes");
	if (strcmp(w, "members") == 0)
		o->members_max = x;
	else if (strcmp(w, "bytes") == 0)
		o->total_max = x;
	else if (strcmp(w, "file") == 0)
		o->member_max = x;
	else
		return err_set(e, ERR_USAGE, "--limits %.80s: give one of bytes, file, members", w);
	return 0;
}

static int set_limits(struct unpack_opts *o, const char *v, struct err *e)
{
	int r = 0;

	while (r == 0) {
		size_t n = strcspn(v, ",");

		r = set_limit(o, v, n, e);
		if (!v[n])
			break;
		v += n + 1;
	}
	return r;
}

static int set(void *arg, const struct opt *opt, const char *v, struct err *e)
{
	struct job *j = arg;

	switch (opt->id) {
	case O_INTO:
		j->into = v;
		return 0;
	case O_FILE:
		j->file = v;
		return 0;
	case O_BASELINE:
		j->baseline = v;
		return 0;
	case O_NO_DELETE:
		j->no_delete = true;
		return 0;
	case O_STRICT:
		j->o.strict = true;
		return 0;
	case O_CONFLICT:
		if (strcmp(v, "keep-host") != 0 && strcmp(v, "take-sandbox") != 0)
			return err_set(e, ERR_USAGE,
				       "--on-conflict %.80s: give one of keep-host, take-sandbox",
				       v);
		j->o.on_conflict = v[0] == 't' ? CONFLICT_TAKE_SANDBOX : CONFLICT_KEEP_HOST;
		return 0;
	case O_DRY_RUN:
		j->o.dry_run = true;
		return 0;
	case O_LIMITS:
		return set_limits(&j->o, v, e);
	case O_VERBOSE:
		j->verbose = true;
		return 0;
	default:
		j->help = true;
		return 0;
	}
}

/* A single file: its directory is the root, its name the only member. A directory there is refused, a link kept. */
static int split_file(struct job *j, struct err *e)
{
	const char *base = path_base(j->file);
	struct stat st;

	if (!*base || strcmp(base, ".") == 0 || strcmp(base, "..") == 0)
		return err_set(e, ERR_USAGE, "--file %.400s: not the path of a file", j->file);
	if (lstat(j->file, &st) == 0 && !S_ISREG(st.st_mode))
		return err_set(e, ERR_USAGE, "--file %.400s: %s", j->file,
			       S_ISDIR(st.st_mode) ? "a directory"
						   : "a link or special file; it is not followed");
	j->o.only = base;
	j->dir = base == j->file ? strdup(".") : strndup(j->file, (size_t)(base - j->file));
	j->into = j->dir;
	return j->dir ? 0 : err_set(e, ERR_NOMEM, "out of memory");
}

/* What the command line names must be there; all of it is exit status 2. */
static int check(struct job *j, char *const *words, struct err *e)
{
	struct stat st;

	if (words && words[0])
		return err_set(e, ERR_USAGE,
			       "unpack takes no %.80s: the stream comes on standard input",
			       words[0]);
	if (!j->into == !j->file)
		return err_set(
		    e, ERR_USAGE,
		    "unpack needs one place: airlock unpack --into DIR < stream, or --file PATH");
	if (j->file && j->baseline)
		return err_set(e, ERR_USAGE,
			       "--baseline is of a directory: give --into, not --file");
	if (j->file && split_file(j, e) < 0)
		return -EINVAL;
	j->root = realpath(j->into, NULL);
	if (!j->root || stat(j->root, &st) < 0)
		return err_set(e, ERR_USAGE, "--into %.400s: %s", j->into, strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return err_set(e, ERR_USAGE, "--into %.400s: not a directory", j->into);
	if (strcmp(j->root, "/") == 0)
		return err_set(e, ERR_USAGE, "--into /: the root directory is not written");
	if (j->baseline && access(j->baseline, R_OK) < 0)
		return err_set(e, ERR_USAGE, "--baseline %.400s: %s", j->baseline, strerror(errno));
	if (fstat(STDIN_FILENO, &st) < 0 || isatty(STDIN_FILENO))
		return err_set(
		    e, ERR_USAGE,
		    "unpack reads a tar stream from standard input: airlock unpack --into "
		    "DIR < stream");
	return 0;
}

static void print(struct buf *b)
{
	(void)fwrite(buf_text(b), 1, b->len, stdout);
	buf_reset(b);
}

/* Where the bytes that this change took away from a path lie now. Heap, or NULL. */
static char *saved_at(const struct job *j, const struct unpack_change *c)
{
	struct buf b = BUF_INIT(PATH_MAX + 2 * PATH_MEMBER_MAX);
	struct stat st;
	bool stays = c->action == UA_NOT_TRASHED && c->detail;
	bool loser = stays || (c->detail && str_starts(c->detail, "conflicts/"));
	const char *end = NULL;

	if (j->o.dry_run)
		return NULL;
	(void)buf_putf(&b, "%s/", stays ? j->root : j->place.dir);
	if (loser && (stays || c->action == UA_FAIL)) /* an error text follows the place */
		for (const char *p = c->detail; (p = strstr(p, ": ")); p++)
			end = p;
	if (loser)
		(void)buf_put(&b, c->detail, end ? (size_t)(end - c->detail) : strlen(c->detail));
	else
		(void)buf_putf(&b, "trash/%s", c->path);
	if (b.err || (!loser && lstat(buf_text(&b), &st) < 0)) {
		buf_done(&b);
		return NULL;
	}
	return buf_take(&b);
}

static void print_changes(const struct job *j)
{
	_cleanup_buf_ struct buf b = BUF_INIT(LINE_MAX_BYTES);

	for (size_t i = 0; i < j->rep.changes_len; i++) {
		const struct unpack_change *c = &j->rep.changes[i];
		bool told = c->action == UA_REFUSE || c->action == UA_CONFLICT ||
			    c->action == UA_FAIL || c->action == UA_NOT_TRASHED || j->verbose;
		_cleanup_free_ char *saved = told ? saved_at(j, c) : NULL;

		if (!told)
			continue;
		record_put(&b, c, saved);
		print(&b);
	}
	if (!j->rep.rejected)
		return;
	(void)buf_puts(&b, "{\"action\":\"hostile\",");
	if (j->rep.rejected_path) {
		record_put_bytes(&b, "path", j->rep.rejected_path);
		(void)buf_putc(&b, ',');
	}
	(void)buf_puts(&b, "\"rule\":");
	record_put_string(&b, j->rep.rule);
	(void)buf_putc(&b, ',');
	record_put_bytes(&b, "detail", j->rep.text);
	(void)buf_puts(&b, "}\n");
	print(&b);
}

static bool kept_below(const struct job *j, const char *name)
{
	_cleanup_free_ char *p = path_join(j->place.dir, name);

	return p && access(p, F_OK) == 0;
}

static void put_place(struct buf *b, const struct job *j, const char *key, const char *name)
{
	_cleanup_free_ char *p = path_join(j->place.dir, name);

	(void)buf_putc(b, ',');
	if (p && kept_below(j, name))
		record_put_bytes(b, key, p);
	else
		(void)buf_putf(b, "\"%s\":null", key);
}

/* The last line. e: what failed, with code ERR_NONE for nothing. */
static void put_end(struct buf *b, const struct job *j, int status, const struct err *e)
{
	static const char *const outcomes[] = {"applied", "partial", "", "rejected", "failed"};
	uint64_t flagged = 0;

	for (size_t i = 0; i < j->rep.changes_len; i++)
		flagged += j->rep.changes[i].host_exec;
	(void)buf_puts(b, "{\"action\":\"end\",\"version\":1,\"outcome\":\"");
	(void)buf_puts(b, outcomes[status]);
	(void)buf_putf(b, "\",\"exit_status\":%d,\"dry_run\":%s,", status,
		       j->o.dry_run ? "true" : "false");
	record_put_bytes(b, "into", j->root);
	(void)buf_putf(b, ",\"unpack\":\"%s\",\"counts\":{", j->place.id);
	for (int a = 0; a < UA_ACTION_COUNT; a++)
		(void)buf_putf(b, "%s\"%s\":%llu", a ? "," : "",
			       unpack_action_name((enum unpack_action)a),
			       (unsigned long long)j->rep.counts[a]);
	(void)buf_putf(
	    b, "},\"bytes_written\":%llu,\"mass_delete\":%s,\"host_exec\":%llu,\"repaired\":%s",
	    (unsigned long long)j->rep.bytes_written, j->rep.mass_delete ? "true" : "false",
	    (unsigned long long)flagged, j->rep.repaired ? "true" : "false");
	put_place(b, j, "conflicts", "conflicts");
	put_place(b, j, "trash", "trash");
	put_place(b, j, "rejected", "rejected.tar");
	if (e->code == ERR_NONE) {
		(void)buf_puts(b, ",\"error\":null}\n");
		return;
	}
	(void)buf_putf(b, ",\"error\":{\"code\":\"%s\",", err_name(e->code));
	record_put_bytes(b, "text", e->text);
	(void)buf_puts(b, "}}\n");
}

static int status_of(const struct job *j, int r)
{
	if (r == -EBADMSG && j->rep.rejected)
		return EXIT_REJECTED;
	if (r < 0)
		return EXIT_FAILED;
	return j->rep.counts[UA_REFUSE] || j->rep.counts[UA_CONFLICT] || j->rep.counts[UA_FAIL] ||
		       j->rep.counts[UA_NOT_TRASHED]
		   ? EXIT_PARTIAL
		   : 0;
}

/* Nobody here can ask the stream's maker; the user may know. */
static int complete(void *arg, bool *ret_partial, struct err *e)
{
	const struct job *j = arg;

	(void)e;
	*ret_partial = j->no_delete;
	return 0;
}

/* Nobody has read what was done: what that is, and where the report is instead. Returns the exit status. */
static int unread(const struct job *j, int status, int error)
{
	const char *done = "all was applied";

	if (status == EXIT_PARTIAL)
		done = "what may come was applied, the rest is named in the report";
	else if (status != 0)
		done = "nothing was applied";
	if (j->o.dry_run)
		done = "nothing was to be applied";
	if (status == EXIT_FAILED) /* that is told by its own message */
		cli_say("the report could not be printed: %s; it is in %s", strerror(error),
			j->place.dir);
	else
		cli_say("the report could not be printed: %s; %s, and the report is in %s",
			strerror(error), done, j->place.dir);
	return status == EXIT_REJECTED ? status : EXIT_FAILED;
}

/* Lines, closing record, the record beside what is kept. Returns the exit status. */
static int report(struct job *j, struct state *st, int r, const struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(LINE_MAX_BYTES);
	int status = status_of(j, r), lost = 0;
	struct err none = ERR_INIT, we = ERR_INIT;

	print_changes(j);
	put_end(&b, j, status, r < 0 ? e : &none);
	(void)fwrite(buf_text(&b), 1, b.len, stdout);
	errno = EIO; /* of an earlier write, whose reason is not known any more */
	if (fflush(stdout) != 0 || ferror(stdout))
		lost = errno;
	j->place.awaited = j->rep.counts[UA_NOT_TRASHED] || lost;
	if (unpacks_close(st, &j->place, buf_text(&b), &we) < 0)
		cli_say("%s", we.text);
	if (lost)
		status = unread(j, status, lost);
	if (r < 0)
		cli_say("%s", e->text);
	if (j->rep.mass_delete)
		cli_say("more than half of what was sent is deleted; it lies in %s/trash",
			j->place.dir);
	return status;
}

static int start(struct job *j, struct state *st, struct err *e)
{
	int r = interrupt_setup(e);

	if (r == 0)
		r = state_open(st, e);
	if (r == 0)
		r = state_apart(st, j->root, "--into", e);
	return r == 0 ? unpacks_open(st, &j->place, e) : r;
}

int cmd_unpack(int argc, char **argv)
{
	static const struct opt *const tables[] = {opts_unpack, opts_help, NULL};
	_cleanup_state_ struct state st = {0};
	struct job j = {0};
	struct opt_parse p = {
	    .tables = tables, .verb = "unpack", .permute = true, .set = set, .arg = &j};
	struct err e = ERR_INIT;
	int r = opt_parse(&p, argc - 1, argv + 1, &e), status;

	if (r == 0 && j.help) {
		strv_free(p.words);
		return cmd_help(2, (char *[]){(char *)(uintptr_t) "help", argv[0]});
	}
	if (r == 0)
		r = check(&j, p.words, &e);
	strv_free(p.words);
	if (r < 0) {
		free(j.root);
		free(j.dir);
		cli_say("%s", e.text);
		return e.code == ERR_USAGE ? 2 : EXIT_FAILED;
	}
	r = start(&j, &st, &e);
	if (r < 0) {
		cli_say("%s", e.text);
		status = EXIT_FAILED;
	} else {
		j.o.stream_fd = STDIN_FILENO;
		j.o.root = j.root;
		j.o.run_dir = j.place.dir;
		j.o.state_dir = st.dir;
		j.o.manifest_path = j.baseline;
		j.o.full_tree = j.baseline != NULL;
		j.o.keep_trash = true;
		j.o.tell_left = true;
		j.o.complete = complete;
		j.o.complete_arg = &j;
		j.o.cancel = interrupt_first();
		r = unpack_run(&j.o, &j.rep, &e);
		status = report(&j, &st, r, &e);
	}
	unpack_report_done(&j.rep);
	unpacks_done(&j.place);
	free(j.root);
	free(j.dir);
	return status;
}
