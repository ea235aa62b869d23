#include "engine/transfer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/path.h"
#include "engine/interrupt.h"
#include "engine/maps.h"
#include "engine/tarout.h"

#define LOCK_LOOK_MS 20
#define EVENTS_MAX 64 /* taken in one turn */

void transfer_done(struct transfer *t)
{
	if (t->in_done)
		sync_in_result_done(&t->in);
	if (t->out_done)
		unpack_report_done(&t->out);
	history_done(&t->history);
	for (size_t i = 0; i < t->maps_len; i++) {
		unpack_report_done(&t->maps[i].rep);
		free(t->maps[i].src);
		free(t->maps[i].dst);
		free(t->maps[i].dir);
	}
	free(t->maps);
	*t = (struct transfer){0};
}

int transfer_in(struct state *st, const struct request *q, struct lease_spec *s,
		const struct run_ui *ui, struct transfer *t, struct err *e)
{
	_cleanup_free_ char *store = NULL;
	struct sync_in_opts o = {
	    .workspace = q->workspace,
	    .git = q->git,
	    .include = q->include,
	    .exclude = q->exclude,
	    .one_file = q->provider->elsewhere,
	    .progress = ui->progress,
	    .progress_arg = ui->arg,
	    .cancel = interrupt_first(),
	};
	int r = state_workspace_store(st, q->workspace, q->env_name, &store, e);

	if (r < 0)
		return r;
	o.store = store;
	q->provider->owner(&o.owner, &o.group);
	r = sync_in(&o, &t->in, e);
	if (ui->progress_end)
		ui->progress_end(ui->arg);
	if (r < 0)
		return r;
	t->in_done = true;
	for (size_t i = 0; r == 0 && t->in.layers && t->in.layers[i]; i++)
		r = strv_add(&s->layers, t->in.layers[i]);
	s->manifest = strdup(t->in.manifest_path);
	s->root_dev = t->in.root_dev;
	s->root_ino = t->in.root_ino;
	(void)snprintf(s->root_boot, sizeof(s->root_boot), "%s", st->self.boot);
	s->repo = t->in.has_repo;
	s->head = strdup(t->in.head);
	s->branch = t->in.branch ? strdup(t->in.branch) : NULL;
	if (!s->head || (t->in.branch && !s->branch))
		r = -ENOMEM;
	return r < 0 || !s->manifest ? err_set(e, ERR_NOMEM, "sync in: out of memory") : 0;
}

struct filter {
	struct sync_in_opts o;
};

static int filter(void *arg, char *const *paths, size_t n, bool *skip, struct err *e)
{
	const struct filter *f = arg;

	return sync_ignored(&f->o, paths, n, skip, e);
}

/*
 * Counts what the packer met and could not send, without what would have stayed in the sandbox anyway. Paths
 * beyond those that the report lists count as work: better storage kept for nothing than work lost.
 */
static int count_withheld(struct transfer *t, const struct filter *f, struct err *e)
{
	_cleanup_free_ char **paths = NULL;
	_cleanup_free_ bool *skip = NULL;
	size_t n = 0;
	int r;

	t->withheld = t->unreadable;
	if (!t->withheld || !t->out.changes_len)
		return 0;
	paths = calloc(t->out.changes_len, sizeof(*paths));
	skip = calloc(t->out.changes_len, sizeof(*skip));
	if (!paths || !skip)
		return err_set(e, ERR_NOMEM, "results: out of memory");
	for (size_t i = 0; i < t->out.changes_len; i++)
		if (t->out.changes[i].action == UA_REFUSE &&
		    strcmp(t->out.changes[i].rule, "unreadable") == 0)
			paths[n++] = t->out.changes[i].path;
	r = n ? sync_ignored(&f->o, paths, n, skip, e) : 0;
	for (size_t i = 0; r == 0 && i < n && t->withheld; i++)
		t->withheld -= skip[i];
	return r;
}

void transfer_withheld_text(const struct transfer *t, const char *run, char *out, size_t size)
{
	(void)snprintf(
	    out, size,
	    "%llu of the results could NOT be brought back: no permission to read, changed each time it was "
	    "read, deeper than %d directories, or a path longer than %d bytes; the sandbox's storage is kept: repair what 'airlock recover %s' can read, or "
	    "leave names out with its --exclude, or give it up with 'airlock rm --force %s'",
	    (unsigned long long)t->withheld, PATH_DEPTH_MAX, PATH_MEMBER_MAX, run, run);
}

/* The word of tar, in place of the packer's. */
static int wait_tar(struct tarout_end *b, int r, struct transfer *t, struct err *e)
{
	int k = tarout_wait(&b->t, e);

	t->members = t->out.counts[UA_ADD] + t->out.counts[UA_CHANGE];
	t->left_out = 1; /* whether .git was touched cannot be told from the stream */
	if (k == 0 && r == -EBADMSG && !tarout_whole(&b->t, e))
		k = -EIO;
	tarout_done(&b->t);
	return k;
}

/* Device numbers are given out anew at each boot: work recovered after one goes by the inode. */
uint64_t transfer_device(const struct lease_spec *s, uint64_t dev)
{
	struct proc_id me;

	return proc_self(&me, NULL) == 0 && strcmp(me.boot, s->root_boot) == 0 ? dev : 0;
}

/* A first signal while results come back stops nothing, which must not look like being deaf. */
struct patience {
	const struct run_ui *ui;
	const char *run_dir;
	struct tarout *tar; /* that says something meanwhile; NULL */
	bool told;
	struct sandbox *sb;	     /* whose packer it is, NULL */
	struct sandbox_event packed; /* came meanwhile; id 0: it has not */
	uint32_t id;
};

/* A connection that is cut is made again by who listens. */
static void hear(struct patience *p)
{
	struct sandbox_event ev;

	for (int i = 0; i < EVENTS_MAX && p->sb->ops->next_event(p->sb, &ev, NULL) > 0; i++) {
		if (ev.type == SE_ENDED)
			return;
		if (ev.id == p->id && (ev.type == SE_PACKED || ev.type == SE_FAILED))
			p->packed = ev;
	}
}

static void tell_first(void *arg)
{
	struct patience *p = arg;
	char text[320];

	if (p->tar)
		tarout_turn(p->tar);
	if (p->sb)
		hear(p);
	if (p->told || !*interrupt_first())
		return;
	p->told = true;
	(void)snprintf(
	    text, sizeof(text),
	    "the command is over and its results are being brought back: a second signal (Ctrl-C) "
	    "stops that and keeps them for 'airlock recover %s'",
	    path_base(p->run_dir));
	if (p->ui->note)
		p->ui->note(p->ui->arg, true, text);
}

/* Waits for its turn. The lock goes with the descriptor: airlock-unpack shares it until its own end. */
static int lock_baseline(int fd, const struct transfer_job *j, struct err *e)
{
	struct patience first = {.ui = j->ui, .run_dir = j->run_dir, .told = *interrupt_first()};
	int64_t deadline = clock_mono_ns() + LOCK_WAIT_MS * NS_PER_MS;
	bool told = false;

	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return err_sys(e, errno, "lock the baseline of the sandbox");
		if (*interrupt_second())
			return err_set(
			    e, ERR_CANCELLED,
			    "cancelled while another command of this sandbox brought its "
			    "results back: nothing was published");
		if (clock_mono_ns() > deadline)
			return err_set(
			    e, ERR_TIMEOUT,
			    "another command of this sandbox has been bringing its results "
			    "back for %d s: wait for it and try again",
			    LOCK_WAIT_MS / 1000);
		tell_first(&first);
		if (!told && j->ui->note)
			j->ui->note(
			    j->ui->arg, false,
			    "waiting for another command of this sandbox to bring its results back");
		told = true;
		(void)poll(NULL, 0, LOCK_LOOK_MS);
	}
	return 0;
}

int transfer_turn(const struct transfer_job *j, const char *name, int *ret, struct err *e)
{
	_cleanup_free_ char *path = state_path(j->st, "leases", j->lease->id, name);
	_cleanup_fd_ int fd = -1;
	int r;

	*ret = -1;
	if (!path)
		return err_set(e, ERR_NOMEM, "results: out of memory");
	if (j->spec->keep && mkdir(path, 0700) < 0 && errno != EEXIST)
		return err_sys(e, errno, "create %s", path);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : err_sys(e, errno, "open %s", path);
	r = lock_baseline(fd, j, e);
	if (r == 0)
		*ret = TAKE_FD(fd);
	return r;
}

/* The packer's own word on how it went; the stream's end mark is what unpack goes by. */
static int wait_packed(struct patience *first, struct transfer *t, struct err *e)
{
	struct sandbox *sb = first->sb;
	int64_t deadline = clock_mono_ns() + START_TIMEOUT_MS * NS_PER_MS;
	struct sandbox_event ev;

	for (;;) {
		struct pollfd p = {.fd = sb->ops->event_fd(sb), .events = POLLIN};
		int r = 1;

		ev = first->packed;
		if (!ev.id)
			r = sb->ops->next_event(sb, &ev, e);

		if (r < 0)
			return r;
		/* Judged on every turn: a guest that goes on sending other events must not put it off. */
		if (clock_mono_ns() > deadline)
			return err_set(
			    e, ERR_TIMEOUT,
			    "the packer inside the sandbox did not report its end within %d s",
			    START_TIMEOUT_MS / 1000);
		if (r > 0 && ev.type == SE_ENDED) {
			(void)err_set(e, ERR_UNAVAILABLE,
				      "the sandbox ended while its results were being packed%s%s",
				      sb->why[0] ? ": " : "", sb->why);
			return -ECONNRESET;
		}
		if (r > 0 && ev.id == first->id && (ev.type == SE_PACKED || ev.type == SE_FAILED)) {
			t->members = ev.members;
			t->unreadable = ev.unreadable;
			t->left_out = ev.left_out;
			return ev.sys ? err_sys(e, ev.sys, "pack the results inside the sandbox")
				      : 0;
		}
		if (r == 0)
			(void)poll(&p, 1, clock_poll_ms(deadline, clock_mono_ns()));
	}
}

int transfer_out(const struct transfer_job *j, struct transfer *t, struct err *e)
{
	const struct lease_spec *s = j->spec;
	const struct lease_row *l = j->lease;
	const struct run_ui *ui = j->ui;
	struct sandbox *sb = j->sb;
	/* One that came before this was answered then. */
	struct patience first = {.ui = ui, .run_dir = j->run_dir, .told = *interrupt_first()};
	struct filter f = {.o = {.workspace = l->workspace,
				 .git = s->git,
				 .include = s->include,
				 .exclude = s->exclude,
				 .owner = (uid_t)-1,
				 .group = (gid_t)-1}};
	struct unpack_opts o = {
	    .root = l->workspace,
	    .root_dev = transfer_device(s, s->root_dev),
	    .root_ino = s->root_ino,
	    .run_dir = j->run_dir,
	    .state_dir = j->st->dir,
	    .manifest_path = s->manifest,
	    .layers = s->layers,
	    .strict = s->strict,
	    .without_landlock = s->without & WITHOUT_LANDLOCK,
	    .review = s->review,
	    .on_conflict = s->on_conflict,
	    .filter = filter,
	    .filter_arg = &f,
	    .progress = ui->progress,
	    .progress_arg = ui->arg,
	    .cancel = interrupt_second(),
	    .baseline_fd = j->baseline,
	    .tick = tell_first,
	    .tick_arg = &first,
	};
	struct tarout_end tar = {.t = TAROUT_INIT, .ui = ui};
	_cleanup_fd_ int rd = -1;
	struct err pe = ERR_INIT;
	bool kept = false;
	int p[2], r, k;

	/* Without the overlay the packer meets a plain copy, in which nothing marks what was deleted. */
	const bool by_tar = s->by_tar || !sb->ops->pack; /* nobody there packs */

	o.full_tree = by_tar || (s->without & WITHOUT_OVERLAY);
	if (pipe2(p, O_CLOEXEC) < 0)
		return err_sys(e, errno, "create a pipe");
	rd = p[0];
	if (by_tar) {
		o.complete = tarout_complete;
		o.complete_arg = &tar;
		first.tar = &tar.t;
		r = tarout_start(&tar.t, sb, p[1], e);
	} else {
		r = sb->ops->pack(sb, p[1], &first.id, e);
		first.sb = r < 0 ? NULL : sb;
	}
	(void)close(p[1]);
	if (r < 0) {
		tarout_done(&tar.t);
		return r;
	}
	o.stream_fd = rd;
	t->review = s->review;
	r = unpack_run(&o, &t->out, e);
	t->out_done = r == 0 || r == -EBADMSG;
	if (!t->out_done) {
		unpack_report_done(&t->out);
		t->out = (struct unpack_report){0};
	}
	if (ui->progress_end)
		ui->progress_end(ui->arg);
	/* A reader that stopped early makes the packer stop too. */
	(void)close(TAKE_FD(rd));
	/* Who sent nothing of the stream will not report its end either. */
	if (by_tar)
		k = wait_tar(&tar, r, t, &pe);
	else
		k = r == -ETIMEDOUT ? r : wait_packed(&first, t, &pe);
	/* The stream stood still because there is no connection, and there is none yet: it is packed again over a new one. */
	if (r == -ETIMEDOUT && sb->away)
		return -ECONNRESET;
	/* A stream that was cut is the packer's failure, not hostility: its reason says more. */
	if (r == -EBADMSG && k < 0 && strcmp(t->out.rule, "truncated") == 0) {
		unpack_report_done(&t->out);
		t->out = (struct unpack_report){0};
		t->out_done = false;
		if (e)
			*e = pe;
		return k;
	}
	/* Without the packer's word nobody knows whether anything is missing. */
	if (r == 0 && k < 0) {
		*e = pe;
		return k;
	}
	r = r == 0 ? count_withheld(t, &f, e) : r;
	t->withheld += r == 0 && tar.partial;
	/* Other places are not held up by a workspace that was rejected. */
	if ((r == 0 || t->out_done) && s->maps) {
		k = maps_out(j, t, &kept, &pe);
		t->withheld += kept;
		if (r == 0 && k < 0) {
			*e = pe;
			r = k;
		}
	}
	return r;
}
