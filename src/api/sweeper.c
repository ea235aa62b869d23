#include "api/sweeper.h"

#include <stdio.h>

#include "api/jobs.h"
#include "api/recoverer.h"
#include "base/clock.h"
#include "base/limits.h"

static void done(struct api *a, void *arg, json_t *answer)
{
	int64_t n = json_integer_value(json_object_get(answer, "destroyed"));

	(void)arg;
	a->sweeping = false;
	a->n.sweeps++;
	jobs_adopt(a);
	jobs_pump(a);
	if (n > 0)
		(void)fprintf(stderr, "airlockd: cleaned up after %lld leases\n", (long long)n);
	if (answer)
		recoverer_begin(a);
}

int64_t sweeper_tick(struct api *a, int64_t now_ns)
{
	struct err e = ERR_INIT;

	if (a->stopping || a->sweeping)
		return INT64_MAX;
	if (now_ns < a->sweep_at_ns)
		return a->sweep_at_ns;
	/* At the start, and when somebody asked for it, what was hardly tried yet is tried at once. */
	a->sweep_at_ns = now_ns + API_SWEEP_MS * NS_PER_MS;
	if (jobs_start(a, "",
		       json_pack("{s:s,s:i,s:b}", "op", "sweep", "backoffSeconds",
				 API_SWEEP_BACKOFF_S, "hurry", !a->swept),
		       done, NULL, &e) < 0) {
		(void)fprintf(stderr, "airlockd: sweep: %s\n", e.text);
		return a->sweep_at_ns;
	}
	a->swept = true;
	a->sweeping = true;
	return a->sweep_at_ns;
}

void sweeper_hurry(struct api *a)
{
	a->sweep_at_ns = 0;
	a->swept = false;
}
