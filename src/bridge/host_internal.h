/* host_internal.h: one airlock-bridge, as its life (host.c) and its set-up (host_setup.c) see it. Nobody else includes it. */
#ifndef AIRLOCK_BRIDGE_HOST_INTERNAL_H
#define AIRLOCK_BRIDGE_HOST_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "bridge/audit.h"
#include "bridge/exchange.h"
#include "bridge/h1server.h"
#include "bridge/h2server.h"
#include "bridge/lastword.h"
#include "bridge/queueserver.h"
#include "bridge/ready.h"
#include "bridge/shared.h"
#include "os/chan.h"
#include "os/loop.h"

struct host {
	struct loop loop;
	struct chan ctl;
	struct loop_watch ctl_watch, in_watch;
	struct bridge bridge;
	struct bridge_policy *policy;
	struct h2server *h2;
	struct h1server *h1;
	struct queueserver *queue;
	int queue_root;		      /* borrowed from queue */
	struct bridge_shared *shared; /* mapped, or &own */
	struct bridge_shared *own;    /* owned, or NULL */
	struct ready ready;
	int in, out, listener; /* owned until the server takes them */
	bool ready_said;       /* of a queue */
	struct lastword last;  /* of the direct way */
	struct audit audit;
	int64_t audit_by_ns; /* lines wait for a common write until then; INT64_MAX: none waits */
	char run_id[BRIDGE_IDENTITY_MAX + 1], name[UPSTREAM_NAME_MAX + 1];
	char *credential_header; /* owned, or NULL */
	unsigned streams_max;
	int64_t ready_by_ns; /* INT64_MAX: not waiting */
	int64_t stop_by_ns;  /* INT64_MAX: not stopping */
	bool lost, done, without_landlock, without_seccomp;
	struct err err;
};

/*
 * Takes what SETUP says and the descriptors that it names (those that are taken become -1), resolves the upstream and confines the
 * process. On failure host.c frees what there is.
 */
int host_set_up(struct host *h, const struct frame *f, int fds[FRAME_FDS_MAX], struct err *e);

#endif
