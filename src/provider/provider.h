/*
 * provider.h: one interface to every place where commands can run.
 *
 * A provider owns sandboxes; the engine owns leases, runs and logs. All calls are made from one
 * thread. Commands report through events: poll event_fd, then call next_event until it
 * returns 0. The exit event of a command is the last one for its id.
 */
#ifndef AIRLOCK_PROVIDER_PROVIDER_H
#define AIRLOCK_PROVIDER_PROVIDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

enum net_mode {
	NET_NONE = 0, /* loopback only */
	NET_HOST,     /* the host's network: loud */
};

/* In the lease's directory while its other machine could not be reached the last time: why. */
#define SANDBOX_UNREACHED "unreached"
/* The same; its time of change: by then all that went on there without a connection has ended. */
#define SANDBOX_GOES_ON "goes-on"
/* The same, while it exists: a byte for each cut of the connection that was got over. */
#define SANDBOX_RECONNECTED "reconnected"

/* Layers that an operator may do without, by name (--without). */
#define WITHOUT_CGROUP 1u
#define WITHOUT_LANDLOCK 2u
#define WITHOUT_SECCOMP 4u
#define WITHOUT_OVERLAY 8u /* workspace is a private copy of the base instead */

struct bind_ro {
	char *src; /* real host path */
	char *dst; /* path inside */
};

struct sandbox_limits {
	uint64_t memory_bytes; /* 0: none */
	uint64_t pids;	       /* 0: PIDS_DEFAULT */
	uint64_t cpu_milli;    /* 1000 = one CPU; 0: none */
};

/* What the engine wants; borrowed for the duration of the call. */
struct sandbox_spec {
	const char *lease_id;
	const char *lease_dir; /* absolute, exists, 0700: the sandbox's own storage on the host */
	/* host workspace (local provider runs here; native never sees it) */
	const char *workspace;
	char *const *layers;  /* base layers, top first; may be NULL: empty workspace */
	const char *manifest; /* what they show together, without .git; NULL with no layers */
	const char *image;    /* tree of the system image; NULL: the host's own programs */
	char *const *remote;  /* where another machine is (provider/ssh/target.h); NULL */
	char *const
	    *identities; /* "NAME=/PATH" of keys that are secrets (provider/ssh/identity.h); NULL */
	const char *inside; /* where the workspace appears inside ("/workspace") */
	const char *hostname;
	enum net_mode net;
	const struct bind_ro *binds;
	size_t binds_len;
	struct sandbox_limits limits;
	unsigned without; /* WITHOUT_* */
	bool gateway;	  /* the gateway program is to be there as well */
	unsigned
	    sockets; /* of its network, for bridges of this caller; with fewer it works as well */
	/* outlives this process: serve lease_dir/control.sock, no life line */
	bool keep;
	/* A command ran in it once: what it left must be there. */
	bool resume;
	/* Who forgets what is elsewhere wants nothing of it kept for later runs either. */
	bool nothing_stays;
	/* Directories elsewhere, beside the run's, in which mappings may have left something (provider/ssh/places.h); NULL. */
	char *const *places;
	/* Monotonic: what is asked of another machine is given up then; 0: each step has its own time. */
	int64_t until_ns;
	/* Non-zero: a start that takes long stops with -ECANCELED. May be NULL. */
	const volatile int *cancel;
};

struct exec_spec {
	char *const *argv; /* as given, no shell added */
	char *const *env;  /* the whole environment */
	const char *cwd;   /* inside */
	int in, out, err;  /* borrowed: become the command's 0, 1, 2 */
	bool tty;	   /* terminal inside; `in` and `out` carry its bytes */
	unsigned rows, cols;
};

enum sandbox_event_type {
	SE_STARTED,
	SE_FAILED, /* could not be started: sys, step */
	SE_EXITED,
	SE_PACKED, /* outbound stream complete (sys != 0: packer failed) */
	SE_ENDED,  /* the sandbox is gone; nothing else follows, this each time that it is asked */
};

struct sandbox_event {
	enum sandbox_event_type type;
	uint32_t id;
	int code, signo; /* SE_EXITED */
	unsigned leftovers;
	unsigned
	    oom_kills; /* SE_EXITED: kills for want of memory since the last command that ended */
	int sys;
	char step[32];
	uint64_t members, unreadable; /* SE_PACKED */
	uint64_t left_out; /* SE_PACKED: names at the top that never travel; 0: .git is untouched */
	uint64_t cpu_ns, maxrss_kib;
};

/* What is in force, for summary and record. Static strings. */
struct isolation {
	const char *layer;  /* "user namespace", "seccomp", "cgroup memory", ... */
	const char *state;  /* "in force", "not available", "switched off" */
	const char *detail; /* may be "" */
};

struct sandbox {
	const struct provider_ops *ops;
	struct isolation isolation[24];
	size_t isolation_len;
	/* Of one that ended by itself, before SE_ENDED: why, in words; "" */
	char why[320];
	/* Its connection is cut, and it is tried to make it again: nothing that is asked of it is answered before. Set by next_event. */
	bool away;
	unsigned reconnects; /* how often that was got over */
	/* Says so to the person; the engine's, may be NULL. */
	void (*note)(void *arg, const char *text);
	void *note_arg;
	char *const
	    *gateway; /* the words that start the gateway program there; NULL: the usual place */
	const char *inside; /* where commands see the workspace; NULL: it is the host's own */
	pid_t monitor_pid;  /* airlock-launch, or 0 */
	/* its start time of /proc/PID/stat, against reuse of the number */
	uint64_t monitor_start;
	/* provider's own fields follow in the provider's struct */
};

struct provider_ops {
	const char *name;
	bool isolates; /* false: local; the CLI says so */
	bool in_place; /* works in the host workspace: no sync in or out */
	bool
	    elsewhere; /* on another machine: none of this one's paths and ids mean anything there */
	const char *statement; /* one sentence for the summary: what boundary there is */

	/* Pure checks of the spec, clear text. */
	int (*validate)(const struct sandbox_spec *s, struct err *e);
	/* Host uid/gid that must own sandbox storage; (uid_t)-1 when it is the caller's. */
	void (*owner)(uid_t *uid, gid_t *gid);
	/* Starts; on failure nothing is left running. */
	int (*acquire)(const struct sandbox_spec *s, struct sandbox **ret, struct err *e);
	/* Connects to a kept sandbox. -ENOENT: it is not running. NULL: none is kept. */
	int (*attach)(const struct sandbox_spec *s, struct sandbox **ret, struct err *e);
	int (*event_fd)(struct sandbox *sb);
	int (*next_event)(struct sandbox *sb, struct sandbox_event *ret, struct err *e);
	int (*exec)(struct sandbox *sb, const struct exec_spec *x, uint32_t *ret_id, struct err *e);
	/*
	 * A TCP socket of the sandbox's network, or of this machine's where it has none of its own, in whatever state (os/listen.h): of
	 * those that the spec asked for. The caller's; a new user of the sandbox may get it again afterwards. -1: none is left. NULL: there are none.
	 */
	int (*socket)(struct sandbox *sb);
	/*
	 * The socket listens on a port of this machine's loopback: *ret_port is where the sandbox's own leads there. NULL: it is
	 * the same.
	 */
	int (*publish)(struct sandbox *sb, uint16_t port, uint16_t *ret_port,
		       const volatile int *cancel, struct err *e);
	/* To the whole process tree of the command. */
	int (*signal)(struct sandbox *sb, uint32_t id, int signo, struct err *e);
	int (*winsize)(struct sandbox *sb, uint32_t id, unsigned rows, unsigned cols);
	/* Streams what changed in the workspace to out_fd (borrowed); NULL when in_place. */
	int (*pack)(struct sandbox *sb, int out_fd, uint32_t *ret_id, struct err *e);
	/* Ends every process and the sandbox, waits for proof; storage in lease_dir stays. Frees sb. */
	int (*release)(struct sandbox *sb, struct err *e);
	/* Frees sb but leaves the sandbox running (kept leases). */
	void (*detach)(struct sandbox *sb);
	/* Removes what the provider put into lease_dir (owned by the sandbox user, odd modes). */
	int (*destroy_storage)(const char *lease_dir, struct err *e);
	/*
	 * Removes what the lease has elsewhere, ending what still runs there; again and again is fine. give_up: nobody goes there,
	 * what is there stays and is forgotten. NULL: nothing is elsewhere.
	 */
	int (*forget)(const struct sandbox_spec *s, bool give_up, struct err *e);
};

struct rm_cleaned;
/* Of another machine (words as in provider/ssh/target.h): our programs there, and directories of runs that hold nothing. lease_dir need not exist. */
int ssh_clean(char *const *remote, const char *lease_dir, struct rm_cleaned *ret, char **ret_label,
	      struct err *e);

extern const struct provider_ops provider_native;
extern const struct provider_ops provider_local;
extern const struct provider_ops provider_ssh;
extern const struct provider_ops
    provider_ssh_in_place;			       /* the same, in the directory there itself */
extern const struct provider_ops provider_ssh_sandbox; /* the same, in a sandbox there */

/* By name; NULL if unknown. */
const struct provider_ops *provider_find(const char *name);

#endif
