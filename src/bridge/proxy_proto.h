/*
 * proxy_proto.h: what the engine's client and airlock-proxy say to each other.
 *
 * Frames of wire/frame.h over the socket pair that is airlock-proxy's standard input.
 *
 *   client -> helper   SETUP    descriptors: channel to the port inside (guest/forward.h), audit file
 *   helper             starts its resolver, confines itself
 *   helper -> client   CONFINED, then READY once the port inside is there
 *   helper -> client   REFUSED  (each place once), LOST (the channel ended)
 *   client -> helper   STOP     -> DONE with the counts; the helper ends
 * ERROR instead of anything ends it, and so does the client's end of the pair.
 */
#ifndef AIRLOCK_BRIDGE_PROXY_PROTO_H
#define AIRLOCK_BRIDGE_PROXY_PROTO_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/cursor.h"

enum proxy_frame {
	PF_SETUP = 1,
	PF_STOP,
	PF_CONFINED = 32,
	PF_READY,
	PF_REFUSED, /* str place, str rule */
	PF_LOST,    /* str why */
	PF_DONE,    /* counts */
	PF_ERROR,   /* u32 code, str text */
};

#define PROXY_RULES_MAX 256  /* rules, and pins, of one run */
#define PROXY_REFUSED_MAX 64 /* places that are told one by one */

struct proxy_setup {
	bool without_landlock, without_seccomp;
	struct view run_id;
	/* words of policy/netrule.h, each with a NUL behind it */
	struct view rules, pins;
};

struct proxy_counts {
	uint64_t connections; /* that asked for something */
	uint64_t allowed, refused, failed;
	uint64_t bytes_up, bytes_down; /* up: from the sandbox */
	uint64_t audit_lost;	       /* decisions that no audit line tells of */
};

int proxy_put_setup(struct buf *b, const struct proxy_setup *s);
int proxy_get_setup(struct view v, struct proxy_setup *ret); /* 0 or -EPROTO */
int proxy_put_counts(struct buf *b, const struct proxy_counts *c);
int proxy_get_counts(struct view v, struct proxy_counts *ret);

#endif
