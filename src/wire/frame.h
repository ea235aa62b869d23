/*
 * frame.h: the framing that our own programs and the guest speak.
 *
 * Sans-I/O. Header of 8 bytes: u32 payload length (little endian), u8 version,
 * u8 type, u8 number of descriptors that travel with the frame, u8 zero. A length
 * above FRAME_MAX, another version or a non-zero last byte is a protocol error and
 * ends the conversation: there is no way to resynchronise and none is wanted.
 */
#ifndef AIRLOCK_WIRE_FRAME_H
#define AIRLOCK_WIRE_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/cursor.h"

#define FRAME_VERSION 1
#define FRAME_HEADER 8

struct frame {
	uint8_t type;
	uint8_t nfds;
	struct view payload;
};

/* Appends one frame. 0, -E2BIG, -ENOMEM. */
int frame_put(struct buf *out, uint8_t type, uint8_t nfds, const void *payload, size_t n);
/*
 * Looks for a whole frame at the start of p[0..n). Returns its total length (> 0)
 * and fills ret, whose payload points into p; 0 if more bytes are needed; -EPROTO.
 */
long frame_parse(const void *p, size_t n, struct frame *ret);

#endif
