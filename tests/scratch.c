#include "scratch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char *made[1024];
static size_t made_len;
static pid_t maker;

/* The modes first: an overlay's own directory has none, and an ordinary user could not walk it. */
void scratch_remove(const char *path)
{
	static const char script[] = "chmod -R u+rwX \"$1\" 2>/dev/null; rm -rf \"$1\"";
	struct stat st;
	pid_t pid = lstat(path, &st) == 0 ? fork() : -1;

	if (pid == 0) {
		(void)execl("/bin/sh", "sh", "-c", script, "sh", path, (char *)NULL);
		_exit(127);
	}
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

static void remove_made(void)
{
	if (getpid() != maker)
		return;
	for (size_t i = 0; i < made_len; i++) {
		scratch_remove(made[i]);
		free(made[i]);
	}
}

char *scratch_dir(char *template)
{
	if (made_len == sizeof(made) / sizeof(made[0])) {
		errno = ENOSPC;
		return NULL;
	}
	if (!mkdtemp(template))
		return NULL;
	/* What a child makes is the child's: the parent's list is not seen there by anybody else. */
	if (maker != getpid()) {
		maker = getpid();
		made_len = 0;
		if (atexit(remove_made)) {
			(void)rmdir(template);
			return NULL;
		}
	}
	made[made_len] = strdup(template);
	if (!made[made_len]) {
		(void)rmdir(template);
		return NULL;
	}
	made_len++;
	return template;
}
