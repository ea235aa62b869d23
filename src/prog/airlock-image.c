/*
 * airlock-image: makes a system image of an archive, below one new directory, and nothing else.
 *
 * Started by airlock with a channel as standard input; everything else comes over it as
 * descriptors (sync/image_proto.h). It takes no arguments (but --version) and reads no environment.
 */
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/version.h"
#include "sync/image_server.h"

int main(int argc, char **argv)
{
	struct stat st;

	if (version_asked(argc, argv, "airlock-image", AIRLOCK_VERSION))
		return 0;
	if (fstat(STDIN_FILENO, &st) < 0 || !S_ISSOCK(st.st_mode)) {
		(void)fprintf(stderr, "airlock-image: a helper of airlock, not started by hand\n");
		return 2;
	}
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGXFSZ, SIG_IGN);
	return image_serve(STDIN_FILENO) < 0 ? 1 : 0;
}
