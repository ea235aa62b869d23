/*
 * The baseline of a kept sandbox: what its next changes are compared with. Part of door 1.
 *
 * Policy: after a publish the baseline of each path is the sandbox's own state as it was sent, not
 * the host's. What the sandbox does not change again is then no news: no second report of a conflict, no
 * revival of what the host deleted meanwhile. A path that could not be written (UA_FAIL), one that
 * was refused, ignored or unreadable keeps its old baseline, so that the next command tries again.
 * After a conflict the sandbox's bytes are no base for a text merge: the host never took
 * them, and a merge would bring the second edit without the first.
 *
 * Files in the lease's directory `baseline/`, which the sandbox never sees:
 *   manifest       the baseline (wire/manifest.h); none: that of sync-in
 *   manifest.new   written before the commit of the journal, worth nothing
 *   manifest.next  renamed to right after it: true once the journal is carried out
 *   contents       bytes for text merges, appended, BASELINE_CONTENTS_MAX in all
 * The directory is flocked by the engine, and this process shares that lock. Whoever finds manifest.next
 * has repaired the workspace before and renames it to manifest. A kill between commit and rename costs at
 * most a conflict that is none; the other order could lose work.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "sync/unpack_server.h"

#define MODE_BITS 9
#define NO_CONTENT 0
#define IN_LAYERS 1  /* a base layer has it at the path */
#define CONTENTS_0 2 /* offset in `contents` plus this */

/* flags of a note; chlist.h's own are not used here */
/* CH_TREE of chlist.h too */
#define BN_MERGEABLE 1u
#define BN_CONFLICT 2u

int baseline_open(struct unpack *u, struct err *e)
{
	struct baseline *b = &u->baseline;
	struct stat st;

	if (b->dir < 0)
		return 0;
	b->contents =
	    openat(b->dir, "contents", O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (b->contents < 0 || fstat(b->contents, &st) < 0)
		return err_sys(e, errno, "open the baseline of the sandbox");
	b->contents_len = (uint64_t)st.st_size;
	if (chlist_new(b->dir, &b->notes) < 0 || chlist_new(b->dir, &b->back) < 0)
		return err_set(e, ERR_NOMEM, "out of memory");
	return 0;
}

void baseline_close(struct unpack *u)
{
	struct baseline *b = &u->baseline;

	chlist_free(b->notes);
	chlist_free(b->back);
	cleanup_fd(&b->contents);
	cleanup_fd(&b->dir);
}

static int add(struct chlist *l, struct change *c, uint64_t *seq, struct err *e)
{
	int r;

	c->seq = ++*seq;
	r = chlist_add(l, c);
	return r < 0 ? err_sys(e, -r, "note the new baseline of %s", c->path) : 0;
}

/* What the manifest has below directory `path`, each with `flags`. */
static int add_below(struct unpack *u, struct chlist *l, const char *path, uint8_t flags,
		     struct err *e)
{
	_cleanup_free_ struct manifest_entry *m = malloc(sizeof(*m));
	_cleanup_free_ struct change *c = calloc(1, sizeof(*c));
	size_t pos = 0, n = strlen(path);
	int r = 0;

	if (!m || !c)
		return err_set(e, ERR_NOMEM, "out of memory");
	manifest_seek_below(u->m, path, n, &pos);
	while (r == 0 && (r = manifest_next(u->m, &pos, m)) > 0) {
		if (m->path_len <= n || memcmp(m->path, path, n) != 0 || m->path[n] != '/')
			return 0;
		c->kind = MK_ABSENT;
		c->flags = flags;
		c->path_len = (uint32_t)m->path_len;
		memcpy(c->path, m->path, m->path_len + 1);
		r = add(l, c, &u->baseline.seq, e);
	}
	return r;
}

int baseline_note(struct unpack *u, const struct change *c, const struct manifest_entry *b,
		  uint32_t host_mode, bool mergeable, struct err *e)
{
	_cleanup_free_ struct change *n = NULL;
	int r;

	if (u->baseline.dir < 0)
		return 0;
	n = malloc(sizeof(*n));
	if (!n)
		return err_set(e, ERR_NOMEM, "out of memory");
	memcpy(n, c, offsetof(struct change, path) + c->path_len + 1);
	n->mode = (c->mode & 0777) | (host_mode & 0777) << MODE_BITS;
	n->flags = (uint8_t)((c->flags & CH_TREE) | (mergeable ? BN_MERGEABLE : 0));
	r = add(u->baseline.notes, n, &u->baseline.seq, e);
	/* Nothing is below a file. Below what is gone each path has its own note. */
	if (r == 0 && b && b->kind == 'd' && (c->kind == MK_FILE || c->kind == MK_LINK))
		r = add_below(u, u->baseline.notes, c->path, 0, e);
	return r;
}

/* Appends staged content `id`. 0 and *ret, also NO_CONTENT when there is no more room for it. */
static int keep_content(struct unpack *u, const struct change *c, uint64_t *ret, struct err *e)
{
	struct baseline *b = &u->baseline;
	uint64_t at = b->contents_len;
	_cleanup_fd_ int in = -1;
	char buf[32 << 10];
	ssize_t n;

	*ret = NO_CONTENT;
	if (!c->id || c->size > MERGE_TEXT_MAX || at + c->size > BASELINE_CONTENTS_MAX)
		return 0;
	in = staged_open(u, c);
	if (in < 0)
		return err_sys(e, -in, "read the staged content of %s", c->path);
	while ((n = read(in, buf, sizeof(buf))) > 0) {
		ssize_t w = write(b->contents, buf, (size_t)n);

		if (w != n)
			return err_sys(e, w < 0 ? errno : ENOSPC,
				       "keep the sandbox's version of %s", c->path);
		b->contents_len += (uint64_t)n;
	}
	if (n < 0)
		return err_sys(e, errno, "read the staged content of %s", c->path);
	*ret = CONTENTS_0 + at;
	return 0;
}

static bool same_bytes(const struct manifest_entry *m, const struct change *c)
{
	return m->kind == 'f' && m->size == c->size && !memcmp(m->hash, c->hash, MANIFEST_HASH);
}

/* The entry of a note. 1; 0: the path is gone; errno. `m` holds the old entry when had. */
static int new_entry(struct unpack *u, const struct change *c, struct manifest_entry *m, bool had,
		     struct err *e)
{
	uint64_t content = NO_CONTENT;
	ssize_t n;
	int r = 0;

	if (c->kind == MK_FILE && !(c->flags & BN_MERGEABLE))
		content = NO_CONTENT;
	else if (c->kind == MK_FILE && had && same_bytes(m, c))
		content = m->sandbox ? m->content : IN_LAYERS;
	else if (c->kind == MK_FILE)
		r = keep_content(u, c, &content, e);
	if (r < 0 || c->kind == MK_ABSENT)
		return r;
	memset(m, 0, offsetof(struct manifest_entry, path));
	m->sandbox = true;
	m->kind = c->kind == MK_FILE ? 'f' : c->kind == MK_DIR ? 'd' : 'l';
	m->mode = c->kind == MK_LINK ? 0 : c->mode & 0777;
	m->host_mode = c->kind == MK_LINK ? 0 : c->mode >> MODE_BITS & 0777;
	m->size = c->size;
	m->mtime_ns = c->mtime_ns;
	m->content = content;
	memcpy(m->hash, c->hash, MANIFEST_HASH);
	m->path_len = c->path_len;
	memcpy(m->path, c->path, c->path_len + 1);
	if (c->kind != MK_LINK)
		return 1;
	n = staged_readlink(u, c, m->target, LINK_TARGET_MAX);
	if (n <= 0)
		return err_sys(e, n < 0 ? (int)-n : EINVAL, "read the staged link %s", c->path);
	m->target[n] = '\0';
	m->target_len = (size_t)n;
	return 1;
}

/* The entry of a path that was not published after all: as before; or, a conflict, as it is but for merges. */
static int old_entry(struct unpack *u, const struct change *c, struct manifest_entry *m, bool had,
		     struct err *e)
{
	int r;

	if (c->flags & BN_CONFLICT) {
		m->content = NO_CONTENT;
		return had;
	}
	r = u->m ? manifest_find(u->m, c->path, c->path_len, m) : 0;
	return r < 0 ? err_set(e, ERR_PROTOCOL, "the manifest of this run is damaged near %s",
			       c->path)
		     : r;
}

typedef int (*entry_fn)(struct unpack *u, const struct change *c, struct manifest_entry *m,
			bool had, struct err *e);

struct rewrite {
	struct manifest_writer w;
	struct manifest_entry m;
	struct change c;
	size_t pos;
};

/* What `from` has before the path goes over as it is; the path's own line is taken off into x->m. */
static int advance(struct rewrite *x, const struct manifest *from, bool *had, struct err *e)
{
	size_t at;
	int r;

	*had = false;
	if (!from)
		return 0;
	r = manifest_seek(from, x->c.path, x->c.path_len, &at);
	if (r == 0)
		r = manifest_writer_copy(&x->w, from, x->pos, at, manifest_lines(from, x->pos, at),
					 e);
	else
		(void)err_set(e, ERR_PROTOCOL, "the baseline is damaged near %s", x->c.path);
	if (r < 0)
		return r;
	x->pos = at;
	r = manifest_next(from, &at, &x->m);
	if (r < 0)
		return err_set(e, ERR_PROTOCOL, "the baseline is damaged near %s", x->c.path);
	*had =
	    r > 0 && x->m.path_len == x->c.path_len && !memcmp(x->m.path, x->c.path, x->c.path_len);
	if (*had)
		x->pos = at;
	return 0;
}

/* `from` with the listed paths replaced, as manifest.new. */
static int rewrite(struct unpack *u, const struct manifest *from, struct chlist *l, entry_fn entry,
		   struct err *e)
{
	_cleanup_free_ struct rewrite *x = calloc(1, sizeof(*x));
	_cleanup_fd_ int fd = -1;
	bool had;
	int r;

	if (!x || chlist_seal(l) < 0)
		return err_set(e, ERR_NOMEM, "out of memory");
	fd = openat(u->baseline.dir, "manifest.new",
		    O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_sys(e, errno, "write the baseline of the sandbox");
	r = manifest_writer_init(&x->w, fd, e);
	for (uint64_t i = 0; r == 0 && i < chlist_count(l); i++) {
		r = chlist_get(l, i, &x->c);
		if (r < 0) {
			(void)err_sys(e, -r, "read the list of changes");
			break;
		}
		r = advance(x, from, &had, e);
		if (r == 0)
			r = entry(u, &x->c, &x->m, had, e);
		if (r > 0)
			r = manifest_writer_add(&x->w, &x->m, e);
	}
	if (r == 0 && from)
		r = manifest_writer_copy(&x->w, from, x->pos, SIZE_MAX,
					 manifest_lines(from, x->pos, SIZE_MAX), e);
	if (r == 0)
		r = manifest_writer_finish(&x->w, e);
	manifest_writer_done(&x->w);
	/* A torn baseline after a power cut would keep the work from being recovered. */
	if (r == 0 && (fsync(u->baseline.contents) < 0 || fsync(fd) < 0))
		r = err_sys(e, errno, "write the baseline of the sandbox");
	return r;
}

int baseline_prepare(struct unpack *u, struct err *e)
{
	struct baseline *b = &u->baseline;
	int r;

	if (b->dir < 0 || !b->seq)
		return 0;
	r = rewrite(u, u->m, b->notes, new_entry, e);
	b->ready = r == 0;
	return r < 0 ? err_wrap(e, r, "(nothing was changed)") : 0;
}

void baseline_committed(struct unpack *u)
{
	if (u->baseline.ready)
		(void)renameat(u->baseline.dir, "manifest.new", u->baseline.dir, "manifest.next");
}

void baseline_not_published(struct unpack *u, const char *path, bool conflict)
{
	_cleanup_free_ struct change *c = NULL;
	struct baseline *b = &u->baseline;

	if (!b->ready)
		return;
	c = calloc(1, sizeof(*c));
	if (!c)
		return;
	c->path_len = (uint32_t)strlen(path);
	memcpy(c->path, path, c->path_len + 1);
	c->flags = conflict ? BN_CONFLICT : 0;
	/* Best effort from here on: half a publish is the one state we never leave. */
	(void)add(b->back, c, &b->backs, NULL);
	if (!conflict && u->m)
		(void)add_below(u, b->back, path, 0, NULL);
}

static int take_back(struct unpack *u)
{
	_cleanup_fd_ int fd =
	    openat(u->baseline.dir, "manifest.next", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	struct manifest *m = NULL;
	int r = fd < 0 ? -errno : manifest_open(fd, &m, NULL);

	if (r == 0)
		r = rewrite(u, m, u->baseline.back, old_entry, NULL);
	manifest_free(m);
	return r;
}

void baseline_finish(struct unpack *u)
{
	struct baseline *b = &u->baseline;

	if (!b->ready)
		return;
	baseline_committed(u);
	if (b->backs && take_back(u) == 0)
		(void)renameat(b->dir, "manifest.new", b->dir, "manifest.next");
	(void)renameat(b->dir, "manifest.next", b->dir, "manifest");
}

int baseline_content(struct unpack *u, const struct manifest_entry *m)
{
	if (m->content < CONTENTS_0 || u->baseline.dir < 0)
		return -ENOENT;
	return copy_part(u->baseline.dir, u->baseline.contents, m->content - CONTENTS_0, m->size);
}
