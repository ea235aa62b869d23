/* The paths of an index: git lists them while its caller does something else. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "sync/git.h"
#include "sync/git_words.h"

#define INDEX_LIST_MAX (UINT64_C(1) << 30)

struct git_index {
	const struct git_repo *g;
	struct process p;
	struct process_opts io;
	const char *argv[GIT_WORDS_MAX + 1];
	int fd; /* owned: an unnamed file in memory, so git never waits for us */
	bool ready;
	char *map;
	size_t map_len;
	const char **paths; /* owned; into map */
	size_t n;
};

int git_index_start(const struct git_repo *g, struct git_index **ret, struct err *e)
{
	const char *const words[] = {"ls-files", "-z", "--cached", NULL};
	struct git_index *x = calloc(1, sizeof(*x));
	int r;

	if (!x)
		return err_sys(e, ENOMEM, "git ls-files");
	x->g = g;
	x->io = (struct process_opts)PROCESS_OPTS_INIT;
	x->p.pid = -1;
	x->p.in = x->p.out = x->p.err = x->p.pidfd = -1;
	x->fd = memfd_create("git-index", MFD_CLOEXEC);
	x->io.argv = x->argv;
	x->io.envp = (const char *const *)g->env;
	x->io.out_fd = x->fd;
	x->io.cwd_fd = open(g->top, O_PATH | O_DIRECTORY | O_CLOEXEC);
	x->io.timeout_ms = GIT_TIMEOUT_MS;
	x->io.cancel = g->cancel;
	r = git_words(g, words, x->argv);
	if (!r && (x->fd < 0 || x->io.cwd_fd < 0))
		r = -errno;
	if (r < 0)
		r = err_sys(e, -r, "git ls-files in %s", g->top);
	else
		r = process_start(&x->p, &x->io, e);
	if (r < 0) {
		git_index_free(x);
		return r;
	}
	*ret = x;
	return 0;
}

void git_index_free(struct git_index *x)
{
	if (!x)
		return;
	process_kill(&x->p);
	cleanup_fd(&x->fd);
	cleanup_fd(&x->io.cwd_fd);
	if (x->map)
		(void)munmap(x->map, x->map_len);
	free(x->paths);
	free(x);
}

static int cut_paths(struct git_index *x)
{
	size_t count = 0, at = 0;

	for (size_t i = 0; i < x->map_len; i++)
		count += x->map[i] == '\0';
	if (x->map_len && x->map[x->map_len - 1] != '\0')
		return -EPROTO;
	x->paths = calloc(count + 1, sizeof(*x->paths));
	if (!x->paths)
		return -ENOMEM;
	for (; at < x->map_len; at += strlen(x->map + at) + 1) {
		/* An unmerged path comes once a stage. */
		if (x->n && strcmp(x->paths[x->n - 1], x->map + at) == 0)
			continue;
		x->paths[x->n++] = x->map + at;
	}
	return 0;
}

int git_index_wait(struct git_index *x, struct err *e)
{
	struct stat st;
	int r, status = 0;

	if (x->ready)
		return 0;
	r = process_wait(&x->p, &x->io, &status, e);
	if (r < 0)
		return err_wrap(e, r, "git ls-files in %s", x->g->top);
	if (status)
		return git_failed(x->g, "ls-files", status, x->p.tail, e);
	if (fstat(x->fd, &st) < 0 || (uint64_t)st.st_size > INDEX_LIST_MAX)
		return err_set(e, ERR_LIMIT,
			       "the git index of %s lists more than %llu bytes of names", x->g->top,
			       (unsigned long long)INDEX_LIST_MAX);
	x->map_len = (size_t)st.st_size;
	if (x->map_len) {
		void *p = mmap(NULL, x->map_len, PROT_READ, MAP_PRIVATE, x->fd, 0);

		if (p == MAP_FAILED)
			return err_sys(e, errno, "git ls-files in %s", x->g->top);
		x->map = p;
	}
	r = cut_paths(x);
	if (r < 0)
		return err_sys(e, -r, "git ls-files in %s", x->g->top);
	x->ready = true;
	return 0;
}

/* First path that is not below key in byte order. */
static size_t lower(const struct git_index *x, const char *key, size_t n)
{
	size_t lo = 0, hi = x->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		int c = strncmp(x->paths[mid], key, n);

		if (c < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

int git_index_has(struct git_index *x, const char *path, size_t n, struct err *e)
{
	int r = git_index_wait(x, e);
	size_t i;

	if (r < 0)
		return r;
	i = lower(x, path, n);
	/* lower() stops at the first with this prefix, which is the path itself if it is there. */
	return i < x->n && strncmp(x->paths[i], path, n) == 0 && !x->paths[i][n];
}

int git_index_below(struct git_index *x, const char *dir, size_t n, struct err *e)
{
	char key[2 * PATH_MEMBER_MAX + 2];
	int r = git_index_wait(x, e);
	size_t i;

	if (r < 0)
		return r;
	if (n > 2 * PATH_MEMBER_MAX)
		return 0;
	memcpy(key, dir, n);
	key[n] = '/';
	i = lower(x, key, n + 1);
	return i < x->n && x->paths[i] && strncmp(x->paths[i], key, n + 1) == 0;
}

const char *git_index_path(struct git_index *x, size_t i, size_t *n)
{
	if (!x->ready || i >= x->n)
		return NULL;
	*n = strlen(x->paths[i]);
	return x->paths[i];
}
