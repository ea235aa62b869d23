#include "bridge/policy_load.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/limits.h"

bool policy_word_is_file(const char *word)
{
	size_t n = strlen(word);

	return strchr(word, '/') || (n > 5 && strcmp(word + n - 5, ".json") == 0);
}

static int check(const char *path, const struct stat *st, struct err *e)
{
	if (!S_ISREG(st->st_mode))
		return err_set(e, ERR_INVALID, "policy %.200s: not a regular file", path);
	/* Whoever can write the rules is above them. */
	if (st->st_mode & S_IWOTH)
		return err_set(e, ERR_PERMISSION,
			       "policy %.200s: everybody can write it: chmod o-w first", path);
	if (st->st_size > CONFIG_MAX)
		return err_set(e, ERR_LIMIT, "policy %.200s: a policy may have %d bytes", path,
			       CONFIG_MAX);
	return 0;
}

int policy_read(const char *path, struct buf *text, struct err *e)
{
	/* Not to wait for the other side of a FIFO. */
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, errno, "policy %.200s", path);
	r = check(path, &st, e);
	while (r == 0) {
		char part[16384];
		ssize_t n = read(fd, part, sizeof(part));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_sys(e, errno, "policy %.200s", path);
		if (n == 0)
			break;
		if (buf_put(text, part, (size_t)n) < 0)
			r = err_set(e, ERR_LIMIT, "policy %.200s: a policy may have %d bytes", path,
				    CONFIG_MAX);
	}
	return r;
}

int policy_load(const char *word, struct bridge_policy **ret, struct err *e)
{
	_cleanup_buf_ struct buf text = BUF_INIT(CONFIG_MAX);
	int r;

	if (!policy_word_is_file(word))
		return bridge_policy_builtin(word, ret, e);
	r = policy_read(word, &text, e);
	return r < 0 ? r : bridge_policy_parse(word, buf_text(&text), text.len, ret, e);
}
