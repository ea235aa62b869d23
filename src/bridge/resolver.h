/*
 * resolver.h: names to addresses, in a process of its own.
 *
 * The system's resolver (files, DNS, whatever nsswitch.conf says) opens files and loads libraries, and it parses what
 * name servers answer; the proxy does none of that. The process is forked before its parent is confined, confines itself
 * (reads system configuration only, writes nothing, starts no program, no privileges, nobody's user when it was root's),
 * and forks for each question, so that a slow name holds up no other.
 */
#ifndef AIRLOCK_BRIDGE_RESOLVER_H
#define AIRLOCK_BRIDGE_RESOLVER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "policy/netaddr.h"
#include "policy/netrule.h"

#define RESOLVER_ADDRS_MAX 16
#define RESOLVER_TRY_MS 20000 /* one question */

struct resolver_answer {
	uint32_t id;
	uint8_t n; /* addresses, in the order to try; 0: there is none */
	struct netaddr addrs[RESOLVER_ADDRS_MAX];
};

/* Forks; *ret_fd is a packet socket to it, whose end is its end. Nothing of the caller's but that is open in it. */
int resolver_start(bool without_landlock, bool without_seccomp, int *ret_fd, struct err *e);
/* Both never block: -EAGAIN. host is a name of a struct net_target. */
int resolver_ask(int fd, uint32_t id, const char *host);
int resolver_take(int fd, struct resolver_answer *ret);

#endif
