/*
 * The native provider: sandboxes of this machine's kernel.
 *
 * Each sandbox is one airlock-launch process, which is trusted, and below it a guest, which is not. This
 * side speaks only to airlock-launch; the one descriptor it takes from there is the pidfd of the
 * guest, with which a release proves that every process has ended.
 */
#include "provider/native.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/path.h"
#include "provider/native_storage.h"
#include "wire/guest.h"

#define END_WAIT_MS 4000   /* airlock-launch kills after 1.5 s by itself */
#define SWEEP_BUDGET 20000 /* entries removed from the trash by one destroy */

static struct native *native_of(struct sandbox *sb)
{
	return (struct native *)sb;
}

int64_t native_after(int64_t ms)
{
	return clock_mono_ns() + ms * NS_PER_MS;
}

static int validate(const struct sandbox_spec *s, struct err *e)
{
	struct plan p;
	int r = native_plan(s, &p, e);

	plan_done(&p);
	return r;
}

static void owner(uid_t *uid, gid_t *gid)
{
	*uid = geteuid() == 0 ? SANDBOX_UID : (uid_t)-1;
	*gid = geteuid() == 0 ? SANDBOX_UID : (gid_t)-1;
}

static int event_fd(struct sandbox *sb)
{
	return native_of(sb)->ch.fd;
}

static int get_event(struct native *n, const struct frame *f, struct sandbox_event *ev)
{
	struct gm_exited x;
	struct gm_failed fl;
	struct gm_packed pk;
	struct cursor c;
	uint32_t kills;

	switch (f->type) {
	case GM_STARTED:
		cursor_init(&c, f->payload.p, f->payload.n);
		ev->type = SE_STARTED;
		ev->id = cursor_u32(&c);
		(void)cursor_u32(&c);
		return cursor_end(&c) ? 1 : -EPROTO;
	case GM_FAILED:
		if (gm_failed_get(f->payload, &fl) < 0)
			return -EPROTO;
		*ev = (struct sandbox_event){.type = SE_FAILED, .id = fl.id, .sys = (int)fl.error};
		(void)snprintf(ev->step, sizeof(ev->step), "%s", fl.step);
		return 1;
	case GM_EXITED:
		if (gm_exited_get(f->payload, &x) < 0)
			return -EPROTO;
		*ev = (struct sandbox_event){.type = SE_EXITED,
					     .id = x.id,
					     .code = (int)x.code,
					     .signo = (int)x.signo,
					     .leftovers = x.leftovers,
					     .oom_kills = n->oom_new,
					     .cpu_ns = x.cpu_ns,
					     .maxrss_kib = x.maxrss_kib};
		n->oom_new = 0;
		return 1;
	case GM_PACKED:
		if (gm_packed_get(f->payload, &pk) < 0)
			return -EPROTO;
		*ev = (struct sandbox_event){.type = SE_PACKED,
					     .id = pk.id,
					     .sys = (int)pk.error,
					     .members = pk.members,
					     .unreadable = pk.unreadable,
					     .left_out = pk.left_out};
		return 1;
	case GM_OOM:
		cursor_init(&c, f->payload.p, f->payload.n);
		kills = cursor_u32(&c);
		n->oom_new += kills - n->oom_seen;
		n->oom_seen = kills;
		return cursor_end(&c) ? 0 : -EPROTO;
	case GM_READY:
	case GM_PONG:
		return 0;
	case GM_ENDED:
		ev->type = SE_ENDED;
		n->ended = true;
		return 1;
	default:
		return -EPROTO;
	}
}

static int next_event(struct sandbox *sb, struct sandbox_event *ret, struct err *e)
{
	struct native *n = native_of(sb);
	struct frame f;
	int r;

	if (n->ended)
		return 0;
	for (;;) {
		*ret = (struct sandbox_event){0};
		r = chan_recv(&n->ch, 0, &f, NULL, e);
		if (r == -EAGAIN)
			return 0;
		if (r < 0)
			return r;
		if (r == 0) {
			/* airlock-launch was killed; its death took the sandbox with it. */
			n->ended = true;
			ret->type = SE_ENDED;
			return 1;
		}
		r = get_event(n, &f, ret);
		if (r == -EPROTO)
			return err_set(e, ERR_PROTOCOL, "airlock-launch sent a malformed event");
		if (r > 0)
			return 1;
	}
}

static int request(struct native *n, uint8_t type, const struct buf *b, const int *fds, size_t nfds,
		   struct err *e)
{
	if (b->err)
		return err_sys(e, -b->err, "request to the sandbox");
	return chan_send(&n->ch, type, b->data, b->len, fds, nfds, native_after(SEND_WAIT_MS), e);
}

static int exec(struct sandbox *sb, const struct exec_spec *x, uint32_t *ret_id, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(FRAME_MAX);
	struct native *n = native_of(sb);
	const int fds[3] = {x->in, x->out, x->err < 0 ? x->out : x->err};
	union {
		const char *c;
		char *p;
	} cwd = {.c = x->cwd};
	struct gm_exec m = {
	    .id = n->next_id,
	    .flags = x->tty ? GX_TTY : 0,
	    .rows = x->rows,
	    .cols = x->cols,
	    .cwd = cwd.p,
	    .argv = (char **)(uintptr_t)x->argv,
	    .env = (char **)(uintptr_t)x->env,
	};
	int r = gm_exec_put(&b, &m);

	if (r < 0)
		return err_sys(e, -r,
			       "command not started: at most %d words, %d variables NAME=VALUE, %d "
			       "bytes each and %d in all; cwd absolute",
			       ARGV_MAX, ENV_MAX, ENV_VALUE_MAX, FRAME_MAX);
	r = request(n, GM_EXEC, &b, fds, 3, e);
	if (r == 0)
		*ret_id = n->next_id++;
	return r;
}

static int signal_command(struct sandbox *sb, uint32_t id, int signo, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);

	if (gm_signal_put(&b, &(struct gm_signal){.id = id, .signo = (uint32_t)signo}) < 0)
		return err_set(e, ERR_INVALID, "signal %d does not exist", signo);
	return request(native_of(sb), GM_SIGNAL, &b, NULL, 0, e);
}

static int winsize(struct sandbox *sb, uint32_t id, unsigned rows, unsigned cols)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);
	int r = gm_winsize_put(&b, &(struct gm_winsize){.id = id, .rows = rows, .cols = cols});

	return r < 0 ? r : request(native_of(sb), GM_WINSIZE, &b, NULL, 0, NULL);
}

static int pack(struct sandbox *sb, int out_fd, uint32_t *ret_id, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);
	struct native *n = native_of(sb);
	int r;

	(void)buf_u32(&b, n->next_id);
	r = request(n, GM_PACK, &b, &out_fd, 1, e);
	if (r == 0)
		*ret_id = n->next_id++;
	return r;
}

/* Readable: pid 1 and with it every process of the sandbox has ended. */
static bool guest_ended(const struct native *n, int64_t deadline_ns)
{
	struct pollfd p = {.fd = n->guest_pidfd, .events = POLLIN};
	int r;

	do {
		r = poll(&p, 1, clock_poll_ms(deadline_ns, clock_mono_ns()));
	} while (r < 0 && errno == EINTR);
	return r > 0;
}

static void wait_end_of_launch(struct native *n, int64_t deadline_ns)
{
	struct frame f;

	while (chan_recv(&n->ch, deadline_ns, &f, NULL, NULL) > 0)
		if (f.type == GM_ENDED)
			return;
}

static int release(struct sandbox *sb, struct err *e)
{
	const struct buf none = BUF_INIT(1);
	struct native *n = native_of(sb);
	int64_t deadline = native_after(END_WAIT_MS);
	bool gone;

	if (!n->ended) {
		(void)request(n, GM_SHUTDOWN, &none, NULL, 0, NULL);
		wait_end_of_launch(n, deadline);
	}
	gone = guest_ended(n, clock_mono_ns());
	if (!gone) {
		/* launch hangs or was killed. As its parent, or as the sandbox's owner, we end it ourselves. */
		native_reap(n, true);
		(void)syscall(SYS_pidfd_send_signal, n->guest_pidfd, SIGKILL, NULL, 0);
		gone = guest_ended(n, native_after(END_WAIT_MS));
	}
	chan_done(&n->ch);
	native_reap(n, false);
	native_free(n);
	return gone
		   ? 0
		   : err_set(e, ERR_INTERNAL,
			     "a sandbox did not end within %d ms after KILL: a process of it hangs "
			     "in the kernel",
			     END_WAIT_MS);
}

static void detach(struct sandbox *sb)
{
	native_free(native_of(sb));
}

static int destroy_storage(const char *lease_dir, struct err *e)
{
	_cleanup_free_ char *trash = path_join(lease_dir, "../../trash");

	return storage_destroy(lease_dir, trash, SWEEP_BUDGET, e);
}

const struct provider_ops provider_native = {
    .name = "native",
    .isolates = true,
    .in_place = false,
    .statement = "Sandbox of this machine's kernel: own namespaces, system call filter, no "
		 "capabilities, read-only system, private home.",
    .validate = validate,
    .owner = owner,
    .acquire = native_acquire,
    .attach = native_attach,
    .event_fd = event_fd,
    .next_event = next_event,
    .exec = exec,
    .signal = signal_command,
    .winsize = winsize,
    .pack = pack,
    .release = release,
    .detach = detach,
    .destroy_storage = destroy_storage,
};
