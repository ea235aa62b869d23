#include "sync/unpack_place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "base/str.h"
#include "os/beneath.h"
#include "sync/journal.h"
#include "sync/unpack_proto.h"

static const char *const stagings[] = {STAGING_GIT, STAGING_TOP};

int unpack_places(int root_fd, char ***ret_names)
{
	struct beneath root = {.root = root_fd};

	*ret_names = NULL;
	for (size_t i = 0; i < ARRAY_LEN(stagings); i++) {
		int fd = beneath_open(&root, stagings[i], O_RDONLY | O_DIRECTORY, 0);
		_cleanup_dir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);
		struct dirent *de;

		if (fd >= 0 && !d)
			(void)close(fd);
		while (d && (de = readdir(d)))
			if (strlen(de->d_name) == ID_LEN && id_is_prefix(de->d_name) &&
			    strv_add(ret_names, de->d_name) < 0) {
				strv_free(*ret_names);
				*ret_names = NULL;
				return -ENOMEM;
			}
	}
	return 0;
}

/* The path in the last record of a committed journal; also 0 where an older version wrote none. */
static int read_place(int journal, struct intent *in)
{
	uint64_t end;
	int r = journal_committed(journal, &end);

	if (r > 0)
		r = journal_prev(journal, NULL, &end, in);
	return r > 0 ? in->op == IN_HEADER && in->path_len : r;
}

int unpack_place_open(int root_fd, const char *name, const char *state_dir)
{
	_cleanup_free_ struct intent *in = malloc(sizeof(*in));
	struct beneath root = {.root = root_fd}, state = {.root = -1};
	_cleanup_fd_ int journal = -ENOENT, top = -1;
	char path[sizeof(STAGING_GIT) + ID_LEN + 16];
	size_t n = strlen(state_dir);
	int r;

	if (!in)
		return -ENOMEM;
	for (size_t i = 0; i < ARRAY_LEN(stagings) && journal == -ENOENT; i++) {
		(void)snprintf(path, sizeof(path), "%s/%s/journal", stagings[i], name);
		journal = beneath_open(&root, path, O_RDONLY | O_NONBLOCK, 0);
	}
	if (journal < 0)
		return journal;
	r = read_place(journal, in);
	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	if (strlen(in->path) != in->path_len || !path_is_absolute_normal(in->path) ||
	    !path_is_within(in->path, state_dir) || in->path_len <= n + 1)
		return -ENOENT;
	top = open(state_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (top < 0)
		return -errno;
	state.root = top;
	return beneath_open(&state, in->path + n + 1, O_RDONLY | O_DIRECTORY, 0);
}
