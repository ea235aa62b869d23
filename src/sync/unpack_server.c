/*
 * The life of airlock-unpack: take descriptors from the parent, confine, read, ask, publish.
 *
 * Policy: door 1. The process holds one workspace root, one run directory, read-only base layers
 * and the stream; Landlock lets it write below the first two only, seccomp lets it start nothing
 * and connect nowhere. It is confined before it reads the first byte of the stream.
 * Not done here: choosing what to bring back (the client's filter), history (git).
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "os/confine.h"
#include "os/fslog.h"
#include "sync/unpack_server.h"

/* Private memory: the list of member names (policy/member.h) is what can grow; the rest is a few MiB. */
#define DATA_MAX (UINT64_C(128) << 20)
#define NOFILE (PATH_DEPTH_MAX + 128)
#define NEW_BATCH (256 << 10)

int tell(struct unpack *u, enum unpack_action a, const char *path, const char *rule,
	 const char *detail, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64 << 10);
	struct unpack_note n = {
	    .action = (uint8_t)a,
	    .path = {path, strlen(path)},
	    .rule = {rule ? rule : "", rule ? strlen(rule) : 0},
	    .detail = {detail ? detail : "", detail ? strlen(detail) : 0},
	};
	int r = unpack_put_note(&b, &n);

	if (r < 0)
		return err_sys(e, -r, "report %s", path);
	r = chan_queue(&u->ch, UF_CHANGE, b.data, b.len, u->publishing ? NULL : e);
	/* A listener that went away does not stop a publish: half done is the one state we never leave. */
	return u->publishing ? 0 : r;
}

/* type: UF_CARRIED or UF_DONE. */
static int send_sums(struct unpack *u, uint8_t type, bool repaired, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64 << 10);
	struct unpack_done d = {
	    .bytes_written = u->bytes_written,
	    .mass_delete = u->mass_delete,
	    .rejected = u->rejected,
	    .repaired = repaired,
	    .rule = {u->rule ? u->rule : "", u->rule ? strlen(u->rule) : 0},
	    .text = {u->rule_text, strlen(u->rule_text)},
	    .path = {u->rule_path, strlen(u->rule_path)},
	};

	(void)unpack_put_done(&b, &d);
	if (b.err)
		return err_sys(e, -b.err, "report");
	return chan_send(&u->ch, type, b.data, b.len, NULL, 0, INT64_MAX, e);
}

static int send_plain(struct unpack *u, uint8_t type, struct err *e)
{
	return chan_send(&u->ch, type, NULL, 0, NULL, 0, INT64_MAX, e);
}

/* Next frame of one kind; the parent's end or another kind ends the process. */
static int expect(struct unpack *u, uint8_t type, struct frame *ret, int fds[FRAME_FDS_MAX],
		  struct err *e)
{
	int r = chan_recv(&u->ch, INT64_MAX, ret, fds, e);

	if (r == 0)
		return err_set(e, ERR_CANCELLED, "airlock went away");
	if (r < 0)
		return r;
	return ret->type == type ? 0 : err_set(e, ERR_PROTOCOL, "unexpected frame %u", ret->type);
}

static int set_up(struct unpack *u, struct err *e)
{
	int fds[FRAME_FDS_MAX];
	struct frame f;
	int r = expect(u, UF_SETUP, &f, fds, e);

	if (r < 0)
		return r;
	u->root_fd = fds[0];
	u->run_fd = fds[1];
	u->manifest_fd = fds[2];
	u->stream_fd = fds[3];
	if (unpack_get_setup(f.payload, &u->s) < 0)
		return err_set(e, ERR_PROTOCOL, "malformed set-up frame");
	for (;;) {
		r = chan_recv(&u->ch, INT64_MAX, &f, fds, e);
		if (r <= 0)
			return r < 0 ? r : err_set(e, ERR_CANCELLED, "airlock went away");
		for (size_t i = 0; i < FRAME_FDS_MAX; i++) {
			if (fds[i] < 0)
				continue;
			if (u->layers_len >= UNPACK_LAYERS_MAX)
				return err_set(e, ERR_LIMIT, "more than %d base layers",
					       UNPACK_LAYERS_MAX);
			u->layers[u->layers_len++] = fds[i];
		}
		if (f.type == UF_START)
			break;
		if (f.type == UF_BASELINE && u->layers_len && u->baseline.dir < 0) {
			u->baseline.dir = u->layers[--u->layers_len];
			continue;
		}
		if (f.type != UF_LAYERS)
			return err_set(e, ERR_PROTOCOL, "unexpected frame %u", f.type);
	}
	u->ch.accept_fds = false;
	if (u->root_fd < 0 || fstat(u->root_fd, &u->root_st) < 0)
		return err_set(e, ERR_PROTOCOL, "no workspace root");
	u->root = (struct beneath){.root = u->root_fd};
	u->run = (struct beneath){.root = u->run_fd};
	u->one_log = fslog_is_shared(u->root_fd);
	return 0;
}

static int start_threads(void *arg, struct err *e)
{
	struct unpack *u = arg;

	return writer_start(0, &u->writer, e);
}

static int confine(struct unpack *u, struct err *e)
{
	struct confine_path p[3 + UNPACK_LAYERS_MAX];
	struct stat st;
	size_t n = 0;
	struct confine_opts o = {.paths = p, .data_max = DATA_MAX, .nofile_max = NOFILE};

	p[n++] = (struct confine_path){u->root_fd, CONFINE_READ | CONFINE_WRITE};
	if (u->run_fd >= 0)
		p[n++] = (struct confine_path){u->run_fd, CONFINE_READ | CONFINE_WRITE};
	if (u->baseline.dir >= 0)
		p[n++] = (struct confine_path){u->baseline.dir, CONFINE_READ | CONFINE_WRITE};
	/* Below one that is a file nothing has to be opened. */
	for (size_t i = 0; i < u->layers_len; i++)
		if (fstat(u->layers[i], &st) == 0 && S_ISDIR(st.st_mode))
			p[n++] = (struct confine_path){u->layers[i], CONFINE_READ};
	o.paths_len = n;
	o.without = u->s.without_landlock ? CONFINE_NO_LANDLOCK : 0;
	if (u->s.mode == UM_STREAM || u->s.mode == UM_REVIEW) {
		o.threads = start_threads;
		o.threads_arg = u;
	}
	/*
	 * Started by root the workspace may belong to anybody. Safe because: Landlock bounds these
	 * to the root and the run directory; nothing else can be reached with them.
	 */
	o.keep_caps = UINT64_C(1) << CAP_DAC_OVERRIDE | UINT64_C(1) << CAP_DAC_READ_SEARCH |
		      UINT64_C(1) << CAP_FOWNER | UINT64_C(1) << CAP_CHOWN;
	return confine_self(&o, e);
}

static void on_alarm(int sig)
{
	(void)sig; /* only there to end flock with EINTR */
}

/*
 * The lock is on the root directory itself: every alias of it, every user, every state directory
 * meets there, and nobody can plant another one. Waiters are served in their order.
 */
static int lock_root(struct unpack *u, struct err *e)
{
	struct sigaction sa = {.sa_handler = on_alarm};
	struct itimerval t = {.it_value = {.tv_sec = u->s.lock_wait_ms / 1000,
					   .tv_usec = (u->s.lock_wait_ms % 1000) * 1000},
			      .it_interval = {.tv_sec = 1}};
	struct itimerval off = {0};
	int r;

	/* A descriptor of our own: one shared with the parent would keep the lock when we are killed. */
	u->lock_fd = openat(u->root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (u->lock_fd < 0)
		return err_sys(e, errno, "open the workspace to lock it");
	if (flock(u->lock_fd, LOCK_EX | LOCK_NB) == 0)
		return 0;
	(void)sigaction(SIGALRM, &sa, NULL);
	(void)setitimer(ITIMER_REAL, &t, NULL);
	r = flock(u->lock_fd, LOCK_EX) < 0 ? errno : 0;
	(void)setitimer(ITIMER_REAL, &off, NULL);
	if (r == EINTR)
		return err_set(
		    e, ERR_TIMEOUT,
		    "another run has been publishing to this workspace for %u s: wait for it and "
		    "bring the results back again",
		    u->s.lock_wait_ms / 1000);
	return r ? err_sys(e, r, "lock the workspace") : 0;
}

static int send_new(struct unpack *u, uint64_t *ret_n, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(NEW_BATCH + PATH_MEMBER_MAX + 8);
	struct change c;
	int r = 0;

	*ret_n = 0;
	for (uint64_t i = 0; !u->s.take_all && i < chlist_count(u->list) && r == 0; i++) {
		r = chlist_get(u->list, i, &c);
		if (r < 0)
			return err_sys(e, -r, "read the list of changes");
		if (!(c.flags & CH_NEW) || c.kind == MK_ABSENT || c.kind == MK_UNKNOWN ||
		    !c.path_len)
			continue;
		(void)buf_bytes(&b, c.path, c.path_len);
		++*ret_n;
		if (b.len < NEW_BATCH)
			continue;
		r = chan_send(&u->ch, UF_NEW, b.data, b.len, NULL, 0, INT64_MAX, e);
		buf_reset(&b);
	}
	if (r == 0 && b.len)
		r = chan_send(&u->ch, UF_NEW, b.data, b.len, NULL, 0, INT64_MAX, e);
	return r < 0 ? r : send_plain(u, UF_PLAN, e);
}

/* The client's answers, in the order of the new paths, become bits by list entry. */
static int get_skips(struct unpack *u, uint64_t n, struct err *e)
{
	uint64_t i = 0;
	struct change c;
	struct frame f;
	int r;

	u->skip = calloc(chlist_count(u->list) / 8 + 1, 1);
	if (!u->skip)
		return err_set(e, ERR_NOMEM, "out of memory");
	while ((r = chan_recv(&u->ch, INT64_MAX, &f, NULL, e)) > 0 && f.type == UF_SKIP) {
		for (size_t k = 0; k < f.payload.n; k++, i++, n--) {
			for (;; i++) {
				if (!n || i >= chlist_count(u->list) ||
				    chlist_get(u->list, i, &c) < 0)
					return err_set(e, ERR_PROTOCOL,
						       "more answers than new paths");
				if (c.flags & CH_NEW && c.kind != MK_ABSENT &&
				    c.kind != MK_UNKNOWN && c.path_len)
					break;
			}
			if (f.payload.p[k])
				u->skip[i / 8] |= (uint8_t)(1u << (i % 8));
		}
	}
	if (r == 0)
		return err_set(e, ERR_CANCELLED, "airlock went away");
	if (r < 0)
		return r;
	if (f.type != UF_GO)
		return err_set(e, ERR_PROTOCOL, "unexpected frame %u", f.type);
	u->partial = f.payload.n && f.payload.p[0];
	return 0;
}

static int read_all(struct unpack *u, struct err *e)
{
	int r = 0;

	if (u->s.has_manifest)
		r = manifest_open(u->manifest_fd, &u->m, e);
	if (r == 0)
		r = stage_open(u, e);
	if (r == 0 && u->s.mode == UM_STREAM && !u->s.dry_run)
		r = baseline_open(u, e);
	else
		cleanup_fd(&u->baseline.dir);
	if (r == 0 && chlist_new(u->st.dir < 0 ? u->run_fd : u->st.dir, &u->list) < 0)
		r = err_set(e, ERR_NOMEM, "out of memory");
	if (r < 0)
		return r;
	return u->s.mode == UM_APPLY ? pending_load(u, e) : stage_stream(u, e);
}

static int publish(struct unpack *u, struct err *e)
{
	struct frame f;
	uint64_t n;
	int r = send_new(u, &n, e);

	if (r == 0)
		r = get_skips(u, n, e);
	if (r == 0 && u->s.mode == UM_REVIEW)
		r = pending_save(u, e);
	if (r == 0)
		r = lock_root(u, e);
	if (r == 0)
		r = send_plain(u, UF_LOCKED, e);
	if (r == 0)
		r = expect(u, UF_PUBLISH, &f, NULL, e);
	if (r < 0)
		return r;
	if (u->s.mode == UM_REVIEW) {
		r = plan_paths(u, NULL, e);
		return r == 0 && !u->s.dry_run ? pending_take(u, e) : r;
	}
	return u->s.dry_run ? plan_paths(u, NULL, e) : publish_journal(u, e);
}

static int run(struct unpack *u, struct err *e)
{
	uint64_t repaired = 0;
	int r = set_up(u, e);

	if (r == 0)
		r = confine(u, e);
	if (r == 0)
		r = send_plain(u, UF_READY, e);
	if (r < 0)
		return r;
	if (u->s.mode == UM_RECOVER) {
		r = lock_root(u, e);
		u->publishing = true;
		r = r < 0 ? r : publish_recover(u, &repaired, e);
		return r < 0 ? r : send_sums(u, UF_DONE, repaired > 0, e);
	}
	if (u->run_fd < 0 || u->stream_fd < 0)
		return err_set(e, ERR_PROTOCOL, "no run directory or no stream");
	r = read_all(u, e);
	if (r == 0)
		r = publish(u, e);
	/* A sweep that is cut takes nothing back of that. Who went away does not hear it. */
	if (r == 0 && u->publishing)
		(void)send_sums(u, UF_CARRIED, false, NULL);
	/* A publish that failed after its commit, or whose trash has no place, keeps journal and contents for recovery. */
	if (u->st.dir >= 0)
		stage_close(u, (r < 0 && u->publishing) || u->untrashed ||
				   (r == 0 && u->s.mode == UM_REVIEW));
	if (r == 0 || u->rejected)
		return send_sums(u, UF_DONE, false, e);
	return r;
}

int unpack_serve(int fd)
{
	struct unpack u = {.root_fd = -1,
			   .run_fd = -1,
			   .manifest_fd = -1,
			   .stream_fd = -1,
			   .lock_fd = -1,
			   .trees = {.fd = -1},
			   .baseline = {.dir = -1, .contents = -1},
			   .st = {.dir = -1, .content = -1, .trash = -1, .journal = -1}};
	struct err e = ERR_INIT;
	int r;

	(void)umask(0);
	if (sodium_init() < 0)
		return -EIO;
	chan_init(&u.ch, fd, true);
	r = run(&u, &e);
	if (r < 0) {
		_cleanup_buf_ struct buf b = BUF_INIT(4096);

		if (e.code == ERR_NONE)
			(void)err_sys(&e, -r, "bring results back");
		if (!u.rejected && e.code != ERR_CANCELLED)
			unpack_explain(&e, u.publishing);
		(void)unpack_put_error(&b, &e);
		(void)chan_send(&u.ch, UF_ERROR, b.data, b.len, NULL, 0, INT64_MAX, NULL);
	}
	writer_free(u.writer);
	chlist_free(u.list);
	baseline_close(&u);
	manifest_free(u.m);
	free(u.skip);
	cleanup_fd(&u.lock_fd);
	chan_done(&u.ch);
	return r;
}
