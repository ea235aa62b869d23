#include "api/jsonfile.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

json_t *jsonfile_read(const char *path, size_t max)
{
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	_cleanup_free_ char *text = NULL;
	struct stat st;
	size_t n = 0;
	json_t *j;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (size_t)st.st_size > max)
		return NULL;
	text = malloc((size_t)st.st_size + 1);
	while (text && n < (size_t)st.st_size) {
		ssize_t got = read(fd, text + n, (size_t)st.st_size - n);

		if (got <= 0)
			return NULL;
		n += (size_t)got;
	}
	j = text ? json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL) : NULL;
	if (json_is_object(j))
		return j;
	json_decref(j);
	return NULL;
}
