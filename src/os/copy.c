#include "os/copy.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"

#define PIECE 65536

int copy_file(int from, int to)
{
	_cleanup_free_ char *room = malloc(PIECE);
	off_t at = 0;
	ssize_t n;

	if (!room)
		return -ENOMEM;
	while ((n = pread(from, room, PIECE, at)) > 0) {
		for (ssize_t i = 0, k; i < n; i += k) {
			k = write(to, room + i, (size_t)(n - i));
			if (k < 0 && errno != EINTR)
				return -errno;
			k = k < 0 ? 0 : k;
		}
		at += n;
	}
	return n < 0 ? -errno : 0;
}
