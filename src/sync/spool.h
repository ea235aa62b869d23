/*
 * spool.h: append-only bytes with random reads, in memory while small, else in an unlinked file.
 *
 * Keeps lists whose length the sandbox decides off the heap. The file has no name, so a kill
 * leaves nothing behind.
 */
#ifndef AIRLOCK_SYNC_SPOOL_H
#define AIRLOCK_SYNC_SPOOL_H

#include <stddef.h>
#include <stdint.h>

struct spool {
	int dir;   /* borrowed: where the file is made; any file system with room */
	int fd;	   /* owned, -1 while in memory */
	char *mem; /* the tail not yet in the file */
	size_t mem_len, mem_cap;
	uint64_t flushed;	  /* bytes in the file */
	uint64_t max;		  /* -E2BIG beyond */
	struct spool_window *win; /* owned: what was read last of the file, for who reads on */
};

/* A new file without a name in that directory, which is ours alone. The descriptor or a negative errno. */
int spool_nameless(int dir);
void spool_init(struct spool *s, int dir, uint64_t max);
void spool_done(struct spool *s);
uint64_t spool_len(const struct spool *s);
/* 0, -E2BIG, -ENOMEM, errno of the write. */
int spool_put(struct spool *s, const void *p, size_t n);
/* Reads up to n bytes at off; returns the count (short only at the end) or a negative errno. */
long spool_get(const struct spool *s, uint64_t off, void *p, size_t n);

#endif
