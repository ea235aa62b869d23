#include "os/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

int listen_socket(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return fd < 0 ? -errno : fd;
}

void listen_end(int fd)
{
	const struct sockaddr none = {.sa_family = AF_UNSPEC};

	/*
	 * A TCP quirk: this is the one call that leaves a socket as it was made, in whatever state. shutdown() of one that does not
	 * listen would be inherited by each connection that it accepts later.
	 */
	(void)connect(fd, &none, sizeof(none));
}

int listen_on(int fd, const char *host, uint16_t port, uint16_t *ret_port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
	socklen_t len = sizeof(a);
	const int on = 1, buffer = LISTEN_BUFFER, unread = LISTEN_UNREAD_MS;

	if (inet_pton(AF_INET, host, &a.sin_addr) != 1)
		return -EINVAL;
	listen_end(fd);
	/* A port that somebody who listened before has just left is free. */
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	/* All that it accepts inherits these. */
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer)) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer)) < 0 ||
	    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unread, sizeof(unread)) < 0)
		return -errno;
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, LISTEN_BACKLOG) < 0 ||
	    getsockname(fd, (struct sockaddr *)&a, &len) < 0)
		return -errno;
	*ret_port = ntohs(a.sin_port);
	return 0;
}
