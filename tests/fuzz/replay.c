/*
 * replay: runs a fuzz target without a fuzzer, the same way every time.
 *
 *   replay ROUNDS [FILE...]    every seed, every file, then ROUNDS mutations of seeds
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "fuzz.h"

/* A copy of exactly the right size, so that a sanitizer sees a read beyond the end. */
static void feed(const struct buf *b)
{
	uint8_t *p = malloc(b->len ? b->len : 1);

	MUST(p);
	if (b->len)
		memcpy(p, b->data, b->len);
	(void)LLVMFuzzerTestOneInput(p, b->len);
	free(p);
}

static void feed_file(const char *path)
{
	_cleanup_buf_ struct buf b = BUF_INIT(FUZZ_INPUT_MAX);
	_cleanup_file_ FILE *f = fopen(path, "re");
	char part[4096];
	size_t n;

	if (!f) {
		(void)fprintf(stderr, "replay: %s: %s\n", path, strerror(errno));
		exit(1);
	}
	while ((n = fread(part, 1, sizeof(part), f)) > 0)
		MUST(buf_put(&b, part, n) == 0);
	feed(&b);
}

static void mutate(struct buf *b, const struct buf *other, uint32_t *s)
{
	static const char interesting[] = "\0\xff\x80/.~01257LKSxg=\n ,";

	for (uint32_t k = fuzz_random(s) % 6 + 1; k > 0 && b->len > 0; k--) {
		size_t at = fuzz_random(s) % b->len, n = fuzz_random(s) % 512 + 1;

		n = n < b->len - at ? n : b->len - at;
		switch (fuzz_random(s) % 6) {
		case 0:
			b->data[at] = (char)fuzz_random(s);
			break;
		case 1: /* in a header rather than in data: fields lie in the first 512 bytes of a block */
			b->data[at] = interesting[fuzz_random(s) % (sizeof(interesting) - 1)];
			break;
		case 2: /* a piece of another seed */
			if (other->len >= n)
				memcpy(b->data + at,
				       other->data + fuzz_random(s) % (other->len - n + 1), n);
			break;
		case 3: /* whole blocks move up */
			at -= at % 512;
			n = 512 < b->len - at ? 512 : 0;
			memmove(b->data + at, b->data + at + n, b->len - at - n);
			b->len -= n;
			break;
		case 4: /* a field is copied within */
			memmove(b->data + at, b->data + fuzz_random(s) % (b->len - n + 1), n);
			break;
		default: /* cut */
			if (fuzz_random(s) % 4 == 0)
				b->len = at;
		}
	}
}

int main(int argc, char **argv)
{
	uint64_t rounds = 0;
	uint32_t s = 20261129;
	size_t seeds = 0;

	if (argc < 2 || str_to_u64(argv[1], 1000000000, &rounds)) {
		(void)fputs("usage: replay ROUNDS [FILE...]\n", stderr);
		return 2;
	}
	for (;; seeds++) {
		_cleanup_buf_ struct buf b = BUF_INIT(FUZZ_SEED_MAX);

		if (!fuzz_seed(seeds, &b))
			break;
		feed(&b);
	}
	for (int i = 2; i < argc; i++)
		feed_file(argv[i]);
	MUST(seeds > 0);
	for (uint64_t i = 0; i < rounds; i++) {
		_cleanup_buf_ struct buf b = BUF_INIT(FUZZ_SEED_MAX),
					 other = BUF_INIT(FUZZ_SEED_MAX);

		(void)fuzz_seed(fuzz_random(&s) % seeds, &b);
		(void)fuzz_seed(fuzz_random(&s) % seeds, &other);
		if (b.len > 65536)
			continue; /* the big ones are about size, and slow */
		mutate(&b, &other, &s);
		if (b.len)
			fuzz_repair((uint8_t *)b.data, b.len);
		feed(&b);
	}
	(void)printf("%zu seeds, %d files, %llu mutations\n", seeds, argc - 2,
		     (unsigned long long)rounds);
	return 0;
}
