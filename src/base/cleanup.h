/*
 * cleanup.h: scope-bound ownership.
 *
 * A variable marked with one of these attributes owns what it holds until the
 * scope ends or TAKE_PTR/TAKE_FD hands it over. A descriptor is -1 or owned.
 */
#ifndef AIRLOCK_BASE_CLEANUP_H
#define AIRLOCK_BASE_CLEANUP_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

/* Closes *fd if it is owned, keeps errno, leaves -1 behind. */
void cleanup_fd(int *fd);
void cleanup_file(FILE **f);
void cleanup_dir(DIR **d);
static inline void cleanup_free_ptr(void *p)
{
	free(*(void **)p);
}

#define _cleanup_(f) __attribute__((cleanup(f)))
#define _cleanup_fd_ _cleanup_(cleanup_fd)
#define _cleanup_free_ _cleanup_(cleanup_free_ptr)
#define _cleanup_file_ _cleanup_(cleanup_file)
#define _cleanup_dir_ _cleanup_(cleanup_dir)

#define TAKE_PTR(p)                     \
	({                              \
		__typeof__(p) t_ = (p); \
		(p) = NULL;             \
		t_;                     \
	})
#define TAKE_FD(fd)            \
	({                     \
		int t_ = (fd); \
		(fd) = -1;     \
		t_;            \
	})

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

#endif
