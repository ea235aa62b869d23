/*
 * unpack_order.h: the orders that unpack_writer.c gives its lanes, and how one is carried out. Part of door 1.
 *
 * A batch is a plain run of orders, each followed by its strings; whoever fills it owns it until it is handed
 * over. A hand belongs to one thread and holds the file that this thread has in work. Orders are numbered in the
 * order of the stream over all lanes: of several that fail the one with the lowest number came first.
 */
#ifndef AIRLOCK_SYNC_UNPACK_ORDER_H
#define AIRLOCK_SYNC_UNPACK_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/limits.h"

#define BATCH_BYTES (128 << 10)
#define BATCH_DIRS 4	 /* directories closed in one: bounds the descriptors under way */
#define BATCH_LEAST 4096 /* a batch with less room for data than that is full */

enum order_op { OP_FILE, OP_DATA, OP_END, OP_LINK, OP_UNLINK, OP_CLOSE, OP_SYNC };

struct order {
	uint8_t op;
	bool again, give, hole;
	uint32_t mode;
	int dir;
	uint32_t name_len, path_len, n; /* what follows: name and path with their NUL, n bytes */
	uint64_t seq;
	uint64_t at; /* of data; size of the file */
	int64_t mtime_ns;
};

struct batch {
	size_t len, dirs;
	_Alignas(8) char data[BATCH_BYTES];
};

struct hand {
	int fd; /* owned: the file in work */
	uid_t uid;
	gid_t gid;
	uint64_t files;
	/* of the order in work, for a message; path: of the last entry that was to be made or removed */
	bool in_making;
	char path[PATH_MEMBER_MAX + 1];
};

/* What one order can take of data, with empty strings: into an empty batch. */
#define BATCH_DATA_MAX (BATCH_BYTES - sizeof(struct order) - 16)

/* With its strings: name_len, path_len and n are set. */
size_t order_len(const struct order *o);
bool batch_has_room(const struct batch *b, const struct order *o);
/* Bytes of data that one more order in it can take; 0: it is full. */
size_t batch_data_room(const struct batch *b);
/* There must be room. name, path: at least their lengths and a NUL. */
void batch_add(struct batch *b, const struct order *o, const char *name, const char *path,
	       const void *data);
/*
 * Those with numbers below `until`; of the others only what they own is closed. 0 or the negative errno of the
 * first that failed, with *ret_seq its number: nothing after it is carried out.
 */
int batch_carry_out(struct hand *h, const struct batch *b, uint64_t until, uint64_t *ret_seq);

#endif
