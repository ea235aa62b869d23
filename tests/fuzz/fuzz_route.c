/*
 * The route matcher (S2-04): lines of a table, an empty line, a target. Whatever route decides does match by a second,
 * simple model; when none does, no route of the table matches; and no more literal one was passed over.
 */
#include "fuzz.h"

#include <string.h>

#include "policy/route.h"

static bool segment_like(const char *pat, size_t pn, const char *s, size_t n)
{
	const char *open = memchr(pat, '{', pn), *close = memchr(pat, '}', pn);
	size_t head, tail;

	if (!open)
		return pn == n && memcmp(pat, s, n) == 0;
	head = (size_t)(open - pat);
	tail = pn - (size_t)(close + 1 - pat);
	return n > head + tail && n - head - tail <= BRIDGE_SEGMENT_MAX &&
	       memcmp(pat, s, head) == 0 && memcmp(close + 1, s + n - tail, tail) == 0;
}

static bool like(const char *pat, const struct target *t)
{
	size_t i = 0;

	if (strcmp(pat, "/") == 0)
		return t->segments == 0;
	for (const char *p = pat; *p; i++) {
		const char *from = p + 1, *to = strchrnul(from, '/');
		bool rest = *to == '\0' && to - from > 4 && memcmp(to - 4, "...}", 4) == 0;

		if (i >= t->segments ||
		    !segment_like(from, (size_t)(to - from), t->segment[i].p, t->segment[i].n))
			return false;
		for (; rest && i + 1 < t->segments; i++)
			if (t->segment[i + 1].n > BRIDGE_SEGMENT_MAX)
				return false;
		p = to;
	}
	return i == t->segments;
}

static void ask(const struct route_table *table, const struct target *t)
{
	for (unsigned m = METHOD_GET; m <= METHOD_DELETE; m <<= 1) {
		unsigned other = 0;
		const struct route *r = route_match(table, (enum method)m, t, &other);
		size_t found = 0;

		MUST(route_match(table, (enum method)m, t, NULL) == r);
		if (r)
			MUST((r->methods & m) && like(r->pattern, t));
		for (size_t i = 0; i < table->n; i++) {
			bool fits = like(table->v[i].pattern, t);

			if (!r && fits)
				MUST(!(table->v[i].methods & m) && (other & table->v[i].methods));
			found += fits && (table->v[i].methods & m);
			/* A route that is the path itself is more literal than any other. */
			if (r && fits && (table->v[i].methods & m) &&
			    !strchr(table->v[i].pattern, '{'))
				MUST(r == &table->v[i]);
		}
		MUST((found > 0) == (r != NULL));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	const char *at = (const char *)p, *end = at + n;
	struct route_table table = {0};
	struct target t;

	while (at < end && *at != '\n' && table.n < 40) {
		const char *nl = memchr(at, '\n', (size_t)(end - at));
		size_t len = (size_t)((nl ? nl : end) - at);
		char pattern[256];
		struct route *r;

		if (len > 1 && len < sizeof(pattern) && !memchr(at, '\0', len)) {
			memcpy(pattern, at + 1, len - 1);
			pattern[len - 1] = '\0';
			(void)route_add(&table, NULL, 1u + ((unsigned char)at[0] & 0x7e), pattern,
					&r, NULL);
		}
		at = nl ? nl + 1 : end;
	}
	if (at < end)
		at++;
	if (route_compile(&table, NULL) == 0 &&
	    target_parse(at, (size_t)(end - at), &t) == TARGET_OK)
		ask(&table, &t);
	route_table_done(&table);
	return 0;
}

bool fuzz_seed(size_t i, struct buf *b)
{
	static const char *const seeds[] = {
	    "a/a/{x}\nb/a/b\nc/a/{x}/c\nd/{rest...}\n\n/a/b",
	    "a/a/{x}.txt\nb/a/long-{x}.txt\nc/a/{x}\n\n/a/long-1.txt",
	    "a/\nb/r\nc/r/{more...}\nd/r/{x}/{y}/z\n\n/r/1/2/z",
	    "a/api/agents/me\na/api/agents/{a}\nh/api/agents/{b}\n\n/api/agents/%41?x=y",
	};

	return FUZZ_TEXT(seeds, i, b);
}

FUZZ_NO_REPAIR()
