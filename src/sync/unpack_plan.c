/*
 * Phase 2a of door 1, under the workspace lock: each listed path is decided by merge.h against the
 * manifest and what the host has now, and becomes intents of the journal or lines of the report.
 *
 * Policy: only paths of the manifest or new paths change; a deletion needs a manifest entry that the
 * host still has as it was sent. Whatever loses is saved below the run before anything is published.
 * Nothing in the host tree is written here.
 */
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "policy/member.h"
#include "sync/merge3.h"
#include "sync/unpack_server.h"

#define FRESH_MODE 0644 /* of a new file inside, where the umask is 022 */
#define DETAIL_MAX (PATH_MEMBER_MAX + 64)

struct plan {
	struct unpack *u;
	struct journal *j;
	bool preview; /* report only */
	struct change c, other;
	struct manifest_entry b, below;
	bool have_b;
	bool failed, disputed; /* the path in work: not written; a conflict that the host won */
	uint32_t host_mode;    /* what the host will have */
	struct host h;
	struct merge_side side_b, side_s;
	char detail[DETAIL_MAX];
	uint8_t dir_digest[INTENT_HASH]; /* of the host's directory in work */
	uint64_t
	    ids; /* numbers for the entries of trees that go one by one: this and the entry's index */
	char tree[PATH_MEMBER_MAX + 1]; /* top of the new tree whose inside was in work last */
	bool whole;			/* it goes as a whole */
	bool emptied;			/* directories of trees are to be dropped */
	char **cleared; /* owned: files and links that this publish turns into directories */
};

static int note(struct plan *p, enum unpack_action a, const char *rule, const char *detail,
		struct err *e)
{
	p->failed |= a == UA_FAIL;
	return tell(p->u, a, p->c.path, rule, detail, e);
}

/* Adds an intent about path; in a preview the report line that it would lead to. */
static int intend(struct plan *p, struct intent *in, const char *path, size_t n, struct err *e)
{
	const char *rule = in->op == IN_MKDIR || in->op == IN_RMDIR ? "dir" : "";
	int r;

	if (in->op == IN_DELETE)
		p->u->deletes++;
	if (p->preview)
		return in->action < UA_ACTION_COUNT ? tell(p->u, in->action, path, rule, NULL, e)
						    : 0;
	r = stage_ready(p->u, e);
	if (r < 0)
		return r;
	in->path_len = (uint32_t)n;
	memcpy(in->path, path, n + 1);
	r = journal_add(p->j, in);
	return r < 0 ? err_sys(e, -r, "write the journal in %s", p->u->st.path) : 0;
}

static int intend_here(struct plan *p, struct intent *in, struct err *e)
{
	return intend(p, in, p->c.path, p->c.path_len, e);
}

/* The staged file's owner: that of the file it replaces, else of the workspace. Needs privilege; else ours. */
static void give_owner(struct plan *p, const char *name, const struct stat *st,
		       const struct intent_old *old)
{
	uid_t uid = old->ino ? p->h.st.st_uid : p->u->root_st.st_uid;
	gid_t gid = old->ino ? p->h.st.st_gid : p->u->root_st.st_gid;

	/* Safe because: a file without set-id bits in the private staging directory, not followed. */
	if (st->st_uid != uid || st->st_gid != gid)
		give_to(p->u->st.content, name, uid, gid);
}

/* A new entry is as open as the user lets new entries be. */
static uint32_t new_mode(const struct plan *p, uint32_t mode)
{
	return mode & ~p->u->s.umask;
}

/*
 * Programs that save by a new file and a rename leave the mode of a new file, which says nothing:
 * there, group and others keep what they may write and get nothing that they did not have.
 */
static uint32_t changed_mode(const struct plan *p, uint32_t mode)
{
	uint32_t h = p->h.side.mode;

	if (p->h.side.kind != MK_FILE || p->c.kind != MK_FILE || mode != FRESH_MODE)
		return mode;
	return (mode & (h | 0700)) | (h & 022);
}

static int put(struct plan *p, uint64_t id, uint32_t mode, bool over, enum unpack_action a,
	       struct err *e)
{
	struct intent in = {.op = IN_PUT, .action = (uint8_t)a, .mode = mode, .id = id};
	struct stat st;
	char name[20];

	p->host_mode = mode;
	stage_name(id, name);
	if (over)
		host_old(p->u, p->c.path, &p->h, &in.old);
	if (!p->preview) {
		if (fstatat(p->u->st.content, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return err_sys(e, errno, "find the staged content of %s", p->c.path);
		give_owner(p, name, &st, &in.old);
		in.new_ino = st.st_ino;
		in.size = (uint64_t)st.st_size;
	}
	return intend_here(p, &in, e);
}

static int clear(struct plan *p, struct err *e)
{
	struct intent in = {.op = IN_CLEAR, .action = UA_ACTION_COUNT, .id = p->u->st.next_id++};

	host_old(p->u, p->c.path, &p->h, &in.old);
	if (p->h.side.kind == MK_DIR)
		memcpy(in.old.hash, p->dir_digest, sizeof(in.old.hash));
	return intend_here(p, &in, e);
}

/* True if the host's obstacle on the way to path is one that this publish takes away first. */
static bool way_is_cleared(const struct plan *p, const char *path)
{
	for (size_t i = strv_len(p->cleared); i-- > 0;) {
		size_t n = strlen(p->cleared[i]);

		if (str_starts(path, p->cleared[i]) && path[n] == '/')
			return true;
	}
	return false;
}

static int make_dir(struct plan *p, uint32_t mode, enum unpack_action a, struct err *e)
{
	struct intent in = {.op = IN_MKDIR, .action = (uint8_t)a, .mode = mode | 0700};

	p->host_mode = in.mode;
	return intend_here(p, &in, e);
}

static int make_dir_over(struct plan *p, uint32_t mode, enum unpack_action a, struct err *e)
{
	if (strv_add(&p->cleared, p->c.path) < 0)
		return err_set(e, ERR_NOMEM, "out of memory");
	return make_dir(p, mode, a, e);
}

/* --- contents that are not in the staging place yet --------------------------------------- */

static int stage_copy(struct plan *p, int from, uint64_t *ret_id, struct err *e)
{
	_cleanup_fd_ int out = -1;
	struct stat st;
	int r;

	if (fstat(from, &st) < 0)
		return err_sys(e, errno, "stage a copy for %s", p->c.path);
	r = stage_space(p->u, (uint64_t)st.st_size, e);
	if (r < 0)
		return r;
	out = stage_create(p->u, p->c.path, 0600, ret_id, e);
	if (out < 0)
		return out;
	r = copy_fd(from, out);
	if (r < 0)
		return err_sys(e, -r, "stage a copy for %s", p->c.path);
	(void)futimens(out, (struct timespec[2]){{.tv_nsec = UTIME_OMIT},
						 {.tv_sec = p->c.mtime_ns / 1000000000,
						  .tv_nsec = p->c.mtime_ns % 1000000000}});
	return 0;
}

/* The file of a tree, wherever it lies by now. */
static int open_in_tree(struct plan *p, const struct change *c)
{
	struct unpack *u = p->u;
	struct beneath content = {.root = u->st.content, .stepwise = u->root.stepwise};
	char at[PATH_MEMBER_MAX + 1];
	int fd = tree_open_staged(u, c->path, c->path_len, (size_t)c->id, O_RDONLY);
	uint64_t i;

	if (fd != -ENOENT)
		return fd;
	tree_path(c->path, c->path_len, (size_t)c->id, TREE_APART, at);
	fd = beneath_open(&content, at, O_RDONLY, 0);
	if (fd != -ENOENT || chlist_seek(u->list, c->path, c->path_len, &i) < 0)
		return fd;
	stage_name(p->ids + i, at);
	return beneath_open(&content, at, O_RDONLY, 0);
}

/* Nothing of the stream is published; the rule and its text go into the record. */
static int reject(struct plan *p, const char *rule, const char *text, struct err *e)
{
	struct unpack *u = p->u;

	u->rejected = true;
	u->rule = rule;
	memcpy(u->rule_path, p->c.path, p->c.path_len + 1);
	(void)snprintf(u->rule_text, sizeof(u->rule_text), "%s", text);
	return err_set(e, ERR_HOSTILE, "%s", text);
}

/* A few hundred bytes of the stream ask for another copy of a file: it counts like the file. */
static int count_copy(struct plan *p, uint64_t size, struct err *e)
{
	char limit[24], text[256];

	if (size <= p->u->s.total_max - p->u->taken) {
		p->u->taken += size;
		return 0;
	}
	str_human_size(p->u->s.total_max, limit, sizeof(limit));
	(void)snprintf(
	    text, sizeof(text),
	    "with the copies that hard links become the results are over %s, the limit of all "
	    "results together; delete or shrink some in the sandbox",
	    limit);
	return reject(p, "limit", text, e);
}

/* A hard link of the stream becomes a file of its own: the bytes of the member that it names. */
static int resolve_hardlink(struct plan *p, struct err *e)
{
	struct unpack *u = p->u;
	char target[LINK_TARGET_MAX + 1], name[20];
	_cleanup_fd_ int from = -1;
	ssize_t n;
	int r;

	stage_name(p->c.id, name);
	n = readlinkat(u->st.content, name, target, sizeof(target) - 1);
	if (n < 0)
		return err_sys(e, errno, "read the target of hard link %s", p->c.path);
	target[n] = '\0';
	r = chlist_find(u->list, target, (size_t)n, &p->other);
	if (r < 0)
		return err_sys(e, -r, "look up %s", target);
	if (r == 0 || p->other.kind != MK_FILE || p->other.flags & CH_HARDLINK)
		return 1;
	r = count_copy(p, p->other.size, e);
	if (r < 0)
		return r;
	p->c.flags &= (uint8_t)~CH_HARDLINK;
	p->c.size = p->other.size;
	if (p->preview && p->other.id) {
		p->c.id = p->other.id; /* only looked at */
		memcpy(p->c.hash, p->other.hash, MANIFEST_HASH);
		return 0;
	}
	if (p->other.flags & CH_TREE) {
		from = open_in_tree(p, &p->other);
	} else if (p->other.id) {
		stage_name(p->other.id, name);
		from = openat(u->st.content, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	} else if (u->m && manifest_find(u->m, target, (size_t)n, &p->below) > 0) {
		from = base_open(u, &p->below);
	}
	if (from < 0)
		return 1;
	r = change_hash(&p->other, from);
	if (r < 0)
		return err_sys(e, -r, "read the staged content of %s", p->other.path);
	memcpy(p->c.hash, p->other.hash, MANIFEST_HASH);
	return stage_copy(p, from, &p->c.id, e);
}

/* --- text merge ------------------------------------------------------------------------- */

static int slurp(int fd, struct buf *b)
{
	ssize_t n;

	do {
		char *room = buf_room(b, 64 << 10);

		if (!room)
			return b->err;
		n = read(fd, room, 64 << 10);
		if (n > 0)
			buf_add(b, (size_t)n);
	} while (n > 0 || (n < 0 && errno == EINTR));
	return n < 0 ? -errno : 0;
}

static int write_piece(void *arg, const void *data, size_t n)
{
	const char *q = data;

	while (n) {
		ssize_t w = write(*(int *)arg, q, n);

		if (w < 0 && errno != EINTR)
			return -errno;
		q += w > 0 ? w : 0;
		n -= (size_t)(w > 0 ? w : 0);
	}
	return 0;
}

/* 1: merged, *ret_id; 0: not mergeable; errno. */
static int merge_text(struct plan *p, uint64_t *ret_id, struct err *e)
{
	struct unpack *u = p->u;
	struct buf t[3];
	struct stat st;
	char name[20];
	_cleanup_fd_ int base = -1, ours = -1, theirs = -1, out = -1;
	int r = 0;

	if (p->b.size > MERGE_TEXT_MAX || p->c.size > MERGE_TEXT_MAX ||
	    p->h.st.st_size > MERGE_TEXT_MAX)
		return 0;
	stage_name(p->c.id, name);
	base = base_open(u, &p->b);
	theirs = openat(u->st.content, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	ours = beneath_open(&u->root, p->c.path, O_RDONLY | O_NONBLOCK, 0);
	if (base < 0 || theirs < 0 || ours < 0 || fstat(ours, &st) < 0 ||
	    st.st_ino != p->h.st.st_ino || st.st_size != p->h.st.st_size)
		return 0;
	for (size_t i = 0; i < 3; i++)
		buf_init(&t[i], MERGE_TEXT_MAX + (64 << 10) + 1);
	r = slurp(base, &t[0]);
	r = r ? r : slurp(ours, &t[1]);
	r = r ? r : slurp(theirs, &t[2]);
	if (r == 0 && !p->preview) {
		out = stage_create(u, p->c.path, 0600, ret_id, e);
		r = out < 0 ? out : 0;
	}
	if (r == 0)
		r = merge3((struct view){t[0].data, t[0].len}, (struct view){t[1].data, t[1].len},
			   (struct view){t[2].data, t[2].len}, p->preview ? NULL : write_piece,
			   &out);
	for (size_t i = 0; i < 3; i++)
		buf_done(&t[i]);
	return r < 0 ? err_sys(e, -r, "merge %s", p->c.path) : r == MERGE3_CLEAN;
}

/* --- acts ------------------------------------------------------------------------------- */

static int keep_host(struct plan *p, const char *rule, struct err *e)
{
	bool failed = !strcmp(rule, "permission_denied");
	int r = 0;

	p->disputed = true;
	p->detail[0] = '\0';
	/* In an apply the sandbox's version stays where it is, and the path stays pending. */
	if (!p->preview && p->u->s.mode != UM_APPLY)
		r = save_staged(p->u, p->c.id, p->c.path, p->detail, sizeof(p->detail), e);
	return r < 0 ? r : note(p, failed ? UA_FAIL : UA_CONFLICT, rule, p->detail, e);
}

static int take_sandbox(struct plan *p, struct merge_verdict v, struct err *e)
{
	int r = 0;

	p->detail[0] = '\0';
	if (!p->preview)
		r = save_host(p->u, p->c.path, p->detail, sizeof(p->detail), e);
	if (r == 0)
		r = note(p, UA_CONFLICT, v.rule, p->detail, e);
	if (r < 0)
		return r;
	/* The conflict is reported already; what carries it out stays silent unless it fails. */
	if (p->c.kind != MK_DIR)
		return put(p, p->c.id, changed_mode(p, p->c.mode), true, UA_ACTION_COUNT, e);
	r = clear(p, e);
	return r < 0 ? r : make_dir_over(p, new_mode(p, v.mode), UA_ACTION_COUNT, e);
}

static int create(struct plan *p, uint32_t mode, struct err *e)
{
	_cleanup_fd_ int from = -1;
	int r;

	/* Only its mode changed in the sandbox, and the host deleted it: the bytes are in the base. */
	if (!p->c.id && !p->preview) {
		from = p->c.kind == MK_FILE ? base_open(p->u, &p->b) : -1;
		if (from < 0)
			return note(p, UA_FAIL, "base_missing", NULL, e);
		r = stage_copy(p, from, &p->c.id, e);
		if (r < 0)
			return r;
	}
	return put(p, p->c.id, new_mode(p, mode), false, p->have_b ? UA_CHANGE : UA_ADD, e);
}

static int change_mode(struct plan *p, uint32_t mode, struct err *e)
{
	struct intent in = {.op = IN_MODE, .action = UA_MODE, .mode = mode};

	p->host_mode = mode;
	host_old(p->u, p->c.path, &p->h, &in.old);
	return intend_here(p, &in, e);
}

static int remove_path(struct plan *p, enum intent_op op, struct err *e)
{
	struct intent in = {.op = (uint8_t)op, .action = UA_DELETE, .id = p->u->st.next_id++};

	host_old(p->u, p->c.path, &p->h, &in.old);
	return intend_here(p, &in, e);
}

/* How the host's directory p->c is before it is judged: what changes from then on is seen when it goes. */
static int digest_host(struct plan *p)
{
	_cleanup_fd_ int dir = -1;
	const char *base;

	dir = beneath_parent(&p->u->root, p->c.path, &base);
	return dir < 0 ? dir : host_dir_digest(dir, base, p->dir_digest);
}

static int dir_to_file(struct plan *p, struct err *e)
{
	int r = digest_host(p);

	r = r < 0 ? 0 : host_dir_clean(p->u, p->c.path, e);
	if (r < 0)
		return r;
	if (r == 0)
		return keep_host(p, "dir_has_changes", e);
	/* Otherwise told once they are gone, from where they lie then. */
	r = p->preview ? tell_gone(p->u, &p->u->root, p->c.path, p->c.path, e) : 0;
	if (r < 0)
		return r;
	r = clear(p, e);
	return r < 0 ? r : put(p, p->c.id, new_mode(p, p->c.mode), false, UA_CHANGE, e);
}

static int act(struct plan *p, struct merge_verdict v, struct err *e)
{
	uint64_t id = 0;
	int r;

	switch (v.act) {
	case MA_NONE:
		return 0;
	case MA_CREATE:
		return create(p, v.mode, e);
	case MA_REPLACE:
		return put(p, p->c.id, changed_mode(p, v.mode), true, UA_CHANGE, e);
	case MA_MODE:
		return change_mode(p, v.mode, e);
	case MA_MKDIR:
		return make_dir(p, new_mode(p, v.mode), UA_ADD, e);
	case MA_DELETE:
		return remove_path(p, IN_DELETE, e);
	case MA_RMDIR:
		return remove_path(p, IN_RMDIR, e);
	case MA_DIR_TO_FILE:
		return dir_to_file(p, e);
	case MA_FILE_TO_DIR:
		r = clear(p, e);
		return r < 0 ? r : make_dir_over(p, new_mode(p, v.mode), UA_CHANGE, e);
	case MA_TEXT:
		r = merge_text(p, &id, e);
		if (r < 0)
			return r;
		if (r > 0)
			return put(p, id, changed_mode(p, v.mode), true, UA_MERGE, e);
		return v.otherwise == MA_TAKE ? take_sandbox(p, v, e) : keep_host(p, v.rule, e);
	case MA_KEEP:
		return keep_host(p, v.rule, e);
	case MA_TAKE:
		return take_sandbox(p, v, e);
	}
	return err_set(e, ERR_INTERNAL, "unknown act %d", v.act);
}

/* Something at path or above it could not be read in the sandbox: unknown, so nothing goes. 1, 0, errno. */
static int frozen(struct plan *p, const char *path, size_t n)
{
	int r = 0;

	if (p->u->partial)
		return 1;
	if (!p->u->unknown)
		return 0;
	for (size_t i = n; i > 0 && r == 0; i--) {
		if (i != n && path[i] != '/')
			continue;
		r = chlist_find(p->u->list, path, i, &p->other);
		if (r > 0)
			r = p->other.kind == MK_UNKNOWN;
	}
	if (r == 0) {
		r = chlist_find(p->u->list, "", 0, &p->other);
		if (r > 0)
			r = p->other.kind == MK_UNKNOWN;
	}
	return r;
}

/* Two different chmods of one file or directory: the host's stands, and that is said. */
static int say_modes(struct plan *p, struct err *e)
{
	struct merge_side b = p->side_b, s = p->side_s, h = p->h.side;

	if ((s.kind != MK_FILE && s.kind != MK_DIR) || b.kind != s.kind || h.kind != s.kind ||
	    b.mode == s.mode || b.mode == h.mode || s.mode == h.mode || p->h.blocked)
		return 0;
	(void)snprintf(p->detail, sizeof(p->detail), "%03o in the sandbox, %03o here", s.mode,
		       h.mode);
	return note(p, UA_CONFLICT, "mode_both_changed", p->detail, e);
}

/* Acts, and what the sandbox has at p->c becomes the baseline of a kept sandbox if it is dealt with. */
static int settle(struct plan *p, struct merge_verdict v, struct err *e)
{
	bool news = !merge_same(p->side_b, p->side_s);
	int r;

	p->failed = p->disputed = false;
	p->host_mode = p->h.side.kind == p->side_s.kind ? p->h.side.mode : p->side_s.mode;
	if (p->h.blocked &&
	    p->c.kind != MK_ABSENT) /* nothing is written through what is in the way */
		r = v.act == MA_NONE ? 0 : keep_host(p, p->h.blocked, e);
	else if (p->h.blocked && !strcmp(p->h.blocked, "permission_denied"))
		r = note(p, UA_FAIL, p->h.blocked, NULL, e);
	else
		r = p->h.blocked ? 0 : act(p, v, e);
	if (r == 0 && !p->failed && !p->disputed)
		r = say_modes(p, e);
	if (r < 0 || p->failed || !news || p->preview)
		return r;
	return baseline_note(p->u, &p->c, p->have_b ? &p->b : NULL, p->host_mode, !p->disputed, e);
}

/* p->c is a path that the sandbox no longer has; p->b its manifest entry. */
static int decide_gone(struct plan *p, struct err *e)
{
	struct merge_verdict v;
	int r = frozen(p, p->c.path, p->c.path_len);

	if (r != 0)
		return r < 0 ? err_sys(e, -r, "look up %s", p->c.path) : 0;
	/* A manifest never lists them; if one did, they would still not be a sandbox's to delete. */
	if (member_name_rule(p->c.path, p->c.path_len))
		return 0;
	r = host_classify(p->u, &p->b, &p->c, &p->side_b, &p->side_s, &p->h, e);
	if (r < 0)
		return r;
	v = merge_decide(p->side_b, p->side_s, p->h.side, p->u->s.take_sandbox);
	return settle(p, v, e);
}

/* True if the sandbox's state at a listed path decides about everything below it. */
static bool covers(const struct change *c)
{
	return c->kind == MK_ABSENT || c->kind == MK_FILE || c->kind == MK_LINK ||
	       c->flags & CH_OPAQUE;
}

/* Is `path` listed, or decided by a listed path between it and the first `above` bytes? 1, 0, errno. */
static int decided(struct plan *p, const char *path, size_t n, size_t above)
{
	int r = chlist_find(p->u->list, path, n, &p->other);

	for (size_t i = n; i-- > above + 1 && r == 0;) {
		if (path[i] != '/')
			continue;
		r = chlist_find(p->u->list, path, i, &p->other);
		if (r > 0)
			r = covers(&p->other);
	}
	return r;
}

/* p->b is a manifest entry that the sandbox no longer has. */
static int gone_entry(struct plan *p, struct err *e)
{
	p->c = (struct change){.kind = MK_ABSENT, .path_len = (uint32_t)p->b.path_len};
	memcpy(p->c.path, p->b.path, p->b.path_len + 1);
	p->have_b = true;
	return decide_gone(p, e);
}

/* Manifest paths below dir that the stream does not bring: the sandbox no longer has them. */
static int gone_below(struct plan *p, const char *dir, size_t n, struct err *e)
{
	char top[PATH_MEMBER_MAX + 1];
	size_t pos = 0;
	int r;

	memcpy(top, dir, n);
	top[n] = '\0';
	if (!p->u->m)
		return 0;
	manifest_seek_below(p->u->m, top, n, &pos);
	while ((r = manifest_next(p->u->m, &pos, &p->b)) > 0) {
		if (n &&
		    (p->b.path_len <= n || memcmp(p->b.path, top, n) != 0 || p->b.path[n] != '/'))
			break;
		r = decided(p, p->b.path, p->b.path_len, n);
		if (r < 0)
			return err_sys(e, -r, "look up %s", p->b.path);
		if (r > 0)
			continue;
		r = gone_entry(p, e);
		if (r < 0)
			return r;
	}
	return r < 0 ? err_set(e, ERR_PROTOCOL, "the manifest of this run is damaged below %s", top)
		     : 0;
}

/*
 * What a kept sandbox made itself, and what was published, leaves no mark when it is deleted there:
 * no layer below had it. Neither listed nor covered by what is listed means gone.
 */
static int gone_unmarked(struct plan *p, struct err *e)
{
	size_t pos = 0;
	int r = chlist_find(p->u->list, "", 0, &p->other);

	if (r != 0) /* an opaque root: decided there */
		return r < 0 ? err_sys(e, -r, "look up the workspace") : 0;
	while ((r = manifest_next_sandbox(p->u->m, &pos, &p->b)) > 0) {
		r = decided(p, p->b.path, p->b.path_len, 0);
		if (r < 0)
			return err_sys(e, -r, "look up %s", p->b.path);
		if (r > 0)
			continue;
		r = gone_entry(p, e);
		if (r < 0)
			return r;
	}
	return r < 0 ? err_set(e, ERR_PROTOCOL, "the baseline of this sandbox is damaged") : 0;
}

static int decide_here(struct plan *p, struct err *e)
{
	struct merge_verdict v;
	int r;

	if (p->c.kind == MK_ABSENT)
		return p->have_b ? decide_gone(p, e) : 0;
	if (p->c.flags & CH_HARDLINK) {
		r = resolve_hardlink(p, e);
		if (r != 0)
			return r < 0 ? r : note(p, UA_REFUSE, "hardlink_target", NULL, e);
	}
	r = host_classify(p->u, p->have_b ? &p->b : NULL, &p->c, &p->side_b, &p->side_s, &p->h, e);
	if (r < 0)
		return r;
	if (p->h.blocked && way_is_cleared(p, p->c.path))
		p->h.blocked = NULL; /* and absent */
	v = merge_decide(p->side_b, p->side_s, p->h.side, p->u->s.take_sandbox);
	return settle(p, v, e);
}

/* --- new trees -------------------------------------------------------------------------- */

static bool in_last_tree(const struct plan *p, size_t top)
{
	return !memcmp(p->c.path, p->tree, top) && !p->tree[top];
}

static bool tree_is_whole(struct plan *p, size_t top)
{
	char name[TREE_NAME];

	if (in_last_tree(p, top))
		return p->whole;
	tree_name(p->c.path, top, TREE_WHOLE, name);
	return faccessat(p->u->st.content, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* The tree of p->c goes as a whole if the host still has nothing there; else its entries are apart from now on. */
static int judge_tree(struct plan *p, size_t top, bool skipped, struct err *e)
{
	struct intent in = {.op = IN_TREE, .action = UA_ACTION_COUNT};
	char whole[TREE_NAME], apart[TREE_NAME], path[PATH_MEMBER_MAX + 1];
	struct stat st;
	int r;

	memcpy(path, p->c.path, top);
	path[top] = '\0';
	r = host_look(p->u, path, &p->h, e);
	if (r < 0)
		return r;
	tree_name(path, top, TREE_WHOLE, whole);
	if (!skipped && p->h.side.kind == MK_ABSENT && !p->h.blocked) {
		if (fstatat(p->u->st.content, whole, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return err_sys(e, errno, "find the staged tree of %s", path);
		in.new_ino = st.st_ino;
		return intend(p, &in, path, top, e);
	}
	tree_name(path, top, TREE_APART, apart);
	r = save_rename(p->u->st.content, whole, p->u->st.content, apart);
	if (r < 0)
		return err_sys(e, -r, "take the staged tree of %s apart", path);
	return 0;
}

/* Once per tree, at the first of its entries: is it one? skipped: the entry does not come in. */
static int meet_tree(struct plan *p, bool skipped, struct err *e)
{
	size_t top = (size_t)p->c.id;
	int r;

	if (p->c.path_len == top)
		return judge_tree(p, top, skipped, e);
	if (in_last_tree(p, top))
		return 0;
	/* Its own entry, where a member declared it, came before what is in it. */
	r = chlist_find(p->u->list, p->c.path, top, &p->other);
	if (r < 0)
		return err_sys(e, -r, "look up %s", p->c.path);
	r = r > 0 && p->other.flags & CH_TREE ? 0 : judge_tree(p, top, false, e);
	if (r < 0)
		return r;
	p->whole = tree_is_whole(p, top);
	memcpy(p->tree, p->c.path, top);
	p->tree[top] = '\0';
	return 0;
}

/* p->c has left its tree: directories on its way that no member declared were there for it only. */
static int drop_implied(struct plan *p, struct err *e)
{
	struct beneath content = {.root = p->u->st.content, .stepwise = p->u->root.stepwise};
	size_t top = (size_t)p->c.id, n = p->c.path_len;
	char at[PATH_MEMBER_MAX + 1];
	int r = 0;

	while (r == 0 && n > top) {
		while (n > top && p->c.path[--n] != '/')
			;
		r = chlist_find(p->u->list, p->c.path, n, &p->other);
		if (r != 0)
			return r < 0 ? err_sys(e, -r, "look up %s", p->c.path) : 0;
		tree_path(p->c.path, n, top, TREE_WHOLE, at);
		r = beneath_rmdir(&content, at);
	}
	return r == 0 || r == -ENOTEMPTY || r == -ENOENT
		   ? 0
		   : err_sys(e, -r, "take %s out of its tree", p->c.path);
}

/* p->c, entry i, does not come in: it leaves the tree. Directories do once all is decided. */
static int leave_tree(struct plan *p, uint64_t i, struct err *e)
{
	struct beneath content = {.root = p->u->st.content, .stepwise = p->u->root.stepwise};
	char at[PATH_MEMBER_MAX + 1];
	_cleanup_fd_ int dir = -1;
	const char *base;

	if (!(p->c.flags & CH_TREE) || !tree_is_whole(p, (size_t)p->c.id))
		return 0;
	p->u->skip[i / 8] |= (uint8_t)(1u << (i % 8));
	if (p->c.kind == MK_DIR) {
		p->emptied = true;
		return 0;
	}
	tree_path(p->c.path, p->c.path_len, (size_t)p->c.id, TREE_WHOLE, at);
	dir = beneath_parent(&content, at, &base);
	if (dir < 0 || unlinkat(dir, base, 0) < 0)
		return err_sys(e, dir < 0 ? -dir : errno, "take %s out of its tree", p->c.path);
	return drop_implied(p, e);
}

/* What is left in such a directory comes in all the same, and then so does the directory. */
static int drop_emptied(struct plan *p, struct err *e)
{
	struct beneath content = {.root = p->u->st.content, .stepwise = p->u->root.stepwise};
	char at[PATH_MEMBER_MAX + 1];
	int r = 0;

	for (uint64_t i = chlist_count(p->u->list); p->emptied && r == 0 && i-- > 0;) {
		if (!change_skipped(p->u, i))
			continue;
		r = chlist_get(p->u->list, i, &p->c);
		if (r < 0)
			return err_sys(e, -r, "read the list of changes");
		if (p->c.kind != MK_DIR || !(p->c.flags & CH_TREE))
			continue;
		tree_path(p->c.path, p->c.path_len, (size_t)p->c.id, TREE_WHOLE, at);
		r = beneath_rmdir(&content, at);
		if (r == 0)
			r = drop_implied(p, e);
		else if (r != -ENOTEMPTY && r != -ENOENT)
			return err_sys(e, -r, "take %s out of its tree", p->c.path);
		else
			r = 0;
	}
	return r;
}

/* An accepted entry. 1: it comes with its tree; 0: it is an entry like others from now on; errno. */
static int with_tree(struct plan *p, uint64_t i, struct err *e)
{
	struct beneath content = {.root = p->u->st.content, .stepwise = p->u->root.stepwise};
	uint32_t mode = p->c.kind == MK_LINK ? 0 : new_mode(p, p->c.mode);
	char at[PATH_MEMBER_MAX + 1], name[20];
	_cleanup_fd_ int dir = -1, fd = -1;
	const char *base;
	int r;

	if (!(p->c.flags & CH_TREE))
		return 0;
	if (tree_is_whole(p, (size_t)p->c.id)) {
		if (p->c.kind == MK_DIR)
			mode |= 0700;
		r = baseline_note(p->u, &p->c, NULL, mode, true, e);
		return r < 0 ? r : 1;
	}
	tree_path(p->c.path, p->c.path_len, (size_t)p->c.id, TREE_APART, at);
	p->c.flags &= (uint8_t)~CH_TREE;
	p->c.id = 0;
	if (p->c.kind == MK_DIR)
		return 0;
	p->c.id = p->ids + i;
	stage_name(p->c.id, name);
	dir = beneath_parent(&content, at, &base);
	r = dir < 0 ? dir : save_rename(dir, base, p->u->st.content, name);
	if (r < 0)
		return err_sys(e, -r, "take %s out of its tree", p->c.path);
	if (!(p->c.flags & CH_UNHASHED))
		return 0;
	fd = openat(p->u->st.content, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	r = fd < 0 ? -errno : change_hash(&p->c, fd);
	return r < 0 ? err_sys(e, -r, "read the staged content of %s", p->c.path) : 0;
}

static int decide(struct plan *p, uint64_t i, struct err *e)
{
	struct unpack *u = p->u;
	char path[PATH_MEMBER_MAX + 1];
	size_t n;
	bool below;
	int r = chlist_get(u->list, i, &p->c);

	if (r < 0)
		return err_sys(e, -r, "read the list of changes");
	if (p->c.kind == MK_UNKNOWN)
		return 0;
	if (p->c.flags & CH_TREE && (r = meet_tree(p, change_skipped(u, i), e)) < 0)
		return r;
	if (change_skipped(u, i)) {
		r = leave_tree(p, i, e);
		return r < 0 ? r : note(p, UA_IGNORE, "ignored", NULL, e);
	}
	n = p->c.path_len;
	memcpy(path, p->c.path, n + 1);
	r = p->c.kind == MK_ABSENT ? 0 : gitdir_refuses(u, path, n, &p->other);
	if (r < 0)
		return err_sys(e, -r, "look around %s", path);
	if (r > 0 && u->s.strict)
		return reject(p, "git_metadata", "it writes into what git takes for a repository",
			      e);
	if (r > 0) {
		r = leave_tree(p, i, e);
		return r < 0 ? r : note(p, UA_REFUSE, "git_metadata", NULL, e);
	}
	r = with_tree(p, i, e);
	if (r != 0)
		return r < 0 ? r : 0;
	p->have_b = u->m && !(p->c.flags & CH_NEW);
	if (p->have_b) {
		r = manifest_find(u->m, path, n, &p->b);
		if (r < 0)
			return err_set(e, ERR_PROTOCOL,
				       "the manifest of this run is damaged near %s", path);
		p->have_b = r > 0;
	}
	below = p->c.flags & CH_OPAQUE || (p->c.kind == MK_ABSENT && p->have_b &&
					   p->b.kind == 'd' && !(p->c.flags & CH_ALONE));
	r = n ? decide_here(p, e) : 0;
	return r == 0 && below ? gone_below(p, path, n, e) : r;
}

int plan_paths(struct unpack *u, struct journal *j, struct err *e)
{
	struct plan *p = calloc(1, sizeof(*p));
	uint64_t count = u->m ? manifest_count(u->m) : 0;
	int r = 0;

	if (!p)
		return err_set(e, ERR_NOMEM, "out of memory");
	p->u = u;
	p->j = j;
	p->preview = u->s.dry_run || u->s.mode == UM_REVIEW;
	p->ids = u->st.next_id;
	u->st.next_id += chlist_count(u->list);
	if (u->s.full_tree) {
		r = chlist_find(u->list, "", 0, &p->other);
		if (r == 0) /* an opaque root in the stream says the same */
			r = gone_below(p, "", 0, e);
		else if (r > 0)
			r = 0;
	}
	for (uint64_t i = 0; i < chlist_count(u->list) && r == 0; i++)
		r = decide(p, i, e);
	if (r == 0)
		r = drop_emptied(p, e);
	if (r == 0 && u->m && u->baseline.dir >= 0)
		r = gone_unmarked(p, e);
	strv_free(p->cleared);
	free(p);
	u->mass_delete = u->deletes >= MASS_DELETE_MIN && count &&
			 u->deletes * 100 >= count * MASS_DELETE_PERCENT;
	if (u->deletes && u->s.full_tree && chlist_count(u->list) == 0)
		u->mass_delete = true;
	return r;
}
