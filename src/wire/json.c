#include "wire/json.h"

#include <errno.h>
#include <string.h>

#include "base/str.h"

void json_init(struct json *j, const void *p, size_t n)
{
	*j = (struct json){.p = p, .end = (const unsigned char *)p + n, .why = ""};
}

void json_fail(struct json *j, const char *why)
{
	if (j->failed)
		return;
	j->failed = true;
	j->why = why;
}

/* The next byte that is not white space, or -1. */
static int peek(struct json *j)
{
	while (j->p < j->end && (*j->p == ' ' || *j->p == '\t' || *j->p == '\n' || *j->p == '\r'))
		j->p++;
	return j->failed || j->p == j->end ? -1 : *j->p;
}

static bool take(struct json *j, int c)
{
	if (peek(j) != c)
		return false;
	j->p++;
	return true;
}

void json_enter(struct json *j)
{
	if (!take(j, '{'))
		json_fail(j, "an object is missing");
	j->first = true;
}

void json_resume(struct json *j)
{
	j->first = false;
}

bool json_list(struct json *j)
{
	return take(j, '[');
}

bool json_more(struct json *j)
{
	if (take(j, ']') || j->failed)
		return false;
	if (!take(j, ','))
		json_fail(j, "a list does not end");
	return !j->failed;
}

bool json_key(struct json *j, struct json_text *ret)
{
	if (take(j, '}') || j->failed)
		return false;
	if (!j->first && !take(j, ',')) {
		json_fail(j, "a comma is missing");
		return false;
	}
	j->first = false;
	json_text(j, ret);
	if (!take(j, ':'))
		json_fail(j, "a colon is missing");
	return !j->failed;
}

/* --- texts -------------------------------------------------------------------------------- */

/* Length of the UTF-8 sequence at p (1..4), 0 if it is none. Overlong forms and surrogates are none. */
static unsigned utf8_len(const unsigned char *p, const unsigned char *end)
{
	unsigned n = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;

	if (p[0] > 0xf4 || n == 0 || (size_t)(end - p) < n)
		return 0;
	for (unsigned i = 1; i < n; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
	    (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
		return 0;
	return n;
}

static int hex4(const unsigned char *p, const unsigned char *end)
{
	int v = 0;

	if (end - p < 4)
		return -1;
	for (int i = 0; i < 4; i++) {
		int d = str_hex_digit((char)p[i]);

		if (d < 0)
			return -1;
		v = v << 4 | d;
	}
	return v;
}

/* The code point of the escape at p ('\\'), and its length in bytes; 0 if it is none. */
static unsigned escape(const unsigned char *p, const unsigned char *end, uint32_t *ret)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *at;
	int hi, lo;

	if (end - p < 2)
		return 0;
	at = p[1] ? strchr(from, p[1]) : NULL;
	if (at) {
		*ret = (unsigned char)to[at - from];
		return 2;
	}
	hi = p[1] == 'u' ? hex4(p + 2, end) : -1;
	if (hi <= 0 || (hi >= 0xdc00 && hi <= 0xdfff))
		return 0;
	if (hi < 0xd800 || hi > 0xdbff) {
		*ret = (uint32_t)hi;
		return 6;
	}
	lo = end - p >= 12 && p[6] == '\\' && p[7] == 'u' ? hex4(p + 8, end) : -1;
	if (lo < 0xdc00 || lo > 0xdfff)
		return 0;
	*ret = 0x10000 + ((uint32_t)(hi - 0xd800) << 10 | (uint32_t)(lo - 0xdc00));
	return 12;
}

static size_t encode(uint32_t c, char *out)
{
	char t[4];
	size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;

	if (n == 1) {
		t[0] = (char)c;
	} else {
		t[0] = (char)((0xf00 >> n & 0xff) | c >> (6 * (n - 1)));
		for (size_t i = 1; i < n; i++)
			t[i] = (char)(0x80 | (c >> (6 * (n - 1 - i)) & 0x3f));
	}
	if (out)
		memcpy(out, t, n);
	return n;
}

void json_text(struct json *j, struct json_text *ret)
{
	const unsigned char *p, *from;
	size_t len = 0;

	*ret = (struct json_text){{NULL, 0}, 0};
	if (!take(j, '"')) {
		json_fail(j, "a text is missing");
		return;
	}
	for (p = from = j->p; p < j->end && *p != '"';) {
		uint32_t c;
		unsigned n = 1;

		if (*p == '\\') {
			n = escape(p, j->end, &c);
			len += n ? encode(c, NULL) : 0;
		} else if (*p >= 0x80) {
			n = utf8_len(p, j->end);
			len += n;
		} else {
			n = *p >= 0x20;
			len++;
		}
		if (n == 0) {
			json_fail(j, "a text holds bytes that may not be there");
			return;
		}
		p += n;
	}
	if (p == j->end) {
		json_fail(j, "a text does not end");
		return;
	}
	j->p = p + 1;
	*ret = (struct json_text){{(const char *)from, (size_t)(p - from)}, len};
}

bool json_is(const struct json_text *t, const char *word)
{
	return t->raw.n == strlen(word) && memcmp(t->raw.p, word, t->raw.n) == 0;
}

void json_unescape(const struct json_text *t, char *out)
{
	const unsigned char *p = (const unsigned char *)t->raw.p, *end;

	if (t->len == t->raw.n) { /* an escape is always longer than what it stands for */
		if (t->len)
			memcpy(out, p, t->len);
		return;
	}
	end = p + t->raw.n;
	while (p < end) {
		uint32_t c = 0;

		if (*p != '\\') {
			*out++ = (char)*p++;
			continue;
		}
		p += escape(p, end, &c);
		out += encode(c, out);
	}
}

uint64_t json_number(struct json *j, uint64_t max)
{
	uint64_t v = 0;
	int c = peek(j);
	const unsigned char *from = j->p;

	if (c < '0' || c > '9') {
		json_fail(j, "a whole number is missing");
		return 0;
	}
	for (; j->p < j->end && *j->p >= '0' && *j->p <= '9'; j->p++) {
		unsigned d = *j->p - '0';

		if (d > max || v > (max - d) / 10) {
			json_fail(j, "a number is too large");
			return 0;
		}
		v = v * 10 + d;
	}
	if (*from == '0' && j->p - from > 1)
		json_fail(j, "a number begins with 0");
	/* Fractions and exponents run into the caller's next question: a comma or a brace. */
	return v;
}

bool json_end(struct json *j)
{
	if (peek(j) >= 0)
		json_fail(j, "something follows the object");
	return !j->failed;
}

int json_put(struct buf *b, struct view v)
{
	const unsigned char *p = (const unsigned char *)v.p, *end = p + v.n;

	(void)buf_putc(b, '"');
	while (p < end) {
		const unsigned char *from = p;
		unsigned n;

		while (p < end && *p >= 0x20 && *p < 0x80 && *p != '"' && *p != '\\')
			p++;
		(void)buf_put(b, from, (size_t)(p - from));
		if (p == end)
			break;
		if (*p >= 0x80) {
			n = utf8_len(p, end);
			if (n == 0)
				return -EILSEQ;
			(void)buf_put(b, p, n);
			p += n;
		} else if (*p == '"' || *p == '\\') {
			(void)buf_putf(b, "\\%c", *p++);
		} else {
			(void)buf_putf(b, "\\u%04x", *p++);
		}
	}
	return buf_putc(b, '"');
}
