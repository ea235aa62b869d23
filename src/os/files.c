#include "os/files.h"

#include <stdbool.h>
#include <sys/resource.h>

/* A property of the process, set once before anything else runs: as in engine/interrupt.c. */
static struct rlimit before;
static bool raised;

void files_raise(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &before) < 0 || before.rlim_cur >= FILES_NEED)
		return;
	l = before;
	l.rlim_cur = l.rlim_max < FILES_NEED ? l.rlim_max : FILES_NEED;
	raised = setrlimit(RLIMIT_NOFILE, &l) == 0;
}

int files_check(struct err *e)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) < 0 || l.rlim_cur >= FILES_NEED)
		return 0;
	return err_set(
	    e, ERR_UNAVAILABLE,
	    "limit open files: this process may have %llu, a sandbox needs %d; raise it with 'ulimit -n "
	    "%d' or more in the shell or service that starts airlock",
	    (unsigned long long)l.rlim_cur, FILES_NEED, FILES_NEED);
}

void files_restore(void)
{
	if (raised)
		(void)setrlimit(RLIMIT_NOFILE, &before);
}
