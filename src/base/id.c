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

int uuid_new(char out[UUID_LEN + 1])
{
	static const char hex[] = "0123456789abcdef";
	uint8_t b[16];

	if (getrandom(b, sizeof(b), 0) != (ssize_t)sizeof(b))
		return -(errno ? errno : EIO);
	b[6] = (uint8_t)((b[6] & 0x0f) | 0x40);
	b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
	for (int i = 0, o = 0; i < 16; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			out[o++] = '-';
		out[o++] = hex[b[i] >> 4];
		out[o++] = hex[b[i] & 15];
	}
	out[UUID_LEN] = '\0';
	return 0;
}

bool uuid_parse(const char *s, size_t n, char out[UUID_LEN + 1])
{
	if (n != UUID_LEN)
		return false;
	for (size_t i = 0; i < n; i++) {
		bool dash = i == 8 || i == 13 || i == 18 || i == 23;
		char c = s[i] >= 'A' && s[i] <= 'F' ? (char)(s[i] | 0x20) : s[i];

		if (dash ? c != '-' : !((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
			return false;
		out[i] = c;
	}
	out[n] = '\0';
	return true;
}
