#include "sync/quarantine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/path.h"
#include "base/str.h"
#include "os/beneath.h"
#include "sync/git_find.h"
#include "sync/quarantine_inside.h"

#define DIR_NAME "quarantine"
#define WANTS_MAX (128 << 10)
#define SMALL_PACK 100 /* objects; fewer become loose, as git's own receive.unpackLimit */
#define PACK_HEADER 12

const char *const quarantine_identity[] = {"GIT_AUTHOR_NAME=Airlock",
					   "GIT_AUTHOR_EMAIL=airlock@localhost",
					   "GIT_COMMITTER_NAME=Airlock",
					   "GIT_COMMITTER_EMAIL=airlock@localhost", NULL};

/* Bounds of what one hostile object can make git allocate; the rest is BUNDLE_GIT_MEMORY. */
static const char config_text[] = "[core]\n\trepositoryformatversion = %d\n\tbare = true\n"
				  "\tbigFileThreshold = 32m\n\tpackedGitLimit = 512m\n"
				  "\tpackedGitWindowSize = 32m\n\tdeltaBaseCacheLimit = 64m\n"
				  "[pack]\n\tthreads = 1\n\twindowMemory = 128m\n"
				  "[gc]\n\tauto = 0\n%s";

static int put_file(const struct quarantine *q, const char *name, const char *text)
{
	_cleanup_fd_ int fd =
	    openat(q->fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	size_t n = strlen(text);

	if (fd < 0)
		return -errno;
	return write(fd, text, n) == (ssize_t)n ? 0 : -ENOSPC;
}

/* git splits the variable at ':' unless an entry is quoted as a C string. */
static int make_alternates(struct quarantine *q)
{
	_cleanup_buf_ struct buf b = BUF_INIT(8 * PATH_MEMBER_MAX);

	(void)buf_puts(&b, "GIT_ALTERNATE_OBJECT_DIRECTORIES=\"");
	for (const char *p = q->host->common_dir; *p; p++) {
		if (*p == '"' || *p == '\\')
			(void)buf_putf(&b, "\\%c", *p);
		else if ((unsigned char)*p < 0x20)
			(void)buf_putf(&b, "\\%03o", (unsigned char)*p);
		else
			(void)buf_putc(&b, *p);
	}
	(void)buf_puts(&b, "/objects\"");
	q->alternates = buf_take(&b);
	return q->alternates ? 0 : -ENOMEM;
}

static int fill(struct quarantine *q)
{
	static const char *const dirs[] = {"objects", "objects/pack", "objects/info",
					   "refs",    "refs/heads",   "tree"};
	_cleanup_free_ char *shallow = git_find_slurp(q->host->common_dir, "shallow", CONFIG_MAX);
	char config[1024];
	int r = 0;

	for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
		if (mkdirat(q->fd, dirs[i], 0700) < 0)
			return -errno;
	(void)snprintf(config, sizeof(config), config_text, q->host->sha256 ? 1 : 0,
		       q->host->sha256 ? "[extensions]\n\tobjectFormat = sha256\n" : "");
	r = put_file(q, "HEAD", "ref: refs/heads/none\n");
	if (!r)
		r = put_file(q, "config", config);
	/* Where the host's own clone is cut, history ends here too. */
	if (!r && shallow && *shallow) {
		_cleanup_free_ char *line = NULL;

		r = asprintf(&line, "%s\n", shallow) < 0 ? -ENOMEM : put_file(q, "shallow", line);
	}
	q->tree_fd = openat(q->fd, "tree", O_PATH | O_DIRECTORY | O_CLOEXEC);
	return !r && q->tree_fd < 0 ? -errno : r;
}

int quarantine_new(const struct git_repo *host, const char *run_dir, struct quarantine **ret,
		   struct err *e)
{
	struct quarantine *q = calloc(1, sizeof(*q));
	struct beneath below = {0};
	_cleanup_free_ char *tree = NULL;
	int r = -ENOMEM;

	if (!q)
		return err_sys(e, ENOMEM, "%s", run_dir);
	q->host = host;
	q->fd = q->tree_fd = -1;
	q->run_fd = open(run_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	q->dir = path_join(run_dir, DIR_NAME);
	tree = q->dir ? path_join(q->dir, "tree") : NULL;
	below.root = q->run_fd;
	if (q->run_fd < 0)
		r = -errno;
	else if (tree)
		r = beneath_remove_tree(&below, DIR_NAME); /* of an attempt that was killed */
	if (!r && mkdirat(q->run_fd, DIR_NAME, 0700) < 0)
		r = -errno;
	if (!r) {
		q->fd =
		    openat(q->run_fd, DIR_NAME, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		r = q->fd < 0 ? -errno : fill(q);
	}
	if (!r)
		r = make_alternates(q);
	if (r < 0)
		r = err_sys(e, -r, "cannot make %s", q->dir ? q->dir : run_dir);
	else
		r = git_at(host, q->dir, tree, &q->git, e);
	if (r < 0) {
		quarantine_free(q);
		return r;
	}
	*ret = q;
	return 0;
}

void quarantine_free(struct quarantine *q)
{
	struct beneath below;

	if (!q)
		return;
	below = (struct beneath){.root = q->run_fd};
	if (q->run_fd >= 0)
		(void)beneath_remove_tree(&below, DIR_NAME);
	git_free(q->git);
	cleanup_fd(&q->run_fd);
	cleanup_fd(&q->fd);
	cleanup_fd(&q->tree_fd);
	free(q->dir);
	free(q->alternates);
	free(q);
}

int quarantine_try(const struct quarantine *q, const char *const *words, struct process_opts *io,
		   int *status, struct err *e)
{
	const char *extra[8] = {q->alternates};

	for (size_t i = 0; quarantine_identity[i]; i++)
		extra[i + 1] = quarantine_identity[i];
	io->cwd_fd = q->tree_fd;
	if (!io->mem_max)
		io->mem_max = BUNDLE_GIT_MEMORY;
	io->file_max = BUNDLE_BYTES_MAX;
	return git_try(q->git, words, extra, io, status, e);
}

int quarantine_git(const struct quarantine *q, const char *const *words, struct process_opts *io,
		   struct err *e)
{
	return quarantine_try(q, words, io, NULL, e);
}

static int ask(const struct quarantine *q, const char *const *words, const char *in,
	       struct buf *out, struct err *e)
{
	struct process_opts io = PROCESS_OPTS_INIT;

	io.in = in;
	io.in_len = in ? strlen(in) : 0;
	io.out = out;
	return quarantine_git(q, words, &io, e);
}

static bool is_line(const struct buf *b, const char *want)
{
	size_t n = strlen(want);

	return b->len == n + 1 && memcmp(b->data, want, n) == 0 && b->data[n] == '\n';
}

/* Each of them a commit of the host: a blob or an unknown id there would make git guess. */
static int check_prerequisites(const struct quarantine *q, const struct bundle *b, struct err *e)
{
	const char *const words[] = {"cat-file", "--batch-check=%(objecttype)", NULL};
	_cleanup_buf_ struct buf in = BUF_INIT(WANTS_MAX), out = BUF_INIT(WANTS_MAX);
	const char *p;
	int r;

	for (size_t i = 0; i < b->prereq_n; i++)
		(void)buf_putf(&in, "%s\n", b->prereq[i]);
	if (!b->prereq_n)
		return 0;
	r = ask(q, words, buf_text(&in), &out, e);
	if (r < 0)
		return r;
	p = buf_text(&out);
	for (size_t i = 0; i < b->prereq_n; i++, p += 7)
		if (!str_starts(p, "commit\n"))
			return err_set(e, ERR_HOSTILE,
				       "it builds on %s, which is no commit of this repository",
				       b->prereq[i]);
	return 0;
}

static int index_pack(const struct quarantine *q, int fd, const struct bundle *b, struct err *e)
{
	char max[64];
	const char *const words[] = {"index-pack", "--stdin", "--fix-thin", "--strict", max, NULL};
	struct process_opts io = PROCESS_OPTS_INIT;
	struct err why = ERR_INIT;
	int r;

	(void)snprintf(max, sizeof(max), "--max-input-size=%llu",
		       (unsigned long long)BUNDLE_BYTES_MAX);
	if (lseek(fd, (off_t)b->pack_at, SEEK_SET) < 0)
		return err_sys(e, errno, "bundle");
	io.in_fd = fd;
	r = quarantine_git(q, words, &io, &why);
	if (r == -ECANCELED || r == -ETIMEDOUT) {
		*e = why;
		return r;
	}
	return r < 0 ? err_set(e, ERR_HOSTILE, "its objects were refused: %s", why.text) : 0;
}

int quarantine_count(const struct quarantine *q, const char *head, const char *base,
		     uint64_t *ret_commits, struct err *e)
{
	const char *const words[] = {"rev-list", "--count", "--stdin", NULL};
	_cleanup_buf_ struct buf in = BUF_INIT(256), out = BUF_INIT(256);
	int r;

	(void)buf_putf(&in, "%s\n", head);
	if (base[0])
		(void)buf_putf(&in, "^%s\n", base);
	r = ask(q, words, buf_text(&in), &out, e);
	if (!r)
		*ret_commits = strtoull(buf_text(&out), NULL, 10);
	return r;
}

static int check_reach(const struct quarantine *q, const char *head, const char *base,
		       uint64_t *ret_commits, struct err *e)
{
	const char *const type[] = {"cat-file", "-t", head, NULL};
	const char *const walk[] = {"rev-list", "--objects", "--quiet", "--stdin", NULL};
	_cleanup_buf_ struct buf in = BUF_INIT(256), out = BUF_INIT(256);
	int r = ask(q, type, NULL, &out, e);

	if (!r && !is_line(&out, "commit"))
		r = err_set(e, ERR_HOSTILE, "it names an object that is no commit");
	(void)buf_putf(&in, "%s\n", head);
	if (base[0])
		(void)buf_putf(&in, "^%s\n", base);
	if (!r)
		r = ask(q, walk, buf_text(&in), NULL, e);
	if (!r)
		r = quarantine_count(q, head, base, ret_commits, e);
	/* Something is missing that it must hold; asking the sandbox again would not help. */
	if (r == -EIO && e)
		e->code = ERR_HOSTILE;
	return r;
}

int quarantine_take(struct quarantine *q, int fd, const struct bundle *b, const char *base,
		    struct quarantine_seen *ret, struct err *e)
{
	int r;

	*ret = (struct quarantine_seen){0};
	if (b->sha256 != q->host->sha256)
		return err_set(e, ERR_HOSTILE, "its object format is not the repository's");
	r = check_prerequisites(q, b, e);
	if (!r)
		r = index_pack(q, fd, b, e);
	if (!r)
		r = check_reach(q, b->head, base, &ret->commits, e);
	return r ? r : quarantine_names(q, b->head, base, ret, e);
}

int quarantine_is_ancestor(const struct quarantine *q, const char *a, const char *b, struct err *e)
{
	const char *const words[] = {"rev-list", "-n1", "--stdin", NULL};
	_cleanup_buf_ struct buf in = BUF_INIT(256), out = BUF_INIT(256);
	int r;

	if (!a[0] || !b[0])
		return !a[0];
	(void)buf_putf(&in, "%s\n^%s\n", a, b);
	r = ask(q, words, buf_text(&in), &out, e);
	return r < 0 ? r : out.len == 0;
}

static int take_id(const struct buf *b, char ret[BUNDLE_OID_MAX + 1], struct err *e)
{
	const char *p = buf_text(b);
	size_t n = strspn(p, "0123456789abcdef");

	if ((n != 40 && n != 64) || (p[n] != '\n' && p[n]))
		return err_set(e, ERR_PROTOCOL, "git did not answer with an object id");
	memcpy(ret, p, n);
	ret[n] = '\0';
	return 0;
}

int quarantine_merge(const struct quarantine *q, const char *ours, const char *theirs,
		     const char *message, char ret[BUNDLE_OID_MAX + 1], const char **why,
		     struct err *e)
{
	const char *const merge[] = {"merge-tree", "--write-tree", "--no-messages",
				     ours,	   theirs,	   NULL};
	char tree[BUNDLE_OID_MAX + 1];
	const char *const commit[] = {"commit-tree", "-p",    ours, "-p", theirs,
				      "-m",	     message, tree, NULL};
	_cleanup_buf_ struct buf out = BUF_INIT(16 << 20), id = BUF_INIT(256);
	struct process_opts io = PROCESS_OPTS_INIT;
	int status = 0, r;

	io.out = &out;
	r = quarantine_try(q, merge, &io, &status, e);
	if (r < 0)
		return r;
	if (status) {
		*why = status == 1 ? "both sides changed the same place"
				   : "this git cannot merge without a work tree (2.38 can)";
		return 0;
	}
	r = take_id(&out, tree, e);
	if (!r)
		r = ask(q, commit, NULL, &id, e);
	if (!r)
		r = take_id(&id, ret, e);
	return r < 0 ? r : 1;
}

static int pack_for_host(const struct quarantine *q, const char *tip, const char *const *have,
			 int fd, struct err *e)
{
	const char *const words[] = {
	    "pack-objects", "--revs", "--stdout", "--thin", "--quiet", "--delta-base-offset", NULL};
	_cleanup_buf_ struct buf in = BUF_INIT(1024);
	struct process_opts io = PROCESS_OPTS_INIT;

	(void)buf_putf(&in, "%s\n", tip);
	for (size_t i = 0; have[i]; i++)
		if (have[i][0])
			(void)buf_putf(&in, "^%s\n", have[i]);
	io.in = buf_text(&in);
	io.in_len = in.len;
	io.out_fd = fd;
	return quarantine_git(q, words, &io, e);
}

int quarantine_give(const struct quarantine *q, const char *tip, const char *const *have,
		    struct err *e)
{
	/* The user's own configuration bounds less: the same as config_text. */
#define BOUNDED                                                                         \
	"-c", "core.bigFileThreshold=32m", "-c", "core.packedGitLimit=512m", "-c",      \
	    "core.packedGitWindowSize=32m", "-c", "core.deltaBaseCacheLimit=64m", "-c", \
	    "pack.threads=1"
	const char *const loose[] = {BOUNDED, "unpack-objects", "-q", NULL};
	const char *const packed[] = {BOUNDED, "index-pack", "--stdin", "--fix-thin", NULL};
#undef BOUNDED
	_cleanup_fd_ int fd = openat(q->fd, "give", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	struct process_opts io = PROCESS_OPTS_INIT;
	unsigned char head[PACK_HEADER];
	uint32_t objects;
	int r;

	if (fd < 0)
		return err_sys(e, errno, "%s/give", q->dir);
	r = pack_for_host(q, tip, have, fd, e);
	if (r < 0)
		return r;
	if (pread(fd, head, sizeof(head), 0) != sizeof(head) || lseek(fd, 0, SEEK_SET) < 0)
		return err_set(e, ERR_IO, "%s/give cannot be read", q->dir);
	objects =
	    (uint32_t)head[8] << 24 | (uint32_t)head[9] << 16 | (uint32_t)head[10] << 8 | head[11];
	if (!objects)
		return 0;
	io.in_fd = fd;
	io.cwd_fd = q->tree_fd;
	io.mem_max = BUNDLE_GIT_MEMORY;
	io.file_max = BUNDLE_BYTES_MAX;
	/* Safe because: our own git wrote this pack of objects that were checked in the quarantine. */
	return git_run(q->host, objects < SMALL_PACK ? loose : packed, NULL, &io, e);
}
