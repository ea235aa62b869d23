/* airlock: the command line. Everything is in cli/. */
#include "base/nodump.h"
#include "cli/cli.h"

int main(int argc, char **argv)
{
	nodump();
	return cli_main(argc, argv);
}
