/*
 * Results on their way back from another machine, over a connection that is cut.
 *
 * What was on its way is thrown away, as nothing is published of a stream without its end; the work lies there still. So the connection is made again, as
 * 'airlock recover' would, and it is packed again. Every time of this run's own lease: whoever was in its directory has ended by then, which the lock
 * there proves. Not done here: a review (its change set begins anew with recover), and the way without a guest.
 */
#include "engine/runner_internal.h"

#include <errno.h>
#include <poll.h>

#include "base/clock.h"
#include "engine/interrupt.h"
#include "engine/transfer.h"

#define AGAIN_ALL_MS 45000 /* as on the way in (provider/ssh.c) */
#define AGAIN_MS 1000
#define AGAIN_MAX_MS 8000 /* so that the end is not missed by much */
#define AGAIN_TIMES 3
#define LOOK_MS 50

/* False: the person does not want to wait. */
static bool nap(int64_t ms)
{
	int64_t until = clock_mono_ns() + ms * NS_PER_MS;

	while (clock_mono_ns() < until && !*interrupt_second())
		(void)poll(NULL, 0, LOOK_MS);
	return !*interrupt_second();
}

static void leave(struct runner *r)
{
	struct err e = ERR_INIT;

	runner_count(r);
	if (r->shared)
		r->sb->ops->detach(r->sb);
	else
		(void)r->sb->ops->release(r->sb, &e);
	r->sb = NULL;
}

static int connect_again(struct runner *r, struct err *e)
{
	int64_t until = clock_mono_ns() + AGAIN_ALL_MS * NS_PER_MS;
	struct sandbox_spec s;
	int k;

	leave(r);
	leasespec_sandbox(&r->spec, &r->lease, r->lease_dir, &s);
	s.cancel = interrupt_second();
	s.identities = r->st->identities;
	/* Nobody calls anybody any more. */
	s.gateway = false;
	k = -ECONNRESET;
	for (int64_t ms = AGAIN_MS; k < 0; ms = ms < AGAIN_MAX_MS ? 2 * ms : ms) {
		k = r->shared ? ops(r)->attach(&s, &r->sb, e) : ops(r)->acquire(&s, &r->sb, e);
		if (k == -ENOENT || k == -ECANCELED || clock_mono_ns() > until)
			break;
		if (k < 0 && !nap(ms))
			break;
	}
	if (k == 0)
		runner_listen(r);
	if (k < 0 || r->shared)
		return k;
	r->lease.monitor.pid = r->sb->monitor_pid;
	r->lease.monitor.start = r->sb->monitor_start;
	return runner_save_lease(r, e);
}

int runner_bring_back(struct runner *r, struct transfer_job *j, struct err *e)
{
	int k = transfer_out(j, &r->o->xfer, e);

	for (int i = 0; k == -ECONNRESET && ops(r)->elsewhere && !r->spec.review &&
			i < AGAIN_TIMES && !*interrupt_second();
	     i++) {
		struct err again = ERR_INIT;

		runner_note(
		    r, true,
		    "the connection was cut while the results came back: it is made again, for three quarters of a minute");
		if (connect_again(r, &again) < 0)
			return k;
		j->sb = r->sb;
		*e = ERR_INIT;
		k = transfer_out(j, &r->o->xfer, e);
	}
	return k;
}
