/*
 * session.h: ssh and airlock-remote, started for one sandbox, and what is said before commands can run.
 *
 * ssh is our child, so its end is ours to wait for; its streams are airlock-remote's alone. Sessions to one target share a
 * connection (ControlMaster) that stays REMOTE_PERSIST_S longer than the last of them; its socket lies in a directory of
 * mode 0700 that is ours, under a short hashed name. Where no directory is short and private enough, nothing is shared.
 */
#ifndef AIRLOCK_PROVIDER_SSH_SESSION_H
#define AIRLOCK_PROVIDER_SSH_SESSION_H

#include "os/helper.h"
#include "provider/guestlink.h"
#include "provider/provider.h"
#include "provider/ssh/explain.h"
#include "provider/ssh/program.h"
#include "provider/ssh/target.h"

struct ssh_session {
	struct sandbox sb;
	struct guestlink link; /* to airlock-remote */
	struct helper helper;
	struct process ssh;
	struct ssh_target target;
	char *inside; /* owned: the workspace there */
	/*
	 * Owned, -1: ssh's output, which is airlock-remote's to read. If that one is killed, ssh loses its input alone, and the guest there can tell this
	 * from a cut of the connection: it ends everything at once.
	 */
	int out;
	char *lease_dir; /* owned: set once a cut is waited out */
	char *control;	 /* owned: the shared connection's socket; NULL */
	char **gateway;	 /* owned: sandbox.gateway */
	struct view
	    answer; /* payload of the last awaited message: valid until the next is received */
	int64_t until_ns; /* of all that is awaited; 0 */
	int64_t took_ns;  /* until it had spoken */
	int64_t away_ns;  /* since when the connection is cut (again.h) */
	int64_t reach_ns; /* how long until it has spoken; 0: what that takes */
	bool up;	  /* the guest has spoken */
	enum ssh_refused refused;
	char machine[SSH_MACHINE_MAX + 1]; /* the kind whose programs go there; "": this one's */
	char is[SSH_MACHINE_MAX + 1];	   /* refused for that: what it says it is */
	bool in_place;			   /* commands work in the target's directory itself */
	bool sandbox;			   /* commands are to run in one there */
	bool unmade; /* the guest refused to open the run's directory before it made anything */
	bool
	    absent; /* the run's directory is not there any more: the guest was asked and said so */
};

/*
 * The guest runs there and has said hello; x->sandbox is the caller's to set. Needs remote, lease_id, lease_dir and cancel of s. reach: of one that only cleans up after a lease
 * (reach.h).
 */
int session_start(const struct sandbox_spec *s, bool reach, struct ssh_session **ret,
		  struct err *e);
/* The same, and where that machine cannot take or run the guest, why. */
int session_try(const struct sandbox_spec *s, struct ssh_session **ret,
		enum ssh_refused *ret_refused, struct err *e);
/* Where the shared connection's socket is: heap; NULL: no place is short and private enough. */
char *session_control(const struct sandbox_spec *s);
/* Waits for a message of this type: x->answer. 1: RM_NOT_BOXED in place of RM_BOXED. A fault of the other side, the connection's end and a cancel are errors. */
int session_await(struct ssh_session *x, uint8_t type, const volatile int *cancel, struct err *e);
/* RM_OPEN of the lease's directory; waits for that answer. */
int session_open_run(struct ssh_session *x, const struct sandbox_spec *s, unsigned flags,
		     uint8_t answer, struct err *e);
/* Ends everything there, if it can be told, and frees it. */
void session_end(struct ssh_session *x);

#endif
