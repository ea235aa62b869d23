/*
 * airlock-try: tries one layer of a sandbox and answers with what it found.
 *
 * Started by airlock when a sandbox could not be made: with nothing secret in memory, argv or environment, for its
 * children can be looked into by whoever has the same user (os/probe_apart.c).
 */
#include "base/version.h"
#include "os/probe.h"

int main(int argc, char **argv)
{
	if (version_asked(argc, argv, "airlock-try", AIRLOCK_VERSION))
		return 0;
	return probe_serve(argc, argv);
}
