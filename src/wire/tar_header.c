/*
 * Door 1: one header block of a tar stream.
 *
 * Policy: the block must be one of three exact shapes (v7, ustar, GNU) with a right checksum
 * and clean numbers; everything else is hostile, because a block that two programs read in two
 * ways is how a member is hidden from the one that judges. Owner, group, device numbers and the
 * names of users are not read at all: they never reach the host. Not here: extension headers
 * (tar_pax.c), names (tar_name.c), order of blocks (tar_read.c).
 */
#include <string.h>

#include "wire/tar_internal.h"

/* Offsets of POSIX.1 ustar; the GNU fields that differ are read in tar_read.c. */
enum {
	NAME = 0,
	NAME_LEN = 100,
	MODE = 100,
	SIZE = 124,
	MTIME = 136,
	CHKSUM = 148,
	TYPEFLAG = 156,
	LINK = 157,
	MAGIC = 257,
	DEVMAJOR = 329,
	PREFIX = 345,
	PREFIX_LEN = 155,
	TAIL = 500,
};

bool tar_block_is_zero(const uint8_t *b)
{
	return b[0] == 0 && memcmp(b, b + 1, TAR_BLOCK - 1) == 0;
}

static bool is_blank(uint8_t c)
{
	return c == ' ' || c == '\0';
}

/* Octal digits between blanks; a field of blanks is 0. */
static const char *octal(const uint8_t *p, size_t n, uint64_t *ret)
{
	uint64_t v = 0;
	size_t i = 0;

	while (i < n && is_blank(p[i]))
		i++;
	for (; i < n && p[i] >= '0' && p[i] <= '7'; i++)
		v = v << 3 | (uint64_t)(p[i] - '0'); /* 12 digits are 36 bits */
	for (; i < n; i++)
		if (!is_blank(p[i]))
			return "bad_number";
	*ret = v;
	return NULL;
}

/*
 * Base-256 with a first byte of 0x80 or 0xff, as GNU tar writes it. Other first bytes carry
 * value bits for one reader and not for the next.
 */
static const char *base256(const uint8_t *p, size_t n, int64_t *ret)
{
	bool neg = p[0] == 0xff;
	uint64_t v = neg ? UINT64_MAX : 0;

	if (!neg && p[0] != 0x80)
		return "bad_number";
	for (size_t i = 1; i < n; i++) {
		if (i + 8 < n && p[i] != (neg ? 0xff : 0)) {
			*ret = neg ? INT64_MIN : INT64_MAX;
			return NULL;
		}
		v = v << 8 | p[i];
	}
	if (neg != (v > INT64_MAX))
		*ret = neg ? INT64_MIN : INT64_MAX;
	else
		*ret = (int64_t)v;
	return NULL;
}

static const char *number(const uint8_t *p, size_t n, int64_t *ret)
{
	uint64_t v = 0;
	const char *rule;

	if (p[0] & 0x80)
		return base256(p, n, ret);
	rule = octal(p, n, &v);
	*ret = (int64_t)v;
	return rule;
}

const char *tar_field_u64(const uint8_t *p, size_t n, uint64_t *ret)
{
	int64_t v = 0;
	const char *rule = number(p, n, &v);

	if (rule)
		return rule;
	if (v < 0)
		return "bad_number";
	*ret = (uint64_t)v;
	return NULL;
}

/* Of n bytes: as unsigned numbers, and how many are negative as signed ones. */
static void add_up(const uint8_t *b, size_t n, uint32_t *sum, uint32_t *negative)
{
	*sum = *negative = 0;
	for (size_t i = 0; i < n; i++) {
		*sum += b[i];
		*negative += b[i] >> 7;
	}
}

/* Some old writers summed signed bytes. The field itself counts as blanks. */
static bool checksum_fits(const uint8_t *b)
{
	uint32_t all, high, field, field_high;
	uint64_t want, plain;

	if (octal(b + CHKSUM, 8, &want))
		return false;
	add_up(b, TAR_BLOCK, &all, &high);
	add_up(b + CHKSUM, 8, &field, &field_high);
	plain = all - field + 8 * ' ';
	return want == plain ||
	       (int64_t)want == (int64_t)plain - 256 * (int64_t)(high - field_high);
}

/* A field of text ends at its first NUL; what follows must be NUL, or it hides something. */
static const char *text(const uint8_t *p, size_t n, struct view *ret)
{
	size_t len = strnlen((const char *)p, n);

	for (size_t i = len; i < n; i++)
		if (p[i])
			return "nul_in_name";
	*ret = (struct view){(const char *)p, len};
	return NULL;
}

static bool is_zero(const uint8_t *p, size_t n)
{
	static const uint8_t zero[TAR_BLOCK];

	return memcmp(p, zero, n) == 0;
}

static const char *format(const uint8_t *b, struct tar_head *h)
{
	if (memcmp(b + MAGIC, "ustar\00000", 8) == 0) {
		h->format = TAR_USTAR;
		/* Other dialects keep times or a second magic here and a shorter prefix. */
		return is_zero(b + TAIL, TAR_BLOCK - TAIL) ? NULL : "bad_magic";
	}
	if (memcmp(b + MAGIC, "ustar  ", 8) == 0) {
		h->format = TAR_GNU;
		return NULL;
	}
	/* GNU tar's v7 still has device numbers, which nobody here reads; the rest must be empty. */
	h->format = TAR_V7;
	if (!is_zero(b + MAGIC, DEVMAJOR - MAGIC) || !is_zero(b + PREFIX, TAR_BLOCK - PREFIX))
		return "bad_magic";
	return NULL;
}

const char *tar_head_parse(const uint8_t *b, struct tar_head *h)
{
	int64_t mode = 0;
	const char *rule;

	*h = (struct tar_head){.typeflag = (char)b[TYPEFLAG]};
	if (!checksum_fits(b))
		return "bad_checksum";
	if ((rule = format(b, h)))
		return rule;
	if ((rule = tar_field_u64(b + SIZE, 12, &h->size)))
		return rule;
	if ((rule = number(b + MODE, 8, &mode)) || (rule = number(b + MTIME, 12, &h->mtime_s)))
		return rule;
	h->mode = (uint32_t)mode & 07777;
	if (h->size > MEMBER_SIZE_MAX)
		return "limit";
	if ((rule = text(b + NAME, NAME_LEN, &h->name)) ||
	    (rule = text(b + LINK, NAME_LEN, &h->link)))
		return rule;
	h->prefix = (struct view){"", 0};
	return h->format == TAR_USTAR ? text(b + PREFIX, PREFIX_LEN, &h->prefix) : NULL;
}
