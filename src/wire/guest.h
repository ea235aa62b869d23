/*
 * guest.h: messages between a client (airlock), airlock-launch and the guest.
 *
 * client <-> airlock-launch: the owner's socket pair, and any number of connections to
 * the sandbox's control socket. airlock-launch <-> guest: one socket pair, made before
 * the sandbox exists. airlock-launch forwards the permitted requests, gives each
 * command an id of its own, and routes events back to the client that asked. What
 * comes from a guest is untrusted: decoded by these functions only, never with
 * descriptors.
 */
#ifndef AIRLOCK_WIRE_GUEST_H
#define AIRLOCK_WIRE_GUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/cursor.h"
#include "base/err.h"

enum guest_msg {
	/* requests */
	GM_PLAN = 1,	 /* owner -> launch, first and once: the sandbox plan (provider/plan.h) */
	GM_EXEC = 2,	 /* struct gm_exec; descriptors: stdin, stdout, stderr of the command */
	GM_SIGNAL = 3,	 /* struct gm_signal */
	GM_WINSIZE = 4,	 /* struct gm_winsize */
	GM_PACK = 5,	 /* u32 id; descriptor: where the outbound tar stream goes */
	GM_SHUTDOWN = 6, /* empty: end every process, then the sandbox */
	GM_PING = 7,	 /* u64 nonce */
	GM_STORAGE = 8,	 /* owner -> launch, second and once, empty: what the plan names is there */
	GM_SOCKET = 9,	 /* client -> launch, empty: a socket of the sandbox's network */
	/* events */
	GM_READY = 64,	 /* u32 guest protocol version; after it requests are accepted */
	GM_STARTED = 65, /* u32 id, u32 pid inside */
	GM_FAILED = 66,	 /* struct gm_failed; last event of an id that never started */
	GM_EXITED = 67,	 /* struct gm_exited; last event of an id */
	GM_PACKED = 68,	 /* struct gm_packed; last event of a pack's id */
	GM_PONG = 69,	 /* u64 nonce */
	GM_ENDED = 70,	 /* launch -> clients: u32 wait status of the guest; nothing follows */
	GM_ERROR = 71,	 /* launch -> client: u32 err_code, string text; refused, or no start */
	GM_OOM = 72, /* launch -> client: u32 kills for want of memory so far; before GM_EXITED */
	GM_SOCKET_IS =
	    74, /* launch -> client, empty; descriptor: the socket; none: there is none left */
	GM_STEP = 73, /* launch -> owner: the start failed at a step (provider/native/step.h) */
};

#define GUEST_PROTOCOL 1
#define GUEST_WORKSPACE "/workspace" /* where the workspace is, inside */

/*
 * How airlock-launch starts the guest: argv {"airlock-guest"}, empty environment, pid 1, cwd "/",
 * signal mask empty, dispositions default, and these descriptors; 0, 1, 2 are /dev/null, all others closed.
 * The guest makes itself non-dumpable first: commands share its uid, and a dumpable pid 1 could be
 * traced and would offer /proc/1/fd/4.
 */
#define GUEST_FD_SOCKET 3 /* connected stream socket to airlock-launch */
#define GUEST_FD_UPPER 4 /* root of the lease's layer: detached read-only mount; `..` stays in it */
#define GUEST_PATH "/.airlock/airlock-guest"	 /* where the guest binary is bound, read-only */
#define GATEWAY_PATH "/.airlock/airlock-gateway" /* beside it, in sandboxes of runs with a bridge */

/*
 * GM_READY from launch to a client: u32 guest protocol version, u32 Landlock ABI in force (0: none),
 * u32 GR_* of the cgroup limits in force; descriptor: pidfd of the guest. From the guest: u32 only.
 */
#define GR_MEMORY 1u
#define GR_PIDS 2u
#define GR_CPU 4u
#define GR_V2 8u
#define GR_SOCKETS 16u /* there are sockets to be asked for */

#define GX_TTY 1u /* allocate a terminal inside; stdin/stdout carry its bytes, stderr unused */

struct gm_exec {
	uint32_t id; /* unique per client connection; launch maps it */
	uint32_t flags;
	uint32_t rows, cols;
	char *cwd;
	char **argv; /* run as given, no shell added; argv[0] is looked up in env's PATH */
	char **env;
};

struct gm_signal {
	uint32_t id;
	uint32_t signo;
};

struct gm_winsize {
	uint32_t id, rows, cols;
};

#define GM_STEP_MAX 32

struct gm_failed {
	uint32_t id;
	uint32_t error; /* errno */
	char step
	    [GM_STEP_MAX]; /* what failed: "execve", "chdir", "fork", "limit", ...; printable ASCII */
};

struct gm_exited {
	uint32_t id;
	uint32_t code;	    /* exit code, when signo is 0 */
	uint32_t signo;	    /* signal that ended it, or 0 */
	uint32_t leftovers; /* background processes that had to be ended */
	uint64_t cpu_ns, maxrss_kib;
};

struct gm_packed {
	uint32_t id;
	uint32_t error; /* errno of the packer, or 0 */
	uint64_t members, unreadable;
	uint64_t shrunk; /* files that lost bytes while they were read: padded with zeros */
	uint64_t
	    left_out; /* entries of the top directory that never travel (.git, .airlock-staging) */
};

/*
 * Every put returns 0, -E2BIG or -ENOMEM, and never writes what its get would refuse: a value
 * outside the limits is -EINVAL or -E2BIG with nothing appended. Every get is exact (no byte may
 * be left over): 0 or -EPROTO.
 */

/* Limits: ARGV_MAX words, ENV_MAX variables, ENV_VALUE_MAX bytes a word, cwd absolute. */
int gm_exec_put(struct buf *b, const struct gm_exec *m);
/* Fills heap copies into ret (release with gm_exec_done, also after failure). 0, -EPROTO, -ENOMEM. */
int gm_exec_get(struct view p, struct gm_exec *ret);
void gm_exec_done(struct gm_exec *m);
int gm_signal_put(struct buf *b, const struct gm_signal *m);
int gm_signal_get(struct view p, struct gm_signal *ret);
int gm_winsize_put(struct buf *b, const struct gm_winsize *m);
int gm_winsize_get(struct view p, struct gm_winsize *ret);
int gm_failed_put(struct buf *b, const struct gm_failed *m);
int gm_failed_get(struct view p, struct gm_failed *ret);
int gm_exited_put(struct buf *b, const struct gm_exited *m);
int gm_exited_get(struct view p, struct gm_exited *ret);
int gm_packed_put(struct buf *b, const struct gm_packed *m);
int gm_packed_get(struct view p, struct gm_packed *ret);

#endif
