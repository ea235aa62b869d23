#include "bridge/ownaddr.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"

#define LATE_ANSWERS 16 /* of earlier questions, before the one that is waited for */

struct question {
	struct nlmsghdr h;
	struct rtmsg r;
	struct rtattr a;
	uint8_t to[16];
};

int ownaddr_open(void)
{
	const struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
	_cleanup_fd_ int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

	if (fd < 0 || connect(fd, (const struct sockaddr *)&kernel, sizeof(kernel)) < 0)
		return -errno;
	return TAKE_FD(fd);
}

/* What the kernel says of the route. */
static int verdict(const struct nlmsghdr *h)
{
	const void *data = (const char *)h + NLMSG_HDRLEN;
	const struct nlmsgerr *no = data;
	const struct rtmsg *r = data;

	if (h->nlmsg_type == NLMSG_ERROR && h->nlmsg_len >= NLMSG_LENGTH(sizeof(*no))) {
		switch (-no->error) {
		case ENETUNREACH:
		case EHOSTUNREACH:
		case EACCES:
		case EAFNOSUPPORT:
		case EOPNOTSUPP:
			return 0;
		default:
			return no->error < 0 ? no->error : -EPROTO;
		}
	}
	if (h->nlmsg_type != RTM_NEWROUTE || h->nlmsg_len < NLMSG_LENGTH(sizeof(*r)))
		return -EPROTO;
	switch (r->rtm_type) {
	case RTN_UNICAST:
	case RTN_BLACKHOLE:
	case RTN_UNREACHABLE:
	case RTN_PROHIBIT:
		return 0;
	default: /* local, anycast, broadcast, multicast, and what else there may come to be */
		return 1;
	}
}

int ownaddr_ask(int fd, const struct netaddr *a)
{
	static uint32_t seq;
	size_t n = a->v6 ? 16 : 4;
	struct question q = {
	    .h = {.nlmsg_len = (uint32_t)(offsetof(struct question, to) + n),
		  .nlmsg_type = RTM_GETROUTE,
		  .nlmsg_flags = NLM_F_REQUEST,
		  .nlmsg_seq = ++seq},
	    .r = {.rtm_family = a->v6 ? AF_INET6 : AF_INET, .rtm_dst_len = (unsigned char)(8 * n)},
	    .a = {.rta_len = (unsigned short)RTA_LENGTH(n), .rta_type = RTA_DST},
	};
	_Alignas(struct nlmsghdr) char buf[4096];

	memcpy(q.to, a->b, n);
	if (send(fd, &q, q.h.nlmsg_len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return -errno;
	/* The kernel answers within send. */
	for (int i = 0; i < LATE_ANSWERS; i++) {
		ssize_t k = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);
		const struct nlmsghdr *h = (const void *)buf;

		if (k < 0)
			return -errno;
		if ((size_t)k < sizeof(*h) || h->nlmsg_len > (size_t)k)
			return -EPROTO;
		if (h->nlmsg_seq == q.h.nlmsg_seq)
			return verdict(h);
	}
	return -EPROTO;
}
