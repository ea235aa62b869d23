/*
 * netproxy.h: the network of one run that has an allow-list: airlock-proxy on the host, its port inside, and the
 * variables that tell programs about it.
 *
 * Its end is the run's end. When it is lost in between, the command has no network any more; the summary says so.
 */
#ifndef AIRLOCK_ENGINE_NETPROXY_H
#define AIRLOCK_ENGINE_NETPROXY_H

#include "bridge/proxy_client.h"
#include "engine/request.h"

struct netproxy {
	struct proxy_client client;
	uint32_t gateway; /* id of its command in the sandbox; 0: none */
	uint16_t port;
	bool up, told;
};

struct netproxy_opts {
	const struct request *q;
	const char *run_id;
	int audit; /* descriptor for the decisions, or -1; borrowed */
};

/* Starts both in a sandbox that runs, and adds the variables to *env, except those that it has already. */
int netproxy_start(struct netproxy *n, struct sandbox *sb, const struct netproxy_opts *o,
		   char ***env, struct err *e);
/* True once, when it was lost: n->client.why says why. To be asked now and then. */
bool netproxy_lost(struct netproxy *n);
/* Ends both. Does nothing to one that was not started. */
void netproxy_stop(struct netproxy *n, struct sandbox *sb);
/*
 * What an operator should hear before the run: rules and pins that reach past the public internet, one line each.
 * Appends to *v.
 */
int netproxy_warnings(const struct request *q, char ***v);
/* The option that would let a refused place through, or NULL. Heap. */
char *netproxy_flag(const char *place, const char *rule);

#endif
