#include "provider/guestlink.h"

#include <errno.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"

#define QUIET_MAX 64 /* frames that say nothing, until the caller may look at its clock */

void guestlink_init(struct guestlink *g, int fd, const char *peer)
{
	*g = (struct guestlink){.peer = peer, .next_id = 1};
	chan_init(&g->ch, fd, true);
}

static int get_event(struct guestlink *g, const struct frame *f, struct sandbox_event *ev)
{
	struct gm_exited x;
	struct gm_failed fl;
	struct gm_packed pk;
	struct cursor c;
	uint32_t kills;
	int r;

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
					     .oom_kills = g->oom_new,
					     .cpu_ns = x.cpu_ns,
					     .maxrss_kib = x.maxrss_kib};
		g->oom_new = 0;
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
		g->oom_new += kills - g->oom_seen;
		g->oom_seen = kills;
		return cursor_end(&c) ? 0 : -EPROTO;
	case GM_READY:
	case GM_PONG:
		return 0;
	case GM_ENDED:
		ev->type = SE_ENDED;
		g->ended = true;
		return 1;
	default:
		r = g->other ? g->other(g, f) : -EPROTO;
		if (r <= 0)
			return r;
		ev->type = SE_ENDED;
		g->ended = true;
		return 1;
	}
}

int guestlink_next_event(struct guestlink *g, struct sandbox_event *ret, struct err *e)
{
	struct frame f;
	int r;

	/* Again and again: its descriptor stays readable, and who waits for something else must not turn in vain. */
	if (g->ended) {
		*ret = (struct sandbox_event){.type = SE_ENDED};
		return 1;
	}
	for (int i = 0; i < QUIET_MAX; i++) {
		*ret = (struct sandbox_event){0};
		r = chan_recv(&g->ch, 0, &f, NULL, e);
		if (r == -EAGAIN)
			return 0;
		if (r < 0)
			return r;
		if (r == 0) {
			/* It was killed; its death took what it served with it. */
			g->ended = true;
			ret->type = SE_ENDED;
			return 1;
		}
		r = get_event(g, &f, ret);
		if (r == -EPROTO)
			return err_set(e, ERR_PROTOCOL, "%s sent a malformed event", g->peer);
		if (r > 0)
			return 1;
	}
	/* Not 0: what is left may lie in our buffer, where no poll sees it. */
	*ret = (struct sandbox_event){.type = SE_STARTED};
	return 1;
}

int guestlink_request(struct guestlink *g, uint8_t type, const struct buf *b, const int *fds,
		      size_t nfds, struct err *e)
{
	if (b->err)
		return err_sys(e, -b->err, "request to the sandbox");
	return chan_send(&g->ch, type, b->data, b->len, fds, nfds,
			 clock_mono_ns() + GUESTLINK_SEND_MS * NS_PER_MS, e);
}

int guestlink_exec(struct guestlink *g, const struct exec_spec *x, uint32_t *ret_id, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(FRAME_MAX);
	const int fds[3] = {x->in, x->out, x->err < 0 ? x->out : x->err};
	union {
		const char *c;
		char *p;
	} cwd = {.c = x->cwd};
	struct gm_exec m = {
	    .id = g->next_id,
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
	r = guestlink_request(g, GM_EXEC, &b, fds, 3, e);
	if (r == 0)
		*ret_id = g->next_id++;
	return r;
}

int guestlink_signal(struct guestlink *g, uint32_t id, int signo, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);

	if (gm_signal_put(&b, &(struct gm_signal){.id = id, .signo = (uint32_t)signo}) < 0)
		return err_set(e, ERR_INVALID, "signal %d does not exist", signo);
	return guestlink_request(g, GM_SIGNAL, &b, NULL, 0, e);
}

int guestlink_winsize(struct guestlink *g, uint32_t id, unsigned rows, unsigned cols)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);
	int r = gm_winsize_put(&b, &(struct gm_winsize){.id = id, .rows = rows, .cols = cols});

	return r < 0 ? r : guestlink_request(g, GM_WINSIZE, &b, NULL, 0, NULL);
}

int guestlink_pack(struct guestlink *g, int out_fd, uint32_t *ret_id, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);
	int r;

	(void)buf_u32(&b, g->next_id);
	r = guestlink_request(g, GM_PACK, &b, &out_fd, 1, e);
	if (r == 0)
		*ret_id = g->next_id++;
	return r;
}

void guestlink_shutdown(struct guestlink *g, int64_t deadline_ns)
{
	const struct buf none = BUF_INIT(1);
	struct frame f;

	if (g->ended)
		return;
	(void)guestlink_request(g, GM_SHUTDOWN, &none, NULL, 0, NULL);
	/* chan_recv looks at the time only when it has to wait, which a flood spares it. */
	while (clock_mono_ns() < deadline_ns && chan_recv(&g->ch, deadline_ns, &f, NULL, NULL) > 0)
		if (f.type == GM_ENDED)
			break;
	g->ended = true;
}
