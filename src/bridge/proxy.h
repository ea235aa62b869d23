/*
 * proxy.h: the life of airlock-proxy (proxy_host.c), and of each connection it serves (proxy_conn.c, with
 * proxy_connect.c and proxy_carry.c).
 */
#ifndef AIRLOCK_BRIDGE_PROXY_H
#define AIRLOCK_BRIDGE_PROXY_H

#include "bridge/audit.h"
#include "bridge/proxy_proto.h"
#include "bridge/proxy_request.h"
#include "bridge/resolver.h"
#include "os/chan.h"
#include "os/loop.h"
#include "os/tunnel.h"
#include "wire/tlshello.h"

#define PROXY_CACHE 64
#define PROXY_CACHE_MS 60000 /* a name keeps its addresses for so long */

struct proxy_conn;

struct proxy_name {
	char host[NET_HOST_MAX + 1];
	struct resolver_answer answer;
	int64_t until_ns;
};

struct proxy {
	struct loop loop;
	struct chan ctl;
	struct loop_watch ctl_watch, channel_watch, resolver_watch;
	struct net_rule *rules; /* owned */
	char **rule_words;	/* owned: as the operator wrote them */
	size_t rules_len;
	struct net_pin *pins; /* owned */
	size_t pins_len;
	struct proxy_name cache[PROXY_CACHE];
	unsigned cache_at;
	int channel, resolver, own; /* owned; own: ownaddr.h */
	uint32_t next_id;
	unsigned asking, conns_len;
	struct proxy_conn *conns;
	struct audit audit;
	int64_t audit_by_ns, due_ns;
	char run_id[BRIDGE_IDENTITY_MAX + 1];
	char refused[PROXY_REFUSED_MAX][NET_TARGET_TEXT];
	size_t refused_len;
	struct proxy_counts counts;
	bool lost, done;
};

/* Serves the client on the connected socket fd (taken). 0, or a negative errno that the client was told about. */
int proxy_serve(int fd);

/* --- proxy_conn.c --- */

/* Serves what comes on fd, which it takes, also when it fails. */
int proxy_conn_new(struct proxy *p, int fd);
/* Time limits. Returns when to be called again; cheap as long as that has not come. */
int64_t proxy_conns_tick(struct proxy *p, int64_t now);
/* Ends all. */
void proxy_conns_end(struct proxy *p);
/* For the connection that asked; proxy_connect.c. */
void proxy_connect_answer(struct proxy *p, const struct resolver_answer *a);
/* Told to the client once a place. */
void proxy_tell_refused(struct proxy *p, const char *place, const char *rule);

#endif
