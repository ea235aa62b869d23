/*
 * airlock-launch: builds one sandbox from a plan, then watches over it.
 *
 * Started by airlock with a socket as descriptor 3; no options but --version, no environment. What it may do and
 * gives up is told in provider/native/launch.h. With the word "remote" it is on another machine (provider/native/twin.h).
 */
#include <string.h>

#include "base/relro.h"
#include "base/version.h"
#include "provider/native/launch.h"
#include "wire/remote_box.h"

int main(int argc, char **argv)
{
	relro_protect();
	if (version_asked(argc, argv, "airlock-launch", AIRLOCK_VERSION))
		return 0;
	return launch_main(argc == 2 && strcmp(argv[1], LAUNCH_WORD) == 0);
}
