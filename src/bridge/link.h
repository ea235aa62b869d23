/*
 * link.h: the bridge of a run as long as the run lives: one gateway, and one airlock-bridge after the other.
 *
 * The gateway gets a control socket as its standard input. Over it each helper's channel goes in as a descriptor, so that a
 * helper that died, or a channel that was cut, is replaced while the gateway keeps its clients: what they asked for waits,
 * is asked again, or is answered as indeterminate (guest/gate_h2.h, guest/gate_queue.h). Helpers are made again at most
 * LINK_TRIES times in a row, one more each LINK_TRY_EACH_MS; then the bridge is lost for good. Counts, and the numbers that
 * a queue has run, lie in memory that one helper leaves to the next.
 *
 * A helper that hangs is one that died: it is asked for a word every LINK_PING_MS, and has LINK_DEAF_MS for it. A gateway that
 * ends (the sandbox may kill it) is started again by whoever owns the sandbox, with a control socket of its own; its clients are
 * gone with it. Both are bounded alike.
 *
 * A policy file is looked at every LINK_POLICY_MS: a new one goes to the helper, a bad one is told and the old one stays.
 *
 * Where no descriptor can travel to the gateway (another machine), its standard input and output are the channel itself: there is no
 * control socket, and with each helper comes a gateway of its own (`paired`). What clients were asking for then ends with it.
 *
 * Where the sandbox's network gave a listening socket (BRIDGE_DIRECT), there is no gateway at all: each helper gets the socket, and what
 * had connected and was not accepted by one that died waits for the next. What it had accepted is cut: such a client knows, as
 * of any server, that the outcome is unknown.
 *
 * One thread; link_poll never waits for a helper that starts.
 */
#ifndef AIRLOCK_BRIDGE_LINK_H
#define AIRLOCK_BRIDGE_LINK_H

#include <sys/stat.h>

#include "bridge/client.h"
#include "bridge/shared.h"

#define LINK_TRIES 5
#define LINK_TRY_EACH_MS 60000
#define LINK_START_MS 30000 /* one helper, until it serves */
#define LINK_POLICY_MS 500
#define LINK_PING_MS 5000
#define LINK_DEAF_MS 20000 /* as a channel's pings; a turn of a helper takes milliseconds */

struct bridge_link_opts {
	struct bridge_inputs
	    *in; /* borrowed until link_stop; its policy is replaced by a newer one */
	enum bridge_transport transport;
	bool without_landlock, without_seccomp;
	struct view run_id, agent_id, company_id, task_id; /* copied */
	struct view name,
	    credential_header; /* as in struct bridge_setup; borrowed until link_stop */
	int dir;	       /* of the queue, borrowed; -1: none */
	int audit;	       /* borrowed; -1: none */
	int listener;	       /* BRIDGE_DIRECT: borrowed */
	bool paired;
	/*
	 * The gateway ended (paired: or its helper did): another one, with this (borrowed) as its standard input. 0 or negative. NULL: there
	 * is none.
	 */
	int (*gateway)(void *arg, int control, struct err *e);
	void *gateway_arg;
	/* Something to tell a person: bad ones loudly. */
	void (*note)(void *arg, bool bad, const char *text);
	void *arg;
};

/* How often something may be made again. */
struct link_tries {
	double left;
	int64_t at_ns;
};

struct bridge_link {
	struct bridge_link_opts o;
	struct bridge_client client;
	char *ids[4]; /* owned */
	int control;  /* our end; -1: over */
	int channel;  /* the gateway's end of the next channel, until it is confined; or -1 */
	int memory, dir, audit, listener; /* owned */
	struct bridge_shared *shared;	  /* mapped */
	enum link_state {
		LINK_NONE,
		LINK_STARTING,
		LINK_GREETING,
		LINK_UP,
		LINK_DOWN,
		LINK_LOST
	} state;
	unsigned char number; /* of the channel */
	char why[256];	      /* why it is, or was, down */
	int64_t due_ns, policy_ns;
	int64_t pinged_ns; /* a ping that was not answered; INT64_MAX: none */
	int64_t ping_ns;   /* when the next one is due */
	int64_t polled_ns;
	struct link_tries helpers, gateways;
	unsigned restarts;
	char *next_policy; /* owned: given to the helper, not confirmed */
	size_t next_len;
	struct timespec policy_time; /* of the file that was read last */
	off_t policy_size;
	bool policy_reread;
};

/*
 * Starts the first helper and waits until it is confined. *ret_gateway: for the gateway's standard input; the caller closes
 * it; -1: there is no gateway. Call link_stop whatever the outcome.
 */
int link_open(struct bridge_link *l, const struct bridge_link_opts *o, int *ret_gateway,
	      struct err *e);
/* Waits until the gateway has spoken to it. */
int link_ready(struct bridge_link *l, struct err *e);
/* To be called a few times a second. False: it is lost for good, l->why says why. */
bool link_poll(struct bridge_link *l);
/* The policy file is read again with the next poll, changed or not. */
void link_reread(struct bridge_link *l);
/* Ends it, and takes the counts of all helpers. Does nothing to one that was not opened. */
void link_stop(struct bridge_link *l, struct bridge_counts *ret);

#endif
