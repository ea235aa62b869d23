/*
 * peer.h: which process is at the other end of a connection from this machine.
 *
 * Over a unix socket the mode of its file has decided already. Over TCP on loopback everybody can connect, so in local_trusted
 * mode the implicit board is only who the kernel says has the other end: this daemon's user, root, or a user whom the
 * operator named (--trust-user). An ordinary user's sandboxes have that user's number outside, and with
 * `network: host` the same loopback: a process of another user namespace is nobody, whatever its number.
 *
 * What that costs: a question to the kernel for each connection (os/sockend.h). Only of who has the right number it must be
 * seen whose process it is, by a look at all processes of those users, milliseconds long: one look serves every connection
 * that waits for one, and looks take at most a quarter of the time after PEER_BURST_MS of them. So whoever connects again
 * and again holds up who is judged, by that, and no request of who was.
 *
 * What it does not do: protect from a trusted process that passes what a stranger tells it (a proxy, a browser); the checks
 * of Host and Origin are for those (dispatch.c).
 */
#ifndef AIRLOCK_API_PEER_H
#define AIRLOCK_API_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "os/sockend.h"

#define PEER_USERS_MAX 16
#define PEER_BURST_MS 250 /* of looks at once */
#define PEER_FRESH_MS 100 /* for how long a look says who has a connection that it saw */
#define PEER_SOCKETS_MAX \
	65536 /* sockets that a look remembers: who is behind a further one is nobody */

/* One connection: judged at its first request that has no credential. */
struct peer {
	int fd; /* borrowed */
	enum { PEER_UNKNOWN, PEER_TRUSTED, PEER_STRANGER } state;
	struct sockend end; /* found: inode not 0 */
};

struct peer_users {
	uid_t uid[PEER_USERS_MAX];
	size_t n;
};

struct peer_socket {
	uint64_t inode;
	bool inside; /* a process of another user namespace has it too */
};

/* Who judges. */
struct peer_judge {
	struct peer_users more;
	struct sockend_asker asker;
	struct peer_socket *v; /* owned; by inode: what the last look saw */
	size_t n, room;
	int64_t looked_ns; /* monotonic: when it began; 0: never */
	int64_t credit_ns, credit_at_ns;
	uint64_t looks;
};

void peer_judge_init(struct peer_judge *j, const struct peer_users *more);
void peer_judge_done(struct peer_judge *j);
/* Judges, or says from when on it can: 0 it is judged, else a monotonic time. The other end must still be there: who has gone is nobody. */
int64_t peer_due(struct peer_judge *j, struct peer *p, int64_t now_ns);
/* Whether the other end may be the local board: judged, if that can be now; else not. */
bool peer_trusted(struct peer_judge *j, struct peer *p);

#endif
