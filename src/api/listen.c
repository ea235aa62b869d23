/*
 * listen.c: where the daemon listens.
 *
 * Policy: loopback addresses and unix sockets, unless the daemon itself speaks TLS and every request must prove an actor
 * (tls.h). Else another host reaches the daemon through a proxy that speaks TLS. A unix socket is made with mode 0600 under a name
 * of its own and renamed into place, so it is never there with another mode.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "api/server.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "base/str.h"
#include "engine/state.h"

#define BACKLOG 512
#define LISTEN_FD 3 /* first descriptor of systemd's protocol */

/* `reach`: the same file under a name that fits into an address. */
static int bind_unix(const char *reach, const char *path, struct listen_at *ret, struct err *e)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX}, tmp = {.sun_family = AF_UNIX};
	_cleanup_fd_ int fd = -1, probe = -1;
	struct stat st;

	(void)snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", reach);
	probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (probe >= 0 && connect(probe, (struct sockaddr *)&sa, sizeof(sa)) == 0)
		return err_set(e, ERR_CONFLICT, "somebody listens at unix:%s already", path);
	/* An old socket is replaced; what else lies there is somebody's. */
	if (lstat(reach, &st) == 0 && !S_ISSOCK(st.st_mode))
		return err_set(
		    e, ERR_EXISTS,
		    "unix:%s: there is something that is no socket; move it or listen elsewhere",
		    path);
	(void)snprintf(tmp.sun_path, sizeof(tmp.sun_path), "%.99s.new", reach);
	(void)unlink(tmp.sun_path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || fchmod(fd, 0600) < 0 || bind(fd, (struct sockaddr *)&tmp, sizeof(tmp)) < 0 ||
	    chmod(tmp.sun_path, 0600) < 0 || lstat(tmp.sun_path, &st) < 0 ||
	    listen(fd, BACKLOG) < 0 || rename(tmp.sun_path, reach) < 0)
		return err_sys(e, errno, "listen at unix:%s", path);
	ret->path = strdup(path);
	if (!ret->path)
		return err_set(e, ERR_NOMEM, "listen at unix:%s: out of memory", path);
	ret->dev = st.st_dev;
	ret->ino = st.st_ino;
	(void)snprintf(ret->text, sizeof(ret->text), "unix:%s", path);
	ret->fd = TAKE_FD(fd);
	return 0;
}

static int listen_unix(const char *path, struct listen_at *ret, struct err *e)
{
	size_t room = sizeof(((struct sockaddr_un *)NULL)->sun_path) - 8;

	if (path[0] != '/' || strlen(path) >= room)
		return err_set(
		    e, ERR_INVALID,
		    "unix:%.120s: the path of a socket is absolute and has at most %zu bytes", path,
		    room - 1);
	return bind_unix(path, path, ret, e);
}

int listen_state(const char *dir, struct listen_at *ret, struct err *e)
{
	_cleanup_fd_ int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	_cleanup_free_ char *path = path_join(dir, DAEMON_SOCKET);
	char reach[64];

	*ret = (struct listen_at){.fd = -1};
	if (fd < 0 || !path)
		return err_sys(e, path ? errno : ENOMEM, "listen in %s", dir);
	/* A state directory may have a longer name than an address has room for. */
	(void)snprintf(reach, sizeof(reach), "/proc/self/fd/%d/" DAEMON_SOCKET, fd);
	return bind_unix(reach, path, ret, e);
}

void listen_done(struct listen_at *at)
{
	struct stat st;

	cleanup_fd(&at->fd);
	at->fd = -1;
	/* A daemon that took over while this one stopped has put its own there. */
	if (at->path && lstat(at->path, &st) == 0 && st.st_dev == at->dev && st.st_ino == at->ino)
		(void)unlink(at->path);
	free(at->path);
	at->path = NULL;
}

static bool is_loopback(const struct sockaddr_storage *sa)
{
	const struct sockaddr_in *a4 = (const struct sockaddr_in *)sa;
	const struct sockaddr_in6 *a6 = (const struct sockaddr_in6 *)sa;

	if (sa->ss_family == AF_INET)
		return (ntohl(a4->sin_addr.s_addr) >> 24) == 127;
	return sa->ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&a6->sin6_addr);
}

/* Numbers only: what a name stands for is somebody else's to say. The length, or 0. */
static socklen_t parse_tcp(const char *where, struct sockaddr_storage *ret)
{
	struct sockaddr_in *a4 = (struct sockaddr_in *)ret;
	struct sockaddr_in6 *a6 = (struct sockaddr_in6 *)ret;
	const char *colon = strrchr(where, ':');
	size_t n = colon ? (size_t)(colon - where) : 0;
	char text[INET6_ADDRSTRLEN];
	bool v6 = n > 2 && where[0] == '[' && where[n - 1] == ']';
	uint64_t port;

	if (n == 0 || n - 2 * v6 >= sizeof(text) || str_to_u64(colon + 1, 65535, &port) < 0)
		return 0;
	(void)snprintf(text, sizeof(text), "%.*s", (int)(n - 2 * v6), where + v6);
	*ret = (struct sockaddr_storage){0};
	if (v6) {
		a6->sin6_family = AF_INET6;
		a6->sin6_port = htons((uint16_t)port);
		return inet_pton(AF_INET6, text, &a6->sin6_addr) == 1 ? sizeof(*a6) : 0;
	}
	a4->sin_family = AF_INET;
	a4->sin_port = htons((uint16_t)port);
	return inet_pton(AF_INET, strcmp(text, "localhost") == 0 ? "127.0.0.1" : text,
			 &a4->sin_addr) == 1
		   ? sizeof(*a4)
		   : 0;
}

static unsigned port_of(int fd)
{
	struct sockaddr_storage sa = {0};
	socklen_t len = sizeof(sa);

	if (getsockname(fd, (struct sockaddr *)&sa, &len) < 0)
		return 0;
	return ntohs(sa.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&sa)->sin6_port
					      : ((struct sockaddr_in *)&sa)->sin_port);
}

static int listen_tcp(const char *where, enum listen_how how, struct listen_at *ret, struct err *e)
{
	struct sockaddr_storage sa;
	socklen_t len = parse_tcp(where, &sa);
	_cleanup_fd_ int fd = -1;
	int one = 1;

	if (!len)
		return err_set(
		    e, ERR_INVALID,
		    "--listen %.80s: give 127.0.0.1:PORT, [::1]:PORT or another address as numbers, or "
		    "unix:/PATH",
		    where);
	if (how != LISTEN_FAR && !is_loopback(&sa))
		return err_set(
		    e, ERR_INVALID,
		    "--listen %.80s: other hosts could come that way, so it takes --tls-cert, --tls-key and "
		    "--mode authenticated; or listen at 127.0.0.1 and put a proxy that speaks TLS in front",
		    where);
	fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
	    bind(fd, (struct sockaddr *)&sa, len) < 0 || listen(fd, BACKLOG) < 0)
		return err_sys(e, errno, "listen at %s", where);
	(void)snprintf(ret->text, sizeof(ret->text), "http%s://%.*s:%u",
		       how == LISTEN_PLAIN ? "" : "s", (int)(strrchr(where, ':') - where), where,
		       port_of(fd));
	ret->tcp = true;
	ret->loopback = is_loopback(&sa);
	ret->fd = TAKE_FD(fd);
	return 0;
}

int listen_open(const char *where, enum listen_how how, struct listen_at *ret, struct err *e)
{
	*ret = (struct listen_at){.fd = -1, .loopback = true};
	if (str_starts(where, "unix:") && how != LISTEN_PLAIN)
		return err_set(e, ERR_USAGE,
			       "--tls-cert belongs to an address, not to a unix socket");
	if (str_starts(where, "unix:"))
		return listen_unix(where + 5, ret, e);
	return listen_tcp(where, how, ret, e);
}

int listen_inherited(enum listen_how how, struct listen_at *ret, struct err *e)
{
	const char *pid = getenv("LISTEN_PID"), *fds = getenv("LISTEN_FDS");
	struct sockaddr_storage sa = {0};
	socklen_t len = sizeof(sa);
	uint64_t want = 0, n = 0;
	int type = 0;

	*ret = (struct listen_at){.fd = -1};
	if (!pid || !fds || str_to_u64(pid, INT32_MAX, &want) < 0 || (pid_t)want != getpid())
		return 0;
	if (str_to_u64(fds, 64, &n) < 0 || n != 1)
		return err_set(e, ERR_INVALID,
			       "LISTEN_FDS=%.20s: the socket unit must name exactly one socket",
			       fds);
	/* Our own children must not believe it is theirs. */
	(void)unsetenv("LISTEN_PID");
	(void)unsetenv("LISTEN_FDS");
	(void)unsetenv("LISTEN_FDNAMES");
	len = sizeof(type);
	if (getsockopt(LISTEN_FD, SOL_SOCKET, SO_TYPE, &type, &len) < 0 || type != SOCK_STREAM)
		return err_set(e, ERR_INVALID, "descriptor %d is not a stream socket", LISTEN_FD);
	len = sizeof(sa);
	if (getsockname(LISTEN_FD, (struct sockaddr *)&sa, &len) < 0)
		return err_sys(e, errno, "look at the inherited socket");
	if (sa.ss_family != AF_UNIX && how != LISTEN_FAR && !is_loopback(&sa))
		return err_set(
		    e, ERR_PERMISSION,
		    "the inherited socket listens on an address that is not loopback: "
		    "change ListenStream= of the socket unit, or give --tls-cert, --tls-key "
		    "and --mode authenticated");
	if (fcntl(LISTEN_FD, F_SETFD, FD_CLOEXEC) < 0 || fcntl(LISTEN_FD, F_SETFL, O_NONBLOCK) < 0)
		return err_sys(e, errno, "set up the inherited socket");
	ret->fd = LISTEN_FD;
	ret->tcp = sa.ss_family != AF_UNIX;
	ret->loopback = !ret->tcp || is_loopback(&sa);
	(void)snprintf(ret->text, sizeof(ret->text), "the socket of systemd");
	return 1;
}

int listen_private(int fd, struct err *e)
{
	struct sockaddr_un sa = {0};
	socklen_t len = sizeof(sa) - 1;
	struct stat st;

	if (getsockname(fd, (struct sockaddr *)&sa, &len) < 0)
		return err_sys(e, errno, "look at the inherited socket");
	if (sa.sun_path[0] && stat(sa.sun_path, &st) < 0)
		return err_sys(e, errno, "look at %s", sa.sun_path);
	/* An abstract name has no mode: everybody on this machine can connect. */
	if (!sa.sun_path[0] || (st.st_mode & 077) || (st.st_uid != geteuid() && st.st_uid != 0))
		return err_set(
		    e, ERR_PERMISSION,
		    "others can connect to the inherited socket, and in mode local_trusted whoever "
		    "can is the local board: set SocketMode=0600 and a path in its unit, or take "
		    "--mode authenticated");
	return 0;
}

void listen_notify(const char *path, const char *text)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	size_t n = strlen(path);
	_cleanup_fd_ int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || n >= sizeof(sa.sun_path) || (path[0] != '/' && path[0] != '@'))
		return;
	memcpy(sa.sun_path, path, n);
	if (path[0] == '@')
		sa.sun_path[0] = '\0';
	(void)sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&sa,
		     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
}
