/*
 * helper_main.h: how a helper begins that airlock starts with a channel as its standard input.
 */
#ifndef AIRLOCK_PROG_HELPER_MAIN_H
#define AIRLOCK_PROG_HELPER_MAIN_H

#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/version.h"

/* -1: it is to serve STDIN_FILENO, and a peer that has gone is an error there, no signal. Else what to exit with. */
static inline int helper_begin(int argc, char **argv, const char *program, const char *version)
{
	struct stat st;

	if (version_asked(argc, argv, program, version))
		return 0;
	if (fstat(STDIN_FILENO, &st) < 0 || !S_ISSOCK(st.st_mode)) {
		(void)fprintf(stderr, "%s: a helper of airlock, not started by hand\n", program);
		return 2;
	}
	(void)signal(SIGPIPE, SIG_IGN);
	return -1;
}

#endif
