/*
 * Door 1: names that a member may not have.
 *
 * Policy: nothing from a sandbox reaches a directory that git on any file system takes for .git
 * (CVE-2014-9390 and its descendants: case, HFS+ ignorable code points, NTFS trailing dots, streams
 * and short names; names that a case-blind ext4 takes for it), because hooks and configuration there are
 * run by the user's next git command; nor, in the same spellings, the names under which Airlock and
 * Paperclip keep their own state. Host-executable data under
 * ordinary names is not refused but flagged (policy/hostexec.h).
 */
#include <stdint.h>
#include <string.h>

#include "policy/member.h"

/* Folded names longer than this are none of ours. */
#define FOLDED_MAX 48

/*
 * One code point of 2 to 4 bytes at p, its length; 0: not the start of one. Not a judge of UTF-8: a sloppy
 * sequence that some file system might take for the code point counts as it.
 */
static size_t code_point(const unsigned char *p, size_t n, uint32_t *ret)
{
	size_t k = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : p[0] >= 0xc0 ? 2 : 0;
	uint32_t c;

	if (k == 0 || k > n)
		return 0;
	c = p[0] & (0xffu >> (k + 1));
	for (size_t i = 1; i < k; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (p[i] & 0x3fu);
	}
	*ret = c;
	return k;
}

/*
 * Code points that a file system drops when it compares names: those of HFS+ (git's list), and the
 * default-ignorable ones of Unicode, which ext4 and f2fs drop in a directory with casefold.
 */
static bool is_ignorable(uint32_t c)
{
	static const struct {
		uint32_t first, last;
	} t[] = {
	    {0x00ad, 0x00ad},	{0x034f, 0x034f}, {0x061c, 0x061c},   {0x115f, 0x1160},
	    {0x17b4, 0x17b5},	{0x180b, 0x180f}, {0x200b, 0x200f},   {0x202a, 0x202e},
	    {0x2060, 0x206f},	{0x3164, 0x3164}, {0xfe00, 0xfe0f},   {0xfeff, 0xfeff},
	    {0xffa0, 0xffa0},	{0xfff0, 0xfff8}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a},
	    {0xe0000, 0xe0fff},
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++)
		if (c >= t[i].first && c <= t[i].last)
			return true;
	return false;
}

/* Letters beyond ASCII that fold to an ASCII letter: KELVIN SIGN and LONG S are all there are. */
static char folded_letter(uint32_t c)
{
	return c == 0x212a ? 'k' : c == 0x017f ? 's' : '\0';
}

/*
 * The segment as the most forgiving file system sees it: ignorable code points gone, letters small, cut at
 * a stream name (.git::$INDEX_ALLOCATION), without the dots and spaces that NTFS cuts off an end. Its
 * length, of which out has at most FOLDED_MAX; 0 if nothing is left.
 */
static size_t fold(const char *segment, size_t n, char out[FOLDED_MAX])
{
	const unsigned char *s = (const unsigned char *)segment;
	size_t len = 0, end = 0, k;

	for (size_t i = 0; i < n && s[i] != ':'; i += k) {
		uint32_t c = 0;
		char letter;

		k = code_point(s + i, n - i, &c);
		if (k && is_ignorable(c))
			continue;
		letter = k ? folded_letter(c) : (char)s[i];
		if (!letter) { /* another letter of its own; its bytes are in no name of ours */
			letter = '\x7f';
		} else if (k == 0) {
			k = 1;
			letter = letter >= 'A' && letter <= 'Z' ? (char)(letter | 0x20) : letter;
		}
		/* What is past the room matters only if it is all cut off again. */
		if (len < FOLDED_MAX)
			out[len] = letter;
		len++;
		if (letter != '.' && letter != ' ')
			end = len;
	}
	return end;
}

static bool starts(const char *s, size_t n, const char *prefix)
{
	size_t k = strlen(prefix);

	return n >= k && memcmp(s, prefix, k) == 0;
}

/* The short name that NTFS and FAT make of a long one: `stem`, then ~ and a number. */
static bool is_short_name(const char *s, size_t n, const char *stem)
{
	size_t k = strlen(stem);

	if (!starts(s, n, stem) || n == k || n > FOLDED_MAX)
		return false;
	for (; k < n; k++)
		if (s[k] < '0' || s[k] > '9')
			return false;
	return true;
}

bool member_is_dot_git(const char *segment, size_t n)
{
	char t[FOLDED_MAX];
	size_t len = fold(segment, n, t);

	return (len == 4 && memcmp(t, ".git", 4) == 0) || is_short_name(t, len, "git~");
}

bool member_is_folded(const char *segment, size_t n, const char *name)
{
	char t[FOLDED_MAX];
	size_t len = fold(segment, n, t);

	return len == strlen(name) && memcmp(t, name, len) == 0;
}

int member_is_folded_of(const char *segment, size_t n, const char *const *names)
{
	char t[FOLDED_MAX];
	size_t len = fold(segment, n, t);

	for (int i = 0; names[i]; i++)
		if (len == strlen(names[i]) && memcmp(t, names[i], len) == 0)
			return i;
	return -1;
}

static bool is_reserved(const char *segment, size_t n)
{
	char t[FOLDED_MAX];
	size_t len = fold(segment, n, t);

	return starts(t, len, ".airlock") || starts(t, len, ".paperclip-upload-") ||
	       (starts(t, len, ".paperclip-runtime") && len == strlen(".paperclip-runtime")) ||
	       is_short_name(t, len, "airloc~") || is_short_name(t, len, "paperc~");
}

const char *member_name_rule(const char *path, size_t n)
{
	const char *rule = NULL;
	size_t start = 0, part = 0;

	for (size_t i = 0; i <= n; i++) {
		/* A backslash is a letter here and a separator where the tree is copied to next. */
		if (i < n && path[i] != '/' && path[i] != '\\')
			continue;
		if (member_is_dot_git(path + part, i - part))
			return "git_metadata";
		part = i + 1;
		if (i < n && path[i] == '\\')
			continue;
		if (is_reserved(path + start, i - start))
			rule = "reserved_name";
		start = i + 1;
	}
	return rule;
}
