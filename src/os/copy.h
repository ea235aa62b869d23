/* copy.h: the bytes of a small file into another one. */
#ifndef AIRLOCK_OS_COPY_H
#define AIRLOCK_OS_COPY_H

/* All of `from`, whose offset is not moved, to where `to` stands. 0 or negative errno. */
int copy_file(int from, int to);

#endif
