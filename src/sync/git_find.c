#include "sync/git_find.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/path.h"
#include "base/str.h"

#define POINTER_MAX (PATH_MEMBER_MAX + 64)

char *git_find_slurp(const char *dir, const char *name, size_t max)
{
	_cleanup_free_ char *path = path_join(dir, name);
	_cleanup_fd_ int fd = -1;
	_cleanup_free_ char *text = NULL;
	struct stat st;
	ssize_t n;

	if (!path)
		return NULL;
	/* O_NONBLOCK: a FIFO under that name must not hold us. */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > (off_t)max)
		return NULL;
	text = calloc(1, max + 1);
	if (!text)
		return NULL;
	n = read(fd, text, max);
	if (n < 0)
		return NULL;
	while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'))
		text[--n] = '\0';
	return strlen(text) == (size_t)n ? TAKE_PTR(text) : NULL;
}

static bool is_dir(const char *base, const char *name)
{
	_cleanup_free_ char *p = path_join(base, name);
	struct stat st;

	return p && stat(p, &st) == 0 && S_ISDIR(st.st_mode);
}

/* What git itself asks of a directory before it believes in it. */
static bool looks_like_repo(const char *git_dir, const char *common)
{
	_cleanup_free_ char *head = git_find_slurp(git_dir, "HEAD", POINTER_MAX);

	return head && *head && is_dir(common, "objects") && is_dir(common, "refs");
}

static char *real_from(const char *base, const char *target)
{
	_cleanup_free_ char *joined = NULL;

	if (target[0] == '/')
		return realpath(target, NULL);
	joined = path_join(base, target);
	return joined ? realpath(joined, NULL) : NULL;
}

/* The admin folder of a linked work tree names its work tree's .git file: both ends agree. */
static bool worktree_agrees(const char *dir, const char *admin, const char *common)
{
	_cleanup_free_ char *back = git_find_slurp(admin, "gitdir", POINTER_MAX);
	_cleanup_free_ char *mine = path_join(dir, ".git");
	_cleanup_free_ char *registry = path_join(common, "worktrees");
	_cleanup_free_ char *real = back ? real_from(admin, back) : NULL;
	const char *slash = strrchr(admin, '/');

	return real && mine && registry && strcmp(real, mine) == 0 &&
	       (size_t)(slash - admin) == strlen(registry) &&
	       strncmp(admin, registry, strlen(registry)) == 0;
}

/* "worktree = X" in [core] of a config that git wrote: plain lines, no includes followed. */
static char *config_worktree(const char *git_dir)
{
	_cleanup_free_ char *text = git_find_slurp(git_dir, "config", CONFIG_MAX);
	char *save = NULL, *line;
	bool core = false;

	if (!text)
		return NULL;
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		line += strspn(line, " \t");
		if (*line == '[')
			core = strncasecmp(line, "[core]", 6) == 0;
		if (!core || strncasecmp(line, "worktree", 8) != 0)
			continue;
		line += 8;
		line += strspn(line, " \t");
		if (*line != '=')
			continue;
		line++;
		line += strspn(line, " \t");
		if (*line == '"') {
			char *end = strrchr(++line, '"');

			if (end)
				*end = '\0';
		}
		return strdup(line);
	}
	return NULL;
}

static bool submodule_agrees(const char *dir, const char *git_dir)
{
	_cleanup_free_ char *named = config_worktree(git_dir);
	_cleanup_free_ char *real = named ? real_from(git_dir, named) : NULL;

	return real && strcmp(real, dir) == 0;
}

static int follow_pointer(const char *dir, char **ret_git_dir, char **ret_common)
{
	_cleanup_free_ char *text = git_find_slurp(dir, ".git", POINTER_MAX);
	_cleanup_free_ char *git_dir = NULL, *common_text = NULL, *common = NULL;

	if (!text || !str_starts(text, "gitdir: "))
		return -EPERM;
	git_dir = real_from(dir, text + 8);
	if (!git_dir)
		return -EPERM;
	common_text = git_find_slurp(git_dir, "commondir", POINTER_MAX);
	common = common_text ? real_from(git_dir, common_text) : strdup(git_dir);
	if (!common || !looks_like_repo(git_dir, common))
		return -EPERM;
	if (common_text ? !worktree_agrees(dir, git_dir, common) : !submodule_agrees(dir, git_dir))
		return -EPERM;
	*ret_git_dir = TAKE_PTR(git_dir);
	*ret_common = TAKE_PTR(common);
	return 1;
}

int git_find_at(const char *dir, char **ret_git_dir, char **ret_common)
{
	_cleanup_free_ char *dot = path_join(dir, ".git");
	_cleanup_free_ char *real = NULL, *common = NULL;
	struct stat st;

	if (!dot)
		return -ENOMEM;
	if (lstat(dot, &st) < 0)
		return errno == ENOENT || errno == ENOTDIR ? 0 : -EPERM;
	if (S_ISREG(st.st_mode))
		return follow_pointer(dir, ret_git_dir, ret_common);
	/* A .git that is a link to a directory proves nothing about where it leads. */
	if (!S_ISDIR(st.st_mode))
		return -EPERM;
	real = realpath(dot, NULL);
	common = real ? strdup(real) : NULL;
	if (!common)
		return -ENOMEM;
	/* As git has it: a .git folder without HEAD, objects and refs is no repository. */
	if (!looks_like_repo(real, common))
		return 0;
	*ret_git_dir = TAKE_PTR(real);
	*ret_common = TAKE_PTR(common);
	return 1;
}

char *git_find_program(const char *outside)
{
	const char *path = getenv("PATH"), *p;

	for (p = path ? path : "/usr/local/bin:/usr/bin:/bin"; *p;) {
		size_t n = strcspn(p, ":");
		_cleanup_free_ char *dir = strndup(p, n);
		_cleanup_free_ char *file = dir ? path_join(dir, "git") : NULL;
		_cleanup_free_ char *real = file ? realpath(file, NULL) : NULL;

		/* Relative words of PATH and what lies in the workspace are not ours to run. */
		if (dir && dir[0] == '/' && real && !path_is_within(real, outside) &&
		    access(file, X_OK) == 0)
			return TAKE_PTR(file);
		p += n + (p[n] == ':' ? 1 : 0);
	}
	return NULL;
}
