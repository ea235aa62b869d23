/* buf_write.h: what a buffer holds, to a descriptor that blocks. */
#ifndef AIRLOCK_BASE_BUF_WRITE_H
#define AIRLOCK_BASE_BUF_WRITE_H

#include "base/buf.h"

/* Writes all of it and empties the buffer, whatever happens. 0 or a negative errno. */
int buf_write(struct buf *b, int fd);

#endif
