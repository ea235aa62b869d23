/*
 * upstream_wire.h: the bytes of one connection to the upstream, in clear or over verified TLS.
 *
 * Two of them: upstream_clear.c, for http and unix sockets, in airlock-bridge; upstream_tls.c with OpenSSL, for https, in
 * airlock-bridge-tls. A program links one. Nothing here waits: -EAGAIN says with *ret_events what to wait for. The descriptor stays
 * the connection's; a wire_end belongs to it and ends before it.
 */
#ifndef AIRLOCK_BRIDGE_UPSTREAM_WIRE_H
#define AIRLOCK_BRIDGE_UPSTREAM_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/cursor.h"
#include "base/err.h"
#include "policy/origin.h"

struct wire;	 /* of an origin */
struct wire_end; /* of a connection; NULL in clear */

/* Before confinement: libraries, certificates. An origin that this program cannot speak to is ERR_INVALID. */
int wire_new(const struct origin *o, struct view ca, struct wire **ret, struct err *e);
void wire_free(struct wire *w);
/* 0 or -ENOMEM. */
int wire_begin(struct wire *w, int fd, struct wire_end **ret);
void wire_end_free(struct wire_end *t);
/* After connect. 0: whoever is there is the one; -EAGAIN; else it is not, or cannot prove it, and has got nothing. */
int wire_greet(struct wire_end *t, uint32_t *ret_events);
/* Bytes that the kernel has taken, or -errno. One or two pieces. */
ssize_t wire_send(struct wire_end *t, int fd, const struct iovec *v, size_t n,
		  uint32_t *ret_events);
/* 0: an end that the other side meant; one that may have been cut is -ECONNRESET. */
ssize_t wire_recv(struct wire_end *t, int fd, char *p, size_t n, uint32_t *ret_events);
/* Nothing has come that the upstream's HTTP said. */
bool wire_quiet(struct wire_end *t, int fd);

#endif
