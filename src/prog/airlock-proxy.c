/*
 * airlock-proxy: the network of a sandbox that has an allow-list, and nothing else.
 *
 * Started by airlock with a channel as standard input; everything else comes over it (bridge/proxy_proto.h). It takes
 * no arguments (but --version) and reads no environment of its own.
 */
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/nodump.h"
#include "base/version.h"
#include "bridge/proxy.h"

int main(int argc, char **argv)
{
	struct stat st;

	nodump();
	if (version_asked(argc, argv, "airlock-proxy", AIRLOCK_VERSION))
		return 0;
	if (fstat(STDIN_FILENO, &st) < 0 || !S_ISSOCK(st.st_mode)) {
		(void)fprintf(stderr, "airlock-proxy: a helper of airlock, not started by hand\n");
		return 2;
	}
	(void)signal(SIGPIPE, SIG_IGN);
	return proxy_serve(STDIN_FILENO) < 0 ? 1 : 0;
}
