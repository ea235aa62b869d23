/*
 * client.h: starting airlock-bridge and talking to it; what it needs, read from the user's files.
 *
 * The helper is one process per run. When it dies, or this process does, nothing more is forwarded: the other end
 * of the channel answers 503. One thread.
 */
#ifndef AIRLOCK_BRIDGE_CLIENT_H
#define AIRLOCK_BRIDGE_CLIENT_H

#include <stdbool.h>

#include "bridge/bridge_proto.h"
#include "os/chan.h"
#include "os/helper.h"

#define BRIDGE_TOKEN_BYTES 24 /* random; 32 characters of base64url, as the peer's */
#define BRIDGE_TOKEN_LEN 32
#define BRIDGE_NONCE_LEN 32 /* hex digits */

/* What the user named, read and checked; secrets are wiped by bridge_inputs_done. */
struct bridge_inputs {
	char *upstream;	   /* owned */
	char *credential;  /* owned; first line of the file */
	char *policy_name; /* owned */
	char *policy_text; /* owned; NULL: built in */
	size_t policy_len;
	char *ca; /* owned; NULL unless https */
	size_t ca_len;
	char token[BRIDGE_TOKEN_MAX + 1];
	char nonce[BRIDGE_NONCE_LEN + 1];
};

/*
 * policy: a built-in name or a file. A new token and nonce are made. Errors name the file and the limit; the
 * policy is parsed here as well, so that a bad one is told before anything starts.
 */
int bridge_inputs_read(struct bridge_inputs *in, const char *upstream, const char *credential_file,
		       const char *policy, struct err *e);
void bridge_inputs_done(struct bridge_inputs *in);
/* One line of printable text from a small file, such as a token. Heap; the caller wipes it. */
int bridge_read_secret(const char *path, size_t max, char **ret, struct err *e);

struct bridge_client {
	struct chan ch;
	struct helper helper;
	bool confined, ready, done;
	bool pong;	   /* the last ping was answered */
	int policy_answer; /* 1: the last one is in force; -1: not, policy_why says why; 0: no answer yet */
	char policy_why[256];
	bool lost; /* the channel is over, or the helper is */
	char why[256];
	struct bridge_counts counts; /* valid once done */
};

/* What the helper gets besides; -1: not. They stay the caller's. */
struct bridge_fds {
	int in, out, dir, audit, shared, board, listener;
};

/* Starts the helper and tells it; c->confined comes through poll. */
int bridge_client_spawn(struct bridge_client *c, const struct bridge_setup *s,
			const struct bridge_fds *fds, struct err *e);
/* Waits until it is confined. */
int bridge_client_confined(struct bridge_client *c, struct err *e);
/* Waits until the gateway has spoken; ERR_UNAVAILABLE says why it has not. */
int bridge_client_ready(struct bridge_client *c, struct err *e);
/* To be polled for reading; bridge_client_poll then takes what is there. */
int bridge_client_fd(const struct bridge_client *c);
void bridge_client_poll(struct bridge_client *c);
/* Hot reload; the answer comes through poll (a bad text is refused here already). */
int bridge_client_policy(struct bridge_client *c, const char *text, size_t n, struct err *e);
/* Asks for a sign of life; c->pong comes through poll. Never waits. */
void bridge_client_ping(struct bridge_client *c);
/* Ends it, takes the counts. Never fails; a deaf helper is killed. Does nothing to one that was not started. */
void bridge_client_stop(struct bridge_client *c);
/* At once. */
void bridge_client_kill(struct bridge_client *c);

#endif
