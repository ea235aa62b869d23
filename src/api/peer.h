/*
 * peer.h: which process is at the other end of a connection from this machine.
 *
 * Over a unix socket the mode of its file has decided already. Over TCP on loopback everybody can connect, so in local_trusted
 * mode the implicit board is only who the kernel says has the other end: this daemon's user, root, or a user whom the
 * operator named (--trust-user). An ordinary user's sandboxes have that user's number outside, and with
 * `network: host` the same loopback: a process of another user namespace is nobody, whatever its number.
 *
 * What it does not do: protect from a trusted process that passes what a stranger tells it (a proxy, a browser); the checks
 * of Host and Origin are for those (dispatch.c).
 */
#ifndef AIRLOCK_API_PEER_H
#define AIRLOCK_API_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define PEER_USERS_MAX 16

/* One connection: judged at its first request that has no credential. */
struct peer {
	int fd; /* borrowed */
	enum { PEER_UNKNOWN, PEER_TRUSTED, PEER_STRANGER } state;
};

struct peer_users {
	uid_t uid[PEER_USERS_MAX];
	size_t n;
};

/* Whether the other end may be the local board. It must still be there: who has gone is nobody. */
bool peer_trusted(struct peer *p, const struct peer_users *more);

#endif
