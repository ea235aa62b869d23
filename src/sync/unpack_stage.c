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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "sync/unpack_intake.h"

#define IN_BYTES (128 << 10)
#define PIPE_BYTES (1 << 20) /* the most that a user may ask for where nothing else is set */
#define SIZE_CLAIM_MAX \
	(UINT64_C(1) << 50) /* no real file: hostile; below, intake_member has the limit */
#define TELL_NS (50 * NS_PER_MS)

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
			r = intake_member(k, &o.member, e);
			break;
		case TAR_DATA:
			r = intake_data(k, &o, e);
			break;
		case TAR_MEMBER_END:
			r = k->wanted ? intake_end(k, e) : 0;
			k->wanted = false;
			break;
		case -EBADMSG:
			intake_blame(k->u, o.member.path); /* the text names it already */
			return intake_reject(k, o.rule, e ? e->text : "", (struct view){0}, e);
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
		intake_blame(k->u, o.member.path);
		return intake_reject(k, o.rule, e ? e->text : "", (struct view){0}, e);
	}
	return progress(k, true, e);
}

/* The links of the host, for the judge: where a link of the stream leads depends on them. */
static long host_link(void *arg, const char *path, char *out, size_t max)
{
	struct unpack *u = arg;

	return beneath_readlink(&u->root, path, out, max);
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
		return k->late_r = intake_reject(
			   k, rule, "a boundary rule is broken, with a link that came after it",
			   path, e);
	r = intake_find_base(k, e);
	return k->late_r = r < 0 ? r : intake_refuse(k, rule, (struct view){0}, e);
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
	k->small = malloc(INTAKE_SMALL);
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
		r = intake_reject(k, "limit", "its symlinks take too long to follow",
				  (struct view){0}, e);
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
		r = intake_add(k, e);
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
