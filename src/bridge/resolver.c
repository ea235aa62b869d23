/*
 * Policy: this process sees names that the allow-list let through and what name servers say about them. Whatever it is
 * talked into, it can read the system's configuration and speak on sockets, and its answers are judged as addresses by
 * its parent. Not done: DNSSEC; a lying name server can name any public address, TLS has to notice.
 */
#include "bridge/resolver.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "os/confine.h"
#include "os/seccomp.h"

#define NOBODY 65534

struct question {
	uint32_t id;
	char host[NET_HOST_MAX + 1];
};

/* What getaddrinfo may need: configuration, libraries to load, the sockets and caches of name services. */
static const char *const readable[] = {
    "/etc",
    "/usr",
    "/lib",
    "/lib64",
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager",
    "/run/nscd",
    "/var/run/nscd",
    "/var/lib/sss",
    "/var/db",
    "/nix/store",
};

static void look_up(int fd, const struct question *q)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
	struct resolver_answer a = {.id = q->id};
	struct addrinfo *list = NULL;

	if (getaddrinfo(q->host, NULL, &hints, &list) != 0)
		list = NULL;
	for (struct addrinfo *i = list; i && a.n < RESOLVER_ADDRS_MAX; i = i->ai_next) {
		struct netaddr *to = &a.addrs[a.n];

		if (i->ai_family == AF_INET) {
			memcpy(to->b, &((struct sockaddr_in *)(void *)i->ai_addr)->sin_addr, 4);
		} else if (i->ai_family == AF_INET6) {
			to->v6 = true;
			memcpy(to->b, &((struct sockaddr_in6 *)(void *)i->ai_addr)->sin6_addr, 16);
		} else {
			continue;
		}
		a.n++;
	}
	if (list)
		freeaddrinfo(list);
	(void)send(fd, &a, sizeof(a), MSG_NOSIGNAL);
}

static int confine(bool without_landlock, bool without_seccomp)
{
	struct confine_path paths[ARRAY_LEN(readable)];
	const uint16_t dns = 53;
	struct confine_opts o = {.paths = paths,
				 .data_max = 64 << 20,
				 .nofile_max = 64,
				 .connect_ports = &dns,
				 .connect_ports_len = 1,
				 .without = CONFINE_NO_SECCOMP |
					    (without_landlock ? CONFINE_NO_LANDLOCK : 0)};
	struct err e = ERR_INIT;
	int r;

	for (size_t i = 0; i < ARRAY_LEN(readable); i++) {
		int fd = open(readable[i], O_PATH | O_DIRECTORY | O_CLOEXEC);

		if (fd >= 0)
			paths[o.paths_len++] = (struct confine_path){fd, CONFINE_READ};
	}
	/* Safe because: it gives up an identity. A name service's socket that only root may use is none of its business. */
	if (geteuid() == 0 && (setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
			       setresuid(NOBODY, NOBODY, NOBODY) < 0))
		return -errno;
	r = confine_self(&o, &e);
	for (size_t i = 0; i < o.paths_len; i++)
		(void)close(paths[i].fd);
	return r == 0 && !without_seccomp ? seccomp_install_guest() : r;
}

static _Noreturn void serve(int fd)
{
	struct question q;
	ssize_t n;

	while ((n = recv(fd, &q, sizeof(q), 0)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n != sizeof(q) || memchr(q.host, 0, sizeof(q.host)) == NULL)
			_exit(1);
		switch (fork()) {
		case 0:
			(void)alarm(RESOLVER_TRY_MS / 1000 + 5);
			look_up(fd, &q);
			_exit(0);
		case -1: {
			const struct resolver_answer none = {.id = q.id};

			(void)send(fd, &none, sizeof(none), MSG_NOSIGNAL);
		}
		}
	}
	_exit(0);
}

int resolver_start(bool without_landlock, bool without_seccomp, int *ret_fd, struct err *e)
{
	int sv[2], fl, status = 0;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
		return err_sys(e, errno, "channel to the resolver");
	pid = fork();
	if (pid == 0) {
		/* A parent that dies closes its end, which ends this one. */
		if (dup2(sv[1], 3) != 3 || close_range(4, ~0U, 0) < 0)
			_exit(1);
		for (int i = 0; i < 3; i++)
			(void)close(i);
		(void)open("/dev/null", O_RDWR);
		(void)dup2(0, 1);
		(void)dup2(0, 2);
		/* Children of this process are reaped by the kernel. */
		(void)signal(SIGCHLD, SIG_IGN);
		/* The whole name is the name: with a search list NAME.DOMAIN would answer for a NAME that does not exist. */
		if (setenv("LOCALDOMAIN", "", 1) < 0 ||
		    confine(without_landlock, without_seccomp) < 0 ||
		    send(3, "", 1, MSG_NOSIGNAL) != 1)
			_exit(1);
		serve(3);
	}
	(void)close(sv[1]);
	if (pid < 0 || recv(sv[0], &status, 1, 0) != 1) {
		(void)close(sv[0]);
		return err_set(e, ERR_UNAVAILABLE, "the resolver does not start");
	}
	fl = fcntl(sv[0], F_GETFL);
	(void)fcntl(sv[0], F_SETFL, fl | O_NONBLOCK);
	*ret_fd = sv[0];
	return 0;
}

int resolver_ask(int fd, uint32_t id, const char *host)
{
	struct question q = {.id = id};

	(void)snprintf(q.host, sizeof(q.host), "%s", host);
	return send(fd, &q, sizeof(q), MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(q) ? 0 : -EAGAIN;
}

int resolver_take(int fd, struct resolver_answer *ret)
{
	ssize_t n = recv(fd, ret, sizeof(*ret), MSG_DONTWAIT);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? -EAGAIN : -errno;
	if (n != sizeof(*ret) || ret->n > RESOLVER_ADDRS_MAX)
		return -EPIPE;
	return 0;
}
