/* Ignore patterns of a hostile repository: any text, any path, no blow-up, and both walks agree with themselves. */
#include "fuzz.h"

#include "policy/pattern.h"

/* The input: patterns, a NUL byte, paths one a line. */
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	const char *text = (const char *)p, *nul = memchr(p, '\0', n), *path, *end = text + n;
	struct pattern_list l = {0};

	if (!nul || pattern_list_parse(&l, text, (size_t)(nul - text), NULL) < 0) {
		pattern_list_done(&l);
		return 0;
	}
	for (path = nul + 1; path < end;) {
		const char *nl = memchr(path, '\n', (size_t)(end - path));
		size_t len = (size_t)((nl ? nl : end) - path);
		enum pattern_verdict dir, file;

		if (len) {
			file = pattern_list_match(&l, path, len, false);
			dir = pattern_list_match(&l, path, len, true);
			MUST(file == pattern_list_match(&l, path, len, false));
			/* A directory is matched by everything that matches a file of that name. */
			MUST(file != PATTERN_MATCH || dir != PATTERN_NONE);
			(void)pattern_list_reaches_below(&l, path, len);
		}
		path += len + 1;
	}
	pattern_list_done(&l);
	return 0;
}

bool fuzz_seed(size_t i, struct buf *b)
{
	static const char *const seeds[][2] = {
	    {"*.o\n!keep.o\n/build/\n", "a.o\nkeep.o\nbuild\nx/build\n"},
	    {"**/a/**/b\na/**\n**\n", "a/b\nx/a/y/z/b\na\n"},
	    {"[a-z!]*[[:digit:]]?\n[^]]\\*\n\\#x\n", "a1b\n]*\n#x\n"},
	    {"a*a*a*a*a*a*a*b\n*?*?*?*?x\n", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n"},
	};

	if (i >= sizeof(seeds) / sizeof(seeds[0]))
		return false;
	MUST(buf_puts(b, seeds[i][0]) == 0 && buf_putc(b, '\0') == 0 &&
	     buf_puts(b, seeds[i][1]) == 0);
	return true;
}

FUZZ_NO_REPAIR()
