/*
 * apibridge.h: the bridge of one run: airlock-bridge on the host, which listens inside by a socket of the sandbox's network, or else the
 * gateway inside; and the variables that tell the command where it is.
 *
 * Its end is the run's end. A helper or a gateway that is lost in between is replaced (bridge/link.h); when that does not help, the command goes
 * on and hears 503, and the summary says so.
 */
#ifndef AIRLOCK_ENGINE_APIBRIDGE_H
#define AIRLOCK_ENGINE_APIBRIDGE_H

#include "bridge/link.h"
#include "bridge/queuemake.h"
#include "engine/request.h"

struct apibridge {
	struct bridge_link link;
	struct bridge_counts counts; /* after apibridge_stop */
	struct bridge_inputs in;
	struct sandbox *sb; /* borrowed until apibridge_stop */
	uint32_t gateway;   /* id of its command in the sandbox; 0: none */
	uint16_t port;
	int listener; /* owned; in the sandbox's network, 0: there is a gateway instead */
	bool up;      /* it was ready; counts and why are of interest */
	bool told;
	/* of a file queue */
	int queue_parent; /* owned; 0: none */
	char queue_name[QUEUEMAKE_NAME];
	char *queue_inside; /* owned */
};

struct apibridge_opts {
	const struct request *q;
	const struct api_request *api; /* of q */
	const char *run_id;	       /* identity of the requests */
	int audit;		       /* descriptor for the decisions, or -1; borrowed */
	const char *lease_dir;
	const volatile int *cancel;			     /* of the start; may be NULL */
	void (*note)(void *arg, bool bad, const char *text); /* until apibridge_stop */
	void *arg;
};

/*
 * Starts both in a sandbox that runs, and adds the variables to *env, whose PAPERCLIP_AGENT_ID, _COMPANY_ID and _TASK_ID
 * are the other identities.
 */
int apibridge_start(struct apibridge *b, struct sandbox *sb, const struct apibridge_opts *o,
		    char ***env, struct err *e);
/* True once, when the bridge was lost: b->link.why says why. To be asked now and then: replaces what is broken. */
bool apibridge_lost(struct apibridge *b);
/* Ends both; the counts are in b->counts. Does nothing to one that was not started. */
void apibridge_stop(struct apibridge *b, struct sandbox *sb);

#endif
