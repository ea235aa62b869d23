/*
 * heap.c: malloc, free, calloc and realloc of the static programs that start with each sandbox.
 *
 * musl's allocator maps a page or more for each size it meets and gives them back as soon as it can; at the start of
 * a process each such mapping costs as much as ten system calls, and a start met a dozen. Here
 * small blocks come from the program's own .bss, in size classes with a list of free blocks each, and what is larger
 * than BLOCK_MAX is a mapping of its own. Blocks are never merged: these programs hold little, of few sizes.
 *
 * A block that is freed twice, was never given out, or whose beginning was overwritten ends the program. One thread at a
 * time: a process that shares its memory with another (guest/hold.h, provider/native/launch.c) lets one of the two
 * allocate.
 */
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/lazy.h"

#define HEAP_SIZE 262144 /* only what is touched becomes memory */
#define NEAR_SIZE \
	1536	     /* beside the other variables of .bss, in the page that every start touches */
#define NEAR_MAX 256 /* blocks from there */
#define BLOCK_MAX 65536
#define BLOCK_MIN 32
#define CLASSES 24
#define PAGE 4096

#define MARK_USED 0x5d1ba6e3u
#define MARK_FREE 0x92c4fe17u
#define MARK_OWN 0xc7360b95u /* a mapping of its own */

struct head {
	uint32_t mark, class;
	size_t size; /* of the whole block */
};

struct free_block {
	struct head head;
	struct free_block *next;
};

static LAZY_BSS _Alignas(PAGE) char first[HEAP_SIZE];
static _Alignas(16) char beside[NEAR_SIZE];

struct region {
	char *room;
	size_t left;
};

static struct region near = {beside, NEAR_SIZE}, far = {first, HEAP_SIZE};
static struct free_block *lists[CLASSES];

static _Noreturn void broken(void)
{
	__builtin_trap();
}

/* 32, 48, 64, 96, 128, ... */
static unsigned class_of(size_t size, size_t *ret_size)
{
	unsigned c = 0;
	size_t s = BLOCK_MIN;

	while (s < size) {
		s = c % 2 ? s / 3 * 4 : s / 2 * 3;
		c++;
	}
	*ret_size = s;
	return c;
}

static void *map(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static void *give(struct head *h, uint32_t mark, unsigned class, size_t size)
{
	*h = (struct head){mark, class, size};
	return h + 1;
}

/* *ret_zero: the memory was never used. */
static void *take(size_t n, bool *ret_zero)
{
	struct free_block *b;
	struct region *from;
	size_t size;
	unsigned c;
	char *p;

	*ret_zero = true;
	if (n > PTRDIFF_MAX - 2 * PAGE)
		goto none;
	if (n + sizeof(struct head) > BLOCK_MAX) {
		size = (n + sizeof(struct head) + PAGE - 1) & ~(size_t)(PAGE - 1);
		p = map(size);
		if (!p)
			goto none;
		return give((struct head *)(void *)p, MARK_OWN, CLASSES, size);
	}
	c = class_of(n + sizeof(struct head), &size);
	b = lists[c];
	if (b) {
		if (b->head.mark != MARK_FREE)
			broken();
		lists[c] = b->next;
		*ret_zero = false;
		return give(&b->head, MARK_USED, c, size);
	}
	from = size <= NEAR_MAX && size <= near.left ? &near : &far;
	if (from->left < size) {
		/* What was left is less than one block: lost. */
		p = map(HEAP_SIZE);
		if (!p)
			goto none;
		*from = (struct region){p, HEAP_SIZE};
	}
	p = from->room;
	from->room += size;
	from->left -= size;
	return give((struct head *)(void *)p, MARK_USED, c, size);
none:
	errno = ENOMEM;
	return NULL;
}

static struct head *head_of(void *p)
{
	struct head *h = (struct head *)p - 1;

	if (h->mark != MARK_OWN && (h->mark != MARK_USED || h->class >= CLASSES))
		broken();
	return h;
}

void *malloc(size_t n)
{
	bool zero;

	return take(n, &zero);
}

void *calloc(size_t n, size_t size)
{
	bool zero;
	size_t all;
	void *p;

	if (__builtin_mul_overflow(n, size, &all)) {
		errno = ENOMEM;
		return NULL;
	}
	p = take(all, &zero);
	return p && !zero ? memset(p, 0, all) : p;
}

void free(void *p)
{
	struct free_block *b;
	struct head *h;

	if (!p)
		return;
	h = head_of(p);
	if (h->mark == MARK_OWN) {
		int e = errno;

		(void)munmap(h, h->size);
		errno = e;
		return;
	}
	h->mark = MARK_FREE;
	b = (struct free_block *)(void *)h;
	b->next = lists[h->class];
	lists[h->class] = b;
}

void *realloc(void *p, size_t n)
{
	struct head *h;
	void *q;

	if (!p)
		return malloc(n);
	h = head_of(p);
	if (n <= h->size - sizeof(*h))
		return p;
	q = malloc(n);
	if (!q)
		return NULL;
	memcpy(q, p, h->size - sizeof(*h));
	free(p);
	return q;
}
