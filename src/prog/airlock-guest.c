/*
 * airlock-guest: pid 1 inside a sandbox. Static, so that it starts in any root and before any
 * library of the sandbox is trusted to load.
 * How the launcher starts it: wire/guest.h. With the word "remote" it is the twin on another machine (guest/front.h).
 */
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "base/relro.h"
#include "base/version.h"
#include "guest/front.h"
#include "guest/serve.h"
#include "wire/guest.h"
#include "wire/remote.h"

/* Commands get default signals, whatever the launcher ignored; this process hears SIGCHLD only. */
static void settle_signals(void)
{
	sigset_t all;

	for (int sig = 1; sig < _NSIG; sig++)
		(void)signal(sig, SIG_DFL);
	(void)sigfillset(&all);
	(void)sigprocmask(SIG_SETMASK, &all, NULL);
}

/* 0, 1 and 2 must be taken: a received descriptor below 3 would be overwritten in the command. */
static void fill_standard(void)
{
	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0)
			(void)eventfd(0, 0);
}

int main(int argc, char **argv)
{
	struct pack_place place = {.index = -1};
	bool remote = argc == 2 && strcmp(argv[1], REMOTE_WORD) == 0;

	relro_protect();
	if (version_asked(argc, argv, "airlock-guest", AIRLOCK_VERSION))
		return 0;

	/* Sandbox code of the same user must not read or steer this process with ptrace. */
	(void)prctl(PR_SET_DUMPABLE, 0);
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	settle_signals();
	fill_standard();
	(void)umask(022);
	if (remote)
		return front();
	place.tree = fcntl(GUEST_FD_UPPER, F_GETFD) < 0 ? -1 : GUEST_FD_UPPER;
	(void)fcntl(GUEST_FD_SOCKET, F_SETFD, FD_CLOEXEC);
	if (place.tree >= 0)
		(void)fcntl(place.tree, F_SETFD, FD_CLOEXEC);
	return serve(GUEST_FD_SOCKET, &place);
}
