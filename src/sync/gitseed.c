#include "sync/gitseed.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/path.h"
#include "base/str.h"
#include "sync/git_find.h"

#define SEED_CONFIG_MAX (1 << 20)
#define REFS_MAX (64 << 20)
#define INDEX_FILE_MAX (UINT64_C(4) << 30)
#define GIVE_DEPTH_MAX 16

/* user@host:path without a password; a path or another transport is not carried. */
static bool is_scp_like(const char *url)
{
	const char *at = strchr(url, '@'), *colon = strchr(url, ':');

	return at && colon && at > url && at < colon && !strstr(url, "::") && url[0] != '-' &&
	       !memchr(url, '/', (size_t)(colon - url));
}

char *gitseed_clean_url(const char *url)
{
	static const char *const schemes[] = {"http://", "https://", "ssh://", "git://",
					      "git+ssh://"};
	size_t scheme = 0, user = 0, host, end, which = 0;
	const char *rest, *at, *colon;
	char *out = NULL;

	for (const char *p = url; *p; p++)
		if ((unsigned char)*p <= 0x20 || *p == 0x7f)
			return NULL;
	for (; which < ARRAY_LEN(schemes) && !scheme; which++)
		if (strncasecmp(url, schemes[which], strlen(schemes[which])) == 0)
			scheme = strlen(schemes[which]);
	if (!scheme)
		return is_scp_like(url) ? strdup(url) : NULL;
	rest = url + scheme;
	host = strcspn(rest, "/?#");
	end = strcspn(rest, "?#");
	at = memrchr(rest, '@', host);
	/* The login name of ssh is no secret and needed; that of http is half of a token. */
	if (at && which > 2) {
		colon = memchr(rest, ':', (size_t)(at - rest));
		user = (size_t)((colon ? colon : at) - rest);
	}
	host = at ? (size_t)(at + 1 - rest) : 0;
	if (asprintf(&out, "%.*s%.*s%s%.*s", (int)scheme, url, (int)user, rest, user ? "@" : "",
		     (int)(end - host), rest + host) < 0)
		return NULL;
	return out;
}

/* A value in git's own quoting, so that no byte of it can begin a new line or section. */
static void put_quoted(struct buf *b, const char *v)
{
	(void)buf_putc(b, '"');
	for (; *v; v++) {
		if (*v == '\n')
			(void)buf_puts(b, "\\n");
		else if (*v == '\\' || *v == '"')
			(void)buf_putf(b, "\\%c", *v);
		else
			(void)buf_putc(b, *v);
	}
	(void)buf_putc(b, '"');
}

/* Settings that change what "unmodified" means; only plain words are believed. */
static void put_word(const struct gitseed_opts *o, struct buf *b, const char *key, const char *name)
{
	static const char *const words[] = {"true", "false", "input", "lf", "crlf", "native"};
	const char *v = git_config_get(o->config, key);

	for (size_t i = 0; v && i < ARRAY_LEN(words); i++)
		if (strcmp(v, words[i]) == 0)
			(void)buf_putf(b, "\t%s = %s\n", name, v);
}

static void put_remotes(const struct gitseed_opts *o, struct buf *b)
{
	const char *key, *value;
	size_t pos = 0, n;

	while (git_config_next(o->config, &pos, &key, &n, &value)) {
		_cleanup_free_ char *name = NULL, *url = NULL;

		if (n < 12 || memcmp(key, "remote.", 7) != 0 || memcmp(key + n - 4, ".url", 4) != 0)
			continue;
		name = strndup(key + 7, n - 11);
		url = gitseed_clean_url(value);
		if (!name || !url || strpbrk(name, "\n\"\\]"))
			continue;
		(void)buf_putf(b, "[remote \"%s\"]\n\turl = ", name);
		put_quoted(b, url);
		(void)buf_puts(b, "\n\tfetch = ");
		(void)buf_putf(b, "\"+refs/heads/*:refs/remotes/%s/*\"\n", name);
	}
}

static int make_config(const struct gitseed_opts *o, struct buf *b, struct err *e)
{
	const char *name = git_config_get(o->config, "user.name");
	const char *email = git_config_get(o->config, "user.email");

	(void)buf_putf(b,
		       "[core]\n\trepositoryformatversion = %d\n\tfilemode = true\n\tbare = false\n"
		       "\tlogallrefupdates = true\n\tcheckStat = minimal\n\ttrustctime = false\n",
		       o->git->sha256 ? 1 : 0);
	put_word(o, b, "core.autocrlf", "autocrlf");
	put_word(o, b, "core.eol", "eol");
	if (o->git->sha256)
		(void)buf_puts(b, "[extensions]\n\tobjectFormat = sha256\n");
	(void)buf_puts(b, "[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n");
	if (name || email)
		(void)buf_puts(b, "[user]\n");
	if (name) {
		(void)buf_puts(b, "\tname = ");
		put_quoted(b, name);
		(void)buf_putc(b, '\n');
	}
	if (email) {
		(void)buf_puts(b, "\temail = ");
		put_quoted(b, email);
		(void)buf_putc(b, '\n');
	}
	put_remotes(o, b);
	return b->err ? err_sys(e, -b->err, "config of the sandbox's repository") : 0;
}

/* "<id> <ref>" lines: what packed-refs will hold. */
static int make_refs(const struct gitseed_opts *o, struct buf *b, struct err *e)
{
	const char *const words[] = {"for-each-ref", "--format=%(objectname) %(refname)",
				     "refs/heads",   "refs/tags",
				     "refs/remotes", NULL};
	struct process_opts io = PROCESS_OPTS_INIT;

	if (!o->git->head[0])
		return 0;
	if (o->policy == GIT_FULL) {
		io.out = b;
		return git_run(o->git, words, NULL, &io, e);
	}
	if (o->git->branch)
		(void)buf_putf(b, "%s %s\n", o->git->head, o->git->branch);
	return b->err ? err_sys(e, -b->err, "refs of the sandbox's repository") : 0;
}

static void feed_str(crypto_generichash_state *h, const char *s)
{
	(void)crypto_generichash_update(h, (const unsigned char *)s, strlen(s) + 1);
}

int gitseed_key(const struct gitseed_opts *o, char key[STORE_SEED_MAX], struct err *e)
{
	_cleanup_buf_ struct buf config = BUF_INIT(SEED_CONFIG_MAX), refs = BUF_INIT(REFS_MAX);
	crypto_generichash_state h;
	unsigned char sum[24];
	char owner[64];
	int r = make_config(o, &config, e);

	if (!r)
		r = make_refs(o, &refs, e);
	if (r < 0)
		return r;
	(void)crypto_generichash_init(&h, NULL, 0, sizeof(sum));
	(void)snprintf(owner, sizeof(owner), "seed 1 %d %u %u", o->policy, o->owner, o->group);
	feed_str(&h, owner);
	feed_str(&h, o->git->head);
	feed_str(&h, o->git->branch ? o->git->branch : "");
	feed_str(&h, buf_text(&config));
	feed_str(&h, buf_text(&refs));
	(void)crypto_generichash_update(&h, o->held, MANIFEST_HASH);
	(void)crypto_generichash_final(&h, sum, sizeof(sum));
	(void)sodium_bin2hex(key, STORE_SEED_MAX, sum, sizeof(sum));
	return 0;
}

struct seed {
	const struct gitseed_opts *o;
	const struct manifest *manifest;
	int fd;			    /* the new .git */
	char *dir;		    /* its path, for git's own arguments; owned */
	struct timespec index_time; /* of the host's index; 0 without one */
	struct buf held;	    /* tracked paths that did not travel, NUL-ended */
	struct manifest_entry entry;
	struct err *e;
};

static int put_file(struct seed *s, const char *name, const char *text, size_t n)
{
	_cleanup_fd_ int fd =
	    openat(s->fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);

	if (fd < 0 || write(fd, text, n) != (ssize_t)n)
		return err_sys(s->e, fd < 0 || errno ? errno : ENOSPC, "%s/%s", s->dir, name);
	return 0;
}

static int make_skeleton(struct seed *s)
{
	static const char *const dirs[] = {"objects",	 "objects/pack", "objects/info", "refs",
					   "refs/heads", "refs/tags",	 "info"};
	const struct git_repo *g = s->o->git;
	_cleanup_buf_ struct buf config = BUF_INIT(SEED_CONFIG_MAX), refs = BUF_INIT(REFS_MAX);
	char head[4200];
	int r = 0, n;

	for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
		if (mkdirat(s->fd, dirs[i], 0755) < 0)
			return err_sys(s->e, errno, "%s/%s", s->dir, dirs[i]);
	n = g->branch ? snprintf(head, sizeof(head), "ref: %s\n", g->branch)
		      : snprintf(head, sizeof(head), "%s\n", g->head);
	r = put_file(s, "HEAD", head, (size_t)n);
	if (!r)
		r = make_config(s->o, &config, s->e);
	if (!r)
		r = put_file(s, "config", config.data, config.len);
	if (!r)
		r = make_refs(s->o, &refs, s->e);
	if (!r && refs.len)
		r = put_file(s, "packed-refs", refs.data, refs.len);
	return r;
}

/* Where history is cut: at the commit itself, or where the host's own clone is cut. */
static int put_shallow(struct seed *s)
{
	const struct git_repo *g = s->o->git;
	_cleanup_free_ char *host = NULL;
	char line[80];
	int n;

	if (s->o->policy == GIT_SHALLOW) {
		n = snprintf(line, sizeof(line), "%s\n", g->head);
		return put_file(s, "shallow", line, (size_t)n);
	}
	host = git_find_slurp(g->common_dir, "shallow", CONFIG_MAX);
	return host && *host ? put_file(s, "shallow", host, strlen(host)) : 0;
}

static bool is_partial(const struct gitseed_opts *o)
{
	const char *key, *value;
	size_t pos = 0, n;

	while (git_config_next(o->config, &pos, &key, &n, &value))
		if (n > 9 && memcmp(key + n - 9, ".promisor", 9) == 0)
			return true;
	return git_config_get(o->config, "extensions.partialclone") != NULL;
}

/*
 * git makes a pack beside the repository's own and renames it: it would write to the host's repository, which may be
 * read-only or full, and the rename fails where the store lies on another file system. So its objects are
 * ours for this call, and the host's are its alternate, in quotes because a colon separates alternates.
 */
static int object_dirs(struct seed *s, struct buf *ours, struct buf *host)
{
	(void)buf_putf(ours, "GIT_OBJECT_DIRECTORY=%s/objects", s->dir);
	(void)buf_putf(host, "GIT_ALTERNATE_OBJECT_DIRECTORIES=\"");
	for (const char *p = s->o->git->common_dir; *p; p++)
		(void)buf_putf(host, *p == '"' || *p == '\\' ? "\\%c" : "%c", *p);
	(void)buf_putf(host, "/objects\"");
	return ours->err || host->err ? err_sys(s->e, ENOMEM, "git objects") : 0;
}

static int pack_objects(struct seed *s)
{
	_cleanup_buf_ struct buf ours = BUF_INIT(2 * PATH_MAX), host = BUF_INIT(3 * PATH_MAX);
	_cleanup_buf_ struct buf tree = BUF_INIT(2 * PATH_MAX);
	const char *words[12];
	const struct gitseed_opts *o = s->o;
	_cleanup_buf_ struct buf in = BUF_INIT(REFS_MAX), refs = BUF_INIT(REFS_MAX);
	_cleanup_free_ char *base = path_join(s->dir, "objects/pack/pack");
	struct process_opts io = PROCESS_OPTS_INIT;
	size_t n = 0;
	int r;

	if (!base)
		return err_sys(s->e, ENOMEM, "git objects");
	words[n++] = "pack-objects";
	words[n++] = "--revs";
	words[n++] = "--quiet";
	words[n++] = "--delta-base-offset";
	/* Deltas that the host has are used again; searching for new ones costs more than it saves. */
	words[n++] = "--window=0";
	words[n++] = "--compression=1";
	if (is_partial(o))
		words[n++] = "--missing=allow-any";
	if (o->policy == GIT_SHALLOW)
		words[n++] = "--shallow";
	words[n++] = base;
	words[n] = NULL;
	if (o->policy == GIT_SHALLOW)
		(void)buf_putf(&in, "--shallow %s\n", o->git->head);
	(void)buf_putf(&in, "%s\n", o->git->head);
	r = object_dirs(s, &ours, &host);
	if (!r && o->policy == GIT_FULL)
		r = make_refs(o, &refs, s->e);
	/* It would look for attributes in each directory of the work tree, for nothing here, and wait in a FIFO of that name. */
	(void)buf_putf(&tree, "GIT_WORK_TREE=%s", s->dir);
	io.cwd_fd = s->fd;
	for (char *p = refs.data; !r && p && *p; p += strcspn(p, "\n") + 1)
		(void)buf_putf(&in, "%.*s\n", (int)strcspn(p, " "), p);
	if (!r && (in.err || tree.err))
		r = err_sys(s->e, in.err ? -in.err : -tree.err, "git objects");
	io.in = in.data;
	io.in_len = in.len;
	const char *const extra[] = {buf_text(&ours), buf_text(&host), buf_text(&tree), NULL};

	return r ? r : git_run(o->git, words, extra, &io, s->e);
}

/*
 * Copy of the host's index, the base for the stat fields. Absent or odd: none. Beside, and put by rename: "index" is there
 * whole or not at all, whoever ends this process or fills the disk meanwhile.
 */
static void copy_index(struct seed *s)
{
	_cleanup_free_ char *path = path_join(s->o->git->git_dir, "index");
	_cleanup_fd_ int from = path ? open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC) : -1, to = -1;
	struct stat st;
	off_t left;

	if (from < 0 || fstat(from, &st) < 0 || !S_ISREG(st.st_mode) ||
	    (uint64_t)st.st_size > INDEX_FILE_MAX)
		return;
	s->index_time = st.st_mtim;
	to = openat(s->fd, "index.new", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (to < 0)
		return;
	for (left = st.st_size; left > 0;) {
		ssize_t n = copy_file_range(from, NULL, to, NULL, (size_t)left, 0);

		if (n <= 0)
			break;
		left -= n;
	}
	if (left || renameat(s->fd, "index.new", s->fd, "index") < 0)
		(void)unlinkat(s->fd, "index.new", 0);
}

static int index_run(struct seed *s, const char *const *words, const struct process_opts *io)
{
	_cleanup_free_ char *var = NULL;
	const char *extra[3] = {NULL, "GIT_OPTIONAL_LOCKS=1", NULL};
	static const struct timespec epoch[2] = {{0, 0}, {0, 0}};

	/*
	 * An entry as young as the index file is "racily clean": git opens the file, and hashes it
	 * through the clean filter that the repository's config names, which is a program of its
	 * choice. An index without a time is never taken for racy, so no file is opened.
	 */
	(void)utimensat(s->fd, "index", epoch, AT_SYMLINK_NOFOLLOW);
	if (asprintf(&var, "GIT_INDEX_FILE=%s/index", s->dir) < 0)
		return err_sys(s->e, ENOMEM, "git index");
	extra[0] = var;
	return git_run(s->o->git, words, extra, io, s->e);
}

/* Tracked, on the host, but not in the manifest: a rule or a problem held it back. */
static int judge_tracked(void *arg, const char *p, size_t n)
{
	struct seed *s = arg;
	struct stat st;
	int r = manifest_find(s->manifest, p, n, &s->entry);

	if (r)
		return r < 0 ? r : 0;
	if (fstatat(s->o->root_fd, p, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0; /* deleted on the host: inside it is deleted too (H10) */
	return buf_put(&s->held, p, n + 1);
}

static int mark_held(struct seed *s)
{
	const char *const list[] = {"ls-files", "-z", "--cached", NULL};
	const char *const mark[] = {"update-index", "-z", "--skip-worktree", "--stdin", NULL};
	struct process_records rec = {
	    .on_record = judge_tracked, .arg = s, .rest = BUF_INIT(2 * PATH_MEMBER_MAX)};
	struct process_opts io = PROCESS_OPTS_INIT, in = PROCESS_OPTS_INIT;
	_cleanup_fd_ int top = openat(s->o->root_fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	int r;

	io.cwd_fd = in.cwd_fd = top;
	io.on_out = process_split_nul;
	io.on_out_arg = &rec;
	r = index_run(s, list, &io);
	buf_done(&rec.rest);
	if (r < 0 || !s->held.len)
		return r;
	in.in = s->held.data;
	in.in_len = s->held.len;
	return index_run(s, mark, &in);
}

static int make_index(struct seed *s)
{
	const char *const read_tree[] = {"read-tree", "--reset", "HEAD", NULL};
	struct process_opts io = PROCESS_OPTS_INIT;
	struct timespec t[2] = {{.tv_nsec = UTIME_OMIT}};
	int r;

	copy_index(s);
	r = index_run(s, read_tree, &io);
	if (r < 0 && r != -ECANCELED && r != -ETIMEDOUT) {
		/* The host's index may be broken: without it, only the stat fields are lost. */
		(void)unlinkat(s->fd, "index", 0);
		(void)unlinkat(s->fd, "index.lock", 0);
		r = index_run(s, read_tree, &io);
	}
	if (!r)
		r = mark_held(s);
	/*
	 * Inside, git must look at a file again that is as young as the host's index was: without a time
	 * it never does, and an edit of the same length in that second would miss its commit.
	 */
	t[1] = s->index_time.tv_sec ? s->index_time : (struct timespec){.tv_sec = 1};
	if (!r && utimensat(s->fd, "index", t, AT_SYMLINK_NOFOLLOW) < 0)
		r = err_sys(s->e, errno, "%s/index", s->dir);
	return r;
}

/* Everything below fd to the sandbox's uid: git inside refuses a repository of another owner. */
static int give_tree(int fd, uid_t owner, gid_t group, unsigned depth)
{
	int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	_cleanup_dir_ DIR *d = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *de;

	if (!d || depth > GIVE_DEPTH_MAX)
		return -EIO;
	/* Safe because: the tree is our own new one below the store, and links are not followed. */
	if (fchown(fd, owner, group) < 0)
		return -errno;
	while (!r && (errno = 0, de = readdir(d))) {
		_cleanup_fd_ int sub = -1;

		if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0)
			continue;
		if (fchownat(fd, de->d_name, owner, group, AT_SYMLINK_NOFOLLOW) < 0)
			return -errno;
		sub = openat(fd, de->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (sub >= 0)
			r = give_tree(sub, owner, group, depth + 1);
	}
	return !r && !de ? -errno : r;
}

static int fill(struct seed *s, int seed_fd)
{
	int r = make_skeleton(s);

	if (!r && s->o->git->head[0]) {
		r = put_shallow(s);
		if (!r)
			r = pack_objects(s);
		if (!r)
			r = make_index(s);
	}
	if (!r && fchmod(seed_fd, 0755) < 0)
		r = err_sys(s->e, errno, "%s", s->dir);
	if (!r && s->o->owner != (uid_t)-1) {
		r = give_tree(seed_fd, s->o->owner, s->o->group, 0);
		if (r < 0)
			r = err_sys(s->e, -r, "cannot give %s to the sandbox", s->dir);
	}
	return r;
}

int gitseed_make(const struct gitseed_opts *o, const struct manifest *manifest, const char *key,
		 struct err *e)
{
	_cleanup_fd_ int git_fd =
	    openat(o->store->fd, "git", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_fd_ int seed_fd = -1;
	struct seed *s;
	char name[64];
	int r;

	if (git_fd < 0)
		return err_sys(e, errno, "%s/git", o->store->path);
	if (faccessat(git_fd, key, F_OK, 0) == 0)
		return 0;
	r = store_new_dir(o->store, git_fd, "seed", &seed_fd, name, e);
	if (r < 0)
		return r;
	s = calloc(1, sizeof(*s));
	if (!s)
		return err_sys(e, ENOMEM, "git seed");
	*s = (struct seed){.o = o, .manifest = manifest, .fd = -1, .held = BUF_INIT(REFS_MAX)};
	s->e = e;
	if (mkdirat(seed_fd, ".git", 0755) < 0 ||
	    (s->fd = openat(seed_fd, ".git", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0 ||
	    asprintf(&s->dir, "%s/git/%s/.git", o->store->path, name) < 0)
		r = err_sys(e, errno, "%s/git/%s", o->store->path, name);
	if (!r)
		r = fill(s, seed_fd);
	if (!r && renameat(git_fd, name, git_fd, key) < 0)
		r = err_sys(e, errno, "%s/git/%s", o->store->path, key);
	if (r < 0)
		store_discard(o->store, git_fd, name);
	cleanup_fd(&s->fd);
	free(s->dir);
	buf_done(&s->held);
	free(s);
	return r;
}
