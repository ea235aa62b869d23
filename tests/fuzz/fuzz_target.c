/*
 * Request targets (S2-04): a second, simple model decides again. Whatever passes decodes, once or twice, to a path
 * without dot segments, empty segments, backslashes and control bytes, and is made of the input's own bytes.
 */
#include "fuzz.h"

#include <string.h>

#include "policy/target.h"

static size_t decode(const char *p, size_t n, char *out)
{
	static const char digits[] = "0123456789abcdef";
	size_t len = 0;

	for (size_t i = 0; i < n; i++) {
		const char *a = NULL, *b = NULL;

		if (p[i] == '%' && i + 2 < n) {
			a = p[i + 1] ? strchr(digits, p[i + 1] | (p[i + 1] > '9' ? 0x20 : 0))
				     : NULL;
			b = p[i + 2] ? strchr(digits, p[i + 2] | (p[i + 2] > '9' ? 0x20 : 0))
				     : NULL;
		}
		if (a && b && p[i + 1] > '/' && p[i + 2] > '/') {
			out[len++] = (char)((a - digits) << 4 | (b - digits));
			i += 2;
		} else {
			out[len++] = p[i];
		}
	}
	return len;
}

/* What a server may take for structure. */
static void innocent(const char *p, size_t n)
{
	size_t from = 1;

	MUST(n > 0 && p[0] == '/');
	for (size_t i = 0; i < n; i++) {
		MUST((unsigned char)p[i] > 0x20 && (unsigned char)p[i] != 0x7f);
		MUST(p[i] != '\\' && p[i] != ';' && p[i] != '#' && p[i] != '?');
	}
	for (size_t i = 1; n > 1 && i <= n; i++) {
		if (i < n && p[i] != '/')
			continue;
		MUST(i > from);
		MUST(!(i - from == 1 && p[from] == '.'));
		MUST(!(i - from == 2 && p[from] == '.' && p[from + 1] == '.'));
		from = i + 1;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	static char once[BRIDGE_PATH_MAX], twice[BRIDGE_PATH_MAX];
	const char *text = (const char *)p;
	struct target t;
	size_t total = 0;

	if (target_parse(text, n, &t) != TARGET_OK)
		return 0;
	MUST(t.all.p == text && t.all.n == n && t.path.p == text);
	MUST(t.path.n <= BRIDGE_PATH_MAX && t.query.n <= BRIDGE_QUERY_MAX);
	MUST(t.path.n + t.query.n + t.has_query == n);
	MUST(t.segments <= BRIDGE_SEGMENTS_MAX);
	for (size_t i = 0; i < t.segments; i++) {
		MUST(t.segment[i].n > 0 && t.segment[i].p > text);
		MUST(memchr(t.segment[i].p, '/', t.segment[i].n) == NULL);
		total += t.segment[i].n + 1;
	}
	MUST(total == t.path.n || (total == 0 && t.path.n == 1));
	for (size_t i = 0; i < n; i++)
		MUST((unsigned char)text[i] > 0x20 && (unsigned char)text[i] < 0x7f);
	innocent(t.path.p, t.path.n);
	total = decode(t.path.p, t.path.n, once);
	innocent(once, total);
	innocent(twice, decode(once, total, twice));
	return 0;
}

bool fuzz_seed(size_t i, struct buf *b)
{
	static const char *const seeds[] = {
	    "/api/agents/me",
	    "/api/companies/c/issues?status=a%2Fb&u=http://x&f[a]=1",
	    "/api/agents/%C3%A9%f0%9f%98%80",
	    "/api/companies/%2e%2e/agents",
	    "/api/agents/..\\..\\api",
	    "/a/%252e%252e/b",
	    "/",
	    "/api/agents/..;/x",
	    "//evil/a",
	    "http://evil/a",
	    "/a/%c0%ae%c0%ae",
	};

	return FUZZ_TEXT(seeds, i, b);
}

FUZZ_NO_REPAIR()
