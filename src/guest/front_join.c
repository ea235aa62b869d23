/*
 * Policy: who joins must be of this account, and know 32 bytes that were drawn for this session; they are compared in a time that tells nothing. What
 * comes is one message of fixed size with two descriptors, or nothing. Not done here: who may reach the socket (the directory), whether the
 * figure that comes with it is possible (os/mux.h).
 */
#include "guest/front_join.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "guest/front_place.h"
#include "wire/remote.h"

#define ANSWER_S 10 /* the other one's loop may be busy */
#define BACKLOG 4

struct joins {
	uint8_t token[RM_TOKEN];
	uint64_t came;
};

void front_join_init(struct front_join *j)
{
	*j = (struct front_join){.dir = -1, .listen = -1, .asks = -1, .carrier = -1};
}

/* The name alone: a whole path may be longer than a socket's address. 0 or negative errno. */
static int at_name(int dir, int fd, const char *name,
		   int (*call)(int, const struct sockaddr *, socklen_t))
{
	_cleanup_fd_ int here = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int r;

	(void)snprintf(a.sun_path, sizeof(a.sun_path), "%s", name);
	if (here < 0 || fchdir(dir) < 0)
		return -errno;
	r = call(fd, (const struct sockaddr *)&a, sizeof(a)) < 0 ? -errno : 0;
	return fchdir(here) < 0 && r == 0 ? -errno : r;
}

static int new_socket(int flags)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0);

	return fd < 0 ? -errno : fd;
}

int front_join_hold(struct front_join *j, int run, const struct rm_hold *m)
{
	_cleanup_fd_ int dir = front_place_join(run, true), fd = -1;
	mode_t before;
	int r;

	if (dir < 0)
		return dir;
	fd = new_socket(SOCK_NONBLOCK);
	if (fd < 0)
		return fd;
	before = umask(0177);
	r = at_name(dir, fd, m->id, bind);
	(void)umask(before);
	if (r == 0 && listen(fd, BACKLOG) < 0) {
		r = -errno;
		(void)unlinkat(dir, m->id, 0);
	}
	if (r < 0)
		return r;
	j->hold = *m;
	j->dir = TAKE_FD(dir);
	j->listen = TAKE_FD(fd);
	return 0;
}

void front_join_poll(const struct front_join *j, struct pollfd *v)
{
	v[0] = (struct pollfd){.fd = j->listen, .events = POLLIN};
	v[1] = (struct pollfd){.fd = j->asks, .events = POLLIN};
}

/* Who comes later is as good: one that says nothing keeps nobody out. The session goes on all the same: who is put off may come again. */
static void greet(struct front_join *j)
{
	struct ucred who;
	socklen_t n = sizeof(who);
	_cleanup_fd_ int fd = accept4(j->listen, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) < 0 || who.uid != geteuid())
		return;
	if (j->asks >= 0)
		front_join_answer(j, EAGAIN);
	j->asks = TAKE_FD(fd);
}

static bool same_token(const uint8_t *a, const uint8_t *b)
{
	volatile uint8_t differ = 0;

	for (size_t i = 0; i < RM_TOKEN; i++)
		differ |= (uint8_t)(a[i] ^ b[i]);
	return differ == 0;
}

/* Bytes and descriptors of one message. */
static ssize_t take(int fd, struct joins *said, int fds[2])
{
	char room[CMSG_SPACE(2 * sizeof(int))];
	struct iovec v = {said, sizeof(*said)};
	struct msghdr m = {
	    .msg_iov = &v, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)};
	ssize_t n = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct cmsghdr *c = n < 0 ? NULL : CMSG_FIRSTHDR(&m);

	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		memcpy(fds, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
	return m.msg_flags & (MSG_TRUNC | MSG_CTRUNC) ? 0 : n;
}

bool front_join_hear(struct front_join *j, const struct pollfd *v, struct front_stream *ret)
{
	int fds[2] = {-1, -1};
	struct joins said;
	bool fits;
	ssize_t n;

	if (v[1].revents && v[1].fd == j->asks) {
		n = take(j->asks, &said, fds);
		fits = n == (ssize_t)sizeof(said) && same_token(said.token, j->hold.token) &&
		       fds[0] >= 0 && fds[1] >= 0;
		if (fits) {
			*ret = (struct front_stream){fds[0], fds[1], said.came};
			return true;
		}
		cleanup_fd(&fds[0]);
		cleanup_fd(&fds[1]);
		if (n >= 0 || (errno != EAGAIN && errno != EINTR))
			cleanup_fd(&j->asks);
	}
	if (v[0].revents)
		greet(j);
	return false;
}

void front_join_answer(struct front_join *j, int error)
{
	uint32_t word = (uint32_t)error;

	(void)send(j->asks, &word, sizeof(word), MSG_NOSIGNAL | MSG_DONTWAIT);
	if (!error) {
		cleanup_fd(&j->carrier);
		j->carrier = TAKE_FD(j->asks);
	}
	cleanup_fd(&j->asks);
}

bool front_join_carried(const struct front_join *j)
{
	struct pollfd p = {.fd = j->carrier};

	return poll(&p, 1, 0) <= 0 || !(p.revents & (POLLERR | POLLHUP));
}

void front_join_done(struct front_join *j)
{
	if (j->listen >= 0)
		(void)unlinkat(j->dir, j->hold.id, 0);
	cleanup_fd(&j->listen);
	cleanup_fd(&j->dir);
	cleanup_fd(&j->asks);
	cleanup_fd(&j->carrier);
}

/* The other side. ---------------------------------------------------------------------------- */

static int give(int fd, const struct joins *say, int in, int out)
{
	union {
		char room[CMSG_SPACE(2 * sizeof(int))];
		struct cmsghdr align;
	} u = {0};
	struct iovec v = {(void *)(uintptr_t)say, sizeof(*say)};
	struct msghdr m = {.msg_iov = &v,
			   .msg_iovlen = 1,
			   .msg_control = u.room,
			   .msg_controllen = sizeof(u.room)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(2 * sizeof(int));
	memcpy(CMSG_DATA(c), (int[]){in, out}, 2 * sizeof(int));
	return sendmsg(fd, &m, MSG_NOSIGNAL) == (ssize_t)sizeof(*say) ? 0 : -errno;
}

/* The word of who waited. Its end without one says nothing of whether it still waits. */
static int hear_answer(int fd)
{
	uint32_t word;
	ssize_t n = recv(fd, &word, sizeof(word), 0);

	if (n < 0)
		return errno == EAGAIN ? -ETIMEDOUT : -errno;
	return n == (ssize_t)sizeof(word) ? -(int)(word & 0xfff) : -ECONNRESET;
}

int front_join_bring(const struct rm_attach *m, int in, int out, char *what)
{
	_cleanup_fd_ int run = front_place_find(m->place.root, m->place.lease), dir = -1, fd = -1;
	const struct timeval patience = {.tv_sec = ANSWER_S};
	struct joins say = {.came = m->came};
	int r = run;

	(void)snprintf(what, RM_WHAT_MAX + 1, "find the session that waited in run %.64s",
		       m->place.lease);
	if (r >= 0)
		r = dir = front_place_join(run, false);
	if (r >= 0)
		r = fd = new_socket(0);
	if (r < 0)
		return r;
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	memcpy(say.token, m->hold.token, RM_TOKEN);
	r = at_name(dir, fd, m->hold.id, connect);
	if (r == 0)
		r = give(fd, &say, in, out);
	if (r == 0)
		r = hear_answer(fd);
	explicit_bzero(&say, sizeof(say));
	return r < 0 ? r : TAKE_FD(fd);
}

void front_join_stay(int fd, int sigfd)
{
	struct pollfd p[2] = {{.fd = fd, .events = POLLIN}, {.fd = sigfd, .events = POLLIN}};
	struct signalfd_siginfo si;

	for (;;) {
		if (poll(p, 2, -1) < 0 && errno != EINTR)
			return;
		if (p[0].revents)
			return;
		if (p[1].revents && read(sigfd, &si, sizeof(si)) == (ssize_t)sizeof(si) &&
		    si.ssi_signo != SIGCHLD)
			return;
	}
}
