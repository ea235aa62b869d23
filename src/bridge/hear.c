#include "bridge/hear.h"

#include <errno.h>
#include <stdio.h>

#include "base/clock.h"

bool hear_frame(const struct hear *h, int64_t deadline, struct frame *f)
{
	int r = chan_recv(h->ch, deadline, f, NULL, NULL);
	char why[64];

	if (r == -EAGAIN)
		return false;
	if (r > 0) {
		h->take(h->client, f);
		return true;
	}
	(void)snprintf(why, sizeof(why), "%s ended", h->name);
	h->lose(h->client, why);
	return false;
}

bool hear_ready(const struct hear *h, int64_t deadline, const char *late)
{
	struct frame f;

	/* The receiver looks at the clock only when it has to wait, which a flood spares it. */
	while (!*h->ready && !*h->lost)
		if ((clock_mono_ns() > deadline || !hear_frame(h, deadline, &f)) && !*h->lost)
			h->lose(h->client, late);
	return *h->ready && !*h->lost;
}
