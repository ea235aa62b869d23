#include "api/peer.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

/* What the kernel knows of the other end. */
struct end {
	uid_t uid;
	uint64_t inode; /* 0: no process has it any more */
};

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
static bool find_line(const char *path, const char *theirs, const char *ours, struct end *ret)
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

static bool other_end(int fd, struct end *ret)
{
	struct sockaddr_storage here = {0}, there = {0};
	socklen_t n = sizeof(here), k = sizeof(there);
	char ours[48], theirs[48];

	if (getsockname(fd, (struct sockaddr *)&here, &n) < 0 ||
	    getpeername(fd, (struct sockaddr *)&there, &k) < 0 ||
	    !put_address(&here, ours, sizeof(ours)) || !put_address(&there, theirs, sizeof(theirs)))
		return false;
	if (here.ss_family == AF_INET6)
		return find_line("/proc/self/net/tcp6", theirs, ours, ret);
	if (find_line("/proc/self/net/tcp", theirs, ours, ret))
		return true;
	/* A client whose socket speaks both has its ends in the other table, as mapped addresses. */
	map(theirs, sizeof(theirs));
	map(ours, sizeof(ours));
	return find_line("/proc/self/net/tcp6", theirs, ours, ret);
}

/* --- whose process ------------------------------------------------------------------------ */

static bool has_socket(int fds, uint64_t inode)
{
	DIR *d = fdopendir(fds);
	const struct dirent *at;
	bool found = false;
	char want[40], text[40];

	(void)snprintf(want, sizeof(want), "socket:[%" PRIu64 "]", inode);
	if (!d) {
		(void)close(fds);
		return false;
	}
	while (!found && (at = readdir(d))) {
		ssize_t n = readlinkat(dirfd(d), at->d_name, text, sizeof(text) - 1);

		if (n > 0) {
			text[n] = '\0';
			found = strcmp(text, want) == 0;
		}
	}
	(void)closedir(d);
	return found;
}

/* 1: a process of our own user namespace has that socket and none of another one; 0: not so. */
static bool owner_outside(uint64_t inode, uid_t uid)
{
	struct stat own, st;
	DIR *d = stat("/proc/self/ns/user", &own) == 0 ? opendir("/proc") : NULL;
	bool outside = false, inside = false;
	const struct dirent *at;
	char path[64];

	while (d && !inside && (at = readdir(d))) {
		int fds;

		if (!isdigit((unsigned char)at->d_name[0]))
			continue;
		(void)snprintf(path, sizeof(path), "/proc/%.16s", at->d_name);
		if (stat(path, &st) < 0 || (st.st_uid != uid && st.st_uid != 0))
			continue;
		(void)snprintf(path, sizeof(path), "/proc/%.16s/fd", at->d_name);
		fds = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fds < 0 || !has_socket(fds, inode))
			continue;
		(void)snprintf(path, sizeof(path), "/proc/%.16s/ns/user", at->d_name);
		if (stat(path, &st) == 0 && st.st_dev == own.st_dev && st.st_ino == own.st_ino)
			outside = true;
		else
			inside = true;
	}
	if (d)
		(void)closedir(d);
	return outside && !inside;
}

static bool judge(int fd, const struct peer_users *more)
{
	uid_t self = geteuid();
	struct end end = {0};

	if (!other_end(fd, &end) || !end.inode)
		return false;
	/* A sandbox that root started has a number of its own outside, and none of its processes is ever host root. */
	if (end.uid == 0)
		return true;
	if (end.uid == self)
		return owner_outside(end.inode, self);
	for (size_t i = 0; i < more->n; i++)
		if (end.uid == more->uid[i])
			/* Only root sees which namespace another user's process is in. */
			return self != 0 || owner_outside(end.inode, end.uid);
	return false;
}

bool peer_trusted(struct peer *p, const struct peer_users *more)
{
	struct sockaddr_storage sa = {0};
	socklen_t n = sizeof(sa);

	if (p->state == PEER_UNKNOWN) {
		if (getsockname(p->fd, (struct sockaddr *)&sa, &n) == 0 && sa.ss_family == AF_UNIX)
			p->state = PEER_TRUSTED;
		else
			p->state = judge(p->fd, more) ? PEER_TRUSTED : PEER_STRANGER;
	}
	return p->state == PEER_TRUSTED;
}
