/*
 * proxy_client.h: starting airlock-proxy and talking to it.
 *
 * One process a run. When it dies, or this process does, the sandbox has no network any more. One thread.
 */
#ifndef AIRLOCK_BRIDGE_PROXY_CLIENT_H
#define AIRLOCK_BRIDGE_PROXY_CLIENT_H

#include <stdbool.h>

#include "bridge/proxy_proto.h"
#include "os/chan.h"
#include "os/helper.h"

struct proxy_client {
	struct chan ch;
	struct helper helper;
	bool ready, done, lost;
	char why[256];
	char **refused;		    /* owned: "place", "rule", "place", "rule" ... */
	struct proxy_counts counts; /* valid once done */
};

/* Descriptors stay the caller's. Waits until the helper is confined. audit: -1 for none. */
int proxy_client_start(struct proxy_client *c, const struct proxy_setup *s, int channel, int audit,
		       struct err *e);
/* Waits until the port inside is there. */
int proxy_client_ready(struct proxy_client *c, struct err *e);
/* Takes what is there. */
void proxy_client_poll(struct proxy_client *c);
/* Ends it, takes the counts; refused stays until proxy_client_done. Does nothing to one that was not started. */
void proxy_client_stop(struct proxy_client *c);
void proxy_client_done(struct proxy_client *c);

#endif
