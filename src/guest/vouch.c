#include "guest/vouch.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/blake2b.h"
#include "base/cleanup.h"
#include "base/clock.h"

#define CHUNK 65536

static int add_bytes(struct blake2b *b, int fd)
{
	uint8_t chunk[CHUNK];
	ssize_t k;

	while ((k = read(fd, chunk, sizeof(chunk))) > 0 || (k < 0 && errno == EINTR))
		if (k > 0)
			blake2b_update(b, chunk, (size_t)k);
	return k < 0 ? -errno : 0;
}

int vouch_sum(int dir, const char *name, uint8_t sum[RM_PART_HASH])
{
	_cleanup_fd_ int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	uint8_t stamp[sizeof(uint64_t)];
	struct blake2b b;
	struct stat st;
	uint64_t ns;
	int r;

	memset(sum, 0, RM_PART_HASH);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	ns = (uint64_t)st.st_mtim.tv_sec * (uint64_t)NS_PER_S + (uint64_t)st.st_mtim.tv_nsec;
	for (size_t i = 0; i < sizeof(stamp); i++)
		stamp[i] = (uint8_t)(ns >> 8 * i);
	blake2b_init(&b);
	r = add_bytes(&b, fd);
	if (r < 0)
		return r;
	blake2b_update(&b, stamp, sizeof(stamp));
	blake2b_final(&b, sum);
	return 0;
}
