/* listen.h: a TCP socket that listens on one address of this machine, or of the network that the socket was made in. */
#ifndef AIRLOCK_OS_LISTEN_H
#define AIRLOCK_OS_LISTEN_H

#include <stdint.h>

#define LISTEN_BACKLOG 128 /* connections that wait to be accepted */
/*
 * Of each connection, each way, in the kernel, which doubles it for its own use. Without a figure it would let each grow to megabytes,
 * which count as whose that accepts: 256 clients that do not read would have a gigabyte.
 */
#define LISTEN_BUFFER (96 << 10)
#define LISTEN_UNREAD_MS \
	30000 /* a client whose window is shut for so long is cut by the kernel, also after we closed */

/* A new IPv4 stream socket, close-on-exec, or a negative errno. */
int listen_socket(void);
/*
 * Binds and listens. host: numeric IPv4. port 0: any. *ret_port: which. A socket that listened before is used anew: who waits there is
 * told so. 0 or a negative errno.
 */
int listen_on(int fd, const char *host, uint16_t port, uint16_t *ret_port);
/* Listens no more: whoever waits to be accepted is told so, by any holder of the socket. */
void listen_end(int fd);

#endif
