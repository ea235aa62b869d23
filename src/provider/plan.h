/*
 * plan.h: a sandbox as a pure value, and the one function that judges it.
 *
 * The native provider builds a plan from a spec; plan_check judges it before anything starts; the
 * launcher decodes it from its parent, judges it again and builds exactly that. Every string is an
 * absolute normal path or a name; the caller has resolved symbolic links beforehand.
 */
#ifndef AIRLOCK_PROVIDER_PLAN_H
#define AIRLOCK_PROVIDER_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/cursor.h"
#include "base/err.h"
#include "base/limits.h"
#include "provider/provider.h"

#define PLAN_LAYERS_MAX 64
#define PLAN_BINDS_MAX 64
#define PLAN_FORBIDDEN_MAX 128
#define PLAN_SOCKETS_MAX SANDBOX_LISTENERS_MAX /* one message carries them */

#define PLAN_MEMORY_MIN (UINT64_C(4) << 20) /* bytes; less cannot even start a shell */

/* Inside: what the launcher makes itself, so that nobody binds over it. */
#define PLAN_HOME "/home/agent"

struct plan {
	char *guest;   /* host path of the static guest */
	char *gateway; /* of the gateway, or NULL: it is not there */
	char *image;   /* host path of the tree of its system image, or NULL: the host's programs */
	char *lease_dir; /* sandbox storage: upper, work, home, tmp lie below it */
	char *state_dir; /* Airlock's own state: holds lease_dir, and no bind may come near it */
	char *inside;	 /* workspace inside */
	char *hostname;
	char *layers[PLAN_LAYERS_MAX];
	size_t layers_len;
	struct bind_ro binds[PLAN_BINDS_MAX];
	size_t binds_len;
	/* What must stay outside, as real paths: host workspace, home credentials, sockets. */
	char *forbidden[PLAN_FORBIDDEN_MAX];
	size_t forbidden_len;
	uint32_t net;	  /* enum net_mode */
	uint32_t without; /* WITHOUT_* */
	uint32_t uid_inside, gid_inside, uid_host, gid_host;
	uint64_t memory_bytes, pids, cpu_milli;
	uint32_t sockets; /* of its own network, made before anything foreign runs there */
	bool keep;
};

/*
 * B-05, B-06: no bind, layer or storage path is, contains or lies in a forbidden place; nothing is
 * bound into or over the workspace, home, tmp, /proc, /dev, /etc, /run, the system image or the
 * guest; layers and storage are disjoint; neither the ids inside nor those outside are root. Pure:
 * no file system access. Also refuses what does not fit (hostname, unknown WITHOUT_* bits).
 */
int plan_check(const struct plan *p, struct err *e);
int plan_put(struct buf *b, const struct plan *p);
/* Heap copies (release with plan_done, also after failure). -EPROTO: not a plan. Does not judge. */
int plan_get(struct view v, struct plan *ret, struct err *e);
void plan_done(struct plan *p);

#endif
