/*
 * broker.h: shared by the files of the broker; no one else's business.
 *
 * broker.c owns the loop and the ways to either side, broker_client.c judges what clients ask, broker_guest.c
 * what the guest says.
 */
#ifndef AIRLOCK_PROVIDER_NATIVE_BROKER_H
#define AIRLOCK_PROVIDER_NATIVE_BROKER_H

#include "provider/native/launch.h"

#define CLIENTS_MAX 32		 /* connections at once; more are closed at once */
#define JOBS_MAX (EXECS_MAX + 1) /* commands and one pack */
#define FRAMES_A_TURN 64	 /* of one peer, before the others have theirs */
#define OWNER 0

enum job_state {
	JOB_FREE = 0,
	JOB_ASKED,
	JOB_STARTED,
};

struct job {
	enum job_state state;
	bool pack;
	int client; /* index, or -1: it has gone */
	uint32_t client_id, id;
};

struct client {
	struct chan ch; /* fd -1: free */
	bool ping;	/* one at a time */
	uint64_t nonce;
};

struct broker {
	struct launch *l;
	uint32_t next_id, oom_told;
	bool guest_ready;
	bool asked, killed;
	int64_t kill_ns;		 /* INT64_MAX: no deadline */
	int socket_of[PLAN_SOCKETS_MAX]; /* whose the launch's socket is: client + 1; 0: nobody's */
	/* Last: a start touches the beginning of each. */
	struct client clients[CLIENTS_MAX];
	struct job jobs[JOBS_MAX];
};

/* Of one frame to either side. */
int64_t broker_send_deadline(void);
/* One frame to the guest; one that does not read is killed. */
void broker_to_guest(struct broker *b, uint8_t type, const struct buf *p, const int *fds, size_t n);
/* One frame to a client, if it is still there (index -1: it is not); one that does not read is dropped. */
void broker_to_client(struct broker *b, int i, uint8_t type, const struct buf *p);
void broker_tell_ready(struct broker *b, int i);
/* Closes a client and ends what it has asked to run. */
void broker_drop(struct broker *b, int i);
void broker_kill(struct broker *b);
/* Asks the guest to end; it is killed when it takes too long. */
void broker_ask_end(struct broker *b);

/* broker_client.c */
void broker_hear_client(struct broker *b, int i);
void broker_accept(struct broker *b);
/* broker_guest.c. False: the guest's side is over, by end of stream or by nonsense. */
bool broker_hear_guest(struct broker *b);

#endif
