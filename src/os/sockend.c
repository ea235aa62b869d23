#include "os/sockend.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/cleanup.h"

struct ends {
	struct sockaddr_storage ours, theirs;
};

void sockend_done(struct sockend_asker *a)
{
	cleanup_fd(&a->fd);
}

/* --- /proc -------------------------------------------------------------------------------- */

/* An address as /proc/net/tcp writes it: words of the machine's own order, and the port. */
static bool put_address(const struct sockaddr_storage *sa, char *out, size_t n)
{
	const struct sockaddr_in *a4 = (const struct sockaddr_in *)sa;
	const struct sockaddr_in6 *a6 = (const struct sockaddr_in6 *)sa;
	uint32_t w[4];

	if (sa->ss_family == AF_INET) {
		(void)snprintf(out, n, "%08X:%04X", a4->sin_addr.s_addr, ntohs(a4->sin_port));
		return true;
	}
	if (sa->ss_family != AF_INET6)
		return false;
	memcpy(w, &a6->sin6_addr, sizeof(w));
	(void)snprintf(out, n, "%08X%08X%08X%08X:%04X", w[0], w[1], w[2], w[3],
		       ntohs(a6->sin6_port));
	return true;
}

/* The line of the connection whose local end is `theirs` and whose remote end is `ours`. */
static bool find_line(const char *path, const char *theirs, const char *ours, struct sockend *ret)
{
	_cleanup_file_ FILE *f = fopen(path, "re");
	char line[512], local[48], remote[48];
	unsigned long uid, inode;

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, " %*u: %47s %47s %*x %*s %*s %*s %lu %*u %lu", local, remote, &uid,
			   &inode) != 4 ||
		    strcmp(local, theirs) != 0 || strcmp(remote, ours) != 0)
			continue;
		ret->uid = (uid_t)uid;
		ret->inode = inode;
		return true;
	}
	return false;
}

static void map(char *text, size_t n)
{
	uint32_t w = htonl(0xffff);
	char old[48];

	(void)snprintf(old, sizeof(old), "%s", text);
	(void)snprintf(text, n, "%016X%08X%.13s", 0, w, old);
}

static bool read_tables(const struct ends *x, struct sockend *ret)
{
	char ours[48], theirs[48];

	if (!put_address(&x->ours, ours, sizeof(ours)) ||
	    !put_address(&x->theirs, theirs, sizeof(theirs)))
		return false;
	if (x->ours.ss_family == AF_INET6)
		return find_line("/proc/self/net/tcp6", theirs, ours, ret);
	if (find_line("/proc/self/net/tcp", theirs, ours, ret))
		return true;
	/* A client whose socket speaks both has its ends in the other table, as mapped addresses. */
	map(theirs, sizeof(theirs));
	map(ours, sizeof(ours));
	return find_line("/proc/self/net/tcp6", theirs, ours, ret);
}

/* --- sock_diag ---------------------------------------------------------------------------- */

struct question {
	struct nlmsghdr head;
	struct inet_diag_req_v2 req;
};

static void put_id(const struct sockaddr_storage *sa, __be32 addr[4], __be16 *port)
{
	const struct sockaddr_in *a4 = (const struct sockaddr_in *)sa;
	const struct sockaddr_in6 *a6 = (const struct sockaddr_in6 *)sa;

	*port = sa->ss_family == AF_INET ? a4->sin_port : a6->sin6_port;
	if (sa->ss_family == AF_INET)
		addr[0] = a4->sin_addr.s_addr;
	else
		memcpy(addr, &a6->sin6_addr, sizeof(a6->sin6_addr));
}

/* The kernel falls back to who listens at that port, so what it found is compared with what was asked. */
static bool same_pair(const struct question *q, const struct inet_diag_msg *m)
{
	const struct inet_diag_sockid *a = &q->req.id, *b = &m->id;
	bool mapped = q->req.sdiag_family == AF_INET && m->idiag_family == AF_INET6;
	size_t n = q->req.sdiag_family == AF_INET ? 4 : 16;

	return m->idiag_state != TCP_LISTEN && a->idiag_sport == b->idiag_sport &&
	       a->idiag_dport == b->idiag_dport &&
	       memcmp(a->idiag_src, mapped ? &b->idiag_src[3] : b->idiag_src, n) == 0 &&
	       memcmp(a->idiag_dst, mapped ? &b->idiag_dst[3] : b->idiag_dst, n) == 0;
}

/* 1 found, 0 not there, -1 this kernel does not say. */
static int read_answer(struct sockend_asker *a, const struct question *q, struct sockend *ret)
{
	union {
		struct nlmsghdr head;
		char bytes[4096];
	} in;

	for (;;) {
		ssize_t n = recv(a->fd, &in, sizeof(in), MSG_DONTWAIT);
		const struct nlmsgerr *bad = NLMSG_DATA(&in.head);
		const struct inet_diag_msg *m = NLMSG_DATA(&in.head);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < (ssize_t)sizeof(in.head) || !NLMSG_OK(&in.head, (size_t)n))
			return -1;
		if (in.head.nlmsg_seq != q->head.nlmsg_seq)
			continue;
		if (in.head.nlmsg_type == NLMSG_ERROR)
			return in.head.nlmsg_len >= NLMSG_LENGTH(sizeof(*bad)) &&
				       bad->error == -ENOENT
				   ? 0
				   : -1;
		if (in.head.nlmsg_type != SOCK_DIAG_BY_FAMILY ||
		    in.head.nlmsg_len < NLMSG_LENGTH(sizeof(*m)))
			return -1;
		a->answered = true;
		if (!same_pair(q, m))
			return 0;
		*ret = (struct sockend){.uid = m->idiag_uid, .inode = m->idiag_inode};
		return 1;
	}
}

static int ask(struct sockend_asker *a, const struct ends *x, struct sockend *ret)
{
	struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
	struct question q = {.head = {.nlmsg_len = sizeof(q),
				      .nlmsg_type = SOCK_DIAG_BY_FAMILY,
				      .nlmsg_flags = NLM_F_REQUEST},
			     .req = {.sdiag_protocol = IPPROTO_TCP,
				     .idiag_states = ~0u,
				     .id.idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}}};

	if (a->fd < 0)
		a->fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	if (a->fd < 0)
		return -1;
	q.head.nlmsg_seq = ++a->seq;
	q.req.sdiag_family = (__u8)x->ours.ss_family;
	put_id(&x->theirs, q.req.id.idiag_src, &q.req.id.idiag_sport);
	put_id(&x->ours, q.req.id.idiag_dst, &q.req.id.idiag_dport);
	if (sendto(a->fd, &q, sizeof(q), 0, (struct sockaddr *)&kernel, sizeof(kernel)) !=
	    (ssize_t)sizeof(q))
		return -1;
	return read_answer(a, &q, ret);
}

bool sockend_find(struct sockend_asker *a, int fd, struct sockend *ret)
{
	struct ends x = {0};
	socklen_t n = sizeof(x.ours), k = sizeof(x.theirs);
	int r;

	*ret = (struct sockend){0};
	if (getsockname(fd, (struct sockaddr *)&x.ours, &n) < 0 ||
	    getpeername(fd, (struct sockaddr *)&x.theirs, &k) < 0 ||
	    (x.ours.ss_family != AF_INET && x.ours.ss_family != AF_INET6))
		return false;
	r = a->cannot ? -1 : ask(a, &x, ret);
	if (r < 0)
		a->cannot = true;
	/* Without its part for TCP the kernel says the same as of a pair that is not there. */
	if (r < 0 || (r == 0 && !a->answered))
		return read_tables(&x, ret);
	return r > 0;
}
