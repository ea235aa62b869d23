/* How many runs go on at once on one machine of an environment (max-runs=N, provider/ssh/target.h). */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "engine/contact.h"
#include "engine/interrupt.h"
#include "engine/runner_internal.h"

#define LOOK_MS 250

/* Of a kept lease its commands, each with a run of its own. */
static int commands_of(struct runner *r, const char *lease_id, unsigned *n, struct err *e)
{
	struct run_row *v = NULL;
	size_t len = 0;
	int k = run_list(r->st->store, true, lease_id, &v, &len, e);

	for (size_t i = 0; k == 0 && i < len; i++)
		*n += v[i].state == RUN_RUNNING && proc_alive(&v[i].owner);
	run_list_free(v, len);
	return k;
}

static bool holds(enum lease_state s)
{
	return s == LEASE_ACQUIRING || s == LEASE_ACTIVE || s == LEASE_RECOVERING;
}

/* adrift: of those, such whose connection is lost and that nobody here waits for: by its grace each may still go on there. */
struct going {
	unsigned n, adrift;
};

static int count_one(struct runner *r, const struct lease_row *l, struct going *g, struct err *e)
{
	_cleanup_leasespec_ struct lease_spec s = {0};
	bool here = holds(l->state) && proc_alive(&l->owner), kept = l->state == LEASE_KEPT;
	unsigned n = here;
	int k = 0;

	/* Most rows are of what is over: those are not taken apart. */
	if (l->state == LEASE_RELEASED ||
	    (!kept && !here && contact_goes_on_ns(r->st, l->id) <= clock_real_ns()))
		return 0;
	/* One that cannot be read is nowhere. */
	if (leasespec_get(l->spec, &s, NULL) < 0 || !s.remote || !s.remote[0] ||
	    strcmp(s.remote[0], r->spec.remote[0]) != 0)
		return 0;
	if (kept)
		k = commands_of(r, l->id, &n, e);
	if (n == 0 && contact_goes_on_ns(r->st, l->id) > clock_real_ns())
		g->adrift += n = 1;
	g->n += n;
	return k;
}

/* 1: no room now. */
static int full(struct runner *r, unsigned max, unsigned *ret_adrift, struct err *e)
{
	struct lease_row *v = NULL;
	size_t len = 0;
	struct going g = {0};
	int k = lease_list(r->st->store, &v, &len, e);

	for (size_t i = 0; k == 0 && i < len; i++)
		k = count_one(r, &v[i], &g, e);
	lease_list_free(v, len);
	*ret_adrift = g.adrift;
	return k < 0 ? k : g.n >= max;
}

/* It was judged with the others when the request was made. */
static unsigned max_of(char *const *words)
{
	uint64_t n = 0;

	for (; words && *words; words++)
		if (str_starts(*words, "max-runs="))
			(void)str_to_u64(*words + strlen("max-runs="), UINT32_MAX, &n);
	return (unsigned)n;
}

static void say(struct runner *r, unsigned max, unsigned adrift, const char *label)
{
	char text[600], more[160] = "";

	if (adrift)
		(void)snprintf(
		    more, sizeof(more),
		    "; of %u the connection was cut, and it may still go on there: 'airlock recover' ends it",
		    adrift);

	(void)snprintf(
	    text, sizeof(text),
	    "waits for room: %u going on already on %.200s, which is the limit there (--ssh-max-runs, or "
	    "maxConcurrentRuns of the environment)%s: Ctrl-C gives up",
	    max, label, more);
	if (r->ui->note)
		r->ui->note(r->ui->arg, true, text);
}

/* 0: a transaction has begun; else none. */
static int begin_counted(struct runner *r, unsigned max, struct err *e)
{
	unsigned adrift;
	int k = db_begin(r->st->store, e);

	if (k < 0)
		return k;
	k = max ? full(r, max, &adrift, e) : 0;
	if (k)
		(void)db_end(r->st->store, -EAGAIN, NULL);
	return k;
}

/*
 * Begins the transaction in which the rows are added, once there is room: who looks at the same time sees the other's row. 0: db_end is
 * the caller's.
 */
int runner_begin_with_room(struct runner *r, struct err *e)
{
	unsigned max = max_of(r->spec.remote), adrift = 0;
	bool said = false;
	int k;

	for (;;) {
		/* First without the database's lock: whoever waits does not hold up those that write. */
		k = max ? full(r, max, &adrift, e) : 0;
		if (k == 0)
			k = begin_counted(r, max, e);
		if (k <= 0)
			break;
		if (!said)
			say(r, max, adrift, r->spec.remote[0]);
		said = true;
		if (*interrupt_first())
			return err_set(
			    e, ERR_CANCELLED,
			    "stopped while %u runs went on on %s, as many as --ssh-max-runs allows",
			    max, r->spec.remote[0]);
		(void)poll(NULL, 0, LOOK_MS);
	}
	return k;
}
