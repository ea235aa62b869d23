/*
 * Door 1: names of members.
 *
 * Policy: a name is bytes without encoding; it must be relative, without ".." and NUL, and
 * within the lengths of limits.h. Empty and "." segments are dropped, because every file system
 * drops them. Backslash, newline, quotes, a leading '-' and " -> " mean nothing special: names are
 * never given to a shell or an option parser. Not here: what a name means (policy/member.h).
 */
#include <string.h>

#include "wire/tar_internal.h"

const char *tar_name_clean(const char *p, size_t n, char *out, size_t *ret_len, bool *ret_slash)
{
	size_t len = 0, depth = 0, i = 0;

	*ret_len = 0;
	*ret_slash = n > 0 && p[n - 1] == '/';
	if (n == 0)
		return "empty_name";
	if (memchr(p, '\0', n))
		return "nul_in_name";
	if (p[0] == '/')
		return "absolute";
	while (i < n) {
		const char *s = p + i, *slash = memchr(s, '/', n - i);
		size_t k = slash ? (size_t)(slash - s) : n - i;

		i += k + 1;
		if (k == 0 || (k == 1 && s[0] == '.'))
			continue;
		if (k == 2 && s[0] == '.' && s[1] == '.')
			return "dotdot";
		if (k > PATH_SEGMENT_MAX || len + (len > 0) + k > PATH_MEMBER_MAX)
			return "name_too_long";
		if (++depth > PATH_DEPTH_MAX)
			return "limit";
		if (len)
			out[len++] = '/';
		memcpy(out + len, s, k);
		len += k;
	}
	out[len] = '\0';
	*ret_len = len;
	return NULL;
}
