/*
 * version.h: what every program of ours answers to --version.
 *
 * One release, one version: programs that are started by one another compare nothing at run time, so
 * `airlock doctor` asks each for its version. A build whose confinement is off says so.
 */
#ifndef AIRLOCK_BASE_VERSION_H
#define AIRLOCK_BASE_VERSION_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define VERSION_NOTE_UNCONFINED "WITHOUT CONFINEMENT"

#ifdef AIRLOCK_INSECURE_NO_CONFINEMENT
#define VERSION_NOTE " (" VERSION_NOTE_UNCONFINED ": not for use)"
#else
#define VERSION_NOTE ""
#endif

/* True, with the line printed, if --version is the only word. Read before anything else is done. */
static inline bool version_asked(int argc, char **argv, const char *program, const char *version)
{
	if (argc != 2 || strcmp(argv[1], "--version") != 0)
		return false;
	(void)printf("%s %s%s\n", program, version, VERSION_NOTE);
	return true;
}

#endif
