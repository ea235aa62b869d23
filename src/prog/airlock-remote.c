/*
 * airlock-remote: one session of ssh with a guest on another machine (provider/ssh/link.h).
 *
 * Started by airlock with a channel as standard input; no options but --version, no environment.
 */

#include "base/nodump.h"
#include "prog/helper_main.h"
#include "provider/ssh/link.h"

int main(int argc, char **argv)
{
	int status;

	nodump();
	status = helper_begin(argc, argv, "airlock-remote", AIRLOCK_VERSION);
	if (status >= 0)
		return status;
	return link_serve(STDIN_FILENO) < 0 ? 1 : 0;
}
