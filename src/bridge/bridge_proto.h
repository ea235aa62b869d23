/*
 * bridge_proto.h: what the engine's client and airlock-bridge say to each other.
 *
 * Frames of wire/frame.h over the socket pair that is airlock-bridge's standard input. Secrets travel here and
 * nowhere else: an inherited descriptor, not argv, not the environment. Both trust the other's frames.
 *
 *   client -> helper   SETUP  descriptors: those that its bits name, in this order: channel in, channel out (http2; of a queue
 *                             the gateway says READY there, and its end is the gateway's), the queue's directory, the file
 *                             of decisions, memory that the next helper of the run takes over (struct bridge_shared), the
 *                             board of all runs (pace.h), the listening socket (direct)
 *   helper             resolves the upstream, confines itself
 *   helper -> client   CONFINED
 *   helper -> client   READY       (the gateway has spoken)
 *   client -> helper   POLICY...   -> POLICY_SET or POLICY_BAD
 *   client -> helper   PING...     -> PONG
 *   helper -> client   LOST        (the channel ended; nothing more is forwarded)
 *   client -> helper   STOP        -> DONE with the counts; the helper ends
 * ERROR instead of anything ends it, and so does the client's end of the pair.
 */
#ifndef AIRLOCK_BRIDGE_BRIDGE_PROTO_H
#define AIRLOCK_BRIDGE_BRIDGE_PROTO_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/cursor.h"
#include "base/err.h"
#include "bridge/exchange.h"

enum bridge_frame {
	BF_SETUP = 1,
	BF_POLICY, /* text of a policy file */
	BF_STOP,
	BF_PING,
	BF_CONFINED = 32,
	BF_READY,
	BF_POLICY_SET,
	BF_POLICY_BAD, /* str text; the old policy stays */
	BF_LOST,       /* str why; it waits for STOP, to tell its counts */
	BF_DONE,       /* counts */
	BF_ERROR,      /* u32 code, str text */
	BF_PONG,
};

enum bridge_transport { BRIDGE_HTTP2 = 0, BRIDGE_QUEUE = 1, BRIDGE_DIRECT = 2 };
const char *bridge_transport_mode(
    enum bridge_transport t); /* "http2_v1", "queue_v2", "direct_v1" */
/* As options and audit lines name it: "http2", "queue", "direct". */
const char *bridge_transport_name(enum bridge_transport t);
int bridge_transport_parse(const char *name, enum bridge_transport *ret); /* 0 or -EINVAL */

/* Views into the frame. */
struct bridge_setup {
	uint8_t transport;
	bool without_landlock, without_seccomp;
	bool has_channel, has_dir, has_audit, has_shared, has_board,
	    has_listener;	  /* descriptors that come with it */
	struct view upstream;	  /* text of the origin */
	struct view token, nonce; /* nonce: http2 */
	struct view credential;
	struct view run_id, agent_id, company_id, task_id;
	struct view policy_name, policy_text; /* text empty: the built-in of that name */
	struct view ca;			      /* PEM bundle, for https */
	struct view name;		      /* of the upstream, for audit lines; empty: "api" */
	struct view credential_header;	      /* instead of the policy's; empty: the policy's */
};

/* 0, -E2BIG, -ENOMEM. */
int bridge_put_setup(struct buf *b, const struct bridge_setup *s);
/* 0 or -EPROTO. */
int bridge_get_setup(struct view v, struct bridge_setup *ret);
int bridge_put_counts(struct buf *b, const struct bridge_counts *c);
int bridge_get_counts(struct view v, struct bridge_counts *ret);

#endif
