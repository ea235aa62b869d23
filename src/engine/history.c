#include "engine/history.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/path.h"
#include "engine/command.h"
#include "engine/interrupt.h"
#include "engine/runenv.h"
#include "sync/review.h"

#define SAID_MAX 4096

/* Exit statuses of the script that are no failure of git's. */
#define NO_REPOSITORY 70
#define NO_COMMIT 71
#define MOVED_BACK 72
#define NO_GIT 73

/*
 * What no way of HEAD brings back: without what was sent, which comes on stdin. Something of that may be gone
 * inside. Without a wildcard git would look below refs/stash.
 */
#define OTHERS \
	"--ignore-missing --stdin --branches --tags --glob='refs/stas[h]' --not HEAD ${1:+\"$1\"}"
#define HAS_OTHERS "airlock: more than HEAD"

/* GIT_DIR is given, so git asks for no owner's trust (FR-B052) and climbs nowhere. */
static const char script[] =
    "command -v git >/dev/null || exit 73\n"
    "[ -f \"$GIT_DIR/HEAD\" ] || exit 70\n" /* a FIFO would hold git until the time limit */
    "now=$(git rev-parse -q --verify 'HEAD^{commit}' 2>/dev/null) || {\n"
    "	git rev-parse --git-dir >/dev/null 2>&1 || exit 70\n"
    "	[ -z \"$1\" ] && git symbolic-ref -q HEAD >/dev/null 2>&1 && exit 0\n"
    "	exit 71\n"
    "}\n"
    "if [ -n \"$(git rev-list -n1 " OTHERS " 2>/dev/null)\" ]; then\n"
    "	echo '" HAS_OTHERS "' >&2\n"
    "fi\n"
    "[ \"$now\" != \"$1\" ] || exit 0\n"
    "if [ -n \"$1\" ] && git cat-file -e \"$1^{commit}\" 2>/dev/null; then\n"
    "	new=$(git rev-list -n1 \"$now\" --not \"$1\") || exit 70\n"
    "	[ -n \"$new\" ] || exit 72\n"
    "	exec git bundle create -q - HEAD --not \"$1\"\n"
    "fi\n"
    "exec git bundle create -q - HEAD\n";

static const char others_script[] = "exec git bundle create -q - " OTHERS "\n";

static int failed(struct history *h, bool retry, const char *why)
{
	h->outcome = HISTORY_FAILED;
	h->retry = retry;
	(void)snprintf(h->why, sizeof(h->why), "%s", why);
	return -1;
}

/* git's verdict comes last. */
static void put_last_line(struct buf *b, const char *said)
{
	size_t n = strlen(said), at;

	while (n && said[n - 1] == '\n')
		n--;
	for (at = n; at && said[at - 1] != '\n';)
		at--;
	(void)str_printable(b, said + at, n - at);
}

/* How the script ended. 0: there may be a bundle. */
static int judge(const struct command_result *c, const struct buf *said, struct history *h)
{
	_cleanup_buf_ struct buf b = BUF_INIT(8 * SAID_MAX);

	if (c->out_bytes > BUNDLE_BYTES_MAX) {
		(void)buf_putf(&b, "the commits are larger than %llu bytes (limit bundle)",
			       (unsigned long long)BUNDLE_BYTES_MAX);
		return failed(h, true, buf_text(&b));
	}
	if (c->end == END_TIMEOUT) {
		(void)buf_putf(&b, "git inside did not finish within %d s", GIT_TIMEOUT_MS / 1000);
		return failed(h, true, buf_text(&b));
	}
	if (c->end == END_ABANDONED)
		return failed(h, true, "stopped by a second signal");
	if (c->end != END_EXITED && c->end != END_SIGNALED)
		return failed(h, true, "the sandbox ended while its commits were being packed");
	if (c->end == END_EXITED && c->code == 0)
		return 0;
	switch (c->signo ? -1 : c->code) {
	case NO_REPOSITORY:
		(void)buf_puts(&b, "the repository inside was removed or is broken");
		if (buf_text(said)[0] && !strstr(buf_text(said), HAS_OTHERS)) {
			(void)buf_puts(&b, ": ");
			put_last_line(&b, buf_text(said));
		}
		return failed(h, false, buf_text(&b));
	case NO_COMMIT:
		return failed(h, false, "HEAD inside names no commit any more");
	case NO_GIT:
		return failed(h, false, "there is no git inside");
	case MOVED_BACK:
		(void)snprintf(h->why, sizeof(h->why),
			       "HEAD inside was moved back, nothing new was committed");
		return -1;
	default:
		(void)buf_putf(&b, "git inside failed (status %d): ", command_status(c));
		put_last_line(&b, buf_text(said));
		return failed(h, true, buf_text(&b));
	}
}

static int environment(const struct sandbox *sb, const struct history_opts *o, char ***ret)
{
	static const char *const plain[] = {"HOME=/nonexistent",     "LC_ALL=C",
					    "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
					    "GIT_OPTIONAL_LOCKS=0",  "GIT_NO_REPLACE_OBJECTS=1",
					    "GIT_TERMINAL_PROMPT=0"};
	_cleanup_free_ char *path = NULL, *dir = NULL;
	/* What an account there has only that machine knows. */
	const bool login = sb->ops->elsewhere && !sb->ops->isolates;
	const char *list = o->path;
	int r;

	if (!list || (login && !list[0]))
		list = login ? NULL : INSIDE_HOME "/.local/bin:" PATH_SYSTEM;
	r = asprintf(&dir, "GIT_DIR=%s/.git", sb->inside) < 0 ? -ENOMEM : strv_add(ret, dir);
	if (r == 0 && list)
		r = asprintf(&path, "PATH=%s", list) < 0 ? -ENOMEM : strv_add(ret, path);
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(plain); i++)
		r = strv_add(ret, plain[i]);
	return r;
}

/* Heap or NULL. */
static char *beside(const struct history_opts *o, const char *leaf)
{
	char *p = NULL;

	return asprintf(&p, "%s/%s.new", o->run_dir, leaf) < 0 ? NULL : p;
}

/* "^<id>" of each ref that the seed holds (gitseed.h), for git's stdin. */
static int put_ids(int dir, int to)
{
	_cleanup_fd_ int fd =
	    openat(dir, ".git/packed-refs", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	_cleanup_free_ char *line = NULL;
	FILE *in = fd < 0 ? NULL : fdopen(fd, "r"), *out;
	size_t cap = 0;
	int r;

	if (!in)
		return -ENOENT;
	fd = -1;
	out = fdopen(fcntl(to, F_DUPFD_CLOEXEC, 0), "w");
	while (out && getline(&line, &cap, in) > 0) {
		size_t n = strspn(line, "0123456789abcdef");

		if ((n == 40 || n == 64) && line[n] == ' ')
			(void)fprintf(out, "^%.*s\n", (int)n, line);
	}
	r = !out || ferror(in) || ferror(out) ? -EIO : 0;
	(void)fclose(in);
	if (out && fclose(out) != 0)
		r = -EIO;
	return r == 0 && lseek(to, 0, SEEK_SET) < 0 ? -errno : r;
}

/*
 * With the full history the host's other branches, tags and remotes are inside too. The refs that were sent lie in the layer
 * of the repository, which the lease holds. -1: none, or they cannot be told: then more comes back than is new.
 */
static int sent_ids(const struct lease_spec *spec)
{
	int fd = spec->git == GIT_FULL ? memfd_create("airlock-sent", MFD_CLOEXEC) : -1;

	for (size_t i = 0; fd >= 0 && spec->layers && spec->layers[i]; i++) {
		_cleanup_fd_ int dir =
		    open(spec->layers[i], O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

		if (dir >= 0 && put_ids(dir, fd) == 0)
			return fd;
	}
	cleanup_fd(&fd);
	return -1;
}

struct fetch {
	const char *script,
	    *leaf; /* what is run, where its output comes to lie in the run's directory */
	struct command_result end;
	struct buf said;
};

/*
 * 0: the script ran; what it put out lies in the file `leaf`.new when f->end.out_bytes is not 0. The one without .new may be of
 * an attempt before, and hold what the sandbox has no more.
 */
static int run(struct sandbox *sb, const struct history_opts *o, int sent, struct fetch *f,
	       struct err *e)
{
	char *argv[] = {(char *)(uintptr_t) "sh",
			(char *)(uintptr_t) "-c",
			(char *)(uintptr_t)f->script,
			(char *)(uintptr_t) "airlock-history",
			o->spec->head ? o->spec->head : (char *)(uintptr_t) "",
			NULL};
	_cleanup_free_ char *file = beside(o, f->leaf);
	_cleanup_strv_ char **env = NULL;
	_cleanup_fd_ int fd = -1;
	struct command_opts co = {
	    .argv = argv,
	    .cwd = "/",
	    .io = {.in = sent, .err = -1, .capture_err = &f->said, .out_max = BUNDLE_BYTES_MAX},
	    .timeout_ns = GIT_TIMEOUT_MS * NS_PER_MS,
	    .cancel = interrupt_second()};
	struct stat st;
	int r;

	if (!file || environment(sb, o, &env) < 0)
		return err_set(e, ERR_NOMEM, "out of memory");
	(void)unlink(file); /* of an attempt that was cut */
	fd = open(file, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_sys(e, errno, "%s", file);
	if (sent >= 0 && lseek(sent, 0, SEEK_SET) < 0)
		return err_sys(e, errno, "tell what was sent");
	co.env = env;
	co.io.out = fd;
	r = command_run(sb, &co, &f->end, e);
	if (r == 0 && f->end.out_bytes <= BUNDLE_BYTES_MAX &&
	    (fstat(fd, &st) < 0 || (uint64_t)st.st_size != f->end.out_bytes))
		r = err_set(e, ERR_NO_SPACE, "the disk here is full");
	if (r < 0 || !f->end.out_bytes)
		(void)unlink(file);
	return r;
}

static void drop(const struct history_opts *o, const char *leaf)
{
	_cleanup_free_ char *file = beside(o, leaf);

	if (file)
		(void)unlink(file);
}

static int take(const struct history_opts *o, const char *leaf, struct err *e)
{
	_cleanup_free_ char *from = beside(o, leaf), *to = path_join(o->run_dir, leaf);

	if (!from || !to)
		return err_set(e, ERR_NOMEM, "out of memory");
	return rename(from, to) < 0 ? err_sys(e, errno, "keep %s", to) : 0;
}

/* 1: a bundle lies in the run's directory. 0: decided without one. */
static int fetch(struct sandbox *sb, const struct history_opts *o, int sent, struct history *h)
{
	struct fetch f = {script, GITBACK_BUNDLE, {0}, BUF_INIT(SAID_MAX)};
	struct err e = ERR_INIT;
	int r = run(sb, o, sent, &f, &e);

	if (r < 0)
		(void)failed(h, true, e.text);
	else if (judge(&f.end, &f.said, h) < 0)
		drop(o, GITBACK_BUNDLE), r = -1;
	else if (f.end.out_bytes && take(o, f.leaf, &e) < 0)
		r = failed(h, true, e.text);
	else if (strstr(buf_text(&f.said), HAS_OTHERS))
		h->others = OTHERS_FAILED; /* until they are here */
	buf_done(&f.said);
	return r == 0 && f.end.out_bytes > 0;
}

/*
 * Commits of other branches, tags and the stash are not for us to place, but they must not die with
 * the sandbox: kept as bytes beside the run, which nothing here reads.
 */
static void keep_others(struct sandbox *sb, const struct history_opts *o, int sent,
			struct history *h)
{
	struct fetch f = {others_script, GITBACK_OTHERS, {0}, BUF_INIT(SAID_MAX)};
	struct history sink = {0};
	struct err e = ERR_INIT;

	if (h->others == OTHERS_NONE)
		return;
	if (run(sb, o, sent, &f, &e) < 0)
		(void)failed(&sink, true, e.text);
	else if (judge(&f.end, &f.said, &sink) == 0 && f.end.out_bytes && take(o, f.leaf, &e) == 0)
		h->others = OTHERS_KEPT;
	if (h->others != OTHERS_KEPT) {
		(void)snprintf(h->others_why, sizeof(h->others_why), "%s", sink.why);
		drop(o, GITBACK_OTHERS);
		h->retry = true;
	}
	buf_done(&f.said);
}

void history_refuse(const char *run_dir, const struct history *h)
{
	_cleanup_free_ char *from = path_join(run_dir, GITBACK_BUNDLE);
	_cleanup_free_ char *to = path_join(run_dir, GITBACK_REFUSED);

	if (h->outcome == HISTORY_FAILED && !h->retry && from && to)
		(void)rename(from, to);
}

/* A set that waits, asked for one path. */
struct held {
	struct review *rv;	 /* owned */
	struct review_entry *en; /* owned, scratch */
};

static int in_set(void *arg, const char *path, struct quarantine_file *ret)
{
	struct held *h = arg;
	const struct change *c = &h->en->s;

	if (review_find(h->rv, path, h->en) < 0)
		return -ENOENT;
	if (c->kind != MK_FILE && c->kind != MK_LINK)
		return 0;
	*ret = (struct quarantine_file){.link = c->kind == MK_LINK, .exec = c->mode & 0100};
	memcpy(ret->hash, c->hash, sizeof(ret->hash));
	return 1;
}

/* What the workspace would have after an apply is told from the set; without one it is told from the work tree. */
static void open_held(const struct history_opts *o, struct gitback_opts *g, struct held *h)
{
	const struct review_place p = {.run_dir = o->run_dir,
				       .root = o->lease->workspace,
				       .manifest_path = o->spec->manifest,
				       .layers = o->spec->layers};
	struct err e = ERR_INIT;

	h->en = g->hold && o->files_back ? malloc(sizeof(*h->en)) : NULL;
	if (!h->en || review_open(&p, &h->rv, &e) < 0)
		return;
	g->has = in_set;
	g->has_arg = h;
}

void history_out(struct sandbox *sb, const struct history_opts *o, struct transfer *t)
{
	struct gitback_opts g = {.workspace = o->lease->workspace,
				 .run_dir = o->run_dir,
				 .run_id = o->run_id,
				 .head = o->spec->head ? o->spec->head : "",
				 .branch = o->spec->branch,
				 .import_only = !o->files_back,
				 .hold = o->spec->review,
				 .cancel = interrupt_second()};
	_cleanup_fd_ int sent = -1; /* both scripts take it */
	struct held held = {0};

	history_done(&t->history);
	/* The layer holds no .git: nothing of the repository was touched, HEAD neither. */
	if (!o->spec->repo || !t->left_out)
		return;
	t->history.asked = true;
	sent = sent_ids(o->spec);
	if (fetch(sb, o, sent, &t->history) == 1) {
		open_held(o, &g, &held);
		gitback_import(&g, &t->history);
		review_free(held.rv);
		free(held.en);
		if (g.hold)
			history_refuse(o->run_dir, &t->history);
	}
	keep_others(sb, o, sent, &t->history);
}
