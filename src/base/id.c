#include "base/id.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"

static const char alphabet[] = "0123456789abcdefghjkmnpqrstvwxyz";

int id_new(char out[ID_LEN + 1])
{
	uint64_t ms = (uint64_t)(clock_real_ns() / NS_PER_MS), rnd = 0;

	if (getrandom(&rnd, sizeof(rnd), 0) != (ssize_t)sizeof(rnd))
		return -(errno ? errno : EIO);
	for (int i = 8; i >= 0; i--, ms >>= 5)
		out[i] = alphabet[ms & 31];
	for (int i = 9; i < ID_LEN; i++, rnd >>= 5)
		out[i] = alphabet[rnd & 31];
	out[ID_LEN] = '\0';
	return 0;
}

bool id_is_prefix(const char *s)
{
	size_t n = strlen(s);

	return n > 0 && n <= ID_LEN && strspn(s, alphabet) == n;
}
