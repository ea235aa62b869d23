/*
 * airlock-bridge: door 2. Calls one API as one run's agent, for a sandbox, and nothing else. Linked twice: as
 * airlock-bridge for http and unix sockets, as airlock-bridge-tls for https.
 *
 * Started by airlock with a channel as standard input; everything else comes over it
 * (bridge/bridge_proto.h). It takes no arguments (but --version) and reads no environment.
 */
#include <malloc.h>

#include "base/nodump.h"
#include "bridge/host.h"
#include "prog/helper_main.h"

#ifndef PROGRAM
#define PROGRAM "airlock-bridge"
#endif

int main(int argc, char **argv)
{
	int status;

	nodump();
	status = helper_begin(argc, argv, PROGRAM, AIRLOCK_VERSION);
	if (status >= 0)
		return status;
	/* One large body must not stay as this process's size: what is large is mapped, and unmapped again. */
	(void)mallopt(M_MMAP_THRESHOLD, 256 << 10);
	(void)mallopt(M_TRIM_THRESHOLD, 512 << 10);
	return bridge_serve(STDIN_FILENO) < 0 ? 1 : 0;
}
