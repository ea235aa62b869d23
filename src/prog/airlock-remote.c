/*
 * airlock-remote: one session of ssh with a guest on another machine (provider/ssh/link.h).
 *
 * Started by airlock with a channel as standard input; no options but --version, no environment.
 */
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/nodump.h"
#include "base/version.h"
#include "provider/ssh/link.h"

int main(int argc, char **argv)
{
	struct stat st;

	nodump();
	if (version_asked(argc, argv, "airlock-remote", AIRLOCK_VERSION))
		return 0;
	if (fstat(STDIN_FILENO, &st) < 0 || !S_ISSOCK(st.st_mode)) {
		(void)fprintf(stderr, "airlock-remote: a helper of airlock, not started by hand\n");
		return 2;
	}
	(void)signal(SIGPIPE, SIG_IGN);
	return link_serve(STDIN_FILENO) < 0 ? 1 : 0;
}
