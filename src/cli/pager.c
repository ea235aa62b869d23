#include "cli/pager.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"

static const char *choice(void)
{
	const char *p = getenv("AIRLOCK_PAGER");

	p = p ? p : getenv("PAGER");
	p = p ? p : "less";
	return *p && strcmp(p, "cat") != 0 ? p : NULL;
}

static int environment(char ***ret)
{
	int r = 0;

	for (size_t i = 0; r == 0 && environ[i]; i++)
		r = strv_add(ret, environ[i]);
	if (r == 0 && !getenv("LESS"))
		r = strv_add(ret, "LESS=FRX");
	if (r == 0 && !getenv("LV"))
		r = strv_add(ret, "LV=-c");
	return r;
}

void pager_start(struct pager *p, bool wanted)
{
	_cleanup_strv_ char **env = NULL;
	const char *program = choice();
	posix_spawn_file_actions_t fa;
	posix_spawnattr_t at;
	sigset_t pipe_only;
	char *argv[] = {(char *)(uintptr_t) "sh", (char *)(uintptr_t) "-c",
			(char *)(uintptr_t)program, NULL};
	int fds[2];

	*p = (struct pager){.fd = STDOUT_FILENO};
	(void)signal(SIGPIPE, SIG_IGN);
	if (!wanted || !program || !isatty(STDOUT_FILENO) || environment(&env) < 0 ||
	    pipe2(fds, O_CLOEXEC) < 0)
		return;
	if (posix_spawn_file_actions_init(&fa) != 0 || posix_spawnattr_init(&at) != 0) {
		(void)close(fds[0]);
		(void)close(fds[1]);
		return;
	}
	(void)sigemptyset(&pipe_only);
	(void)sigaddset(&pipe_only, SIGPIPE);
	/* In our process group: it reads the same terminal. Ctrl-C is its own business. */
	if (posix_spawn_file_actions_adddup2(&fa, fds[0], STDIN_FILENO) == 0 &&
	    posix_spawnattr_setsigdefault(&at, &pipe_only) == 0 &&
	    posix_spawnattr_setflags(&at, POSIX_SPAWN_SETSIGDEF) == 0 &&
	    posix_spawn(&p->pid, "/bin/sh", &fa, &at, argv, env) == 0) {
		(void)signal(SIGINT, SIG_IGN);
		p->fd = TAKE_FD(fds[1]);
	} else {
		p->pid = 0;
	}
	(void)posix_spawn_file_actions_destroy(&fa);
	(void)posix_spawnattr_destroy(&at);
	(void)close(fds[0]);
	if (fds[1] >= 0)
		(void)close(fds[1]);
}

int pager_write(void *pager, const char *text, size_t n)
{
	const struct pager *p = pager;

	while (n) {
		ssize_t w = write(p->fd, text, n);

		if (w < 0 && errno != EINTR)
			return -errno;
		text += w > 0 ? w : 0;
		n -= w > 0 ? (size_t)w : 0;
	}
	return 0;
}

void pager_end(struct pager *p)
{
	int status;

	if (!p->pid)
		return;
	(void)close(p->fd);
	while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR)
		;
	*p = (struct pager){.fd = STDOUT_FILENO};
}
