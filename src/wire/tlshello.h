/*
 * tlshello.h: the server name in the first message of a TLS client, without I/O.
 *
 * Reads the plain text of the ClientHello (RFC 8446, 4.1.2), over any number of records, and nothing else. With an
 * encrypted ClientHello (ECH) it is the outer name, which is the one that is on the wire.
 */
#ifndef AIRLOCK_WIRE_TLSHELLO_H
#define AIRLOCK_WIRE_TLSHELLO_H

#include <stddef.h>

#define TLSHELLO_MAX 20480 /* bytes of records; a longer ClientHello is refused */
#define TLSHELLO_NAME_MAX 255

enum tlshello {
	TLSHELLO_MORE, /* not whole yet */
	TLSHELLO_NAME,
	TLSHELLO_NONE, /* a ClientHello without a name */
	TLSHELLO_BAD,  /* no TLS, or malformed */
};

/* data: all bytes of the connection so far. name gets the NUL-ended name as sent. */
enum tlshello tlshello_name(const void *data, size_t n, char name[TLSHELLO_NAME_MAX + 1]);

#endif
