#include "bridge/upstream_resolve.h"

#include <stdio.h>
#include <sys/socket.h>

int upstream_resolve(const struct origin *o, struct addrinfo **ret, struct err *e)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
	char port[8];
	int r;

	(void)snprintf(port, sizeof(port), "%u", o->port);
	r = getaddrinfo(o->host, port, &hints, ret);
	if (r) {
		/* A machine with loopback alone has no "configured" address. */
		hints.ai_flags = 0;
		r = getaddrinfo(o->host, port, &hints, ret);
	}
	if (r)
		return err_set(e, ERR_UNAVAILABLE, "upstream %s: its name cannot be resolved: %s",
			       o->text, gai_strerror(r));
	return 0;
}
