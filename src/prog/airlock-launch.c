/*
 * airlock-launch: builds one sandbox from a plan, then watches over it.
 *
 * Started by airlock with a socket as descriptor 3; no options, no environment. What it may do and
 * gives up is told in provider/native/launch.h.
 */
#include "provider/native/launch.h"

int main(void)
{
	return launch_main();
}
