#include "base/str.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool str_starts(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool str_eq(const char *a, const char *b)
{
	if (!a || !b)
		return a == b;
	return strcmp(a, b) == 0;
}

int str_to_u64(const char *s, uint64_t max, uint64_t *ret_v)
{
	uint64_t v = 0;

	if (!*s)
		return -EINVAL;
	for (; *s; s++) {
		if (*s < '0' || *s > '9')
			return -EINVAL;
		if (__builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*s - '0'), &v))
			return -ERANGE;
	}
	if (v > max)
		return -ERANGE;
	*ret_v = v;
	return 0;
}

/* Digits with an optional fraction, as a product with `unit`; exact for whole numbers. */
static int scaled(const char *s, size_t n, uint64_t unit, uint64_t max, uint64_t *ret)
{
	uint64_t whole = 0, frac = 0, scale = 1;
	bool digits = false, dot = false;

	for (size_t i = 0; i < n; i++) {
		if (s[i] == '.' && !dot) {
			dot = true;
			continue;
		}
		if (s[i] < '0' || s[i] > '9')
			return -EINVAL;
		digits = true;
		if (!dot) {
			if (__builtin_mul_overflow(whole, 10, &whole) ||
			    __builtin_add_overflow(whole, (uint64_t)(s[i] - '0'), &whole))
				return -ERANGE;
		} else if (scale < 1000000) {
			frac = frac * 10 + (uint64_t)(s[i] - '0');
			scale *= 10;
		}
	}
	if (!digits)
		return -EINVAL;
	if (__builtin_mul_overflow(whole, unit, &whole))
		return -ERANGE;
	if (frac) {
		long double add = (long double)frac * (long double)unit / (long double)scale;

		if (__builtin_add_overflow(whole, (uint64_t)add, &whole))
			return -ERANGE;
	}
	if (whole > max)
		return -ERANGE;
	*ret = whole;
	return 0;
}

int str_to_size(const char *s, uint64_t *ret_bytes)
{
	static const char units[] = "KMGT";
	size_t n = strlen(s);
	uint64_t unit = 1;
	const char *u;

	if (n > 2 && strcmp(s + n - 2, "iB") == 0)
		n -= 2;
	else if (n > 1 && s[n - 1] == 'B')
		n -= 1;
	if (n > 0) {
		char c = s[n - 1];

		if (c >= 'a' && c <= 'z')
			c = (char)(c - 'a' + 'A');
		u = c ? strchr(units, c) : NULL;
		if (u) {
			unit = UINT64_C(1) << (10 * (u - units + 1));
			n--;
		}
	}
	return scaled(s, n, unit, INT64_MAX, ret_bytes);
}

int str_to_duration(const char *s, int64_t *ret_ns)
{
	static const struct {
		const char *suffix;
		uint64_t ns;
	} units[] = {{"ms", 1000000},
		     {"s", 1000000000},
		     {"m", 60000000000},
		     {"h", 3600000000000},
		     {"d", 86400000000000}};
	size_t n = strlen(s);
	uint64_t unit = 1000000000, v;
	int r;

	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		size_t k = strlen(units[i].suffix);

		if (n > k && strcmp(s + n - k, units[i].suffix) == 0) {
			unit = units[i].ns;
			n -= k;
			break;
		}
	}
	r = scaled(s, n, unit, INT64_MAX, &v);
	if (r == 0)
		*ret_ns = (int64_t)v;
	return r;
}

size_t str_printable_len(const char *s, size_t n)
{
	const unsigned char *p = (const unsigned char *)s;
	uint32_t cp;
	size_t k;

	if (p[0] < 0x80)
		return p[0] >= 0x20 && p[0] != 0x7f ? 1 : 0;
	if ((p[0] & 0xe0) == 0xc0) {
		k = 2;
		cp = p[0] & 0x1f;
	} else if ((p[0] & 0xf0) == 0xe0) {
		k = 3;
		cp = p[0] & 0x0f;
	} else if ((p[0] & 0xf8) == 0xf0) {
		k = 4;
		cp = p[0] & 0x07;
	} else {
		return 0;
	}
	if (n < k)
		return 0;
	for (size_t i = 1; i < k; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		cp = cp << 6 | (p[i] & 0x3f);
	}
	if ((k == 2 && cp < 0x80) || (k == 3 && cp < 0x800) || (k == 4 && cp < 0x10000) ||
	    cp > 0x10ffff || (cp >= 0xd800 && cp <= 0xdfff))
		return 0;
	/* C1 controls, direction overrides and isolates, line separators, BOM, tags. */
	if (cp < 0xa0 || (cp >= 0x200b && cp <= 0x200f) || (cp >= 0x2028 && cp <= 0x202e) ||
	    (cp >= 0x2060 && cp <= 0x206f) || cp == 0xfeff || (cp >= 0xe0000 && cp <= 0xe0fff))
		return 0;
	return k;
}

int str_printable(struct buf *b, const char *p, size_t n)
{
	const unsigned char *s = (const unsigned char *)p;

	for (size_t i = 0; i < n && !b->err;) {
		size_t k;

		if (s[i] == '\\') {
			(void)buf_puts(b, "\\\\");
			i++;
		} else if (s[i] == '\n') {
			(void)buf_puts(b, "\\n");
			i++;
		} else if (s[i] == '\t') {
			(void)buf_puts(b, "\\t");
			i++;
		} else if ((k = str_printable_len(p + i, n - i)) > 0) {
			(void)buf_put(b, s + i, k);
			i += k;
		} else {
			(void)buf_putf(b, "\\x%02x", s[i]);
			i++;
		}
	}
	return b->err;
}

int str_fit(const char *s, int max)
{
	int n = 0;

	while (n < max && s[n])
		n++;
	/* s[n] is the first that is left out: it must not be inside a character. */
	while (n > 0 && ((unsigned char)s[n] & 0xc0) == 0x80)
		n--;
	return n;
}

void str_human_size(uint64_t bytes, char *out, size_t n)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double v = (double)bytes;
	size_t u = 0;

	while (v >= 1024 && u + 1 < sizeof(units) / sizeof(units[0])) {
		v /= 1024;
		u++;
	}
	(void)snprintf(out, n, u ? "%.1f %s" : "%.0f %s", v, units[u]);
}

void strv_free(char **v)
{
	for (size_t i = 0; v && v[i]; i++)
		free(v[i]);
	free(v);
}

void strv_freep(char ***v)
{
	strv_free(*v);
	*v = NULL;
}

size_t strv_len(char *const *v)
{
	size_t n = 0;

	while (v && v[n])
		n++;
	return n;
}

int strv_add(char ***v, const char *s)
{
	size_t n = strv_len(*v);
	char **nv = realloc(*v, (n + 2) * sizeof(*nv));

	if (!nv)
		return -ENOMEM;
	*v = nv;
	nv[n] = strdup(s);
	if (!nv[n])
		return -ENOMEM;
	nv[n + 1] = NULL;
	return 0;
}

void str_hex(char *out, const void *p, size_t n)
{
	static const char digits[] = "0123456789abcdef";
	const uint8_t *b = p;

	for (size_t i = 0; i < n; i++) {
		*out++ = digits[b[i] >> 4];
		*out++ = digits[b[i] & 15];
	}
	*out = '\0';
}

int str_hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)(c | 0x20);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool str_is_zero(const void *p, size_t n)
{
	const char *c = p;

	return !n || (!c[0] && !memcmp(c, c + 1, n - 1));
}
