/*
 * Door 1: names that a member may not have.
 *
 * Policy: nothing from a sandbox reaches a directory that git on any file system takes for .git
 * (CVE-2014-9390 and its descendants: case, HFS+ ignorable code points, NTFS trailing dots, streams
 * and short names), because hooks and configuration there are run by the user's next git command;
 * nor the names under which Airlock and Paperclip keep their own state. Host-executable data under
 * ordinary names is not refused but flagged (policy/hostexec.h).
 */
#include <string.h>
#include <strings.h>

#include "policy/member.h"

/* Length of the HFS+-ignorable UTF-8 sequence at p, or 0. */
static size_t ignorable(const unsigned char *p, size_t n)
{
	if (n < 3)
		return 0;
	if (p[0] == 0xef)
		return p[1] == 0xbb && p[2] == 0xbf ? 3 : 0; /* U+FEFF */
	if (p[0] != 0xe2)
		return 0;
	if (p[1] == 0x80 && ((p[2] >= 0x8c && p[2] <= 0x8f) || (p[2] >= 0xaa && p[2] <= 0xae)))
		return 3;					     /* U+200C..F, U+202A..E */
	return p[1] == 0x81 && p[2] >= 0xaa && p[2] <= 0xaf ? 3 : 0; /* U+206A..F */
}

/* .git or git~1: what NTFS makes of it once dots, spaces and a stream name are cut off. */
bool member_is_dot_git(const char *segment, size_t n)
{
	const unsigned char *s = (const unsigned char *)segment;
	char t[16];
	size_t len = 0;

	for (size_t i = 0; i < n;) {
		size_t k = ignorable(s + i, n - i);

		i += k;
		if (k)
			continue;
		if (s[i] == ':')
			break; /* .git::$INDEX_ALLOCATION */
		/* Names longer than this are only interesting if the rest is cut off again. */
		if (len < sizeof(t))
			t[len++] = (char)s[i];
		else if (s[i] != '.' && s[i] != ' ')
			return false;
		i++;
	}
	while (len > 0 && (t[len - 1] == '.' || t[len - 1] == ' '))
		len--;
	if (len == 4 && strncasecmp(t, ".git", 4) == 0)
		return true;
	if (len < 5 || strncasecmp(t, "git~", 4) != 0)
		return false;
	for (size_t i = 4; i < len; i++)
		if (t[i] < '0' || t[i] > '9')
			return false;
	return true;
}

static bool is_reserved(const char *s, size_t n)
{
	static const struct {
		const char *name;
		bool prefix;
	} t[] = {{".airlock", true}, {".paperclip-runtime", false}, {".paperclip-upload-", true}};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		size_t k = strlen(t[i].name);

		if (n >= k && (t[i].prefix || n == k) && strncasecmp(s, t[i].name, k) == 0)
			return true;
	}
	return false;
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
