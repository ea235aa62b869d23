#include "mk.h"

#include <stdlib.h>
#include <string.h>

static void must(int r)
{
	if (r)
		abort();
}

static void octal(char *p, int digits, uint64_t v)
{
	char t[32];

	(void)snprintf(t, sizeof(t), "%0*llo", digits, (unsigned long long)v);
	memcpy(p, t, (size_t)digits);
}

static void checksum(char *h)
{
	unsigned sum = 0;

	memset(h + 148, ' ', 8);
	for (int i = 0; i < 512; i++)
		sum += (unsigned char)h[i];
	octal(h + 148, 6, sum);
	h[154] = '\0';
}

size_t mk_head(struct buf *b, const struct mk *m)
{
	size_t off = b->len;
	char h[512] = {0};

	memcpy(h, m->name, strnlen(m->name, 100));
	octal(h + 100, 7, m->mode ? m->mode : 0644);
	octal(h + 108, 7, 0);
	octal(h + 116, 7, 0);
	octal(h + 124, 11, m->size);
	octal(h + 136, 11, 1700000000);
	h[156] = m->type;
	if (m->link)
		memcpy(h + 157, m->link, strnlen(m->link, 100));
	if (m->format == MK_USTAR)
		memcpy(h + 257, "ustar\00000", 8);
	else if (m->format == MK_GNU)
		memcpy(h + 257, "ustar  ", 8);
	checksum(h);
	must(buf_put(b, h, sizeof(h)));
	return off;
}

void mk_poke(struct buf *b, size_t off, size_t at, const void *p, size_t n)
{
	memcpy(b->data + off + at, p, n);
	checksum(b->data + off);
}

void mk_data(struct buf *b, const void *p, size_t n)
{
	static const char zero[512];

	must(buf_put(b, p, n));
	must(buf_put(b, zero, (512 - n % 512) % 512));
}

void mk_end(struct buf *b)
{
	static const char zero[1024];

	must(buf_put(b, zero, sizeof(zero)));
}

void mk_file(struct buf *b, const char *name, const char *text)
{
	(void)mk_head(b, &(struct mk){MK_USTAR, '0', name, NULL, strlen(text), 0});
	mk_data(b, text, strlen(text));
}

void mk_dir(struct buf *b, const char *name)
{
	(void)mk_head(b, &(struct mk){MK_USTAR, '5', name, NULL, 0, 0755});
}

void mk_link(struct buf *b, const char *name, const char *target)
{
	(void)mk_head(b, &(struct mk){MK_USTAR, '2', name, target, 0, 0777});
}

void mk_hard(struct buf *b, const char *name, const char *target)
{
	(void)mk_head(b, &(struct mk){MK_USTAR, '1', name, target, 0, 0});
}

void mk_pax(struct buf *b, char type, const void *p, size_t n)
{
	(void)mk_head(b, &(struct mk){MK_USTAR, type, "PaxHeader/x", NULL, n, 0});
	mk_data(b, p, n);
}

void mk_record(struct buf *b, const char *key, const void *p, size_t n)
{
	size_t rest = strlen(key) + n + 3, len = rest + 1;
	char t[32];

	for (;;) {
		int digits = snprintf(t, sizeof(t), "%zu", len);

		if (len == rest + (size_t)digits)
			break;
		len = rest + (size_t)digits;
	}
	must(buf_putf(b, "%s %s=", t, key));
	must(buf_put(b, p, n));
	must(buf_putc(b, '\n'));
}

void mk_pax1(struct buf *b, char type, const char *key, const char *value)
{
	_cleanup_buf_ struct buf r = BUF_INIT(8 << 20);

	mk_record(&r, key, value, strlen(value));
	mk_pax(b, type, r.data, r.len);
}

void mk_long(struct buf *b, char type, const char *text)
{
	(void)mk_head(b, &(struct mk){MK_GNU, type, "././@LongLink", NULL, strlen(text) + 1, 0});
	mk_data(b, text, strlen(text) + 1);
}
