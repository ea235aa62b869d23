#include "cli/daemonpeer.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "os/sockend.h"

#define SERVICE_USER "airlock"
#define LOOK_MS 2

static bool may_answer(uid_t uid)
{
	const char *name = getenv("AIRLOCK_DAEMON_USER");
	const struct passwd *p = getpwnam(name && name[0] ? name : SERVICE_USER);
	uint64_t number;

	if (uid == geteuid() || uid == 0 || (p && uid == p->pw_uid))
		return true;
	return !p && name && str_to_u64(name, UINT32_MAX - 1, &number) == 0 && uid == number;
}

static int refuse(const char *where, uid_t uid, struct err *e)
{
	return err_set(e, ERR_PERMISSION,
		       "at %s answers a process of user %u: nothing was sent to it. If that is the "
		       "daemon's user, say so: AIRLOCK_DAEMON_USER=%u",
		       where, (unsigned)uid, (unsigned)uid);
}

static bool has_socket(int fds, uint64_t inode)
{
	_cleanup_dir_ DIR *d = fdopendir(fds);
	const struct dirent *at;
	char want[48], text[48];

	if (!d) {
		(void)close(fds);
		return true;
	}
	(void)snprintf(want, sizeof(want), "socket:[%llu]", (unsigned long long)inode);
	while ((at = readdir(d))) {
		ssize_t n = readlinkat(dirfd(d), at->d_name, text, sizeof(text) - 1);

		if (n > 0 && (size_t)n == strlen(want) && memcmp(text, want, (size_t)n) == 0)
			return true;
	}
	return false;
}

static bool ns_of(const char *pid, const char *kind, struct stat *st)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/%.16s/ns/%s", pid, kind);
	return stat(path, st) == 0;
}

/*
 * Whether a process of another user namespace has the socket, or could: what is below a namespace of ours shows its
 * namespaces to us even if it hides its descriptors, and what hides both is outside (a daemon with a key does that).
 */
static bool is_inside(uint64_t inode)
{
	_cleanup_dir_ DIR *d = opendir("/proc");
	struct stat own_user, own_net, st;
	const struct dirent *at;

	if (!d || !ns_of("self", "user", &own_user) || !ns_of("self", "net", &own_net))
		return true;
	while ((at = readdir(d))) {
		char path[64];
		int fds;

		if (!isdigit((unsigned char)at->d_name[0]) || !ns_of(at->d_name, "user", &st) ||
		    (st.st_dev == own_user.st_dev && st.st_ino == own_user.st_ino))
			continue;
		(void)snprintf(path, sizeof(path), "/proc/%.16s/fd", at->d_name);
		fds = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fds >= 0 && has_socket(fds, inode))
			return true;
		if (fds < 0 && errno == EACCES && ns_of(at->d_name, "net", &st) &&
		    st.st_dev == own_net.st_dev && st.st_ino == own_net.st_ino)
			return true;
	}
	return false;
}

static int check_tcp(int fd, const char *where, int64_t until_ns, struct err *e)
{
	struct sockend_asker asker = {.fd = -1};
	struct sockend end;
	bool there;

	/* Before it is accepted it has no owner, which the kernel tells as 0. */
	while ((there = sockend_find(&asker, fd, &end)) && !end.inode && clock_mono_ns() < until_ns)
		(void)poll(NULL, 0, LOOK_MS);
	sockend_done(&asker);
	if (!there || !end.inode)
		return err_set(e, ERR_UNAVAILABLE,
			       there ? "nobody takes up the connection to the daemon at %s"
				     : "who is at %s went away, or is not on this machine: nothing "
				       "was sent to it",
			       where);
	if (!may_answer(end.uid))
		return refuse(where, end.uid, e);
	if (end.uid != 0 && end.uid == geteuid() && is_inside(end.inode))
		return err_set(e, ERR_PERMISSION,
			       "at %s answers, or may answer, a process in a sandbox: nothing was "
			       "sent to it. Let the daemon listen at unix:/PATH",
			       where);
	return 0;
}

int daemonpeer_check(int fd, const char *where, int64_t until_ns, struct err *e)
{
	struct sockaddr_storage sa = {0};
	struct ucred cred = {0};
	socklen_t n = sizeof(sa), k = sizeof(cred);

	if (getsockname(fd, (struct sockaddr *)&sa, &n) < 0)
		return err_sys(e, errno, "look at the connection to %s", where);
	if (sa.ss_family != AF_UNIX)
		return check_tcp(fd, where, until_ns, e);
	/* Of who listens, at the time when it began to. */
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &k) < 0)
		return err_sys(e, errno, "ask whose %s is", where);
	return may_answer(cred.uid) ? 0 : refuse(where, cred.uid, e);
}
