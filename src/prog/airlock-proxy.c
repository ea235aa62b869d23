/*
 * airlock-proxy: the network of a sandbox that has an allow-list, and nothing else.
 *
 * Started by airlock with a channel as standard input; everything else comes over it (bridge/proxy_proto.h). It takes
 * no arguments (but --version) and reads no environment of its own.
 */

#include "base/nodump.h"
#include "bridge/proxy.h"
#include "prog/helper_main.h"

int main(int argc, char **argv)
{
	int status;

	nodump();
	status = helper_begin(argc, argv, "airlock-proxy", AIRLOCK_VERSION);
	if (status >= 0)
		return status;
	return proxy_serve(STDIN_FILENO) < 0 ? 1 : 0;
}
