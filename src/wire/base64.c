#include "wire/base64.h"

#include <stdint.h>

static int sextet(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool base64_len(struct view v, uint64_t *ret)
{
	size_t pad = 0;
	int last;

	*ret = 0;
	if (v.n == 0)
		return true;
	if (v.n % 4)
		return false;
	while (pad < 2 && v.p[v.n - 1 - pad] == '=')
		pad++;
	for (size_t i = 0; i < v.n - pad; i++)
		if (sextet(v.p[i]) < 0)
			return false;
	last = sextet(v.p[v.n - 1 - pad]);
	if ((pad == 1 && last & 3) || (pad == 2 && last & 15))
		return false;
	*ret = v.n / 4 * 3 - pad;
	return true;
}

void base64_decode(struct view v, char *out, size_t len)
{
	for (size_t i = 0; i < v.n; i += 4) {
		uint32_t w = 0;

		for (size_t k = 0; k < 4; k++)
			w = w << 6 | (uint32_t)(v.p[i + k] == '=' ? 0 : sextet(v.p[i + k]));
		for (size_t k = 0; k < 3 && len; k++, len--)
			*out++ = (char)(w >> (16 - 8 * k));
	}
}

int base64_put(struct buf *b, struct view v)
{
	static const char t[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const unsigned char *p = (const unsigned char *)v.p;
	size_t n = (v.n + 2) / 3 * 4;
	char *out = n ? buf_room(b, n) : NULL;

	if (n == 0)
		return 0;
	if (!out)
		return b->err;
	for (size_t i = 0; i < v.n; i += 3) {
		uint32_t w = (uint32_t)p[i] << 16;

		if (i + 1 < v.n)
			w |= (uint32_t)p[i + 1] << 8;
		if (i + 2 < v.n)
			w |= p[i + 2];
		*out++ = t[w >> 18];
		*out++ = t[w >> 12 & 63];
		*out++ = i + 1 < v.n ? t[w >> 6 & 63] : '=';
		*out++ = i + 2 < v.n ? t[w & 63] : '=';
	}
	buf_add(b, n);
	return 0;
}
