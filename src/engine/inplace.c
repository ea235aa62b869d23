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
 * Lines: "f MODE PATH CONTENT" (MODE x or -), "l - PATH TARGET", "d - PATH dir", "o - PATH other" (a pipe, a device), "r - PATH CONTENT" of
 * refs; paths and contents in base64. "g GITDIR COMMONDIR" says where the repository is; "end" comes last. The second look gets these as
 * words: it looks at the same places, wherever .git leads by then.
 * Nothing is opened but regular files, nothing is written.
 */
static const char look_script[] =
    "b() { base64 | tr -d '\\n'; }\n"
    "p() { printf %s \"$1\" | b; }\n"
    "one() { if [ -L \"$1\" ]; then printf 'l - %s %s\\n' \"$(p \"$1\")\" \"$(readlink \"$1\" | b)\"; "
    "elif [ -d \"$1\" ]; then printf 'd - %s dir\\n' \"$(p \"$1\")\"; "
    "elif [ -f \"$1\" ]; then printf 'f - %s %s\\n' \"$(p \"$1\")\" \"$(b <\"$1\")\"; "
    "elif [ -e \"$1\" ]; then printf 'o - %s other\\n' \"$(p \"$1\")\"; fi; }\n"
    "for t in base64 tr find readlink; do command -v $t >/dev/null || { echo \"need $t\"; exit 0; }; done\n"
    "u=.\n"
    "while [ ! -e $u/.git ] && [ ! -L $u/.git ] && [ \"$(cd $u && pwd -P)\" != / ]; do u=$u/..; done\n"
    "one $u/.git\n"
    "if [ $# -gt 0 ]; then g=$1 c=$2; else\n"
    "g=$u/.git\n"
    "if [ ! -L \"$g\" ] && [ -f \"$g\" ]; then IFS= read -r l <\"$g\"; g=${l#gitdir: }; case $g in /*) ;; *) g=$u/$g;; esac; fi\n"
    "[ -d \"$g\" ] || { echo end; exit 0; }\n"
    "c=$g\n"
    "if [ -f \"$g/commondir\" ]; then IFS= read -r l <\"$g/commondir\"; case $l in /*) c=$l;; *) c=$g/$l;; esac; fi; fi\n"
    "printf 'g %s %s\\n' \"$(p \"$g\")\" \"$(p \"$c\")\"\n"
    "for d in \"$c\" \"$g\"; do\n"
    "one \"$d\"\n"
    "for k in hooks info modules worktrees; do [ -L \"$d/$k\" ] || one \"$d/$k\"; done\n"
    /* One level behind a link: shared hooks. */
    "for w in \"$d/.\" \"$d/hooks/.\"; do [ \"$w\" = \"$d/.\" ] || [ -L \"$d/hooks\" ] || continue\n"
    "find \"$w\" \\( -path \"$d/./objects\" -o -path \"$d/./refs\" -o -path \"$d/./logs\" \\) -prune -o ! -type d \\( ! -type f -o -name config "
    "-o -name config.worktree -o -name commondir -o -name gitdir -o -path '*/hooks/*' -o -path '*/info/attributes' \\) -exec sh -c '"
    "b() { base64 | tr -d \"\\n\"; }\n"
    "for f do p=$(printf %s \"$f\" | b); if [ -L \"$f\" ]; then printf \"l - %s %s\\n\" \"$p\" \"$(readlink \"$f\" | b)\"; "
    "elif [ -f \"$f\" ]; then m=-; [ -x \"$f\" ] && m=x; printf \"f %s %s %s\\n\" $m \"$p\" \"$(b <\"$f\")\"; "
    "else printf \"o - %s other\\n\" \"$p\"; fi; done' sh {} +; done\n"
    "find \"$d/.\" -path \"$d/./objects\" -prune -o -type f \\( -path \"$d/./HEAD\" -o -path \"$d/./packed-refs\" -o -path \"$d/./refs/*\" \\) -exec sh -c '"
    "b() { base64 | tr -d \"\\n\"; }\n"
    "for f do printf \"r - %s %s\\n\" \"$(printf %s \"$f\" | b)\" \"$(b <\"$f\")\"; done' sh {} +\n"
    "[ \"$c\" = \"$g\" ] && break; done\n"
    "echo end\n";

/* Of one line: pointers into it. */
struct entry {
	char *path, *value;
	char kind, mode;
};

struct look {
	struct buf text;
	struct entry *v; /* owned */
	size_t n;
	char *git, *common; /* owned: of the repository, NULL: there is none */
};

static void look_done(struct look *l)
{
	buf_done(&l->text);
	free(l->v);
	free(l->git);
	free(l->common);
}
#define _cleanup_look_ __attribute__((cleanup(look_done)))

/* places: of an earlier look, NULL: none. */
static int run(struct sandbox *sb, const char *cwd, const struct look *places, struct buf *out,
	       struct err *e)
{
	char *argv[] = {(char *)(uintptr_t) "/bin/sh",
			(char *)(uintptr_t) "-c",
			(char *)(uintptr_t)look_script,
			(char *)(uintptr_t) "sh",
			places ? places->git : NULL,
			places && places->git ? places->common : NULL,
			NULL};
	char *env[] = {(char *)(uintptr_t) "LC_ALL=C", NULL};
	struct command_opts o = {.argv = argv,
				 .env = env,
				 .cwd = cwd,
				 .io = {.in = -1, .out = -1, .err = -1, .capture_out = out},
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

	if (strlen(line) < 6 || !strchr("fldor", line[0]) || line[1] != ' ' || line[3] != ' ')
		return false;
	path = line + 4;
	value = strchr(path, ' ');
	if (!value || value == path)
		return false;
	*value++ = '\0';
	*ret = (struct entry){path, value, line[0], line[2]};
	return true;
}

static char *decode(const char *base64)
{
	size_t room = strlen(base64) + 1, n = 0;
	char *raw = malloc(room);

	if (raw && sodium_base642bin((unsigned char *)raw, room - 1, base64, strlen(base64), NULL,
				     &n, NULL, sodium_base64_VARIANT_ORIGINAL) < 0)
		n = 0;
	if (raw)
		raw[n] = '\0';
	return raw;
}

/* "g GITDIR COMMONDIR" */
static bool take_places(struct look *l, char *words)
{
	char *common = strchr(words, ' ');

	if (!common || l->git)
		return false;
	*common++ = '\0';
	l->git = decode(words);
	l->common = decode(common);
	return l->git && l->common && *l->git && *l->common;
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
		if (str_starts(line, "g "))
			whole = take_places(l, line + 2);
		else
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
		const struct look *places, struct look *ret, struct err *e)
{
	int r;

	*ret = (struct look){.text = BUF_INIT(INPLACE_GIT_MAX)};
	r = run(sb, cwd, places, &ret->text, e);
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
	int r = look(sb, cwd, run_dir, "git-before", NULL, &l, e);

	return r < 0 ? r : l.git != NULL;
}

static void show(struct buf *b, const char *cwd, const struct entry *x, unsigned n)
{
	_cleanup_free_ char *raw = decode(x->path), *joined = NULL, *clean = NULL;
	const char *name;

	if (n >= NAMES_SHOWN) {
		if (n == NAMES_SHOWN)
			(void)buf_puts(b, ", ...");
		return;
	}
	joined = raw && raw[0] != '/' ? path_join(cwd, raw) : NULL;
	clean = joined ? path_normalize(joined) : raw ? path_normalize(raw) : NULL;
	name = clean ? clean : "?";
	(void)buf_puts(b, n ? ", " : "");
	(void)str_printable(b, name, strnlen(name, NAME_SHOWN));
}

struct diff {
	const char *cwd;
	struct buf changed, refs; /* names */
	unsigned n, n_refs;
	const char *last;
};

/* As another kind of thing it is a second entry, of the same name. */
static void differs(struct diff *d, const struct entry *x)
{
	if (x->kind == 'r') {
		show(&d->refs, d->cwd, x, d->n_refs++);
	} else if (!d->last || strcmp(d->last, x->path) != 0) {
		show(&d->changed, d->cwd, x, d->n++);
		d->last = x->path;
	}
}

static void compare(const struct look *a, const struct look *b, struct diff *d)
{
	size_t i = 0, j = 0;

	while (i < a->n || j < b->n) {
		int c = i == a->n ? 1 : j == b->n ? -1 : by_path(&a->v[i], &b->v[j]);

		if (c == 0 &&
		    (a->v[i].mode != b->v[j].mode || strcmp(a->v[i].value, b->v[j].value) != 0))
			differs(d, &a->v[i]);
		if (c < 0)
			differs(d, &a->v[i]);
		if (c > 0)
			differs(d, &b->v[j]);
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

int inplace_compare(struct sandbox *sb, const char *cwd, const char *run_dir,
		    struct inplace_report *ret, struct err *e)
{
	struct diff d = {cwd, BUF_INIT(16384), BUF_INIT(16384), 0, 0, NULL};
	_cleanup_look_ struct look before = {0}, after = {0};
	int r = load(run_dir, cwd, &before, e);

	if (r == 0)
		r = look(sb, cwd, run_dir, "git-after", &before, &after, e);
	if (r == 0) {
		compare(&before, &after, &d);
		ret->compared = true;
		ret->changed = d.n ? buf_take(&d.changed) : NULL;
		ret->refs = d.n_refs ? buf_take(&d.refs) : NULL;
	}
	buf_done(&d.changed);
	buf_done(&d.refs);
	return r;
}

void inplace_report_done(struct inplace_report *r)
{
	free(r->changed);
	free(r->refs);
	*r = (struct inplace_report){0};
}
