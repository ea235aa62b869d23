/*
 * Phase 1 of door 1: the stream is read to its end, judged member by member and staged.
 *
 * Policy: one hostile member, or a stream that is cut, and nothing of it reaches the host tree.
 * Bytes judged are bytes staged: there is one reader and no second pass over the stream.
 * File contents are data: they are hashed and copied, never looked into.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "policy/member.h"
#include "sync/unpack_server.h"
#include "wire/tar.h"

#define IN_BYTES (128 << 10)
#define PIPE_BYTES (1 << 20) /* the most that a user may ask for where nothing else is set */
#define SMALL_BYTES \
	(64 << 10) /* files up to this are compared with the manifest before they are staged */
#define SIZE_CLAIM_MAX \
	(UINT64_C(1) << 50) /* no real file: hostile; below, judge_size has the limit */
#define TELL_NS (50 * NS_PER_MS)

struct intake {
	struct unpack *u;
	struct tar_reader *tar;
	struct members *judge;
	uint8_t *in;
	int raw; /* owned: first RAW_KEEP_MAX bytes, kept if the stream is rejected */
	uint64_t raw_len;
	uint64_t again;			    /* of those that were sent once more */
	uint64_t members, bytes, unchecked; /* bytes staged since the last look at free space */
	int64_t told_ns, window_ns;	    /* window: of the look at how fast the stream is */
	uint64_t window_bytes;
	/* the member in work */
	struct change c;
	bool wanted;	/* content is to be kept */
	bool have_base; /* base is the manifest's entry of c.path */
	struct manifest_entry base;
	crypto_generichash_state hash;
	struct err *late; /* where refuse_late puts its reason */
	int late_r;	  /* what it returned last */
	uint64_t at;	  /* end of what was hashed */
	bool staged;	  /* the writer has it in work; else it is small */
	/* the file before it: the packer sends one again that changed while it was read */
	char last[PATH_MEMBER_MAX + 1];
	size_t last_len; /* 0: the member before was no file */
	uint64_t last_size, last_id;
	char *small;
	size_t small_len;
};

static void blame(struct unpack *u, struct view path)
{
	memcpy(u->rule_path, path.n ? path.p : "", path.n);
	u->rule_path[path.n] = '\0';
}

static int reject(struct intake *k, const char *rule, const char *text, struct view path,
		  struct err *e)
{
	struct unpack *u = k->u;
	_cleanup_buf_ struct buf b = BUF_INIT(sizeof(u->rule_text));

	u->rejected = true;
	u->rule = rule;
	if (path.n)
		blame(u, path);
	(void)str_printable(&b, path.p, path.n < 200 ? path.n : 200);
	(void)snprintf(u->rule_text, sizeof(u->rule_text), "%s%s%s", buf_text(&b),
		       path.n ? ": " : "", text);
	(void)err_set(e, ERR_HOSTILE, "the sandbox's result stream was rejected (%s): %s", rule,
		      u->rule_text);
	return -EBADMSG;
}

static int hash_zeros(struct intake *k, uint64_t n)
{
	static const uint8_t zero[4096];

	while (n) {
		size_t m = n < sizeof(zero) ? (size_t)n : sizeof(zero);

		(void)crypto_generichash_update(&k->hash, zero, m);
		n -= m;
	}
	return 0;
}

/* From here on the member is the writer's to make. */
static int make_staged(struct intake *k, struct err *e)
{
	struct writer_entry m = {.path = k->c.path, .mode = k->c.mode & ~k->u->s.umask};
	char name[20];
	int r = 0;

	/* A new file is made with the mode that it will have, unless we could not open it again then. */
	if (k->have_base || (m.mode & 0600) != 0600)
		m.mode = 0600;
	if (m.mode == (k->c.mode & ~k->u->s.umask))
		r = tree_place(k->u, &k->c, &m, e);
	if (r == 0) {
		r = tree_drop(k->u, &k->c, e);
		if (r == 0)
			r = stage_ready(k->u, e);
		if (r < 0)
			return r;
		m.dir = k->u->st.content;
		k->c.id = k->u->st.next_id++;
		stage_name(k->c.id, name);
		m.name = name;
	} else if (r > 0 && k->u->baseline.dir < 0) {
		k->c.flags |= CH_UNHASHED;
	}
	if (r >= 0)
		r = writer_file(k->u->writer, &m, e);
	/* small is contiguous from 0 unless the file is sparse, and sparse files are never small. */
	if (r == 0)
		r = writer_data(k->u->writer, k->small, k->small_len, 0, e);
	k->staged = r == 0;
	k->small_len = 0;
	return r;
}

static int take_data(struct intake *k, const struct tar_out *o, struct err *e)
{
	k->bytes += o->data.n;
	/* What is refused is read all the same, but not without end. */
	if (k->bytes / 4 > k->u->s.total_max)
		return reject(
		    k, "limit",
		    "refused files of the stream, and those sent again, hold too many bytes",
		    (struct view){0}, e);
	if (!k->wanted)
		return 0;
	if (o->data_offset < k->at)
		return err_set(e, ERR_INTERNAL, "tar reader went backwards in %s", k->c.path);
	if (!(k->c.flags & CH_UNHASHED)) {
		(void)hash_zeros(k, o->data_offset - k->at);
		(void)crypto_generichash_update(&k->hash, (const uint8_t *)o->data.p, o->data.n);
	}
	k->at = o->data_offset + o->data.n;
	if (!k->staged) {
		memcpy(k->small + k->small_len, o->data.p, o->data.n);
		k->small_len += o->data.n;
		return 0;
	}
	k->unchecked += o->data.n;
	return writer_data(k->u->writer, o->data.p, o->data.n, o->data_offset, e);
}

static int add(struct intake *k, struct err *e)
{
	int r;

	k->c.seq = k->members;
	r = chlist_add(k->u->list, &k->c);
	if (r == -E2BIG)
		return reject(k, "limit", "the list of changes is over 512 MiB", (struct view){0},
			      e);
	return r < 0 ? err_sys(e, -r, "note change of %s", k->c.path) : 0;
}

static bool equals_base(const struct intake *k)
{
	/* Of the sandbox's own state the bytes may be nowhere else: another mode may want them again. */
	if (k->base.sandbox && k->base.mode != k->c.mode)
		return false;
	return k->have_base && k->base.kind == 'f' && k->base.size == k->c.size &&
	       !memcmp(k->base.hash, k->c.hash, MANIFEST_HASH);
}

static int end_file(struct intake *k, struct err *e)
{
	struct writer *w = k->u->writer;
	char name[20];
	bool drop;
	int r = 0;

	if (!(k->c.flags & CH_UNHASHED)) {
		(void)hash_zeros(k, k->c.size - k->at);
		(void)crypto_generichash_final(&k->hash, k->c.hash, MANIFEST_HASH);
	}
	/* Without layers nobody else has the bytes, should the host have lost them. */
	drop = equals_base(k) && (k->u->layers_len || k->base.mode == k->c.mode);
	if (!drop && !k->staged)
		r = make_staged(k, e);
	if (r == 0 && k->staged)
		r = writer_end(w, k->c.size, k->at < k->c.size, k->c.mtime_ns, e);
	if (drop && k->staged && r == 0) {
		stage_name(k->c.id, name);
		r = writer_unlink(w, k->u->st.content, name, k->c.path, e);
	}
	if (drop)
		k->c.id = 0;
	k->staged = false;
	k->small_len = 0;
	memcpy(k->last, k->c.path, k->c.path_len + 1);
	k->last_len = k->c.path_len;
	k->last_size = k->c.size;
	k->last_id =
	    k->c.flags & CH_TREE ? 0 : k->c.id; /* of a tree the name itself is taken again */
	return r == 0 ? add(k, e) : r;
}

/*
 * The same name right after its file: that copy is none of the results any more. Its bytes go before the next are
 * staged, and they do not count. Whoever sends again without end meets a bound: of all bytes (take_data), and here of
 * logical ones, for a sparse file costs the stream next to nothing and us a hash of all its zeros.
 */
static int forget_last(struct intake *k, const struct tar_member *m, struct err *e)
{
	size_t n = k->last_len;
	char name[20];

	k->last_len = 0;
	if (!n || n != k->c.path_len || memcmp(k->last, k->c.path, n) != 0)
		return 0;
	k->u->taken -= k->last_size;
	k->again += k->last_size;
	if (k->again / 4 > k->u->s.total_max)
		return reject(k, "limit", "files that were sent again hold too many bytes", m->path,
			      e);
	if (!k->last_id)
		return 0;
	stage_name(k->last_id, name);
	return writer_unlink(k->u->writer, k->u->st.content, name, k->c.path, e);
}

static int take_link(struct intake *k, const struct tar_member *m, struct err *e)
{
	struct writer_entry at = {.path = k->c.path, .mtime_ns = k->c.mtime_ns};
	char target[LINK_TARGET_MAX + 1], name[20];
	int r;

	if (m->target.n == 0 || m->target.n > LINK_TARGET_MAX)
		return reject(k, "target_too_long", "link target", m->path, e);
	memcpy(target, m->target.p, m->target.n);
	target[m->target.n] = '\0';
	k->c.size = m->target.n;
	(void)crypto_generichash(k->c.hash, MANIFEST_HASH, (const uint8_t *)target, m->target.n,
				 NULL, 0);
	if (k->c.kind == MK_LINK && k->have_base && k->base.kind == 'l' &&
	    k->base.target_len == m->target.n && !memcmp(k->base.target, target, m->target.n))
		return add(k, e);
	r = stage_ready(k->u, e);
	if (r == 0)
		r = tree_place(k->u, &k->c, &at, e);
	if (r == 0) {
		k->c.id = k->u->st.next_id++;
		stage_name(k->c.id, name);
		at.dir = k->u->st.content;
		at.name = name;
	}
	if (r >= 0)
		r = writer_link(k->u->writer, &at, target, e);
	return r < 0 ? r : add(k, e);
}

static int find_base(struct intake *k, struct err *e)
{
	int r = 0;

	if (k->u->m)
		r = manifest_find(k->u->m, k->c.path, k->c.path_len, &k->base);
	if (r < 0)
		return err_set(e, ERR_PROTOCOL, "the manifest of this run is damaged near %s",
			       k->c.path);
	k->have_base = r > 0;
	if (!k->have_base)
		k->c.flags |= CH_NEW;
	return 0;
}

static int refuse(struct intake *k, const char *rule, struct view target, struct err *e)
{
	char detail[256] = "";
	int r;

	if (target.n)
		(void)snprintf(detail, sizeof(detail), "%.*s",
			       (int)(target.n < 255 ? target.n : 255), target.p);
	r = tree_drop(k->u, &k->c, e);
	if (r < 0)
		return r;
	k->c.kind = MK_UNKNOWN;
	k->c.flags |= CH_REFUSED;
	k->u->unknown++;
	r = add(k, e);
	return r < 0 ? r : tell(k->u, UA_REFUSE, k->c.path, rule, detail, e);
}

/* One file that could never fit is refused alone; files that do not fit together reject the stream. */
static int judge_size(struct intake *k, const struct tar_member *m, struct err *e)
{
	uint64_t max = k->u->s.total_max;
	uint64_t one = k->u->s.member_max && k->u->s.member_max < max ? k->u->s.member_max : max;
	char size[24], limit[24], text[256];

	if (m->size > one) {
		str_human_size(m->size, size, sizeof(size));
		str_human_size(one, limit, sizeof(limit));
		(void)snprintf(text, sizeof(text),
			       "%s, the limit of %s is %s; make it smaller in the sandbox", size,
			       one < max ? "one file" : "all results", limit);
		return k->u->s.strict
			   ? reject(k, "too_large", text, m->path, e)
			   : refuse(k, "too_large", (struct view){text, strlen(text)}, e);
	}
	if (m->size > max - k->u->taken) {
		str_human_size(max, limit, sizeof(limit));
		(void)snprintf(text, sizeof(text),
			       "with this file the results are over %s, the limit of all results "
			       "together; delete or shrink some in the sandbox",
			       limit);
		return reject(k, "limit", text, m->path, e);
	}
	k->u->taken += m->size;
	return 1;
}

static int start_file(struct intake *k, const struct tar_member *m, struct err *e)
{
	uint64_t need = m->sparse ? 0 : m->size;
	int r = judge_size(k, m, e);

	if (r <= 0)
		return r;
	r = 0;

	if (k->unchecked + need > (1 << 20) || k->unchecked == 0) {
		r = stage_space(k->u, need, e);
		k->unchecked = 1;
	}
	k->unchecked += need <= SMALL_BYTES ? need : 0;
	k->wanted = true;
	k->at = 0;
	/* What may turn out to be the manifest's file is looked at before it is made, if it is small. */
	if (r == 0 && (!k->have_base || m->sparse || m->size > SMALL_BYTES))
		r = make_staged(k, e);
	if (!(k->c.flags & CH_UNHASHED))
		(void)crypto_generichash_init(&k->hash, NULL, 0, MANIFEST_HASH);
	return r;
}

static int take_member(struct intake *k, const struct tar_member *m, struct err *e)
{
	const char *rule = NULL;
	int r, verdict;

	k->members++;
	k->wanted = false;
	k->c = (struct change){.mode = member_mode(m), .size = m->size, .mtime_ns = m->mtime_ns};
	k->c.path_len = (uint32_t)m->path.n;
	memcpy(k->c.path, m->path.n ? m->path.p : "", m->path.n);
	verdict = members_judge(k->judge, m, &rule);
	if (verdict < 0)
		return err_sys(e, -verdict, "judge member %s", k->c.path);
	if (verdict == MEMBER_HOSTILE)
		return reject(k, rule, "a boundary rule is broken", m->path, e);
	/* A mapping of one file has authority over that name and no other (S1-08). */
	if (k->u->s.only[0] &&
	    (m->type != TAR_FILE || m->op != TAR_OP_NONE || strcmp(k->c.path, k->u->s.only) != 0))
		return reject(k, "not_mapped", "only one file may come here", m->path, e);
	r = forget_last(k, m, e);
	if (r == 0)
		r = find_base(k, e);
	if (r < 0)
		return r;
	if (verdict == MEMBER_REFUSE)
		return refuse(k, rule, m->target, e);
	switch (m->op) {
	case TAR_OP_DELETE:
		k->c.kind = MK_ABSENT;
		return k->have_base ? add(k, e) : 0;
	case TAR_OP_UNREADABLE:
		return refuse(k, "unreadable", (struct view){0}, e);
	case TAR_OP_OPAQUE:
		k->c.flags |= CH_OPAQUE;
		break;
	case TAR_OP_NONE:
		break;
	}
	switch (m->type) {
	case TAR_DIR:
		if (!k->c.path_len && !(k->c.flags & CH_OPAQUE))
			return 0; /* "." : the root's own metadata is the host's business */
		k->c.kind = MK_DIR;
		r = tree_dir(k->u, &k->c, e);
		return r < 0 ? r : add(k, e);
	case TAR_SYMLINK:
		k->c.kind = MK_LINK;
		k->c.mode = 0;
		return take_link(k, m, e);
	case TAR_HARDLINK:
		k->c.kind = MK_FILE;
		k->c.flags |= CH_HARDLINK;
		return take_link(k, m, e);
	case TAR_FILE:
		k->c.kind = MK_FILE;
		return start_file(k, m, e);
	case TAR_SPECIAL:
		return refuse(k, "special_file", (struct view){0}, e);
	}
	return 0;
}

static int progress(struct intake *k, bool force, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);
	int64_t now = clock_mono_ns();

	if (!force && now - k->told_ns < TELL_NS)
		return 0;
	k->told_ns = now;
	(void)buf_u64(&b, k->members);
	(void)buf_u64(&b, k->bytes);
	return chan_send(&k->u->ch, UF_PROGRESS, b.data, b.len, NULL, 0, INT64_MAX, e);
}

/* Everything that `n` bytes hold. 1: end mark seen. */
static int digest(struct intake *k, const uint8_t *p, size_t n, struct err *e)
{
	struct tar_out o;

	for (;;) {
		int r = tar_reader_next(k->tar, &p, &n, &o, e);

		switch (r) {
		case TAR_NEED:
			return 0;
		case TAR_END:
			return 1;
		case TAR_MEMBER:
			r = take_member(k, &o.member, e);
			break;
		case TAR_DATA:
			r = take_data(k, &o, e);
			break;
		case TAR_MEMBER_END:
			r = k->wanted ? end_file(k, e) : 0;
			k->wanted = false;
			break;
		case -EBADMSG:
			blame(k->u, o.member.path); /* the text names it already */
			return reject(k, o.rule, e ? e->text : "", (struct view){0}, e);
		default:
			return r;
		}
		if (r < 0)
			return r;
	}
}

/* Waits for the stream, but not for ever, or for the parent to go away. >0 bytes, 0 end. */
static long read_in(struct intake *k, struct err *e)
{
	struct pollfd p[2] = {{.fd = k->u->stream_fd, .events = POLLIN},
			      {.fd = k->u->ch.fd, .events = 0}};
	ssize_t n;

	do {
		int r = poll(p, 2, STREAM_IDLE_MS);

		if (r < 0 && errno != EINTR)
			return err_sys(e, errno, "wait for the result stream");
		if (r == 0)
			return err_set(
			    e, ERR_TIMEOUT,
			    "limit results: the sandbox sent nothing for %d s (built-in, "
			    "STREAM_IDLE_MS); nothing was published from this stream",
			    STREAM_IDLE_MS / 1000);
		if (p[1].revents & (POLLHUP | POLLERR))
			return err_set(e, ERR_CANCELLED,
				       "airlock went away while results were read");
		n = p[0].revents ? read(k->u->stream_fd, k->in, IN_BYTES) : -1;
	} while ((!p[0].revents || n < 0) && (!p[0].revents || errno == EINTR || errno == EAGAIN));
	return n < 0 ? err_sys(e, errno, "read the result stream") : n;
}

/* A byte now and then is no silence, but it would hold the workspace's results for ever. */
static int judge_pace(struct intake *k, size_t n, struct err *e)
{
	int64_t now = clock_mono_ns();

	k->window_bytes += n;
	if (k->window_ns && now - k->window_ns < k->u->s.slow_ms * NS_PER_MS)
		return 0;
	if (k->window_ns && k->window_bytes < STREAM_SLOW_BYTES)
		return err_set(
		    e, ERR_TIMEOUT,
		    "limit results: the sandbox sent %llu bytes in %lld s, at least %d are expected "
		    "(built-in, STREAM_SLOW_BYTES); nothing was published from this stream",
		    (unsigned long long)k->window_bytes,
		    (long long)((now - k->window_ns) / NS_PER_S), STREAM_SLOW_BYTES);
	k->window_ns = now;
	k->window_bytes = 0;
	return 0;
}

static void keep_raw(struct intake *k, size_t n)
{
	size_t off = 0;

	if (k->raw_len + n > RAW_KEEP_MAX)
		n = (size_t)(RAW_KEEP_MAX - k->raw_len);
	while (k->raw >= 0 && off < n) {
		ssize_t w = write(k->raw, k->in + off, n - off);

		if (w <= 0) /* an aid for the person who looks into a rejection, not a promise */
			cleanup_fd(&k->raw);
		else
			off += (size_t)w;
	}
	k->raw_len += n;
}

static int read_stream(struct intake *k, struct err *e)
{
	struct tar_out o;
	bool ended = false;
	size_t tail = 0;
	int r = 0;

	for (;;) {
		long n = read_in(k, e);

		if (n < 0)
			return (int)n;
		if (n == 0)
			break;
		r = judge_pace(k, (size_t)n, e);
		if (r < 0)
			return r;
		/* After the end mark the rest is drained unread: the writer must not die of a full pipe. */
		if (ended) {
			tail += (size_t)n;
			if (tail <= STREAM_TAIL_MAX)
				continue;
			return err_set(
			    e, ERR_LIMIT,
			    "limit results: the stream goes on for more than %u bytes after its "
			    "end (STREAM_TAIL_MAX); nothing was published from this stream",
			    STREAM_TAIL_MAX);
		}
		keep_raw(k, (size_t)n);
		r = digest(k, k->in, (size_t)n, e);
		if (r < 0)
			return r;
		ended = r > 0;
		r = progress(k, false, e);
		if (r < 0)
			return r;
	}
	if (tar_reader_finish(k->tar, &o, e) < 0) {
		blame(k->u, o.member.path);
		return reject(k, o.rule, e ? e->text : "", (struct view){0}, e);
	}
	return progress(k, true, e);
}

/* The links of the host, for the judge: where a link of the stream leads depends on them. */
static long host_link(void *arg, const char *path, char *out, size_t max)
{
	struct unpack *u = arg;
	_cleanup_fd_ int dir = -1;
	const char *base;
	ssize_t k;

	dir = beneath_parent(&u->root, path, &base);
	if (dir < 0)
		return dir == -ENOENT || dir == -ENOTDIR ? 0 : dir;
	k = readlinkat(dir, base, out, max);
	if (k < 0)
		return errno == ENOENT || errno == EINVAL ? 0 : -errno;
	return k;
}

static int unchanged_link(void *arg, struct view path, struct view target)
{
	struct unpack *u = arg;
	struct manifest_entry *b;
	int r;

	if (!u->m)
		return 0;
	b = malloc(sizeof(*b));
	if (!b)
		return -ENOMEM;
	r = manifest_find(u->m, path.p, path.n, b);
	if (r > 0)
		r = b->kind == 'l' && b->target_len == target.n &&
		    !memcmp(b->target, target.p, target.n);
	free(b);
	return r;
}

/* A link that a later one bent outwards: as if it had been refused when it came. */
static int refuse_late(void *arg, struct view path, const char *rule)
{
	struct intake *k = arg;
	struct err *e = k->late;
	int r;

	k->members++;
	k->c = (struct change){.path_len = (uint32_t)path.n};
	memcpy(k->c.path, path.p, path.n);
	if (k->u->s.strict)
		return k->late_r = reject(k, rule, "a boundary rule is broken", path, e);
	r = find_base(k, e);
	return k->late_r = r < 0 ? r : refuse(k, rule, (struct view){0}, e);
}

static int start(struct intake *k, struct err *e)
{
	struct tar_limits limits = {.total_size = UINT64_MAX,
				    .member_size = SIZE_CLAIM_MAX,
				    .members = k->u->s.members_max};
	struct member_opts judge = {
	    .strict = k->u->s.strict,
	    .fold_case = k->u->fold_case,
	    .readlink_at = host_link,
	    .unchanged_link = unchanged_link,
	    .arg = k->u,
	};

	randombytes_buf(judge.key, sizeof(judge.key));
	k->in = malloc(IN_BYTES);
	k->small = malloc(SMALL_BYTES);
	if (!k->in || !k->small || tar_reader_new(&limits, &k->tar) < 0 ||
	    members_new(&judge, &k->judge) < 0)
		return err_set(e, ERR_NOMEM, "out of memory");
	k->raw = openat(k->u->run_fd, "rejected.tar",
			O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	/* Its maker then goes on while we are busy; refused (no pipe, too much for this user), all is as it was. */
	(void)fcntl(k->u->stream_fd, F_SETPIPE_SZ, PIPE_BYTES);
	return 0;
}

/* What was ordered came earlier than what went wrong since, so its failure goes first. */
static int await_staged(struct unpack *u, int r, struct err *e)
{
	struct err first = ERR_INIT;
	int w;

	tree_close(u);
	w = writer_wait(u->writer, &first);
	if (w == 0)
		return r;
	*e = first;
	u->rejected = false;
	return w;
}

int stage_stream(struct unpack *u, struct err *e)
{
	struct intake *k = calloc(1, sizeof(*k));
	int r;

	if (!k)
		return err_set(e, ERR_NOMEM, "out of memory");
	*k = (struct intake){.u = u, .raw = -1, .late = e};
	r = writer_begin(u->writer, u->st.path, u->st.dir, u->root_st.st_uid, u->root_st.st_gid);
	if (r < 0) {
		free(k);
		return err_sys(e, -r, "open staging place %s", u->st.path);
	}
	tree_open(u);
	r = start(k, e);
	if (r == 0)
		r = read_stream(k, e);
	if (r == 0) {
		r = members_finish(k->judge, refuse_late, k);
		if (r < 0 && r != k->late_r)
			(void)err_sys(e, -r, "judge the symlinks of the stream");
	}
	if (r == MEMBER_HOSTILE && !u->rejected) /* too many steps: no one link is to blame */
		r = reject(k, "limit", "its symlinks take too long to follow", (struct view){0}, e);
	if (r > 0)
		r = -EBADMSG;
	r = await_staged(u, r, e);
	if (r == 0)
		writer_sync_soon(u->writer);
	if (k->raw >= 0 && !u->rejected)
		(void)unlinkat(u->run_fd, "rejected.tar", 0);
	/* A change set that waits must say by itself that it is the whole tree: as an opaque root. */
	if (r == 0 && u->s.full_tree && u->s.mode == UM_REVIEW) {
		k->c = (struct change){.kind = MK_DIR, .flags = CH_OPAQUE, .seq = ++k->members};
		r = add(k, e);
	}
	if (r == 0 && (r = chlist_seal(u->list)) < 0)
		(void)err_sys(e, -r, "sort the list of changes");
	tar_reader_free(k->tar);
	members_free(k->judge);
	cleanup_fd(&k->raw);
	free(k->in);
	free(k->small);
	free(k);
	return r;
}
