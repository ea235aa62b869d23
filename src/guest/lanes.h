/*
 * lanes.h: small files of a tree that lands, made by threads of their own while the stream is read.
 *
 * To make a file costs more than to receive it, and a file system makes two at a time. What is small is gathered, so many files as fill a batch, and
 * a thread makes all of a batch; so they meet once in some hundred files. The caller makes the directories, before
 * the files in them are given here, and whatever is large or not new. Each name is given once. Memory: a few
 * batches. The threads allocate nothing (base/heap.h knows one thread), and call nothing but the kernel.
 */
#ifndef AIRLOCK_GUEST_LANES_H
#define AIRLOCK_GUEST_LANES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LANES_FILE_MAX 65536 /* of contents */

struct lanes;

struct lanes_file {
	const char *path;
	size_t path_len;
	uint32_t mode;
	int64_t mtime_ns;
	size_t size; /* at most LANES_FILE_MAX */
};

/*
 * tree stays the caller's. exact: a new file has the very mode that it is opened with (umask, default ACLs). NULL: there can be
 * no threads, or no memory; then the caller does it all.
 */
struct lanes *lanes_new(int tree, bool exact);
/* Ends the threads. What was given since the last lanes_drain may be made or not. */
void lanes_free(struct lanes *l);
/* One after the other: a file, its size bytes, its end. May wait for the threads; a failure is told by lanes_drain. */
void lanes_begin(struct lanes *l, const struct lanes_file *f);
void lanes_data(struct lanes *l, const void *p, size_t n);
void lanes_end(struct lanes *l);
/* True: something failed, so that it is no use to go on. */
bool lanes_failed(struct lanes *l);
/* All that was given is there: 0; or the negative errno of the first failure, and which file. The text lives as long as l. */
int lanes_drain(struct lanes *l, const char **ret_path);

#endif
