#include "base/path.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"

bool path_is_member(const char *p, size_t n)
{
	size_t start = 0;

	if (n == 0 || n > PATH_MEMBER_MAX || memchr(p, '\0', n))
		return false;
	for (size_t i = 0; i <= n; i++) {
		size_t len;

		if (i < n && p[i] != '/')
			continue;
		len = i - start;
		if (len == 0 || len > PATH_SEGMENT_MAX)
			return false;
		if (p[start] == '.' && (len == 1 || (len == 2 && p[start + 1] == '.')))
			return false;
		start = i + 1;
	}
	return true;
}

bool path_is_absolute_normal(const char *p)
{
	if (p[0] != '/')
		return false;
	return p[1] == '\0' || path_is_member(p + 1, strlen(p + 1));
}

bool path_is_within(const char *child, const char *parent)
{
	size_t n = strlen(parent);

	if (strcmp(parent, "/") == 0)
		return child[0] == '/';
	return strncmp(child, parent, n) == 0 && (child[n] == '\0' || child[n] == '/');
}

char *path_join(const char *a, const char *b)
{
	size_t na = strlen(a), nb = strlen(b);
	bool slash = na > 0 && a[na - 1] == '/';
	char *p = malloc(na + nb + 2);

	if (!p)
		return NULL;
	(void)snprintf(p, na + nb + 2, "%s%s%s", a, slash ? "" : "/", b);
	return p;
}

const char *path_base(const char *p)
{
	const char *s = strrchr(p, '/');

	return s ? s + 1 : p;
}

char *path_normalize(const char *p)
{
	char *out, *w;

	if (p[0] != '/')
		return NULL;
	out = malloc(strlen(p) + 2);
	if (!out)
		return NULL;
	w = out;
	while (*p) {
		size_t n;

		while (*p == '/')
			p++;
		n = strcspn(p, "/");
		if (n == 0 || (n == 1 && p[0] == '.')) {
			p += n;
			continue;
		}
		if (n == 2 && p[0] == '.' && p[1] == '.') {
			while (w > out && *--w != '/')
				;
			p += n;
			continue;
		}
		*w++ = '/';
		memcpy(w, p, n);
		w += n;
		p += n;
	}
	if (w == out)
		*w++ = '/';
	*w = '\0';
	return out;
}
