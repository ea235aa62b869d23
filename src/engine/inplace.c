/*
 * Policy: what the other machine says here is foreign text: bounded, taken apart by lines and words, compared, shown printable, sent back to
 * that machine and nowhere else; no file of this machine is named by it.
 */
#include "engine/inplace.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/path.h"
#include "base/str.h"
#include "engine/command.h"

#define NAMES_SHOWN 20
#define NAME_SHOWN 200

/*
 * Lines: "f MODE PATH CONTENT" (MODE x or -), "l - PATH TARGET", "r - PATH CONTENT" of refs; paths and contents in base64. "end" comes last, after
 * "git" where there is a repository.
 */
static const char look_script[] =
    "b() { base64 | tr -d '\\n'; }\n"
    "g=.git\n"
    "if [ -f .git ]; then IFS= read -r l <.git; g=${l#gitdir: }; fi\n"
    "[ -d \"$g\" ] || { echo end; exit 0; }\n"
    "for t in base64 tr find readlink; do command -v $t >/dev/null || { echo \"need $t\"; exit 0; }; done\n"
    "c=$g\n"
    "if [ -f \"$g/commondir\" ]; then IFS= read -r l <\"$g/commondir\"; case $l in /*) c=$l;; *) c=$g/$l;; esac; fi\n"
    "echo git\n"
    "[ -d .git ] || printf 'f - %s %s\\n' \"$(printf %s .git | b)\" \"$(b <.git)\"\n"
    "for d in \"$c\" \"$g\"; do\n"
    "find \"$d\" \\( -name objects -o -name refs -o -name logs \\) -prune -o \\( -type f -o -type l \\) \\( -name config -o -name config.worktree "
    "-o -name commondir -o -name gitdir -o -path '*/hooks/*' -o -path '*/info/attributes' \\) -exec sh -c '"
    "b() { base64 | tr -d \"\\n\"; }\n"
    "for f do if [ -L \"$f\" ]; then printf \"l - %s %s\\n\" \"$(printf %s \"$f\" | b)\" \"$(readlink \"$f\" | b)\"; "
    "else m=-; [ -x \"$f\" ] && m=x; printf \"f %s %s %s\\n\" $m \"$(printf %s \"$f\" | b)\" \"$(b <\"$f\")\"; fi; done' sh {} +\n"
    "find \"$d\" -name objects -prune -o -type f \\( -path \"$d/HEAD\" -o -path \"$d/packed-refs\" -o -path \"$d/refs/*\" \\) -exec sh -c '"
    "b() { base64 | tr -d \"\\n\"; }\n"
    "for f do printf \"r - %s %s\\n\" \"$(printf %s \"$f\" | b)\" \"$(b <\"$f\")\"; done' sh {} +\n"
    "[ \"$c\" = \"$g\" ] && break; done\n"
    "echo end\n";

/* Input: "rm PATH", "f MODE PATH CONTENT", "l - PATH TARGET". */
static const char put_script[] =
    "d() { printf %s \"$1\" | base64 -d; }\n"
    "while read -r w a p v; do\n"
    "case $w in rm) p=$a;; esac\n"
    "f=$(d \"$p\"); [ -n \"$f\" ] || continue\n"
    "case $w in\n"
    "rm) rm -rf -- \"$f\";;\n"
    "l) mkdir -p -- \"${f%/*}\"; rm -rf -- \"$f\"; ln -s -- \"$(d \"$v\")\" \"$f\";;\n"
    "f) mkdir -p -- \"${f%/*}\"; if [ -L \"$f\" ] || [ -d \"$f\" ]; then rm -rf -- \"$f\"; fi; d \"$v\" >\"$f\"; "
    "if [ $a = x ]; then chmod +x -- \"$f\"; else chmod -x -- \"$f\"; fi;;\n"
    "esac; done\n";

/* Of one line: pointers into it. */
struct entry {
	char *line, *path, *value; /* value: from the mode on, without the path */
	char kind, mode;
};

struct look {
	struct buf text;
	struct entry *v; /* owned */
	size_t n;
	bool repo;
};

static void look_done(struct look *l)
{
	buf_done(&l->text);
	free(l->v);
}
#define _cleanup_look_ __attribute__((cleanup(look_done)))

static int run(struct sandbox *sb, const char *cwd, const char *script, int in, struct buf *out,
	       struct err *e)
{
	char *argv[] = {(char *)(uintptr_t) "/bin/sh", (char *)(uintptr_t) "-c",
			(char *)(uintptr_t)script, NULL};
	char *env[] = {(char *)(uintptr_t) "LC_ALL=C", NULL};
	struct command_opts o = {.argv = argv,
				 .env = env,
				 .cwd = cwd,
				 .io = {.in = in, .out = -1, .err = -1, .capture_out = out},
				 .timeout_ns = INPLACE_MS * NS_PER_MS};
	struct command_result res;
	int r = command_run(sb, &o, &res, e);

	if (r < 0)
		return r;
	if (res.end == END_FAILED && strcmp(res.step, "chdir") == 0)
		return err_set(e, ERR_NOT_FOUND, "--in-place: %s there cannot be entered: %s", cwd,
			       strerror(res.sys));
	if (res.end != END_EXITED)
		return err_set(
		    e, ERR_UNAVAILABLE,
		    "--in-place: what git would execute in %s there could not be looked at within %d s",
		    cwd, INPLACE_MS / 1000);
	return 0;
}

static int by_path(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;
	int c = strcmp(x->path, y->path);

	return c ? c : x->kind - y->kind;
}

/* "K M PATH VALUE", cut into its words. */
static bool cut(char *line, struct entry *ret)
{
	char *path, *value;

	if (strlen(line) < 6 || !strchr("flr", line[0]) || line[1] != ' ' || line[3] != ' ')
		return false;
	path = line + 4;
	value = strchr(path, ' ');
	if (!value || value == path)
		return false;
	*value++ = '\0';
	*ret = (struct entry){line, path, value, line[0], line[2]};
	return true;
}

static int parse(struct look *l, const char *cwd, struct err *e)
{
	size_t lines = 1;
	bool whole = false;
	char *at = l->text.data, *line;

	for (size_t i = 0; i < l->text.len; i++)
		lines += l->text.data[i] == '\n';
	l->v = calloc(lines, sizeof(*l->v));
	if (!l->v)
		return err_set(e, ERR_NOMEM, "--in-place: out of memory");
	while (at && (line = strsep(&at, "\n"))) {
		if (str_starts(line, "need "))
			return err_set(
			    e, ERR_UNAVAILABLE,
			    "--in-place: there is no program %.20s on that machine, which recording "
			    "what git there would execute needs: install it",
			    line + 5);
		whole = strcmp(line, "end") == 0 || (whole && !*line);
		l->repo |= strcmp(line, "git") == 0;
		l->n += cut(line, &l->v[l->n]);
	}
	if (!whole)
		return err_set(
		    e, ERR_UNAVAILABLE,
		    "--in-place: what git would execute in %s there could not be read whole", cwd);
	qsort(l->v, l->n, sizeof(*l->v), by_path);
	return 0;
}

static int write_file(const char *run_dir, const char *name, const struct buf *b, struct err *e)
{
	_cleanup_free_ char *path = path_join(run_dir, name);
	_cleanup_fd_ int fd =
	    path ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600) : -1;

	for (size_t done = 0; fd >= 0 && done < b->len;) {
		ssize_t k = write(fd, b->data + done, b->len - done);

		if (k < 0)
			return err_sys(e, errno, "write %s", path);
		done += (size_t)k;
	}
	return fd < 0 ? err_sys(e, errno, "create %s in %s", name, run_dir) : 0;
}

static int look(struct sandbox *sb, const char *cwd, const char *run_dir, const char *keep,
		struct look *ret, struct err *e)
{
	int r;

	*ret = (struct look){.text = BUF_INIT(INPLACE_GIT_MAX)};
	r = run(sb, cwd, look_script, -1, &ret->text, e);
	if (ret->text.len >= INPLACE_GIT_MAX || ret->text.err)
		return err_set(
		    e, ERR_LIMIT,
		    "--in-place: config, hooks and refs of the repository in %s there take more than %d MiB: "
		    "run without --in-place",
		    cwd, INPLACE_GIT_MAX >> 20);
	if (r == 0)
		r = write_file(run_dir, keep, &ret->text, e);
	(void)buf_puts(&ret->text, "");
	return r < 0 ? r : parse(ret, cwd, e);
}

int inplace_record(struct sandbox *sb, const char *cwd, const char *run_dir, struct err *e)
{
	_cleanup_look_ struct look l;
	int r = look(sb, cwd, run_dir, "git-before", &l, e);

	return r < 0 ? r : l.repo;
}

static void show(struct buf *b, const struct entry *x, unsigned n)
{
	char raw[NAME_SHOWN];
	size_t len = 0;

	if (n >= NAMES_SHOWN) {
		if (n == NAMES_SHOWN)
			(void)buf_puts(b, ", ...");
		return;
	}
	(void)sodium_base642bin((unsigned char *)raw, sizeof(raw), x->path, strlen(x->path), NULL,
				&len, NULL, sodium_base64_VARIANT_ORIGINAL);
	(void)buf_puts(b, n ? ", " : "");
	(void)str_printable(b, raw, len);
}

struct diff {
	struct buf put, changed, refs; /* what is to be put back; names */
	unsigned n, n_refs;
};

static void differs(struct diff *d, const struct entry *was, const struct entry *is)
{
	const struct entry *x = was ? was : is;

	if (x->kind == 'r') {
		show(&d->refs, x, d->n_refs++);
		return;
	}
	show(&d->changed, x, d->n++);
	if (was)
		(void)buf_putf(&d->put, "%c %c %s %s\n", was->kind, was->mode, was->path,
			       was->value);
	else
		(void)buf_putf(&d->put, "rm %s\n", is->path);
}

static void compare(const struct look *a, const struct look *b, struct diff *d)
{
	size_t i = 0, j = 0;

	while (i < a->n || j < b->n) {
		int c = i == a->n ? 1 : j == b->n ? -1 : by_path(&a->v[i], &b->v[j]);

		if (c == 0 &&
		    (a->v[i].mode != b->v[j].mode || strcmp(a->v[i].value, b->v[j].value) != 0))
			differs(d, &a->v[i], NULL);
		if (c < 0)
			differs(d, &a->v[i], NULL);
		if (c > 0)
			differs(d, NULL, &b->v[j]);
		i += c <= 0;
		j += c >= 0;
	}
}

static int load(const char *run_dir, const char *cwd, struct look *ret, struct err *e)
{
	_cleanup_free_ char *path = path_join(run_dir, "git-before");
	_cleanup_fd_ int fd = path ? open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC) : -1;
	ssize_t k = fd < 0 ? -1 : 1;

	*ret = (struct look){.text = BUF_INIT(INPLACE_GIT_MAX + 4096)};
	while (k > 0) {
		char *to = buf_room(&ret->text, 4096);

		k = to ? read(fd, to, 4096) : -1;
		if (k > 0)
			buf_add(&ret->text, (size_t)k);
	}
	if (k < 0)
		return err_sys(e, errno, "read git-before in %s", run_dir);
	(void)buf_puts(&ret->text, "");
	return parse(ret, cwd, e);
}

static int put_back(struct sandbox *sb, const char *cwd, const struct diff *d, struct err *e)
{
	_cleanup_fd_ int fd = memfd_create("airlock-git", MFD_CLOEXEC);
	_cleanup_buf_ struct buf out = BUF_INIT(4096);

	if (d->put.err || fd < 0 || write(fd, d->put.data, d->put.len) != (ssize_t)d->put.len ||
	    lseek(fd, 0, SEEK_SET) < 0)
		return err_sys(e, d->put.err ? -d->put.err : errno, "--in-place: put back");
	return run(sb, cwd, put_script, fd, &out, e);
}

static void diff_done(struct diff *d)
{
	buf_done(&d->put);
	buf_done(&d->changed);
	buf_done(&d->refs);
}

/* Whether all is as it was is looked at, not believed. */
static int tell(struct sandbox *sb, const char *cwd, const char *run_dir, const struct look *before,
		struct diff *d, struct buf *text, struct err *e)
{
	struct diff left = {BUF_INIT(2 * INPLACE_GIT_MAX), BUF_INIT(16384), BUF_INIT(16384), 0, 0};
	_cleanup_look_ struct look again = {0};
	int r = d->n ? put_back(sb, cwd, d, e) : 0;

	if (r == 0 && d->n)
		r = look(sb, cwd, run_dir, "git-put-back", &again, e);
	if (r == 0 && d->n) {
		compare(before, &again, &left);
		(void)buf_putf(text, "changed there, and git would execute or obey it: %s",
			       buf_text(&d->changed));
		if (left.n)
			(void)buf_putf(text, "; NOT all of it could be put back: %s",
				       buf_text(&left.changed));
		else
			(void)buf_puts(text, "; put back as it was");
		(void)buf_putf(text, " (both versions: git-before, git-after in %s)", run_dir);
	}
	if (r == 0 && d->n_refs)
		(void)buf_putf(text, "%srefs that differ now: %s", text->len ? "; " : "",
			       buf_text(&d->refs));
	diff_done(&left);
	return r;
}

int inplace_restore(struct sandbox *sb, const char *cwd, const char *run_dir, char **ret_text,
		    struct err *e)
{
	struct diff d = {BUF_INIT(2 * INPLACE_GIT_MAX), BUF_INIT(16384), BUF_INIT(16384), 0, 0};
	_cleanup_look_ struct look before = {0}, after = {0};
	struct buf text = BUF_INIT(65536);
	int r = load(run_dir, cwd, &before, e);

	*ret_text = NULL;
	if (r == 0)
		r = look(sb, cwd, run_dir, "git-after", &after, e);
	if (r == 0) {
		compare(&before, &after, &d);
		r = tell(sb, cwd, run_dir, &before, &d, &text, e);
	}
	diff_done(&d);
	if (r == 0 && text.len)
		*ret_text = buf_take(&text);
	else
		buf_done(&text);
	return r;
}
