#include "guest/spawn.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"

/* What a shell assumes when the environment has no PATH. */
#define PATH_DEFAULT "/usr/local/bin:/usr/bin:/bin"

struct job {
	const struct gm_exec *x;
	const int *fds;
	bool tty;
	const char *path;
	char **shell_argv; /* for a script without "#!": /bin/sh, file, arguments */
	/* Written by the child in shared memory. */
	volatile int error;
	const char *volatile step;
};

static const char *env_path(char *const *env)
{
	for (; *env; env++)
		if (str_starts(*env, "PATH="))
			return *env + 5;
	return PATH_DEFAULT;
}

static int try_exec(const struct job *j, char *file)
{
	(void)execve(file, j->x->argv, j->x->env);
	if (errno != ENOEXEC)
		return errno;
	j->shell_argv[1] = file;
	(void)execve("/bin/sh", j->shell_argv, j->x->env);
	return errno;
}

/* As execvp: EACCES is remembered and the search goes on; any other surprise ends it. */
static int search(const struct job *j)
{
	char file[PATH_MAX + NAME_MAX + 2];
	char *name = j->x->argv[0];
	size_t len = strlen(name);
	bool denied = false;

	if (!len)
		return ENOENT;
	if (memchr(name, '/', len))
		return try_exec(j, name);
	if (len > NAME_MAX)
		return ENAMETOOLONG;
	for (const char *p = j->path, *end;; p = end + 1) {
		size_t dir;
		int e;

		end = strchrnul(p, ':');
		dir = (size_t)(end - p);
		if (dir < PATH_MAX) {
			/* An empty element is the current directory. */
			memcpy(file, p, dir);
			if (dir)
				file[dir++] = '/';
			memcpy(file + dir, name, len + 1);
			e = try_exec(j, file);
			if (e == EACCES)
				denied = true;
			else if (e != ENOENT && e != ENOTDIR && e != ENAMETOOLONG && e != ELOOP &&
				 e != ESTALE && e != ENODEV && e != ETIMEDOUT)
				return e;
		}
		if (!*end)
			return denied ? EACCES : ENOENT;
	}
}

/* In the child. System calls and the stack only: the memory is the parent's. */
static void run(struct job *j)
{
	sigset_t none;

	(void)setsid();
	j->step = "terminal";
	if (j->tty && ioctl(j->fds[0], TIOCSCTTY, 0) < 0)
		goto out;
	j->step = "descriptors";
	for (int i = 0; i < 3; i++)
		if (dup2(j->fds[i], i) < 0)
			goto out;
	/* A kernel before 5.9 lacks the call; every descriptor is close-on-exec all the same. */
	(void)syscall(SYS_close_range, 3u, ~0u, 0u);
	j->step = "chdir";
	if (chdir(j->x->cwd) < 0)
		goto out;
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	j->step = "execve";
	errno = search(j);
out:
	j->error = errno;
}

int spawn_command(const struct gm_exec *x, const int fds[3], bool tty, pid_t *ret_pid,
		  const char **ret_step)
{
	size_t argc = strv_len(x->argv);
	_cleanup_free_ char **shell_argv = calloc(argc + 2, sizeof(*shell_argv));
	struct job j = {.x = x, .fds = fds, .tty = tty, .path = env_path(x->env)};
	static char sh[] = "sh";
	pid_t pid;

	*ret_step = "fork";
	if (!shell_argv)
		return -ENOMEM;
	shell_argv[0] = sh;
	memcpy(shell_argv + 2, x->argv + 1, argc * sizeof(*shell_argv));
	j.shell_argv = shell_argv;
	pid = vfork();
	if (pid == 0) {
		run(&j);
		_exit(127);
	}
	if (pid < 0)
		return -errno;
	if (j.error) {
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
		*ret_step = j.step;
		return -j.error;
	}
	*ret_pid = pid;
	return 0;
}
