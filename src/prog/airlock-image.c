/*
 * airlock-image: makes a system image of an archive, below one new directory, and nothing else.
 *
 * Started by airlock with a channel as standard input; everything else comes over it as
 * descriptors (sync/image_proto.h). It takes no arguments (but --version) and reads no environment.
 */
#include <signal.h>

#include "prog/helper_main.h"
#include "sync/image_server.h"

int main(int argc, char **argv)
{
	int status = helper_begin(argc, argv, "airlock-image", AIRLOCK_VERSION);

	if (status >= 0)
		return status;
	(void)signal(SIGXFSZ, SIG_IGN);
	return image_serve(STDIN_FILENO) < 0 ? 1 : 0;
}
